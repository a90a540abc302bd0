//! What tells a shared receive queue from those that have its number later.

use crate::base::id::SrqId;
use core::num::NonZeroU64;

/// A shared receive queue, and not another that has its number later: the number, and above it how
/// many had been made before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SrqRef(NonZeroU64);

impl SrqRef {
    /// The one with that number; `made`, at least 1, is never the same for two. (No device makes
    /// 2^40.)
    pub(crate) fn new(id: SrqId, made: u64) -> SrqRef {
        SrqRef(NonZeroU64::new(made << 24 | u64::from(id.0)).expect("the first that is made is number 1"))
    }

    /// Its number.
    #[inline]
    pub(crate) fn id(self) -> SrqId {
        SrqId(self.0.get() as u32 & 0xff_ffff)
    }
}
