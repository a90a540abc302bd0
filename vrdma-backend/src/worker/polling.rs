//! Decides what a worker without work does: it polls, naps, or sleeps until it is woken.
//!
//! Polling pays if work comes soon. Work may find the worker asleep although it came within the
//! longest polling time allowed. Then longer polling would have met it. If work came later, the
//! polling before it was useless. (KVM's halt polling learns in the same way.) So the worker polls
//! for work that comes every few microseconds. Between messages that come every millisecond it
//! leaves the processor to others.
//!
//! If others want the worker's processor, polling delays the guests for whose work it waits. Then
//! the worker sleeps at once and is woken by each request, or it naps. A worker that naps polls
//! every [`NAP`], and takes all requests that have come meanwhile. That pays if guests have several
//! requests in flight. It is tried from time to time.

use crate::config::Poll;
use std::time::{Duration, Instant};

/// Shorter times are not worth polling.
const LEAST: Duration = Duration::from_micros(10);
/// A yield that takes this long means that another thread ran meanwhile.
const LONG_YIELD: Duration = Duration::from_micros(4);
/// The number of long yields in a row after which the processor counts as wanted by others.
const LONG_YIELDS: u32 = 3;
/// How long the processor counts as wanted by others. Checking it costs one of their time slices.
const CROWDED_FOR: Duration = Duration::from_secs(1);
/// The length of a nap.
pub(super) const NAP: Duration = Duration::from_micros(20);
/// The number of requests that a nap has to find to pay.
const MANY: u64 = 4;
/// The number of poor naps in a row after which the worker sleeps instead.
const POOR_NAPS: u32 = 8;
/// The number of sleeps after which a nap is tried again.
const SLEEPS: u32 = 64;

/// Decides what to do without work.
#[derive(Debug)]
pub(super) struct Polling {
    most: Poll,
    /// How long polling pays at the moment. It is at most the longest time allowed.
    time: Duration,
    /// When the worker ran out of work.
    since: Option<Instant>,
    /// The number of long yields in a row.
    long_yields: u32,
    /// If others want the processor: until when that is assumed.
    crowded: Option<Instant>,
    napping: Napping,
    /// If the last pause was a nap: how many requests had come when it began.
    nap: Option<u64>,
}

/// Whether naps pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Napping {
    /// They do. The number counts naps in a row that did not.
    Pays(u32),
    /// They do not. The number counts sleeps since naps were last tried.
    Poor(u32),
}

/// What to do between two rounds without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Offer the processor to others, and report how long they had it.
    Yield,
    /// Sleep for a [`NAP`], without asking guests for kicks.
    Nap,
    /// Sleep until something wakes the worker.
    Sleep,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// An event.
    Event,
    /// A deadline.
    Time,
}

impl Polling {
    /// Starts with the longest polling allowed, until sleeps show whether it pays.
    pub(super) fn new(most: Poll) -> Polling {
        let time = match most {
            Poll::Always => Duration::MAX,
            Poll::For(time) => time,
        };
        let napping = Napping::Poor(SLEEPS);
        Polling { most, time, since: None, long_yields: 0, crowded: None, napping, nap: None }
    }

    /// Whether the worker never pauses.
    #[inline]
    pub(super) fn is_endless(&self) -> bool {
        self.most == Poll::Always
    }

    /// Whether a few rounds without work are enough to leave the processor.
    ///
    /// They are if others want the processor, as far as is known, or if the worker may not poll.
    #[inline]
    pub(super) fn is_brief(&self) -> bool {
        self.crowded.is_some() || self.most == Poll::For(Duration::ZERO)
    }

