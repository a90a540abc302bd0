//! Inter-worker packets: packets between the engines of one process.
//!
//! They are passed on as values, so they are neither written nor parsed, and have no ICRC. A packet
//! of a reliable connection may carry as much as many packets on a wire. Its payload is then a
//! pinned region of the sender, from which the receiver copies.
//!
//! Only an engine of this process makes them
//! ([`PacketOutlet::send_inter_worker`](crate::PacketOutlet::send_inter_worker),
//! [`Engine::handle_inter_worker`](crate::Engine::handle_inter_worker)). Everything from the wire
//! is a frame. PSNs count packets of the path MTU, so the state of a connection does not depend on
//! the form.

use crate::base::memory::Fault;
use vrdma_wire::num::Mtu;
use vrdma_wire::roce::Packet;

/// Most bytes in one inter-worker packet that has more than a path MTU.
pub const INTER_WORKER_BYTES: u32 = 64 << 10;

/// Which part of a message is in an inter-worker packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InterWorkerPart {
    /// PSNs that the packet stands for.
    pub psns: u32,
    /// The path MTU by which the sender counts PSNs.
    pub path_mtu: Mtu,
    /// The payload may be a pinned region. The sender learns when the receiver has it, or revokes
    /// it.
    pub may_pin: bool,
}

/// A pinned region of another engine, which that engine may revoke.
pub trait PinnedRegion<R> {
    /// Copies `len` bytes from `offset` to `dst_offset` of `dst`, the last bytes last.
    ///
    /// Returns `Fault` if the pinned region was revoked, or if the memory of either side does not
    /// exist any more. Some bytes may have been copied then.
    fn copy_to(&self, offset: u64, dst: &R, dst_offset: u64, len: u64) -> Result<(), Fault>;
    /// Whether the sender has not revoked it so far.
    fn is_there(&self) -> bool;
}

/// The payload of an inter-worker packet.
pub enum InterWorkerPayload<'a, R> {
    /// The bytes themselves, at most a path MTU.
    Bytes(&'a [u8]),
    /// A pinned region, and the number of bytes.
    Pinned(&'a dyn PinnedRegion<R>, u32),
}

impl<R> Clone for InterWorkerPayload<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for InterWorkerPayload<'_, R> {}

impl<R> InterWorkerPayload<'_, R> {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u32 {
        match self {
            InterWorkerPayload::Bytes(bytes) => bytes.len() as u32,
            InterWorkerPayload::Pinned(_, len) => *len,
        }
    }
}

/// An inter-worker packet: a packet from another engine of this process.
pub struct InterWorkerPacket<'a, R> {
    /// Its headers.
    pub packet: &'a Packet,
    /// Which part of a message it is.
    pub part: InterWorkerPart,
    /// The payload.
    pub payload: InterWorkerPayload<'a, R>,
}

/// Returns how many PSNs the next inter-worker packet of a message may stand for, after `sent` PSNs
/// of the message.
///
/// Each packet of a request except the last ends at a multiple of [`INTER_WORKER_BYTES`] in the
/// message. Retransmitted packets therefore are the same. A rate may end a packet of a READ
/// response earlier.
pub(crate) fn most_psns(mtu: Mtu, sent: u32) -> u32 {
    let most = INTER_WORKER_BYTES / mtu.bytes();
    most - sent % most
}
