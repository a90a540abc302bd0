//! A receive that is posted before a send is available to it, in whichever order the engine gets
//! them.

use super::datagrams::{Ud, to};
use super::unreliable::uc;
use super::wire::{A, B, Net};
use super::*;
use crate::agenda::drains::MAX_HELD;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::MAX_FRAME;

const OK: WcStatus = WcStatus::Success;
const WITH_IMM: Option<Imm> = Some(Imm::from_bytes([1, 2, 3, 4]));

/// Posts a send, without letting the engine work.
fn send(pair: &mut Pair, id: u32, op: SendOp) {
    let (end, payload) = (pair.a.clone(), Payload::Inline(b"hi"));
    let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
    let Pair { engine, now, log, .. } = pair;
    if engine.is_datagram(end.device, end.qpn) {
        let to = to(&end, &pair.b);
        engine.post_datagram(*now, end.device, OWNER, end.qpn, &request, &to, log).unwrap();
    } else {
        engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }
}

/// Lets the engine work, and takes its question whether B's owner has posted receives.
fn asked(pair: &mut Pair) -> DrainRequest {
    while pair.engine.poll(pair.now, u64::MAX, &mut pair.log) {}
    let question = pair.engine.poll_question().expect("a question");
    assert_eq!((question.device, question.owner), (pair.b.device, OWNER));
    assert!(!pair.engine.has_questions());
    question
}

fn answer(pair: &mut Pair, question: DrainRequest) {
    pair.engine.answer(pair.now, question, &mut pair.log);
    while pair.engine.poll(pair.now, u64::MAX, &mut pair.log) {}
}

/// Returns B's count of messages that found no receive.
fn unready(pair: &Pair) -> u64 {
    let counters = pair.engine.counters(pair.b.device);
    counters.rnr_naks_sent + counters.drop_no_receive
}

fn rc() -> Pair {
    Pair::connected_with(|a| a.rnr_retry = 0, |_| {})
}

fn ud() -> Pair {
    let Ud { pair, a, b } = Ud::new();
    Pair { a, b, ..pair }
}

#[test]
fn a_message_waits_for_a_receive_that_is_handed_in_late() {
    let with_imm = |pair: &Pair| SendOp::Write { remote: pair.b.remote(0), imm: WITH_IMM };
    let connections =
        [rc, || uc([true; 2])].into_iter().flat_map(|make| [(make as fn() -> Pair, true), (make, false)]);
    for (make, write) in connections.chain([(ud as fn() -> Pair, false)]) {
        let mut pair = make();
        let b = pair.b.clone();
        let op = if write { with_imm(&pair) } else { SEND };
        send(&mut pair, 1, op);
        let question = asked(&mut pair);
        assert_eq!(pair.engine.poll_timeout(), None, "no RNR timer runs");
        pair.post_recv(&b, 2, &[b.sge(0, 100)]).unwrap();
        answer(&mut pair, question);
        assert_eq!(pair.statuses(), [('b', 2, OK), ('a', 1, OK)]);
        assert_eq!((unready(&pair), pair.engine.has_questions()), (0, false));
    }
}

#[test]
fn a_receive_that_is_not_there_after_a_look_is_missing() {
    for (mut pair, status) in [(rc(), WcStatus::RnrRetryExc), (uc([true; 2]), OK), (ud(), OK)] {
        for id in [1, 2] {
            send(&mut pair, id, SEND);
        }
        for id in [1, 2].into_iter().take(if status == OK { 2 } else { 1 }) {
            let question = asked(&mut pair);
            assert_eq!((pair.statuses(), unready(&pair)), (vec![], u64::from(id) - 1));
            answer(&mut pair, question);
            let rest = (status != OK).then_some(('a', 2, WcStatus::Flush));
            let expected: Vec<_> = [('a', id, status)].into_iter().chain(rest).collect();
            assert_eq!((pair.statuses(), unready(&pair)), (expected, u64::from(id)));
        }
        assert!(!pair.engine.has_questions());
    }
}

#[test]
fn each_answer_is_for_those_who_asked_before_the_caller_began_to_look() {
    let mut pair = Pair::connected_with(|a| a.rnr_retry = 1, |_| {});
    send(&mut pair, 1, SEND);
    let question = asked(&mut pair);
    // A second QP of A's device asks the same question meanwhile, and the first QP starts again.
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let [c, d] = [&a, &b].map(|end| {
        let qpn = pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap();
        End { qpn, ..end.clone() }
    });
    for (own, peer) in [(&c, &d), (&d, &c)] {
        pair.connect(own, QpAttr { rnr_retry: 0, ..attr_to(peer) }, QpState::Rts);
    }
    pair.a = c;
    send(&mut pair, 2, SEND);
    pair.a = a.clone();
    pair.go(&a, QpState::Reset);
    pair.connect(&a, QpAttr { rnr_retry: 0, rq_psn: Psn::truncate(0xff_fffe), ..attr_to(&b) }, QpState::Rts);
    send(&mut pair, 3, SEND);
    answer(&mut pair, question);
    assert_eq!((pair.statuses(), unready(&pair)), (vec![], 0), "they asked later");
    let question = asked(&mut pair);
    answer(&mut pair, question);
    let mut statuses = pair.statuses();
    statuses.sort_by_key(|status| status.1);
    assert_eq!(statuses, [('a', 2, WcStatus::RnrRetryExc), ('a', 3, WcStatus::RnrRetryExc)]);
}