    /// Reports that there is work again.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.since = None;
    }

    /// Returns what to do at `now`, after rounds without work. `requests` counts all requests so
    /// far.
    pub(super) fn pause(&mut self, now: Instant, requests: u64) -> Pause {
        let since = *self.since.get_or_insert(now);
        self.crowded = self.crowded.filter(|&until| now < until);
        if self.crowded.is_none() {
            self.nap = None;
            return if now.duration_since(since) < self.time { Pause::Yield } else { Pause::Sleep };
        }
        if let Some(before) = self.nap.take() {
            self.napped(requests - before);
        }
        match &mut self.napping {
            Napping::Poor(sleeps) if *sleeps < SLEEPS => {
                *sleeps += 1;
                Pause::Sleep
            }
            Napping::Poor(_) | Napping::Pays(_) => {
                self.nap = Some(requests);
                Pause::Nap
            }
        }
    }

    /// Learns from a nap that found this number of requests.
    fn napped(&mut self, found: u64) {
        self.napping = match self.napping {
            _ if found >= MANY => Napping::Pays(0),
            Napping::Pays(poor) if poor + 1 < POOR_NAPS => Napping::Pays(poor + 1),
            Napping::Pays(_) | Napping::Poor(_) => Napping::Poor(0),
        };
    }

    /// Learns from a yield that took `time`, until `now`.
    pub(super) fn yielded(&mut self, now: Instant, time: Duration) {
        self.long_yields = if time < LONG_YIELD { 0 } else { self.long_yields + 1 };
        if self.long_yields >= LONG_YIELDS {
            self.long_yields = 0;
            self.crowded = Some(now + CROWDED_FOR);
        }
    }

    /// Learns from a sleep that lasted until `now`.
    ///
    /// A sleep that a deadline ended teaches nothing, because nobody waited for the worker.
    pub(super) fn slept(&mut self, now: Instant, woken: Woken) {
        let since = self.since.take();
        let (Poll::For(most), Some(since), Woken::Event) = (self.most, since, woken) else { return };
        self.time = if now.duration_since(since) > most {
            Some(self.time / 2).filter(|&time| time >= LEAST).unwrap_or_default()
        } else {
            // The maximum is taken at once. With smaller steps, one message for each step would
            // wait for the worker to wake.
            most
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const MOST: Poll = Poll::For(Duration::from_micros(200));

    /// Simulates work at these distances. Returns for each whether the worker polled until it came.
    fn polled(polling: &mut Polling, gaps: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let mut now = Instant::now();
        let mut come = |gap: Duration| {
            let end = now + gap;
            while now < end {
                if polling.pause(now, 0) != Pause::Yield {
                    now = end;
                    polling.slept(now, Woken::Event);
                    return false;
                }
                now += US;
            }
            polling.stop();
            true
        };
        gaps.into_iter().map(|gap| come(gap * US)).collect()
    }

    #[test]
    fn what_comes_soon_is_polled_for_and_what_comes_late_is_not() {
        let mut polling = Polling::new(MOST);
        assert_eq!(polled(&mut polling, [5, 150, 199]), [true; 3], "as long as is allowed at first");
        // Five sleeps end polling: 100, 50, 25, 12 us, none.
        assert_eq!(polled(&mut polling, [1000; 5]), [false; 5]);
        assert_eq!(polling.time, Duration::ZERO);
        assert_eq!(polled(&mut polling, [1000; 3]), [false; 3]);
        assert_eq!(polling.time, Duration::ZERO);
        // It is learnt again at once.
        assert_eq!(polled(&mut polling, [150; 7]), [false, true, true, true, true, true, true]);
        assert_eq!(polled(&mut polling, [5; 3]), [true; 3]);
    }

    #[test]
    fn bursts_far_apart_are_polled_for_within() {
        let mut polling = Polling::new(MOST);
        polled(&mut polling, [1000; 10]);
        let burst = polled(&mut polling, std::iter::repeat_n(20, 100));
        assert!(burst.iter().filter(|&&polled| !polled).count() <= 1, "{burst:?}");
    }

    #[test]
    fn no_more_than_is_allowed_is_polled_and_nothing_if_nothing_is() {
        let mut polling = Polling::new(MOST);
        polled(&mut polling, [199; 50]);
        assert_eq!(polling.time, 200 * US);
        for allowed in [0, 1, 9] {
            let mut polling = Polling::new(Poll::For(allowed * US));
            polled(&mut polling, [1; 10]);
            assert!(polling.time <= allowed * US);
        }
        let mut none = Polling::new(Poll::For(Duration::ZERO));
        assert_eq!(polled(&mut none, [1, 1, 100, 1]), [false; 4]);
    }

    #[test]
    fn sleeps_that_end_by_the_clock_teach_nothing() {
        let mut polling = Polling::new(MOST);
        let start = Instant::now();
        for time in [1, 1000, 100_000] {
            assert_eq!(polling.pause(start, 0), Pause::Yield);
            polling.slept(start + time * US, Woken::Time);
            assert_eq!(polling.time, 200 * US);
        }
    }

    #[test]
    fn a_worker_with_a_processor_of_its_own_never_pauses() {
        let mut polling = Polling::new(Poll::Always);
        assert!(polling.is_endless() && !Polling::new(MOST).is_endless());
        polling.slept(Instant::now(), Woken::Event);
        assert!(polling.is_endless());
    }

    /// Returns the state of a worker whose processor others want since `now`.
    fn crowded(now: Instant) -> Polling {
        let mut polling = Polling::new(MOST);
        (0..LONG_YIELDS).for_each(|_| polling.yielded(now, LONG_YIELD));
        assert!(polling.is_brief());
        polling
    }

    /// Returns the next pauses. `in_a_nap` requests come during each nap, and one request ends each
    /// sleep.
    fn pauses(polling: &mut Polling, requests: &mut u64, count: usize, in_a_nap: u64) -> Vec<Pause> {
        let now = Instant::now();
        let mut next = || {
            let pause = polling.pause(now, *requests);
            match pause {
                Pause::Nap => *requests += in_a_nap,
                Pause::Sleep => {
                    polling.slept(now, Woken::Event);
                    *requests += 1;
                }
                Pause::Yield => {}
            }
            polling.stop();
            pause
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn others_want_the_processor_when_several_yields_in_a_row_are_long_and_not_for_ever() {
        let (mut polling, now) = (Polling::new(MOST), Instant::now());
        for _ in 0..10 {
            polling.yielded(now, LONG_YIELD);
            polling.yielded(now, LONG_YIELD);
            polling.yielded(now, LONG_YIELD - US);
        }
        assert_eq!((polling.is_brief(), polling.pause(now, 0)), (false, Pause::Yield));
        let mut polling = crowded(now);
        assert_ne!(polling.pause(now + CROWDED_FOR - US, 0), Pause::Yield);
        polling.stop();
        assert_eq!((polling.pause(now + CROWDED_FOR, 0), polling.is_brief()), (Pause::Yield, false));
    }

    #[test]
    fn one_request_at_a_time_wakes_a_worker_and_naps_are_tried_now_and_then() {
        let mut polling = crowded(Instant::now());
        let sleeps = || std::iter::repeat_n(Pause::Sleep, SLEEPS as usize);
        let wanted: Vec<_> =
            [Pause::Nap].into_iter().chain(sleeps()).chain([Pause::Nap]).chain(sleeps()).collect();
        assert_eq!(pauses(&mut polling, &mut 0, wanted.len(), MANY - 1), wanted);
    }

    #[test]
    fn while_many_requests_come_the_worker_naps_and_asks_for_no_kick() {
        let (mut polling, mut requests) = (crowded(Instant::now()), 0);
        let mut pauses = |count, in_a_nap| pauses(&mut polling, &mut requests, count, in_a_nap);
        assert_eq!(pauses(1000, MANY), [Pause::Nap; 1000]);
        // A few poor naps do not end napping, several do.
        let few = POOR_NAPS as usize - 1;
        assert_eq!(pauses(few, 0), vec![Pause::Nap; few]);
        assert_eq!(pauses(2, MANY), [Pause::Nap; 2]);
        let end = pauses(few + 3, 0);
        assert_eq!(end.iter().rposition(|&pause| pause == Pause::Nap), Some(few), "{end:?}");
    }

    #[test]
    fn a_worker_that_may_not_poll_does_not_nap() {
        let mut polling = Polling::new(Poll::For(Duration::ZERO));
        assert_eq!(polling.pause(Instant::now(), 0), Pause::Sleep);
        assert!(polling.is_brief());
    }
}
