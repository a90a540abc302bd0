//! What of a loss is sent again: the lost packet, if the peer holds what came behind it.

use super::*;
use crate::Record;
use crate::tests::wire::hostile::ack;
use std::collections::BTreeSet;
use vrdma_wire::roce::{Credits, Reth};

const BYTES: u32 = 400_000;
/// Packets of a message of that length.
const PACKETS: u64 = 391;

/// Loses each packet of one host with this remainder of 40, from the third on, when it is sent for
/// the first time. Returns how many.
fn lose_some(link: &mut Link, from: usize, start: Psn) -> u64 {
    let mut lost = BTreeSet::new();
    link.run(|sent| {
        let index = sent.packet.bth.psn.number().wrapping_sub(start.number()) & 0xff_ffff;
        let is_data = !matches!(sent.packet.body, Body::Rc(Rc::Ack(_)));
        sent.from == from && is_data && index % 40 == 3 && lost.insert(index)
    });
    lost.len() as u64
}

fn write(link: &mut Link) -> u64 {
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    a.memory.fill(0, &(0..BYTES).map(|i| (i / 7) as u8).collect::<Vec<_>>());
    let start = first_psn(link);
    link.net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, BYTES)]));
    let lost = lose_some(link, A, start);
    assert_eq!(link.net.hosts[A].statuses().last(), Some(&(1, Success)));
    assert_eq!(b.memory.bytes(0, BYTES as usize), a.memory.bytes(0, BYTES as usize));
    lost
}

#[test]
fn a_peer_that_holds_gets_lost_packets_alone() {
    let mut link = Link::warm();
    let lost = write(&mut link);
    assert_eq!((lost, link.packets[A]), (10, PACKETS + 10));
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.retries, counters.timeouts, counters.roce_adp_retrans), (10, 0, 0));
    assert_eq!(link.net.hosts[B].counters().duplicates, 0);
}

/// Has A read `bytes` with READs of this length.
fn read_all(link: &mut Link, length: u32) -> Psn {
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    b.memory.fill(0, &(0..BYTES).map(|i| (i / 11) as u8).collect::<Vec<_>>());
    let start = first_psn(link);
    for id in 0..BYTES / length {
        let at = u64::from(id * length);
        link.net.post(A, id, SendOp::Read { remote: b.remote(at) }, Payload::Sges(&[a.sge(at, length)]));
    }
    link.packets = [0; 2];
    start
}

fn check_read(link: &mut Link, count: u32) {
    let [a, b] = &mut link.net.hosts;
    assert_eq!(a.statuses(), (0..count).map(|id| (id, Success)).collect::<Vec<_>>());
    assert_eq!(a.end.memory.bytes(0, BYTES as usize), b.end.memory.bytes(0, BYTES as usize));
    assert_eq!(a.counters().timeouts, 0);
}

#[test]
fn a_lost_response_is_asked_for_alone_at_a_peer_that_holds() {
    let mut link = Link::warm();
    write(&mut link);
    let start = read_all(&mut link, BYTES);
    let lost = lose_some(&mut link, B, start);
    check_read(&mut link, 1);
    assert_eq!((lost, link.packets), (10, [1 + 10, PACKETS + 10]));
    assert_eq!(link.net.hosts[A].counters().responses_lost, 10);
}

#[test]
fn a_lost_response_is_asked_for_with_the_rest_of_its_read_at_other_peers() {
    let mut link = Link::warm();
    let start = read_all(&mut link, BYTES);
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == B && sent.packet.bth.psn == start.add(40) && lost == 0;
        lost += u64::from(is_lost);
        is_lost
    });
    check_read(&mut link, 1);
    assert_eq!((lost, link.packets), (1, [1 + 1, PACKETS + PACKETS - 40]));
}

