//! Properties of all iWARP data, and of arbitrary bytes.

#[path = "support/iwarp.rs"]
mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use support::{framing, segment, set_up, stream, ulpdu, ulpdus};
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::iwarp::rdmap::{self, MAX_HEADERS};
use vrdma_wire::iwarp::set_up::{self as frames, SetUp};
use vrdma_wire::iwarp::{Cause, Deframer, Fault, Framing, Segment, StreamOffset, aligned, decode};

/// Returns all ULPDUs of a stream that comes in pieces, and its fault.
///
/// After each piece the deframer is replaced by its saved state.
fn deframe<'a>(framing: Framing, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<Fault>) {
    let (mut deframer, mut ulpdus) = (Deframer::new(framing), Vec::new());
    let mut buffer = vec![0; MAX_FPDU];
    for piece in pieces {
        let mut input = piece;
        loop {
            let before = input.len();
            match deframer.next(&mut input, &mut buffer) {
                Ok(Some(ulpdu)) => ulpdus.push(ulpdu.to_vec()),
                Ok(None) => break,
                Err(fault) => {
                    assert_eq!(deframer.next(&mut input, &mut buffer), Err(fault), "a fault is for good");
                    return (ulpdus, Some(fault));
                }
            }
            assert!(input.len() < before, "each FPDU has bytes");
        }
        assert!(input.is_empty());
        // Bytes that are not held may change.
        buffer[deframer.held()..].fill(0xdd);
        deframer = Deframer::resume(deframer.framing(), deframer.place(), deframer.held());
    }
    (ulpdus, None)
}

