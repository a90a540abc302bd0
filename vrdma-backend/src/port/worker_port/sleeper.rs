//! Tells whether a worker sleeps.
//!
//! A sender wakes a worker only if it sleeps. So frames between busy workers take no system call.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether a worker sleeps and has to be woken.
#[derive(Debug)]
pub struct Sleeper {
    /// Set while the worker sleeps and nobody has woken it: see [`Sleeper::is_to_be_woken`].
    pub asleep: AtomicBool,
}

impl Sleeper {
    /// Announces that the worker is about to sleep. The worker polls its rings once more before it
    /// sleeps.
    pub fn sleeps(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // Either this worker sees what was published, or the publisher sees that this worker
        // sleeps.
        fence(Ordering::SeqCst);
    }

    /// Announces that the worker is awake.
    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether the caller has to wake the worker. It is called after something was published.
    pub fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }
}
