//! TERMINATE: the last message of a connection that fails, and why it does (RFC 5040, 4.8).

use super::cause::Code;
use super::ddp;
use super::fault::Fault;
use super::request::READ_LEN;
use crate::rw::Writer;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest TERMINATE, behind the DDP header.
pub const MAX_LEN: usize = 4 + 2 + ddp::UNTAGGED_LEN + READ_LEN;

/// Bits that say what follows, which RFC 5040 calls M, D and R.
mod flag {
    /// The length of the segment is valid.
    pub const LENGTH: u8 = 0x80;
    /// The segment's DDP header is there, behind its length.
    pub const DDP: u8 = 0x40;
    /// Its RDMAP header is there: that of a READ request.
    pub const RDMAP: u8 = 0x20;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawControl {
    /// Layer (4 bits), error type (4 bits).
    layer_etype: u8,
    code: u8,
    /// M, D, R; the rest is reserved, as is the next.
    flags: u8,
    reserved: u8,
}

/// Why a connection ends, and the headers of the segment that it ends for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Why.
    pub code: Code,
    /// The segment that it ends for, if there is one.
    pub segment: Option<Terminated>,
}

/// The headers of a segment for which a connection ends, as they came: they may be what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// Length of the segment.
    length: Option<u16>,
    /// Its DDP header, the first bytes of this.
    ddp: [u8; ddp::UNTAGGED_LEN],
    /// Its RDMAP header, if it is a READ request.
    read: Option<[u8; READ_LEN]>,
}

impl Terminated {
    /// The headers of a segment, which is a ULPDU; with that of the READ request, if it `is_read`
    /// and whole. `None` if it ends within its DDP header.
    ///
    /// # Panics
    /// If it is longer than the ULPDU of an FPDU can be.
    pub fn of(ulpdu: &[u8], is_read: bool) -> Option<Terminated> {
        let (ddp, rest) = split_header(ulpdu)?;
        let length = Some(u16::try_from(ulpdu.len()).expect("a ULPDU is no longer than its length says"));
        let read = if is_read { rest.first_chunk().copied() } else { None };
        Some(Terminated { length, ddp, read })
    }

    /// Length of the segment, if it was said.
    pub fn length(&self) -> Option<u16> {
        self.length
    }

    /// Its DDP header as it came.
    pub fn ddp(&self) -> &[u8] {
        &self.ddp[..ddp::len_by(self.ddp[0])]
    }

    /// The READ request that it was, as it came.
    pub fn read(&self) -> Option<&[u8; READ_LEN]> {
        self.read.as_ref()
    }
}

/// A DDP header, filled up with zeros, and what follows it.
fn split_header(segment: &[u8]) -> Option<([u8; ddp::UNTAGGED_LEN], &[u8])> {
    let (header, rest) = segment.split_at_checked(ddp::len_by(*segment.first()?))?;
    let mut bytes = [0; ddp::UNTAGGED_LEN];
    bytes[..header.len()].copy_from_slice(header);
    Some((bytes, rest))
}

impl Terminate {
    /// Reads what follows the DDP header. The connection has ended whatever else it says: so of
    /// headers that are cut, or that are there without those before them, nothing is taken, and
    /// what follows them does not matter.
    pub(super) fn parse(payload: &[u8]) -> Result<Terminate, Fault> {
        let (raw, rest) = RawControl::ref_from_prefix(payload).map_err(|_| Fault::MessageTooShort)?;
        let code = Code { layer: raw.layer_etype >> 4, etype: raw.layer_etype & 0xf, code: raw.code };
        Ok(Terminate { code, segment: Self::parse_headers(raw.flags, rest) })
    }

    fn parse_headers(flags: u8, rest: &[u8]) -> Option<Terminated> {
        if flags & flag::DDP == 0 {
            return None;
        }
        let (length, rest) = U16::ref_from_prefix(rest).ok()?;
        let (ddp, rest) = split_header(rest)?;
        let length = (flags & flag::LENGTH != 0).then_some(length.get());
        let read = if flags & flag::RDMAP != 0 { rest.first_chunk().copied() } else { None };
        Some(Terminated { length, ddp, read })
    }

    /// Length behind the DDP header.
    pub(super) fn len(&self) -> usize {
        let headers = self.segment.as_ref().map_or(0, |segment| {
            size_of::<U16>() + segment.ddp().len() + if segment.read.is_some() { READ_LEN } else { 0 }
        });
        size_of::<RawControl>() + headers
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) {
        let flags = self.segment.as_ref().map_or(0, |segment| {
            let length = if segment.length.is_some() { flag::LENGTH } else { 0 };
            let rdmap = if segment.read.is_some() { flag::RDMAP } else { 0 };
            length | flag::DDP | rdmap
        });
        let Code { layer, etype, code } = self.code;
        writer.put(&RawControl { layer_etype: layer << 4 | etype & 0xf, code, flags, reserved: 0 });
        if let Some(segment) = &self.segment {
            writer.put(&U16::new(segment.length.unwrap_or(0)));
            writer.put(segment.ddp());
            if let Some(read) = &segment.read {
                writer.put(read);
            }
        }
    }
}
