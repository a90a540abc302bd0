//! Receives that a QP has taken and that return to the SRQ.
//!
//! This happens if QPs go, or if messages are dropped.

use super::*;
use crate::collections::flush::FLUSHED;
use crate::tests::datagrams::to;
use crate::tests::wire::{A, B, Host};

#[test]
fn a_receive_of_a_qp_that_goes_is_the_queues_again() {
    for destroyed in [false, true] {
        let mut group = Group::new(2);
        let Group { pair, shared, receivers, .. } = &mut group;
        let b = receivers[0].clone();
        for id in 1..=8 {
            shared.post(&mut pair.engine, id, LONG, &mut pair.log).unwrap();
        }
        // A receive is in use when its QP goes.
        group.begin(0, 5);
        assert_eq!((group.srq().receives.len(), group.srq().taken), (7, 1));
        match destroyed {
            true => group.pair.engine.destroy_qp(b.device, b.qpn).map(|_| ()).unwrap(),
            false => group.pair.go(&b, QpState::Reset),
        }
        assert_eq!((group.srq().taken, group.received()), (0, vec![]));
        for id in 1..=8 {
            group.send(1, 10 + id, b"x");
            assert_eq!(group.received(), [(1, id, OK)], "in order");
        }
        assert_eq!(group.pair.engine.counts(b.device).pending_receives, 0);
    }
}

#[test]
fn a_receive_that_is_still_to_be_flushed_is_the_queues_again() {
    const SENDS: u32 = FLUSHED as u32 + 44;
    for destroyed in [false, true] {
        let mut group = Group::new(1);
        let Group { pair, shared, senders, receivers } = &mut group;
        // One more connection, whose receiver has many sends.
        let [a, b] = [(&pair.a, None), (&pair.b, Some(shared.srq))].map(|(end, srq)| {
            let init = QpInit { receives: srq.into(), max_send_wr: SENDS, ..qp_init(end.pd) };
            End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() }
        });
        pair.connect(&a, attr_to(&b), QpState::Rts);
        pair.connect(&b, attr_to(&a), QpState::Rts);
        senders.push(a);
        receivers.push(b.clone());
        shared.post(&mut pair.engine, 1, LONG, &mut pair.log).unwrap();
        pair.go(&b, QpState::Sqd);
        for id in 0..SENDS {
            pair.post(&b, id, SEND, Payload::Inline(b"x")).unwrap();
        }
        group.begin(1, 5);
        let pair = &mut group.pair;
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        pair.engine.modify_qp(pair.now, b.device, b.qpn, AttrMask::STATE, &attr, &mut pair.log).unwrap();
        assert!(pair.engine.is_flushing(b.device, b.qpn));
        pair.engine = save::copied(&pair.engine);
        assert_eq!((group.srq().receives.len(), group.srq().taken), (0, 1));
        match destroyed {
            true => group.pair.engine.destroy_qp(b.device, b.qpn).map(|_| ()).unwrap(),
            false => group.pair.go(&b, QpState::Reset),
        }
        assert_eq!((group.srq().receives.len(), group.srq().taken), (1, 0), "it was not flushed");
        group.pair.log.completions.clear();
        group.send(0, 10, b"x");
        assert_eq!(group.received(), [(0, 1, OK)]);
    }
}

