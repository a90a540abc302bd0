//! The clock of the devices, and the time stamps of completions.

#[cfg(any(test, feature = "fuzzing"))]
use std::time::Duration;
use std::time::Instant;
use vrdma_transport as transport;

/// The clock: nanoseconds of the host's monotonic clock since the workers started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    /// The time stamp of completions until [`Clock::renew`].
    stamp: Option<transport::Instant>,
}

impl Default for Clock {
    /// Returns a clock that starts now.
    fn default() -> Clock {
        Clock { started: Instant::now(), stamp: None }
    }
}

impl Clock {
    /// Returns the time.
    pub fn now(&self) -> transport::Instant {
        transport::Instant(self.started.elapsed().as_nanos() as u64)
    }

    /// Returns a time as this clock shows it.
    pub fn at(&self, time: Instant) -> transport::Instant {
        transport::Instant(time.saturating_duration_since(self.started).as_nanos() as u64)
    }

    /// Returns the time stamp of a completion: the time of the first completion since
    /// [`Clock::renew`].
    ///
    /// The clock is therefore read once a round, and only if completions have time stamps.
    pub fn stamp(&mut self) -> transport::Instant {
        let Clock { started, stamp } = self;
        *stamp.get_or_insert_with(|| transport::Instant(started.elapsed().as_nanos() as u64))
    }

    /// Returns the time for a driver that asks.
    ///
    /// Completions of requests posted after the answer have no earlier time stamp.
    pub fn tell(&mut self) -> transport::Instant {
        self.renew();
        self.now()
    }

    /// Gives the next completion a new time stamp.
    pub fn renew(&mut self) {
        self.stamp = None;
    }

    /// Advances the clock.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn pass(&mut self, time: Duration) {
        self.started = self.started.checked_sub(time).unwrap_or(self.started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_holds_until_it_is_renewed_and_is_no_later_than_now() {
        let mut clock = Clock::default();
        let first = clock.stamp();
        clock.pass(Duration::from_secs(1));
        assert_eq!(clock.stamp(), first);
        let now = clock.now();
        assert!(now.0 >= first.0 + 1_000_000_000);
        clock.renew();
        let second = clock.stamp();
        assert!(second >= now && second <= clock.now());
        clock.pass(Duration::from_secs(1));
        let told = clock.tell();
        assert!(clock.stamp() >= told && told.0 >= second.0 + 1_000_000_000);
    }
}
