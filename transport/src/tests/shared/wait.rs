//! Senders that wait for a receive: which is woken, when, and at what cost.

use super::*;
use crate::collections::wakes::{TURN, WOKEN};

/// Returns a WRITE, which needs no receive.
fn no_receive(end: &End) -> SendOp {
    write_to(end.remote(0))
}

/// Starts a long WRITE on connection `at`.
///
/// The next receive then wakes a sender that has to wait for its turn.
fn keep_busy(group: &mut Group, at: usize) {
    let op = no_receive(&group.pair.b);
    group.post_long(at, 99, op, LONG);
    group.pair.engine.poll(group.pair.now, 1, &mut group.pair.log);
}

/// Polls once, which gives the turn to another QP.
fn poll_once(group: &mut Group) {
    group.pair.engine.poll(group.pair.now, 1, &mut group.pair.log);
}

/// Returns the waiting QPs by the index of their connection, and those of them that were woken.
fn in_line(group: &Group) -> (Vec<usize>, Vec<usize>) {
    let index = |qpn: Qpn| group.receivers.iter().position(|end| end.qpn == qpn).unwrap();
    let (all, woken) = group.srq().waiters.in_order();
    (all.into_iter().map(index).collect(), woken.into_iter().map(index).collect())
}

#[test]
fn who_waits_for_a_receive_is_woken_by_it_in_order() {
    let mut group = Group::new(3);
    for at in [1, 0, 2] {
        group.send(at, 10 + at as u32, b"x");
    }
    assert_eq!((group.received(), group.counters().rnr_naks_sent), (vec![], 3));
    for (id, at) in [(1, 1), (2, 0), (3, 2)] {
        group.post_shared(id);
        group.pair.run();
        assert_eq!(group.received(), [(at, id, OK)], "at once, not when its time has come");
    }
    assert_eq!(group.pair.engine.poll_timeout(), None);
}

#[test]
fn a_receive_wakes_one_sender() {
    let mut group = Group::new(4);
    for at in [1, 3, 0] {
        group.send(at, 10, b"x");
    }
    keep_busy(&mut group, 2);
    group.post_shared(1);
    poll_once(&mut group);
    assert_eq!(in_line(&group), (vec![1, 3, 0], vec![1]));
    group.pair.engine = save::copied(&group.pair.engine);
    assert_eq!(in_line(&group), (vec![1, 3, 0], vec![1]), "a copy knows who was woken");
    group.post_shared(2);
    group.pair.run();
    assert_eq!(in_line(&group), (vec![0], vec![]));
    assert_eq!(group.received(), [(1, 1, OK), (3, 2, OK)]);
    let counters = group.pair.engine.counters(group.pair.a.device);
    assert_eq!((counters.retries, counters.rnr_naks), (2, 3));
}

#[test]
fn a_receive_that_another_took_costs_who_was_woken_nothing() {
    let mut group = Group::new(4);
    let start = group.pair.now;
    group.send(0, 10, b"x");
    group.send(3, 10, b"x");
    let deadline = start + RNR;
    // More often than the sender may retry.
    for id in 1..=5 {
        // Time passes, but the sender's deadline is not reached.
        group.pair.now = start + Duration::from_micros(u64::from(id));
        keep_busy(&mut group, 2);
        group.post_shared(id);
        poll_once(&mut group);
        assert_eq!(in_line(&group), (vec![0, 3], vec![0]));
        group.send(1, 20, b"first");
        group.pair.run();
        assert_eq!(group.received(), [(1, id, OK)]);
        assert_eq!(in_line(&group), (vec![0, 3], vec![]), "it has its old place");
        assert_eq!(group.pair.engine.poll_timeout(), Some(deadline), "and its old deadline");
    }
    assert_eq!(group.counters().rnr_naks_sent, 2);
    group.post_shared(6);
    group.pair.run();
    assert_eq!(group.received(), [(0, 6, OK)]);
    group.post_shared(7);
    group.pair.run();
    assert_eq!(group.received(), [(3, 7, OK)]);
    assert_eq!(group.pair.engine.poll_timeout(), None, "nothing is left of its deadline");
}

