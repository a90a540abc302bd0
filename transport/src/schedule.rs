//! Which QPs have work, and which deadlines.

use crate::id::DeviceId;
use crate::time::Instant;
use std::collections::{BTreeSet, VecDeque};
use vrdma_wire::num::Qpn;

/// A QP of some device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) qpn: Qpn,
}

impl Place {
    pub(crate) fn id(self) -> DeviceId {
        DeviceId(self.device)
    }
}

/// Which QPs have work, and which deadlines. QPs know of their entries here.
#[derive(Default)]
pub(crate) struct Schedule {
    ready: VecDeque<Place>,
    /// How many entries of `ready` are of QPs that are gone.
    stale: usize,
    timers: BTreeSet<(Instant, Place)>,
}

impl Schedule {
    /// Adds a QP to the end of those that have work.
    pub(crate) fn push(&mut self, place: Place) {
        self.ready.push_back(place);
    }

    /// Takes the first QP that has work. It may be gone.
    pub(crate) fn pop(&mut self) -> Option<Place> {
        let place = self.ready.pop_front();
        self.stale = self.stale.min(self.ready.len());
        place
    }

    /// Whether any QP has work.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A QP went that was among the ready. True if so many did that [`Schedule::sweep`] is worth its while.
    pub(crate) fn went(&mut self) -> bool {
        self.stale = (self.stale + 1).min(self.ready.len());
        self.stale > 64 && self.stale > self.ready.len() / 2
    }

    /// Forgets those that are gone.
    pub(crate) fn sweep(&mut self, is_there: impl FnMut(&Place) -> bool) {
        self.ready.retain(is_there);
        self.stale = 0;
    }

    pub(crate) fn arm(&mut self, at: Instant, place: Place) {
        self.timers.insert((at, place));
    }

    pub(crate) fn disarm(&mut self, at: Instant, place: Place) {
        self.timers.remove(&(at, place));
    }

    /// Takes the first timer that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Place> {
        let first = self.timers.first()?;
        if first.0 > now {
            return None;
        }
        self.timers.pop_first().map(|timer| timer.1)
    }

    /// The first deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|timer| timer.0)
    }

    /// How many entries there are: ready and timers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.ready.len(), self.timers.len())
    }
}
