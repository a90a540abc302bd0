//! Provokes each fault of iWARP alone, and checks its TERMINATE.

#[path = "support/iwarp.rs"]
mod support;

use std::collections::BTreeSet;
use support::{fpdu, ulpdu};
use vrdma_wire::iwarp::aligned;
use vrdma_wire::iwarp::num::*;
use vrdma_wire::iwarp::rdmap::{SendPart, Tagged};
use vrdma_wire::iwarp::request::*;
use vrdma_wire::iwarp::set_up::*;
use vrdma_wire::iwarp::terminate::Terminate;
use vrdma_wire::iwarp::{Cause, Deframer, Fault, Framing, Segment, StreamOffset};

const TAGGED: Tagged = Tagged { stag: Stag(7), offset: 0x1000, last: true };
const PART: SendPart = SendPart { msn: Msn::FIRST, offset: 0, last: true };
const SEND: Segment = Segment::Send { part: PART, solicited: false, invalidate: None };
const READ: ReadRequest =
    ReadRequest { sink: Stag(1), sink_offset: 0x2000, length: 100, source: Stag(2), source_offset: 0x3000 };
const ATOMIC: AtomicRequest =
    AtomicRequest { id: 5, stag: Stag(6), offset: 0x40, op: AtomicOp::FetchAdd { add: 1, mask: 0 } };

/// Returns the result of reading a ULPDU that `bend` has changed.
fn bent(segment: Segment, payload: &[u8], bend: impl FnOnce(&mut Vec<u8>)) -> Result<(), Fault> {
    let mut bytes = ulpdu(&segment, payload);
    bend(&mut bytes);
    Segment::parse(&bytes).map(|_| ())
}

fn set(at: usize, value: u8) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at] = value
}

/// Returns the result of reading a stream of one FPDU that `bend` has changed.
fn bent_fpdu(framing: Framing, bend: impl FnOnce(&mut Vec<u8>)) -> Result<bool, Fault> {
    let mut stream = fpdu(framing, StreamOffset::START, &[3; 600]);
    bend(&mut stream);
    let mut buffer = [0; 1000];
    Deframer::new(framing).next(&mut &stream[..], &mut buffer).map(|ulpdu| ulpdu.is_some())
}

/// Returns the result of reading a request with 8 bytes of private data that `bend` has changed.
fn bent_request(revision: Revision, bend: impl FnOnce(&mut Vec<u8>)) -> Result<bool, Fault> {
    let request = SetUp {
        kind: SetUpKind::Request,
        markers: false,
        crc: true,
        reject: false,
        revision,
        private_data: b"8 bytes.",
    };
    let mut bytes = vec![0; MAX_LEN];
    let len = request.emit(&mut bytes);
    bytes.truncate(len);
    bend(&mut bytes);
    SetUp::parse(&bytes).map(|parsed| parsed.is_some())
}

#[test]
fn faults_of_requests() {
    let plain = |bend: &dyn Fn(&mut Vec<u8>)| bent_request(Revision::One, bend);
    assert_eq!(plain(&|_| ()), Ok(true));
    assert_eq!(plain(&|b| b[0] = b'm'), Err(Fault::Key));
    assert_eq!(plain(&|b| b[15] = b'E'), Err(Fault::Key));
    // Bytes that cannot become a key are refused at once.
    assert_eq!((SetUp::parse(b"G"), SetUp::parse(b"GET / HTTP")), (Err(Fault::Key), Err(Fault::Key)));
    assert_eq!(SetUp::parse(b"MPA ID R"), Ok(None));
    assert_eq!(SetUp::parse(b"MPA ID Rex"), Err(Fault::Key));
    for revision in [0, 3, 255] {
        assert_eq!(plain(&|b| b[17] = revision), Err(Fault::Revision));
    }
    assert_eq!(plain(&|b| b[18..20].copy_from_slice(&513u16.to_be_bytes())), Err(Fault::PrivateDataLength));
    // 504 of 512 bytes are still missing.
    assert_eq!(plain(&|b| b[18..20].copy_from_slice(&512u16.to_be_bytes())), Ok(false));
    // Reserved bits are ignored. So is the enhanced set-up's flag in revision 1.
    assert_eq!(plain(&|b| b[16] |= 0x1f), Ok(true));
    let two =
        |length: u8| bent_request(Revision::Two(None), move |b| (b[16], b[19]) = (b[16] | 0x10, length));
    assert_eq!((two(4), two(3), two(0)), (Ok(true), Err(Fault::EnhancedLength), Err(Fault::EnhancedLength)));
}