#[test]
fn retries_are_counted_by_the_timer_alone() {
    let mut group = Group::new(3);
    let start = group.pair.now;
    group.send(0, 10, b"x");
    let mut id = 0;
    // Each time, another QP takes all receives.
    while group.pair.log.completions.iter().all(|end| end.2.status == OK) {
        for _ in 0..3 {
            id += 1;
            keep_busy(&mut group, 2);
            group.post_shared(id);
            poll_once(&mut group);
            group.send(1, 20, b"first");
            group.pair.run();
        }
        assert_eq!(group.pair.sleep(), Some(RNR));
    }
    assert_eq!(group.pair.now, start + RNR * 2, "after the first and two more tries");
    let counters = group.pair.engine.counters(group.pair.a.device);
    assert_eq!((counters.rnr_naks, counters.rnr_exceeded), (3, 1));
}

#[test]
fn time_that_is_over_before_the_turn_of_who_was_woken_counts() {
    let mut group = Group::new(4);
    group.send(0, 10, b"x");
    group.send(3, 11, b"x");
    keep_busy(&mut group, 2);
    group.post_shared(1);
    poll_once(&mut group);
    group.send(1, 20, b"first");
    group.pair.now = group.pair.now + RNR;
    group.pair.run();
    assert_eq!(group.received(), [(1, 1, OK)]);
    assert_eq!(group.counters().rnr_naks_sent, 4);
    assert_eq!(in_line(&group), (vec![0, 3], vec![]), "in the old order");
    assert_eq!(group.pair.engine.poll_timeout(), Some(group.pair.now + RNR));
}

/// What may happen to a sender, or to the QP that it sends to.
const FATES: [fn(&mut Group); 9] = [
    |group| _ = group.pair.engine.destroy_qp(group.receivers[0].device, group.receivers[0].qpn).unwrap(),
    |group| group.pair.go(&group.receivers[0].clone(), QpState::Reset),
    |group| group.pair.go(&group.receivers[0].clone(), QpState::Err),
    |group| _ = group.pair.engine.destroy_qp(group.senders[0].device, group.senders[0].qpn).unwrap(),
    |group| group.pair.go(&group.senders[0].clone(), QpState::Reset),
    |group| group.pair.go(&group.senders[0].clone(), QpState::Err),
    |group| drop(group.pair.engine.reset_device(group.senders[0].device)),
    |group| group.pair.engine.set_suspended(group.senders[0].device, true),
    |group| group.pair.engine.set_gid(group.senders[0].device, 0, None).unwrap(),
];

/// Creates a group whose first and last senders belong to a third device.
fn group_of_three() -> Group {
    let mut group = Group::new(0);
    let c = third_device(&mut group.pair);
    group.connect_from(&c);
    (0..2).for_each(|_| group.connect());
    group.connect_from(&c);
    group
}

#[test]
fn who_is_gone_takes_nobodys_wake_up() {
    for (how, fate) in FATES.iter().enumerate() {
        let mut group = group_of_three();
        group.send(0, 10, b"x");
        group.send(1, 11, b"x");
        fate(&mut group);
        group.received();
        group.post_shared(1);
        group.pair.run();
        assert_eq!(group.received(), [(1, 1, OK)], "{how}");
        assert_eq!(in_line(&group), (vec![], vec![]), "{how}");
    }
}

#[test]
fn who_goes_after_it_was_woken_leaves_its_wake_up_to_others() {
    for (how, fate) in FATES.iter().enumerate() {
        let mut group = group_of_three();
        group.send(0, 10, b"x");
        group.send(1, 11, b"x");
        keep_busy(&mut group, 3);
        group.post_shared(1);
        poll_once(&mut group);
        assert_eq!(in_line(&group), (vec![0, 1], vec![0]), "{how}");
        fate(&mut group);
        group.received();
        group.pair.run();
        assert_eq!(group.received(), [(1, 1, OK)], "{how}");
    }
}