#[test]
fn reads_behind_one_that_is_asked_for_again_are_executed_after_it() {
    let mut link = Link::warm();
    // The peer is known to hold.
    let [a, b] = [A, B].map(|host| link.net.hosts[host].end.clone());
    let first = first_psn(&link);
    link.net.post(A, 9, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 9000)]));
    link.run(|sent| sent.from == A && sent.packet.bth.psn == first.add(3) && sent.again == 0);
    link.net.hosts[A].statuses();
    let start = read_all(&mut link, 100_000);
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == B && sent.packet.bth.psn == start.add(40) && lost == 0;
        lost += u64::from(is_lost);
        is_lost
    });
    check_read(&mut link, 4);
    // One response of the first READ comes again, and all of the READ that was asked for behind it.
    assert_eq!((lost, link.packets), (1, [4 + 2, 4 * 98 + 1 + 98]));
    // A flag is read before what it says is there.
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for id in 0..2 {
        let at = u64::from(id) * 8;
        net.post(A, id, SendOp::Read { remote: b.remote(at) }, Payload::Sges(&[a.sge(at, 8)]));
    }
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| index > 0);
    b.memory.fill(8, b"the data");
    b.memory.fill(0, b"the flag");
    net.run();
    assert_eq!(net.hosts[A].statuses(), [0, 1].map(|id| (id, Success)));
    assert_eq!(a.memory.bytes(0, 16), b"the flagthe data");
}

#[test]
fn old_answers_to_later_reads_are_not_taken_whatever_sent_the_first_one_again() {
    let old = [b'o'; 24];
    for timeout in [0, 14] {
        let mut net = Net::connected_with(|attr| attr.timeout = timeout, |_| {});
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        b.memory.fill(0, &old);
        for id in 0..3 {
            let at = u64::from(id) * 8;
            net.post(A, id, SendOp::Read { remote: b.remote(at) }, Payload::Sges(&[a.sge(at, 8)]));
        }
        net.work(A);
        net.carry(A, |_, _| true);
        net.work(B);
        let answers: Vec<Frame> = net.hosts[B].cable.frames.drain(..).collect();
        if timeout == 0 {
            // A gap has everything sent again.
            net.deliver(B, &answers[1]);
        } else {
            // A probe sends the first one again alone, and nothing else has come.
            net.now = net.now + Duration::from_millis(5);
        }
        net.work(A);
        let again = net.hosts[A].cable.frames.len();
        assert_eq!(again, if timeout == 0 { 3 } else { 1 });
        b.memory.fill(0, &[b'n'; 24]);
        net.carry(A, |_, _| true);
        net.work(B);
        // What was on its way comes before the new answers.
        net.deliver(B, &answers[2]);
        net.run();
        net.settle();
        assert_eq!(net.hosts[A].statuses(), [0, 1, 2].map(|id| (id, Success)), "{timeout}");
        assert_eq!(a.memory.bytes(0, 24), [b'n'; 24], "{timeout}");
    }
}

#[test]
fn naks_for_a_packet_that_is_about_to_be_sent_again_are_one() {
    let mut net = Net::connected();
    let first = four(&mut net, 1);
    let packet = net.packet(B, ack(GAP), first);
    (0..100).for_each(|_| net.inject(B, &packet, b""));
    assert_eq!(net.answers(A).len(), 1);
    let counters = net.hosts[A].counters();
    assert_eq!((counters.naks_sequence_in, counters.retries), (100, 1));
}

#[test]
fn a_read_behind_an_atomic_that_is_asked_for_again_is_not_executed_again() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.fill(8, b"the data");
    let add = SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 5 });
    net.post(A, 0, add, Payload::Sges(&[a.sge(0, 8)]));
    net.post(A, 1, SendOp::Read { remote: b.remote(8) }, Payload::Sges(&[a.sge(8, 8)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| index > 0);
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), 1, "the atomic");
    assert_eq!(a.memory.bytes(8, 8), [0; 8], "the data are held");
    b.memory.fill(8, b"new data");
    net.run();
    assert_eq!(net.hosts[A].statuses(), [0, 1].map(|id| (id, Success)));
    assert_eq!(a.memory.bytes(8, 8), b"the data");
}

