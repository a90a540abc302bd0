//! How long a worker without work polls before it sleeps: it learns from when work came, as KVM's halt polling does.
//!
//! Polling pays where work comes soon. Work that came within the longest polling allowed, but found the worker asleep, would have been met by longer polling;
//! work that came later has made the polling before it useless. So work that comes every few microseconds is polled for, and between messages that
//! come every millisecond the processor is left to others.

use crate::config::Poll;
use std::time::{Duration, Instant};

/// What polling begins with again, once there was none.
const LEAST: Duration = Duration::from_micros(10);

/// How long to poll.
#[derive(Debug)]
pub(super) struct Polling {
    most: Poll,
    /// What pays at the moment; at most the longest that is allowed.
    time: Duration,
    /// When polling without work began.
    since: Option<Instant>,
}

/// What a sleep ended by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Something came.
    Event,
    /// It was time to look at something.
    Time,
}

impl Polling {
    /// Polls as long as is allowed, until sleeps tell more.
    pub(super) fn new(most: Poll) -> Polling {
        let time = match most {
            Poll::Always => Duration::MAX,
            Poll::For(time) => time,
        };
        Polling { most, time, since: None }
    }

    /// The worker never sleeps.
    pub(super) fn is_endless(&self) -> bool {
        self.most == Poll::Always
    }

    /// There is work again.
    pub(super) fn stop(&mut self) {
        self.since = None;
    }

    /// Whether to poll on at `now`, after a turn without work.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.is_endless() || now.duration_since(since) < self.time
    }

    /// The worker has slept until `now`. One that was woken by the clock has learnt nothing: nobody waited for it.
    pub(super) fn slept(&mut self, now: Instant, woken: Woken) {
        let since = self.since.take();
        let (Poll::For(most), Some(since), Woken::Event) = (self.most, since, woken) else { return };
        self.time = if now.duration_since(since) > most {
            Some(self.time / 2).filter(|&time| time >= LEAST).unwrap_or_default()
        } else {
            (2 * self.time).max(LEAST).min(most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const MOST: Poll = Poll::For(Duration::from_micros(200));

    /// Has work come in these distances; whether the worker polled until it came.
    fn polled(polling: &mut Polling, gaps: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let mut now = Instant::now();
        let mut come = |gap: Duration| {
            let end = now + gap;
            while now < end {
                if !polling.goes_on(now) {
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
        // Five sleeps end it: 100, 50, 25, 12 us, none.
        assert_eq!(polled(&mut polling, [1000; 5]), [false; 5]);
        assert_eq!(polling.time, Duration::ZERO);
        assert_eq!(polled(&mut polling, [1000; 3]), [false; 3]);
        assert_eq!(polling.time, Duration::ZERO);
        // It is learnt again in as many.
        assert_eq!(polled(&mut polling, [150; 7]), [false, false, false, false, false, true, true]);
        assert_eq!(polled(&mut polling, [5; 3]), [true; 3]);
    }

    #[test]
    fn bursts_far_apart_are_polled_for_within() {
        let mut polling = Polling::new(MOST);
        polled(&mut polling, [1000; 10]);
        let burst = polled(&mut polling, std::iter::repeat_n(20, 100));
        assert!(burst.iter().filter(|&&polled| !polled).count() <= 3, "{burst:?}");
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
            assert!(polling.goes_on(start));
            polling.slept(start + time * US, Woken::Time);
            assert_eq!(polling.time, 200 * US);
        }
    }

    #[test]
    fn a_worker_with_a_processor_of_its_own_never_sleeps() {
        let mut polling = Polling::new(Poll::Always);
        let now = Instant::now();
        assert!(polling.goes_on(now));
        polling.slept(now + Duration::from_secs(1), Woken::Event);
        assert!(polling.is_endless() && polling.goes_on(now) && polling.goes_on(now + Duration::from_secs(3600)));
    }
}