#[test]
fn faults_of_fpdus() {
    let marked = Framing { markers: true, crc: true };
    let (uncovered, bare) = (Framing { crc: false, ..marked }, Framing { markers: false, ..marked });
    assert_eq!(bent_fpdu(marked, |_| ()), Ok(true));
    assert_eq!(bent_fpdu(marked, |b| b[2] ^= 1), Err(Fault::Crc));
    assert_eq!(bent_fpdu(bare, |b| b[300] ^= 1), Err(Fault::Crc));
    assert_eq!(bent_fpdu(bare, |b| *b.last_mut().unwrap() ^= 0x80), Err(Fault::Crc));
    // CRCs are not checked if they are not in use.
    assert_eq!(bent_fpdu(Framing { crc: false, ..bare }, |b| *b.last_mut().unwrap() ^= 0x80), Ok(true));
    assert_eq!(bent_fpdu(uncovered, |b| b[3] = 4), Err(Fault::Marker));
    assert_eq!(bent_fpdu(uncovered, |b| b[512 + 3] ^= 4), Err(Fault::Marker));
    assert_eq!(bent_fpdu(bare, |b| b[0] = 0xff), Err(Fault::FpduTooLong));
    // An FPDU may have a ULPDU of no bytes, which is not a segment.
    let mut stream = &fpdu(marked, StreamOffset::START, &[])[..];
    assert_eq!(Deframer::new(marked).next(&mut stream, &mut [0; 12]), Ok(Some(&[][..])));
    assert_eq!(Segment::parse(&[]), Err(Fault::SegmentLength));
}

#[test]
fn faults_of_ddp_headers() {
    let write = Segment::Write(TAGGED);
    assert_eq!((bent(write, b"abc", |_| ()), bent(SEND, b"abc", |_| ())), (Ok(()), Ok(())));
    for version in [0, 2, 3] {
        assert_eq!(bent(write, b"", set(0, 0xc0 | version)), Err(Fault::TaggedVersion));
        assert_eq!(bent(SEND, b"", set(0, 0x40 | version)), Err(Fault::UntaggedVersion));
    }
    // Reserved bits are ignored.
    assert_eq!((bent(write, b"", set(0, 0xfd)), bent(SEND, b"", set(0, 0x7d))), (Ok(()), Ok(())));
    assert_eq!(bent(write, b"", |b| b.truncate(13)), Err(Fault::SegmentLength));
    assert_eq!(bent(SEND, b"", |b| b.truncate(17)), Err(Fault::SegmentLength));
    let at = |offset: u64| Segment::Write(Tagged { offset, ..TAGGED });
    assert_eq!(bent(at(u64::MAX - 2), b"abc", |_| ()), Ok(()));
    assert_eq!(bent(at(u64::MAX - 2), b"abcd", |_| ()), Err(Fault::TaggedOffsetWrap));
    assert_eq!(bent(at(u64::MAX), b"", |_| ()), Ok(()));
    let at =
        |offset: u32| Segment::Send { part: SendPart { offset, ..PART }, solicited: false, invalidate: None };
    assert_eq!(bent(at(u32::MAX - 3), b"abc", |_| ()), Ok(()));
    assert_eq!(bent(at(u32::MAX - 3), b"abcd", |_| ()), Err(Fault::MessageOffset));
    for (queue, is_it) in [(0, true), (1, false), (2, false), (3, false), (4, false)] {
        assert_eq!(bent(SEND, b"", set(9, queue)), if is_it { Ok(()) } else { Err(Fault::Queue) }, "{queue}");
    }
}

