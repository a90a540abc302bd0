//! The stream that a QP is connected by.

use crate::objects::iwarp::stream::{MIN_MSS, ReadyToReceive};
use vrdma_wire::iwarp::Framing;

/// Which end of a connection one is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Who connected.
    Initiator,
    /// Who listened.
    Responder,
}

/// A stream that a QP is connected by, as set-up left it ([`Agreed`](crate::Agreed)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamAttr {
    /// Which end of the connection this is.
    pub role: Role,
    /// How FPDUs are framed that are sent,
    pub framing_out: Framing,
    /// and those that come.
    pub framing_in: Framing,
    /// What the initiator sends by itself before all else.
    pub ready: Option<ReadyToReceive>,
    /// READs and atomics outstanding as requester,
    pub ord: u8,
    /// and as responder.
    pub ird: u8,
    /// Longest FPDU that is sent: what a segment of the TCP below carries. At least 256.
    pub mss: u32,
}

impl StreamAttr {
    /// Whether there may be such a stream.
    pub(crate) fn is_possible(&self) -> bool {
        self.mss >= MIN_MSS
    }
}
