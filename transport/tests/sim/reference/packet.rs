//! Packets of the reference peer, and the two kinds of peers.

use vrdma_wire::num::{AethMsn, Psn};
use vrdma_wire::roce::{Aeth, Bth, Credits, Rc, Syndrome};

/// Whose habits a peer has, where the specification leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As Linux's soft-RoCE: one NAK for each gap, an acknowledge for each packet that asks for
    /// one. The rest of a READ is answered by packets that continue the first answer. A gap within
    /// an answer is ignored.
    Soft,
    /// As hardware: a NAK for each packet behind a gap, and acknowledges that cover several
    /// packets. The rest of a READ is answered as a READ of its own. A gap within an answer is an
    /// implied NAK.
    Hard,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Soft, Kind::Hard];
}

/// A packet that has arrived.
pub struct Incoming {
    pub bth: Bth,
    pub body: Rc,
    pub payload: Vec<u8>,
}

/// A packet to be sent.
pub struct Outgoing {
    pub psn: Psn,
    pub ack_req: bool,
    pub solicited: bool,
    pub body: Rc,
    pub payload: Vec<u8>,
}

impl Outgoing {
    /// Returns an answer without payload.
    pub fn answer(psn: Psn, body: Rc) -> Outgoing {
        Outgoing { psn, ack_req: false, solicited: false, body, payload: Vec::new() }
    }
}

/// Returns the header that acknowledges, without a limit of messages.
pub const fn ack(msn: AethMsn) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
}

/// Returns the number of packets of a message.
pub fn packets(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu).max(1)
}
