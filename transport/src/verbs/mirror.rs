//! Packets that show what was copied within the engine.
//!
//! A message between two QPs of one engine is one copy, without packets. A caller that wants to see
//! it as packets gives a [`Mirror`] by its sink.

use crate::base::id::DeviceId;
use crate::base::memory::Fault;
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::Packet;

/// Takes the packets that messages within the engine would have been.
///
/// They are those of messages that were executed, and of their answers. What was refused or waits
/// is not among them. The packets have the headers that the engine would have sent, with two
/// exceptions: only the last packet of a message asks for an acknowledge, and MSNs are 0, because
/// QPs of one engine do not count them.
pub trait Mirror {
    /// Whether packets between these ends are wanted. If not, none is made.
    fn wants(&mut self, ends: MirrorEnds) -> bool;

    /// Takes a packet.
    fn packet(&mut self, ends: MirrorEnds, packet: &Packet, payload: &dyn PacketPayload);
}

/// Both ends of a packet within the engine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MirrorEnds {
    /// The QP that would have sent it.
    pub from: (DeviceId, Qpn),
    /// The QP that would have received it. `None`: the members of a multicast group.
    pub to: Option<(DeviceId, Qpn)>,
}

impl MirrorEnds {
    /// Returns the ends of a packet in the other direction, from this receiver.
    pub(crate) fn back(self) -> MirrorEnds {
        let from = self.to.expect("only a connection has answers");
        MirrorEnds { from, to: Some(self.from) }
    }
}

/// The payload of a packet, wherever it is.
pub trait PacketPayload {
    /// Returns its length in bytes.
    fn length(&self) -> usize;

    /// Copies its first bytes, as many as `buf` has.
    ///
    /// # Errors
    /// `Fault`: the memory does not exist any more.
    ///
    /// # Panics
    /// `buf` is longer than the payload.
    fn read_first(&self, buf: &mut [u8]) -> Result<(), Fault>;
}
