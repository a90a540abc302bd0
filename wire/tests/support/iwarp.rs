//! Arbitrary segments and streams of iWARP, for property tests.
#![allow(dead_code, reason = "each test takes what it needs")]

use proptest::collection::vec;
use proptest::prelude::*;
use vrdma_wire::iwarp::num::*;
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment, SendPart, Tagged};
use vrdma_wire::iwarp::request::*;
use vrdma_wire::iwarp::set_up::*;
use vrdma_wire::iwarp::terminate::{Terminate, Terminated};
use vrdma_wire::iwarp::{Code, Encoder, Framing, StreamOffset};

/// Returns a ULPDU: headers and payload.
pub fn ulpdu(segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; MAX_HEADERS];
    let len = segment.emit(&mut bytes);
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns an FPDU that begins at this place.
pub fn fpdu(framing: Framing, place: StreamOffset, ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; framing.fpdu_len(place, ulpdu.len())];
    let mut encoder = Encoder::new(framing, place, ulpdu.len(), &mut bytes);
    // Append two pieces, like headers and payload.
    let (head, rest) = ulpdu.split_at(ulpdu.len().min(18));
    encoder.put(head);
    encoder.put(rest);
    let len = encoder.finish();
    assert_eq!(len, bytes.len());
    bytes
}

/// Returns a stream from the start of full operation, and where each of its FPDUs begins.
pub fn stream(framing: Framing, ulpdus: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut stream, mut begins) = (Vec::new(), Vec::new());
    for ulpdu in ulpdus {
        begins.push(stream.len());
        stream.extend(fpdu(framing, StreamOffset::of(stream.len() as u32), ulpdu));
    }
    (stream, begins)
}

/// Any framing.
pub fn framing() -> impl Strategy<Value = Framing> {
    any::<(bool, bool)>().prop_map(|(markers, crc)| Framing { markers, crc })
}

/// ULPDUs of any bytes. Some are empty, and some contain bytes that look like FPDUs.
pub fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let imitation =
        (framing(), vec(vec(any::<u8>(), 0..60), 1..6), 0usize..8).prop_map(|(framing, inner, before)| {
            let mut bytes = vec![0; before];
            bytes.extend(stream(framing, &inner).0);
            bytes
        });
    let any_bytes = prop_oneof![
        1 => Just(Vec::new()),
        4 => vec(any::<u8>(), 0..100),
        2 => vec(any::<u8>(), 0..1600),
        2 => imitation,
    ];
    vec(any_bytes, 1..8)
}

/// Any segment, with a payload that it allows.
pub fn segment() -> impl Strategy<Value = (Segment, Vec<u8>)> {
    prop_oneof![
        3 => (tagged(), any::<bool>(), payload()).prop_map(|(tagged, write, payload)| {
            (if write { Segment::Write(tagged) } else { Segment::ReadResponse(tagged) }, payload)
        }),
        3 => (part(), any::<bool>(), any::<Option<u32>>(), payload()).prop_map(|(part, solicited, key, payload)| {
            (Segment::Send { part, solicited, invalidate: key.map(Stag) }, payload)
        }),
        4 => single().prop_map(|segment| (segment, Vec::new())),
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

/// Any tagged destination whose payload does not go beyond the last offset.
fn tagged() -> impl Strategy<Value = Tagged> {
    (any::<u32>(), 0..=u64::MAX - 200, any::<bool>()).prop_map(|(stag, offset, last)| Tagged {
        stag: Stag(stag),
        offset,
        last,
    })
}

fn part() -> impl Strategy<Value = SendPart> {
    (any::<u32>(), 0..=u32::MAX - 200, any::<bool>()).prop_map(|(msn, offset, last)| SendPart {
        msn: Msn(msn),
        offset,
        last,
    })
}

fn single() -> impl Strategy<Value = Segment> {
    let read = (any::<(u32, u32, u32)>(), 0..=u64::MAX - (1 << 32), 0..=u64::MAX - (1 << 32)).prop_map(
        |((sink, source, length), sink_offset, source_offset)| ReadRequest {
            sink: Stag(sink),
            sink_offset,
            length,
            source: Stag(source),
            source_offset,
        },
    );
    let op = any::<([u64; 4], u8)>().prop_map(|([data, mask, compare, compare_mask], op)| match op % 3 {
        0 => AtomicOp::FetchAdd { add: data, mask },
        1 => AtomicOp::Swap { swap: data, mask },
        _ => AtomicOp::CompareSwap { swap: data, mask, compare, compare_mask },
    });
    let atomic = (any::<(u32, u32, u64)>(), op).prop_map(|((id, stag, offset), op)| AtomicRequest {
        id,
        stag: Stag(stag),
        offset,
        op,
    });
    let response = any::<(u32, u64)>().prop_map(|(id, original)| AtomicResponse { id, original });
    let msn = || any::<u32>().prop_map(Msn);
    prop_oneof![
        (msn(), read).prop_map(|(msn, read)| Segment::ReadRequest(msn, read)),
        (msn(), atomic).prop_map(|(msn, atomic)| Segment::AtomicRequest(msn, atomic)),
        (msn(), response).prop_map(|(msn, response)| Segment::AtomicResponse(msn, response)),
        (msn(), any::<(bool, [u8; 8])>()).prop_map(|(msn, (solicited, data))| Segment::Immediate {
            msn,
            solicited,
            data
        }),
        (msn(), terminate()).prop_map(|(msn, terminate)| Segment::Terminate(msn, terminate)),
    ]
}

fn terminate() -> impl Strategy<Value = Terminate> {
    (0u8..16, 0u8..16, any::<u8>(), vec(any::<u8>(), 0..80), any::<bool>()).prop_map(
        |(layer, etype, code, ulpdu, is_read)| Terminate {
            code: Code { layer, etype, code },
            segment: Terminated::of(&ulpdu, is_read),
        },
    )
}

/// Any request or reply, with its private data separate.
pub fn set_up() -> impl Strategy<Value = (SetUp<'static>, Vec<u8>)> {
    let depth = (0u16..0x4000).prop_map(|count| Depth::new(count).unwrap_or(Depth::AUTOMATIC));
    let enhanced = (depth.clone(), depth, any::<[bool; 4]>()).prop_map(
        |(ird, ord, [peer_to_peer, fpdu, write, read])| Enhanced {
            ird,
            ord,
            peer_to_peer,
            rtr: Rtr { fpdu, write, read },
        },
    );
    let revision = prop_oneof![
        Just(Revision::One),
        Just(Revision::Two(None)),
        enhanced.prop_map(|enhanced| Revision::Two(Some(enhanced))),
    ];
    let private = prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..=508)];
    (any::<[bool; 4]>(), revision, private).prop_map(
        |([request, markers, crc, reject], revision, private)| {
            let kind = if request { SetUpKind::Request } else { SetUpKind::Reply };
            (SetUp { kind, markers, crc, reject, revision, private_data: &[] }, private)
        },
    )
}
