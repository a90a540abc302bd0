//! The flag that spares the worker a look at its inbox in each turn.

use super::sync::{AtomicBool, Ordering};

/// Whether there may be messages in the inbox.
#[derive(Debug)]
pub struct Mail {
    /// [`Mail::may_be_there`]
    pub flag: AtomicBool,
}

impl Mail {
    /// A message is in the inbox. Whoever put it there says so afterwards.
    pub fn announce(&self) {
        // Not a store: whoever takes the flag has to see the messages of all who announced theirs,
        // not of the last one alone.
        self.flag.swap(true, Ordering::Release);
    }

    /// Whether there may be messages.
    pub fn may_be_there(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Before the inbox is looked at: what was announced is there to be seen, and who sends
    /// meanwhile announces again.
    pub fn take(&self) {
        self.flag.swap(false, Ordering::AcqRel);
    }
}
