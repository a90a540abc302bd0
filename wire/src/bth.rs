//! The base transport header (IBTA 9.2).

use crate::DropReason;
use crate::num::{Pkey, Psn, Qpn};
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const LEN: usize = 12;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBth {
    opcode: u8,
    /// Solicited event, MigReq, pad count (2 bits), version (4 bits).
    flags: u8,
    pkey: U16,
    /// FECN and BECN (annex A17); the other bits are reserved. The ICRC does not cover this byte.
    congestion: u8,
    dest: [u8; 3],
    /// AckReq; the other bits are reserved. The ICRC covers this byte.
    ack_req: u8,
    psn: [u8; 3],
}

/// The base transport header.
///
/// The opcode and the pad count are not fields: they follow from the packet's body and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bth {
    /// The receiver must raise a solicited event.
    pub solicited: bool,
    /// The migration state is "migrated". The value is only carried; nothing here interprets it.
    pub mig: bool,
    /// The partition.
    pub pkey: Pkey,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// The receiver's QP.
    pub dest: Qpn,
    /// The receiver must acknowledge this packet.
    pub ack_req: bool,
    /// The packet's PSN.
    pub psn: Psn,
}

/// A header as read: its fields, the opcode, and the pad count.
pub(crate) struct Read {
    pub bth: Bth,
    pub opcode: u8,
    pub pad: usize,
}

impl Bth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Read, DropReason> {
        let raw: &RawBth = reader.take()?;
        if raw.flags & 0xf != 0 {
            return Err(DropReason::BthVersion);
        }
        let bth = Bth {
            solicited: raw.flags & 0x80 != 0,
            mig: raw.flags & 0x40 != 0,
            pkey: Pkey(raw.pkey.get()),
            fecn: raw.congestion & 0x80 != 0,
            becn: raw.congestion & 0x40 != 0,
            dest: Qpn::truncate(get24(raw.dest)),
            ack_req: raw.ack_req & 0x80 != 0,
            psn: Psn::truncate(get24(raw.psn)),
        };
        Ok(Read { bth, opcode: raw.opcode, pad: usize::from(raw.flags >> 4 & 3) })
    }

    #[inline]
    pub(crate) fn put(&self, opcode: u8, pad: usize, writer: &mut Writer<'_>) {
        writer.put(&RawBth {
            opcode,
            flags: u8::from(self.solicited) << 7 | u8::from(self.mig) << 6 | (pad as u8 & 3) << 4,
            pkey: self.pkey.0.into(),
            congestion: u8::from(self.fecn) << 7 | u8::from(self.becn) << 6,
            dest: put24(self.dest.number()),
            ack_req: u8::from(self.ack_req) << 7,
            psn: put24(self.psn.number()),
        });
    }
}

/// Converts three big-endian bytes to a 24-bit number.
#[inline]
pub(crate) fn get24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Converts a 24-bit number to three big-endian bytes.
#[inline]
pub(crate) fn put24(number: u32) -> [u8; 3] {
    let [_, a, b, c] = number.to_be_bytes();
    [a, b, c]
}
