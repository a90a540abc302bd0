//! Tests that run in a pair of VMs. They share one booted pair; a test that breaks it gets the next
//! one a new pair.
//!
//! To add a test, write a function `fn(&mut Pair) -> Result<()>` in a module here and list it in
//! [`all`]. One that takes more than a minute or two is listed as `test(...).long()`: it runs with
//! `cargo xtask test --long` only.

mod answers;
mod basics;
pub(crate) mod cleanup;
mod counters;
mod endings;
mod families;
mod forged;
mod hostile;
mod hosts;
mod iwarp;
mod linux;
mod multicast;
mod perftest;
mod port;
mod posting;
pub mod rdmacore;
mod runner;
mod siw;
mod skew;
pub mod storage;
mod stress;
pub(crate) mod third;
mod vlans;
pub(crate) mod watch;

use anyhow::Result;

use crate::artefacts::Part;
use crate::demo::pci_nic;
use crate::kernel_faults;
use crate::programs::Device;
use crate::vm::nic::Nic;
use crate::vm::{Pair, PairConfig, Tcp, Topology, Uplink};
pub use runner::{Outcome, run};

/// One test.
pub struct VmTest {
    /// What `--only` selects it by.
    pub name: &'static str,
    /// Whether it needs the backend and our driver.
    pub needs: Needs,
    /// The kind of pair that it runs in.
    pub lab: Lab,
    /// Takes too long for every day: runs with `--long`.
    pub long: bool,
    /// The test itself.
    pub run: Run,
}

/// A test in VMs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a pair of its kind.
    InPair(fn(&mut Pair) -> Result<()>),
    /// In VMs that it boots itself.
    Alone(fn() -> Result<()>),
}

impl VmTest {
    fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// VMs.
    Vms,
    /// VMs with our device, driver and provider.
    Rdma,
    /// The same, and an older version of it ([`crate::older`]).
    Older,
}

/// Kinds of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lab {
    /// What the demo has.
    Usual,
    /// The backend polls, whatever processors there are.
    Polling,
    /// The daemon is an older one.
    OlderBackend,
    /// The VMs have two Ethernet devices and two RDMA devices each.
    Rails,
    /// The VMs have an IOMMU.
    Iommu,
    /// VMs of one processor, and a backend that sleeps as soon as there is nothing to do.
    Sleepy,
    /// Beside the kernel's there is one channel in each VM, and guests may use any address.
    OneChannel,
    /// The VMs' devices are of iWARP.
    Iwarp,
    /// The same on two hosts.
    IwarpTwoHosts,
    /// Likewise, over the backends' own TCP.
    IwarpOwnTcp,
    /// Likewise, with a device of RoCE beside, and uplinks of our own driver.
    Both,
    /// And VM b has Linux's soft-iWARP instead: with our device over its host's TCP,
    Siw,
    /// and over the backend's own, on an uplink of our own driver.
    SiwOwnTcp,
    /// Two hosts with a backend each, and a wire.
    TwoHosts,
    /// Likewise, with a router between.
    Routed,
    /// Likewise, and the VMs' devices are of iWARP, over the backends' own TCP.
    RoutedIwarp,
    /// Three VMs on a host, in two VLANs.
    Vlans,
    /// The first and the third one on a host, the second on another.
    VlansTwoHosts,
    /// VM b's host has rdma_rxe.
    Interop,
    /// Both have.
    Rxe,
    /// The VMs' kernel finds faults.
    KernelFaults,
}

