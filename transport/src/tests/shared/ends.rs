//! How SRQs and their QPs end, and what happens to receives that were taken.

use super::*;
use crate::collections::flush::FLUSHED;

#[test]
fn one_receive_too_many_or_a_wrong_one_ends_the_queue() {
    for wrong in [false, true] {
        let mut group = Group::new(1);
        let (device, srq) = (group.pair.b.device, group.shared.srq);
        (1..=8).for_each(|id| group.post_shared(id));
        group.modify(None, Some(2)).unwrap();
        let Group { pair, shared, .. } = &mut group;
        let sge = shared.end.sge(0, 1);
        let result = match wrong {
            true => {
                let request = RecvRequest { id: 9, sges: &[sge; 3] };
                pair.engine.post_srq_recv(device, OWNER, srq, request, &mut pair.log)
            }
            false => shared.post(&mut pair.engine, 9, 1, &mut pair.log),
        };
        assert_eq!(result, Err(if wrong { PostError::BadState } else { PostError::Overflow }));
        assert_eq!(pair.events(), [('b', Event::SrqError(srq))]);
        assert_eq!(shared.post(&mut pair.engine, 9, 1, &mut pair.log), Err(PostError::BadState));
        assert_eq!((pair.events(), pair.engine.counts(device).pending_receives), (vec![], 0));
        assert_eq!(pair.engine.modify_srq(device, srq, (None, Some(1)), &mut pair.log), Err(Error::Invalid));
        pair.engine = save::copied(&pair.engine);
        assert_eq!(group.query().limit, 0, "the queue of which it was told has no limit");
        assert_eq!(group.counters().post_overflow, u64::from(!wrong));
        group.send(0, 10, b"x");
        assert_eq!(group.counters().rnr_naks_sent, 1);
    }
}

#[test]
fn a_receive_that_cannot_be_understood_ends_the_queue() {
    let mut group = Group::new(1);
    group.post_shared(1);
    let Group { pair, shared, .. } = &mut group;
    let result = pair.engine.post_invalid_srq(pair.b.device, OWNER, shared.srq, &mut pair.log);
    assert_eq!((result, pair.events()), (Err(PostError::BadState), vec![('b', Event::SrqError(shared.srq))]));
}

#[test]
fn a_qp_that_fails_ends_what_it_has_taken_and_says_so_once() {
    let mut group = Group::new(2);
    let Group { pair, shared, receivers, .. } = &mut group;
    let b = receivers[0].clone();
    for id in [1, 2] {
        shared.post(&mut pair.engine, id, LONG, &mut pair.log).unwrap();
    }
    group.begin(0, 5);
    let pair = &mut group.pair;
    pair.go(&b, QpState::Err);
    assert_eq!(pair.events(), [('b', Event::LastWqeReached(b.qpn))]);
    assert_eq!(group.received(), [(0, 1, FLUSH)]);
    group.pair.go(&b, QpState::Err);
    assert_eq!((group.pair.events(), group.received()), (vec![], vec![]));
    group.send(1, 6, b"x");
    assert_eq!(group.received(), [(1, 2, OK)], "what it had not taken is for others");
    // The peer has receives of its own.
    let peer = group.senders[0].clone();
    group.pair.go(&peer, QpState::Err);
    assert_eq!(group.pair.events(), []);
}

#[test]
fn the_last_receive_is_told_of_once_all_is_flushed() {
    const SENDS: u32 = FLUSHED as u32 + 44;
    for again in [false, true] {
        let mut group = Group::new(1);
        let init = QpInit { max_send_wr: SENDS, ..group.shared.init(&group.pair.b) };
        let Group { pair, senders, .. } = &mut group;
        let qpn = pair.engine.create_qp(pair.b.device, init).unwrap();
        let end = End { qpn, ..pair.b.clone() };
        pair.connect(&end, attr_to(&senders[0]), QpState::Rts);
        pair.go(&end, QpState::Sqd);
        for id in 0..SENDS {
            pair.post(&end, id, SEND, Payload::Inline(b"x")).unwrap();
        }
        let to_error = |pair: &mut Pair| {
            let Pair { engine, now, log, .. } = pair;
            let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
            engine.modify_qp(*now, end.device, qpn, AttrMask::STATE, &attr, log).unwrap();
        };
        to_error(pair);
        assert!(pair.engine.is_flushing(end.device, qpn));
        assert_eq!((pair.events(), pair.statuses().len()), (vec![], FLUSHED));
        if again {
            // A copied engine may flush as much again before it polls.
            pair.engine = save::copied(&pair.engine);
            to_error(pair);
            assert!(!pair.engine.is_flushing(end.device, qpn));
        }
        pair.run();
        assert_eq!(pair.events(), [('b', Event::LastWqeReached(qpn))], "{again}");
        assert_eq!(pair.statuses().len(), 44);
    }
}