/// Returns the pieces of a stream, cut at these bytes.
fn pieces<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn segments_come_back((segment, payload) in segment()) {
        let bytes = ulpdu(&segment, &payload);
        prop_assert_eq!(bytes.len(), segment.header_len() + payload.len());
        let parsed = Segment::parse(&bytes).unwrap();
        prop_assert_eq!((parsed.segment, parsed.payload), (segment, &payload[..]));
    }

    #[test]
    fn what_ends_within_its_headers_is_no_segment((segment, payload) in segment(), cut: prop::sample::Index) {
        let bytes = ulpdu(&segment, &payload);
        let cut = cut.index(segment.header_len());
        let result = Segment::parse(&bytes[..cut]);
        match (segment, result) {
            // The connection ends, however little a TERMINATE says.
            (Segment::Terminate(_, whole), Ok(parsed)) => {
                let Segment::Terminate(_, cut) = parsed.segment else { panic!("{parsed:?}") };
                prop_assert_eq!(cut.code, whole.code);
            }
            (_, result) => {
                let fault = result.unwrap_err();
                prop_assert!([Fault::SegmentLength, Fault::MessageTooShort].contains(&fault), "{}", fault);
            }
        }
    }

    #[test]
    fn bent_segments_do_no_harm((segment, payload) in segment(), bends in vec((0usize..80, any::<u8>()), 1..6)) {
        let mut bytes = ulpdu(&segment, &payload);
        for (at, value) in bends {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(parsed) = Segment::parse(&bytes) {
            // A parsed value can be written again, and reads the same.
            let again = ulpdu(&parsed.segment, parsed.payload);
            prop_assert_eq!(Segment::parse(&again), Ok(rdmap::ParsedSegment { payload: parsed.payload, ..parsed }));
        }
    }

    #[test]
    fn streams_come_back_in_whatever_pieces(framing in framing(), ulpdus in ulpdus(), cuts in vec(any::<prop::sample::Index>(), 0..12)) {
        let (stream, _) = stream(framing, &ulpdus);
        prop_assert_eq!(deframe(framing, pieces(&stream, &cuts).into_iter()), (ulpdus, None));
    }

    #[test]
    fn streams_come_back_byte_by_byte(framing in framing(), ulpdus in ulpdus()) {
        let (stream, _) = stream(framing, &ulpdus);
        prop_assert_eq!(deframe(framing, stream.chunks(1)), (ulpdus, None));
    }

    #[test]
    fn the_crc_sees_each_bit(markers: bool, ulpdus in ulpdus(), at: prop::sample::Index, bit in 0..8u32, cuts in vec(any::<prop::sample::Index>(), 0..4)) {
        let framing = Framing { markers, crc: true };
        let (mut stream, begins) = stream(framing, &ulpdus);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let bent = begins.partition_point(|begin| *begin <= at) - 1;
        let (seen, fault) = deframe(framing, pieces(&stream, &cuts).into_iter());
        // If the length grew, the deframer still waits for the FPDU's end.
        prop_assert_eq!(seen, &ulpdus[..bent]);
        prop_assert!(matches!(fault, None | Some(Fault::Crc)), "{:?}", fault);
        prop_assert!(fault.is_some() || at - begins[bent] < 6, "only a length makes one wait");
    }

    #[test]
    fn a_marker_that_points_elsewhere_is_seen(ulpdus in ulpdus(), which: prop::sample::Index, error in 1u16..0x4000) {
        let framing = Framing { markers: true, crc: false };
        let (mut stream, begins) = stream(framing, &ulpdus);
        let at = which.index(stream.len().div_ceil(512)) * 512;
        let pointer = u16::from_be_bytes([stream[at + 2], stream[at + 3]]);
        stream[at + 2..at + 4].copy_from_slice(&(pointer ^ error << 2).to_be_bytes());
        let bent = begins.partition_point(|begin| *begin <= at) - 1;
        prop_assert_eq!(deframe(framing, [&stream[..]].into_iter()), (ulpdus[..bent].to_vec(), Some(Fault::Marker)));
    }

    #[test]
    fn bits_of_a_marker_that_mean_nothing_do_not_count(ulpdus in ulpdus(), which: prop::sample::Index, bits: u16, low in 0u8..4) {
        let framing = Framing { markers: true, crc: false };
        let (mut stream, _) = stream(framing, &ulpdus);
        let at = which.index(stream.len().div_ceil(512)) * 512;
        stream[at..at + 2].copy_from_slice(&bits.to_be_bytes());
        stream[at + 3] |= low;
        prop_assert_eq!(deframe(framing, [&stream[..]].into_iter()), (ulpdus, None));
    }

    #[test]
    fn an_fpdu_longer_than_the_buffer_is_refused(framing in framing(), ulpdus in ulpdus(), cut: prop::sample::Index) {
        let (stream, begins) = stream(framing, &ulpdus);
        let ends = begins[1..].iter().copied().chain([stream.len()]);
        let longest = begins.iter().zip(ends).map(|(begin, end)| end - begin).max().unwrap();
        let (head, rest) = stream.split_at(cut.index(stream.len()));
        for (room, enough) in [(longest, true), (longest - 1, false)] {
            let (mut deframer, mut buffer) = (Deframer::new(framing), vec![0; room]);
            let mut refused = false;
            for mut input in [head, rest] {
                while let Some(next) = deframer.next(&mut input, &mut buffer).transpose() {
                    if let Err(fault) = next {
                        prop_assert_eq!(fault, Fault::FpduTooLong);
                        refused = true;
                        break;
                    }
                }
            }
            prop_assert_eq!(refused, !enough, "{} of {}", room, longest);
        }
    }

    #[test]
    fn aligned_segments_show_their_fpdus(framing in framing(), ulpdus in ulpdus(), from: prop::sample::Index) {
        let (stream, begins) = stream(framing, &ulpdus);
        let from = from.index(begins.len());
        let (at, place) = (begins[from], StreamOffset::of(begins[from] as u32));
        let segment = &stream[at..];
        let mut buffer = vec![0; segment.len()];
        let mut seen = Vec::new();
        let mut spans = aligned::spans(framing, place, segment, 0);
        for span in spans.by_ref() {
            prop_assert_eq!(at + span.begin, begins[from + seen.len()]);
            seen.push(span.ulpdu(framing, segment, &mut buffer).unwrap().to_vec());
        }
        prop_assert_eq!(spans.end(), segment.len());
        prop_assert_eq!(seen, &ulpdus[from..]);
        prop_assert!(aligned::is_whole(framing, place, segment));
        prop_assert!(!aligned::is_whole(framing, place, &segment[..segment.len() - 1]));
    }

    /// An FPDU that markers show is one, however a middlebox cuts the stream, and whatever the
    /// payload is.
    #[test]
    fn markers_show_fpdus_and_nothing_else(crc: bool, ulpdus in ulpdus(), cuts: [prop::sample::Index; 2]) {
        let framing = Framing { markers: true, crc };
        let (stream, begins) = stream(framing, &ulpdus);
        let mut cuts = cuts.map(|cut| cut.index(stream.len() + 1));
        cuts.sort_unstable();
        let [from, to] = cuts;
        check_first(framing, &stream, &begins, from, to);
    }

    #[test]
    fn requests_and_replies_come_back((set_up, private) in set_up(), beyond in vec(any::<u8>(), 0..20)) {
        let set_up = SetUp { private_data: &private, ..set_up };
        let mut bytes = vec![0xee; frames::MAX_LEN];
        let len = set_up.emit(&mut bytes);
        bytes.truncate(len);
        for cut in 0..len {
            prop_assert_eq!(SetUp::parse(&bytes[..cut]), Ok(None), "{} of {}", cut, len);
        }
        bytes.extend(beyond);
        prop_assert_eq!(SetUp::parse(&bytes), Ok(Some((set_up, len))));
    }

    #[test]
    fn each_cause_ends_a_connection_for_any_segment(ulpdu: Vec<u8>, of in prop::sample::select(Cause::ALL)) {
        check_terminate(of, &ulpdu);
    }

    #[test]
    fn each_cause_ends_a_connection_for_segments_that_are_some((segment, payload) in segment(), of in prop::sample::select(Cause::ALL)) {
        check_terminate(of, &ulpdu(&segment, &payload));
    }

    #[test]
    fn bytes_do_no_harm(bytes: Vec<u8>, framing in framing(), place in 0u32..512, begin in 0usize..40) {
        let _ = Segment::parse(&bytes);
        let _ = SetUp::parse(&bytes);
        let place = StreamOffset::of(place);
        let mut buffer = vec![0; bytes.len()];
        let _ = decode::fpdu_len(framing, place, &bytes);
        let _ = aligned::is_whole(framing, place, &bytes);
        let _ = aligned::first(framing, place, &bytes);
        for span in aligned::spans(framing, place, &bytes, begin) {
            let _ = span.ulpdu(framing, &bytes, &mut buffer);
        }
        let _ = deframe(framing, bytes.chunks(3));
    }
}

