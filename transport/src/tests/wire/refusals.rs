//! Requests that a responder refuses.
//!
//! Tests check the peer's NAK, what the guest sees, and how the requester's request ends.

use super::hostile::ack;
use super::*;
use NakCode::{InvalidRequest, RemoteAccessError};
use vrdma_wire::num::AethMsn;
use vrdma_wire::roce::{
    Aeth, AtomicEth, AtomicKind, Feth, NakCode, Part, Reth, SendTail, Syndrome, WriteTail,
};

/// Returns B's NAK to a request of A, and the events that B raises.
fn refused(access: Access, body: Rc, payload: &[u8]) -> (NakCode, Vec<Event>) {
    let mut net = Net::connected_with(|_| {}, |b| b.access = access);
    let b = net.hosts[B].end.clone();
    b.memory.fill(0, &[7; 64]);
    let psn = net.expected(B);
    net.request(A, body, payload);
    let answers = net.answers(B);
    let [(at, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Nak(code), msn })))] = answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((at, msn), (psn.number(), AethMsn::default()));
    assert_eq!(net.hosts[B].state(), QpState::Err);
    assert_eq!(b.memory.bytes(0, 64), [7; 64]);
    assert_eq!(b.qpn, net.hosts[B].end.qpn);
    (code, net.hosts[B].events())
}

#[test]
fn requests_beyond_rights_and_rules_are_refused() {
    let end = Net::connected().hosts[B].end.clone();
    let all = Access::ALL;
    let reth = |va: u64, rkey: u32, length: u32| Reth { va, rkey: Rkey(rkey), length };
    let good = |length| reth(IOVA, end.key, length);
    let atomic = |va, rkey| AtomicEth { va, rkey: Rkey(rkey), swap_or_add: 1, compare: 0 };
    let only = |reth| Rc::Write(Part::Only(reth, WriteTail::Plain));
    let (global, lasting) = (Feth::new(true, false, false), Feth::new(false, true, false));
    let none: Vec<(&str, Access, Rc, usize, NakCode)> = vec![
        ("WRITE with a key that is none", all, only(reth(IOVA, end.key ^ 1, 4)), 4, RemoteAccessError),
        ("WRITE before the region", all, only(reth(IOVA - 1, end.key, 4)), 4, RemoteAccessError),
        ("WRITE over its end", all, only(reth(IOVA + MEMORY as u64 - 3, end.key, 4)), 4, RemoteAccessError),
        ("WRITE that wraps", all, only(reth(u64::MAX, end.key, 4)), 4, RemoteAccessError),
        ("WRITE without the right", Access::REMOTE_READ, only(good(4)), 4, InvalidRequest),
        ("WRITE shorter than it says", all, only(good(8)), 4, InvalidRequest),
        ("WRITE longer than it says", all, only(good(4)), 8, InvalidRequest),
        ("WRITE longer than the MTU", all, only(good(2048)), 2048, InvalidRequest),
        ("first of a WRITE that is not full", all, Rc::Write(Part::First(good(5000))), 1000, InvalidRequest),
        (
            "first of a WRITE that is one packet",
            all,
            Rc::Write(Part::First(good(1024))),
            1024,
            InvalidRequest,
        ),
        ("WRITE of more than 2^31", all, Rc::Write(Part::First(good(u32::MAX))), 1024, InvalidRequest),
        ("middle of no WRITE", all, Rc::Write(Part::Middle), 1024, InvalidRequest),
        ("last of no WRITE", all, Rc::Write(Part::Last(WriteTail::Plain)), 4, InvalidRequest),
        ("middle of no SEND", all, Rc::Send(Part::Middle), 1024, InvalidRequest),
        ("last of no SEND", all, Rc::Send(Part::Last(SendTail::Plain)), 4, InvalidRequest),
        ("READ of 2 GiB from less", all, Rc::ReadRequest(good(1 << 31)), 0, RemoteAccessError),
        ("READ of more than 2^31", all, Rc::ReadRequest(good(u32::MAX)), 0, InvalidRequest),
        ("READ without the right", Access::REMOTE_WRITE, Rc::ReadRequest(good(4)), 0, InvalidRequest),
        ("READ with key 0", all, Rc::ReadRequest(reth(IOVA, 0, 4)), 0, RemoteAccessError),
        (
            "atomic off its alignment",
            all,
            Rc::Atomic(AtomicKind::FetchAdd, atomic(IOVA + 4, end.key)),
            0,
            InvalidRequest,
        ),
        (
            "atomic with a wrong key",
            all,
            Rc::Atomic(AtomicKind::CompareSwap, atomic(IOVA, 5)),
            0,
            RemoteAccessError,
        ),
        (
            "atomic without the right",
            Access::REMOTE_WRITE,
            Rc::Atomic(AtomicKind::FetchAdd, atomic(IOVA, end.key)),
            0,
            InvalidRequest,
        ),
        ("ATOMIC WRITE of more than it brings", all, Rc::AtomicWrite(good(16)), 8, InvalidRequest),
        ("ATOMIC WRITE of nothing", all, Rc::AtomicWrite(good(0)), 8, InvalidRequest),
        (
            "ATOMIC WRITE off its alignment",
            all,
            Rc::AtomicWrite(reth(IOVA + 4, end.key, 8)),
            8,
            InvalidRequest,
        ),
        (
            "ATOMIC WRITE with a wrong key",
            all,
            Rc::AtomicWrite(reth(IOVA, end.key ^ 1, 8)),
            8,
            RemoteAccessError,
        ),
        (
            "ATOMIC WRITE over the end",
            all,
            Rc::AtomicWrite(reth(IOVA + MEMORY as u64, end.key, 8)),
            8,
            RemoteAccessError,
        ),
        (
            "ATOMIC WRITE without the right",
            Access::REMOTE_ATOMIC,
            Rc::AtomicWrite(good(8)),
            8,
            InvalidRequest,
        ),
        ("FLUSH without the right", all, Rc::Flush(global, good(8)), 0, InvalidRequest),
        (
            "FLUSH to persistence, no right",
            Access::FLUSH_GLOBAL,
            Rc::Flush(lasting, good(8)),
            0,
            InvalidRequest,
        ),
        ("FLUSH to persistence", Access::QP, Rc::Flush(lasting, good(8)), 0, RemoteAccessError),
        (
            "FLUSH with a wrong key",
            Access::QP,
            Rc::Flush(global, reth(IOVA, end.key ^ 1, 8)),
            0,
            RemoteAccessError,
        ),
        (
            "FLUSH over the end",
            Access::QP,
            Rc::Flush(global, reth(IOVA + MEMORY as u64 - 4, end.key, 8)),
            0,
            RemoteAccessError,
        ),
        (
            "FLUSH of nothing with key 0",
            Access::QP,
            Rc::Flush(global, reth(IOVA, 0, 0)),
            0,
            RemoteAccessError,
        ),
        ("FLUSH to nowhere", Access::QP, Rc::Flush(Feth::from_bits(0), good(8)), 0, InvalidRequest),
        ("FLUSH to a reserved place", Access::QP, Rc::Flush(Feth::from_bits(5), good(8)), 0, InvalidRequest),
        (
            "FLUSH of a reserved kind",
            Access::QP,
            Rc::Flush(Feth::from_bits(0x21), good(8)),
            0,
            InvalidRequest,
        ),
    ];
    for (what, access, body, payload, expected) in none {
        let (code, events) = refused(access, body, &vec![1; payload]);
        assert_eq!(code, expected, "{what}");
        let event = match code {
            RemoteAccessError => Event::QpAccessError(end.qpn),
            _ => Event::QpRequestError(end.qpn),
        };
        assert_eq!(events, [event], "{what}");
    }
}