#[test]
fn a_packet_that_is_lost_again_has_a_probe() {
    let mut link = Link::warm();
    let (a, b, begin) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone(), link.net.now);
    let start = first_psn(&link);
    link.net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, BYTES)]));
    link.run(|sent| sent.from == A && sent.packet.bth.psn == start.add(9) && sent.again < 2);
    assert_eq!(link.net.hosts[A].statuses(), [(1, Success)]);
    assert_eq!(link.packets[A], PACKETS + 2);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.retries, counters.timeouts, counters.roce_adp_retrans), (1, 0, 1));
    assert!(link.net.now < begin + Duration::from_millis(1));
}

#[test]
fn several_lost_packets_in_a_row_are_sent_alone_until_all_is_sent_again() {
    for burst in [2, 3, 4, 20] {
        let mut link = Link::warm();
        write(&mut link);
        link.packets = [0; 2];
        let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
        let (start, begin) = (first_psn(&link), link.net.now);
        link.net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, BYTES)]));
        link.run(|sent| {
            let index = sent.packet.bth.psn.number().wrapping_sub(start.number()) & 0xff_ffff;
            sent.from == A && (50..50 + burst).contains(&index) && sent.again == 0
        });
        assert_eq!(link.net.hosts[A].statuses().last(), Some(&(1, Success)));
        let more = link.packets[A] - PACKETS;
        // Beyond three, what is on its way to the peer is sent again, too.
        assert!(link.net.now < begin + Duration::from_micros(600), "{burst}");
        let most = if burst <= 3 { u64::from(burst) } else { u64::from(burst) + 130 };
        assert!((u64::from(burst)..=most).contains(&more), "{burst}: {more}");
        assert_eq!(link.net.hosts[A].counters().timeouts, 0);
    }
}

/// Delivers an answer of B to A, and returns the PSNs that A sends then.
fn answered(net: &mut Net, syndrome: Syndrome, psn: Psn, first: Psn) -> Vec<u32> {
    let packet = net.packet(B, ack(syndrome), psn);
    net.inject(B, &packet, b"");
    net.answers(A).iter().map(|(psn, _)| psn.wrapping_sub(first.number()) & 0xff_ffff).collect()
}

/// A has sent four packets to a peer that has answered nothing.
fn four(net: &mut Net, id: u32) -> Psn {
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let End { device, qpn, .. } = a;
    let first = net.hosts[A].engine.query_qp(device, qpn).unwrap().sq_psn;
    net.post(A, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 4000)]));
    assert_eq!(net.answers(A).len(), 4);
    first
}

const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
const GOT: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

#[test]
fn a_peer_that_drops_is_found_out_and_tried_again_after_many_losses() {
    let mut net = Net::connected();
    let mut alone = Vec::new();
    for loss in 0..2 * 64 + 10 {
        let first = four(&mut net, loss);
        let sent = answered(&mut net, GAP, first, first);
        if sent.len() == 1 {
            alone.push(loss);
            assert_eq!(sent, [0]);
            // It has nothing of what came behind that packet, and nothing behind the next ones.
            assert_eq!(answered(&mut net, GOT, first, first), [1]);
            assert_eq!(answered(&mut net, GOT, first.add(1), first), [2]);
            assert_eq!(answered(&mut net, GOT, first.add(2), first), [3]);
        } else {
            assert_eq!(sent, [0, 1, 2, 3]);
        }
        assert_eq!(answered(&mut net, GOT, first.add(3), first), [0u32; 0]);
        assert_eq!(net.hosts[A].statuses().last(), Some(&(loss, Success)));
    }
    assert_eq!(alone, [0, 64, 128]);
    assert_eq!(net.hosts[A].counters().timeouts, 0);
}

