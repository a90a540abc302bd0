//! When which entry is to be looked at by itself.

use super::handle::Handle;
use std::collections::BTreeSet;
use vrdma_transport::Instant;

/// What an entry has in the set.
#[derive(Debug, Default)]
pub(super) struct Armed(Option<Instant>);

/// See the module.
#[derive(Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Handle)>);

impl Deadlines {
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    /// An entry's deadline is this, and no other.
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

    /// An entry is gone that did not say which deadline it had.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.0.retain(|&(_, other)| other != handle);
    }

    /// Who is due. It stays so until its deadline is another.
    pub(super) fn due(&self, now: Instant) -> Option<Handle> {
        self.0.first().filter(|&&(at, _)| at <= now).map(|&(_, handle)| handle)
    }
}
