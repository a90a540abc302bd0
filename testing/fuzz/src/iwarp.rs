//! Fuzzes the parsers of iWARP.

use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::iwarp::rdmap::{self, MAX_HEADERS};
use vrdma_wire::iwarp::set_up::{MAX_LEN, SetUp};
use vrdma_wire::iwarp::{Cause, Deframer, Encoder, Fault, Framing, Segment, StreamOffset, aligned};

/// Parses `data` as an MPA request or reply. What parses is written again, and must parse to an
/// equal one.
pub fn mpa_set_up(data: &[u8]) {
    let Ok(Some((set_up, length))) = SetUp::parse(data) else { return };
    assert!(length <= MAX_LEN.min(data.len()));
    for cut in 0..length {
        assert_eq!(SetUp::parse(&data[..cut]), Ok(None), "the beginning of one is awaited");
    }
    let mut again = [0; MAX_LEN];
    assert_eq!(set_up.emit(&mut again), length);
    assert_eq!(SetUp::parse(&again[..length]), Ok(Some((set_up, length))));
}

/// Parses `data` as a segment. What parses is written again, and must parse to an equal one.
///
/// For any data, a TERMINATE can be made.
pub fn rdmap(data: &[u8]) {
    let data = &data[..data.len().min(usize::from(u16::MAX))];
    let mut buffer = [0; MAX_HEADERS];
    for &cause in Cause::ALL {
        let terminate = rdmap::terminate_for(cause, data);
        let length = terminate.emit(&mut buffer);
        assert_eq!(length, terminate.header_len());
        assert_eq!(Segment::parse(&buffer[..length]).expect("it was written").segment, terminate);
    }
    let Ok(parsed) = Segment::parse(data) else { return };
    let length = parsed.segment.emit(&mut buffer);
    assert_eq!(length, parsed.segment.header_len());
    let mut again = buffer[..length].to_vec();
    again.extend_from_slice(parsed.payload);
    assert_eq!(Segment::parse(&again), Ok(parsed));
}

/// Reads `data` as a stream, with a first byte that chooses the framing.
///
/// The result must not depend on how the stream is cut, nor on finding its FPDUs within a TCP
/// segment.
pub fn fpdu(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let framing = Framing { markers: how & 1 != 0, crc: how & 2 != 0 };
    let raw = how & 4 == 0;
    let stream = if raw { data.to_vec() } else { nearly_right(framing, data) };
    let piece = usize::from(how >> 3).max(1);
    let whole = deframe(framing, &stream, stream.len().max(1));
    assert_eq!(deframe(framing, &stream, piece), whole, "in pieces of {piece}");

    let spans: Vec<_> = aligned::spans(framing, StreamOffset::START, &stream, 0).collect();
    let mut buffer = vec![0; MAX_FPDU];
    let mut found = Vec::new();
    let fault = spans.iter().find_map(|span| match span.ulpdu(framing, &stream, &mut buffer) {
        Ok(ulpdu) => {
            found.push(ulpdu.to_vec());
            None
        }
        Err(fault) => Some(fault),
    });
    assert_eq!((&found, fault), (&whole.0, whole.1));
    let begins: Vec<usize> = spans.iter().map(|span| span.begin).collect();
    assert_eq!(
        aligned::is_whole(framing, StreamOffset::START, &stream),
        spans.last().map_or(0, |s| s.end) == stream.len()
    );
    // Up to where FPDUs are right, a search by markers from any position must find the beginning of
    // one. A marker in the rest may lead anywhere.
    let end = spans.last().filter(|_| fault.is_none()).map_or(0, |span| span.end);
    for from in (0..end).step_by(97) {
        if let Some(first) = aligned::first(framing, StreamOffset::of(from as u32), &stream[from..end]) {
            assert!(begins.contains(&(from + first)), "{} from {from}", from + first);
        }
    }
}

/// Returns all ULPDUs of a stream that is cut into pieces of this length, and its fault.
fn deframe(framing: Framing, stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Fault>) {
    let (mut deframer, mut ulpdus) = (Deframer::new(framing), Vec::new());
    let mut buffer = vec![0; MAX_FPDU];
    for mut input in stream.chunks(piece) {
        while let Some(next) = deframer.next(&mut input, &mut buffer).transpose() {
            match next {
                Ok(ulpdu) => ulpdus.push(ulpdu.to_vec()),
                Err(fault) => return (ulpdus, Some(fault)),
            }
        }
    }
    (ulpdus, None)
}

/// Returns a stream of ULPDUs with lengths, contents and wrong bits from the input.
fn nearly_right(framing: Framing, mut data: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some(([bend, long, short], rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([long & 7, *short])).min(rest.len());
        let (ulpdu, rest) = rest.split_at(length);
        data = rest;
        let begin = stream.len();
        let place = StreamOffset::of(begin as u32);
        stream.resize(begin + framing.fpdu_len(place, length), 0);
        let mut encoder = Encoder::new(framing, place, length, &mut stream[begin..]);
        encoder.put(ulpdu);
        encoder.finish();
        // One in sixteen has a wrong byte.
        if bend & 15 == 15 {
            let at = begin + usize::from(bend >> 4) * 5 % (stream.len() - begin);
            stream[at] ^= 1 << (bend >> 5);
        }
    }
    stream
}