#[test]
fn what_a_peer_does_is_known_to_further_queue_pairs() {
    for held in [true, false] {
        let mut net = Net::connected();
        let first = four(&mut net, 0);
        assert_eq!(answered(&mut net, GAP, first, first), [0]);
        let ends = if held { 3..4 } else { 0..4 };
        ends.for_each(|end| {
            answered(&mut net, GOT, first.add(end), first);
        });
        assert_eq!(net.hosts[A].statuses(), [(0, Success)]);
        net.second_pair();
        let first = four(&mut net, 9);
        assert_eq!(answered(&mut net, GAP, first, first).len() == 1, held, "{held}");
    }
}

/// A READs from B, and the answers in `late` come after the others. B gets what A then asks for
/// if `is_asked`.
fn read(net: &mut Net, bytes: u32, late: &[usize], is_asked: bool) {
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, bytes)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    let frames = std::mem::take(&mut net.hosts[B].cable.frames);
    let (late, others): (Vec<_>, Vec<_>) = (0..).zip(&frames).partition(|(index, _)| late.contains(index));
    others.iter().for_each(|(_, frame)| net.deliver(B, frame));
    net.work(A);
    net.carry(A, |_, _| is_asked);
    late.iter().for_each(|(_, frame)| net.deliver(B, frame));
    net.run();
}

#[test]
fn a_response_that_few_others_overtake_is_missed_after_the_time_that_others_were_late() {
    let mut link = Link::warm();
    (0..2).for_each(|_| read(&mut link.net, 9000, &[0], true));
    let [before, probes] = [|c: &Counters| c.retries, |c: &Counters| c.roce_adp_retrans]
        .map(|of| of(link.net.hosts[A].counters()));
    // Two come after the lost one, and eight may.
    let [a, b] = [A, B].map(|host| link.net.hosts[host].end.clone());
    link.net.post(A, 3, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 9000)]));
    let (first, start) = (first_psn(&link), link.net.now);
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == B && sent.packet.bth.psn == first.add(6) && lost == 0;
        lost += u64::from(is_lost);
        is_lost
    });
    assert_eq!(link.net.hosts[A].statuses().last(), Some(&(3, Success)));
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.retries, counters.roce_adp_retrans, counters.timeouts), (before + 1, probes, 0));
    let took = link.net.now.0 - start.0;
    let most = 4 * DELAY + Duration::from_micros(100);
    assert!(u128::from(took) < most.as_nanos(), "{took} ns: no probe was awaited");
}

#[test]
fn few_reads_are_sent_in_advance_where_responses_are_lost() {
    const LENGTH: u32 = 8000;
    let set = |attr: &mut QpAttr| (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (16, 16);
    let mut link = Link::new(Net::connected_with(set, set));
    write(&mut link);
    link.net.hosts[A].statuses();
    let mut rounds = Vec::new();
    for _ in 0..6 {
        let start = read_all(&mut link, LENGTH);
        let lost = lose_some(&mut link, B, start);
        check_read(&mut link, BYTES / LENGTH);
        rounds.push((lost, link.packets[B] - u64::from(BYTES / LENGTH) * 8));
    }
    let (lost, again) = rounds[5];
    assert!(lost >= 9, "{rounds:?}");
    assert!(again <= 30 * lost, "sent again, of 128 that may be outstanding: {rounds:?}");
}

/// Returns records of a QP that has sent a packet again alone, of QPs that hold responses, and of
/// one that answers a part of a READ before the rest.
pub(crate) fn records() -> [Record; 2] {
    let mut net = Net::connected();
    let first = four(&mut net, 1);
    assert_eq!(answered(&mut net, GAP, first.add(1), first), [1]);
    net.second_pair();
    // A response that was late is known by its second copy. One that was later still is a suspect.
    (0..2).for_each(|_| read(&mut net, 9000, &[0], true));
    read(&mut net, 30_000, &[0], false);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 3, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 30_000)]));
    net.post(A, 4, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| ![0, 4].contains(&index));
    net.work(A);
    let holds = net.hosts[A].engine.save();
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    net.post(A, 3, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 9000)]));
    net.work(A);
    net.hosts[B].cable.room = Some(5);
    net.carry(A, |_, _| true);
    net.work(B);
    let reth = Reth { va: IOVA + 1024, rkey: Rkey(b.key), length: 2048 };
    let part = net.packet(A, Body::Rc(Rc::ReadRequest(reth)), first.add(1));
    net.inject(A, &part, b"");
    [holds, net.hosts[B].engine.save()]
}

