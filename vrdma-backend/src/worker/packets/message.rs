//! The message that carries a packet from one worker to another.
//!
//! Most packets take one cache line, so that passing one costs little more than the line's latency.

use crate::memory::{MrMemory, Pinned};
use vrdma_transport::{InterWorkerPacket, InterWorkerPart, InterWorkerPayload};
use vrdma_wire::num::{Imm, Mtu};
use vrdma_wire::roce::{
    Aeth, Body, Bth, Deth, Packet, Part, Rc, ReadPart, Reth, SendTail, Uc, UcTail, WriteTail,
};

/// The longest payload that fits the first cache line, in bytes.
pub(super) const SHORT: usize = 12;
/// The room beside the number in the line of a slot, if its contents are aligned to 8 bytes.
const LINE: usize = 56;
const _: () = assert!(size_of::<MessageHeader>() <= LINE && size_of::<Payload>() <= LINE);

/// The first cache line of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageHeader {
    pub bth: Bth,
    pub body: CommonBody,
    /// The number of PSNs beyond the first.
    more_psns: u8,
    path_mtu: Mtu,
    /// Whether a WRITE belongs to an unreliable connection.
    is_unreliable: bool,
    pub short: Short,
}

/// A payload that fits the first cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    pub len: u8,
    pub bytes: [u8; SHORT],
}

/// The body of a packet, if it is of a frequent kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommonBody {
    Send(Part<(), SendTail>),
    Write(Part<Reth, WriteTail>),
    ReadRequest(Reth),
    ReadResponse(ReadPart),
    Ack(Aeth),
    UcSend(Part<(), UcTail>),
    Datagram(Deth, Option<Imm>),
    /// The body is in the whole packet, which follows.
    Other,
}

/// What follows the first cache line, in few messages.
#[derive(Debug)]
pub(super) enum MessageRest {
    /// A longer payload.
    Payload(Payload),
    /// All headers, and perhaps a longer payload.
    ///
    /// They are sent if the body is none of [`CommonBody`], or if the path differs from that of the
    /// previous packet to this QP.
    Whole(Packet, Option<Payload>),
}

/// A payload that does not fit the first cache line.
#[derive(Debug)]
pub(super) enum Payload {
    /// A buffer of the sender's, and the number of bytes used in it.
    Buffer(Box<[u8]>, u32),
    /// Pinned memory of a guest.
    Pinned(Pinned),
}

/// A received message.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub packet: &'a Packet,
    pub part: InterWorkerPart,
    pub short: Short,
    pub payload: Option<Payload>,
}

impl CommonBody {
    pub fn of(body: &Body) -> CommonBody {
        match *body {
            Body::Rc(Rc::Send(part)) => CommonBody::Send(part),
            Body::Rc(Rc::Write(part)) => CommonBody::Write(part),
            Body::Rc(Rc::ReadRequest(reth)) => CommonBody::ReadRequest(reth),
            Body::Rc(Rc::ReadResponse(part)) => CommonBody::ReadResponse(part),
            Body::Rc(Rc::Ack(aeth)) => CommonBody::Ack(aeth),
            Body::Uc(Uc::Send(part)) => CommonBody::UcSend(part),
            // Another variant as long as this one would make the line too long.
            Body::Uc(Uc::Write(part)) => CommonBody::Write(part),
            Body::Ud { deth, imm } => CommonBody::Datagram(deth, imm),
            _ => CommonBody::Other,
        }
    }

    /// Whether the body is of no frequent kind.
    pub fn is_other(self) -> bool {
        matches!(self, CommonBody::Other)
    }

    fn body(self, is_unreliable: bool) -> Option<Body> {
        Some(Body::Rc(match self {
            CommonBody::Send(part) => Rc::Send(part),
            CommonBody::Write(part) if is_unreliable => return Some(Body::Uc(Uc::Write(part))),
            CommonBody::Write(part) => Rc::Write(part),
            CommonBody::ReadRequest(reth) => Rc::ReadRequest(reth),
            CommonBody::ReadResponse(part) => Rc::ReadResponse(part),
            CommonBody::Ack(aeth) => Rc::Ack(aeth),
            CommonBody::UcSend(part) => return Some(Body::Uc(Uc::Send(part))),
            CommonBody::Datagram(deth, imm) => return Some(Body::Ud { deth, imm }),
            CommonBody::Other => return None,
        }))
    }
}

impl MessageHeader {
    pub fn new(packet: &Packet, part: InterWorkerPart, short: Short) -> MessageHeader {
        let more_psns = u8::try_from(part.psns - 1).expect("at most 64 KiB in packets of 256 bytes");
        let (body, is_unreliable) = (CommonBody::of(&packet.body), matches!(packet.body, Body::Uc(_)));
        MessageHeader { bth: packet.bth, body, more_psns, path_mtu: part.path_mtu, is_unreliable, short }
    }

    /// Writes the headers over the last packet to the same QP, whose path remains.
    #[inline]
    pub fn put_over<'a>(&self, last: &'a mut Option<Packet>) -> &'a Packet {
        let packet = last.as_mut().expect("the first packet to a QP has its path");
        packet.bth = self.bth;
        let body = self.body.body(self.is_unreliable);
        packet.body = body.expect("a body that does not fit the first line is in the rest");
        packet
    }

    /// Returns the sender's [`InterWorkerPart`]. `may_pin` is always false here: the payload itself
    /// shows whether it is pinned memory.
    pub fn part(&self) -> InterWorkerPart {
        InterWorkerPart { psns: 1 + u32::from(self.more_psns), path_mtu: self.path_mtu, may_pin: false }
    }
}

impl Short {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Message<'_> {
    /// Returns the packet in the form that an engine takes.
    pub fn packet(&self) -> InterWorkerPacket<'_, MrMemory> {
        let payload = match &self.payload {
            None => InterWorkerPayload::Bytes(self.short.bytes()),
            Some(Payload::Buffer(bytes, len)) => InterWorkerPayload::Bytes(&bytes[..*len as usize]),
            Some(Payload::Pinned(pinned)) => InterWorkerPayload::Pinned(pinned, pinned.len()),
        };
        InterWorkerPacket { packet: self.packet, part: self.part, payload }
    }

    /// Returns the number of bytes that the receiver copies.
    pub fn len(&self) -> usize {
        match &self.payload {
            None => self.short.len.into(),
            Some(Payload::Buffer(_, len)) => *len as usize,
            Some(Payload::Pinned(pinned)) => pinned.len() as usize,
        }
    }
}
