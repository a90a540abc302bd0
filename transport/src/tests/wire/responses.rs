//! Responses to READs and atomics: implied ACKs, gaps, repetitions, limits.

use super::*;
use WcStatus::Success;
use vrdma_wire::roce::{Aeth, AtomicEth, AtomicKind, Credits, ReadPart, Reth, Syndrome};

const ACK: Aeth =
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: vrdma_wire::num::AethMsn::truncate(0) };

fn kinds(net: &Net, at: usize) -> String {
    let short = |frame: &Frame| match parse(frame).body {
        Body::Rc(Rc::ReadResponse(ReadPart::First(_))) => 'F',
        Body::Rc(Rc::ReadResponse(ReadPart::Middle)) => 'M',
        Body::Rc(Rc::ReadResponse(ReadPart::Last(_))) => 'L',
        Body::Rc(Rc::ReadResponse(ReadPart::Only(_))) => 'O',
        Body::Rc(Rc::AtomicAck(..)) => 'a',
        Body::Rc(Rc::Ack(_)) => 'A',
        Body::Rc(Rc::ReadRequest(_)) => 'R',
        Body::Rc(Rc::Atomic(..)) => 'X',
        Body::Rc(Rc::AtomicWrite(_)) => 'T',
        Body::Rc(Rc::Write(_)) => 'W',
        Body::Rc(Rc::Send(_)) => 'S',
        _ => '?',
    };
    net.hosts[at].cable.frames.iter().map(short).collect()
}

#[test]
fn a_response_acknowledges_what_came_before_it() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"y"));
    net.post(A, 4, SendOp::atomic(b.remote(8), Atomic::FetchAdd { add: 1 }), Payload::Sges(&[a.sge(0, 8)]));
    net.work(A);
    assert_eq!(kinds(&net, A), "WRWX");
    net.carry(A, |_, _| true);
    net.work(B);
    assert_eq!(kinds(&net, B), "FMLa", "no acknowledge beside them");
    net.carry(B, |_, _| true);
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3, 4].map(|id| (id, Success)));
}

#[test]
fn a_gap_in_a_response_is_asked_for_from_there_on() {
    for lost in 0..5 {
        let mut net = Net::connected();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        b.memory.fill(0, &(0..5000).map(|i| i as u8).collect::<Vec<_>>());
        let first = net.expected(B);
        net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 5000)]));
        net.post(A, 2, write_to(b.remote(6000)), Payload::Inline(b"after"));
        net.work(A);
        net.carry(A, |_, _| true);
        net.work(B);
        assert_eq!(kinds(&net, B), "FMMMLA");
        net.carry(B, |index, _| index != lost);
        net.work(A);
        assert_eq!(kinds(&net, A), "R");
        let again = parse(&net.hosts[A].cable.frames[0]);
        let skipped = lost as u32 * 1024;
        let reth = Reth { va: IOVA + u64::from(skipped), rkey: Rkey(b.key), length: 5000 - skipped };
        assert_eq!((again.bth.psn, again.body), (first.add(lost as u32), Body::Rc(Rc::ReadRequest(reth))));
        net.run();
        assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
        assert_eq!(a.memory.bytes(0, 5000), b.memory.bytes(0, 5000));
        let counters = net.hosts[A].counters();
        assert_eq!((counters.responses_lost, counters.retries, counters.timeouts), (1, 1, 0), "{lost}");
        assert_eq!(net.hosts[B].counters().duplicates, 1);
    }
}

#[test]
fn an_atomic_that_comes_again_is_not_carried_out_again() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for (id, add) in [(1, 5u64), (2, 6), (3, 7)] {
        let to = a.sge(u64::from(id) * 8, 8);
        net.post(A, id, SendOp::atomic(b.remote(0), Atomic::FetchAdd { add }), Payload::Sges(&[to]));
    }
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    // All responses are lost, so the requests are retransmitted.
    net.hosts[B].cable.frames.clear();
    net.sleep();
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3].map(|id| (id, Success)));
    assert_eq!(b.memory.bytes(0, 8), 18u64.to_ne_bytes());
    for (id, before) in [(1, 0u64), (2, 5), (3, 11)] {
        assert_eq!(a.memory.bytes(id * 8, 8), before.to_ne_bytes());
    }
    assert_eq!(net.hosts[B].counters().duplicates, 3);
}