/// Has A post READs of 8 bytes of B, one behind the other, and returns B's answers. All bytes were
/// old when they were read.
fn old_answers(net: &mut Net, count: u32) -> Vec<Frame> {
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.fill(0, &vec![b'o'; 8 * count as usize]);
    for id in 0..count {
        let at = u64::from(id) * 8;
        net.post(A, id, SendOp::Read { remote: b.remote(at) }, Payload::Sges(&[a.sge(at, 8)]));
    }
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    let answers: Vec<Frame> = net.hosts[B].cable.frames.drain(..).collect();
    assert_eq!(answers.len(), count as usize);
    b.memory.fill(0, &vec![b'n'; 8 * count as usize]);
    answers
}

/// Checks that no READ has older bytes than one before it, and that all have ended.
fn in_order(net: &mut Net, count: u32) {
    assert_eq!(net.hosts[A].statuses(), (0..count).map(|id| (id, Success)).collect::<Vec<_>>());
    let bytes = net.hosts[A].end.memory.bytes(0, 8 * count as usize);
    let first = bytes.iter().position(|byte| *byte == b'n').unwrap_or(bytes.len());
    assert!(bytes[first..].iter().all(|byte| *byte == b'n'), "{:?}", String::from_utf8_lossy(&bytes));
}

#[test]
fn old_answers_that_come_after_the_late_one_before_them_are_not_taken() {
    let set = |attr: &mut QpAttr| (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (16, 16);
    // All that is old comes before or after what is new, and the first answer among it.
    for held in 1..5 {
        for last in held..5 {
            let mut net = Net::connected_with(set, set);
            let answers = old_answers(&mut net, 5);
            (1..held + 1).for_each(|at| net.deliver(B, &answers[at.min(4)]));
            net.work(A);
            net.deliver(B, &answers[0]);
            (held + 1..last + 1).for_each(|at| net.deliver(B, &answers[at.min(4)]));
            net.run();
            in_order(&mut net, 5);
        }
    }
}

#[test]
fn old_answers_that_are_late_within_the_tolerance_are_not_taken() {
    let set = |attr: &mut QpAttr| (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (16, 16);
    let mut net = Net::connected_with(set, set);
    // Up to four responses may overtake one.
    (0..2).for_each(|_| read(&mut net, 3000, &[0], true));
    net.hosts[A].statuses();
    let answers = old_answers(&mut net, 12);
    (1..7).for_each(|at| net.deliver(B, &answers[at]));
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), 12, "all are asked for again");
    net.deliver(B, &answers[0]);
    (3..5).for_each(|at| net.deliver(B, &answers[at]));
    net.run();
    in_order(&mut net, 12);
}

#[test]
fn old_answers_behind_an_atomic_that_is_sent_again_are_not_taken() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let add = SendOp::atomic(b.remote(64), Atomic::FetchAdd { add: 5 });
    net.post(A, 9, add, Payload::Sges(&[a.sge(64, 8)]));
    b.memory.fill(0, b"old1old2");
    for id in 0..2 {
        let at = u64::from(id) * 4;
        net.post(A, id, SendOp::Read { remote: b.remote(at) }, Payload::Sges(&[a.sge(at, 4)]));
    }
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    let answers: Vec<Frame> = net.hosts[B].cable.frames.drain(..).collect();
    b.memory.fill(0, b"new1new2");
    // The local ACK timeout is over, and everything is sent again.
    net.now = net.now + Duration::from_millis(2);
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), 3);
    net.deliver(B, &answers[2]);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| index < 2);
    net.run();
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [9, 0, 1].map(|id| (id, Success)));
    assert_eq!(a.memory.bytes(0, 8), b"new1new2");
    assert_eq!(b.memory.bytes(64, 8), 5u64.to_ne_bytes());
}