#[test]
fn a_key_of_another_domain_is_refused() {
    let mut net = Net::connected();
    let Host { engine, end, .. } = &mut net.hosts[B];
    let other = engine.alloc_pd(end.device, OWNER).unwrap();
    let key = engine.reg_mr(end.device, other, Access::ALL, IOVA, 64, Mem::new(64)).unwrap();
    let remote = Remote { addr: IOVA, rkey: Rkey(key) };
    let a = net.hosts[A].end.clone();
    net.post(A, 1, SendOp::Read { remote }, Payload::Sges(&[a.sge(0, 8)]));
    net.post(A, 2, SEND, Payload::Inline(b"x"));
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemAccess), (2, WcStatus::Flush)]);
    assert_eq!(net.hosts[A].counters().naks_in, 1);
    assert_eq!(net.hosts[B].counters().naks_access, 1);
    assert_eq!(net.hosts[B].events(), [Event::QpAccessError(net.hosts[B].end.qpn)]);
    assert_eq!(net.hosts[A].events(), []);
}

#[test]
fn what_came_before_a_refused_request_is_carried_out_and_ends_well() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.fill(0, &[5; 3000]);
    net.post_recv(B, 9, &[b.sge(5000, 100)]);
    net.post_recv(B, 10, &[b.sge(5000, 100)]);
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
    net.post(A, 2, SEND, Payload::Inline(b"fits"));
    net.post(A, 3, SEND, Payload::Sges(&[a.sge(0, 101)]));
    net.post(A, 4, SEND, Payload::Inline(b"late"));
    net.settle();
    use WcStatus::{Flush, LocLen, RemInvReq, Success};
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success), (3, RemInvReq), (4, Flush)]);
    assert_eq!(net.hosts[B].statuses(), [(9, Success), (10, LocLen)]);
    assert_eq!(a.memory.bytes(0, 3000), [5; 3000]);
    assert_eq!(net.hosts[B].events(), [], "the completion says it all");
}

