//! The header of a TCP segment (RFC 9293, 3.1), and its checksum.
//!
//! A segment is the payload of an IP packet. [`TcpHeader::parse`] reads it as a value, [`is_sound`]
//! checks its checksum, [`TcpHeader::emit`] writes it.

mod malformed;
mod options;
mod packet;

pub use malformed::Malformed;
pub use options::{Options, Sacks};
pub use packet::{TcpDrop, TcpPacket};

use crate::checksum::{Sum, pseudo_header};
use crate::num::Gid;
use core::ops::{BitOr, BitOrAssign};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol number of TCP in IP.
pub const PROTOCOL: u8 = 6;
/// Length of a header without options.
pub const MIN_LEN: usize = 20;
/// Position of the checksum in the header.
const CHECKSUM: core::ops::Range<usize> = 16..18;
/// Length of the longest header. The length field has 4 bits, in units of 4 bytes.
pub const MAX_LEN: usize = 60;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTcp {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    /// 4 bits of data offset, 4 reserved bits, 8 control bits.
    offset_flags: U16,
    window: U16,
    checksum: U16,
    urgent: U16,
}

/// The control bits (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// The header of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte of data, or of the SYN before it.
    pub seq: u32,
    /// The next sequence number that the sender expects, if [`Flags::ACK`] is set.
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window as written in the header, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

impl TcpHeader {
    /// Reads the header of a segment, the whole payload of an IP packet. Returns the header, and
    /// the data.
    ///
    /// The checksum is not checked; see [`is_sound`].
    pub fn parse(segment: &[u8]) -> Result<(TcpHeader, &[u8]), Malformed> {
        let (raw, _) = RawTcp::ref_from_prefix(segment).map_err(|_| Malformed::Truncated)?;
        let length = usize::from(raw.offset_flags.get() >> 12) * 4;
        if length < MIN_LEN {
            return Err(Malformed::DataOffset);
        }
        let options = segment.get(MIN_LEN..length).ok_or(Malformed::Truncated)?;
        let header = TcpHeader {
            src_port: raw.src_port.get(),
            dst_port: raw.dst_port.get(),
            seq: raw.seq.get(),
            ack: raw.ack.get(),
            flags: Flags(raw.offset_flags.get() as u8),
            window: raw.window.get(),
            urgent: raw.urgent.get(),
            options: Options::parse(options)?,
        };
        Ok((header, &segment[length..]))
    }

    /// Returns the length of the header with its options: a multiple of 4.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        MIN_LEN + self.options.len()
    }

    /// Writes the header of a segment to the front of `buf`. Returns its length.
    ///
    /// `src` and `dst` are its addresses; IPv4's are mapped. `data` is the sum of its data.
    ///
    /// # Panics
    /// If `buf` is shorter than the header.
    pub fn emit(&self, src: Gid, dst: Gid, data: Sum, buf: &mut [u8]) -> usize {
        let head = self.emit_blank(buf);
        let length = head.len();
        let mut sum = pseudo_header(src, dst, PROTOCOL, length + data.len());
        sum.add(head);
        sum.append(data);
        head[CHECKSUM].copy_from_slice(&sum.finish().to_be_bytes());
        length
    }

    /// Writes the header of a segment with `data` bytes of data, with an open checksum. Returns its
    /// length.
    ///
    /// The sender of the frame completes the checksum. The header has the sum of the pseudo header
    /// in its place.
    ///
    /// # Panics
    /// If `buf` is shorter than the header.
    pub fn emit_open(&self, src: Gid, dst: Gid, data: usize, buf: &mut [u8]) -> usize {
        let head = self.emit_blank(buf);
        let length = head.len();
        let sum = pseudo_header(src, dst, PROTOCOL, length + data);
        head[CHECKSUM].copy_from_slice(&(!sum.finish()).to_be_bytes());
        length
    }

    /// Writes the header with a checksum of 0, and returns it.
    fn emit_blank<'a>(&self, buf: &'a mut [u8]) -> &'a mut [u8] {
        let length = self.len();
        let head = &mut buf[..length];
        let raw = RawTcp {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            seq: self.seq.into(),
            ack: self.ack.into(),
            offset_flags: ((length as u16 / 4) << 12 | u16::from(self.flags.0)).into(),
            window: self.window.into(),
            checksum: U16::ZERO,
            urgent: self.urgent.into(),
        };
        head[..MIN_LEN].copy_from_slice(raw.as_bytes());
        self.options.emit(&mut head[MIN_LEN..]);
        head
    }
}

/// Returns whether the checksum of a segment between these addresses is correct.
pub fn is_sound(src: Gid, dst: Gid, segment: &[u8]) -> bool {
    is_sum_sound(src, dst, Sum::of(segment))
}

/// Returns whether the checksum of a segment with this sum is correct.
fn is_sum_sound(src: Gid, dst: Gid, segment: Sum) -> bool {
    let mut sum = pseudo_header(src, dst, PROTOCOL, segment.len());
    sum.append(segment);
    sum.finish() == 0
}

#[cfg(test)]
mod tests;
