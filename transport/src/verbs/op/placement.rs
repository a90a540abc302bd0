//! What a FLUSH asks for (IBTA annex A19): how far bytes are to get, and which.

use crate::save::same_names;

/// How far bytes are to get that were written before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// All who access the memory see them: global visibility.
    Global,
    /// They are there after a loss of power: persistence.
    Persistent,
    /// Both.
    Both,
}

same_names!(Placement { Global, Persistent, Both });

impl Placement {
    /// From the bits of enum ibv_placement_type, which are those of the placement type on a wire;
    /// `None` for none of them, and for others.
    pub const fn from_bits(bits: u32) -> Option<Placement> {
        Some(match bits {
            1 => Placement::Global,
            2 => Placement::Persistent,
            3 => Placement::Both,
            _ => return None,
        })
    }
}

/// What is flushed, and how far.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlushScope {
    /// How far.
    pub placement: Placement,
    /// All of the region: then address and length mean nothing.
    pub whole: bool,
    /// Bytes from the address on.
    pub length: u32,
}
