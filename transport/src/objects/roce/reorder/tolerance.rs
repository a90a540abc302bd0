//! How much the network reorders packets, as far as gaps have shown it.

use crate::base::time::Instant;
use core::time::Duration;

/// The most packets by which a NAK is delayed.
pub(crate) const MAX_TOLERANCE: u8 = 32;
/// The shortest and the longest time by which a NAK is delayed, in nanoseconds.
const WAIT: [u32; 2] = [20_000, 500_000];
/// Nanoseconds after which what was not seen again counts half.
const PERIOD: u64 = 1_000_000_000;

/// How late a packet came, or may come.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lateness {
    /// Packets that overtook it.
    pub(super) packets: u8,
    /// Nanoseconds after the first of them.
    pub(super) time: u32,
}

impl Lateness {
    /// Returns how late a packet is that comes now, after `packets` others that began to come then.
    ///
    /// Returns `None` if that is more than is ever tolerated. The packet was most likely lost, and
    /// sent again.
    pub(super) fn new(packets: u16, since: Instant, now: Instant) -> Option<Lateness> {
        let packets = u8::try_from(packets).ok().filter(|&packets| packets <= MAX_TOLERANCE)?;
        let time = u32::try_from(now.0.saturating_sub(since.0)).ok().filter(|&time| time < WAIT[1])?;
        Some(Lateness { packets, time })
    }

    fn max(self, other: Lateness) -> Lateness {
        Lateness { packets: self.packets.max(other.packets), time: self.time.max(other.time) }
    }

    /// Returns this after it was halved so many times.
    fn halved(self, times: u64) -> Lateness {
        let times = times.min(31) as u32;
        Lateness { packets: self.packets.checked_shr(times).unwrap_or(0), time: self.time >> times }
    }

    /// Returns this with a margin, because other packets may be a little later.
    fn with_margin(self) -> Lateness {
        let packets = u32::from(self.packets) * 3 / 2 + 1;
        let time = self.time / 2 * 3;
        Lateness { packets: packets.min(MAX_TOLERANCE.into()) as u8, time: time.min(WAIT[1]) }
    }

    /// Whether a packet that is not lost may come so late, or a tolerance be so large.
    pub(super) fn is_possible(self) -> bool {
        self.packets <= MAX_TOLERANCE && self.time <= WAIT[1]
    }
}

/// How late a packet may come before there is a NAK for it.
///
/// It grows to one and a half of the largest reordering seen. Each second it falls to half of that,
/// or to what the largest reordering of that second makes it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tolerance {
    pub(super) limit: Lateness,
    /// The limit that the present period alone would have made.
    pub(super) seen: Lateness,
    /// When the present period began.
    pub(super) since: Instant,
}

impl Tolerance {
    pub(crate) fn new(now: Instant) -> Tolerance {
        Tolerance { limit: Lateness::default(), seen: Lateness::default(), since: now }
    }

    /// Whether an engine can have this state.
    pub(super) fn is_possible(&self) -> bool {
        self.limit.is_possible() && self.limit.max(self.seen) == self.limit
    }

    /// Returns how many packets may come ahead of a gap without a NAK.
    #[inline]
    pub(crate) fn packets(&self) -> u8 {
        self.limit.packets
    }

    /// Returns how long a gap may stay without a NAK.
    ///
    /// This ends the wait for a gap near the end of what the peer sends. Few packets follow it.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_nanos(self.limit.time.max(WAIT[0]).into())
    }

    /// Records that a packet was late.
    pub(crate) fn learn(&mut self, late: Lateness) {
        self.seen = self.seen.max(late.with_margin());
        self.limit = self.limit.max(self.seen);
    }

    /// Lowers the tolerance, if time has passed since the last gap.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let periods = now.0.saturating_sub(self.since.0) / PERIOD;
        if periods > 0 {
            self.limit = self.limit.halved(periods).max(self.seen.halved(periods - 1));
            (self.seen, self.since) = (Lateness::default(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(packets: u8) -> Lateness {
        Lateness { packets, time: u32::from(packets) * 1000 }
    }

    #[test]
    fn it_grows_to_the_largest_and_halves_each_second_without_more() {
        let mut tolerance = Tolerance::new(Instant(0));
        for (packets, allowed, wait) in [(3, 5, 20), (2, 5, 20), (20, 31, 30), (32, MAX_TOLERANCE, 48)] {
            tolerance.learn(late(packets));
            assert_eq!(tolerance.packets(), allowed);
            assert_eq!(tolerance.wait(), Duration::from_micros(wait));
        }
        for (packets, time) in [(33, 0), (500, 0), (1, 500_000), (1, PERIOD << 9)] {
            assert_eq!(Lateness::new(packets, Instant(5), Instant(5 + time)), None);
        }
        tolerance.learn(Lateness::new(32, Instant(5), Instant(500_004)).unwrap());
        assert_eq!((tolerance.packets(), tolerance.wait()), (32, Duration::from_micros(500)));
        for (second, packets, wait) in [(1, 32, 500), (2, 16, 250), (3, 8, 125), (6, 1, 20), (100, 0, 20)] {
            tolerance.refresh(Instant(second * PERIOD));
            assert_eq!(tolerance.packets(), packets, "after {second} s");
            assert!(tolerance.wait().as_micros() >= wait && tolerance.wait().as_micros() <= wait + 1);
        }
    }

    #[test]
    fn what_is_seen_in_each_second_stays() {
        let mut tolerance = Tolerance::new(Instant(0));
        tolerance.learn(late(8));
        for second in 1..10 {
            tolerance.refresh(Instant(second * PERIOD));
            tolerance.learn(late(8));
            assert_eq!(tolerance.packets(), 13);
        }
    }
}
