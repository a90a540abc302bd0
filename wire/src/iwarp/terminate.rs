//! TERMINATE: the last message of a connection that fails, with the reason (RFC 5040, 4.8).

use super::cause::Code;
use super::ddp;
use super::fault::Fault;
use super::request::READ_LEN;
use crate::rw::Writer;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the longest TERMINATE behind the DDP header.
pub const MAX_LEN: usize = 4 + 2 + ddp::UNTAGGED_LEN + READ_LEN;

/// Bits that tell which headers follow. RFC 5040 calls them M, D and R.
mod flag {
    /// The length of the segment is valid.
    pub const LENGTH: u8 = 0x80;
    /// The segment's DDP header follows the length.
    pub const DDP: u8 = 0x40;
    /// The segment's RDMAP header follows: that of a READ request.
    pub const RDMAP: u8 = 0x20;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawControl {
    /// Layer (4 bits), error type (4 bits).
    layer_etype: u8,
    code: u8,
    /// M, D, R; the other bits are reserved, and so is the next byte.
    flags: u8,
    reserved: u8,
}

/// Reason for the end of a connection, and the headers of the segment that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The reason.
    pub code: Code,
    /// The segment that caused it, if there is one.
    pub segment: Option<Terminated>,
}

/// The headers of the segment that ended a connection.
///
/// They are kept as received, because they may be the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// Length of the segment, if the message has it.
    length: Option<u16>,
    /// Its DDP header, in the first bytes of this array.
    ddp: [u8; ddp::UNTAGGED_LEN],
    /// Its RDMAP header, if it is a READ request.
    read: Option<[u8; READ_LEN]>,
}

impl Terminated {
    /// Returns the headers of a segment, which is a ULPDU. Returns `None` if it ends within its DDP
    /// header.
    ///
    /// With `is_read`, the result includes the header of the READ request, if it is complete.
    ///
    /// # Panics
    /// If the segment is longer than the ULPDU of an FPDU can be.
    pub fn of(ulpdu: &[u8], is_read: bool) -> Option<Terminated> {
        let (ddp, rest) = split_header(ulpdu)?;
        let length = Some(u16::try_from(ulpdu.len()).expect("a ULPDU is no longer than its length says"));
        let read = if is_read { rest.first_chunk().copied() } else { None };
        Some(Terminated { length, ddp, read })
    }

    /// Returns the length of the segment, if the message has it.
    pub fn length(&self) -> Option<u16> {
        self.length
    }

    /// Returns its DDP header as received.
    pub fn ddp(&self) -> &[u8] {
        &self.ddp[..ddp::len_by(self.ddp[0])]
    }

    /// Returns the READ request as received, if the segment was one.
    pub fn read(&self) -> Option<&[u8; READ_LEN]> {
        self.read.as_ref()
    }
}

/// Returns a DDP header, filled up with zeros, and the bytes behind it.
fn split_header(segment: &[u8]) -> Option<([u8; ddp::UNTAGGED_LEN], &[u8])> {
    let (header, rest) = segment.split_at_checked(ddp::len_by(*segment.first()?))?;
    let mut bytes = [0; ddp::UNTAGGED_LEN];
    bytes[..header.len()].copy_from_slice(header);
    Some((bytes, rest))
}

impl Terminate {
    /// Reads the bytes behind the DDP header.
    ///
    /// The connection has ended, whatever else the message says. So headers that are truncated, or
    /// whose predecessors are missing, are ignored. Bytes behind the headers are ignored, too.
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

    /// Returns the length behind the DDP header.
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