#[test]
fn what_a_qp_has_taken_ends_with_a_queue_that_failed() {
    let mut group = Group::new(1);
    let (device, srq) = (group.pair.b.device, group.shared.srq);
    let Group { pair, shared, receivers, .. } = &mut group;
    let b = receivers[0].clone();
    for id in 1..=8 {
        shared.post(&mut pair.engine, id, LONG, &mut pair.log).unwrap();
    }
    group.begin(0, 5);
    // A taken receive keeps its place in the SRQ until it completes.
    let Group { pair, shared, .. } = &mut group;
    assert_eq!(shared.post(&mut pair.engine, 9, 1, &mut pair.log), Err(PostError::Overflow));
    assert_eq!(pair.events(), [('b', Event::SrqError(srq))]);
    assert_eq!(pair.engine.counts(device).pending_receives, 1);
    pair.engine = save::copied(&pair.engine);
    pair.go(&b, QpState::Reset);
    assert_eq!(pair.engine.counts(device).pending_receives, 0);
    assert_eq!((group.srq().outstanding(), group.received()), (0, vec![]));
}

#[test]
fn receives_are_not_for_the_queue_of_a_qp_that_shares_one() {
    const SENDS: u32 = FLUSHED as u32 + 44;
    let mut group = Group::new(1);
    let (b, init) = (group.pair.b.clone(), group.shared.init(&group.pair.b));
    let Group { pair, senders, .. } = &mut group;
    let qpn = pair.engine.create_qp(b.device, QpInit { max_send_wr: SENDS, ..init }).unwrap();
    let end = End { qpn, ..b };
    let refused = |pair: &mut Pair| {
        assert_eq!(pair.post_recv(&end, 1, &[]), Err(PostError::BadState));
        assert_eq!(
            pair.post_recv(&end, 1, &[end.sge(0, 1); 3]),
            Err(PostError::BadState),
            "nor too long ones"
        );
        let (now, device) = (pair.now, end.device);
        let result = pair.engine.post_invalid(now, device, OWNER, qpn, 1, Queue::Recv, &mut pair.log);
        assert_eq!(result, Err(PostError::BadState));
    };
    refused(pair);
    pair.connect(&end, attr_to(&senders[0]), QpState::Rts);
    refused(pair);
    assert_eq!(pair.state(&end), QpState::Rts);
    pair.go(&end, QpState::Sqd);
    for id in 0..SENDS {
        pair.post(&end, id, SEND, Payload::Inline(b"x")).unwrap();
    }
    let Pair { engine, now, log, .. } = pair;
    let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
    engine.modify_qp(*now, end.device, qpn, AttrMask::STATE, &attr, log).unwrap();
    assert!(engine.is_flushing(end.device, qpn));
    refused(pair);
    pair.run();
    refused(pair);
    assert_eq!(pair.events(), [('b', Event::LastWqeReached(qpn))]);
    assert_eq!(pair.statuses().len(), SENDS as usize);
}

#[test]
fn a_destroyed_queue_drops_its_receives() {
    let mut pair = Pair::new();
    let shared = Shared::new(&mut pair.engine, &pair.b);
    for id in 1..=8 {
        shared.post(&mut pair.engine, id, 1, &mut pair.log).unwrap();
    }
    assert_eq!(pair.engine.counts(pair.b.device).pending_receives, 8);
    pair.engine.destroy_srq(pair.b.device, shared.srq).unwrap();
    assert_eq!((pair.engine.counts(pair.b.device).pending_receives, pair.statuses()), (0, vec![]));
}
