//! A packet between two workers: what most have takes one cache line, so that little more than its
//! latency is their way.

use crate::memory::{Lent, MrMemory};
use vrdma_transport::{NearPacket, NearPart, NearPayload};
use vrdma_wire::num::{Imm, Mtu};
use vrdma_wire::roce::{
    Aeth, Body, Bth, Deth, Packet, Part, Rc, ReadPart, Reth, SendTail, Uc, UcTail, WriteTail,
};

/// Bytes of the longest payload that goes in the first line.
pub(super) const SHORT: usize = 12;
/// What the line of a place has beside its number, where addresses of 8 bytes can be.
const LINE: usize = 56;
const _: () = assert!(size_of::<Head>() <= LINE && size_of::<Payload>() <= LINE);

/// The first line of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub bth: Bth,
    pub body: Brief,
    /// PSNs beyond the first.
    more_psns: u8,
    path_mtu: Mtu,
    /// A WRITE is one of an unreliable connection.
    is_unreliable: bool,
    pub short: Short,
}

/// A payload that fits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    pub len: u8,
    pub bytes: [u8; SHORT],
}

/// What a packet is, if it is one of those that are much sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Brief {
    Send(Part<(), SendTail>),
    Write(Part<Reth, WriteTail>),
    ReadRequest(Reth),
    ReadResponse(ReadPart),
    Ack(Aeth),
    UcSend(Part<(), UcTail>),
    Datagram(Deth, Option<Imm>),
    /// It stands in the whole packet.
    Elsewhere,
}

/// What few packets have behind their first line.
#[derive(Debug)]
pub(super) enum Rest {
    /// A longer payload.
    Payload(Payload),
    /// All headers: the body is none of [`Brief`], or the path another than that of the packet to
    /// this QP before.
    Whole(Packet, Option<Payload>),
}

/// A payload that does not fit the first line.
#[derive(Debug)]
pub(super) enum Payload {
    /// So many bytes of a buffer of the sender's.
    Buffer(Box<[u8]>, u32),
    /// Memory of a guest.
    Lent(Lent),
}

/// A packet as its receiver has it.
#[derive(Debug)]
pub(super) struct Parcel<'a> {
    pub packet: &'a Packet,
    pub part: NearPart,
    pub short: Short,
    pub payload: Option<Payload>,
}

impl Brief {
    pub fn of(body: &Body) -> Brief {
        match *body {
            Body::Rc(Rc::Send(part)) => Brief::Send(part),
            Body::Rc(Rc::Write(part)) => Brief::Write(part),
            Body::Rc(Rc::ReadRequest(reth)) => Brief::ReadRequest(reth),
            Body::Rc(Rc::ReadResponse(part)) => Brief::ReadResponse(part),
            Body::Rc(Rc::Ack(aeth)) => Brief::Ack(aeth),
            Body::Uc(Uc::Send(part)) => Brief::UcSend(part),
            // With another variant as long as this one, it would not fit.
            Body::Uc(Uc::Write(part)) => Brief::Write(part),
            Body::Ud { deth, imm } => Brief::Datagram(deth, imm),
            _ => Brief::Elsewhere,
        }
    }

    /// Whether it is none of those.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, Brief::Elsewhere)
    }

    fn body(self, is_unreliable: bool) -> Option<Body> {
        Some(Body::Rc(match self {
            Brief::Send(part) => Rc::Send(part),
            Brief::Write(part) if is_unreliable => return Some(Body::Uc(Uc::Write(part))),
            Brief::Write(part) => Rc::Write(part),
            Brief::ReadRequest(reth) => Rc::ReadRequest(reth),
            Brief::ReadResponse(part) => Rc::ReadResponse(part),
            Brief::Ack(aeth) => Rc::Ack(aeth),
            Brief::UcSend(part) => return Some(Body::Uc(Uc::Send(part))),
            Brief::Datagram(deth, imm) => return Some(Body::Ud { deth, imm }),
            Brief::Elsewhere => return None,
        }))
    }
}

impl Head {
    pub fn new(packet: &Packet, part: NearPart, short: Short) -> Head {
        let more_psns = u8::try_from(part.psns - 1).expect("at most 64 KiB in packets of 256 bytes");
        let (body, is_unreliable) = (Brief::of(&packet.body), matches!(packet.body, Body::Uc(_)));
        Head { bth: packet.bth, body, more_psns, path_mtu: part.path_mtu, is_unreliable, short }
    }

    /// Writes it over the last packet to the same QP, whose path it has.
    #[inline]
    pub fn put_over<'a>(&self, last: &'a mut Option<Packet>) -> &'a Packet {
        let packet = last.as_mut().expect("the first packet to a QP has its path");
        packet.bth = self.bth;
        let body = self.body.body(self.is_unreliable);
        packet.body = body.expect("a body that does not fit the first line is in the rest");
        packet
    }

    /// As its sender had it; whether it lent anything the payload says.
    pub fn part(&self) -> NearPart {
        NearPart { psns: 1 + u32::from(self.more_psns), path_mtu: self.path_mtu, may_loan: false }
    }
}

impl Short {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Parcel<'_> {
    /// What an engine takes.
    pub fn packet(&self) -> NearPacket<'_, MrMemory> {
        let payload = match &self.payload {
            None => NearPayload::Bytes(self.short.bytes()),
            Some(Payload::Buffer(bytes, len)) => NearPayload::Bytes(&bytes[..*len as usize]),
            Some(Payload::Lent(lent)) => NearPayload::Loan(lent, lent.len()),
        };
        NearPacket { packet: self.packet, part: self.part, payload }
    }

    /// Bytes that its receiver copies.
    pub fn len(&self) -> usize {
        match &self.payload {
            None => self.short.len.into(),
            Some(Payload::Buffer(_, len)) => *len as usize,
            Some(Payload::Lent(lent)) => lent.len() as usize,
        }
    }
}
