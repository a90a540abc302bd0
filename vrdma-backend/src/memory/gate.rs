//! Whether what a device has lent may still be copied.

use super::sync::{AtomicBool, AtomicU64, Ordering, spin_loop, yield_now};

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
}

/// One more that copies, in [`LoanGate::state`], and one more time that loans were taken back.
const COPIER: u64 = 1;
const GENERATION: u64 = 1 << 32;
/// Looks after which who waits offers its processor: whoever copies may want it.
const LOOKS: u32 = 1000;

impl LoanGate {
    /// A number that loans have, with which they are let in until the next [`LoanGate::take_back`]. Called by the lender's thread alone, as that is.
    pub fn lends(&self) -> u64 {
        self.lender.has_lent.store(true, Ordering::Relaxed);
        self.lender.number.load(Ordering::Relaxed)
    }

    /// Takes all loans back: nobody copies from them after this. It waits for who is in the middle of a copy, of at most 64 KiB, and waits for nobody.
    pub fn take_back(&self) {
        if !self.lender.has_lent.load(Ordering::Relaxed) {
            return;
        }
        self.lender.has_lent.store(false, Ordering::Relaxed);
        let mut state = self.state.fetch_add(GENERATION, Ordering::Acquire);
        // As the upper half of the state, which wraps.
        self.lender.number.store((state / GENERATION + 1) % GENERATION, Ordering::Relaxed);
        let mut looks = 0;
        while !state.is_multiple_of(GENERATION) {
            looks += 1;
            match looks % LOOKS {
                0 => yield_now(),
                _ => spin_loop(),
            }
            // What was read by then was read before.
            state = self.state.load(Ordering::Acquire);
        }
    }

    /// Copies, if loans of this number may be copied from; the result of `copy`.
    #[inline]
    pub fn copying<T>(&self, number: u64, copy: impl FnOnce() -> T) -> Option<T> {
        // Either this sees that loans were taken back, or who takes them back sees this.
        let is_valid = self.state.fetch_add(COPIER, Ordering::Acquire) / GENERATION == number;
        let copied = is_valid.then(copy);
        self.state.fetch_sub(COPIER, Ordering::Release);
        copied
    }
}
