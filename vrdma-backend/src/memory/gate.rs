//! Decides whether memory that a device has pinned for other workers may still be copied.

use super::sync::{AtomicBool, AtomicU64, Ordering, spin_loop, yield_now};
use std::time::{Duration, Instant};

/// The gate for a device's pinned regions. Each device has one.
#[derive(Debug, Default)]
pub struct PinGate {
    /// The generation in the upper half, and the number of copies in progress in the lower half.
    ///
    /// The generation is how often the pins were revoked.
    pub state: AtomicU64,
    /// The owner's own fields. They have cache lines that no copying thread takes away.
    pub owner: GateOwner,
}

/// Fields that only the owner's thread writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct GateOwner {
    /// The generation of new pins: how often pins were revoked.
    pub number: AtomicU64,
    /// Something was pinned since the last revocation.
    pub has_pinned: AtomicBool,
    /// A copy from revoked pins took too long, and may still be in progress.
    pub is_kept: AtomicBool,
}

/// The units of [`PinGate::state`]: one copy in progress, and one generation.
const COPIER: u64 = 1;
const GENERATION: u64 = 1 << 32;
/// How long the owner waits for copies in progress. A copy takes some 10 us. A copy that takes
/// longer waits for a page.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// Number of polls after which a waiting owner yields its processor. The copying thread may need
/// it.
const LOOKS: u32 = 1000;

impl PinGate {
    /// Returns the generation for a new pin. Copies from the pin are allowed until the next
    /// [`PinGate::revoke`].
    ///
    /// `None` while a copy from revoked pins is in progress. Only the owner's thread may call this
    /// and `revoke`.
    pub fn pin(&self) -> Option<u64> {
        if self.is_kept() {
            return None;
        }
        self.owner.has_pinned.store(true, Ordering::Relaxed);
        Some(self.owner.number.load(Ordering::Relaxed))
    }

    /// Revokes all pins: no copy from them starts after this.
    ///
    /// It waits for copies in progress, of at most 64 KiB each. Such a copy waits for nothing but
    /// pages of the two guests. Returns false if that takes more than 100 ms. The memory must then
    /// be left as it is.
    #[must_use]
    pub fn revoke(&self) -> bool {
        let mut began = None;
        self.revoke_while(|| began.get_or_insert_with(Instant::now).elapsed() < PATIENCE)
    }

    fn revoke_while(&self, mut may_wait: impl FnMut() -> bool) -> bool {
        if !self.owner.has_pinned.load(Ordering::Relaxed) {
            return !self.is_kept();
        }
        self.owner.has_pinned.store(false, Ordering::Relaxed);
        let mut state = self.state.fetch_add(GENERATION, Ordering::Acquire);
        // The upper half of the state wraps, and so does this number.
        self.owner.number.store((state / GENERATION + 1) % GENERATION, Ordering::Relaxed);
        let mut looks = 0;
        while !state.is_multiple_of(GENERATION) {
            looks += 1;
            match looks % LOOKS {
                0 if !may_wait() => {
                    self.owner.is_kept.store(true, Ordering::Relaxed);
                    return false;
                }
                0 => yield_now(),
                _ => spin_loop(),
            }
            // The reads of all finished copies precede this load.
            state = self.state.load(Ordering::Acquire);
        }
        true
    }

    /// Returns whether a copy from revoked pins may still be in progress.
    fn is_kept(&self) -> bool {
        if !self.owner.is_kept.load(Ordering::Relaxed) {
            return false;
        }
        let is_kept = !self.state.load(Ordering::Acquire).is_multiple_of(GENERATION);
        self.owner.is_kept.store(is_kept, Ordering::Relaxed);
        is_kept
    }

    /// Calls `copy` if pins of this generation are valid. Returns its result.
    #[inline]
    pub fn copying<T>(&self, number: u64, copy: impl FnOnce() -> T) -> Option<T> {
        // Either this thread sees the new generation, or the revoking thread sees this copy.
        let is_valid = self.state.fetch_add(COPIER, Ordering::Acquire) / GENERATION == number;
        let _copy = CopyInProgress(&self.state);
        is_valid.then(copy)
    }
}

/// A copy in progress. The guard also ends it if the copy panics.
struct CopyInProgress<'a>(&'a AtomicU64);

impl Drop for CopyInProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(COPIER, Ordering::Release);
    }
}
