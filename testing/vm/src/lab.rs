//! The kinds of pairs of VMs that tests run in.

use vrdma_conformance::kernel_faults;
use vrdma_lab::artefacts::Part;
use vrdma_lab::device::Device;
use vrdma_lab::kernel::Kernel;
use vrdma_lab::vm::{PairConfig, Tcp, Topology, Uplink};

/// A kind of pair of VMs. The variants are in the order in which their tests are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lab {
    /// The pair of the demo.
    Usual,
    /// Each VM has two Ethernet devices and two RDMA devices.
    Rails,
    /// The VMs have an IOMMU.
    Iommu,
    /// Each VM has one channel besides the kernel's, and guests may use any address.
    OneChannel,
    /// Each VM has one processor, and the backend sleeps as soon as it has nothing to do.
    Sleepy,
    /// The backend always polls, however few processors there are.
    Polling,
    /// The daemon is an older version.
    OlderBackend,
    /// The VMs' devices are iWARP devices, over the host's TCP.
    Iwarp,
    /// Both VMs have rdma_rxe, on two hosts.
    Rxe,
    /// Three VMs on one host, in two VLANs.
    Vlans,
    /// The VMs run a debug kernel, which detects faults.
    KernelFaults,
    /// The VMs run the oldest kernel that the driver supports.
    OldestKernel,
    /// The VMs run the newest kernel that the driver supports.
    NewestKernel,
    /// Two hosts, each with a backend, joined by a wire.
    TwoHosts,
    /// Two hosts, each with a backend, and a router between them.
    Routed,
    /// Two hosts with a router between them. The devices are iWARP devices, over the backends' TCP.
    RoutedIwarp,
    /// Two hosts. The devices are iWARP devices, over the hosts' TCP.
    IwarpTwoHosts,
    /// Two hosts. The devices are iWARP devices, over the backends' TCP.
    IwarpOwnTcp,
    /// Two hosts. Each VM has an iWARP and a RoCE device. The uplinks use our own driver.
    Both,
    /// Two hosts. VM a has our device, over its host's TCP. VM b has Linux's soft-iWARP.
    Siw,
    /// Two hosts. VM a has our device, over the backend's TCP. VM b has Linux's soft-iWARP.
    ///
    /// The uplink uses our own driver.
    SiwOwnTcp,
    /// Two hosts and three VMs in two VLANs. VMs a and c are on one host, and VM b on the other.
    VlansTwoHosts,
    /// Two hosts. VM a has our device, and VM b rdma_rxe.
    Interop,
}

impl Lab {
    /// Returns the configuration of this kind of pair, based on the usual one.
    pub fn config(self, usual: &PairConfig) -> PairConfig {
        let mut config = usual.clone();
        match self {
            // libvirt also puts devices behind root ports.
            Self::Usual => config.root_ports = true,
            // The backend polls as if it had a processor of its own. It does not sleep even if the
            // guest does not run for a long time.
            Self::Polling => config.backend_arguments = vec!["--busy-poll".into()],
            Self::OlderBackend => config.older_backend = true,
            Self::Rails => (config.rails, config.any_gid) = (true, true),
            Self::Iommu => config.iommu = true,
            Self::Sleepy => {
                config.cpus = 1;
                config.backend_arguments = vec!["--poll-us=0".into()];
            }
            Self::OneChannel => (config.channels, config.any_gid) = (2, true),
            Self::Iwarp => config.iwarp = Some(Tcp::Kernel),
            Self::IwarpTwoHosts => {
                config.iwarp = Some(Tcp::Kernel);
                config.topology = Topology::Wire([Device::Vrdma, Device::Vrdma]);
            }
            Self::IwarpOwnTcp => {
                config.iwarp = Some(Tcp::Own);
                config.topology = Topology::Wire([Device::Vrdma, Device::Vrdma]);
            }
            Self::Both => {
                config = Self::IwarpOwnTcp.config(usual);
                config.both = true;
                config.uplink = Uplink::Packet;
            }
            Self::Siw => {
                config.iwarp = Some(Tcp::Kernel);
                config.topology = Topology::Wire([Device::Vrdma, Device::Siw]);
            }
            Self::SiwOwnTcp => {
                config.iwarp = Some(Tcp::Own);
                config.topology = Topology::Wire([Device::Vrdma, Device::Siw]);
                config.uplink = Uplink::Packet;
            }
            Self::TwoHosts => config.topology = Topology::Wire([Device::Vrdma, Device::Vrdma]),
            Self::Routed => {
                config = Self::TwoHosts.config(usual);
                config.routed = true;
            }
            Self::RoutedIwarp => {
                config = Self::IwarpOwnTcp.config(usual);
                config.routed = true;
            }
            Self::Vlans => config.third = true,
            Self::VlansTwoHosts => {
                config.topology = Topology::Wire([Device::Vrdma, Device::Vrdma]);
                config.third = true;
            }
            Self::KernelFaults => config = kernel_faults::config(config),
            Self::OldestKernel => config.kernel = Kernel::Oldest,
            Self::NewestKernel => config.kernel = Kernel::Newest,
            Self::Interop => config.topology = Topology::Wire([Device::Vrdma, Device::Rxe]),
            Self::Rxe => {
                config.topology = Topology::Wire([Device::Rxe, Device::Rxe]);
                config.without = Part::ALL.to_vec();
            }
        }
        config
    }
}
