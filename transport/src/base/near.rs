//! Packets between the engines of one process: they are handed over as they are, so they are not
//! written and parsed, have no ICRC, and those of reliable connections may carry what would be many
//! packets on a wire, as a loan of the sender's memory that the receiver copies.
//!
//! Nobody but an engine of this process makes one
//! ([`PacketOutlet::send_near`](crate::PacketOutlet::send_near),
//! [`Engine::handle_near`](crate::Engine::handle_near)): what comes from the wire is a frame,
//! whatever it says. PSNs are those of packets of the path MTU, so a connection is the same in
//! either form.

use crate::base::memory::Fault;
use vrdma_wire::num::Mtu;
use vrdma_wire::roce::Packet;

/// Bytes of one at most, where that is more than its path MTU.
pub const NEAR_BYTES: u32 = 64 << 10;

/// What of a message is in one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NearPart {
    /// PSNs that it stands for.
    pub psns: u32,
    /// The path MTU by which its sender counts them.
    pub path_mtu: Mtu,
    /// Its payload may be loaned: its sender learns when the receiver has it, or takes it back.
    pub may_loan: bool,
}

/// Memory of a region of another engine.
pub trait Loan<R> {
    /// Copies `len` bytes from `offset` to `dst_offset` of `dst`, the last bytes last. `Fault` if
    /// the memory was taken back, or one of both does not exist any more: then perhaps some bytes
    /// were copied.
    fn copy_to(&self, offset: u64, dst: &R, dst_offset: u64, len: u64) -> Result<(), Fault>;
    /// Whether it was not taken back so far.
    fn is_there(&self) -> bool;
}

/// What one carries.
pub enum NearPayload<'a, R> {
    /// Bytes, at most a path MTU of them.
    Bytes(&'a [u8]),
    /// So many bytes of a loan.
    Loan(&'a dyn Loan<R>, u32),
}

impl<R> Clone for NearPayload<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for NearPayload<'_, R> {}

impl<R> NearPayload<'_, R> {
    /// Bytes of it.
    pub(crate) fn len(&self) -> u32 {
        match self {
            NearPayload::Bytes(bytes) => bytes.len() as u32,
            NearPayload::Loan(_, len) => *len,
        }
    }
}

/// A packet from another engine of this process.
pub struct NearPacket<'a, R> {
    /// Its headers.
    pub packet: &'a Packet,
    /// What of a message it is.
    pub part: NearPart,
    /// What it carries.
    pub payload: NearPayload<'a, R>,
}

/// How many PSNs of a message the next packet may stand for, behind `sent` of them: all packets but
/// the last end where so many bytes of the message do, so that those that are sent again are the
/// same.
pub(crate) fn most_psns(mtu: Mtu, sent: u32) -> u32 {
    let most = NEAR_BYTES / mtu.bytes();
    most - sent % most
}
