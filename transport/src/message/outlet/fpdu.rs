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

/// An FPDU whose payload was placed before its turn, by
/// [`Engine::place_fpdu`](crate::Engine::place_fpdu), or where it was sent
/// ([`StreamOutlet::send_placed`](super::StreamOutlet::send_placed)): what is left of it to be
/// delivered, by [`Engine::handle_placed`](crate::Engine::handle_placed).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedFpdu {
    pub(crate) segment: Segment,
    /// Bytes that were placed,
    pub(crate) payload: u32,
    /// and those of the FPDU.
    pub(crate) length: u32,
}

impl PlacedFpdu {
    /// Its bytes of the stream.
    #[allow(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether its message ends with it.
    pub(crate) fn is_last(&self) -> bool {
        match self.segment {
            Segment::Write(to) | Segment::ReadResponse(to) => to.last,
            Segment::Send { part, .. } => part.last,
            _ => true,
        }
    }
}
