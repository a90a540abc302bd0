//! A stretch of a message as it goes from requester to responder: what the headers of packets say.

use crate::verbs::op::{Receive, Row, SendOp};
use vrdma_wire::num::{Mtu, Psn};

/// A stretch of a message. On the wire it is a packet; between QPs of one process it may be many
/// packets' worth.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) op: &'a SendOp,
    /// That of `op`.
    pub(crate) row: &'static Row,
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
    /// Bytes of the whole message; of a SEND in packets, which do not tell, the bytes received so
    /// far.
    pub(crate) message: u32,
    pub(crate) segmentation: Segmentation,
}

impl Segment<'_> {
    /// Whether it needs a receive: all of a SEND do, and with immediate data the last one of a
    /// WRITE.
    #[inline]
    pub(crate) fn needs_receive(&self) -> bool {
        match self.row.receive {
            Receive::Never => false,
            Receive::Always => true,
            Receive::WithImm => self.last && self.op.imm().is_some(),
        }
    }
}

/// How a message is segmented.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Segmentation {
    /// Of any length. In packets it would be segmented by the requester's path MTU, which is this.
    Stretch(Mtu),
    /// Each is a packet: all but the last are full.
    Packet,
    /// Each is a DDP segment, of any length.
    Ddp,
}
