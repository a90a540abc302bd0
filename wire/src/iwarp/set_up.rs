//! Requests and replies of connection set-up (RFC 5044, 7.1.1), with the additions of RFC 6581.

use super::fault::Fault;
use crate::rw::Writer;
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes of private data, those of the enhanced set-up included.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Length of the longest request or reply.
pub const MAX_LEN: usize = HEADER_LEN + MAX_PRIVATE_DATA;

const HEADER_LEN: usize = 20;
const KEY_LEN: usize = 16;
const REQUEST_KEY: [u8; KEY_LEN] = *b"MPA ID Req Frame";
const REPLY_KEY: [u8; KEY_LEN] = *b"MPA ID Rep Frame";

mod flag {
    pub const MARKERS: u8 = 0x80;
    pub const CRC: u8 = 0x40;
    pub const REJECT: u8 = 0x20;
    /// Flag of RFC 6581; reserved in revision 1.
    pub const ENHANCED: u8 = 0x10;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    key: [u8; KEY_LEN],
    /// M, C, R, S; the other bits are reserved.
    flags: u8,
    revision: u8,
    private_data_length: U16,
}

/// The first bytes of the private data in an enhanced set-up.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEnhanced {
    /// A, B, IRD (14 bits).
    ird: U16,
    /// C, D, ORD (14 bits).
    ord: U16,
}

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUpKind {
    /// The side that connected sends a request.
    Request,
    /// The side that listened sends a reply.
    Reply,
}

/// A request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetUp<'a> {
    /// Request or reply.
    pub kind: SetUpKind,
    /// The sender wants markers in the FPDUs that it receives (M).
    pub markers: bool,
    /// The sender wants CRCs, which are then used in both directions (C).
    pub crc: bool,
    /// A reply refuses the connection (R). Without meaning in a request.
    pub reject: bool,
    /// The revision, with its additional fields.
    pub revision: Revision,
    /// Private data of the programs.
    pub private_data: &'a [u8],
}

/// The revision of a request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581, with enhanced set-up or without (S).
    Two(Option<Enhanced>),
}

/// The values that RFC 6581 negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// READ requests that the sender of this message answers at once.
    pub ird: Depth,
    /// READ requests that the sender of this message has outstanding.
    pub ord: Depth,
    /// Peer-to-peer model (A). Either side may send first, so the initiator begins with a
    /// ready-to-receive message (RTR).
    pub peer_to_peer: bool,
    /// Kinds of messages that may be the RTR, or the one that is.
    pub rtr: Rtr,
}

/// Kinds of ready-to-receive messages: those that the initiator offers, or the one that the
/// responder chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtr {
    /// An FPDU without a ULPDU (B).
    pub fpdu: bool,
    /// A WRITE of no bytes (C).
    pub write: bool,
    /// A READ of no bytes (D).
    pub read: bool,
}

/// A number of READs, in 14 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u16);

impl Depth {
    /// The number is not negotiated by this message.
    pub const AUTOMATIC: Depth = Depth(0x3fff);

    /// Returns the depth of this number, or `None` if it exceeds the maximum of 16382.
    pub const fn new(count: u16) -> Option<Depth> {
        if count < Self::AUTOMATIC.0 { Some(Depth(count)) } else { None }
    }

    /// Returns the number, or `None` for [`AUTOMATIC`](Self::AUTOMATIC).
    pub const fn count(self) -> Option<u16> {
        if self.0 == Self::AUTOMATIC.0 { None } else { Some(self.0) }
    }
}

const HIGH: u16 = 0x8000;
const SECOND: u16 = 0x4000;

impl Enhanced {
    /// Reads the values at the front of the private data. Returns them, and the rest.
    fn parse(private_data: &[u8]) -> Result<(Enhanced, &[u8]), Fault> {
        let (raw, rest) = RawEnhanced::ref_from_prefix(private_data).map_err(|_| Fault::EnhancedLength)?;
        let (ird, ord) = (raw.ird.get(), raw.ord.get());
        let depth = |word: u16| Depth(word & Depth::AUTOMATIC.0);
        let rtr = Rtr { fpdu: ird & SECOND != 0, write: ord & HIGH != 0, read: ord & SECOND != 0 };
        let peer_to_peer = ird & HIGH != 0;
        Ok((Enhanced { ird: depth(ird), ord: depth(ord), peer_to_peer, rtr }, rest))
    }

    fn raw(&self) -> RawEnhanced {
        let bits = |high: bool, second: bool| if high { HIGH } else { 0 } | if second { SECOND } else { 0 };
        RawEnhanced {
            ird: (self.ird.0 | bits(self.peer_to_peer, self.rtr.fpdu)).into(),
            ord: (self.ord.0 | bits(self.rtr.write, self.rtr.read)).into(),
        }
    }
}

impl<'a> SetUp<'a> {
    /// Reads a request or reply at the front of a stream. Returns it, and its length in bytes.
    ///
    /// Returns `None` while it is incomplete, if the bytes may be the beginning of one.
    pub fn parse(stream: &'a [u8]) -> Result<Option<(SetUp<'a>, usize)>, Fault> {
        let key = &stream[..stream.len().min(KEY_LEN)];
        let kind = match () {
            () if REQUEST_KEY.starts_with(key) => SetUpKind::Request,
            () if REPLY_KEY.starts_with(key) => SetUpKind::Reply,
            () => return Err(Fault::Key),
        };
        let Ok((raw, rest)) = RawHeader::ref_from_prefix(stream) else { return Ok(None) };
        if !matches!(raw.revision, 1 | 2) {
            return Err(Fault::Revision);
        }
        let length = usize::from(raw.private_data_length.get());
        if length > MAX_PRIVATE_DATA {
            return Err(Fault::PrivateDataLength);
        }
        let Some(mut private_data) = rest.get(..length) else { return Ok(None) };
        let has = |flag: u8| raw.flags & flag != 0;
        let revision = match raw.revision {
            1 => Revision::One,
            _ if has(flag::ENHANCED) => {
                let (enhanced, rest) = Enhanced::parse(private_data)?;
                private_data = rest;
                Revision::Two(Some(enhanced))
            }
            _ => Revision::Two(None),
        };
        let (markers, crc, reject) = (has(flag::MARKERS), has(flag::CRC), has(flag::REJECT));
        let set_up = SetUp { kind, markers, crc, reject, revision, private_data };
        Ok(Some((set_up, HEADER_LEN + length)))
    }

    /// Writes the message to the front of `buf`. Returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than the message ([`MAX_LEN`] is always enough). If the private data
    /// exceeds [`MAX_PRIVATE_DATA`], the enhanced set-up's included.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let (revision, enhanced) = match self.revision {
            Revision::One => (1, None),
            Revision::Two(enhanced) => (2, enhanced.map(|enhanced| enhanced.raw())),
        };
        let length = self.private_data.len() + if enhanced.is_some() { size_of::<RawEnhanced>() } else { 0 };
        assert!(length <= MAX_PRIVATE_DATA, "private data is within what a request may have");
        let key = match self.kind {
            SetUpKind::Request => REQUEST_KEY,
            SetUpKind::Reply => REPLY_KEY,
        };
        let flags = [
            (self.markers, flag::MARKERS),
            (self.crc, flag::CRC),
            (self.reject, flag::REJECT),
            (enhanced.is_some(), flag::ENHANCED),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
        let mut writer = Writer::new(buf);
        writer.put(&RawHeader { key, flags, revision, private_data_length: (length as u16).into() });
        if let Some(enhanced) = enhanced {
            writer.put(&enhanced);
        }
        writer.put(self.private_data);
        writer.len()
    }
}