#[test]
fn many_that_are_gone_are_passed_over_in_slices() {
    const GONE: usize = 500;
    let mut group = Group::new(0);
    let c = third_device(&mut group.pair);
    (0..GONE).for_each(|_| group.connect_from(&c));
    group.connect();
    for at in 0..=GONE {
        group.send(at, 10, b"x");
    }
    group.pair.engine.reset_device(c.device);
    group.post_shared(1);
    let left = |group: &Group| in_line(group).0.len();
    let mut polls = 0;
    while left(&group) > 0 {
        let before = left(&group);
        assert_eq!(group.pair.engine.poll_timeout(), Some(Instant(0)));
        poll_once(&mut group);
        assert!((1..=TURN).contains(&(before - left(&group))), "{before}, {}", left(&group));
        polls += 1;
    }
    assert!(polls >= GONE / WOKEN);
    group.pair.run();
    assert_eq!(group.received(), [(GONE, 1, OK)]);
}

#[test]
fn a_device_that_was_paused_costs_no_retries() {
    for of_receivers in [true, false] {
        let mut group = Group::new(3);
        for at in [2, 0, 1] {
            group.send(at, 10, b"x");
        }
        let deadline = group.pair.engine.poll_timeout();
        let device = if of_receivers { group.pair.b.device } else { group.pair.a.device };
        group.pair.engine.set_suspended(device, true);
        group.post_shared(1);
        group.pair.engine.poll(group.pair.now, u64::MAX, &mut group.pair.log);
        assert_eq!(group.received(), []);
        group.pair.engine.set_suspended(device, false);
        // Before the device continues, its SRQ is wanted and not listed yet.
        group.pair.engine = crate::tests::save::copied(&group.pair.engine);
        group.pair.run();
        let received = group.received();
        assert_eq!(received.len(), 1);
        if of_receivers {
            assert_eq!(received, [(2, 1, OK)], "the first in the order");
        }
        assert_eq!(group.counters().rnr_naks_sent, 3, "{of_receivers}");
        assert_eq!(group.pair.engine.poll_timeout(), deadline);
        group.post_shared(2);
        group.post_shared(3);
        group.pair.run();
        assert_eq!((group.received().len(), group.pair.engine.poll_timeout()), (2, None));
    }
}

#[test]
fn devices_take_turns_when_many_queues_have_receives() {
    let mut group = Group::new(1);
    group.send(0, 10, b"x");
    // SRQs of another device, each with a receive, and with many waiters that are gone.
    let c = third_device(&mut group.pair);
    let others: Vec<_> = (0..10).map(|_| Shared::new(&mut group.pair.engine, &c)).collect();
    let receivers = others.iter().flat_map(|shared| [shared; 40]);
    let mut gone = Vec::new();
    for shared in receivers {
        let (engine, d) = (&mut group.pair.engine, group.pair.a.clone());
        let own = engine.create_qp(c.device, shared.init(&c)).unwrap();
        let qpn = engine.create_qp(d.device, qp_init(d.pd)).unwrap();
        let (own, peer) = (End { qpn: own, ..c.clone() }, End { qpn, ..d });
        group.pair.connect(&own, attr_to(&peer), QpState::Rts);
        group.pair.connect(&peer, attr_to(&own), QpState::Rts);
        group.pair.post(&peer, 1, SEND, Payload::Inline(b"x")).unwrap();
        gone.push(peer);
    }
    for peer in gone {
        group.pair.engine.destroy_qp(peer.device, peer.qpn).unwrap();
    }
    for shared in &others {
        shared.post(&mut group.pair.engine, 1, 1, &mut group.pair.log).unwrap();
    }
    let Group { pair, shared, .. } = &mut group;
    shared.post(&mut pair.engine, 1, 1, &mut pair.log).unwrap();
    pair.engine.poll(pair.now, u64::MAX, &mut pair.log);
    assert_eq!(group.received(), [(0, 1, OK)], "in the first poll");
    group.pair.run();
}
