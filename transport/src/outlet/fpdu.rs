//! FPDUs on their way into a stream.

use vrdma_wire::iwarp::{Framing, Place, Segment};

/// An FPDU but for its payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fpdu {
    /// How it is framed.
    pub framing: Framing,
    /// Where in the stream it begins.
    pub place: Place,
    /// The DDP segment that it carries; `None`: no ULPDU at all (RFC 6581).
    pub segment: Option<Segment>,
}

impl Fpdu {
    /// Bytes of its ULPDU with so many of payload.
    pub fn ulpdu_len(&self, payload: usize) -> usize {
        self.segment.as_ref().map_or(0, Segment::header_len) + payload
    }

    /// Its bytes with so many of payload.
    #[allow(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub fn len(&self, payload: usize) -> usize {
        self.framing.fpdu_len(self.place, self.ulpdu_len(payload))
    }
}

/// How the engine leaves a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// It ends behind what was sent: with a FIN.
    Close,
    /// It is of no use any more: with an RST.
    Abort,
}
