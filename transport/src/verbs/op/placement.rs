//! Parameters of a FLUSH (IBTA annex A19).

use crate::save::fields::Recorded;
use crate::save::{record, same_names};

/// How far a FLUSH brings bytes that were written before it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Global visibility: all who access the memory see them.
    Global,
    /// Persistence: they are there after a loss of power.
    Persistent,
    /// Both.
    Both,
}

same_names!(Placement { Global, Persistent, Both });

impl Recorded for Placement {
    type Plain = record::Placement;

    fn to_plain(self) -> record::Placement {
        self.into()
    }

    fn of_plain(plain: record::Placement) -> Placement {
        plain.into()
    }
}

impl Placement {
    /// Parses the bits of enum `ibv_placement_type`, which are those of the placement type on the
    /// wire.
    ///
    /// Returns `None` if no bit is set, or an unknown one.
    pub const fn from_bits(bits: u32) -> Option<Placement> {
        Some(match bits {
            1 => Placement::Global,
            2 => Placement::Persistent,
            3 => Placement::Both,
            _ => return None,
        })
    }
}

/// What a FLUSH flushes, and how far.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlushScope {
    /// How far.
    pub placement: Placement,
    /// Whether the whole region is flushed. Address and length then mean nothing.
    pub whole: bool,
    /// Number of bytes from the address on.
    pub length: u32,
}
