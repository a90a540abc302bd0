//! Attributes of the stream that connects a QP.

use crate::objects::iwarp::stream::{MIN_MSS, ReadyToReceive};
use vrdma_wire::iwarp::Framing;

/// One end of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// The end that connected.
    Initiator,
    /// The end that listened.
    Responder,
}

/// Attributes of a stream that connects a QP, as set-up negotiated them
/// ([`Agreed`](crate::Agreed)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamAttr {
    /// Which end of the connection this is.
    pub role: Role,
    /// Framing of sent FPDUs.
    pub framing_out: Framing,
    /// Framing of received FPDUs.
    pub framing_in: Framing,
    /// The message that the initiator sends by itself before any other.
    pub ready: Option<ReadyToReceive>,
    /// Most outstanding READs and atomics as requester.
    pub ord: u8,
    /// Most outstanding READs and atomics as responder.
    pub ird: u8,
    /// Longest FPDU to send: the capacity of a segment of the TCP below. At least 256.
    pub mss: u32,
}

impl StreamAttr {
    /// Whether a stream may have these attributes.
    pub(crate) fn is_possible(&self) -> bool {
        self.mss >= MIN_MSS
    }
}
