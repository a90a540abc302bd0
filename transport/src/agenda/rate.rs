//! Rates: how much may move in a second.
//!
//! A rate has no timer. It is looked at when something has moved, and then tells until when nothing
//! more may.

use crate::base::time::Instant;
use core::num::NonZeroU64;
use core::time::Duration;

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// A token bucket.
///
/// What moves may exceed what the bucket holds. The bucket then has a debt, and nothing more may
/// move until that is paid. So in any time `t`, everything that moves but the last piece is at most
/// `burst + rate * t`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Bucket {
    /// Units in a second.
    rate: NonZeroU64,
    /// The time in which an empty bucket fills.
    burst: Duration,
    /// When the bucket will be full. It was full before if that is past.
    full_at: Instant,
    /// What `full_at` lacks, in units of a nanosecond divided by `rate`. Less than `rate`.
    rest: u64,
}

impl Bucket {
    /// Makes a full bucket, for pieces of this many units.
    ///
    /// It holds two of them at least. In a smaller one, what comes in while nobody looks would be
    /// lost, and the rate would not be reached.
    fn new(rate: NonZeroU64, burst: Duration, piece: u64) -> Bucket {
        let mut bucket = Bucket { rate, burst, full_at: Instant(0), rest: 0 };
        bucket.burst = burst.max(bucket.time_of(2 * piece));
        bucket
    }

    /// Returns when something may move, which is `None` if it may now.
    #[inline]
    fn wait(&self, now: Instant) -> Option<Instant> {
        (self.full_at >= now + self.burst).then(|| {
            // One unit more than nothing.
            let unit = (SECOND as u64).div_ceil(self.rate.get()).max(1);
            Instant(self.full_at.0.saturating_sub(self.burst.as_nanos() as u64)) + Duration::from_nanos(unit)
        })
    }

    /// Returns how many units the bucket holds, rounded down.
    fn level(&self, now: Instant) -> u64 {
        let missing = self.full_at.0.saturating_sub(now.0);
        let time = (self.burst.as_nanos() as u64).saturating_sub(missing);
        u64::try_from(u128::from(time) * u128::from(self.rate.get()) / SECOND).unwrap_or(u64::MAX)
    }

    /// Returns how many units a full bucket holds, rounded down.
    fn holds(&self) -> u64 {
        self.units_in(self.burst)
    }

    /// Returns how many units the bucket gets in this time, rounded down.
    fn units_in(&self, time: Duration) -> u64 {
        let units = time.as_nanos() * u128::from(self.rate.get()) / SECOND;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Returns the time in which the bucket gets this many units.
    fn time_of(&self, units: u64) -> Duration {
        let time = u128::from(units) * SECOND / u128::from(self.rate.get());
        Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Takes units, whether the bucket holds them or not.
    fn take(&mut self, now: Instant, units: u64) {
        if self.full_at < now {
            (self.full_at, self.rest) = (now, 0);
        }
        let rate = u128::from(self.rate.get());
        let time = u128::from(units) * SECOND + u128::from(self.rest);
        self.rest = (time % rate) as u64;
        self.full_at = self.full_at + Duration::from_nanos(u64::try_from(time / rate).unwrap_or(u64::MAX));
    }

    /// Takes units, as long as the debt is paid within this time. It does not grow beyond that.
    fn take_up_to(&mut self, now: Instant, units: u64, most: Duration) {
        let before = self.full_at;
        self.take(now, units);
        let latest = before.max(now + self.burst + most);
        if self.full_at > latest {
            (self.full_at, self.rest) = (latest, 0);
        }
    }

    /// Takes over what another bucket lacks: the debt in units, and what it lacks of a burst as
    /// time.
    fn follow(&mut self, now: Instant, before: &Bucket) {
        let lacks = before.full_at.0.saturating_sub(now.0);
        let burst = before.burst.as_nanos() as u64;
        let debt = u128::from(lacks.saturating_sub(burst)) * u128::from(before.rate.get());
        let debt = u64::try_from(debt / u128::from(self.rate.get())).unwrap_or(u64::MAX);
        // A bucket with nothing, or with a debt, has nothing of a longer burst either.
        let of_burst = if lacks < burst { Duration::from_nanos(lacks).min(self.burst) } else { self.burst };
        self.full_at = now + of_burst + Duration::from_nanos(debt);
    }
}

/// The limits of what may move in one direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RateLimit {
    /// Bytes in a second. `None`: any number.
    pub bytes: Option<NonZeroU64>,
    /// Messages in a second. `None`: any number.
    pub messages: Option<NonZeroU64>,
    /// How long as much as the rates allow may be saved up, to be moved at once. Two pieces of what
    /// moves at once may always be.
    pub burst: Duration,
}

impl RateLimit {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.messages.is_none()
    }
}

