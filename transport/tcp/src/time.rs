//! Time, which the caller passes in.

use core::ops::Add;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Nanoseconds on the caller's monotonic clock.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Instant(pub u64);

/// No deadline.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

impl Instant {
    /// Returns the nanoseconds since `earlier`, or 0 if that is later.
    pub(crate) fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time this many nanoseconds later, or the end of time.
    pub(crate) fn after(self, nanoseconds: u64) -> Instant {
        Instant(self.0.saturating_add(nanoseconds))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Returns the time `delay` later, or the end of time.
    fn add(self, delay: Duration) -> Instant {
        self.after(nanoseconds(delay))
    }
}

/// Returns a duration in nanoseconds, at most 2^61 (73 years), so that a deadline is never the end
/// of time.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().min(1 << 61) as u64
}
