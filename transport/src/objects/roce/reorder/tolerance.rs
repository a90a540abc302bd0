//! How much the network reorders packets, as far as gaps have shown it.

use crate::base::time::Instant;

/// The most packets by which a NAK is delayed.
pub(crate) const MAX_TOLERANCE: u8 = 32;
/// Nanoseconds after which what was not seen again counts half.
const PERIOD: u64 = 1_000_000_000;

/// How many packets may come ahead of a gap before there is a NAK for it.
///
/// It grows to the largest reordering seen. Each second it falls to half of that, or to the largest
/// reordering of that second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tolerance {
    packets: u8,
    /// The largest reordering of the present period.
    seen: u8,
    /// When the present period began.
    since: Instant,
}

impl Tolerance {
    pub(crate) fn new(now: Instant) -> Tolerance {
        Tolerance { packets: 0, seen: 0, since: now }
    }

    /// Returns the state of a record. It is `None` if no tolerance has it.
    pub(super) fn of_record(packets: u8, seen: u8, since: Instant) -> Option<Tolerance> {
        (seen <= packets && packets <= MAX_TOLERANCE).then_some(Tolerance { packets, seen, since })
    }

    /// Returns the state for a record.
    pub(super) fn record(&self) -> (u8, u8, Instant) {
        (self.packets, self.seen, self.since)
    }

    /// Returns how many packets may come ahead of a gap without a NAK.
    #[inline]
    pub(crate) fn packets(&self) -> u8 {
        self.packets
    }

    /// Records that a packet was late: this many came before it.
    pub(crate) fn learn(&mut self, extent: u8) {
        self.seen = self.seen.max(extent.min(MAX_TOLERANCE));
        self.packets = self.packets.max(self.seen);
    }

    /// Lowers the tolerance, if time has passed since the last gap.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let periods = now.0.saturating_sub(self.since.0) / PERIOD;
        if periods == 0 {
            return;
        }
        let halved = |packets: u8, times: u64| packets.checked_shr(times.min(8) as u32).unwrap_or(0);
        self.packets = halved(self.packets, periods).max(halved(self.seen, periods - 1));
        (self.seen, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_the_largest_and_halves_each_second_without_more() {
        let mut tolerance = Tolerance::new(Instant(0));
        for (extent, packets) in [(3, 3), (2, 3), (20, 20), (200, MAX_TOLERANCE)] {
            tolerance.learn(extent);
            assert_eq!(tolerance.packets(), packets);
        }
        for (second, packets) in [(1, 32), (2, 16), (3, 8), (5, 2), (100, 0)] {
            tolerance.refresh(Instant(second * PERIOD));
            assert_eq!(tolerance.packets(), packets, "after {second} s");
        }
    }

    #[test]
    fn what_is_seen_in_each_second_stays() {
        let mut tolerance = Tolerance::new(Instant(0));
        tolerance.learn(30);
        for second in 1..10 {
            tolerance.refresh(Instant(second * PERIOD));
            tolerance.learn(30);
            assert_eq!(tolerance.packets(), 30);
        }
    }
}
