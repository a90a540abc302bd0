//! Several workers with a queue pair of the uplink each. Wants root, for networks of its own.

use std::process::Command;
use vrdma_tests::daemon::Stats;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::{Lab, LabOptions, QpOptions};

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

/// A network namespace for this thread and those that it starts from now on: the daemons'; none without root.
fn namespace() -> bool {
    // SAFETY: a plain system call.
    let has_one = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !has_one {
        eprintln!("not tried: there is no network of its own without root");
    }
    has_one
}

/// Two daemons with two workers each: guests 0 and 2 are on the near one, 1 and 3 on the remote one; the latter of each on worker 1.
fn lab(near: &str, remote: &str) -> Lab {
    let uplinks = Some([near, remote].map(|device| device.parse().expect("a device")));
    Lab::with(4, LabOptions { workers: 2, uplinks, ..LabOptions::default() })
}

/// Frames that went out by the queue of each worker, that came in there, and those of them that were handed over.
fn passed(stats: &Stats) -> ([u64; 2], [u64; 2], u64) {
    let of = |counter| [0, 1].map(|worker| stats.worker(worker, counter));
    (of("uplink_sent"), of("uplink_received"), stats.uplink("rx_handed_over"))
}

/// Between two guests, with packets that fit what the kernel calls Ethernet.
fn start(lab: &Lab, a: usize, b: usize) -> PingPong {
    let options = QpOptions { path_mtu: 3, ..QpOptions::default() };
    PingPong::start_with(&lab.guests[a], &lab.guests[b], &options)
}

/// All guests of one daemon with all of the other, in both directions.
fn talk(lab: &Lab) {
    let talks = [(0, 1), (2, 3), (0, 3), (2, 1)].map(|(a, b)| start(lab, a, b));
    talks.iter().for_each(PingPong::expect_another_round);
    talks.into_iter().for_each(|talk| {
        talk.stop();
    });
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
    // The kernel spreads connections over the sockets, wherever they end.
    for _ in 0..50 {
        talk(&lab);
        let (sent, received, handed_over) = passed(&lab.stats());
        assert!(sent.iter().all(|sent| *sent != 0), "{sent:?}");
        if received.iter().all(|received| *received != 0) && handed_over != 0 {
            break;
        }
    }
    let stats = lab.stats();
    let (sent, received, handed_over) = passed(&stats);
    assert!(received.iter().all(|received| *received != 0) && handed_over != 0, "{received:?}");
    assert_eq!(stats.uplink("frames_sent"), sent.iter().sum::<u64>());
    assert_eq!((stats.uplink("rules"), stats.uplink("rules_refused")), (0, 2), "packet sockets have none");
    // The remote one has a single socket, which its first worker has for both.
    let remote = lab.remote_stats();
    assert_eq!(remote.worker(1, "uplink_sent") + remote.worker(1, "uplink_received"), 0);
    assert!(remote.uplink("rx_handed_over") != 0 && remote.worker(0, "uplink_sent") != 0);
    // Guests of one daemon are still reached when the link is down, and others again when it is up.
    let within = start(&lab, 0, 2);
    ip("link set vb down");
    within.expect_another_round();
    ip("link set vb up");
    talk(&lab);
    within.stop();
}

/// The peer sends through the kernel's queues, where net_tap's rules are (`qdisc_bypass=0`). A kernel without `sch_multiq` and `cls_flower` has no rules.
#[test]
fn flow_rules_bring_frames_to_the_worker_that_they_are_for() {
    if !namespace() {
        return;
    }
    let lab = lab("net_tap0,iface=vtap0", "net_af_packet2,iface=vtap0,qdisc_bypass=0");
    let before = lab.stats();
    talk(&lab);
    let stats = lab.stats();
    let (sent, received, _) = passed(&stats);
    assert!(sent.iter().chain(&received).all(|frames| *frames != 0), "{sent:?} {received:?}");
    assert_eq!(stats.uplink("rules") + stats.uplink("rules_refused"), 2);
    let handed_over = stats.uplink("rx_handed_over") - before.uplink("rx_handed_over");
    eprintln!(
        "{} rules; sent {sent:?}, received {received:?}, handed over {handed_over}",
        stats.uplink("rules")
    );
    if stats.uplink("rules") == 2 {
        assert_eq!(handed_over, 0);
    } else {
        assert!(std::env::var_os("VRDMA_TEST_FLOW_RULES").is_none(), "this kernel has them");
    }
}
