//! QPs and devices that wait for a time before they have a turn.
//!
//! QPs that wait alone stand before the round. When its time has come, a QP goes into the queue of
//! its device.

use crate::agenda::rates::Flow;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use vrdma_wire::num::Qpn;

/// A hold: a device has no turns in one direction.
#[derive(Copy, Clone)]
pub(super) struct Hold {
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Whose rate is used up.
    pub(super) flow: Flow,
}

/// The queue of QPs by time. Each QP is in it at most once.
#[derive(Default)]
pub(super) struct Delays {
    times: BTreeSet<(Instant, QpRef)>,
    of: BTreeMap<QpRef, Instant>,
}

impl Delays {
    /// Adds a QP. If it waits already, it waits for the new time.
    pub(super) fn insert(&mut self, place: QpRef, at: Instant) {
        self.remove(place);
        self.times.insert((at, place));
        self.of.insert(place, at);
    }

    /// Removes a QP. Returns whether it waited.
    pub(super) fn remove(&mut self, place: QpRef) -> bool {
        let at = self.of.remove(&place);
        at.is_some_and(|at| self.times.remove(&(at, place)))
    }

    /// Removes and returns the first QP whose time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<QpRef> {
        let &(at, place) = self.times.first()?;
        (at <= now).then(|| {
            self.remove(place);
            place
        })
    }

    /// Returns the time of the first QP.
    pub(super) fn first(&self) -> Option<Instant> {
        self.times.first().map(|&(at, _)| at)
    }

    /// Returns the QPs of a device, in the order of their numbers.
    pub(super) fn of_device(&self, device: u32) -> impl Iterator<Item = QpRef> {
        let first = QpRef { device, qpn: Qpn::truncate(0) };
        self.of.range(first..).map(|(place, _)| *place).take_while(move |place| place.device == device)
    }

    /// Removes the QPs of a device.
    pub(super) fn forget(&mut self, device: u32) {
        let gone: Vec<QpRef> = self.of_device(device).collect();
        gone.into_iter().for_each(|place| {
            self.remove(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: u32, qpn: u32) -> QpRef {
        QpRef { device, qpn: Qpn::truncate(qpn) }
    }

    #[test]
    fn qps_leave_when_their_time_has_come_in_the_order_of_time() {
        let mut later = Delays::default();
        for (at, device, qpn) in [(30, 0, 1), (10, 1, 1), (20, 0, 2), (10, 0, 3)] {
            later.insert(place(device, qpn), Instant(at));
        }
        // A QP that waits already waits for another time.
        later.insert(place(0, 1), Instant(5));
        assert_eq!((later.first(), later.pop_due(Instant(4))), (Some(Instant(5)), None));
        let due: Vec<_> = std::iter::from_fn(|| later.pop_due(Instant(10))).collect();
        assert_eq!(due, [place(0, 1), place(0, 3), place(1, 1)]);
        assert!(later.remove(place(0, 2)) && !later.remove(place(0, 2)));
        assert_eq!((later.first(), later.pop_due(Instant(u64::MAX))), (None, None));
    }

    #[test]
    fn a_device_that_is_forgotten_leaves_those_of_others() {
        let mut later = Delays::default();
        for (device, qpn) in [(0, 1), (1, 7), (1, 8), (2, 1)] {
            later.insert(place(device, qpn), Instant(u64::from(qpn)));
        }
        assert_eq!(later.of_device(1).collect::<Vec<_>>(), [place(1, 7), place(1, 8)]);
        later.forget(1);
        assert_eq!(later.of_device(1).count(), 0);
        let due: Vec<_> = std::iter::from_fn(|| later.pop_due(Instant(9))).collect();
        assert_eq!(due, [place(0, 1), place(2, 1)]);
    }
}
