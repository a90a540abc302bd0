//! What requests are made of.

/// 64 bytes of a request: what a slot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Unit(
    /// The bytes as little-endian words.
    pub [u64; 8],
);
