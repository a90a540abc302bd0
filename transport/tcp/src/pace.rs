//! Pacing (RFC 9002, 7.7).
//!
//! Segments leave at no more than twice the rate of a window per round trip. So they do not reach
//! a full queue in bursts.
//!
//! Assume that two flows fill a drop-tail queue. A flow that sends whenever its earlier segments
//! have left finds the queue full more often than its share. An evenly spread flow finds it full
//! less often than a Linux host, whose segments come in bursts. Twice the rate is between these.
//!
//! Slow start is not paced. Without HyStart++ (RFC 9406), bursts find the end of a queue before far
//! too much is in flight.

use crate::congestion::Congestion;
use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// The rate of pacing, in windows per round trip.
const FASTER: u64 = 2;
/// The length of a burst in nanoseconds of the paced rate. Shorter round trips are not paced:
/// inside a rack, a timer for each segment would cost more than bursts do.
const GRAIN: u64 = 100_000;

/// When the next segment of a connection may leave, if segments are paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pace(Instant);

impl Pace {
    /// Returns until when the next segment waits, if it does.
    pub fn waits_until(self, now: Instant) -> Option<Instant> {
        (self.0 > now).then_some(self.0)
    }

    /// Notes sent bytes. `rtt` is the smoothed round-trip time, if one was measured.
    pub fn sent(&mut self, bytes: u64, congestion: &Congestion, rtt: Option<u64>, now: Instant) {
        let Some(rtt) = rtt.filter(|rtt| *rtt > GRAIN && !congestion.in_slow_start()) else { return };
        let interval = rtt.saturating_mul(bytes) / (FASTER * congestion.window);
        self.0 = self.0.max(Instant(now.0.saturating_sub(GRAIN))).after(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a window in congestion avoidance.
    fn avoiding(window: u64) -> Congestion {
        let mut congestion = Congestion::new(window);
        congestion.threshold = window;
        congestion
    }

    /// Returns the nanoseconds, from 1 s on, at which segments leave that are sent as soon as
    /// possible.
    fn times(window: u64, rtt: u64, segments: usize) -> Vec<u64> {
        let (congestion, mut pace, mut now) = (avoiding(window), Pace::default(), Instant(1000 * MS));
        let next = |_| {
            now = pace.waits_until(now).unwrap_or(now);
            pace.sent(1000, &congestion, Some(rtt), now);
            now.0 - 1000 * MS
        };
        (0..segments).map(next).collect()
    }

    #[test]
    fn a_window_takes_half_a_round_trip() {
        // 50 segments in 5 ms, and 0.1 ms worth of them at once.
        let times = times(50_000, 10 * MS, 51);
        assert_eq!(times[..4], [0, 0, 100_000, 200_000]);
        assert_eq!(times[50], 4_900_000);
    }

    #[test]
    fn a_fast_path_has_a_timer_for_many_segments() {
        // 1000 segments in a millisecond: 100 at once.
        let times = times(1_000_000, 2 * MS, 1000);
        assert_eq!(times.iter().filter(|time| **time == 0).count(), 101);
    }

    #[test]
    fn a_rack_is_not_paced() {
        assert_eq!(times(10_000, 100_000, 100), [0; 100]);
    }

    #[test]
    fn slow_start_is_not_paced() {
        let mut pace = Pace::default();
        pace.sent(1000, &Congestion::new(10_000), Some(10 * MS), Instant(0));
        assert_eq!(pace, Pace::default());
    }

    #[test]
    fn nothing_overflows() {
        let mut pace = Pace::default();
        pace.sent(0xffff, &avoiding(1), Some((1 << 62) - 1), Instant(u64::MAX));
        assert_eq!(pace.waits_until(Instant(0)), Some(Instant(u64::MAX)));
    }
}
