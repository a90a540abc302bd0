//! The rate of a QP whose packets meet congestion: DCQCN's reaction point. Pure state, without
//! timers.
//!
//! The algorithm has two timers and a counter of bytes. They are evaluated when a notification
//! comes, and when the QP has a turn. The rate is then that of an implementation with real timers
//! (`tests.rs` has one). A QP that does nothing costs nothing.
//!
//! Source: Zhu et al., SIGCOMM 2015, 3 and figure 7. Two rules are added, and
//! [`ReactionPoint::notified`] says one. The other is that long round-trip times lower a rate, too
//! ([`ReactionPoint::delayed`]).

#[cfg(test)]
mod tests;

use crate::base::dcqcn::{DCQCN_UNIT, Dcqcn};
use crate::base::time::Instant;
use core::time::Duration;

/// The number that stands for an alpha of 1.
const ONE: u32 = 1 << 30;

/// Below this alpha, a QP with the rate of the link is as one that never had a notification.
const NEARLY_NONE: u32 = ONE / 256;

/// The time for which a QP may save up what its rate allows, to send it at once.
const BURST: Duration = Duration::from_micros(16);

/// The shortest time in which it is measured how much gets through.
const SAMPLE: Duration = Duration::from_micros(200);

/// The least number of bytes by which it is measured. Peers acknowledge many packets at once, which
/// would make a few look like a high rate.
const SAMPLE_BYTES: u64 = 128 << 10;

/// After this time it is measured, however few bytes got through.
const LONGEST_SAMPLE: Duration = Duration::from_millis(10);

/// Packets that a QP may save up, however low its rate is. It sends them at once if they take no
/// longer than [`SLOW_BURST`], and one at a time if each takes that long.
const LEAST_BURST: u64 = 4;

/// The time for which a slow QP sends at once. A queue of a slow port has no room for four packets
/// of each QP.
const SLOW_BURST: Duration = Duration::from_micros(250);

/// A period of alpha is no shorter than the time in which this number of frames gets through. There
/// is at most one notification for each frame.
const ALPHA_FRAMES: u64 = 4;

/// The longest period of alpha that the number of frames makes.
const LONGEST_PERIOD: Duration = Duration::from_millis(10);

/// A step of additive increase is at most this part of the target rate. A step of 40 Mb/s would
/// double the rate of a QP whose share is that.
const ADDITIVE_PART: u64 = 64;

/// A step of hyper increase is at most this part of the target rate.
const HYPER_PART: u64 = 8;

/// Bytes of a long frame.
const USUAL_FRAME: u64 = 4200;

/// The longest wait between two turns, which a burst at the lowest rate does not take.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Steps of the counter of bytes that are taken in one turn.
const MOST_STEPS: u64 = 10_000;

/// The rate of a QP that got a notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReactionPoint {
    /// The rate in bytes a second.
    pub(super) current: u64,
    /// The rate to which it recovers: that at the last notification, and later more.
    pub(super) target: u64,
    /// Estimate of how congested the path is, as a part of [`ONE`].
    pub(super) alpha: u32,
    /// When the current period of alpha began.
    pub(super) alpha_since: Instant,
    /// When the rate fell last.
    pub(super) fell_at: Instant,
    /// When the current period of the timer of increases began.
    pub(super) timer_since: Instant,
    /// Periods of that timer since the rate fell.
    pub(super) timer_steps: u32,
    /// Bytes that were sent in the current period of the counter of increases.
    pub(super) bytes: u64,
    /// Periods of that counter since the rate fell.
    pub(super) byte_steps: u32,
    /// When the next packet may be sent.
    pub(super) next_at: Instant,
    /// What got through to the peer, in bytes a second, in the last time that was measured.
    pub(super) delivered: u64,
    /// When the current time of measurement began.
    pub(super) measured_at: Instant,
    /// Bytes of frames that had got through then, modulo 2 to the power of 64.
    pub(super) through: u64,
}

