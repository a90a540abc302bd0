//! Round-trip times and the retransmission timeout (RFC 6298), in nanoseconds.

use crate::config::Config;
use crate::time::{Instant, nanoseconds};
use serde::{Deserialize, Serialize};

/// The length of an interval, in nanoseconds, over which the minimum is kept.
///
/// The minimum covers the current interval and the one before, because paths change.
const STRETCH: u64 = 10_000_000_000;

/// The measured round-trip times of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Rtt {
    /// SRTT; `None` before the first measurement.
    smoothed: Option<u64>,
    variation: u64,
    /// The minima of the current interval and of the one before.
    least: [Option<u64>; 2],
    stretch_began: Instant,
    /// How often the timeout was doubled since a round trip was measured.
    pub backoff: u8,
    /// The SYN was lost. Without a measurement the timeout is then at least 3 s (RFC 6298, 5.7).
    pub lost_syn: bool,
}

/// The minimum timeout in nanoseconds, whatever the configuration says. Time has to pass.
const SHORTEST: u64 = 10_000;
/// The minimum timeout after a lost SYN, in nanoseconds.
const AFTER_LOST_SYN: u64 = 3_000_000_000;

impl Rtt {
    /// Takes a measurement that was made while this many segments were outstanding.
    ///
    /// Every second segment may bring a measurement, so with many segments each one weighs less
    /// (RFC 7323, appendix G).
    pub fn measured(&mut self, rtt: u64, segments: u64, now: Instant) {
        if now.since(self.stretch_began) >= STRETCH {
            self.least = [None, self.least[0]];
            self.stretch_began = now;
        }
        self.least[0] = Some(self.least[0].map_or(rtt, |least| least.min(rtt)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt / 2;
            return;
        };
        let weight = segments.div_ceil(2).max(1);
        let error = smoothed.abs_diff(rtt);
        self.variation = nearer(self.variation, error, weight.saturating_mul(4));
        self.smoothed = Some(nearer(smoothed, rtt, weight.saturating_mul(8)));
    }

    /// Returns the smoothed round-trip time, after the first measurement.
    pub fn smoothed(&self) -> Option<u64> {
        self.smoothed
    }

    /// Returns whether all times are small enough for sums not to overflow.
    pub fn is_sane(&self) -> bool {
        let times = [self.smoothed, Some(self.variation), self.least[0], self.least[1]];
        times.into_iter().flatten().all(|time| time < 1 << 62)
    }

    /// Returns the minimum of the last one to two intervals.
    pub fn least(&self) -> Option<u64> {
        self.least.into_iter().flatten().min()
    }

    /// Returns the retransmission timeout with its back-off.
    pub fn timeout(&self, config: &Config) -> u64 {
        let least = nanoseconds(config.min_rto).max(SHORTEST);
        let most = nanoseconds(config.max_rto);
        let once = match self.smoothed {
            None if self.lost_syn => nanoseconds(config.initial_rto).max(AFTER_LOST_SYN),
            None => nanoseconds(config.initial_rto).max(SHORTEST),
            Some(smoothed) => smoothed.saturating_add(self.variation.saturating_mul(4)).max(least),
        };
        once.saturating_mul(1 << self.backoff.min(16)).min(most.max(least))
    }
}

/// Returns `from` moved towards `to` by one `parts`-th of the difference.
fn nearer(from: u64, to: u64, parts: u64) -> u64 {
    if to >= from { from + (to - from) / parts } else { from - (from - to) / parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const MS: u64 = 1_000_000;

    fn config() -> Config {
        Config { min_rto: Duration::from_millis(1), ..Config::default() }
    }

    #[test]
    fn the_timeout_is_that_of_rfc_6298() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(&config()), 1000 * MS);
        rtt.measured(100 * MS, 1, Instant(0));
        assert_eq!(rtt.timeout(&config()), 300 * MS);
        rtt.measured(180 * MS, 1, Instant(1));
        // RTTVAR = 3/4 * 50 + 1/4 * 80; SRTT = 7/8 * 100 + 1/8 * 180.
        assert_eq!(rtt.smoothed(), Some(110 * MS));
        assert_eq!(rtt.timeout(&config()), (110 + 4 * 57) * MS + 2 * MS);
        rtt.backoff = 2;
        assert_eq!(rtt.timeout(&config()), 4 * 340 * MS);
        rtt.backoff = 200;
        assert_eq!(rtt.timeout(&config()), 60_000 * MS);
    }

    #[test]
    fn the_timeout_has_a_floor() {
        let mut rtt = Rtt::default();
        for n in 0..100 {
            rtt.measured(20_000, 1, Instant(n));
        }
        assert_eq!(rtt.timeout(&config()), MS);
        assert_eq!(rtt.least(), Some(20_000));
    }

    #[test]
    fn the_least_time_is_forgotten() {
        let mut rtt = Rtt::default();
        rtt.measured(5, 1, Instant(0));
        rtt.measured(9, 1, Instant(STRETCH));
        assert_eq!(rtt.least(), Some(5));
        rtt.measured(9, 1, Instant(2 * STRETCH));
        assert_eq!(rtt.least(), Some(9));
    }
}
