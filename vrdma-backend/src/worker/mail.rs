//! The flag that saves the worker from checking its inbox in each round.

use super::sync::{AtomicBool, Ordering};

/// Whether there may be messages in the inbox.
#[derive(Debug)]
pub struct Mail {
    /// Set if there may be messages: see [`Mail::may_be_there`].
    pub flag: AtomicBool,
}

impl Mail {
    /// Announces a message. The sender calls this after it has put the message into the inbox.
    pub fn announce(&self) {
        // Not a store. The worker that takes the flag has to see the messages of all senders that
        // announced theirs, not only of the last one.
        self.flag.swap(true, Ordering::Release);
    }

    /// Whether there may be messages.
    pub fn may_be_there(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Clears the flag before the worker checks the inbox.
    ///
    /// Announced messages are visible after that. A sender whose message comes meanwhile announces
    /// again.
    pub fn take(&self) {
        self.flag.swap(false, Ordering::AcqRel);
    }
}
