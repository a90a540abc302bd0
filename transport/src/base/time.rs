//! Time, as the caller passes it, and the delays that codes in QP attributes stand for.

use core::ops::Add;
use core::time::Duration;

/// Nanoseconds on the caller's monotonic clock.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instant(pub u64);

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Adds a delay, and saturates at the maximum.
    fn add(self, delay: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// No deadline at all.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

/// Interval of checks for a condition without a deadline of its own, such as a peer that does not
/// exist with timeout 0.
///
/// A change that can be noticed wakes its waiters at once. This interval is for all others.
pub(crate) const SLOW_CHECK: Duration = Duration::from_millis(100);

/// Returns the local ACK timeout, 4.096 us times 2 to the power of `code`.
///
/// Code 0 is `None`, for ever (IBTA 9.9.2.1.1, ibv_modify_qp(3) `timeout`).
pub(crate) fn ack_timeout(code: u8) -> Option<Duration> {
    match code {
        0 => None,
        _ => Some(Duration::from_nanos(4096 << u32::from(code.min(31)))),
    }
}

/// RNR NAK timer values in units of 10 us (IBTA table 45, AETH syndrome timer values).
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns how long a receiver that is not ready asks its sender to wait (IBTA table 45).
pub(crate) fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(10 * u64::from(RNR_TIMER[usize::from(code & 31)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates() {
        assert_eq!(Instant(5) + Duration::from_nanos(7), Instant(12));
        assert_eq!(Instant(u64::MAX - 1) + Duration::from_secs(1), Instant(u64::MAX));
        assert_eq!(Instant(1) + Duration::MAX, Instant(u64::MAX));
    }

    #[test]
    fn timeouts_have_the_values_of_the_specification() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31).unwrap().as_secs(), 8796);
    }

    #[test]
    fn rnr_timers_have_the_values_of_the_specification() {
        let expected = [(0, 655_360), (1, 10), (12, 640), (14, 1280), (31, 491_520)];
        for (code, micros) in expected {
            assert_eq!(rnr_delay(code), Duration::from_micros(micros), "{code}");
        }
    }
}
