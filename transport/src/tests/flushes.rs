//! FLUSH (annex A19): which requests are executed, and their completions.

use super::operations::Walk;
use super::wire::{A, B, Frame, Net};
use super::*;
use WcStatus::{RemAccess, RemInvReq, Success};
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Body, Feth, Packet, Rc, ReadPart, Reth};

const RC: [(QpType, bool); 2] = [(QpType::Rc, false), (QpType::Rc, true)];

fn flush(remote: Remote, placement: Placement, whole: bool, length: u32) -> SendOp {
    SendOp::Flush { remote, scope: FlushScope { placement, whole, length } }
}

/// Returns a FLUSH of a range, to global visibility.
fn flush_range(remote: Remote, length: u32) -> SendOp {
    flush(remote, Placement::Global, false, length)
}

#[test]
fn the_key_has_to_be_right_and_of_a_range_all_of_it() {
    const END: u64 = 1 << 20;
    let key = |key: u32| Remote { addr: IOVA, rkey: Rkey(key) };
    for (service, packets) in RC {
        let End { key: good, .. } = Walk::new(service, packets).ends[B];
        let at = |offset: u64| Remote { addr: IOVA + offset, rkey: Rkey(good) };
        let wraps = Remote { addr: u64::MAX - 3, rkey: Rkey(good) };
        for (remote, whole, length, status) in [
            (at(0), false, END as u32, Success),
            (at(100), false, 0, Success),
            (at(END), false, 0, Success),
            (at(END - 8), false, 8, Success),
            (at(END - 8), false, 9, RemAccess),
            (at(0), false, END as u32 + 1, RemAccess),
            (at(0), false, u32::MAX, RemAccess),
            (wraps, false, 8, RemAccess),
            (key(good ^ 1), false, 8, RemAccess),
            (key(good ^ 1), false, 0, RemAccess),
            (key(0), false, 8, RemAccess),
            // For a FLUSH of the whole region, address and length mean nothing.
            (at(0), true, 0, Success),
            (wraps, true, u32::MAX, Success),
            (Remote { addr: 0, rkey: Rkey(good) }, true, 12_345_678, Success),
            (key(good ^ 1), true, 8, RemAccess),
            (key(0), true, 0, RemAccess),
        ] {
            let case = format!("{remote:?} {whole} {length}, packets: {packets}");
            let mut walk = Walk::ready(service, packets);
            walk.post(A, flush(remote, Placement::Global, whole, length), Payload::Sges(&[])).unwrap();
            walk.run();
            assert_eq!(walk.end(), (status, WcOpcode::Flush), "{case}");
            if status == Success {
                walk.assert_untouched(&case);
                assert_eq!((walk.query(A).state, walk.query(B).state), (QpState::Rts, QpState::Rts));
            } else {
                assert_eq!(walk.query(B).state, QpState::Err, "{case}");
            }
        }
    }
}

/// Persistence is always refused.
///
/// A QP may allow its peer to request persistence, but no memory here has it, and no region allows
/// it.
#[test]
fn nothing_is_persistent() {
    let both = Access::FLUSH;
    for (service, packets) in RC {
        for (placement, of_qp, status) in [
            (Placement::Global, Access::FLUSH_PERSISTENT, RemInvReq),
            (Placement::Global, both, Success),
            (Placement::Persistent, Access::FLUSH_GLOBAL, RemInvReq),
            (Placement::Persistent, both, RemAccess),
            (Placement::Both, Access::FLUSH_GLOBAL, RemInvReq),
            (Placement::Both, Access::FLUSH_PERSISTENT, RemInvReq),
            (Placement::Both, both, RemAccess),
        ] {
            let case = format!("{placement:?} {of_qp:?}, packets: {packets}");
            let mut walk = Walk::new(service, packets);
            walk.attrs[B].access = of_qp;
            walk.make_ready();
            let remote = walk.ends[B].remote(0);
            walk.post(A, flush(remote, placement, false, 8), Payload::Sges(&[])).unwrap();
            walk.run();
            assert_eq!(walk.end(), (status, WcOpcode::Flush), "{case}");
        }
        let mut walk = Walk::new(service, packets);
        let End { device, pd, ref memory, .. } = walk.ends[B].clone();
        for access in [Access::FLUSH_PERSISTENT, Access::FLUSH] {
            let refused = walk.engine(B).0.reg_mr(device, pd, access, IOVA, 8, memory.clone());
            assert_eq!(refused, Err(Error::Invalid));
        }
        let mut attr = QpAttr { state: QpState::Init, ..walk.attrs[B] };
        assert_eq!(walk.attrs[B].access, Access::QP);
        walk.modify(B, TO_INIT, attr);
        assert_eq!(walk.query(B).access, Access::QP);
        attr.access = Access(1024);
        let End { device, qpn, .. } = walk.ends[B];
        let (engine, log, now) = walk.engine(B);
        let refused = engine.modify_qp(now, device, qpn, TO_INIT, &attr, log);
        assert_eq!(refused, Err(Error::Invalid));
    }
}

