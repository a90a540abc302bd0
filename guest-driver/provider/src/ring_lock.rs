//! The lock of a completion queue, which a program may do without.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use crate::cq::Ring;
use crate::errno::lock;

/// A ring that is locked by each poll and each arm, unless the program has promised that a single thread uses the queue
/// (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
pub struct RingLock {
    mutex: Mutex<()>,
    is_shared: bool,
    ring: UnsafeCell<Ring>,
}

// SAFETY: the ring is used under the lock, or by a single thread, as the program has promised; what it holds may go to other threads.
unsafe impl Sync for RingLock {}

impl RingLock {
    /// # Safety
    /// If it is not shared, a single thread at a time uses the queue, and all QPs that use it.
    pub unsafe fn new(ring: Ring, is_shared: bool) -> Self {
        Self { mutex: Mutex::new(()), is_shared, ring: UnsafeCell::new(ring) }
    }

    /// The ring, for this thread alone.
    #[inline]
    pub fn lock(&self) -> RingGuard<'_> {
        let held = if self.is_shared { Some(lock(&self.mutex)) } else { None };
        RingGuard { ring: &self.ring, _held: held }
    }
}

/// A ring that this thread alone uses.
pub struct RingGuard<'a> {
    ring: &'a UnsafeCell<Ring>,
    _held: Option<MutexGuard<'a, ()>>,
}

impl Deref for RingGuard<'_> {
    type Target = Ring;

    #[inline]
    fn deref(&self) -> &Ring {
        // SAFETY: under the lock, or by the promise of RingLock::new().
        unsafe { &*self.ring.get() }
    }
}

impl DerefMut for RingGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Ring {
        // SAFETY: as above.
        unsafe { &mut *self.ring.get() }
    }
}
