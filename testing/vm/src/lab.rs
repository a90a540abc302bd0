//! The kinds of pairs of VMs that tests run in.

use vrdma_conformance::kernel_faults;
use vrdma_lab::artefacts::Part;
use vrdma_lab::device::Device;
use vrdma_lab::vm::{PairConfig, Tcp, Topology, Uplink};

/// Kinds of pairs, in the order in which their tests are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lab {
    /// What the demo has.
    Usual,
    /// The VMs have two Ethernet devices and two RDMA devices each.
    Rails,
    /// The VMs have an IOMMU.
    Iommu,
    /// Beside the kernel's there is one channel in each VM, and guests may use any address.
    OneChannel,
    /// VMs of one processor, and a backend that sleeps as soon as there is nothing to do.
    Sleepy,
    /// The backend polls, whatever processors there are.
    Polling,
    /// The daemon is an older one.
    OlderBackend,
    /// The VMs' devices are of iWARP, over the host's TCP.
    Iwarp,
    /// Both VMs have rdma_rxe, on two hosts.
    Rxe,
    /// Three VMs on a host, in two VLANs.
    Vlans,
    /// The VMs' kernel finds faults.
    KernelFaults,
    /// Two hosts with a backend each, and a wire.
    TwoHosts,
    /// Two hosts with a backend each, and a router between them.
    Routed,
    /// Two hosts with a router between them. The devices are of iWARP, over the backends' own TCP.
    RoutedIwarp,
    /// Two hosts. The devices are of iWARP, over the hosts' TCP.
    IwarpTwoHosts,
    /// Two hosts. The devices are of iWARP, over the backends' own TCP.
    IwarpOwnTcp,
    /// Two hosts. Each VM has a device of iWARP and one of RoCE, and uplinks have our own driver.
    Both,
    /// Two hosts. VM b has Linux's soft-iWARP, and VM a our device over its host's TCP.
    Siw,
    /// Two hosts. VM b has Linux's soft-iWARP, and VM a our device over the backend's own TCP. Its
    /// uplink has our own driver.
    SiwOwnTcp,
    /// Two hosts and three VMs in two VLANs: the first and the third on one host, the second on the
    /// other.
    VlansTwoHosts,
    /// Two hosts. VM a has our device, and VM b rdma_rxe.
    Interop,
}

impl Lab {
    /// What such a pair looks like, where one of the usual kind looks like this.
    pub fn config(self, usual: &PairConfig) -> PairConfig {
        let mut config = usual.clone();
        match self {
            // As libvirt has it.
            Self::Usual => config.root_ports = true,
            // As with a processor of its own: it does not sleep even while the guest's turn to run
            // is long in coming.
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
            Self::Interop => config.topology = Topology::Wire([Device::Vrdma, Device::Rxe]),
            Self::Rxe => {
                config.topology = Topology::Wire([Device::Rxe, Device::Rxe]);
                config.without = Part::ALL.to_vec();
            }
        }
        config
    }
}
