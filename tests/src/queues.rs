//! Two daemons with an uplink queue pair for each worker.

use crate::daemon::Stats;
use crate::pingpong::PingPong;
use crate::qp::QpOptions;
use crate::{Lab, LabOptions};
use anyhow::{Result, ensure};

/// Starts two daemons with two workers each.
///
/// Guests 0 and 2 are on the local daemon, 1 and 3 on the remote one. Guests 2 and 3 are on worker
/// 1.
pub fn lab(near: &str, remote: &str) -> Lab {
    let uplinks = Some([near, remote].map(|device| device.parse().expect("a device")));
    Lab::with(4, LabOptions { workers: 2, uplinks, ..LabOptions::default() })
}

/// Numbers of frames that passed a daemon of two workers.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Frames sent by the queue of each worker.
    pub sent: [u64; 2],
    /// Frames received by the queue of each worker.
    pub received: [u64; 2],
    /// Received frames that were handed over to the other worker.
    pub handed_over: u64,
}

impl Passed {
    /// Reads the numbers from a daemon's counters.
    pub fn of(stats: &Stats) -> Passed {
        let of = |counter| [0, 1].map(|worker| stats.worker(worker, counter));
        let (sent, received) = (of("uplink_sent"), of("uplink_received"));
        Passed { sent, received, handed_over: stats.uplink("rx_handed_over") }
    }
}

/// Starts a ping-pong between two guests, with packets that fit the kernel's Ethernet MTU.
pub fn start(lab: &Lab, a: usize, b: usize) -> PingPong {
    let options = QpOptions { path_mtu: 3, ..QpOptions::default() };
    PingPong::start_with(&lab.guests[a], &lab.guests[b], &options)
}

/// Plays between all guests of both daemons. Each guest initiates once to each of its peers.
pub fn talk(lab: &Lab) {
    for talks in [[(0, 1), (2, 3), (0, 3), (2, 1)], [(1, 0), (3, 2), (3, 0), (1, 2)]] {
        let talks = talks.map(|(a, b)| start(lab, a, b));
        talks.iter().for_each(PingPong::expect_another_round);
        talks.into_iter().for_each(|talk| {
            talk.stop();
        });
    }
}

/// Plays over a tap whose peer sends through the kernel's queues, with the flow rules of DPDK's
/// driver.
///
/// # Errors
/// There are no rules (the kernel has no `sch_multiq` or `cls_flower`), or they do not steer frames
/// to the right queue.
pub fn steered() -> Result<Passed> {
    let lab = lab("net_tap0,iface=vtap0", "net_af_packet0,iface=vtap0,qdisc_bypass=0");
    // Without rules, the kernel steers replies to the queue that initiated the connection.
    // Connections that the peer initiates go to any queue.
    (0..3).for_each(|_| talk(&lab));
    let stats = lab.stats();
    let passed = Passed::of(&stats);
    ensure!(stats.uplink("rules") == 2, "{} rules are refused", stats.uplink("rules_refused"));
    let each = passed.sent.iter().chain(&passed.received).all(|frames| *frames != 0);
    ensure!(each && passed.handed_over == 0, "{passed:?}");
    Ok(passed)
}
