//! Segments that a peer must not send.
//!
//! Each ends in a TERMINATE with its cause, and nothing else is touched.

use super::*;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{SendPart, Tagged};
use vrdma_wire::iwarp::request::{AtomicOp, AtomicRequest, AtomicResponse, ReadRequest};
use vrdma_wire::iwarp::terminate::Terminate;
use vrdma_wire::iwarp::{Cause, Fault};

fn send(msn: u32, offset: u32, last: bool) -> Segment {
    Segment::Send { part: SendPart { msn: Msn(msn), offset, last }, solicited: false, invalidate: None }
}

fn write(b: &End, offset: u64, last: bool) -> Segment {
    Segment::Write(Tagged { stag: Stag(b.key), offset: IOVA + offset, last })
}

fn read(b: &End, msn: u32) -> Segment {
    let [sink, source] = [Stag(1), Stag(b.key)];
    let request = ReadRequest { sink, sink_offset: 0, length: 8, source, source_offset: IOVA };
    Segment::ReadRequest(Msn(msn), request)
}

fn atomic(b: &End, op: AtomicOp) -> Segment {
    let request = AtomicRequest { id: 1, stag: Stag(b.key), offset: IOVA, op };
    Segment::AtomicRequest(Msn::FIRST, request)
}

/// Delivers these segments, which a peer wrote, to host B with one receive.
fn after(segments: &[(Segment, usize)]) -> Net {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(1000, 1000)]);
    let mut place = StreamOffset::START;
    for (segment, length) in segments {
        net.inject(B, &mut place, segment, &vec![0x55; *length]);
    }
    net.work(B);
    net
}

fn ends_in(name: &str, cause: Cause, segments: impl FnOnce(&End) -> Vec<(Segment, usize)>) {
    let b = Net::connected().hosts[B].end.clone();
    let mut net = after(&segments(&b));
    let Some(Segment::Terminate(Msn::FIRST, terminate)) = net.hosts[B].segments().pop() else {
        panic!("{name}: no TERMINATE")
    };
    assert_eq!(terminate.code, cause.code(), "{name}: {}", terminate.code);
    assert_eq!(net.hosts[B].state(), QpState::Err, "{name}");
    assert_eq!(net.hosts[B].away.end, Some(StreamEnd::Close), "{name}");
    // Later segments were dropped, and this one is dropped too.
    net.inject(B, &mut { StreamOffset::START }, &write(&b, 0, true), &[1; 8]);
    assert_eq!(net.hosts[B].end.memory.bytes(0, 8), [0; 8], "{name}");
}

#[test]
fn segments_out_of_order_end_the_connection() {
    ends_in("an MSN that is skipped", Cause::UntaggedMsn, |_| vec![(send(2, 0, true), 8)]);
    ends_in("an MSN again", Cause::UntaggedMsn, |_| vec![(send(1, 0, true), 8), (send(1, 0, true), 8)]);
    ends_in("a message that begins in its midst", Cause::UntaggedOffset, |_| vec![(send(1, 8, true), 8)]);
    ends_in("a gap in a message", Cause::UntaggedOffset, |_| {
        vec![(send(1, 0, false), 8), (send(1, 9, true), 8)]
    });
    ends_in("a READ with an MSN that is skipped", Cause::UntaggedMsn, |b| vec![(read(b, 2), 0)]);
    ends_in("a WRITE within a SEND", Cause::RdmapOpcode, |b| {
        vec![(send(1, 0, false), 8), (write(b, 0, true), 8)]
    });
    ends_in("a READ within a WRITE", Cause::RdmapOpcode, |b| {
        vec![(write(b, 2000, false), 8), (read(b, 1), 0)]
    });
    ends_in("immediate data within a WRITE", Cause::RdmapOpcode, |b| {
        let data = Segment::Immediate { msn: Msn::FIRST, solicited: false, data: [1; 8] };
        vec![(write(b, 2000, false), 8), (data, 0)]
    });
}

#[test]
fn too_many_reads_end_the_connection() {
    let b = Net::connected().hosts[B].end.clone();
    let reads = |count: u32| -> Vec<_> { (1..=count).map(|msn| (read(&b, msn), 0)).collect() };
    assert_eq!(after(&reads(4)).hosts[B].state(), QpState::Rts, "so many were agreed");
    ends_in("one more", Cause::UntaggedNoBuffer, |_| reads(5));
}

#[test]
fn responses_that_nobody_asked_for_end_the_connection() {
    let response = |stag, offset, last| Segment::ReadResponse(Tagged { stag: Stag(stag), offset, last });
    ends_in("data", Cause::RdmapOpcode, |_| vec![(response(1, 0, true), 8)]);
    ends_in("what an atomic found", Cause::RdmapOpcode, |_| {
        vec![(Segment::AtomicResponse(Msn::FIRST, AtomicResponse { id: 1, original: 5 }), 0)]
    });
    // Responses to a READ of 100 bytes that differ from what it requested.
    for (name, segment, length, cause) in [
        ("another buffer", response(2, 0, true), 100, Cause::TaggedInvalidStag),
        ("another place", response(1, 1, true), 99, Cause::TaggedBounds),
        ("too little", response(1, 0, true), 99, Cause::TaggedBounds),
        ("no end", response(1, 0, false), 100, Cause::TaggedBounds),
        ("too much", response(1, 0, true), 101, Cause::TaggedBounds),
    ] {
        let mut net = Net::connected();
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        a.memory.fill(0, &[9; 200]);
        net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100)]));
        net.work(A);
        net.inject(A, &mut { StreamOffset::START }, &segment, &vec![1; length]);
        net.work(A);
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::BadResp)], "{name}");
        let Some(Segment::Terminate(_, Terminate { code, .. })) = net.hosts[A].segments().pop() else {
            panic!("{name}: no TERMINATE")
        };
        assert_eq!(code, cause.code(), "{name}: {code}");
        assert_eq!(a.memory.bytes(0, 200), [9; 200], "{name}");
    }
}

