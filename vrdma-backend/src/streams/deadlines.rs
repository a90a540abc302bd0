//! The deadlines of connections and listeners.

use super::handle::Handle;
use std::collections::BTreeSet;
use vrdma_transport::Instant;

/// The deadline that an entry has in the set.
#[derive(Debug, Default)]
pub(super) struct Armed(Option<Instant>);

/// The set of deadlines.
#[derive(Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Handle)>);

impl Deadlines {
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Sets the only deadline of an entry.
    pub(super) fn set(&mut self, handle: Handle, armed: &mut Armed, at: Option<Instant>) {
        if armed.0 == at {
            return;
        }
        if let Some(before) = armed.0 {
            self.0.remove(&(before, handle));
        }
        self.0.extend(at.map(|at| (at, handle)));
        armed.0 = at;
    }

    /// Removes the deadline of an entry that is gone without having cleared it.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.0.retain(|&(_, other)| other != handle);
    }

    /// Returns an entry whose deadline has passed. It stays due until it gets another deadline.
    pub(super) fn due(&self, now: Instant) -> Option<Handle> {
        self.0.first().filter(|&&(at, _)| at <= now).map(|&(_, handle)| handle)
    }
}
