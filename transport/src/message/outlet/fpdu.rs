//! FPDUs that the engine sends into a stream.

use vrdma_wire::iwarp::{Framing, Segment, StreamOffset};

/// An FPDU without its payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fpdu {
    /// How the FPDU is framed.
    pub framing: Framing,
    /// Where in the stream the FPDU begins.
    pub place: StreamOffset,
    /// The DDP segment of the FPDU. `None` for an FPDU without a ULPDU (RFC 6581).
    pub segment: Option<Segment>,
}

impl Fpdu {
    /// Returns the length of the ULPDU with `payload` bytes of payload.
    pub fn ulpdu_len(&self, payload: usize) -> usize {
        self.segment.as_ref().map_or(0, Segment::header_len) + payload
    }

    /// Returns the length of the FPDU with `payload` bytes of payload.
    #[allow(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub fn len(&self, payload: usize) -> usize {
        self.framing.fpdu_len(self.place, self.ulpdu_len(payload))
    }
}

/// How the engine ends a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// With a FIN, after everything that was sent.
    Close,
    /// With an RST: the stream is of no use any more.
    Abort,
}

/// An FPDU whose payload is at its destination already, but that is not delivered so far.
///
/// The payload was placed out of order by [`Engine::place_fpdu`](crate::Engine::place_fpdu), or by
/// the sender ([`StreamOutlet::send_placed`](super::StreamOutlet::send_placed)).
/// [`Engine::handle_placed`](crate::Engine::handle_placed) delivers the FPDU in its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedFpdu {
    pub(crate) segment: Segment,
    /// Length of the payload, which was placed.
    pub(crate) payload: u32,
    /// Length of the whole FPDU.
    pub(crate) length: u32,
}

impl PlacedFpdu {
    /// Returns how many bytes of the stream the FPDU takes.
    #[allow(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether this FPDU is the last of its message.
    pub(crate) fn is_last(&self) -> bool {
        match self.segment {
            Segment::Write(to) | Segment::ReadResponse(to) => to.last,
            Segment::Send { part, .. } => part.last,
            _ => true,
        }
    }
}