impl Lab {
    fn config(self, usual: &PairConfig) -> PairConfig {
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

/// All tests, in the order in which they run. Those of the same kind of pair stand together, as
/// each change boots one.
pub fn all() -> Vec<VmTest> {
    let mut tests = usual();
    tests.extend(linux::on_one_host());
    tests.extend(of_other_kinds());
    tests.extend(between_hosts());
    tests.extend(on_pci());
    tests
}

/// Those of the demo's pair.
fn usual() -> Vec<VmTest> {
    let test = |name, needs, run| on(Lab::Usual, name, needs, run);
    vec![
        test("vm-exec", Needs::Vms, basics::exec),
        test("vm-ping", Needs::Vms, basics::ping),
        test("vm-devinfo", Needs::Rdma, basics::devinfo),
        test("vm-programs", Needs::Rdma, basics::stock_programs),
        test("vm-xrc", Needs::Rdma, basics::shared_target),
        test("vm-perftest", Needs::Rdma, perftest::all).long(),
        test("vm-same-host", Needs::Rdma, hosts::same_host),
        test("vm-same-host-all", Needs::Rdma, hosts::same_host_all).long(),
        test("vm-spoofed-gid", Needs::Rdma, forged::gid),
        test("vm-1000-qps", Needs::Rdma, perftest::thousand_qps),
        test("vm-no-channel", Needs::Rdma, perftest::no_channel),
        test("vm-port", Needs::Rdma, port::follows_netdev),
        test("vm-counters", Needs::Rdma, counters::tell_what_was_done),
        test("vm-multicast", Needs::Rdma, multicast::mckey),
        test("vm-nvme", Needs::Rdma, storage::nvme).long(),
        test("vm-iser", Needs::Rdma, storage::iser).long(),
        test("vm-nfs", Needs::Rdma, storage::nfs).long(),
        test("vm-killed-target", Needs::Rdma, storage::killed_target).long(),
        test("vm-killed-initiator", Needs::Rdma, storage::killed_initiator).long(),
        test("vm-cm", Needs::Rdma, families::cm),
        test("vm-sockets", Needs::Rdma, families::sockets).long(),
        test("vm-mpi", Needs::Rdma, families::mpi).long(),
        test("vm-ai", Needs::Rdma, families::ai).long(),
        test("vm-rdma-core", Needs::Rdma, rdmacore::tests),
        test("vm-verbs", Needs::Rdma, answers::verbs),
        test("vm-device-memory", Needs::Rdma, answers::device_memory).long(),
        test("vm-stopped-backend", Needs::Rdma, answers::stopped_backend).long(),
        test("vm-pyverbs", Needs::Rdma, rdmacore::qp_and_rdmacm).long(),
        test("vm-pyverbs-long", Needs::Rdma, rdmacore::qp_and_rdmacm_often).long(),
        test("vm-4000-qps", Needs::Rdma, posting::four_thousand_qps),
        test("vm-one-channel", Needs::Rdma, posting::one_channel),
        test("vm-sleep", Needs::Rdma, posting::sleeping),
        test("vm-hostile-process", Needs::Rdma, hostile::process),
        test("vm-hostile-process-long", Needs::Rdma, hostile::process_for_long).long(),
        test("vm-clean-up-kill-9", Needs::Rdma, cleanup::killed_processes),
        test("vm-clean-up-kill-9-often", Needs::Rdma, cleanup::killed_processes_often).long(),
        test("vm-clean-up-rmmod", Needs::Rdma, cleanup::removed_driver),
        test("vm-clean-up-rmmod-often", Needs::Rdma, cleanup::removed_driver_often).long(),
        test("vm-clean-up-rdma-cm", Needs::Rdma, port::removed_while_connected),
        test("vm-clean-up-reset", Needs::Rdma, cleanup::reset_vm).long(),
        test("vm-clean-up-qemu", Needs::Rdma, cleanup::killed_vm),
        test("vm-reset", Needs::Vms, basics::reset),
        test("vm-kill", Needs::Vms, basics::kill).long(),
        test("vm-older-driver", Needs::Older, skew::older_driver).long(),
    ]
}

/// Those of other pairs on one host.
fn of_other_kinds() -> Vec<VmTest> {
    vec![
        on(Lab::OneChannel, "vm-empty-pool", Needs::Rdma, perftest::empty_pool).long(),
        on(Lab::Sleepy, "vm-one-processor", Needs::Rdma, stress::short),
        on(Lab::Sleepy, "vm-one-processor-long", Needs::Rdma, stress::long).long(),
        on(Lab::Polling, "vm-no-system-calls", Needs::Rdma, posting::no_system_calls),
        on(Lab::OlderBackend, "vm-older-daemon", Needs::Older, skew::older_daemon).long(),
        on(Lab::Iwarp, "vm-iwarp", Needs::Rdma, iwarp::programs),
        on(Lab::Iwarp, "vm-iwarp-ipv6", Needs::Rdma, iwarp::ipv6),
        on(Lab::Iwarp, "vm-iwarp-foreign-qp", Needs::Rdma, iwarp::foreign_qp),
        on(Lab::Iwarp, "vm-iwarp-kernel-qp", Needs::Rdma, iwarp::kernel_qp),
        on(Lab::Iwarp, "vm-linux-netns-iwarp", Needs::Rdma, linux::netdevs::namespace),
        on(Lab::Iwarp, "vm-linux-private-data-iwarp", Needs::Rdma, linux::verbs::private_data),
        on(Lab::Iwarp, "vm-linux-few-ports-iwarp", Needs::Rdma, linux::verbs::few_ports),
        on(Lab::Iwarp, "vm-linux-many-connections-iwarp", Needs::Rdma, linux::many::beyond_the_limit).long(),
        on(Lab::Iwarp, "vm-iwarp-endings", Needs::Rdma, endings::all).long(),
        on(Lab::Rxe, "vm-rxe", Needs::Vms, hosts::rxe).long(),
        on(Lab::Vlans, "vm-vlans", Needs::Rdma, vlans::same_address).long(),
        on(Lab::KernelFaults, "vm-kernel-faults", Needs::Rdma, kernel_faults::short).long(),
    ]
}

/// The daemon on each NIC on PCI.
fn on_pci() -> [VmTest; 4] {
    let test = |name, run| {
        VmTest { name, needs: Needs::Rdma, lab: Lab::Usual, long: false, run: Run::Alone(run) }.long()
    };
    [
        test("vm-pci-nic-igb", || pci_nic::run(&[Nic::Igb])),
        test("vm-pci-nic-e1000e", || pci_nic::run(&[Nic::E1000e])),
        test("vm-pci-nic-virtio", || pci_nic::run(&[Nic::Virtio])),
        test("vm-pci-nic-vmxnet3", || pci_nic::run(&[Nic::Vmxnet3])),
    ]
}

fn on(lab: Lab, name: &'static str, needs: Needs, run: fn(&mut Pair) -> Result<()>) -> VmTest {
    VmTest { name, needs, lab, long: false, run: Run::InPair(run) }
}

/// Those of VMs on two hosts.
fn between_hosts() -> Vec<VmTest> {
    vec![
        on(Lab::TwoHosts, "vm-two-hosts", Needs::Rdma, hosts::two_hosts),
        on(Lab::TwoHosts, "vm-two-hosts-all", Needs::Rdma, hosts::two_hosts_all).long(),
        on(Lab::TwoHosts, "vm-counters-two-hosts", Needs::Rdma, counters::tell_what_was_done),
        on(Lab::TwoHosts, "vm-multicast-two-hosts", Needs::Rdma, multicast::mckey).long(),
        on(Lab::TwoHosts, "vm-nvme-two-hosts", Needs::Rdma, storage::nvme),
        on(Lab::TwoHosts, "vm-iser-two-hosts", Needs::Rdma, storage::iser).long(),
        on(Lab::TwoHosts, "vm-nfs-two-hosts", Needs::Rdma, storage::nfs).long(),
        on(Lab::TwoHosts, "vm-killed-target-two-hosts", Needs::Rdma, storage::killed_targets).long(),
        on(Lab::TwoHosts, "vm-sockets-two-hosts", Needs::Rdma, families::sockets).long(),
        on(Lab::TwoHosts, "vm-mpi-two-hosts", Needs::Rdma, families::mpi).long(),
        on(Lab::TwoHosts, "vm-ai-two-hosts", Needs::Rdma, families::ai).long(),
        on(Lab::TwoHosts, "vm-forged-packets", Needs::Rdma, forged::packets),
        on(Lab::TwoHosts, "vm-spoofed-mac", Needs::Rdma, forged::mac_address),
        on(Lab::TwoHosts, "vm-linux-answers-two-hosts", Needs::Rdma, linux::verbs::answers),
        on(Lab::TwoHosts, "vm-linux-destroyed-two-hosts", Needs::Rdma, linux::verbs::destroyed),
        on(Lab::TwoHosts, "vm-linux-mac-two-hosts", Needs::Rdma, linux::netdevs::other_mac),
        on(Lab::TwoHosts, "vm-linux-upper-two-hosts", Needs::Rdma, linux::netdevs::upper_netdevs),
        on(Lab::TwoHosts, "vm-linux-tos-two-hosts", Needs::Rdma, linux::classes::traffic_class),
        on(Lab::TwoHosts, "vm-link-flap", Needs::Rdma, hosts::link_flap),
        on(Lab::TwoHosts, "vm-link-loss", Needs::Rdma, hosts::link_loss).long(),
        on(Lab::Routed, "vm-linux-routed", Needs::Rdma, linux::routes::roce),
        on(Lab::RoutedIwarp, "vm-linux-routed-iwarp", Needs::Rdma, linux::routes::iwarp),
        on(Lab::IwarpTwoHosts, "vm-iwarp-two-hosts", Needs::Rdma, siw::two_hosts).long(),
        on(Lab::IwarpTwoHosts, "vm-iwarp-nvme", Needs::Rdma, siw::nvme).long(),
        on(Lab::IwarpOwnTcp, "vm-iwarp-own-tcp", Needs::Rdma, siw::two_hosts),
        on(Lab::IwarpOwnTcp, "vm-linux-netns-iwarp-own-tcp", Needs::Rdma, linux::netdevs::namespace),
        on(Lab::IwarpOwnTcp, "vm-linux-private-data-own-tcp", Needs::Rdma, linux::verbs::private_data),
        on(Lab::IwarpOwnTcp, "vm-linux-few-ports-own-tcp", Needs::Rdma, linux::verbs::few_ports),
        on(Lab::IwarpOwnTcp, "vm-linux-tos-own-tcp", Needs::Rdma, linux::classes::traffic_class),
        on(Lab::IwarpOwnTcp, "vm-linux-many-connections-own-tcp", Needs::Rdma, linux::many::beyond_the_limit)
            .long(),
        on(Lab::IwarpOwnTcp, "vm-linux-mac-iwarp", Needs::Rdma, linux::netdevs::other_mac),
        on(Lab::IwarpOwnTcp, "vm-iwarp-nvme-own-tcp", Needs::Rdma, siw::nvme),
        on(Lab::Both, "vm-both", Needs::Rdma, siw::both).long(),
        on(Lab::Siw, "vm-siw", Needs::Rdma, siw::quick).long(),
        on(Lab::Siw, "vm-siw-refused", Needs::Rdma, siw::refused).long(),
        on(Lab::SiwOwnTcp, "vm-siw-own-tcp", Needs::Rdma, siw::quick),
        on(Lab::SiwOwnTcp, "vm-siw-refused-own-tcp", Needs::Rdma, siw::refused),
        on(Lab::VlansTwoHosts, "vm-vlans-two-hosts", Needs::Rdma, vlans::same_address).long(),
        on(Lab::Interop, "vm-interop", Needs::Rdma, hosts::interop),
        on(Lab::Interop, "vm-interop-all", Needs::Rdma, hosts::interop_all).long(),
        on(Lab::Interop, "vm-multicast-rxe", Needs::Rdma, multicast::mckey),
        on(Lab::Interop, "vm-nvme-rxe", Needs::Rdma, storage::nvme).long(),
        on(Lab::Interop, "vm-iser-rxe", Needs::Rdma, storage::iser).long(),
        on(Lab::Interop, "vm-nfs-rxe", Needs::Rdma, storage::nfs).long(),
    ]
}
