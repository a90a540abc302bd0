//! The cost of idle connections over the daemon's own TCP.
//!
//! The test has a process of its own, because it measures the memory of its process.
//!
//! Shows: idle-streams.

use std::time::Duration;
use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::{connect_to, request};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{GuestTcp, Lab, LabOptions, Qp, QpOptions, proc, wait};

/// Most bytes that each end of an idle connection may cost.
const MOST: u64 = 8192;
/// Connections to each port. The daemon has no more ports of its own to connect from.
const EACH_PORT: u64 = 4000;

/// Measures `count` idle connections of two guests, each after one message in both directions.
///
/// Both daemons and the code that plays the guests are in this process. Their memory counts too.
fn idle(count: u64) {
    let most = count as u32 + 64;
    let limits = GuestLimits { connections: most, qps: most.next_power_of_two(), ..GuestLimits::default() };
    let lab = Lab::of_tcp_with(GuestTcp::Own, 2, LabOptions { limits, ..LabOptions::default() });
    let mut sides = [0, 1].map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::default()));
    let listeners: Vec<_> = (0..=(count + 16) / EACH_PORT)
        .map(|n| {
            (700 + n as u16, lab.guests[1].cm_listen(GuestTcp::Own.address(1), 700 + n as u16, 16).unwrap())
        })
        .collect();
    let options = QpOptions { send_wr: 4, recv_wr: 4, ..QpOptions::default() };
    let connected = |sides: &mut [Side; 2], numbers: std::ops::Range<u64>| -> Vec<[Qp; 2]> {
        let qps: Vec<_> =
            numbers.map(|n| connect(sides, listeners[(n / EACH_PORT) as usize], &options)).collect();
        qps.iter().for_each(|qps| exchange(sides, qps));
        qps
    };
    // Memory that the first connections allocate once is not counted.
    let first = connected(&mut sides, 0..16);
    is_idle(&lab, "with 16 idle connections");
    let pid = std::process::id();
    let before = proc::anonymous(pid);
    let all = connected(&mut sides, 16..count + 16);
    let each = proc::anonymous(pid).saturating_sub(before) / (2 * count);
    println!("{each} bytes for each end of {count} idle connections");
    assert!(each < MOST, "{each} bytes for each end of an idle connection");
    for stats in [lab.stats(), lab.remote_stats()] {
        assert_eq!(stats.tcp(0, "connections"), count + 16);
    }
    is_idle(&lab, "with all");
    drop((first, all));
}

/// Connects two QPs.
fn connect(sides: &mut [Side; 2], (port, listener): (u16, u32), options: &QpOptions) -> [Qp; 2] {
    let qps = [0, 1].map(|at: usize| {
        let Side { process, cq, .. } = &sides[at];
        process.qp(cq, cq, options)
    });
    connect_to(listener, &request(&qps[0], 0, 1, port, b"hello"), &qps[0], &qps[1]);
    qps
}

/// Sends a message in each direction.
fn exchange(sides: &mut [Side; 2], qps: &[Qp; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        sides[to].process.post(&Request::recv(qps[to].tag(1), &[]));
        sides[to].process.channel.drain();
        sides[from].process.post(&Request::send(qps[from].tag(2), Data::EMPTY).signaled(true));
        sides[from].cq.expect(qps[from].number, 2, WcStatus::SUCCESS);
        sides[to].cq.expect(qps[to].number, 1, WcStatus::SUCCESS);
    }
}

/// Waits until a second passes without a segment, after the last acknowledgments were sent.
///
/// Prints the daemons' processor time; they poll the cable now and then. That their TCP has no
/// pending deadline is tested beside its code.
fn is_idle(lab: &Lab, what: &str) {
    let segments = || [lab.stats(), lab.remote_stats()].map(|stats| stats.tcp(0, "segments_out"));
    wait::until("a second without a segment, as the last acknowledges went", || {
        let (before, used) = (segments(), proc::cpu_time(std::process::id()));
        wait::pause(Duration::from_secs(1), "who sends without end does so in any second");
        println!("{:?} of processor time in a second {what}", proc::cpu_time(std::process::id()) - used);
        (segments() == before).then_some(())
    });
}

#[test]
fn two_hundred_idle_connections_cost_less_than_8_kib_each_and_send_nothing() {
    idle(200);
}

#[test]
#[ignore = "long"]
fn ten_thousand_idle_connections_cost_less_than_8_kib_each_and_send_nothing() {
    idle(10_000);
}
