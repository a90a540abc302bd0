//! A packet between two workers.

use crate::memory::Lent;
use vrdma_transport::{NearPacket, NearPart, NearPayload};
use vrdma_wire::roce::Packet;

/// Bytes of the longest payload that goes in its parcel.
pub(super) const SHORT: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Parcel {
    pub packet: Packet,
    pub part: NearPart,
    pub payload: Payload,
}

/// What it carries.
#[derive(Debug)]
pub(super) enum Payload {
    /// So many of these bytes.
    Short([u8; SHORT], u8),
    /// So many bytes of a buffer of the sender's.
    Buffer(Box<[u8]>, usize),
    /// Memory of a guest.
    Lent(Lent),
}

impl Parcel {
    /// What an engine takes.
    pub fn packet(&self) -> NearPacket<'_, crate::memory::MrMemory> {
        let payload = match &self.payload {
            Payload::Short(bytes, len) => NearPayload::Bytes(&bytes[..usize::from(*len)]),
            Payload::Buffer(bytes, len) => NearPayload::Bytes(&bytes[..*len]),
            Payload::Lent(lent) => NearPayload::Loan(lent, lent.len()),
        };
        NearPacket { packet: &self.packet, part: self.part, payload }
    }

    /// Bytes that its receiver copies.
    pub fn len(&self) -> usize {
        match &self.payload {
            Payload::Short(_, len) => usize::from(*len),
            Payload::Buffer(_, len) => *len,
            Payload::Lent(lent) => lent.len() as usize,
        }
    }
}
