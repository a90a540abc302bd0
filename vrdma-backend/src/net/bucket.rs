//! A token bucket.

use vrdma_transport::Instant;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Fewest tokens of a full bucket. A frame of 64 KiB cut into packets of 1,500 bytes needs 46.
const MIN_BURST: u64 = 64;

/// A token bucket. It fills at `rate` tokens a second, and holds those of a tenth of a second.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u64,
    /// Content, in billionths of a token.
    level: u64,
    filled: Instant,
}

impl Bucket {
    /// Returns a full bucket.
    pub fn new(rate: u32) -> Bucket {
        let rate = rate.into();
        Bucket { rate, level: burst(rate) * SECOND, filled: Instant(0) }
    }

    /// Takes all of the tokens or none. Returns whether it took them.
    pub fn take(&mut self, now: Instant, tokens: u64) -> bool {
        let passed = now.0.saturating_sub(self.filled.0);
        let level = self.level.saturating_add(passed.saturating_mul(self.rate));
        self.filled = now;
        self.level = level.min(burst(self.rate) * SECOND);
        let enough = tokens.checked_mul(SECOND).is_some_and(|needed| needed <= self.level);
        if enough {
            self.level -= tokens * SECOND;
        }
        enough
    }
}

fn burst(rate: u64) -> u64 {
    (rate / 10).max(MIN_BURST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::new(10_000);
        let mut passed = |now, times| (0..times).filter(|_| bucket.take(Instant(now), 1)).count();
        assert_eq!(passed(5, 5000), 1000);
        assert_eq!(passed(5 + SECOND / 1000, 100), 10);
        assert_eq!(passed(5 + SECOND / 1000, 100), 0);
        assert_eq!(passed(3600 * SECOND, 5000), 1000, "it does not overflow");
        assert_eq!(passed(3600 * SECOND - 7, 10), 0, "time does not go back");
    }

    #[test]
    fn all_tokens_or_none_are_taken() {
        let mut bucket = Bucket::new(1);
        assert!(!bucket.take(Instant(0), 65) && !bucket.take(Instant(0), u64::MAX));
        assert!(bucket.take(Instant(0), 64) && !bucket.take(Instant(0), 1));
        assert!(bucket.take(Instant(SECOND), 1));
        let mut fastest = Bucket::new(u32::MAX);
        assert!(fastest.take(Instant(u64::MAX), u64::from(u32::MAX) / 10));
    }
}