#[test]
fn faults_of_rdmap() {
    let write = Segment::Write(TAGGED);
    for version in [0, 0x80, 0xc0] {
        assert_eq!(bent(write, b"", set(1, version)), Err(Fault::RdmapVersion));
        assert_eq!(bent(SEND, b"", set(1, version | 3)), Err(Fault::RdmapVersion));
    }
    // Opcodes of the other kind of segment, and undefined opcodes.
    for opcode in [1, 3, 7, 8, 10, 11, 12, 15] {
        assert_eq!(bent(write, b"", set(1, 0x40 | opcode)), Err(Fault::Opcode), "{opcode}");
    }
    for opcode in [0, 2, 12, 15] {
        assert_eq!(bent(SEND, b"", set(1, 0x40 | opcode)), Err(Fault::Opcode), "{opcode}");
    }
    assert_eq!(
        bent(Segment::AtomicRequest(Msn::FIRST, ATOMIC), b"", set(18 + 3, 3)),
        Err(Fault::AtomicOpcode)
    );
    let read = |read: ReadRequest| bent(Segment::ReadRequest(Msn::FIRST, read), b"", |_| ());
    let near = u64::MAX - 99;
    assert_eq!(read(ReadRequest { source_offset: near, sink_offset: near, ..READ }), Ok(()));
    assert_eq!(read(ReadRequest { source_offset: near + 1, ..READ }), Err(Fault::ReadOffsetWrap));
    assert_eq!(read(ReadRequest { sink_offset: near + 1, ..READ }), Err(Fault::ReadOffsetWrap));
    assert_eq!(read(ReadRequest { source_offset: u64::MAX, length: 0, ..READ }), Ok(()));
}

#[test]
fn messages_of_one_segment_have_their_length() {
    let msn = Msn::FIRST;
    let response = AtomicResponse { id: 1, original: 2 };
    for segment in [
        Segment::ReadRequest(msn, READ),
        Segment::AtomicRequest(msn, ATOMIC),
        Segment::AtomicResponse(msn, response),
        Segment::Immediate { msn, solicited: true, data: [9; 8] },
    ] {
        assert_eq!(bent(segment, b"", |_| ()), Ok(()));
        assert_eq!(bent(segment, b"x", |_| ()), Err(Fault::MessageTooLong), "{segment:?}");
        assert_eq!(bent(segment, b"", |b| b[0] &= !0x40), Err(Fault::MessageTooLong), "{segment:?}");
        assert_eq!(
            bent(segment, b"", |b| b.truncate(b.len() - 1)),
            Err(Fault::MessageTooShort),
            "{segment:?}"
        );
        assert_eq!(bent(segment, b"", set(17, 1)), Err(Fault::MessageOffset), "{segment:?}");
    }
    let code = Cause::MpaCrc.code();
    let terminate = Segment::Terminate(msn, Terminate { code, segment: None });
    assert_eq!(bent(terminate, b"", |b| b.truncate(21)), Err(Fault::MessageTooShort));
    assert_eq!(bent(terminate, b"whatever", set(20, 0xff)), Ok(()));
}

#[test]
fn no_fpdu_begins_where_none_can() {
    let framing = Framing { markers: false, crc: true };
    let bytes = fpdu(framing, StreamOffset::START, b"hello");
    for at in 0..8 {
        let whole = at % 4 == 0;
        assert_eq!(aligned::is_whole(framing, StreamOffset::of(at), &bytes), whole, "{at}");
        assert_eq!(
            aligned::spans(framing, StreamOffset::of(at), &bytes, 0).count(),
            usize::from(whole),
            "{at}"
        );
    }
}

/// RFC 5040, 4.8; RFC 5041; RFC 5044, 8.
#[test]
fn each_fault_has_a_code() {
    let expected = [
        (Fault::Key, (2, 0, 4)),
        (Fault::Revision, (2, 0, 4)),
        (Fault::PrivateDataLength, (2, 0, 4)),
        (Fault::EnhancedLength, (2, 0, 4)),
        (Fault::Marker, (2, 0, 3)),
        (Fault::Crc, (2, 0, 2)),
        (Fault::FpduTooLong, (2, 0, 5)),
        (Fault::SegmentLength, (1, 0, 0)),
        (Fault::TaggedVersion, (1, 1, 4)),
        (Fault::UntaggedVersion, (1, 2, 6)),
        (Fault::TaggedOffsetWrap, (1, 1, 3)),
        (Fault::Queue, (1, 2, 1)),
        (Fault::MessageOffset, (1, 2, 4)),
        (Fault::MessageTooLong, (1, 2, 5)),
        (Fault::RdmapVersion, (0, 2, 5)),
        (Fault::Opcode, (0, 2, 6)),
        (Fault::MessageTooShort, (0, 2, 0xff)),
        (Fault::ReadOffsetWrap, (0, 1, 4)),
        (Fault::AtomicOpcode, (0, 2, 6)),
    ];
    for (fault, (layer, etype, code)) in expected {
        let said = fault.cause().code();
        assert_eq!((said.layer, said.etype, said.code), (layer, etype, code), "{fault}");
    }
    let faults: BTreeSet<Fault> = expected.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(faults.len(), Fault::ALL.len());
}
