//! A segment of a message on its way from requester to responder, with what packet headers say.

use crate::verbs::op::{Receive, Row, SendOp};
use vrdma_wire::num::{Mtu, Psn};

/// A segment of a message.
///
/// On the wire it is a packet. Between QPs of one process it may be as long as many packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) op: &'a SendOp,
    /// The row of `op`.
    pub(crate) row: &'static Row,
    pub(crate) solicited: bool,
    /// Whether the message begins with this segment.
    pub(crate) first: bool,
    /// Whether the message ends with this segment.
    pub(crate) last: bool,
    /// PSN of the first packet.
    pub(crate) psn: Psn,
    /// Number of PSNs that the segment consumes.
    pub(crate) packets: u32,
    /// Offset of the segment in the message.
    pub(crate) offset: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Length of the whole message in bytes. A SEND in packets does not tell it: then these are the
    /// bytes received so far.
    pub(crate) message: u32,
    pub(crate) segmentation: Segmentation,
}

impl Segment<'_> {
    /// Whether the segment needs a receive.
    ///
    /// All segments of a SEND do. The last segment of a WRITE does if it has immediate data.
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
    /// Segments have any length. The field is the requester's path MTU, by which packets would be
    /// cut.
    Local(Mtu),
    /// Each segment is a packet. All packets of a message except the last are full.
    Packet,
    /// Each segment is a DDP segment, of any length.
    Ddp,
}
