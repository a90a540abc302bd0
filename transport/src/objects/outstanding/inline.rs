//! Inline data in the slot of a send. Its first bytes are where an element would be.

use crate::verbs::request::Sge;
use vrdma_wire::num::Lkey;

/// Bytes of inline data in the slot of a send. Further bytes are in further nodes.
pub(super) const FIRST_BYTES: usize = 16;

/// Packs the first bytes of inline data into an element.
pub(super) fn to_first(bytes: [u8; FIRST_BYTES]) -> Sge {
    let bits = u128::from_le_bytes(bytes);
    Sge { addr: bits as u64, length: (bits >> 64) as u32, lkey: Lkey((bits >> 96) as u32) }
}

/// Unpacks the bytes that [`to_first`] packed.
pub(super) fn first_bytes(first: &Sge) -> [u8; FIRST_BYTES] {
    let Sge { addr, length, lkey } = *first;
    let bits = u128::from(addr) | u128::from(length) << 64 | u128::from(lkey.0) << 96;
    bits.to_le_bytes()
}
