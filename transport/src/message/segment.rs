//! A stretch of a message as it goes from requester to responder: what the headers of packets say.

use crate::op::SendOp;
use vrdma_wire::num::{Mtu, Psn};

/// A stretch of a message. On the wire it is a packet; between QPs of one process it may be many packets' worth.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) op: &'a SendOp,
    pub(crate) solicited: bool,
    /// The message begins here.
    pub(crate) first: bool,
    /// The message ends here.
    pub(crate) last: bool,
    /// PSN of its first packet.
    pub(crate) psn: Psn,
    /// How many PSNs it consumes.
    pub(crate) packets: u32,
    /// Where in the message it begins.
    pub(crate) offset: u32,
    /// Its bytes.
    pub(crate) length: u32,
    /// Bytes of the whole message. (Packets of a SEND don't tell: what has come so far.)
    pub(crate) message: u32,
    pub(crate) cut: Cut,
}

/// How a message is cut into segments.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Anyhow; into packets it would be cut by the requester's path MTU, which is this.
    Stretch(Mtu),
    /// Each is a packet: all but the last are full.
    Packet,
}
