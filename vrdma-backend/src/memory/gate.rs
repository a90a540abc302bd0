//! Whether what a device has lent may still be copied.

use super::sync::{AtomicBool, AtomicU64, Ordering, spin_loop, yield_now};
use std::time::{Duration, Instant};

/// See the module; each device has one.
#[derive(Debug, Default)]
pub struct LoanGate {
    /// How often loans were taken back, and, in the lower half, how many are being copied from.
    pub state: AtomicU64,
    /// The lender's own, in lines that nobody who copies takes away from it.
    pub lender: Lender,
}

/// Written by the lender's thread alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Lender {
    /// The number that loans have now: how often they were taken back.
    pub number: AtomicU64,
    /// Something was lent since.
    pub has_lent: AtomicBool,
    /// Somebody copied for too long from what was lent before, and may still.
    pub is_kept: AtomicBool,
}

/// One more that copies, in [`LoanGate::state`], and one more time that loans were taken back.
const COPIER: u64 = 1;
const GENERATION: u64 = 1 << 32;
/// For so long a lender waits for who copies. A copy takes some 10 us; one that takes longer waits
/// for a page.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// Looks after which who waits offers its processor: whoever copies may want it.
const LOOKS: u32 = 1000;

impl LoanGate {
    /// A number that loans have, with which they are let in until the next [`LoanGate::take_back`];
    /// `None` while somebody copies from what was taken back. Called by the lender's thread alone,
    /// as that is.
    pub fn lends(&self) -> Option<u64> {
        if self.is_kept() {
            return None;
        }
        self.lender.has_lent.store(true, Ordering::Relaxed);
        Some(self.lender.number.load(Ordering::Relaxed))
    }

    /// Takes all loans back: nobody begins to copy from them after this. It waits for who is in the
    /// middle of a copy, of at most 64 KiB, which waits for nobody but for pages of either guest.
    /// False if that takes more than 100 ms: then the memory is to be left as it is.
    #[must_use]
    pub fn take_back(&self) -> bool {
        let mut began = None;
        self.take_back_while(|| began.get_or_insert_with(Instant::now).elapsed() < PATIENCE)
    }

    fn take_back_while(&self, mut may_wait: impl FnMut() -> bool) -> bool {
        if !self.lender.has_lent.load(Ordering::Relaxed) {
            return !self.is_kept();
        }
        self.lender.has_lent.store(false, Ordering::Relaxed);
        let mut state = self.state.fetch_add(GENERATION, Ordering::Acquire);
        // As the upper half of the state, which wraps.
        self.lender.number.store((state / GENERATION + 1) % GENERATION, Ordering::Relaxed);
        let mut looks = 0;
        while !state.is_multiple_of(GENERATION) {
            looks += 1;
            match looks % LOOKS {
                0 if !may_wait() => {
                    self.lender.is_kept.store(true, Ordering::Relaxed);
                    return false;
                }
                0 => yield_now(),
                _ => spin_loop(),
            }
            // What was read by then was read before.
            state = self.state.load(Ordering::Acquire);
        }
        true
    }

    /// Whether somebody may still copy from what was taken back.
    fn is_kept(&self) -> bool {
        if !self.lender.is_kept.load(Ordering::Relaxed) {
            return false;
        }
        let is_kept = !self.state.load(Ordering::Acquire).is_multiple_of(GENERATION);
        self.lender.is_kept.store(is_kept, Ordering::Relaxed);
        is_kept
    }

    /// Copies, if loans of this number may be copied from; the result of `copy`.
    #[inline]
    pub fn copying<T>(&self, number: u64, copy: impl FnOnce() -> T) -> Option<T> {
        // Either this sees that loans were taken back, or who takes them back sees this.
        let is_valid = self.state.fetch_add(COPIER, Ordering::Acquire) / GENERATION == number;
        let _within = Within(&self.state);
        is_valid.then(copy)
    }
}

/// Somebody is about to copy. Also who panics leaves.
struct Within<'a>(&'a AtomicU64);

impl Drop for Within<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(COPIER, Ordering::Release);
    }
}
