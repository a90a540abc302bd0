//! How a worker spends its time, by the readings of the clock that it makes anyway.
//!
//! A worker does not read the clock in each round, because that costs more than an idle round. So
//! the time between two readings is shared out among its rounds, of which there are at most
//! `CLOCK_TURNS` (`run.rs`).

use std::time::Duration;
use vrdma_transport::Instant;

/// How a worker has spent its time since it started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Up to when the time is accounted for.
    since: Option<Instant>,
    /// Numbers of rounds at that time.
    rounds: Rounds,
    /// The time of rounds with work, in nanoseconds.
    busy: u64,
    /// The time of rounds without work, and of pauses between them but for sleep, in nanoseconds.
    idle: u64,
    /// The longest time between two readings of the clock with work between them, in nanoseconds.
    longest: u64,
}

/// Numbers of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    /// Rounds with work.
    pub busy: u64,
    /// Rounds without work.
    pub idle: u64,
}

impl Usage {
    /// Accounts for the rounds until now.
    pub(super) fn add(&mut self, now: Instant, rounds: Rounds) {
        let before = std::mem::replace(&mut self.rounds, rounds);
        let Some(since) = self.since.replace(now) else { return };
        let time = now.0.saturating_sub(since.0);
        let (busy, idle) = (rounds.busy - before.busy, rounds.idle - before.idle);
        // A division costs more than these branches. Mostly, all rounds are alike.
        let share = match (busy, idle) {
            (0, _) => 0,
            (_, 0) => time,
            (busy, idle) => (u128::from(time) * u128::from(busy) / u128::from(busy + idle)) as u64,
        };
        self.busy += share;
        self.idle += time - share;
        if busy != 0 {
            self.longest = self.longest.max(time);
        }
    }

    /// Accounts for a pause that ends now. `asleep`: it is no time of this account.
    pub(super) fn pause(&mut self, now: Instant, asleep: bool) {
        if let Some(since) = self.since.replace(now)
            && !asleep
        {
            self.idle += now.0.saturating_sub(since.0);
        }
    }

    /// Returns the time of rounds with work.
    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy)
    }

    /// Returns the time of rounds without work.
    pub(super) fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle)
    }

    /// Returns an upper bound of the longest round.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(usage: &Usage) -> (u64, u64, u64) {
        (usage.busy, usage.idle, usage.longest)
    }

    #[test]
    fn time_is_shared_out_among_rounds() {
        let mut usage = Usage::default();
        usage.add(Instant(1000), Rounds { busy: 5, idle: 5 });
        assert_eq!(shown(&usage), (0, 0, 0), "when it began is not known");
        usage.add(Instant(1100), Rounds { busy: 6, idle: 5 });
        assert_eq!(shown(&usage), (100, 0, 100));
        usage.add(Instant(1400), Rounds { busy: 6, idle: 9 });
        assert_eq!(shown(&usage), (100, 300, 100), "idle rounds are not long");
        usage.add(Instant(1480), Rounds { busy: 7, idle: 12 });
        assert_eq!(shown(&usage), (120, 360, 100));
    }

    #[test]
    fn pauses_are_idle_and_sleep_is_neither() {
        let mut usage = Usage::default();
        usage.add(Instant(0), Rounds::default());
        usage.pause(Instant(50), false);
        usage.pause(Instant(1_000_000), true);
        usage.add(Instant(1_000_010), Rounds { busy: 1, idle: 0 });
        assert_eq!(shown(&usage), (10, 50, 10));
    }
}