#[test]
fn a_device_that_is_reset_asks_and_answers_no_more() {
    let mut pair = rc();
    send(&mut pair, 1, SEND);
    let question = asked(&mut pair);
    pair.engine.reset_device(pair.b.device);
    answer(&mut pair, question);
    assert_eq!((pair.statuses(), pair.engine.has_questions()), (vec![], false));
    while pair.sleep().is_some() {}
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc)], "its peer is gone");
    let mut pair = rc();
    send(&mut pair, 1, SEND);
    let question = asked(&mut pair);
    pair.engine.reset_device(pair.a.device);
    answer(&mut pair, question);
    assert_eq!((pair.statuses(), pair.engine.has_questions()), (vec![], false));
}

/// Delivers the frames that A has sent to B, and takes B's question.
fn carried(net: &mut Net) -> DrainRequest {
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    let host = &mut net.hosts[B];
    frames.iter().for_each(|frame| host.engine.handle_frame(net.now, frame, &mut host.log));
    host.engine.poll_question().expect("a question")
}

fn answered(net: &mut Net, question: DrainRequest) {
    let host = &mut net.hosts[B];
    host.engine.answer(net.now, question, &mut host.log);
}

#[test]
fn packets_wait_for_receives_that_are_handed_in_late_and_stay_in_order() {
    for service in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut net = match service {
            QpType::Rc => Net::connected_with(|a| (a.rnr_retry, a.retry_cnt) = (0, 0), |_| {}),
            QpType::Uc => super::wire::unreliable::uc(),
            _ => super::wire::datagrams::ud(),
        };
        let b = net.hosts[B].end.clone();
        let post = |net: &mut Net, id| match service {
            QpType::Ud => net.send(id, &net.way(), SEND, Payload::Inline(&[id as u8; 2])),
            _ => net.post(A, id, SEND, Payload::Inline(&[id as u8; 2])),
        };
        (1..=3).for_each(|id| post(&mut net, id));
        let question = carried(&mut net);
        assert_eq!(net.hosts[B].statuses(), []);
        // A packet that arrives before the answer waits behind the others, though its receive is
        // posted by then.
        for id in 11..=14 {
            net.post_recv(B, id, &[b.sge(100 * u64::from(id), 42)]);
        }
        post(&mut net, 4);
        net.work(A);
        for frame in net.hosts[A].cable.frames.drain(..).collect::<Vec<_>>() {
            let host = &mut net.hosts[B];
            host.engine.handle_frame(net.now, &frame, &mut host.log);
        }
        answered(&mut net, question);
        assert_eq!(net.hosts[B].statuses(), [(11, OK), (12, OK), (13, OK)]);
        net.run();
        assert_eq!(net.hosts[B].statuses(), [(14, OK)]);
        let counters = net.hosts[B].counters();
        let bad =
            [counters.rnr_naks_sent, counters.drop_no_receive, counters.out_of_sequence, counters.uc_gaps];
        assert_eq!((bad, counters.packets_in >= 4, net.hosts[A].counters().retries), ([0; 4], true, 0));
        assert_eq!(net.hosts[A].statuses(), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    }
}

#[test]
fn a_packet_that_is_longer_than_any_mtu_does_not_wait() {
    let mut net = super::wire::datagrams::ud();
    net.send(1, &net.way(), SEND, Payload::Inline(b"hi"));
    net.work(A);
    let frame = net.hosts[A].cable.frames.pop_front().unwrap();
    let padded = |length| [&frame[..], &vec![0; length - frame.len()]].concat();
    for (length, waits) in [(MAX_FRAME + 1, false), (MAX_FRAME, true)] {
        let host = &mut net.hosts[B];
        host.engine.handle_frame(net.now, &padded(length), &mut host.log);
        assert_eq!((host.engine.has_questions(), host.counters().drop_held), (waits, 1));
    }
}

#[test]
fn few_packets_wait_at_once() {
    let mut net = super::wire::datagrams::ud();
    for id in 0..MAX_HELD + 44 {
        net.send(id, &net.way(), SEND, Payload::Inline(b"hi"));
        net.work(A);
    }
    let question = carried(&mut net);
    let dropped = |net: &Net| (net.hosts[B].counters().drop_held, net.hosts[B].counters().drop_no_receive);
    assert_eq!(dropped(&net), (44, 0));
    answered(&mut net, question);
    assert_eq!(dropped(&net), (44, u64::from(MAX_HELD)));
    assert!(!net.hosts[B].engine.has_questions());
}
