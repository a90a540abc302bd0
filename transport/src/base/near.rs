//! Inter-worker packets: packets between the engines of one process.
//!
//! They are passed on as values, so they are neither written nor parsed, and have no ICRC. A packet
//! of a reliable connection may carry as much as many packets on a wire. Its payload is then a
//! pinned region of the sender, from which the receiver copies.
//!
//! Only an engine of this process makes them
//! ([`PacketOutlet::send_near`](crate::PacketOutlet::send_near),
//! [`Engine::handle_near`](crate::Engine::handle_near)). Everything from the wire is a frame. PSNs
//! count packets of the path MTU, so the state of a connection does not depend on the form.

use crate::base::memory::Fault;
use vrdma_wire::num::Mtu;
use vrdma_wire::roce::Packet;

/// Most bytes in one inter-worker packet that has more than a path MTU.
pub const NEAR_BYTES: u32 = 64 << 10;

/// Which part of a message is in an inter-worker packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NearPart {
    /// PSNs that the packet stands for.
    pub psns: u32,
    /// The path MTU by which the sender counts PSNs.
    pub path_mtu: Mtu,
    /// The payload may be a pinned region. The sender learns when the receiver has it, or revokes
    /// it.
    pub may_loan: bool,
}

/// A pinned region of another engine, which that engine may revoke.
pub trait Loan<R> {
    /// Copies `len` bytes from `offset` to `dst_offset` of `dst`, the last bytes last.
    ///
    /// Returns `Fault` if the pinned region was revoked, or if the memory of either side does not
    /// exist any more. Some bytes may have been copied then.
    fn copy_to(&self, offset: u64, dst: &R, dst_offset: u64, len: u64) -> Result<(), Fault>;
    /// Whether the sender has not revoked it so far.
    fn is_there(&self) -> bool;
}

/// The payload of an inter-worker packet.
pub enum NearPayload<'a, R> {
    /// The bytes themselves, at most a path MTU.
    Bytes(&'a [u8]),
    /// A pinned region, and the number of bytes.
    Loan(&'a dyn Loan<R>, u32),
}

impl<R> Clone for NearPayload<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for NearPayload<'_, R> {}

impl<R> NearPayload<'_, R> {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u32 {
        match self {
            NearPayload::Bytes(bytes) => bytes.len() as u32,
            NearPayload::Loan(_, len) => *len,
        }
    }
}

/// An inter-worker packet: a packet from another engine of this process.
pub struct NearPacket<'a, R> {
    /// Its headers.
    pub packet: &'a Packet,
    /// Which part of a message it is.
    pub part: NearPart,
    /// The payload.
    pub payload: NearPayload<'a, R>,
}

/// Returns how many PSNs the next inter-worker packet of a message may stand for, after `sent` PSNs
/// of the message.
///
/// Each packet except the last ends at a multiple of [`NEAR_BYTES`] in the message. Retransmitted
/// packets therefore are the same.
pub(crate) fn most_psns(mtu: Mtu, sent: u32) -> u32 {
    let most = NEAR_BYTES / mtu.bytes();
    most - sent % most
}