#[test]
fn without_a_timeout_a_response_that_is_lost_twice_is_asked_for_when_later_ones_come() {
    let mut net = Net::connected_with(|attr| attr.timeout = 0, |_| {});
    let answers = old_answers(&mut net, 3);
    net.deliver(B, &answers[1]);
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    // The first answer gets lost again, and the later ones come soon.
    net.carry(B, |index, _| index > 0);
    net.run();
    net.settle();
    in_order(&mut net, 3);
}

/// Has B get these packets of A one after the other, and all its bytes become new before the packet
/// with this index. Returns B's answers.
fn renewed_before(net: &mut Net, requests: &[Frame], index: usize) -> Vec<Vec<Frame>> {
    let mut answer = |(at, request): (usize, &Frame)| {
        if at == index {
            net.hosts[B].end.memory.fill(0, &[b'n'; 8000]);
        }
        net.deliver(A, request);
        net.work(B);
        net.hosts[B].cable.frames.drain(..).collect()
    };
    requests.iter().enumerate().map(&mut answer).collect()
}

#[test]
fn a_read_that_overtakes_the_repetition_of_the_one_before_it_is_not_taken() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.fill(0, &[b'o'; 8000]);
    net.post(A, 0, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |index, _| index > 0);
    net.post(A, 1, SendOp::Read { remote: b.remote(3000) }, Payload::Sges(&[a.sge(3000, 8)]));
    net.work(A);
    let requests: Vec<Frame> = net.hosts[A].cable.frames.drain(..).rev().collect();
    assert_eq!(requests.len(), 2, "the second READ, and a repetition of the first");
    let answers = renewed_before(&mut net, &requests, 1);
    answers.iter().flatten().for_each(|answer| net.deliver(B, answer));
    net.run();
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [0, 1].map(|id| (id, Success)));
    let bytes = a.memory.bytes(0, 3008);
    assert!(bytes[0] == b'n' && bytes[3000..] == [b'n'; 8], "{}", String::from_utf8_lossy(&bytes[2990..]));
}

#[test]
fn a_read_that_overtakes_the_repetition_of_several_before_it_is_not_taken() {
    let set = |attr: &mut QpAttr| (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (16, 16);
    let mut net = Net::connected_with(set, set);
    let answers = old_answers(&mut net, 3);
    net.hosts[B].end.memory.fill(0, &[b'o'; 32]);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.deliver(B, &answers[1]);
    net.post(A, 3, SendOp::Read { remote: b.remote(24) }, Payload::Sges(&[a.sge(24, 8)]));
    net.work(A);
    let mut requests: Vec<Frame> = net.hosts[A].cable.frames.drain(..).collect();
    assert_eq!(requests.len(), 4);
    requests.rotate_right(1);
    let answers = renewed_before(&mut net, &requests, 1);
    answers.iter().flatten().for_each(|answer| net.deliver(B, answer));
    net.run();
    net.settle();
    in_order(&mut net, 4);
    assert_eq!(a.memory.bytes(0, 32), [b'n'; 32]);
}

#[test]
fn without_a_timeout_what_was_dropped_because_of_a_loss_is_asked_for_again() {
    let mut net = Net::connected_with(|attr| attr.timeout = 0, |_| {});
    let answers = old_answers(&mut net, 3);
    net.deliver(B, &answers[1]);
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    // New answers are in another order.
    let answers: Vec<Frame> = net.hosts[B].cable.frames.drain(..).collect();
    [0, 2, 1].iter().for_each(|&at| net.deliver(B, &answers[at]));
    net.run();
    net.settle();
    in_order(&mut net, 3);
    // On a path that is known to lose packets, the last response may be lost, too.
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 7, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |_, _| false);
    net.run();
    net.settle();
    assert_eq!(net.hosts[A].statuses().last(), Some(&(7, Success)));
    assert_eq!(net.hosts[A].counters().timeouts, 0);
}