#[test]
fn a_receive_that_is_the_queues_again_wakes_who_waits() {
    for destroyed in [false, true] {
        let mut group = Group::new(2);
        let Group { pair, shared, receivers, .. } = &mut group;
        let b = receivers[0].clone();
        // The message takes three rounds.
        let length = LONG + 1000;
        shared.post(&mut pair.engine, 1, length, &mut pair.log).unwrap();
        group.post_long(0, 5, SEND, length);
        group.pair.engine.poll(group.pair.now, 1, &mut group.pair.log);
        let Group { pair: Pair { engine, now, log, .. }, senders, .. } = &mut group;
        let (end, payload) = (&senders[1], Payload::Inline(b"x"));
        let request =
            SendRequest { id: 6, signaled: true, solicited: false, fence: false, op: SEND, payload };
        engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap();
        answer_all(engine, *now, log);
        // Its turn comes after that of the first sender.
        engine.poll(*now, 1, log);
        while group.counters().rnr_naks_sent == 0 {
            let Pair { engine, now, log, .. } = &mut group.pair;
            assert!(engine.poll(*now, 1, log));
        }
        assert_eq!(group.srq().taken, 1, "the first is under way");
        match destroyed {
            true => group.pair.engine.destroy_qp(b.device, b.qpn).map(|_| ()).unwrap(),
            false => group.pair.go(&b, QpState::Reset),
        }
        group.pair.run();
        assert_eq!(group.received(), [(1, 1, OK)], "{destroyed}");
    }
}

/// Sends a datagram of `length` bytes from a to b.
fn datagram(pair: &mut Pair, b: &End, length: usize) {
    let bytes = vec![7; length];
    let Pair { engine, now, log, a, .. } = pair;
    let payload = Payload::Inline(&bytes);
    let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op: SEND, payload };
    engine.post_datagram(*now, a.device, OWNER, a.qpn, &request, &to(a, b), log).unwrap();
    pair.look();
    pair.run();
}

#[test]
fn a_datagram_that_is_too_long_leaves_the_receive_to_the_queue() {
    let mut pair = Pair::new();
    let shared = Shared::new(&mut pair.engine, &pair.b);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let qp_type = QpType::Ud;
    let inits = [QpInit { qp_type, ..qp_init(a.pd) }, QpInit { qp_type, ..shared.init(&b) }];
    for (end, init) in [&mut pair.a, &mut pair.b].into_iter().zip(inits) {
        end.qpn = pair.engine.create_qp(end.device, init).unwrap();
    }
    let mut pair = crate::tests::datagrams::ready(pair);
    let b = pair.b.clone();
    for (id, length) in [(1, 40 + 10), (2, 40 + 100)] {
        shared.post(&mut pair.engine, id, length, &mut pair.log).unwrap();
    }
    pair.engine.modify_srq(b.device, shared.srq, (None, Some(2)), &mut pair.log).unwrap();
    for _ in 0..3 {
        datagram(&mut pair, &b, 11);
        assert_eq!(pair.statuses(), [('a', 1, OK)], "it got lost");
    }
    assert_eq!(pair.engine.counters(b.device).drop_length, 3);
    assert_eq!((pair.events(), pair.engine.query_srq(b.device, shared.srq).unwrap().limit), (vec![], 2));
    // No QP has taken it.
    assert_eq!(pair.engine.modify_srq(b.device, shared.srq, (Some(2), None), &mut pair.log), Ok(()));
    let left =
        pair.engine.core.devices.get(b.device.0).unwrap().srqs.get(shared.srq.0).unwrap().receives.len();
    assert_eq!(left, 2);
    datagram(&mut pair, &b, 10);
    datagram(&mut pair, &b, 100);
    assert_eq!(pair.statuses(), [('b', 1, OK), ('a', 1, OK), ('b', 2, OK), ('a', 1, OK)]);
    assert_eq!(pair.events(), [('b', Event::SrqLimitReached(shared.srq))]);
}

#[test]
fn a_datagram_in_a_packet_that_is_too_long_leaves_the_receive_to_the_queue() {
    let (mut net, shared) = services::shared_net(QpType::Ud);
    let Host { engine, log, .. } = &mut net.hosts[B];
    shared.post(engine, 1, 40 + 10, log).unwrap();
    net.send(1, &net.way(), SEND, Payload::Inline(&[7; 11]));
    net.run();
    assert_eq!(net.hosts[B].counters().drop_length, 1);
    let engine = &net.hosts[B].engine;
    let srq = |engine: &Engine<Mem>| {
        let srq = engine.core.devices.get(shared.end.device.0).unwrap().srqs.get(shared.srq.0).unwrap();
        (srq.receives.len(), srq.taken)
    };
    assert_eq!(srq(engine), (1, 0));
    net.send(2, &net.way(), SEND, Payload::Inline(&[7; 10]));
    net.run();
    assert_eq!((net.hosts[B].statuses(), srq(&net.hosts[B].engine)), (vec![(1, OK)], (0, 0)));
}

