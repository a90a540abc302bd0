//! The FPDUs of a TCP segment that came out of order: before the stream up to it is known.
//!
//! **What proves that an FPDU begins where one seems to.** With markers, their places follow from
//! the sequence number, no payload can lie there, and their pointers lead to FPDUs: [`first`].
//! Without, nothing does: what looks like an FPDU, with a right CRC, may be payload of one that
//! contains it, written by whoever filled the peer's memory, and cut so by the network. Then only a
//! peer that promised to begin each TCP segment with an FPDU, over a path that does not cut
//! segments anew, may have its segments read so; all others' have to wait for their turn. An FPDU
//! beyond a hole may be placed; it is not delivered before what precedes it (RFC 5041, 5).

use super::decode;
use super::fault::Fault;
use super::framing::{Framing, MARKER_INTERVAL, MARKER_LEN, Place};

/// An FPDU in a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte in the segment.
    pub begin: usize,
    /// The byte behind its last.
    pub end: usize,
    /// Where in the stream it begins.
    pub place: Place,
}

impl Span {
    /// Its ULPDU: [`decode::ulpdu`].
    pub fn ulpdu<'a>(
        &self,
        framing: Framing,
        segment: &'a [u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a [u8], Fault> {
        decode::ulpdu(framing, self.place, &segment[self.begin..self.end], buffer)
    }
}

/// The whole FPDUs that lie one behind the other in a TCP segment.
#[derive(Clone, Debug)]
pub struct Spans<'a> {
    framing: Framing,
    segment: &'a [u8],
    at: usize,
    place: Place,
}

/// The whole FPDUs of a TCP segment that begins at `place` of the stream, from its byte `begin` on,
/// where one is known to begin.
pub fn spans(framing: Framing, place: Place, segment: &[u8], begin: usize) -> Spans<'_> {
    Spans { framing, segment, at: begin, place: place.after(begin) }
}

impl Spans<'_> {
    /// The byte behind the last FPDU so far. Once there is none left, what follows is the beginning
    /// of one, or nothing: whoever sends aligned segments sends nothing there.
    pub const fn end(&self) -> usize {
        self.at
    }
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let (begin, place) = (self.at, self.place);
        // FPDUs have multiples of 4 bytes: elsewhere none begins.
        if place.number() % 4 != 0 {
            return None;
        }
        let rest = self.segment.get(begin..)?;
        let length = decode::fpdu_len(self.framing, place, rest).filter(|length| *length <= rest.len())?;
        (self.at, self.place) = (begin + length, place.after(length));
        Some(Span { begin, end: self.at, place })
    }
}

/// Whether a TCP segment that begins at `place` of the stream consists of whole FPDUs. Their CRCs,
/// if these are in use, are not looked at: whoever places the FPDUs does that.
pub fn is_whole(framing: Framing, place: Place, segment: &[u8]) -> bool {
    let mut spans = spans(framing, place, segment, 0);
    spans.by_ref().for_each(drop);
    spans.end() == segment.len()
}

/// The first byte in a TCP segment that begins at `place` of the stream where by a marker an FPDU
/// begins; `None` if no marker shows one, or none are in use.
pub fn first(framing: Framing, place: Place, segment: &[u8]) -> Option<usize> {
    if !framing.markers {
        return None;
    }
    for at in (place.to_marker()..segment.len()).step_by(MARKER_INTERVAL) {
        let pointer = usize::from(decode::read_pointer(&segment[at..])?);
        // One that points to what follows it is itself the beginning.
        let Some(length_at) = at.checked_sub(pointer) else { continue };
        // A marker before the length is the FPDU's. What it pointed with would have been seen, if
        // it were in the segment.
        let leads = place.after(length_at) == Place::START.after(MARKER_LEN);
        match if leads { length_at.checked_sub(MARKER_LEN) } else { Some(length_at) } {
            Some(begin) => return Some(begin),
            None => continue,
        }
    }
    None
}
