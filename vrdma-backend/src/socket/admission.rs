//! Whether a socket lets new front-ends in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a socket lets new front-ends in. Those that are there stay.
///
/// Clones are one: a change of one is a change of all.
#[derive(Clone, Debug, Default)]
pub struct Admission(Arc<Closed>);

/// Why no front-end is let in.
#[derive(Debug, Default)]
struct Closed {
    /// The daemon drains.
    drains: AtomicBool,
    /// The guest is about to be removed.
    leaves: AtomicBool,
}

impl Admission {
    /// Returns why no new front-end is let in, as messages say it; `None` if they are let in.
    pub fn refusal(&self) -> Option<&'static str> {
        if self.0.leaves.load(Ordering::SeqCst) {
            Some("the guest is about to be removed")
        } else if self.0.drains.load(Ordering::SeqCst) {
            Some("the daemon drains (vrdma-ctl resume)")
        } else {
            None
        }
    }

    /// Whether new front-ends are let in.
    pub fn is_open(&self) -> bool {
        self.refusal().is_none()
    }

    /// Sets whether the daemon drains.
    pub fn set_draining(&self, drains: bool) {
        self.0.drains.store(drains, Ordering::SeqCst);
    }

    /// Sets whether the guest is about to be removed.
    pub fn set_leaving(&self, leaves: bool) {
        self.0.leaves.store(leaves, Ordering::SeqCst);
    }
}
