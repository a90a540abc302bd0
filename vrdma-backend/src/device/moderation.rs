//! Completion events that wait for more completions: how many, and until when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use vrdma_transport::{CqId, DeviceId, Instant};

/// What completion events of a CQ may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// CQEs that make an event due; 0: no number does.
    count: u32,
    /// How long after the first of them it is due at the latest.
    period: Duration,
}

impl Moderation {
    /// From what a driver says, `period` in microseconds. `None`: events do not wait.
    pub fn new(count: u16, period: u16) -> Option<Moderation> {
        let moderation = Moderation { count: count.into(), period: Duration::from_micros(period.into()) };
        (count != 1 && period != 0).then_some(moderation)
    }
}

/// The event of one CQ that may be waiting.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// CQEs since the CQ was armed, as far as is known.
    gathered: u32,
    /// When the event is due at the latest; `None` if none waits.
    due: Option<Instant>,
    /// When [`Timers`] tell of this CQ next.
    timer: Option<Instant>,
}

/// What is to be done when the time of a CQ has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fired {
    /// Its event is due.
    Due,
    /// Its event is due at that time; the timer is set again.
    Later(Instant),
    /// Nothing: its event was raised meanwhile.
    Nothing,
}

impl Waiting {
    /// `new` CQEs came to the CQ, which is armed: true if its event is due.
    pub fn gather(&mut self, moderation: Moderation, new: u32, now: Instant) -> bool {
        self.gathered = self.gathered.saturating_add(new);
        if moderation.count != 0 && self.gathered >= moderation.count {
            self.raised();
            return true;
        }
        self.due.get_or_insert(now + moderation.period);
        false
    }

    /// The event was raised.
    pub fn raised(&mut self) {
        (self.gathered, self.due) = (0, None);
    }

    /// When the timer has to be set to, if it is not.
    pub fn take_timer(&mut self) -> Option<Instant> {
        let due = self.due.filter(|due| self.timer.is_none_or(|timer| timer > *due))?;
        self.timer = Some(due);
        Some(due)
    }

    /// The timer of `at` has come.
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

/// When which CQ's event is to be looked at. A CQ is there once, and again after its moderation
/// became shorter.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, DeviceId, CqId)>>);

impl Timers {
    /// Sets one.
    pub fn set(&mut self, at: Instant, device: DeviceId, cq: CqId) {
        self.0.push(Reverse((at, device, cq)));
    }

    /// The next that has come.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, DeviceId, CqId)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(timer)| timer)
    }

    /// When the next comes.
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
        // The next begins to wait before the timer of the last one has come.
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