#[test]
fn atomics_that_this_end_does_not_have_end_the_connection() {
    ends_in("swap", Cause::RdmapOpcode, |b| vec![(atomic(b, AtomicOp::Swap { swap: 1, mask: !0 }), 0)]);
    ends_in("fetch and add of parts", Cause::RdmapOpcode, |b| {
        vec![(atomic(b, AtomicOp::FetchAdd { add: 1, mask: 1 << 31 }), 0)]
    });
    let swap = |mask, compare_mask| AtomicOp::CompareSwap { swap: 1, mask, compare: 0, compare_mask };
    ends_in("compare and swap of parts", Cause::RdmapOpcode, |b| vec![(atomic(b, swap(1, !0)), 0)]);
    ends_in("compare of parts", Cause::RdmapOpcode, |b| vec![(atomic(b, swap(!0, 1)), 0)]);
}

#[test]
fn a_key_that_the_peer_may_not_invalidate_ends_the_connection() {
    ends_in("a region's", Cause::RdmapProtectedInvalidate, |b| {
        let part = SendPart { msn: Msn::FIRST, offset: 0, last: true };
        vec![(Segment::Send { part, solicited: false, invalidate: Some(Stag(b.key)) }, 8)]
    });
}

#[test]
fn bytes_that_are_no_fpdus_end_the_connection() {
    let mut whole = vec![0; 64];
    let fpdu = Fpdu { framing: PLAIN, place: StreamOffset::START, segment: Some(send(1, 0, true)) };
    let length = write_fpdu(&fpdu, &Pieces::<Mem>::bytes(b"sent"), &mut whole).unwrap();
    whole.truncate(length);
    let mut bent = whole.clone();
    bent[20] ^= 1;
    let empty = Fpdu { segment: None, ..fpdu };
    let mut nothing = vec![0; empty.len(0)];
    write_fpdu(&empty, &Pieces::<Mem>::bytes(&[]), &mut nothing).unwrap();
    for (bytes, fault) in [(bent, Fault::Crc), (vec![0; 8], Fault::Crc), (nothing, Fault::SegmentLength)] {
        let mut net = Net::connected();
        net.post_recv(B, 1, &[net.hosts[B].end.sge(0, 8)]);
        net.post_recv(B, 2, &[]);
        net.offer(B, &whole);
        net.offer(B, &bytes);
        net.work(B);
        let Some(Segment::Terminate(_, Terminate { code, segment })) = net.hosts[B].segments().pop() else {
            panic!("no TERMINATE: {fault}")
        };
        assert_eq!((code, segment), (fault.cause().code(), None));
        assert_eq!(net.hosts[B].counters().stream_faults, 1);
        assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success), (2, WcStatus::Flush)]);
    }
}

#[test]
fn a_responder_that_has_had_no_fpdu_cannot_say_what_was_wrong() {
    let mut net = Net::connected();
    net.offer(B, &[0; 8]);
    net.work(B);
    assert_eq!((net.hosts[B].segments(), net.hosts[B].away.end), (vec![], Some(StreamEnd::Abort)));
    assert_eq!(net.hosts[B].state(), QpState::Err);
}

#[test]
fn a_terminate_of_any_code_ends_the_connection_and_is_not_answered() {
    let codes = (0..16).flat_map(|layer| [0, 1, 2, 3, 15].map(|etype| (layer, etype)));
    for (layer, etype) in codes {
        for code in (0..10).chain([0xff]) {
            ends_at_once(vrdma_wire::iwarp::Code { layer, etype, code });
        }
    }
}

fn ends_at_once(code: vrdma_wire::iwarp::Code) {
    let terminate = Terminate { code, segment: None };
    let mut net = after(&[(Segment::Terminate(Msn::FIRST, terminate), 0)]);
    assert_eq!(net.hosts[B].segments(), [], "{code}");
    assert_eq!(net.hosts[B].state(), QpState::Err);
    assert_eq!(net.hosts[B].away.end, Some(StreamEnd::Abort), "the peer has no use for it");
}

#[test]
fn bytes_at_random_harm_nothing() {
    let mut rng = crate::base::rng::Rng::new(5);
    for round in 0..1000 {
        let mut net =
            Net::connected_with(|_| {}, |b| b.framing_in = Framing { markers: round % 3 == 0, crc: false });
        let b = net.hosts[B].end.clone();
        net.post_recv(B, 1, &[b.sge(1000, 1000)]);
        net.piece = 1 + rng.next() as usize % 100;
        // The second bytes of most are those of a segment.
        for _ in 0..4 {
            let length = 10 + rng.next() as usize % 80;
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
            let ulpdu = length - 6;
            bytes[..2].copy_from_slice(&(ulpdu as u16).to_be_bytes());
            bytes[2] = [0x41, 0xc1, 0x01, 0x81][rng.next() as usize % 4];
            bytes[3] = 0x40 | bytes[3] & 0xf;
            bytes[8..10].fill(0);
            bytes.resize(length + (length.wrapping_neg() & 3), 0);
            net.offer(B, &bytes);
        }
        net.work(B);
        assert!(b.memory.bytes(2000, MEMORY - 2000) == vec![0; MEMORY - 2000], "{round}");
    }
}
