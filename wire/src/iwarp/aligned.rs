//! Finds the FPDUs of a TCP segment that came out of order, when the stream up to it is unknown.
//!
//! An FPDU beyond a gap may be placed. It is not delivered before the data that precedes it (RFC
//! 5041, 5).
//!
//! # How an FPDU's beginning is known
//!
//! With markers, the sequence number gives the markers' positions. No payload can lie there, and
//! their pointers lead to FPDUs: [`first`].
//!
//! Without markers, nothing proves it. Bytes that look like an FPDU with a correct CRC may be
//! payload of a larger FPDU. Whoever filled the peer's memory may have written them, and the
//! network may have cut the segment there. So a peer's segments may be read this way only under two
//! conditions:
//!
//! * The peer promised to begin each TCP segment with an FPDU.
//! * The path does not cut segments anew.
//!
//! All other segments must wait for their turn in the stream.

use super::decode;
use super::fault::Fault;
use super::framing::{Framing, MARKER_INTERVAL, MARKER_LEN, StreamOffset};

/// An FPDU in a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte in the TCP segment.
    pub begin: usize,
    /// The byte behind its last one.
    pub end: usize,
    /// Position in the stream where it begins.
    pub place: StreamOffset,
}

impl Span {
    /// Returns its ULPDU. See [`decode::ulpdu`].
    pub fn ulpdu<'a>(
        &self,
        framing: Framing,
        segment: &'a [u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a [u8], Fault> {
        decode::ulpdu(framing, self.place, &segment[self.begin..self.end], buffer)
    }
}

/// Iterator over the whole FPDUs that lie one behind the other in a TCP segment.
#[derive(Clone, Debug)]
pub struct Spans<'a> {
    framing: Framing,
    segment: &'a [u8],
    at: usize,
    place: StreamOffset,
}

/// Returns the whole FPDUs of a TCP segment, from its byte `begin` on.
///
/// The TCP segment begins at `place` of the stream. An FPDU must be known to begin at `begin`.
pub fn spans(framing: Framing, place: StreamOffset, segment: &[u8], begin: usize) -> Spans<'_> {
    Spans { framing, segment, at: begin, place: place.after(begin) }
}

impl Spans<'_> {
    /// Returns the position behind the last FPDU returned so far.
    ///
    /// After the last FPDU, the remaining bytes are the beginning of another one, or there are
    /// none. A sender of aligned segments leaves none.
    pub const fn end(&self) -> usize {
        self.at
    }
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let (begin, place) = (self.at, self.place);
        // An FPDU's length is a multiple of 4 bytes, so no FPDU begins elsewhere.
        if place.number() % 4 != 0 {
            return None;
        }
        let rest = self.segment.get(begin..)?;
        let length = decode::fpdu_len(self.framing, place, rest).filter(|length| *length <= rest.len())?;
        (self.at, self.place) = (begin + length, place.after(length));
        Some(Span { begin, end: self.at, place })
    }
}

/// Returns whether a TCP segment that begins at `place` of the stream consists of whole FPDUs.
///
/// CRCs are not checked, even if they are in use. Code that places the FPDUs checks them.
pub fn is_whole(framing: Framing, place: StreamOffset, segment: &[u8]) -> bool {
    let mut spans = spans(framing, place, segment, 0);
    spans.by_ref().for_each(drop);
    spans.end() == segment.len()
}

/// Returns the first position in a TCP segment where a marker shows that an FPDU begins.
///
/// The TCP segment begins at `place` of the stream. Returns `None` if no marker shows an FPDU, or
/// markers are not in use.
pub fn first(framing: Framing, place: StreamOffset, segment: &[u8]) -> Option<usize> {
    if !framing.markers {
        return None;
    }
    for at in (place.to_marker()..segment.len()).step_by(MARKER_INTERVAL) {
        let pointer = usize::from(decode::read_pointer(&segment[at..])?);
        // A marker that points to the bytes behind it is itself the beginning.
        let Some(length_at) = at.checked_sub(pointer) else { continue };
        // A marker directly before the length belongs to the FPDU. If it were in the segment, its
        // pointer would have been used already.
        let leads = place.after(length_at) == StreamOffset::START.after(MARKER_LEN);
        match if leads { length_at.checked_sub(MARKER_LEN) } else { Some(length_at) } {
            Some(begin) => return Some(begin),
            None => continue,
        }
    }
    None
}
