//! Several workers with an uplink queue pair each. The tests need root, for network namespaces.
//!
//! Shows: queues.

use std::process::Command;
use vrdma_tests::queues::{Passed, lab, start, talk};

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

/// Creates a network namespace for this thread and threads that it starts later.
///
/// Those include the daemons' threads. Returns false without root.
fn namespace() -> bool {
    // SAFETY: a plain system call.
    let has_one = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !has_one {
        eprintln!("not tried: there is no network of its own without root");
    }
    has_one
}

#[test]
fn each_worker_sends_and_receives_by_its_own_packet_socket() {
    if !namespace() {
        return;
    }
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    let lab = lab("net_af_packet0,iface=va,qpairs=2", "net_af_packet1,iface=vb");
    // The kernel spreads connections over the sockets without regard to their workers.
    let spreads = |Passed { received, handed_over, .. }: &Passed| {
        received.iter().all(|frames| *frames != 0) && *handed_over != 0
    };
    for _ in 0..50 {
        talk(&lab);
        if spreads(&Passed::of(&lab.stats())) {
            break;
        }
    }
    let stats = lab.stats();
    let passed = Passed::of(&stats);
    assert!(spreads(&passed) && passed.sent.iter().all(|frames| *frames != 0), "{passed:?}");
    assert_eq!(stats.uplink("frames_sent"), passed.sent.iter().sum::<u64>());
    assert_eq!((stats.uplink("rules"), stats.uplink("rules_refused")), (0, 2), "packet sockets have none");
    // The remote daemon has a single socket, which its first worker uses for both workers.
    let remote = lab.remote_stats();
    assert_eq!(remote.worker(1, "uplink_sent") + remote.worker(1, "uplink_received"), 0);
    assert!(remote.uplink("rx_handed_over") != 0 && remote.worker(0, "uplink_sent") != 0);
    // Guests of one daemon reach each other when the link is down. Others are reachable again when
    // it is up.
    let within = start(&lab, 0, 2);
    ip("link set vb down");
    within.expect_another_round();
    ip("link set vb up");
    talk(&lab);
    within.stop();
}

/// Tests a tap, whose queues get flow rules if the kernel supports them.
///
/// If this kernel does not, `cargo xtask demo --workers 2 pci-nic` shows them.
#[test]
fn each_worker_sends_and_receives_by_its_own_queue_of_a_tap() {
    if !namespace() {
        return;
    }
    let lab = lab("net_tap0,iface=vtap0", "net_af_packet2,iface=vtap0,qdisc_bypass=0");
    talk(&lab);
    let stats = lab.stats();
    let passed = Passed::of(&stats);
    assert!(passed.sent.iter().chain(&passed.received).all(|frames| *frames != 0), "{passed:?}");
    eprintln!("{} rules, {passed:?}", stats.uplink("rules"));
    assert_eq!(stats.uplink("rules") + stats.uplink("rules_refused"), 2);
}