/// Checks a TERMINATE for this cause and segment. It can be read, has the cause, and returns the
/// required headers.
fn check_terminate(cause: Cause, of: &[u8]) {
    let segment = rdmap::terminate_for(cause, of);
    let bytes = ulpdu(&segment, &[]);
    assert!(bytes.len() <= MAX_HEADERS);
    assert_eq!(Segment::parse(&bytes).unwrap().segment, segment);
    let Segment::Terminate(_, terminate) = segment else { panic!("{segment:?}") };
    assert_eq!(Cause::from_code(terminate.code), Some(cause));
    let header = match of.first() {
        Some(control) if control & 0x80 != 0 => 14,
        _ => 18,
    };
    let has = cause.code().layer < 2 && cause.code().etype != 0 && of.len() >= header;
    assert_eq!(terminate.segment.is_some(), has, "{cause}");
    if let Some(its) = terminate.segment {
        assert_eq!((its.ddp(), its.length()), (&of[..header], Some(of.len() as u16)));
        let is_read = header == 18 && of[1] & 0xf == 1 && of.len() >= 18 + 28 && cause.code().layer == 0;
        assert_eq!(its.read().map(|read| &read[..]), is_read.then(|| &of[18..18 + 28]));
    }
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    for how in 0..4 {
        let framing = Framing { markers: how & 1 != 0, crc: how & 2 != 0 };
        let ulpdus: Vec<Vec<u8>> = [18, 0, 511, 1, 600, 2].map(|length| vec![length as u8; length]).to_vec();
        let (stream, _) = stream(framing, &ulpdus);
        for cut in 0..=stream.len() {
            let (head, rest) = stream.split_at(cut);
            assert_eq!(
                deframe(framing, [head, rest].into_iter()),
                (ulpdus.clone(), None),
                "{framing:?} at {cut}"
            );
            // The whole FPDUs before the cut were returned, and nothing else.
            let (seen, fault) = deframe(framing, [head].into_iter());
            assert_eq!((&seen[..], fault), (&ulpdus[..seen.len()], None), "{framing:?} at {cut}");
        }
    }
}

#[test]
fn markers_show_fpdus_wherever_a_segment_begins() {
    let framing = Framing { markers: true, crc: true };
    // The second FPDU begins with a marker.
    let ulpdus: Vec<Vec<u8>> = [502, 700, 18, 1400, 3, 600].map(|length| vec![0; length]).to_vec();
    let (stream, begins) = stream(framing, &ulpdus);
    assert_eq!(begins[1], 512);
    for from in 0..stream.len() {
        for to in [stream.len(), stream.len().min(from + 600)] {
            check_first(framing, &stream, &begins, from, to);
        }
    }
}

/// Checks that markers in a part of a stream show the first FPDU that begins in it and has a marker
/// in it.
fn check_first(framing: Framing, stream: &[u8], begins: &[usize], from: usize, to: usize) {
    let (segment, place) = (&stream[from..to], StreamOffset::of(from as u32));
    let markers = (from.next_multiple_of(512)..).step_by(512).take_while(|marker| marker + 4 <= to);
    let of = |marker: usize| begins[begins.partition_point(|begin| *begin <= marker) - 1];
    let expected = markers.map(of).find(|begin| *begin >= from).map(|begin| begin - from);
    let first = aligned::first(framing, place, segment);
    assert_eq!(first, expected, "{from} to {to}");
    for span in first.into_iter().flat_map(|first| aligned::spans(framing, place, segment, first)) {
        assert!(begins.contains(&(from + span.begin)), "{from} to {to}");
    }
    assert_eq!(aligned::first(Framing { markers: false, ..framing }, place, segment), None);
}