impl ReactionPoint {
    /// Makes the state of a QP with the rate of the link, at the first sign of congestion.
    pub(crate) fn new(now: Instant, through: u64, parameters: &Dcqcn) -> ReactionPoint {
        ReactionPoint {
            current: parameters.rp_max_rate,
            target: parameters.rp_max_rate,
            alpha: to_alpha(parameters.rp_initial_alpha_value),
            alpha_since: now,
            fell_at: Instant(0),
            timer_since: now,
            timer_steps: 0,
            bytes: 0,
            byte_steps: 0,
            next_at: now,
            delivered: 0,
            measured_at: now,
            through,
        }
    }

    /// Takes a notification. `through` is the number of bytes that got through to the peer so far,
    /// modulo 2 to the power of 64.
    ///
    /// The rate falls, unless it fell just before: a burst of notifications counts once.
    ///
    /// It does not fall below half of what gets through to the peer, and recovers to all of that.
    /// While a long queue of the network drains, notifications go on, although the rate that caused
    /// the queue has ended. Without this rule they would take the rate far below the QP's share. A
    /// rate that fell further before this was measured goes back to it.
    pub(crate) fn notified(&mut self, now: Instant, through: u64, parameters: &Dcqcn) {
        self.advance(now, parameters);
        self.measure(now, through);
        // Alpha falls only in periods without a notification.
        self.alpha_since = now;
        if now >= self.fell_at + parameters.rp_rate_reduce_monitor_period {
            self.fall(now, parameters);
        }
    }

    /// Takes a round-trip time beyond the target. The path carried at most `carried` bytes a second
    /// meanwhile.
    ///
    /// The rate falls to that. It then falls by four fifths of the part by which the time is too
    /// long, at most by half. A further time lowers the rate only if the effect of this one may be
    /// seen in it.
    ///
    /// Source: Mittal et al., TIMELY, SIGCOMM 2015, algorithm 1, above the upper threshold.
    pub(crate) fn delayed(&mut self, now: Instant, round_trip: Duration, carried: u64, parameters: &Dcqcn) {
        let target = parameters.rp_delay_target.unwrap_or(round_trip);
        self.advance(now, parameters);
        let before = now.0.saturating_sub(round_trip.as_nanos() as u64);
        if before < self.fell_at.0 || round_trip <= target {
            return;
        }
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.target = self.current.min(carried.max(parameters.rp_min_rate));
        let excess = u128::from(nanos(round_trip) - nanos(target));
        let by = u128::from(self.target) * excess * 4 / (5 * round_trip.as_nanos());
        let by = (by as u64).min(self.target / 2);
        self.current = (self.target - by).max(parameters.rp_min_rate);
        self.target = self.target.max(self.current);
        (self.fell_at, self.timer_since) = (now, now);
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
    }

