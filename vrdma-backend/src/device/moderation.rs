//! Moderation of completion events: how long they wait for more completions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use vrdma_transport::{CqId, DeviceId, Instant};

/// The moderation of a CQ's completion events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Number of CQEs that make an event due. 0 means that no number does.
    count: u32,
    /// Time after the first CQE at which the event is due at the latest.
    period: Duration,
}

impl Moderation {
    /// Makes it from a driver's values, with `period` in microseconds. `None` means that events do
    /// not wait.
    pub fn new(count: u16, period: u16) -> Option<Moderation> {
        let moderation = Moderation { count: count.into(), period: Duration::from_micros(period.into()) };
        (count != 1 && period != 0).then_some(moderation)
    }
}

/// The event of a CQ, which may be waiting.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Number of CQEs since the CQ was armed, as far as is known.
    gathered: u32,
    /// Latest time at which the event is due. `None` if no event waits.
    due: Option<Instant>,
    /// Time of the next timer of this CQ in [`Timers`].
    timer: Option<Instant>,
}

/// The action after a CQ's timer expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fired {
    /// The event is due.
    Due,
    /// The event is due at that time. The timer is set again.
    Later(Instant),
    /// Nothing, because the event was raised before.
    Nothing,
}

impl Waiting {
    /// Records `new` CQEs of an armed CQ. Returns true if its event is due.
    pub fn gather(&mut self, moderation: Moderation, new: u32, now: Instant) -> bool {
        self.gathered = self.gathered.saturating_add(new);
        if moderation.count != 0 && self.gathered >= moderation.count {
            self.raised();
            return true;
        }
        self.due.get_or_insert(now + moderation.period);
        false
    }

    /// Records that the event was raised.
    pub fn raised(&mut self) {
        (self.gathered, self.due) = (0, None);
    }

    /// Returns the time to set the timer to, if it is not set that early.
    pub fn take_timer(&mut self) -> Option<Instant> {
        let due = self.due.filter(|due| self.timer.is_none_or(|timer| timer > *due))?;
        self.timer = Some(due);
        Some(due)
    }

    /// Handles the expiry of the timer for `at`.
    pub fn fire(&mut self, at: Instant, now: Instant) -> Fired {
        if self.timer != Some(at) {
            return Fired::Nothing;
        }
        self.timer = None;
        match self.due {
            None => Fired::Nothing,
            Some(due) if due > now => {
                self.timer = Some(due);
                Fired::Later(due)
            }
            Some(_) => {
                self.raised();
                Fired::Due
            }
        }
    }
}

/// The timers of CQ events. A CQ has one timer, and another one after its moderation became
/// shorter.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, DeviceId, CqId)>>);

impl Timers {
    /// Sets a timer.
    pub fn set(&mut self, at: Instant, device: DeviceId, cq: CqId) {
        self.0.push(Reverse((at, device, cq)));
    }

    /// Takes the next timer that has expired.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, DeviceId, CqId)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(timer)| timer)
    }

    /// Forgets the timers of a device.
    pub fn forget(&mut self, device: DeviceId) {
        self.0.retain(|Reverse((_, other, _))| *other != device);
    }

    /// Returns the time of the next timer.
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn an_event_is_due_by_number_or_by_time() {
        let moderation = Moderation::new(4, 10).unwrap();
        let mut waiting = Waiting::default();
        assert!(!waiting.gather(moderation, 3, Instant(0)));
        assert_eq!(waiting.take_timer(), Some(Instant(10 * US)));
        assert!(!waiting.gather(moderation, 0, Instant(5 * US)));
        assert_eq!(waiting.take_timer(), None, "it is set");
        assert!(waiting.gather(moderation, 1, Instant(6 * US)));
        // The next event starts to wait before the timer of the previous one expires.
        assert!(!waiting.gather(moderation, 1, Instant(7 * US)));
        assert_eq!(waiting.take_timer(), None);
        assert_eq!(waiting.fire(Instant(10 * US), Instant(10 * US)), Fired::Later(Instant(17 * US)));
        assert_eq!(waiting.fire(Instant(10 * US), Instant(11 * US)), Fired::Nothing, "not that timer");
        assert_eq!(waiting.fire(Instant(17 * US), Instant(18 * US)), Fired::Due);
        assert_eq!(waiting.fire(Instant(17 * US), Instant(18 * US)), Fired::Nothing);
        assert!(!waiting.gather(moderation, 3, Instant(20 * US)), "it counts from the last event on");
    }

    #[test]
    fn without_a_number_time_decides_and_a_shorter_time_counts_at_once() {
        let mut waiting = Waiting::default();
        assert!(!waiting.gather(Moderation::new(0, 1000).unwrap(), u32::MAX, Instant(0)));
        assert!(!waiting.gather(Moderation::new(0, 1000).unwrap(), 1, Instant(0)));
        assert_eq!(waiting.take_timer(), Some(Instant(1000 * US)));
        waiting.raised();
        assert!(!waiting.gather(Moderation::new(0, 10).unwrap(), 1, Instant(0)));
        assert_eq!(waiting.take_timer(), Some(Instant(10 * US)));
    }

    #[test]
    fn what_waits_for_nothing_is_no_moderation() {
        for (count, period) in [(0, 0), (1, 100), (16, 0), (1, 0)] {
            assert_eq!(Moderation::new(count, period), None);
        }
        assert!(Moderation::new(0, 1).is_some() && Moderation::new(2, 1).is_some());
    }

    #[test]
    fn timers_come_in_the_order_of_their_times() {
        let mut timers = Timers::default();
        for at in [5, 3, 9, 3] {
            timers.set(Instant(at), DeviceId(0), CqId(at as u32));
        }
        assert_eq!(timers.next(), Some(Instant(3)));
        let found: Vec<u64> = std::iter::from_fn(|| timers.pop(Instant(5))).map(|(at, ..)| at.0).collect();
        assert_eq!(found, [3, 3, 5]);
        assert_eq!(timers.next(), Some(Instant(9)));
    }
}
