//! Requests and responses of READs and atomics (RFC 5040, 4.4; RFC 7306).

use super::fault::Fault;
use super::num::Stag;
use crate::rw::Writer;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a READ request.
pub const READ_LEN: usize = 28;
/// Length of an atomic request.
pub const ATOMIC_LEN: usize = 52;
/// Length of an atomic's response.
pub const ATOMIC_RESPONSE_LEN: usize = 12;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRead {
    sink_stag: U32,
    sink_offset: U64,
    length: U32,
    source_stag: U32,
    source_offset: U64,
}

/// The request of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's buffer, to which the response goes.
    pub sink: Stag,
    /// Position in the requester's buffer.
    pub sink_offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// The responder's buffer.
    pub source: Stag,
    /// Position in the responder's buffer.
    pub source_offset: u64,
}

impl ReadRequest {
    pub(super) fn parse(bytes: &[u8; READ_LEN]) -> Result<ReadRequest, Fault> {
        let raw: &RawRead = zerocopy::transmute_ref!(bytes);
        let request = ReadRequest {
            sink: Stag(raw.sink_stag.get()),
            sink_offset: raw.sink_offset.get(),
            length: raw.length.get(),
            source: Stag(raw.source_stag.get()),
            source_offset: raw.source_offset.get(),
        };
        // A READ of no bytes names no memory.
        let last = u64::from(request.length.saturating_sub(1));
        let wraps = |offset: u64| offset.checked_add(last).is_none();
        if wraps(request.source_offset) || wraps(request.sink_offset) {
            return Err(Fault::ReadOffsetWrap);
        }
        Ok(request)
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawRead {
            sink_stag: self.sink.0.into(),
            sink_offset: self.sink_offset.into(),
            length: self.length.into(),
            source_stag: self.source.0.into(),
            source_offset: self.source_offset.into(),
        });
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAtomic {
    /// 28 reserved bits, and the opcode.
    opcode: U32,
    id: U32,
    stag: U32,
    offset: U64,
    /// The value to add or to store.
    data: U64,
    mask: U64,
    compare: U64,
    compare_mask: U64,
}

/// The request of an atomic operation, of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Identifier that the response returns.
    pub id: u32,
    /// The responder's buffer.
    pub stag: Stag,
    /// Position in it.
    pub offset: u64,
    /// The operation.
    pub op: AtomicOp,
}

/// An atomic operation. Masks select bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Fetch and add.
    FetchAdd {
        /// The value to add.
        add: u64,
        /// Ones at the bits where a carry ends.
        mask: u64,
    },
    /// Swap.
    Swap {
        /// The value to store.
        swap: u64,
        /// Mask of the bits to store.
        mask: u64,
    },
    /// Compare and swap.
    CompareSwap {
        /// The value to store.
        swap: u64,
        /// Mask of the bits to store.
        mask: u64,
        /// The value to compare with.
        compare: u64,
        /// Mask of the bits to compare.
        compare_mask: u64,
    },
}

mod opcode {
    pub const FETCH_ADD: u32 = 0;
    pub const SWAP: u32 = 1;
    pub const COMPARE_SWAP: u32 = 2;
    pub const MASK: u32 = 0xf;
}

impl AtomicRequest {
    pub(super) fn parse(bytes: &[u8; ATOMIC_LEN]) -> Result<AtomicRequest, Fault> {
        let raw: &RawAtomic = zerocopy::transmute_ref!(bytes);
        let (data, mask) = (raw.data.get(), raw.mask.get());
        let op = match raw.opcode.get() & opcode::MASK {
            opcode::FETCH_ADD => AtomicOp::FetchAdd { add: data, mask },
            opcode::SWAP => AtomicOp::Swap { swap: data, mask },
            opcode::COMPARE_SWAP => {
                let (compare, compare_mask) = (raw.compare.get(), raw.compare_mask.get());
                AtomicOp::CompareSwap { swap: data, mask, compare, compare_mask }
            }
            _ => return Err(Fault::AtomicOpcode),
        };
        Ok(AtomicRequest { id: raw.id.get(), stag: Stag(raw.stag.get()), offset: raw.offset.get(), op })
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) {
        let (opcode, data, mask, compare, compare_mask) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (opcode::FETCH_ADD, add, mask, 0, 0),
            AtomicOp::Swap { swap, mask } => (opcode::SWAP, swap, mask, 0, 0),
            AtomicOp::CompareSwap { swap, mask, compare, compare_mask } => {
                (opcode::COMPARE_SWAP, swap, mask, compare, compare_mask)
            }
        };
        writer.put(&RawAtomic {
            opcode: opcode.into(),
            id: self.id.into(),
            stag: self.stag.0.into(),
            offset: self.offset.into(),
            data: data.into(),
            mask: mask.into(),
            compare: compare.into(),
            compare_mask: compare_mask.into(),
        });
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAtomicResponse {
    id: U32,
    original: U64,
}

/// The response of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// Identifier of the request.
    pub id: u32,
    /// The value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    pub(super) fn parse(bytes: &[u8; ATOMIC_RESPONSE_LEN]) -> AtomicResponse {
        let raw: &RawAtomicResponse = zerocopy::transmute_ref!(bytes);
        AtomicResponse { id: raw.id.get(), original: raw.original.get() }
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) {
        writer.put(&RawAtomicResponse { id: self.id.into(), original: self.original.into() });
    }
}
