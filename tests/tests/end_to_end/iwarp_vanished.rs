//! An iWARP peer that vanishes without closing its connection.
//!
//! The test needs root, for a network namespace whose only device goes down.
//!
//! Shows: iwarp.

use std::process::Command;
use std::time::Duration;
use vrdma_tests::abi::control::QpState;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::connected;
use vrdma_tests::lab::over_tcp;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{GuestTcp, Lab, LabOptions, QpOptions};

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
}

#[test]
fn a_peer_that_vanishes_is_noticed_and_one_that_is_silent_is_not_taken_for_it() {
    // SAFETY: a plain system call. It applies to this thread and threads that it starts later,
    // which include the daemon's.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("not tried: there is no network of its own without root");
        return;
    }
    ip("link set lo up");
    let options = LabOptions { tcp_keepalive: 1, host_says: over_tcp, ..LabOptions::default() };
    let lab = Lab::with(2, options);
    let ((mut a, of_a), (mut b, of_b)) =
        connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
    for side in [&mut a, &mut b] {
        side.recv_any(1);
        side.recv_any(2);
        side.process.channel.drain();
    }
    // Long enough for the daemon to give up a peer that does not answer.
    for side in [&a, &b] {
        assert!(side.guest().cm_event_within(Duration::from_millis(2500)).is_none());
    }
    a.post(&Request::send(a.qp.tag(1), Data::Inline(b"still there")).signaled(true));
    a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
    b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
    ip("link set lo down");
    for (side, of) in [(&mut a, of_a), (&mut b, of_b)] {
        side.guest().cm_expect_end(of);
        assert_eq!(side.qp.state(), QpState::ERR);
    }
    a.cq.expect(a.qp.number, 1, WcStatus::WR_FLUSH_ERR);
    b.cq.expect(b.qp.number, 2, WcStatus::WR_FLUSH_ERR);
}

/// With the daemon's own TCP, too, idle peers answer when they are asked whether they live.
#[test]
fn idle_peers_of_the_daemons_own_tcp_stay_connected() {
    for (hosts, workers) in [(1, 1), (1, 2), (2, 1)] {
        // Two questions without an answer end a connection, so one that is late does not.
        let options = LabOptions { tcp_keepalive: 2, workers, ..LabOptions::default() };
        let lab = Lab::of_tcp_with(GuestTcp::Own, hosts, options);
        let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
        b.recv_any(1);
        for side in [&a, &b] {
            let event = side.guest().cm_event_within(Duration::from_millis(3500));
            assert!(event.is_none(), "{hosts} hosts, {workers} workers: {event:?}");
        }
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"still there")).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
    }
}
