//! The unit of which requests consist.

/// 64 bytes of a request: the content of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Unit(
    /// The bytes as little-endian words.
    pub [u64; 8],
);