#[test]
fn an_atomic_write_is_answered_as_a_read_of_nothing() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let first = net.expected(B);
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.post(A, 2, SendOp::AtomicWrite { remote: b.remote(16) }, Payload::Inline(b"12345678"));
    net.work(A);
    assert_eq!(kinds(&net, A), "WT");
    let sent = parse(&net.hosts[A].cable.frames[1]);
    let reth = Reth { va: IOVA + 16, rkey: Rkey(b.key), length: 8 };
    assert_eq!(
        (sent.bth.psn, sent.bth.ack_req, sent.body),
        (first.add(1), false, Body::Rc(Rc::AtomicWrite(reth)))
    );
    net.carry(A, |_, _| true);
    net.work(B);
    assert_eq!(kinds(&net, B), "O", "it acknowledges the WRITE too");
    let answer = parse(&net.hosts[B].cable.frames[0]);
    assert_eq!(answer.bth.psn, first.add(1));
    net.carry(B, |_, _| true);
    assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
}

#[test]
fn an_atomic_write_that_comes_again_leaves_newer_data_alone() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let op = SendOp::AtomicWrite { remote: b.remote(0) };
    for (id, value) in [(1, b"oldest.."), (2, b"older...")] {
        net.post(A, id, op, Payload::Inline(value));
    }
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    // The responses are lost, the responder's program writes, and the requests are retransmitted.
    net.hosts[B].cable.frames.clear();
    b.memory.fill(0, b"newest..");
    net.sleep();
    assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
    assert_eq!(b.memory.bytes(0, 8), b"newest..");
    assert_eq!((net.hosts[B].counters().duplicates, net.hosts[A].counters().atomic_writes), (2, 2));
}

#[test]
fn an_acknowledge_past_an_atomic_write_is_no_answer_to_it() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let op = SendOp::AtomicWrite { remote: b.remote(0) };
    net.post(A, 1, op, Payload::Inline(b"12345678"));
    net.post(A, 2, write_to(b.remote(8)), Payload::Inline(b"x"));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    assert_eq!(kinds(&net, B), "OA");
    net.carry(B, |index, _| index != 0);
    assert_eq!(net.hosts[A].statuses(), []);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
    assert_eq!(net.hosts[A].counters().responses_lost, 1);
}

#[test]
fn wrong_answers_to_an_atomic_write_fail_it() {
    let wrong = [
        (Rc::ReadResponse(ReadPart::Only(ACK)), 8),
        (Rc::ReadResponse(ReadPart::First(ACK)), 1024),
        (Rc::AtomicAck(ACK, 5), 0),
    ];
    for (index, (body, length)) in wrong.into_iter().enumerate() {
        let mut net = Net::connected();
        let b = net.hosts[B].end.clone();
        let first = net.expected(B);
        net.post(A, 1, SendOp::AtomicWrite { remote: b.remote(0) }, Payload::Inline(b"12345678"));
        net.answers(A);
        let packet = net.packet(B, Body::Rc(body), first);
        net.inject(B, &packet, &vec![1; length]);
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::BadResp)], "{index}");
    }
}

#[test]
fn no_more_atomic_writes_are_outstanding_than_reads_may_be() {
    let mut net = Net::connected_with(|a| a.max_rd_atomic = 2, |_| {});
    let b = net.hosts[B].end.clone();
    for id in 1..4 {
        net.post(A, id, SendOp::AtomicWrite { remote: b.remote(0) }, Payload::Inline(&[id as u8; 8]));
    }
    net.work(A);
    assert_eq!(kinds(&net, A), "TT");
    net.run();
    assert_eq!(
        (net.hosts[A].statuses(), b.memory.bytes(0, 8)),
        ([1, 2, 3].map(|id| (id, Success)).to_vec(), vec![3; 8])
    );
}

#[test]
fn repeated_requests_that_were_never_made_are_dropped() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    net.post(A, 1, SendOp::Read { remote: b.remote(100) }, Payload::Sges(&[a.sge(0, 3000)]));
    net.post(A, 2, SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 1 }), Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    let key = Rkey(b.key);
    let read = |offset: u64, rkey, length| Rc::ReadRequest(Reth { va: IOVA + 100 + offset, rkey, length });
    let wrong = [
        (0, read(0, key, 3001)),
        (0, read(0, key, 2999)),
        (0, read(1, key, 3000)),
        (0, read(0, Rkey(b.key ^ 1), 3000)),
        (1, read(0, key, 3000)),
        (1, read(1024, key, 3000)),
        (3, read(0, key, 8)),
        (4_000_000, read(0, key, 3000)),
        (0, Rc::Atomic(AtomicKind::FetchAdd, AtomicEth { va: IOVA, rkey: key, swap_or_add: 1, compare: 0 })),
    ];
    for (index, (offset, body)) in wrong.into_iter().enumerate() {
        let psn = if offset > 3 { first.add(0u32.wrapping_sub(offset)) } else { first.add(offset) };
        let packet = net.packet(A, Body::Rc(body), psn);
        net.inject(A, &packet, b"");
        assert_eq!(net.answers(B), [], "{index}");
        assert_eq!(net.hosts[B].counters().drop_duplicate, index as u64 + 1);
    }
    for (offset, answers) in [(0, 3), (1, 2), (2, 1)] {
        let packet = net.packet(
            A,
            Body::Rc(read(offset * 1024, key, 3000 - offset as u32 * 1024)),
            first.add(offset as u32),
        );
        net.inject(A, &packet, b"");
        assert_eq!(net.answers(B).len(), answers, "{offset}");
    }
    assert_eq!((net.hosts[B].state(), b.memory.bytes(0, 8)), (QpState::Rts, 1u64.to_ne_bytes().to_vec()));
}

