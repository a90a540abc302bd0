//! The lock of a completion queue, which a program may turn off.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::cq::Ring;
use crate::errno::{lock, try_lock};

/// Value of `poller` if no thread has started a poll.
const NOBODY: usize = 0;

/// A CQ ring and its lock.
///
/// Each poll and each arm takes the lock, unless the program has promised that a single thread uses
/// the queue (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
pub struct RingLock {
    mutex: Mutex<()>,
    is_shared: bool,
    /// The thread that holds the lock from ibv_start_poll() to ibv_end_poll(), or [`NOBODY`].
    poller: AtomicUsize,
    ring: UnsafeCell<Ring>,
}

// SAFETY: the ring is used under the lock, or by a single thread, as the program has promised. Its
// contents may move to other threads.
unsafe impl Sync for RingLock {}

impl RingLock {
    /// Makes the lock of `ring`.
    ///
    /// # Safety
    /// If it is not shared, a single thread at a time uses the queue and all QPs that use it.
    pub unsafe fn new(ring: Ring, is_shared: bool) -> Self {
        let poller = AtomicUsize::new(NOBODY);
        Self { mutex: Mutex::new(()), is_shared, poller, ring: UnsafeCell::new(ring) }
    }

    /// Locks the ring.
    ///
    /// A thread that has started a poll has the lock already, and does not wait for itself. Between
    /// ibv_start_poll() and ibv_end_poll() it may arm the queue, and destroy QPs that use it.
    #[inline]
    pub fn lock(&self) -> RingGuard<'_> {
        let held = if self.is_shared { self.acquire() } else { None };
        RingGuard { lock: self, held }
    }

    /// Locks the ring for a poll that this thread starts. Returns `None` if it has started one
    /// already.
    #[inline]
    pub fn lock_for_poll(&self) -> Option<RingGuard<'_>> {
        let guard = self.lock();
        if self.is_shared {
            guard.held.as_ref()?;
            self.poller.store(this_thread(), Ordering::Relaxed);
        }
        Some(guard)
    }

    /// Whether this thread has started a poll.
    #[inline]
    pub fn is_polled_here(&self) -> bool {
        // Relaxed: only a value that this thread stored itself can be equal.
        self.poller.load(Ordering::Relaxed) == this_thread()
    }

    #[inline]
    fn acquire(&self) -> Option<MutexGuard<'_, ()>> {
        match try_lock(&self.mutex) {
            None => self.acquire_slowly(),
            held => held,
        }
    }

    #[cold]
    fn acquire_slowly(&self) -> Option<MutexGuard<'_, ()>> {
        if self.is_polled_here() { None } else { Some(lock(&self.mutex)) }
    }
}

/// Returns a value that no other living thread has, and that is not 0.
#[inline]
fn this_thread() -> usize {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Access of this thread to a locked ring.
pub struct RingGuard<'a> {
    lock: &'a RingLock,
    /// `None` if the queue is not shared, or if this thread has the lock by a poll that it has
    /// started.
    held: Option<MutexGuard<'a, ()>>,
}

impl RingGuard<'_> {
    /// Ends a poll that was started by [`RingLock::lock_for_poll`].
    #[inline]
    pub fn end_poll(self) {
        self.lock.poller.store(NOBODY, Ordering::Relaxed);
        drop(self);
    }
}

impl Deref for RingGuard<'_> {
    type Target = Ring;

    #[inline]
    fn deref(&self) -> &Ring {
        // SAFETY: under the lock, or by the promise of RingLock::new().
        unsafe { &*self.lock.ring.get() }
    }
}

impl DerefMut for RingGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Ring {
        // SAFETY: under the lock, or by the promise of RingLock::new(). If one thread has two
        // guards, only one is dereferenced at a time: that of a poll is dereferenced only within
        // its own functions.
        unsafe { &mut *self.lock.ring.get() }
    }
}
