//! The outstanding requests of a queue, and their wr_ids.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The outstanding requests of one send queue or one receive queue, oldest first.
///
/// One side posts ([`Self::next`], [`Self::push`], [`Self::take_back`]), and one completes
/// ([`Self::complete`]). The sides may be two threads. Two threads on one side at a time must
/// exclude each other, or requests get mixed up (nothing worse).
///
/// A free-running 32-bit counter numbers the requests. This number is the request's wqe_id.
/// Completions come in the order of posting. So a completion also retires all older requests, which
/// are unsignaled ones that succeeded.
///
/// `S` holds the wr_ids, a power of two of them. It is for instance a `Box<[AtomicU64]>` or a
/// static slice.
#[derive(Debug)]
pub struct WrRing<S> {
    /// The wqe_id of the next request. The posting side writes it.
    head: AtomicU32,
    /// The wqe_id of the oldest request that is not retired. The completing side writes it.
    tail: AtomicU32,
    limit: u32,
    wr_ids: S,
}

impl<S: AsRef<[AtomicU64]>> WrRing<S> {
    /// Creates a queue for `limit` outstanding requests; with 0 it takes none.
    ///
    /// Returns `None` if there are fewer `wr_ids`, or their number is not a power of two up to
    /// 2^31.
    pub fn new(wr_ids: S, limit: u32) -> Option<Self> {
        let len = wr_ids.as_ref().len();
        let fits = len.is_power_of_two() && len <= 1 << 31 && limit as usize <= len;
        fits.then_some(Self { head: AtomicU32::new(0), tail: AtomicU32::new(0), limit, wr_ids })
    }

    /// Returns how many wr_ids a queue of `limit` requests needs.
    pub const fn storage_len(limit: u32) -> usize {
        (limit as usize).next_power_of_two()
    }

    /// Returns the wqe_id of the next request, or `None` if the limit of outstanding requests is
    /// reached.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: the number is taken by `push`")]
    pub fn next(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: the completing side has read the wr_id that push() will overwrite.
        let outstanding = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        (outstanding < self.limit).then_some(head)
    }

    /// Adds the request whose wqe_id [`Self::next`] returned.
    ///
    /// This must happen before the device can see the request.
    #[inline]
    pub fn push(&self, wr_id: u64) {
        let head = self.head.load(Ordering::Relaxed);
        if let Some(slot) = self.slot(head) {
            slot.store(wr_id, Ordering::Relaxed);
        }
        // Release: the completing side reads the wr_id that was just stored.
        self.head.store(head.wrapping_add(1), Ordering::Release);
    }

    /// Removes the `count` youngest requests, which the device has never seen.
    ///
    /// If the device claims to have completed some of them, those are already gone.
    pub fn take_back(&self, count: u32) {
        let head = self.head.load(Ordering::Relaxed);
        let outstanding = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        self.head.store(head.wrapping_sub(count.min(outstanding)), Ordering::Release);
    }

    /// Retires the request `wqe_id` and all older ones, and returns its wr_id.
    ///
    /// Returns `None` if no such request is outstanding.
    #[inline]
    pub fn complete(&self, wqe_id: u32) -> Option<u64> {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        if wqe_id.wrapping_sub(tail) >= head.wrapping_sub(tail) {
            return None;
        }
        let wr_id = self.slot(wqe_id)?.load(Ordering::Relaxed);
        self.tail.store(wqe_id.wrapping_add(1), Ordering::Release);
        Some(wr_id)
    }

    /// Returns the number of outstanding requests.
    pub fn outstanding(&self) -> u32 {
        self.head.load(Ordering::Acquire).wrapping_sub(self.tail.load(Ordering::Acquire))
    }

    /// Removes all outstanding requests, because the QP went to RESET.
    ///
    /// wqe_ids continue to count, so late completions of removed requests do not match new ones.
    /// Neither side may be active.
    pub fn reset(&self) {
        self.tail.store(self.head.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Returns the maximum number of outstanding requests.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    #[inline]
    fn slot(&self, wqe_id: u32) -> Option<&AtomicU64> {
        let wr_ids = self.wr_ids.as_ref();
        wr_ids.get(wqe_id as usize & wr_ids.len().wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests;