/// What may move in one direction: bytes and messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    bytes: Option<Bucket>,
    messages: Option<Bucket>,
    /// Bytes that usually move at once.
    piece: u64,
}

impl Default for Meter {
    /// Makes a meter of what RDMA functions move, without limits.
    fn default() -> Meter {
        Meter::of_pieces(4096)
    }
}

impl Meter {
    /// Makes a meter without limits, of what moves in pieces of this many bytes.
    pub fn of_pieces(piece: u64) -> Meter {
        Meter { bytes: None, messages: None, piece }
    }

    /// Changes the limits. A debt stays, as a number of bytes and of messages. Buckets that are new
    /// are full.
    pub fn set(&mut self, now: Instant, limit: &RateLimit) {
        let bucket = |rate: Option<NonZeroU64>, piece| rate.map(|rate| Bucket::new(rate, limit.burst, piece));
        let (bytes, messages) = (bucket(limit.bytes, self.piece), bucket(limit.messages, 1));
        let before = core::mem::replace(self, Meter { bytes, messages, piece: self.piece });
        let keep = |bucket: &mut Option<Bucket>, before: Option<Bucket>| {
            if let (Some(bucket), Some(before)) = (bucket, before) {
                bucket.follow(now, &before);
            }
        };
        keep(&mut self.bytes, before.bytes);
        keep(&mut self.messages, before.messages);
    }

