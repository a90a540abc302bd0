//! Rate limits for log messages that others can provoke.

use log::Level;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

/// Lets a few messages pass in each period, and reports how many it suppressed.
#[derive(Debug)]
pub struct RateLimit {
    burst: u32,
    period_start: Option<Instant>,
    left: u32,
    swallowed: u64,
}

/// The number of messages that were suppressed before one that passes. It is shown only if there
/// are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u64);

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} messages like this left out)"),
        }
    }
}

/// Logs a message, or counts it as suppressed, as in
/// `limited!(self.limit, Warn, guest = name; "guest {name}: {reason}")`.
///
/// The message's origin is the caller's module. Values after the level become fields of the journal
/// ([`crate::logger`]). A message that the log filter drops is not counted.
macro_rules! limited {
    ($limit:expr, $level:ident $(, $key:ident = $value:expr)*; $($text:tt)+) => {
        if ::log::log_enabled!(::log::Level::$level)
            && let Some(left_out) = $limit.pass()
        {
            $crate::ratelimit::limited!(@log $level [$($key = $value),*] left_out; $($text)+);
        }
    };
    (@log $level:ident [] $left_out:ident; $($text:tt)+) => {
        ::log::log!(::log::Level::$level, "{}{}", format_args!($($text)+), $left_out)
    };
    (@log $level:ident [$($key:ident = $value:expr),+] $left_out:ident; $($text:tt)+) => {
        ::log::log!(
            ::log::Level::$level,
            $($key:% = $value),+;
            "{}{}",
            format_args!($($text)+),
            $left_out
        )
    };
}
pub(crate) use limited;

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

    /// Logs a message of this target, or counts it as suppressed.
    ///
    /// A message that the log filter drops is not counted.
    pub fn log_as(&mut self, target: &str, level: Level, message: impl FnOnce() -> String) {
        if log::log_enabled!(target: target, level)
            && let Some(left_out) = self.pass()
        {
            log::log!(target: target, level, "{}{left_out}", message());
        }
    }

    /// Returns what to add to the next message, or `None` if that one is suppressed.
    pub fn pass(&mut self) -> Option<LeftOut> {
        self.pass_at(Instant::now()).map(LeftOut)
    }

    /// Returns how many messages were suppressed before this one, or `None` if this one is too.
    fn pass_at(&mut self, now: Instant) -> Option<u64> {
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
        let passed = (0..20).filter(|_| limit.pass_at(start).is_some()).count();
        assert_eq!(passed, BURST as usize);
        assert_eq!(limit.pass_at(start + PERIOD), Some(20 - u64::from(BURST)));
    }
}