#[test]
fn too_many_reads_at_once_are_refused() {
    let mut net = Net::connected_with(|_| {}, |b| b.max_dest_rd_atomic = 2);
    let key = net.hosts[B].end.key;
    let read = Rc::ReadRequest(Reth { va: IOVA, rkey: Rkey(key), length: 8 });
    net.request(A, read, b"");
    net.request(A, read, b"");
    assert_eq!(net.answers(B).len(), 2);
    for _ in 0..3 {
        net.request(A, read, b"");
    }
    let answers = net.answers(B);
    assert_eq!(answers.len(), 3, "both are answered, then the third is refused");
    assert!(matches!(answers[2].1, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Nak(InvalidRequest), .. }))));
    let none = Net::connected_with(|_| {}, |b| b.max_dest_rd_atomic = 0);
    let mut net = none;
    net.request(A, read, b"");
    assert!(matches!(
        net.answers(B)[..],
        [(_, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Nak(InvalidRequest), .. })))]
    ));
}

#[test]
fn resources_are_checked_before_keys() {
    // IBTA 9.7.4.1.5 stands before 9.7.4.1.7: one READ too many is invalid, whatever its key.
    let mut net = Net::connected_with(|_| {}, |b| b.max_dest_rd_atomic = 1);
    let key = net.hosts[B].end.key;
    let read = |rkey| Rc::ReadRequest(Reth { va: IOVA, rkey: Rkey(rkey), length: 8 });
    net.request(A, read(key), b"");
    net.request(A, read(key ^ 1), b"");
    let answers = net.answers(B);
    assert_eq!(answers.len(), 2, "the first is answered, then the second is refused");
    assert!(matches!(answers[1].1, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Nak(InvalidRequest), .. }))));
}

#[test]
fn a_region_that_goes_in_the_midst_of_a_read_ends_it() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100_000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    engine.transmit(net.now, 10, cable, log);
    engine.dereg_mr(b.device, b.key).unwrap();
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemAccess)]);
    assert_eq!(net.hosts[B].events(), [Event::QpAccessError(b.qpn)]);
    // Vanished memory gives another status.
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.vanish();
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100_000)]));
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemOp)]);
    assert_eq!(net.hosts[B].events(), [Event::QpFatal(b.qpn)]);
}

#[test]
fn own_elements_that_are_wrong_fail_when_those_before_have_ended() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let wrong = Sge { lkey: Lkey(1), ..a.sge(0, 10) };
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 5000)]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Sges(&[wrong]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.work(A);
    assert_eq!(net.hosts[A].statuses(), []);
    net.settle();
    use WcStatus::{Flush, LocProt, Success};
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, LocProt), (3, Flush)]);
    assert_eq!(net.hosts[B].state(), QpState::Rts);
    // In the middle of a message.
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 5000)]));
    let Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 2, cable, log);
    engine.dereg_mr(a.device, a.key).unwrap();
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, LocProt)]);
    assert_eq!(net.hosts[A].state(), QpState::Err);
}

#[test]
fn every_nak_ends_its_request_and_no_earlier_one() {
    let codes = [
        (InvalidRequest, WcStatus::RemInvReq),
        (RemoteAccessError, WcStatus::RemAccess),
        (NakCode::RemoteOperationalError, WcStatus::RemOp),
    ];
    for (code, status) in codes {
        let mut net = Net::connected();
        let b = net.hosts[B].end.clone();
        let first = net.expected(B);
        for id in 1..4 {
            net.post(A, id, write_to(b.remote(0)), Payload::Inline(b"x"));
        }
        net.answers(A);
        let packet = net.packet(B, ack(Syndrome::Nak(code)), first.add(1));
        net.inject(B, &packet, b"");
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (2, status), (3, WcStatus::Flush)]);
        assert_eq!(net.answers(A), []);
    }
}

#[test]
fn a_missing_receive_is_waited_for_as_long_as_was_asked() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 3000)]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"y"));
    assert_eq!(net.sleep(), Some(RNR));
    assert_eq!(net.hosts[A].counters().rnr_naks, 2);
    assert_eq!(net.hosts[B].counters().naks_sequence, 0, "what follows is dropped without a word");
    net.post_recv(B, 5, &[b.sge(0, 3000)]);
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [1, 2].map(|id| (id, WcStatus::Success)));
    // Without a receive.
    net.post(A, 3, SEND, Payload::Inline(b"x"));
    let start = net.now;
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(3, WcStatus::RnrRetryExc)]);
    assert!(net.now >= start + 2 * RNR);
    // Without a limit of retries.
    let mut net = Net::connected_with(|a| a.rnr_retry = 7, |_| {});
    net.post(A, 1, SEND, Payload::Inline(b"x"));
    for _ in 0..100 {
        net.sleep();
    }
    assert_eq!(net.hosts[A].statuses(), []);
    net.post_recv(B, 5, &[b.sge(0, 3000)]);
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
}