    /// Returns when something may move, which is `None` if it may now.
    #[inline]
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        let wait = |bucket: &Option<Bucket>| bucket.as_ref().and_then(|bucket| bucket.wait(now));
        // `None` is less than any time.
        wait(&self.bytes).max(wait(&self.messages))
    }

    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.messages.is_none()
    }

    /// Returns the time that the limits leave for this much.
    pub fn time_of(&self, bytes: u64, messages: u64) -> Duration {
        let time = |bucket: &Option<Bucket>, units| bucket.as_ref().map(|bucket| bucket.time_of(units));
        time(&self.bytes, bytes).max(time(&self.messages, messages)).unwrap_or_default()
    }

    /// Returns how many bytes may be saved up, in whole pieces.
    pub fn holds(&self) -> u64 {
        let piece = self.piece.max(1);
        self.bytes.as_ref().map_or(u64::MAX, |bucket| bucket.holds() / piece * piece)
    }

    /// Returns how many bytes the limit allows in this time, without what is saved up.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        self.bytes.as_ref().map_or(u64::MAX, |bucket| bucket.units_in(time))
    }

    /// Returns how many bytes may move without a debt; `None` if there is no limit.
    pub fn bytes_left(&self, now: Instant) -> Option<u64> {
        self.bytes.as_ref().map(|bucket| bucket.level(now))
    }

    /// Returns how many messages may move without a debt; `None` if there is no limit.
    pub fn messages_left(&self, now: Instant) -> Option<u64> {
        self.messages.as_ref().map(|bucket| bucket.level(now))
    }

    /// Counts what has moved and could not be stopped.
    ///
    /// A debt does not grow beyond what takes `most` to pay. So whatever comes, the time until
    /// something may move again has an end.
    pub fn charge_up_to(&mut self, now: Instant, bytes: u64, messages: u64, most: Duration) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take_up_to(now, bytes, most);
        }
        if let Some(bucket) = &mut self.messages {
            bucket.take_up_to(now, messages, most);
        }
    }

    /// Counts what has moved.
    pub fn charge(&mut self, now: Instant, bytes: u64, messages: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(now, bytes);
        }
        if let Some(bucket) = &mut self.messages {
            bucket.take(now, messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    /// A bucket by the book: it fills at each nanosecond, in units of a nanosecond times the rate.
    struct Model {
        rate: i128,
        most: i128,
        level: i128,
        at: u64,
    }

    impl Model {
        fn new(rate: u64, burst: Duration) -> Model {
            let most = i128::from(rate) * burst.as_nanos() as i128;
            Model { rate: rate.into(), most, level: most, at: 0 }
        }

        fn level(&mut self, now: Instant) -> i128 {
            let passed = i128::from(now.0 - self.at);
            (self.level, self.at) = ((self.level + passed * self.rate).min(self.most), now.0);
            self.level
        }
    }

    fn metered(piece: u64, limit: &RateLimit) -> Meter {
        let mut meter = Meter::of_pieces(piece);
        meter.set(Instant(0), limit);
        meter
    }

    fn rate(rate: u64) -> NonZeroU64 {
        NonZeroU64::new(rate).unwrap()
    }

    #[test]
    fn a_bucket_agrees_with_one_that_fills_at_each_nanosecond() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let speed = 1 + rng.next() % [1_000, 1_000_000, 100_000_000_000][seed as usize % 3];
            let burst = Duration::from_nanos(1 + rng.next() % 100_000_000);
            let (mut bucket, mut model) = (Bucket::new(rate(speed), burst, 0), Model::new(speed, burst));
            let mut now = Instant(0);
            for step in 0..500 {
                now = now + Duration::from_nanos(rng.next() % 10_000_000);
                let level = model.level(now);
                // A bucket that cannot tell a nanosecond's content errs by less than that.
                let slack = model.rate;
                let context = (seed, step, level, speed);
                match bucket.wait(now) {
                    None => assert!(level > -slack, "{context:?}"),
                    Some(at) => {
                        assert!(level < slack && at > now, "{context:?}");
                        // At that time something may move, and a unit earlier nothing might.
                        assert_eq!(bucket.wait(at), None, "{context:?}");
                        let unit = SECOND as i128 / model.rate + 2;
                        let filled = level + (i128::from(at.0 - now.0) + 1) * model.rate;
                        assert!(filled > 0 && filled <= (unit + 1) * model.rate, "{context:?}");
                    }
                }
                let whole = (level / SECOND as i128).max(0);
                let diff = i128::from(bucket.level(now)) - whole;
                assert!(diff.abs() <= 1 + model.rate / SECOND as i128, "{context:?}: {diff}");
                if bucket.wait(now).is_none() {
                    let units = rng.next() % (1 + speed / 100);
                    bucket.take(now, units);
                    model.level -= i128::from(units) * SECOND as i128;
                }
            }
        }
    }

    #[test]
    fn no_more_moves_than_a_burst_and_the_rate_and_no_less_than_the_rate() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let limit = RateLimit {
                bytes: Some(rate(1_000_000 + rng.next() % 1_000_000_000)),
                messages: (seed % 2 == 0).then(|| rate(1_000 + rng.next() % 100_000)),
                burst: Duration::from_millis(1 + rng.next() % 20),
            };
            let mut meter = metered(1, &limit);
            let (mut now, mut bytes, mut messages) = (Instant(7), 0_u64, 0_u64);
            let end = now + Duration::from_secs(2);
            let begin = now;
            let mut was_stopped_by = (false, false);
            while now < end {
                let seconds = (now.0 - begin.0) as f64 / 1e9 + limit.burst.as_secs_f64();
                let most = |rate: NonZeroU64| rate.get() as f64 * seconds;
                // The whole of what moved before the piece that moves now.
                assert!(bytes as f64 <= most(limit.bytes.unwrap()) + 2.0, "seed {seed}");
                assert!(limit.messages.is_none_or(|rate| messages as f64 <= most(rate) + 2.0), "seed {seed}");
                let piece = rng.next() % 8192;
                meter.charge(now, piece, 1);
                (bytes, messages) = (bytes + piece, messages + 1);
                // It is always used as soon as it allows.
                if let Some(at) = meter.wait(now) {
                    was_stopped_by.0 |= meter.bytes_left(now) == Some(0);
                    was_stopped_by.1 |= meter.messages_left(now) == Some(0);
                    now = at;
                }
            }
            let least = |rate: NonZeroU64| rate.get() as f64 * 2.0 * 0.99;
            let is_used = bytes as f64 >= least(limit.bytes.unwrap())
                || limit.messages.is_some_and(|rate| messages as f64 >= least(rate));
            assert!(is_used, "seed {seed}: {bytes} bytes, {messages} messages");
            assert!(was_stopped_by.0 || was_stopped_by.1, "seed {seed}");
        }
    }

    #[test]
    fn what_was_not_used_is_saved_up_to_a_burst() {
        let burst = Duration::from_millis(10);
        let limit = RateLimit { bytes: Some(rate(1_000_000)), messages: None, burst };
        let mut meter = metered(1, &limit);
        assert_eq!(meter.bytes_left(Instant(5_000_000_000)), Some(10_000));
        meter.charge(Instant(5_000_000_000), 10_000, 1);
        assert_eq!(meter.bytes_left(Instant(5_000_000_000)), Some(0));
        assert_eq!(meter.wait(Instant(5_000_000_000)), Some(Instant(5_000_001_000)));
        assert_eq!(meter.bytes_left(Instant(5_001_000_000)), Some(1_000));
        // A debt is paid before anything moves.
        meter.charge(Instant(5_001_000_000), 101_000, 1);
        assert_eq!(meter.wait(Instant(5_050_000_000)), Some(Instant(5_101_001_000)));
        assert_eq!(meter.bytes_left(Instant(6_000_000_000)), Some(10_000));
    }

    #[test]
    fn new_limits_keep_a_debt_and_no_limit_has_none() {
        let limit = |bytes| RateLimit { bytes, messages: None, burst: Duration::from_millis(1) };
        let mut meter = metered(1, &limit(Some(rate(1_000_000))));
        meter.charge(Instant(0), 1_000_000, 1);
        // It owes 999,000 bytes.
        meter.set(Instant(0), &limit(Some(rate(2_000_000))));
        assert!(meter.wait(Instant(499_500_000)).is_some());
        assert!(meter.wait(Instant(499_501_000)).is_none());
        // What is lacking of a burst is not a debt of a slower rate.
        meter.set(Instant(499_501_000), &limit(Some(rate(1_000))));
        assert!(meter.wait(Instant(500_501_000)).is_none());
        meter.set(Instant(500_501_000), &limit(None));
        assert_eq!((meter.wait(Instant(0)), meter.bytes_left(Instant(0))), (None, None));
        assert!(limit(None).is_none() && !limit(Some(rate(1))).is_none());
        meter.charge(Instant(u64::MAX), u64::MAX, u64::MAX);
        meter.set(Instant(0), &limit(Some(rate(1))));
        meter.charge(Instant(u64::MAX), u64::MAX, u64::MAX);
        assert!(meter.wait(Instant(5)).is_some(), "times saturate");
    }

    #[test]
    fn a_longer_burst_forgives_no_debt() {
        let limit = |millis| RateLimit {
            bytes: Some(rate(1_000_000)),
            messages: None,
            burst: Duration::from_millis(millis),
        };
        // 2,000 bytes are owed, or the bucket is just empty, or it holds half of them.
        for (bytes, before, after) in [(12_000, 2, 2), (10_000, 0, 0), (5_000, 0, 0)] {
            let mut meter = metered(1, &limit(10));
            meter.charge(Instant(0), bytes, 1);
            let wait = |meter: &Meter| meter.wait(Instant(0)).map_or(0, |at| at.0 / 1_000_000);
            assert_eq!(wait(&meter), before);
            meter.set(Instant(0), &limit(1000));
            assert_eq!(wait(&meter), after, "{bytes} bytes");
        }
    }

    #[test]
    fn a_debt_of_what_cannot_be_stopped_has_an_end() {
        let limit = RateLimit {
            bytes: Some(rate(1_000_000)),
            messages: Some(rate(1_000)),
            burst: Duration::from_millis(1),
        };
        let (mut meter, most) = (metered(1, &limit), Duration::from_millis(20));
        for _ in 0..1_000_000 {
            meter.charge_up_to(Instant(0), 4096, 1, most);
        }
        let end = Instant(0) + most + Duration::from_millis(1);
        assert!(meter.wait(Instant(0) + most).is_some() && meter.wait(end).is_none());
        // One long piece makes no longer one, and a debt that is longer already stays.
        meter.charge_up_to(Instant(0), u64::MAX, u64::MAX, most);
        assert!(meter.wait(end).is_none());
        meter.charge(Instant(0), 1_000_000, 1);
        meter.charge_up_to(Instant(0), 1_000_000, 1, most);
        assert!(meter.wait(Instant(1_019_000_000)).is_some() && meter.wait(Instant(1_022_000_000)).is_none());
    }

    #[test]
    fn rates_are_reached_however_short_the_burst_is_if_the_meter_is_looked_at_late() {
        // Bytes and messages in a second, of pieces of 4096 bytes.
        for (bytes, messages) in [(1_000_000, 0), (0, 100), (4_000_000, 100)] {
            let limit = RateLimit {
                bytes: NonZeroU64::new(bytes),
                messages: NonZeroU64::new(messages),
                burst: Duration::from_micros(1),
            };
            let (mut meter, mut now, mut moved) = (metered(4096, &limit), Instant(0), 0_u64);
            while now < Instant(10_000_000_000) {
                meter.charge(now, 4096, 1);
                moved += 1;
                if let Some(at) = meter.wait(now) {
                    // A millisecond passes before somebody looks.
                    now = at + Duration::from_millis(1);
                }
            }
            let most = |rate: u64, piece| if rate == 0 { u64::MAX } else { 10 * rate / piece };
            let expected = most(bytes, 4096).min(most(messages, 1));
            assert!(moved.abs_diff(expected) < 5, "{moved}, {expected} expected");
        }
    }
}
