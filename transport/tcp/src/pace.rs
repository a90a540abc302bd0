//! Pacing (RFC 9002, 7.7): segments go at most twice as fast as a window in a round trip, so that a
//! full queue does not meet them in bursts.
//!
//! Where two flows fill a queue that drops what is too much, the one whose segments come as soon as
//! others of it have left finds it full more often than its part of the link. One that is spread
//! evenly finds it full less often than a Linux host's, whose segments come in bursts. Twice as
//! fast lies between.
//!
//! Slow start is not paced: without HyStart++ (RFC 9406), bursts are what finds a queue's end
//! before far too much is on its way.

use crate::congestion::Congestion;
use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// How much faster than a window in a round trip.
const FASTER: u64 = 2;
/// So many nanoseconds' worth goes at once. Shorter round trips are not paced: inside a rack a
/// timer for each segment would cost more than bursts do.
const GRAIN: u64 = 100_000;

/// When the next segment of a connection may go, if segments are paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pace(Instant);

impl Pace {
    /// Until when the next segment waits, if it does.
    pub fn waits_until(self, now: Instant) -> Option<Instant> {
        (self.0 > now).then_some(self.0)
    }

    /// So many bytes were sent. The round trip is the smoothed one, if there was any.
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

    /// A window in congestion avoidance.
    fn avoiding(window: u64) -> Congestion {
        let mut congestion = Congestion::new(window);
        congestion.threshold = window;
        congestion
    }

    /// When each of so many segments goes that are sent as soon as they may, from a second on.
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
        // 50 segments in 5 ms, and a tenth of a millisecond's worth at once.
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
