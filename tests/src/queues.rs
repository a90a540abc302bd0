//! Two daemons whose workers have queue pairs of their uplinks.

use crate::daemon::Stats;
use crate::pingpong::PingPong;
use crate::qp::QpOptions;
use crate::{Lab, LabOptions};
use anyhow::{Result, ensure};

/// Two daemons with two workers each: guests 0 and 2 are on the near one, 1 and 3 on the remote
/// one; the latter of each on worker 1.
pub fn lab(near: &str, remote: &str) -> Lab {
    let uplinks = Some([near, remote].map(|device| device.parse().expect("a device")));
    Lab::with(4, LabOptions { workers: 2, uplinks, ..LabOptions::default() })
}

/// Frames of a daemon of two workers.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// That went out by the queue of each worker,
    pub sent: [u64; 2],
    /// that came in there,
    pub received: [u64; 2],
    /// and those of them that were handed over.
    pub handed_over: u64,
}

impl Passed {
    /// As it counts.
    pub fn of(stats: &Stats) -> Passed {
        let of = |counter| [0, 1].map(|worker| stats.worker(worker, counter));
        let (sent, received) = (of("uplink_sent"), of("uplink_received"));
        Passed { sent, received, handed_over: stats.uplink("rx_handed_over") }
    }
}

/// Between two guests, with packets that fit what the kernel calls Ethernet.
pub fn start(lab: &Lab, a: usize, b: usize) -> PingPong {
    let options = QpOptions { path_mtu: 3, ..QpOptions::default() };
    PingPong::start_with(&lab.guests[a], &lab.guests[b], &options)
}

/// All guests of one daemon with all of the other, in both directions; each begins.
pub fn talk(lab: &Lab) {
    for talks in [[(0, 1), (2, 3), (0, 3), (2, 1)], [(1, 0), (3, 2), (3, 0), (1, 2)]] {
        let talks = talks.map(|(a, b)| start(lab, a, b));
        talks.iter().for_each(PingPong::expect_another_round);
        talks.into_iter().for_each(|talk| {
            talk.stop();
        });
    }
}

/// Over a tap, whose peer sends through the kernel's queues: there are the flow rules of DPDK's
/// driver.
///
/// # Errors
/// There are no rules (the kernel has no `sch_multiq` or `cls_flower`), or they do not bring frames
/// where they are to come.
pub fn steered() -> Result<Passed> {
    let lab = lab("net_tap0,iface=vtap0", "net_af_packet0,iface=vtap0,qdisc_bypass=0");
    // Without rules the kernel has replies come to the queue by which a connection was begun, and
    // what a peer begins to any.
    (0..3).for_each(|_| talk(&lab));
    let stats = lab.stats();
    let passed = Passed::of(&stats);
    ensure!(stats.uplink("rules") == 2, "{} rules are refused", stats.uplink("rules_refused"));
    let each = passed.sent.iter().chain(&passed.received).all(|frames| *frames != 0);
    ensure!(each && passed.handed_over == 0, "{passed:?}");
    Ok(passed)
}
