//! Whether a worker sleeps: who sends to it wakes it only then, so that frames between busy workers
//! take no system call.

use super::sync::{AtomicBool, Ordering, fence};

/// See the module.
#[derive(Debug)]
pub struct Sleeper {
    /// [`Sleeper::is_to_be_woken`]
    pub asleep: AtomicBool,
}

impl Sleeper {
    /// The worker is about to sleep. It looks at its rings once more after this, and then sleeps.
    pub fn sleeps(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // Either this worker sees what was published, or who published it sees that this worker
        // sleeps.
        fence(Ordering::SeqCst);
    }

    /// It is awake.
    pub fn is_awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// After something was published: whether the worker has to be woken, which is the caller's to
    /// do then.
    pub fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }
}
