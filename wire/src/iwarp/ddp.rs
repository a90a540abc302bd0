//! The DDP header (RFC 5041, 4): names the buffer of a segment, and the position in it.

use super::fault::Fault;
use super::num::{Msn, Queue, Stag};
use crate::rw::Writer;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the header of a tagged segment.
pub const TAGGED_LEN: usize = 14;
/// Length of the header of an untagged segment.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTagged {
    /// Tagged, last, 4 reserved bits, version (2 bits).
    control: u8,
    /// Reserved for the upper layer: RDMAP's control byte.
    rdmap: u8,
    stag: U32,
    offset: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawUntagged {
    /// Tagged, last, 4 reserved bits, version (2 bits).
    control: u8,
    /// RDMAP's control byte. This field and the next are reserved for the upper layer.
    ///
    /// The next one is the STag that a SEND invalidates.
    rdmap: u8,
    invalidate: U32,
    queue: U32,
    msn: U32,
    offset: U32,
}

/// The DDP header of a segment, with its fields for RDMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdpHeader {
    /// The segment is the last of its message.
    pub last: bool,
    /// RDMAP's control byte.
    pub rdmap: u8,
    /// Destination of the segment.
    pub target: Target,
}

/// Destination of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A buffer that its owner advertised.
    Tagged {
        /// The buffer.
        stag: Stag,
        /// Position in the buffer: the tagged offset, TO.
        offset: u64,
    },
    /// The next buffer of a queue.
    Untagged {
        /// The queue.
        queue: Queue,
        /// Sequence number of the message in this queue.
        msn: Msn,
        /// Position in the message: the message offset, MO.
        offset: u32,
        /// RDMAP's word: the STag to invalidate, or no meaning.
        invalidate: Stag,
    },
}

impl DdpHeader {
    /// Reads the header at the front of a ULPDU. Returns the header, and the segment's payload.
    pub fn parse(ulpdu: &[u8]) -> Result<(DdpHeader, &[u8]), Fault> {
        let control = *ulpdu.first().ok_or(Fault::SegmentLength)?;
        let last = control & LAST != 0;
        let version_is_ours = control & VERSION_MASK == VERSION;
        if is_tagged(control) {
            if !version_is_ours {
                return Err(Fault::TaggedVersion);
            }
            let (raw, payload) = RawTagged::ref_from_prefix(ulpdu).map_err(|_| Fault::SegmentLength)?;
            let offset = raw.offset.get();
            // The last byte may have the last offset.
            if !payload.is_empty() && offset.checked_add(payload.len() as u64 - 1).is_none() {
                return Err(Fault::TaggedOffsetWrap);
            }
            let target = Target::Tagged { stag: Stag(raw.stag.get()), offset };
            return Ok((DdpHeader { last, rdmap: raw.rdmap, target }, payload));
        }
        if !version_is_ours {
            return Err(Fault::UntaggedVersion);
        }
        let (raw, payload) = RawUntagged::ref_from_prefix(ulpdu).map_err(|_| Fault::SegmentLength)?;
        let queue = Queue::from_number(raw.queue.get()).ok_or(Fault::Queue)?;
        let offset = raw.offset.get();
        // A message has at most 2^32 - 1 bytes.
        if u64::from(offset) + payload.len() as u64 > u64::from(u32::MAX) {
            return Err(Fault::MessageOffset);
        }
        let (msn, invalidate) = (Msn(raw.msn.get()), Stag(raw.invalidate.get()));
        let target = Target::Untagged { queue, msn, offset, invalidate };
        Ok((DdpHeader { last, rdmap: raw.rdmap, target }, payload))
    }

    /// Returns the length of the header.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self.target {
            Target::Tagged { .. } => TAGGED_LEN,
            Target::Untagged { .. } => UNTAGGED_LEN,
        }
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) {
        let control = VERSION | if self.last { LAST } else { 0 };
        match self.target {
            Target::Tagged { stag, offset } => writer.put(&RawTagged {
                control: control | TAGGED,
                rdmap: self.rdmap,
                stag: stag.0.into(),
                offset: offset.into(),
            }),
            Target::Untagged { queue, msn, offset, invalidate } => writer.put(&RawUntagged {
                control,
                rdmap: self.rdmap,
                invalidate: invalidate.0.into(),
                queue: (queue as u32).into(),
                msn: msn.0.into(),
                offset: offset.into(),
            }),
        }
    }
}

/// Returns whether a segment that begins with this byte is tagged.
pub(super) const fn is_tagged(control: u8) -> bool {
    control & TAGGED != 0
}

/// Returns the length of the header of a segment with this first byte, even if the header is
/// invalid.
pub(super) const fn len_by(control: u8) -> usize {
    if is_tagged(control) { TAGGED_LEN } else { UNTAGGED_LEN }
}