#[test]
fn a_window_gives_no_right_to_flush() {
    for (service, packets) in RC {
        let mut walk = Walk::new(service, packets);
        let End { device, pd, ref memory, .. } = walk.ends[B].clone();
        let engine = walk.engine(B).0;
        let rights = OF_REGION | Access::MW_BIND;
        let lkey = Lkey(engine.reg_mr(device, pd, rights, IOVA, 8192, memory.clone()).unwrap());
        let rkey = engine.alloc_mw(device, pd, MwType::Type1).unwrap();
        walk.make_ready();
        let access = Access::REMOTE_WRITE;
        let bind = Bind { rkey, new_rkey: rkey, lkey, access, addr: IOVA, length: 4096 };
        walk.post(B, SendOp::BindMw(bind), Payload::Sges(&[])).unwrap();
        walk.run();
        assert_eq!(walk.completions(B).len(), 1);
        // The window allows the WRITE, and does not allow the FLUSH.
        let remote = Remote { addr: IOVA, rkey };
        let ops: [(SendOp, &[u8], WcStatus, WcOpcode); 2] = [
            (write_to(remote), b"x", Success, WcOpcode::Write),
            (flush_range(remote, 8), b"", RemAccess, WcOpcode::Flush),
        ];
        for (op, data, status, opcode) in ops {
            walk.post(A, op, Payload::Inline(data)).unwrap();
            walk.run();
            assert_eq!(walk.end(), (status, opcode), "packets: {packets}");
        }
    }
}

#[test]
fn it_brings_nothing_along() {
    for (service, packets) in RC {
        for inline in [false, true] {
            let mut walk = Walk::ready(service, packets);
            let (remote, sge) = (walk.ends[B].remote(0), [walk.ends[A].sge(0, 1)]);
            let payload = if inline { Payload::Inline(b"x") } else { Payload::Sges(&sge) };
            walk.post(A, flush_range(remote, 1), payload).unwrap();
            walk.run();
            assert_eq!(walk.end(), (WcStatus::LocLen, WcOpcode::Flush));
            walk.assert_untouched("a FLUSH with a payload");
        }
    }
}

/// A FLUSH completes after earlier writes are placed.
///
/// This includes a long message on one host, which is copied in segments.
#[test]
fn it_ends_after_what_was_written_before() {
    for (service, packets) in RC {
        let mut walk = Walk::ready(service, packets);
        let length = 200_000;
        walk.ends[A].memory.fill(0, &vec![7; length]);
        let (remote, sge) = (walk.ends[B].remote(100_000), [walk.ends[A].sge(0, length as u32)]);
        walk.post(A, write_to(remote), Payload::Sges(&sge)).unwrap();
        walk.post(A, flush_range(remote, length as u32), Payload::Sges(&[])).unwrap();
        let imm = Some(Imm::from_bytes(*b"done"));
        walk.post(A, SendOp::Send { imm }, Payload::Inline(b"")).unwrap();
        walk.run();
        let ends: Vec<_> = walk.completions(A).iter().map(|c| (c.opcode, c.status, c.byte_len)).collect();
        let expected = [WcOpcode::Write, WcOpcode::Flush, WcOpcode::Send];
        assert_eq!(ends, expected.map(|opcode| (opcode, Success, 0)), "packets: {packets}");
        assert_eq!(walk.ends[B].memory.bytes(100_000, length), vec![7; length]);
        assert_eq!(walk.completions(B).len(), 1);
        let End { device, .. } = walk.ends[A];
        let counters = walk.engine(A).0.counters(device);
        let counts = (counters.flush_requests, counters.writes, counters.sends, counters.bytes_out);
        assert_eq!(counts, (1, 1, 1, length as u64), "packets: {packets}");
    }
}

fn bodies(net: &Net, at: usize) -> Vec<Body> {
    let parse = |frame: &Frame| Packet::parse(frame).unwrap().packet.body;
    net.hosts[at].cable.frames.iter().map(parse).collect()
}

#[test]
fn it_is_one_packet_and_answered_as_a_read_of_nothing() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.post(A, 2, flush_range(b.remote(16), 5000), Payload::Sges(&[]));
    net.post(A, 3, flush(b.remote(16), Placement::Persistent, true, 0), Payload::Sges(&[]));
    net.work(A);
    let reth = Reth { va: IOVA + 16, rkey: Rkey(b.key), length: 5000 };
    let sent = bodies(&net, A);
    assert_eq!(
        sent[1..],
        [
            Body::Rc(Rc::Flush(Feth::new(true, false, false), reth)),
            Body::Rc(Rc::Flush(Feth::new(false, true, true), Reth { length: 0, ..reth })),
        ]
    );
    net.carry(A, |index, _| index < 2);
    net.work(B);
    let answers = bodies(&net, B);
    assert_eq!(answers.len(), 1, "it acknowledges the WRITE too");
    assert!(matches!(answers[0], Body::Rc(Rc::ReadResponse(ReadPart::Only(_)))), "{answers:?}");
    net.carry(B, |_, _| true);
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success)]);
}

#[test]
fn one_that_comes_again_is_answered_again() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    for id in [1, 2] {
        net.post(A, id, flush_range(b.remote(0), 8), Payload::Sges(&[]));
    }
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"after"));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    // The responses to the FLUSHes are lost. The ACK that follows does not acknowledge them.
    net.carry(B, |index, _| index > 1);
    assert_eq!(net.hosts[A].statuses(), []);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3].map(|id| (id, Success)));
    assert_eq!((net.hosts[B].counters().duplicates, net.hosts[A].counters().flush_requests), (2, 2));
    assert_eq!(net.hosts[A].counters().responses_lost, 2);
}

#[test]
fn no_more_are_outstanding_than_reads_may_be() {
    let mut net = Net::connected_with(|a| a.max_rd_atomic = 2, |_| {});
    let b = net.hosts[B].end.clone();
    for id in 1..4 {
        net.post(A, id, flush_range(b.remote(0), 8), Payload::Sges(&[]));
    }
    net.work(A);
    assert_eq!(bodies(&net, A).len(), 2);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [1, 2, 3].map(|id| (id, Success)));
}
