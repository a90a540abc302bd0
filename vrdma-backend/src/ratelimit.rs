//! Messages that a guest can provoke are logged, but not as often as it likes.

use std::time::{Duration, Instant};

/// Lets a few messages through in each period, and says how many it swallowed.
#[derive(Debug)]
pub struct RateLimit {
    period_start: Option<Instant>,
    left: u32,
    swallowed: u64,
}

const PERIOD: Duration = Duration::from_secs(10);
const BURST: u32 = 5;

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { period_start: None, left: BURST, swallowed: 0 }
    }
}

impl RateLimit {
    /// Logs a warning, or counts it.
    pub fn warn(&mut self, message: impl FnOnce() -> String) {
        if let Some(swallowed) = self.pass(Instant::now()) {
            match swallowed {
                0 => log::warn!("{}", message()),
                n => log::warn!("{} ({n} messages like this left out)", message()),
            }
        }
    }

    /// How many messages were swallowed before this one; `None` if this one is too.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.period_start.is_none_or(|start| now.duration_since(start) >= PERIOD) {
            self.period_start = Some(now);
            self.left = BURST;
        }
        if self.left == 0 {
            self.swallowed += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.swallowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_rest_is_counted() {
        let mut limit = RateLimit::default();
        let start = Instant::now();
        let passed = (0..20).filter(|_| limit.pass(start).is_some()).count();
        assert_eq!(passed, BURST as usize);
        assert_eq!(limit.pass(start + PERIOD), Some(20 - u64::from(BURST)));
    }
}
