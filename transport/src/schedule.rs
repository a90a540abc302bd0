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

/// QPs that take turns. Each knows whether it is here.
#[derive(Default)]
pub(crate) struct Turns {
    queue: VecDeque<Place>,
    /// How many entries of `queue` are of QPs that are gone.
    stale: usize,
}

impl Turns {
    /// Adds a QP at the end.
    pub(crate) fn push(&mut self, place: Place) {
        self.queue.push_back(place);
    }

    /// Takes the first. It may be gone.
    pub(crate) fn pop(&mut self) -> Option<Place> {
        let place = self.queue.pop_front();
        self.stale = self.stale.min(self.queue.len());
        place
    }

    /// How many wait for their turn, or did and are gone.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// A QP went that is in here. True if so many did that [`Turns::sweep`] is worth its while.
    pub(crate) fn went(&mut self) -> bool {
        self.stale = (self.stale + 1).min(self.queue.len());
        self.stale > 64 && self.stale > self.queue.len() / 2
    }

    /// Forgets those that are gone.
    pub(crate) fn sweep(&mut self, is_there: impl FnMut(&Place) -> bool) {
        self.queue.retain(is_there);
        self.stale = 0;
    }
}

/// Which QPs have work, and which deadlines. QPs know of their entries here.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Those with work that needs no packets.
    pub(crate) local: Turns,
    /// Those with packets to send.
    pub(crate) wire: Turns,
    timers: BTreeSet<(Instant, Place)>,
}

impl Schedule {
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
        (self.local.len() + self.wire.len(), self.timers.len())
    }
}
