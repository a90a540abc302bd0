//! Rate limits for log messages that others can provoke.

use log::Level;
use std::time::{Duration, Instant};

/// Lets a few messages pass in each period, and reports how many it suppressed.
#[derive(Debug)]
pub struct RateLimit {
    burst: u32,
    period_start: Option<Instant>,
    left: u32,
    swallowed: u64,
}

const PERIOD: Duration = Duration::from_secs(10);
const BURST: u32 = 5;

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit::new(BURST)
    }
}

impl RateLimit {
    /// Returns a limit of `burst` messages in ten seconds.
    pub const fn new(burst: u32) -> RateLimit {
        RateLimit { burst, period_start: None, left: burst, swallowed: 0 }
    }

    /// Logs a warning, or counts it as suppressed.
    pub fn warn(&mut self, message: impl FnOnce() -> String) {
        self.log(Level::Warn, message);
    }

    /// Logs a message, or counts it as suppressed.
    pub fn log(&mut self, level: Level, message: impl FnOnce() -> String) {
        self.log_as(module_path!(), level, message);
    }

    /// Logs a message of this target, or counts it as suppressed.
    ///
    /// A message that the log filter drops is not counted.
    pub fn log_as(&mut self, target: &str, level: Level, message: impl FnOnce() -> String) {
        if !log::log_enabled!(target: target, level) {
            return;
        }
        if let Some(swallowed) = self.pass(Instant::now()) {
            match swallowed {
                0 => log::log!(target: target, level, "{}", message()),
                n => log::log!(target: target, level, "{} ({n} messages like this left out)", message()),
            }
        }
    }

    /// Returns how many messages were suppressed before this one, or `None` if this one is too.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.period_start.is_none_or(|start| now.duration_since(start) >= PERIOD) {
            self.period_start = Some(now);
            self.left = self.burst;
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
