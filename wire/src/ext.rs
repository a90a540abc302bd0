//! Extended transport headers (IBTA 9.3; FETH: annex A19).

use crate::DropReason;
use crate::bth::{get24, put24};
use crate::num::{AethMsn, Qkey, Qpn, Rkey, Srqn};
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Lengths of the headers, in bytes.
pub(crate) mod len {
    pub const RETH: usize = 16;
    pub const AETH: usize = 4;
    pub const ATOMIC_ETH: usize = 28;
    pub const ATOMIC_ACK: usize = 8;
    pub const DETH: usize = 8;
    pub const IMM: usize = 4;
    pub const IETH: usize = 4;
    pub const FETH: usize = 4;
    pub const XRCETH: usize = 4;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawReth {
    va: U64,
    rkey: U32,
    length: U32,
}

/// RDMA extended transport header (9.3.3): names memory of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address of the first byte.
    pub va: u64,
    /// Key of the region.
    pub rkey: Rkey,
    /// Length of the whole message in bytes.
    pub length: u32,
}

impl Reth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Reth, DropReason> {
        let raw: &RawReth = reader.take()?;
        Ok(Reth { va: raw.va.get(), rkey: Rkey(raw.rkey.get()), length: raw.length.get() })
    }

    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawReth { va: self.va.into(), rkey: self.rkey.0.into(), length: self.length.into() });
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAtomicEth {
    va: U64,
    rkey: U32,
    swap_or_add: U64,
    compare: U64,
}

/// Atomic extended transport header (9.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of the 8 bytes.
    pub va: u64,
    /// Key of the region.
    pub rkey: Rkey,
    /// Value to store, or to add.
    pub swap_or_add: u64,
    /// Value to compare with. Without meaning for other atomics than compare and swap.
    pub compare: u64,
}

impl AtomicEth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<AtomicEth, DropReason> {
        let raw: &RawAtomicEth = reader.take()?;
        Ok(AtomicEth {
            va: raw.va.get(),
            rkey: Rkey(raw.rkey.get()),
            swap_or_add: raw.swap_or_add.get(),
            compare: raw.compare.get(),
        })
    }

    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawAtomicEth {
            va: self.va.into(),
            rkey: self.rkey.0.into(),
            swap_or_add: self.swap_or_add.into(),
            compare: self.compare.into(),
        });
    }
}

/// Reads an ATOMIC acknowledge extended transport header (9.3.5.3). Returns the value before the
/// operation.
#[inline]
pub(crate) fn parse_atomic_ack(reader: &mut Reader<'_>) -> Result<u64, DropReason> {
    Ok(reader.take::<U64>()?.get())
}

#[inline]
pub(crate) fn put_atomic_ack(original: u64, writer: &mut Writer<'_>) {
    writer.put(&U64::new(original));
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDeth {
    qkey: U32,
    reserved: u8,
    src: [u8; 3],
}

/// Datagram extended transport header (9.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key of the receiver.
    pub qkey: Qkey,
    /// The sender's QP.
    pub src: Qpn,
}

impl Deth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Deth, DropReason> {
        let raw: &RawDeth = reader.take()?;
        Ok(Deth { qkey: Qkey(raw.qkey.get()), src: Qpn::truncate(get24(raw.src)) })
    }

    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawDeth { qkey: self.qkey.0.into(), reserved: 0, src: put24(self.src.number()) });
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawXrceth {
    reserved: u8,
    srqn: [u8; 3],
}

/// Reads an XRC extended transport header (annex A14). Returns the receiver's shared receive queue.
#[inline]
pub(crate) fn parse_xrceth(reader: &mut Reader<'_>) -> Result<Srqn, DropReason> {
    Ok(Srqn::truncate(get24(reader.take::<RawXrceth>()?.srqn)))
}

#[inline]
pub(crate) fn put_xrceth(srqn: Srqn, writer: &mut Writer<'_>) {
    writer.put(&RawXrceth { reserved: 0, srqn: put24(srqn.number()) });
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAeth {
    syndrome: u8,
    msn: [u8; 3],
}

/// ACK extended transport header (9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Acknowledgement or refusal, with the reason.
    pub syndrome: Syndrome,
    /// Number of messages that the responder has completed.
    pub msn: AethMsn,
}

impl Aeth {
    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Aeth, DropReason> {
        let raw: &RawAeth = reader.take()?;
        let syndrome = Syndrome::from_number(raw.syndrome).ok_or(DropReason::Syndrome)?;
        Ok(Aeth { syndrome, msn: AethMsn::truncate(get24(raw.msn)) })
    }

    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawAeth { syndrome: self.syndrome.number(), msn: put24(self.msn.number()) });
    }
}

/// Meaning of an AETH (IBTA 9.7.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledged, with the number of further messages that the receiver allows.
    Ack(Credits),
    /// The receiver has no receive yet. The requester retries after this time.
    Rnr(RnrTimer),
    /// Refused.
    Nak(NakCode),
}

