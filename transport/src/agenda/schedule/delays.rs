//! QPs and devices that wait for a time before they have a turn.
//!
//! QPs that wait alone stand before the round. When its time has come, a QP goes into the queue of
//! its device.

use crate::agenda::rates::Flow;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::objects::qp::Direction;
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

/// What rates mean for the turns of a device in one direction.
#[derive(Default)]
pub(super) struct Restraint {
    pub(super) hold: Option<Hold>,
    /// Whether QPs have waited until a hold ended, and nothing has moved here since. Something may
    /// move then, whatever has moved elsewhere meanwhile.
    pub(super) granted: bool,
    /// Entries that may have a turn before the next hold. They waited when the last one ended.
    pub(super) passes: usize,
}

impl Restraint {
    /// Whether nothing keeps the direction from being held.
    ///
    /// Answers are mostly acknowledges, which move nothing. They are held again once all that
    /// waited have had their turn.
    pub(super) fn may_be_held(&self, direction: Direction) -> bool {
        let waits_to_move = self.granted && direction == Direction::Requests;
        self.hold.is_none() && !waits_to_move && self.passes == 0
    }
}

/// The restraints of a device, of which most devices have none.
#[derive(Default)]
pub(super) struct Restraints {
    answers: Restraint,
    requests: Restraint,
}

impl Restraints {
    pub(super) fn of(&self, direction: Direction) -> &Restraint {
        match direction {
            Direction::Answers => &self.answers,
            Direction::Requests => &self.requests,
        }
    }

    pub(super) fn of_mut(&mut self, direction: Direction) -> &mut Restraint {
        match direction {
            Direction::Answers => &mut self.answers,
            Direction::Requests => &mut self.requests,
        }
    }
}

/// A QP that waits for a turn in a direction.
type Waiter = (QpRef, Direction);

/// The queue of QPs by time. Each QP is in it at most once for each direction.
#[derive(Default)]
pub(super) struct Delays {
    times: BTreeSet<(Instant, Waiter)>,
    of: BTreeMap<Waiter, Instant>,
}

impl Delays {
    /// Adds a QP. If it waits already, it waits for the new time.
    pub(super) fn insert(&mut self, waiter: Waiter, at: Instant) {
        self.remove(waiter);
        self.times.insert((at, waiter));
        self.of.insert(waiter, at);
    }

    /// Removes a QP. Returns whether it waited.
    pub(super) fn remove(&mut self, waiter: Waiter) -> bool {
        let at = self.of.remove(&waiter);
        at.is_some_and(|at| self.times.remove(&(at, waiter)))
    }

    /// Removes and returns the first QP whose time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Waiter> {
        let &(at, waiter) = self.times.first()?;
        (at <= now).then(|| {
            self.remove(waiter);
            waiter
        })
    }

    /// Returns the time of the first QP.
    pub(super) fn first(&self) -> Option<Instant> {
        self.times.first().map(|&(at, _)| at)
    }

    /// Returns the QPs of a device, in the order of their numbers.
    pub(super) fn of_device(&self, device: u32) -> impl Iterator<Item = Waiter> {
        let first = (QpRef { device, qpn: Qpn::truncate(0) }, Direction::Answers);
        let all = self.of.range(first..).map(|(waiter, _)| *waiter);
        all.take_while(move |(place, _)| place.device == device)
    }

    /// Removes the QPs of a device.
    pub(super) fn forget(&mut self, device: u32) {
        let gone: Vec<Waiter> = self.of_device(device).collect();
        gone.into_iter().for_each(|waiter| {
            self.remove(waiter);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: u32, qpn: u32) -> Waiter {
        (QpRef { device, qpn: Qpn::truncate(qpn) }, Direction::Requests)
    }

    #[test]
    fn a_qp_waits_in_each_direction_by_itself() {
        let mut later = Delays::default();
        let (qp, requests) = place(3, 5);
        later.insert((qp, requests), Instant(7));
        later.insert((qp, Direction::Answers), Instant(6));
        assert_eq!(later.of_device(3).collect::<Vec<_>>(), [(qp, Direction::Answers), (qp, requests)]);
        assert_eq!(later.pop_due(Instant(6)), Some((qp, Direction::Answers)));
        assert_eq!((later.pop_due(Instant(6)), later.first()), (None, Some(Instant(7))));
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
