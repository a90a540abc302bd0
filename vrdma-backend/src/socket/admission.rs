//! Whether a socket lets new front-ends in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a socket lets new front-ends in. Those that are there stay.
///
/// Clones are one: a change of one is a change of all.
#[derive(Clone, Debug)]
pub struct Admission(Arc<AtomicBool>);

impl Default for Admission {
    /// Lets front-ends in.
    fn default() -> Admission {
        Admission(Arc::new(AtomicBool::new(true)))
    }
}

impl Admission {
    /// Whether new front-ends are let in.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets whether new front-ends are let in.
    pub fn set_open(&self, open: bool) {
        self.0.store(open, Ordering::Relaxed);
    }
}
