//! Save and restore: a whole engine as a [`Record`](crate::Record), and back.
//!
//! [`record`] is the format. Each module writes and reads its own state in a submodule `save`, so
//! no other module knows its fields. A record is checked like input from a guest. A record that no
//! engine wrote is refused with a [`Violation`], or results in a valid engine.

mod error;
pub(crate) mod fields;
mod names;
pub mod record;

pub use error::{RestoreError, Violation};

use crate::base::time::{Instant, NEVER};
use vrdma_wire::num::{Mtu, Psn, Qpn, Rkey};
use vrdma_wire::roce::Reth;

/// Converts between an enum of the engine and the record's enum of the same name, which has the
/// same variants.
macro_rules! same_names {
    ($name:ident { $($variant:ident),* $(,)? }) => {
        impl From<$name> for $crate::save::record::$name {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => Self::$variant,)*
                }
            }
        }

        impl From<$crate::save::record::$name> for $name {
            fn from(value: $crate::save::record::$name) -> Self {
                match value {
                    $($crate::save::record::$name::$variant => Self::$variant,)*
                }
            }
        }
    };
}
pub(crate) use same_names;

same_names!(Mtu { M256, M512, M1024, M2048, M4096 });

/// Converts a deadline for the record. [`NEVER`] becomes `None`.
pub(crate) fn deadline(at: Instant) -> Option<u64> {
    (at != NEVER).then_some(at.0)
}

/// Converts a deadline from the record.
pub(crate) fn to_deadline(at: Option<u64>) -> Result<Instant, Violation> {
    match at {
        None => Ok(NEVER),
        Some(at) if at < NEVER.0 => Ok(Instant(at)),
        Some(_) => Err(Violation::Time),
    }
}

/// Converts a PSN from the record.
pub(crate) fn to_psn(number: u32) -> Result<Psn, Violation> {
    Psn::new(number).ok_or(Violation::Psn)
}

/// Converts a QPN from the record.
pub(crate) fn to_qpn(number: u32) -> Result<Qpn, Violation> {
    Qpn::new(number).ok_or(Violation::Psn)
}

impl From<Reth> for record::Reth {
    fn from(reth: Reth) -> record::Reth {
        record::Reth { va: reth.va, rkey: reth.rkey.0, length: reth.length }
    }
}

impl From<&record::Reth> for Reth {
    fn from(reth: &record::Reth) -> Reth {
        Reth { va: reth.va, rkey: Rkey(reth.rkey), length: reth.length }
    }
}