#[test]
fn a_message_that_is_dropped_leaves_its_receive_to_the_queue() {
    let mut pair = Pair::new();
    let shared = Shared::new(&mut pair.engine, &pair.b);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let qp_type = QpType::Uc;
    let inits = [QpInit { qp_type, ..qp_init(a.pd) }, QpInit { qp_type, ..shared.init(&b) }];
    for (end, init) in [&mut pair.a, &mut pair.b].into_iter().zip(inits) {
        end.qpn = pair.engine.create_qp(end.device, init).unwrap();
    }
    let mut pair = crate::tests::unreliable::connected(pair);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    // An RC connection uses the same SRQ, and waits.
    let [c, d] = [(&a, qp_init(a.pd)), (&b, shared.init(&b))]
        .map(|(end, init)| End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() });
    pair.connect(&c, attr_to(&d), QpState::Rts);
    pair.connect(&d, attr_to(&c), QpState::Rts);
    // The message is too long for the receive, as its third segment shows.
    shared.post(&mut pair.engine, 1, LONG, &mut pair.log).unwrap();
    let Pair { engine, now, log, .. } = &mut pair;
    let payload = [a.sge(0, LONG + 1000)];
    let payload = Payload::Sges(&payload);
    let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op: SEND, payload };
    engine.post_send(*now, a.device, OWNER, a.qpn, &request, log).unwrap();
    engine.poll(*now, 1, log);
    let request = SendRequest { id: 2, payload: Payload::Inline(b"x"), ..request };
    engine.post_send(*now, c.device, OWNER, c.qpn, &request, log).unwrap();
    answer_all(engine, *now, log);
    while engine.counters(b.device).rnr_naks_sent == 0 {
        assert!(engine.poll(*now, 1, log));
    }
    let taken = |pair: &Pair| {
        let known = pair.engine.core.devices.get(b.device.0).unwrap();
        known.srqs.get(shared.srq.0).unwrap().taken
    };
    assert_eq!((taken(&pair), pair.engine.counters(b.device).drop_length), (1, 0));
    pair.run();
    assert_eq!((taken(&pair), pair.engine.counters(b.device).drop_length), (0, 1));
    assert_eq!(pair.statuses(), [('a', 1, OK), ('b', 1, OK), ('a', 2, OK)]);
}

#[test]
fn a_message_that_lost_a_packet_leaves_its_receive_to_the_queue() {
    let (mut net, shared) = services::shared_net(QpType::Uc);
    let a = net.hosts[A].end.clone();
    let b = net.hosts[B].end.clone();
    let Host { engine, log, .. } = &mut net.hosts[B];
    shared.post(engine, 1, 1 << 16, log).unwrap();
    let srq = |net: &crate::tests::wire::Net| {
        let known = net.hosts[B].engine.core.devices.get(shared.end.device.0).unwrap();
        let srq = known.srqs.get(shared.srq.0).unwrap();
        (srq.receives.len(), srq.taken)
    };
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5000)]));
    net.work(A);
    // All but the third packet arrive.
    net.carry(A, |index, _| index != 2);
    net.run();
    assert_eq!(srq(&net), (1, 0));
    // All but the last packet arrive, which only the next message reveals.
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5000)]));
    net.work(A);
    net.carry(A, |index, _| index != 4);
    net.run();
    assert_eq!(srq(&net), (0, 1));
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.run();
    assert_eq!(srq(&net), (1, 0));
    net.post(A, 2, SEND, Payload::Sges(&[a.sge(0, 5000)]));
    net.run();
    assert_eq!(net.hosts[B].statuses(), [(1, OK)]);
}
