//! References to shared receive queues that stay different when a number is reused.

use crate::base::id::SrqId;
use core::num::NonZeroU64;

/// A reference to a shared receive queue, which differs from those of later queues with its number.
///
/// The low 24 bits are the number. The bits above count how many queues had been made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SrqRef(NonZeroU64);

impl SrqRef {
    /// Makes the reference to the queue with that number.
    ///
    /// `made` is at least 1, and differs for each queue. (No device makes 2^40.)
    pub(crate) fn new(id: SrqId, made: u64) -> SrqRef {
        SrqRef(NonZeroU64::new(made << 24 | u64::from(id.0)).expect("the first that is made is number 1"))
    }

    /// Returns the number of the queue.
    #[inline]
    pub(crate) fn id(self) -> SrqId {
        SrqId(self.0.get() as u32 & 0xff_ffff)
    }
}