    /// Measures how much gets through to the peer.
    fn measure(&mut self, now: Instant, through: u64) {
        let time = now.0.saturating_sub(self.measured_at.0);
        let bytes = through.wrapping_sub(self.through);
        // What was measured lasts until more is known.
        let is_known = bytes >= SAMPLE_BYTES || time >= LONGEST_SAMPLE.as_nanos() as u64;
        if is_known && time >= SAMPLE.as_nanos() as u64 {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time);
            self.delivered = u64::try_from(rate).unwrap_or(u64::MAX);
            (self.measured_at, self.through) = (now, through);
        }
    }

    fn fall(&mut self, now: Instant, parameters: &Dcqcn) {
        let delivered = self.delivered.min(parameters.rp_max_rate);
        self.target = self.current.max(delivered);
        let by = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * u64::from(ONE));
        let least = parameters.rp_min_rate.max(delivered / 2);
        self.current = (self.current - by as u64).max(least);
        // The lowest rate may have been raised since.
        self.target = self.target.max(self.current);
        let stays = u64::from(self.alpha) * u64::from(parameters.rp_dce_tcp_g);
        let grows = u64::from(ONE) * u64::from(DCQCN_UNIT - parameters.rp_dce_tcp_g);
        self.alpha = ((stays + grows) / u64::from(DCQCN_UNIT)) as u32;
        (self.alpha_since, self.fell_at, self.timer_since) = (now, now, now);
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
    }

    /// Has the rate not grow until now, apart from what it has grown when it was last evaluated.
    pub(crate) fn hold(&mut self, now: Instant) {
        self.timer_since = self.timer_since.max(now);
    }

    /// Evaluates the timers that have expired by now.
    pub(crate) fn advance(&mut self, now: Instant, parameters: &Dcqcn) {
        // A record of another clock may have later times.
        for time in [&mut self.alpha_since, &mut self.fell_at, &mut self.timer_since, &mut self.measured_at] {
            *time = now.min(*time);
        }
        self.next_at = self.next_at.min(now + LONGEST_WAIT);
        let period = self.alpha_period(parameters);
        let periods = take_periods(&mut self.alpha_since, now, period);
        if periods > 0 {
            let stays = power(to_alpha(parameters.rp_dce_tcp_g), periods);
            self.alpha = times(self.alpha, stays);
        }
        let periods = take_periods(&mut self.timer_since, now, parameters.rp_time_reset);
        if periods > 0 {
            self.timer_expired(periods, parameters);
        }
        // A changed parameter may have lowered the limit.
        self.current = self.current.min(parameters.rp_max_rate);
        self.target = self.target.min(parameters.rp_max_rate);
    }

    /// Returns the period of alpha. It changes only at a notification.
    fn alpha_period(&self, parameters: &Dcqcn) -> Duration {
        let frames = (ALPHA_FRAMES * USUAL_FRAME * 1_000_000_000).checked_div(self.delivered);
        let time = frames.map_or(Duration::ZERO, Duration::from_nanos).min(LONGEST_PERIOD);
        parameters.rp_dce_tcp_rtt.max(time)
    }

    /// Lets the rate grow by this many steps of the timer.
    fn timer_expired(&mut self, periods: u64, parameters: &Dcqcn) {
        let threshold = u64::from(parameters.rp_threshold);
        let (before, byte_steps) = (u64::from(self.timer_steps), u64::from(self.byte_steps));
        self.timer_steps = u32::try_from(before.saturating_add(periods)).unwrap_or(u32::MAX);
        // Steps up to each of these numbers are of one kind.
        let recovering = if byte_steps >= threshold { before } else { (threshold - 1).max(before) };
        let additive = if byte_steps > threshold { threshold.max(before) } else { u64::MAX };
        let of = |from: u64, to: u64| {
            let end = before.saturating_add(periods).min(to);
            end.saturating_sub(from.max(before))
        };
        self.grow(of(before, recovering), Increase::NONE, parameters);
        self.grow(of(recovering, additive), Increase::additive(parameters), parameters);
        self.grow(of(additive.max(recovering), u64::MAX), Increase::hyper(parameters), parameters);
    }

    /// Records that the QP has sent this many bytes, in a turn at `now`.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, parameters: &Dcqcn) {
        let threshold = u32::from(parameters.rp_threshold);
        // A worker that is late does not cost the QP its rate.
        let saved_up = BURST.max(self.time_of(LEAST_BURST * USUAL_FRAME));
        let saved_up = Instant(now.0.saturating_sub(saved_up.as_nanos() as u64));
        self.next_at = self.next_at.max(saved_up) + self.time_of(bytes);
        self.bytes += bytes;
        let periods = self.bytes / parameters.rp_byte_reset;
        self.bytes %= parameters.rp_byte_reset;
        // More than this many steps change nothing more.
        for _ in 0..periods.min(MOST_STEPS) {
            self.byte_steps = self.byte_steps.saturating_add(1);
            let (more, less) = (self.timer_steps.max(self.byte_steps), self.timer_steps.min(self.byte_steps));
            let by = match () {
                () if more < threshold => Increase::NONE,
                () if less > threshold => Increase::hyper(parameters),
                () => Increase::additive(parameters),
            };
            self.grow(1, by, parameters);
        }
    }

    /// Lets the rate grow by steps. In each, the target grows, and half of what the rate lacks is
    /// made up for.
    fn grow(&mut self, mut steps: u64, increase: Increase, parameters: &Dcqcn) {
        let (most, by) = (parameters.rp_max_rate, increase.by);
        // There are at most some hundred of these steps: the target grows by a part of itself.
        while steps > 0 && self.target / increase.part < by && self.target < most {
            self.approach(1, (self.target / increase.part).min(most - self.target));
            steps -= 1;
        }
        let left = most.saturating_sub(self.target);
        let whole = left.checked_div(by).unwrap_or(0).min(steps);
        self.approach(whole, by);
        let mut rest = steps - whole;
        if rest > 0 && by > 0 {
            // The step in which the target reaches the rate of the link, or stays there.
            self.approach(1, most.saturating_sub(self.target));
            rest -= 1;
        }
        self.approach(rest, 0);
    }

    /// Lets the rate grow by steps, each of which raises the target by all of `by`.
    fn approach(&mut self, steps: u64, by: u64) {
        if steps == 0 {
            return;
        }
        self.target += steps * by;
        // The distance d becomes (d + by) / 2 in each step.
        let half = |value: u64| value.checked_shr(steps.min(64) as u32).unwrap_or(0);
        let lacks = (self.target - steps * by).saturating_sub(self.current);
        self.current = self.target - (half(lacks) + (by - half(by)));
    }

    /// Whether an implementation may have this state, with any parameters.
    pub(super) fn is_possible(&self) -> bool {
        let rates = self.current >= Dcqcn::LOWEST_RATE && self.target <= Dcqcn::HIGHEST_RATE;
        rates && self.current <= self.target && self.alpha <= ONE && self.bytes < u64::MAX / 2
    }

    /// Whether the QP is as one that never got a notification.
    pub(crate) fn is_over(&self, parameters: &Dcqcn) -> bool {
        self.current >= parameters.rp_max_rate && self.alpha < NEARLY_NONE
    }

    /// Returns until when the QP has to wait; `None` if it may send now.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        (self.next_at > now).then_some(self.next_at)
    }

    /// Returns how many bytes the QP may send in a turn, in packets of at most `longest` bytes.
    pub(crate) fn burst(&self, longest: u64) -> u64 {
        let bytes_in =
            |time: Duration| (u128::from(self.current) * time.as_nanos() / 1_000_000_000) as u64;
        bytes_in(BURST).max(bytes_in(SLOW_BURST).clamp(longest, LEAST_BURST * longest))
    }

    /// Returns the time that a number of bytes takes at the rate.
    pub(crate) fn time_of(&self, bytes: u64) -> Duration {
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(self.current.max(1));
        Duration::from_nanos(time as u64)
    }

    /// Returns the rate in bytes a second, as it was when it was evaluated last.
    pub(crate) fn rate(&self) -> u64 {
        self.current
    }
}

