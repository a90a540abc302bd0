//! Which QP takes which receive, and who may post.

use super::*;

#[test]
fn connections_take_receives_in_the_order_of_posting() {
    let mut group = Group::new(3);
    (1..=4).for_each(|id| group.post_shared(id));
    for (at, id) in [(2, 10), (0, 11), (2, 12), (1, 13)] {
        group.send(at, id, format!("message {id}").as_bytes());
    }
    assert_eq!(group.received(), [(2, 1, OK), (0, 2, OK), (2, 3, OK), (1, 4, OK)]);
    // The memory belongs to the SRQ's PD, which is not that of the QPs.
    for (id, message) in [(1, 10), (2, 11), (3, 12), (4, 13)] {
        assert_eq!(group.shared.end.memory.bytes(id << 16, 10), format!("message {message}").as_bytes());
    }
    assert_eq!(group.pair.engine.counts(group.pair.b.device).pending_receives, 0);
}

#[test]
fn a_long_message_keeps_its_receive_while_others_take_theirs() {
    let mut group = Group::new(2);
    let Group { pair, shared, senders, .. } = &mut group;
    let length = 1 << 19;
    let data: Vec<u8> = (0..length).map(|i| (i * 7 + (i >> 9)) as u8).collect();
    senders[0].memory.fill(0, &data);
    let sges = [shared.end.sge(1 << 19, length)];
    let request = RecvRequest { id: 1, sges: &sges };
    pair.engine.post_srq_recv(pair.b.device, OWNER, shared.srq, request, &mut pair.log).unwrap();
    let (now, log) = (pair.now, &mut pair.log);
    let payload = [senders[0].sge(0, length)];
    let request = SendRequest {
        id: 5,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Sges(&payload),
    };
    pair.engine.post_send(now, pair.a.device, OWNER, senders[0].qpn, &request, log).unwrap();
    // The first segment.
    pair.engine.poll(pair.now, 1, &mut pair.log);
    group.post_shared(2);
    group.send(1, 6, b"short");
    group.pair.run();
    assert_eq!(group.received(), [(1, 2, OK), (0, 1, OK)]);
    assert_eq!(group.shared.end.memory.bytes(1 << 19, length as usize), data);
    assert_eq!(group.shared.end.memory.bytes(2 << 16, 5), b"short");
}

#[test]
fn posts_are_checked_and_counted() {
    let mut group = Group::new(1);
    let receiver = group.receivers[0].clone();
    assert_eq!(group.pair.post_recv(&receiver, 1, &[]), Err(PostError::BadState));
    let Group { pair, shared, .. } = &mut group;
    let Pair { engine, log, .. } = pair;
    let (device, srq) = (receiver.device, shared.srq);
    let request = RecvRequest { id: 1, sges: &[] };
    assert_eq!(engine.post_srq_recv(device, OwnerId(8), srq, request, log), Err(PostError::NotOwner));
    assert_eq!(
        engine.post_srq_recv(device, OWNER, SrqId(srq.0 + 1), request, log),
        Err(PostError::NoSuchSrq)
    );
    assert_eq!(engine.post_srq_recv(device, OwnerId::KERNEL, srq, request, log), Ok(()));
    let counters = group.counters();
    assert_eq!((counters.post_bad_state, counters.post_not_owner, counters.post_no_srq), (1, 1, 1));
}

#[test]
fn a_qp_that_was_reset_takes_receives_again() {
    let mut group = Group::new(1);
    let (a, b) = (group.senders[0].clone(), group.receivers[0].clone());
    // This uses the same engine, because a copy would look up the receives' PD again.
    let Group { pair, shared, .. } = &mut group;
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let reset = (QpState::Reset, AttrMask::STATE);
        let steps = [reset, (QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)];
        for (state, mask) in steps {
            let attr = QpAttr { state, ..attr_to(peer) };
            pair.engine.modify_qp(pair.now, own.device, own.qpn, mask, &attr, &mut pair.log).unwrap();
        }
    }
    shared.post(&mut pair.engine, 1, 1 << 16, &mut pair.log).unwrap();
    let request = SendRequest {
        id: 10,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"again"),
    };
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    assert_eq!(group.received(), [(0, 1, OK)]);
    assert_eq!(group.shared.end.memory.bytes(1 << 16, 5), b"again");
}

#[test]
fn the_owner_of_the_queue_is_asked_for_receives() {
    let mut group = Group::new(1);
    let sender = group.senders[0].clone();
    let request = SendRequest {
        id: 1,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"x"),
    };
    let Pair { engine, now, log, .. } = &mut group.pair;
    engine.post_send(*now, sender.device, OWNER, sender.qpn, &request, log).unwrap();
    let question = engine.poll_question().expect("a question");
    assert_eq!((question.device, question.owner), (group.shared.end.device, OWNER));
    group.shared.post(engine, 3, 10, log).unwrap();
    engine.answer(*now, question, log);
    group.pair.run();
    assert_eq!((group.received(), group.counters().rnr_naks_sent), (vec![(0, 3, OK)], 0));
}