impl Syndrome {
    #[inline]
    const fn from_number(number: u8) -> Option<Syndrome> {
        let value = number & 0x1f;
        Some(match (number >> 5, value) {
            (0b000, _) => Syndrome::Ack(Credits(value)),
            (0b001, _) => Syndrome::Rnr(RnrTimer(value)),
            (0b011, 0) => Syndrome::Nak(NakCode::PsnSequenceError),
            (0b011, 1) => Syndrome::Nak(NakCode::InvalidRequest),
            (0b011, 2) => Syndrome::Nak(NakCode::RemoteAccessError),
            (0b011, 3) => Syndrome::Nak(NakCode::RemoteOperationalError),
            (0b011, 4) => Syndrome::Nak(NakCode::InvalidRdRequest),
            _ => return None,
        })
    }

    #[inline]
    const fn number(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.0,
            Syndrome::Rnr(timer) => 0b001 << 5 | timer.0,
            Syndrome::Nak(code) => 0b011 << 5 | code as u8,
        }
    }
}

/// Reason of a NAK (IBTA 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// An earlier packet is missing.
    PsnSequenceError = 0,
    /// The operation is not supported, or a length or an order is impossible.
    InvalidRequest = 1,
    /// Key, range or rights do not allow the access.
    RemoteAccessError = 2,
    /// The responder failed to execute the request.
    RemoteOperationalError = 3,
    /// For RD services only.
    InvalidRdRequest = 4,
}

/// A credit count in the 5-bit code of the AETH (IBTA 9.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits(u8);

impl Credits {
    /// The responder does no end-to-end flow control.
    pub const UNLIMITED: Credits = Credits(31);

    /// Returns the credits of this code, or `None` if it exceeds 5 bits.
    pub const fn new(code: u8) -> Option<Credits> {
        if code < 32 { Some(Credits(code)) } else { None }
    }

    /// Returns the greatest credits that are not above `count`.
    pub fn at_most(count: u32) -> Credits {
        let mut code = 30;
        while Credits(code).count().is_some_and(|n| n > count) {
            code -= 1;
        }
        Credits(code)
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number of messages, or `None` without a limit.
    ///
    /// Each power of two is followed by one and a half times it: 0, 1, 2, 3, 4, 6, 8, 12, ...
    /// 32768.
    #[inline]
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            31 => None,
            0 => Some(0),
            1 => Some(1),
            code => Some((2 + (code as u32 & 1)) << (code as u32 / 2 - 1)),
        }
    }
}

/// Time that a requester waits after an RNR NAK, as a 5-bit code (IBTA 9.7.5.2, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Returns the timer of this code, or `None` if it exceeds 5 bits.
    pub const fn new(code: u8) -> Option<RnrTimer> {
        if code < 32 { Some(RnrTimer(code)) } else { None }
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// FLUSH extended transport header (annex A19): placement type and selectivity level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth(u8);

impl Feth {
    const GLOBAL: u8 = 1;
    const PERSISTENT: u8 = 2;
    const REGION: u8 = 0x10;
    const MASK: u8 = 0x3f;

    /// Returns the header of a FLUSH to global visibility, to persistence, or both.
    ///
    /// The FLUSH covers the whole region if `region` is true, else the range that the RETH names.
    pub const fn new(global: bool, persistent: bool, region: bool) -> Feth {
        Feth(
            if global { Self::GLOBAL } else { 0 }
                | if persistent { Self::PERSISTENT } else { 0 }
                | if region { Self::REGION } else { 0 },
        )
    }

    /// Returns the header with these bits of the wire, reserved values included.
    ///
    /// The placement type is the low 4 bits, and the selectivity level the 2 bits above. Other bits
    /// are ignored.
    pub const fn from_bits(bits: u8) -> Feth {
        Feth(bits & Self::MASK)
    }

    /// Returns placement type and selectivity level as on the wire.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Feth, DropReason> {
        Ok(Feth::from_bits(reader.take::<U32>()?.get() as u8))
    }

    #[inline]
    pub(crate) fn put(self, writer: &mut Writer<'_>) {
        writer.put(&U32::new(self.0.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_and_numbers_agree() {
        let known: Vec<_> = (0..=255).filter(|n| Syndrome::from_number(*n).is_some()).collect();
        assert_eq!(known.len(), 32 + 32 + 5);
        for number in known {
            assert_eq!(Syndrome::from_number(number).unwrap().number(), number);
        }
    }

    #[test]
    fn credits_have_the_values_of_the_specification() {
        let expected = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
            3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        for (code, count) in (0..).zip(expected) {
            let credits = Credits::new(code).unwrap();
            assert_eq!(credits.count(), Some(count), "{code}");
            assert_eq!(Credits::at_most(count), credits);
        }
        assert_eq!(Credits::UNLIMITED.count(), None);
        assert_eq!(Credits::at_most(5).count(), Some(4));
        assert_eq!(Credits::at_most(u32::MAX).count(), Some(32768));
        assert_eq!(Credits::new(32), None);
    }

    extern crate std;
    use std::vec::Vec;
}
