//! Long messages give way.

use super::wire::{A, B, Net};
use super::*;
use crate::engine::DEADLINES;
use crate::engine::sweep::SWEPT;

#[test]
fn small_messages_of_others_overtake_a_long_one() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let [c, d] = [&a, &b]
        .map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    pair.connect(&c, attr_to(&d), QpState::Rts);
    pair.connect(&d, attr_to(&c), QpState::Rts);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    pair.post(&c, 2, write_to(d.remote(0)), Payload::Inline(b"at once")).unwrap();
    assert_eq!(pair.statuses(), [('a', 2, WcStatus::Success)]);
    pair.post(&c, 3, write_to(d.remote(0)), Payload::Sges(&[c.sge(0, 100_000)])).unwrap();
    let mut polls = 0;
    while pair.engine.poll(pair.now, 1, &mut pair.log) {
        polls += 1;
        if polls == 2 {
            assert_eq!(pair.statuses(), [('a', 3, WcStatus::Success)]);
        }
    }
    assert_eq!(polls, 4);
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
}

#[test]
fn a_budget_is_kept_roughly_and_nothing_ready_costs_nothing() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for id in 0..16 {
        pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    }
    assert!(pair.engine.poll(pair.now, 4 << 20, &mut pair.log));
    let done = pair.statuses().len();
    assert!((3..=5).contains(&done), "{done}");
    pair.run();
    assert!(!pair.engine.poll(pair.now, 0, &mut pair.log));
    assert_eq!(pair.engine.poll_timeout(), None);
}

#[test]
fn order_is_kept_whatever_is_small_or_long() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for id in 0..12 {
        let length = [1, 70_000, 300_000, 8][id as usize % 4];
        let op = match id % 3 {
            0 => SendOp::Read { remote: b.remote(0) },
            _ => write_to(b.remote(0)),
        };
        pair.post(&a, id, op, Payload::Sges(&[a.sge(0, length)])).unwrap();
    }
    pair.run();
    let ids: Vec<_> = pair.statuses().iter().map(|s| s.1).collect();
    assert_eq!(ids, (0..12).collect::<Vec<_>>());
}

#[test]
fn posts_carry_only_so_much_before_others_have_their_turn() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for turn in 0..3 {
        for id in 0..80 {
            pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 64 << 10)])).unwrap();
        }
        let at_once = pair.statuses().len();
        assert!((64..=65).contains(&at_once), "{turn}: {at_once}");
        assert_eq!(pair.engine.counts(a.device).pending_sends, 80 - at_once as u64);
        pair.run();
        let ids: Vec<_> = pair.statuses().iter().map(|s| s.1 as usize).collect();
        assert_eq!(ids, (at_once..80).collect::<Vec<_>>());
    }
}

#[test]
fn deadlines_that_come_together_are_attended_to_in_slices() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * DEADLINES + 10;
    for _ in 0..all {
        let qpn = pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap();
        let end = End { qpn, ..a.clone() };
        // B has no QP that is connected to it.
        pair.connect(&end, attr_to(&b), QpState::Rts);
        pair.post(&end, 1, SEND, Payload::Sges(&[])).unwrap();
    }
    pair.now = pair.now + TIMEOUT;
    for attended in [DEADLINES, 2 * DEADLINES, all] {
        assert_eq!(pair.engine.poll(pair.now, u64::MAX, &mut pair.log), attended < all);
        assert_eq!(pair.engine.counters(a.device).timeouts, attended as u64);
    }
}

#[test]
fn a_device_goes_on_in_slices() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * SWEPT + 10;
    let ends: Vec<_> = (0..all)
        .map(|_| End { qpn: pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap(), ..a.clone() })
        .collect();
    pair.engine.set_suspended(a.device, true);
    for end in &ends {
        // B has no QP that is connected to it, so its timer tells that it was tried.
        pair.connect(end, attr_to(&b), QpState::Rts);
        pair.post(end, 1, SEND, Payload::Sges(&[])).unwrap();
    }
    pair.engine.set_suspended(a.device, false);
    for slice in 1.. {
        assert_eq!(pair.engine.poll_timeout(), Some(Instant(0)));
        let more = pair.engine.poll(pair.now, u64::MAX, &mut pair.log);
        let (_, tried) = pair.engine.schedule.len();
        assert!(tried > 0 && tried <= slice * SWEPT, "{tried} in {slice}");
        if !more {
            assert_eq!(tried, all);
            break;
        }
    }
    // Who is suspended again before its turn does not go on.
    pair.engine.set_suspended(a.device, true);
    pair.engine.set_suspended(a.device, false);
    pair.engine.set_suspended(a.device, true);
    assert!(!pair.engine.poll(pair.now, u64::MAX, &mut pair.log));
    pair.engine.set_suspended(a.device, false);
    pair.engine.reset_device(a.device);
    assert!(!pair.engine.poll(pair.now, u64::MAX, &mut pair.log));
}

#[test]
fn connections_start_over_in_slices_when_the_link_is_back() {
    let mut net = Net::connected();
    let all = SWEPT + 100;
    for _ in 0..all {
        net.second_pair();
        let remote = net.hosts[B].end.remote(0);
        net.post(A, 1, write_to(remote), Payload::Inline(b"x"));
        net.work(A);
    }
    let host = &mut net.hosts[A];
    assert_eq!(std::mem::take(&mut host.cable.frames).len(), all);
    host.engine.set_link(false);
    host.engine.set_link(true);
    assert_eq!(host.engine.schedule.wire.len(), 0);
    assert!(host.engine.poll(net.now, u64::MAX, &mut host.log));
    let due = host.engine.schedule.wire.len();
    assert!(due > 0 && due <= SWEPT, "{due}");
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), all);
}
