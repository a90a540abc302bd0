//! Time, as the caller tells it.

use core::ops::Add;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Nanoseconds on the caller's monotonic clock.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Instant(pub u64);

/// No deadline at all.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

impl Instant {
    /// Nanoseconds since `earlier`; 0 if that is later.
    pub(crate) fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Later by so many nanoseconds, or the end of time.
    pub(crate) fn after(self, nanoseconds: u64) -> Instant {
        Instant(self.0.saturating_add(nanoseconds))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Later by `delay`, or the end of time.
    fn add(self, delay: Duration) -> Instant {
        self.after(nanoseconds(delay))
    }
}

/// A duration in nanoseconds; one of more than 73 years counts as those, so that a deadline is
/// never the end of time.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().min(1 << 61) as u64
}