/// By how much a target rate grows in a step.
#[derive(Copy, Clone)]
struct Increase {
    /// Bytes a second.
    by: u64,
    /// A step is no more than one divided by this of the target rate.
    part: u64,
}

impl Increase {
    /// A step of fast recovery.
    const NONE: Increase = Increase { by: 0, part: 1 };

    fn additive(parameters: &Dcqcn) -> Increase {
        Increase { by: parameters.rp_ai_rate, part: ADDITIVE_PART }
    }

    fn hyper(parameters: &Dcqcn) -> Increase {
        Increase { by: parameters.rp_hai_rate, part: HYPER_PART }
    }
}

/// Returns a fraction in units of 1/[`DCQCN_UNIT`] as a part of [`ONE`].
fn to_alpha(fraction: u16) -> u32 {
    u32::from(fraction.min(DCQCN_UNIT)) * (ONE / u32::from(DCQCN_UNIT))
}

/// Multiplies parts of [`ONE`].
fn times(a: u32, b: u32) -> u32 {
    (u64::from(a) * u64::from(b) / u64::from(ONE)) as u32
}

/// Raises a part of [`ONE`] to a power.
fn power(mut base: u32, mut exponent: u64) -> u32 {
    let mut result = ONE;
    while exponent > 0 && result > 0 {
        if exponent & 1 == 1 {
            result = times(result, base);
        }
        base = times(base, base);
        exponent >>= 1;
    }
    result
}

/// Returns how many periods have passed since a time, and moves that time to the end of the last.
fn take_periods(since: &mut Instant, now: Instant, period: Duration) -> u64 {
    let period = (period.as_nanos() as u64).max(1);
    let periods = now.0.saturating_sub(since.0) / period;
    since.0 += periods * period;
    periods
}