#[test]
fn responses_of_wrong_length_or_kind_fail_the_request() {
    let at = |body: Rc, length: usize| {
        let mut net = Net::connected();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let first = net.expected(B);
        net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
        net.answers(A);
        let packet = net.packet(B, Body::Rc(body), first);
        net.inject(B, &packet, &vec![1; length]);
        let bad = net.hosts[A].counters().bad_responses;
        (net.hosts[A].statuses(), bad)
    };
    let nak = Aeth { syndrome: Syndrome::Nak(vrdma_wire::roce::NakCode::InvalidRequest), ..ACK };
    let wrong = [
        (Rc::ReadResponse(ReadPart::First(ACK)), 1020),
        (Rc::ReadResponse(ReadPart::First(ACK)), 2048),
        (Rc::ReadResponse(ReadPart::Only(ACK)), 3000),
        (Rc::ReadResponse(ReadPart::Last(ACK)), 1024),
        (Rc::ReadResponse(ReadPart::First(nak)), 1024),
        (Rc::AtomicAck(ACK, 5), 0),
    ];
    for (index, (body, length)) in wrong.into_iter().enumerate() {
        assert_eq!(at(body, length), (vec![(1, WcStatus::BadResp)], 1), "{index}");
    }
    assert_eq!(at(Rc::ReadResponse(ReadPart::First(ACK)), 1024), (vec![], 0));
}

#[test]
fn no_more_reads_are_outstanding_than_allowed_and_a_fence_waits_for_all() {
    let mut net = Net::connected_with(|a| a.max_rd_atomic = 2, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for id in 1..4 {
        net.post(A, id, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 2000)]));
    }
    net.post(A, 4, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.work(A);
    assert_eq!(kinds(&net, A), "RR");
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| index < 2);
    net.work(A);
    assert_eq!(kinds(&net, A), "RW");
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3, 4].map(|id| (id, Success)));
    net.post(A, 5, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 2000)]));
    net.post_fenced(A, 6, write_to(b.remote(0)), Payload::Inline(b"x"), true);
    net.work(A);
    assert_eq!(kinds(&net, A), "R");
    net.run();
    assert_eq!(net.hosts[A].statuses(), [5, 6].map(|id| (id, Success)));
}

#[test]
fn long_reads_share_the_outlet_with_other_qps_and_with_own_requests() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 1_000_000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.post(B, 2, write_to(a.remote(0)), Payload::Inline(b"x"));
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    // Two turns, of 256 KiB at most.
    engine.transmit(net.now, 300, cable, log);
    assert!(kinds(&net, B).contains('W'));
}

#[test]
fn a_send_queue_drains_before_it_says_so() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 5000)]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"x"));
    let Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 2, cable, log);
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    let drain = QpAttr { state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    net.hosts[A].modify(net.now, mask, drain);
    assert_eq!(net.hosts[A].events(), []);
    net.run();
    assert_eq!(
        (net.hosts[A].statuses(), net.hosts[A].events()),
        (vec![(1, Success)], vec![Event::SqDrained(a.qpn)])
    );
    net.hosts[A].modify(net.now, AttrMask::STATE, QpAttr { state: QpState::Rts, ..QpAttr::default() });
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(2, Success)]);
}

#[test]
fn a_suspended_device_goes_on_where_it_was() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 5000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.hosts[A].engine.set_suspended(a.device, true);
    net.run();
    assert_eq!(net.hosts[A].statuses(), []);
    assert_eq!(net.hosts[A].counters().drop_state, 5);
    for _ in 0..5 {
        net.sleep();
    }
    net.hosts[A].engine.set_suspended(a.device, false);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
}

#[test]
fn any_number_of_reads_can_go_before_a_long_write() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for id in 0..300 {
        net.post(A, id, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8)]));
        net.run();
    }
    net.post(A, 300, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 5000)]));
    net.run();
    assert_eq!(net.hosts[A].statuses().last(), Some(&(300, Success)));
}
