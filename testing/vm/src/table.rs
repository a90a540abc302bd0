//! The table of all tests.

use vrdma_conformance::demo::pci_nic;
use vrdma_conformance::kernel_faults;
use vrdma_lab::vm::nic::Nic;

use crate::lab::Lab;
use crate::test::{Needs, Run, VmTest, on};
use crate::{
    answers, basics, cleanup, counters, endings, families, forged, hostile, hosts, iwarp, linux, multicast,
    perftest, port, posting, rdmacore, siw, skew, storage, stress, vlans,
};

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

/// The tests that `cargo xtask kernel-faults` runs in a pair of its own.
pub fn of_kernel_faults() -> Vec<kernel_faults::Test> {
    let in_pair = |test: VmTest| match test.run {
        Run::InPair(run) => Some((test.name, run)),
        Run::Alone(_) => None,
    };
    all().into_iter().filter(|test| kernel_faults::TESTS.contains(&test.name)).filter_map(in_pair).collect()
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
        on(Lab::KernelFaults, "vm-kernel-faults", Needs::Rdma, |pair| {
            kernel_faults::short(pair, &of_kernel_faults())
        })
        .long(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_are_there() {
        let all: Vec<&str> = all().iter().map(|test| test.name).collect();
        assert!(kernel_faults::TESTS.iter().all(|name| all.contains(name)));
    }
}
