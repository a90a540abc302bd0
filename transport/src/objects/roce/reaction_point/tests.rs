//! The rate, compared with an implementation that has timers.

use super::*;
use crate::base::rng::Rng;

/// Nothing gets through.
const NOTHING: u64 = 0;

/// DCQCN with timers: each expiry is an event of its own, as in the paper.
struct Eager {
    current: f64,
    target: f64,
    alpha: f64,
    alpha_timer: u64,
    timer: u64,
    fell_at: u64,
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// What got through, in bytes a second, with the time and the bytes when that was measured.
    delivered: f64,
    measured: (u64, u64),
    parameters: Dcqcn,
}

impl Eager {
    fn new(now: u64, parameters: Dcqcn) -> Eager {
        let most = parameters.rp_max_rate as f64;
        let alpha = f64::from(parameters.rp_initial_alpha_value) / f64::from(DCQCN_UNIT);
        let mut eager = Eager {
            current: most,
            target: most,
            alpha,
            alpha_timer: 0,
            timer: 0,
            fell_at: 0,
            timer_steps: 0,
            byte_steps: 0,
            bytes: 0,
            delivered: 0.0,
            measured: (now, 0),
            parameters,
        };
        eager.fall(now);
        eager
    }

    fn stays(&self) -> f64 {
        f64::from(self.parameters.rp_dce_tcp_g) / f64::from(DCQCN_UNIT)
    }

    /// The time in which four frames get through, if that is longer than the parameter.
    fn alpha_period(&self) -> u64 {
        let frames = 4.0 * 4200.0 * 1e9 / self.delivered;
        (self.parameters.rp_dce_tcp_rtt.as_nanos() as u64).max(frames.min(1e7) as u64 * u64::from(self.delivered > 0.0))
    }

    fn fall(&mut self, now: u64) {
        let most = self.parameters.rp_max_rate as f64;
        let before = self.current;
        let lowest = (self.parameters.rp_min_rate as f64).max(self.delivered.min(most) / 2.0);
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(lowest);
        self.target = before.max(self.delivered.min(most)).max(self.current);
        self.alpha = self.stays() * self.alpha + 1.0 - self.stays();
        self.fell_at = now;
        self.alpha_timer = now + self.alpha_period();
        self.timer = now + self.parameters.rp_time_reset.as_nanos() as u64;
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
    }

    fn grow(&mut self) {
        let threshold = u32::from(self.parameters.rp_threshold);
        if self.timer_steps.max(self.byte_steps) >= threshold {
            let hyper = self.timer_steps.min(self.byte_steps) > threshold;
            let by = if hyper { self.parameters.rp_hai_rate } else { self.parameters.rp_ai_rate };
            let part = if hyper { 8.0 } else { 64.0 };
            let by = (by as f64).min(self.target / part);
            self.target = (self.target + by).min(self.parameters.rp_max_rate as f64);
        }
        self.current = f64::midpoint(self.target, self.current);
    }

    /// Lets timers expire, one after the other.
    fn run_to(&mut self, now: u64) {
        loop {
            let next = self.alpha_timer.min(self.timer);
            if next > now {
                return;
            }
            if next == self.alpha_timer {
                self.alpha *= self.stays();
                self.alpha_timer += self.alpha_period();
            } else {
                self.timer_steps += 1;
                self.grow();
                self.timer += self.parameters.rp_time_reset.as_nanos() as u64;
            }
        }
    }

    fn notified(&mut self, now: u64, through: u64) {
        self.run_to(now);
        let time = now - self.measured.0;
        if time >= 200_000 && (through - self.measured.1 >= 131_072 || time >= 10_000_000) {
            self.delivered = (through - self.measured.1) as f64 * 1e9 / (now - self.measured.0) as f64;
            self.measured = (now, through);
        }
        self.alpha_timer = now + self.alpha_period();
        if now >= self.fell_at + self.parameters.rp_rate_reduce_monitor_period.as_nanos() as u64 {
            self.fall(now);
        }
    }

    fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        while self.bytes >= self.parameters.rp_byte_reset {
            self.bytes -= self.parameters.rp_byte_reset;
            self.byte_steps += 1;
            self.grow();
        }
    }
}

/// Returns the state of a QP after its first notification.
fn notified_once(now: u64, parameters: &Dcqcn) -> ReactionPoint {
    let mut point = ReactionPoint::new(Instant(now), NOTHING, parameters);
    point.fall(Instant(now), parameters);
    point
}

fn random_parameters(rng: &mut Rng) -> Dcqcn {
    let mut parameters = Dcqcn::default();
    if rng.next().is_multiple_of(2) {
        parameters.rp_time_reset = Duration::from_micros(1 + rng.next() % 2000);
        parameters.rp_byte_reset = 1000 + rng.next() % 20_000_000;
        parameters.rp_threshold = 1 + (rng.next() % 9) as u16;
        parameters.rp_dce_tcp_g = (rng.next() % u64::from(DCQCN_UNIT)) as u16;
        parameters.rp_ai_rate = 125_000 + rng.next() % 50_000_000;
        parameters.rp_hai_rate = 125_000 + rng.next() % 500_000_000;
        parameters.rp_max_rate = 12_500_000_000 / (1 + rng.next() % 100);
    }
    parameters.rp_hai_rate = parameters.rp_hai_rate.min(parameters.rp_max_rate);
    assert!(parameters.is_valid(), "{parameters:?}");
    parameters
}

#[test]
fn the_rate_is_that_of_an_implementation_with_timers_at_each_notification_and_each_send() {
    let mut kinds = [0_u32; 3];
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let parameters = random_parameters(&mut rng);
        let mut now = 1 + rng.next() % 1_000_000;
        let mut lazy = notified_once(now, &parameters);
        let mut eager = Eager::new(now, parameters);
        let mut through = 0;
        for step in 0..400 {
            now += match rng.next() % 20 {
                0 => rng.next() % 300_000_000,
                1..5 => rng.next() % 2_000_000,
                _ => rng.next() % 60_000,
            };
            if rng.next().is_multiple_of(6) {
                through += rng.next() % [1, 100_000, 2_000_000][seed as usize % 3];
                lazy.notified(Instant(now), through, &parameters);
                eager.notified(now, through);
            } else {
                let bytes = rng.next() % 5_000_000;
                lazy.advance(Instant(now), &parameters);
                lazy.sent(Instant(now), bytes, &parameters);
                eager.run_to(now);
                eager.sent(bytes);
            }
            let near = |lazy: u64, eager: f64| (lazy as f64 - eager).abs() <= 100.0 + eager * 1e-5;
            let context =
                || format!("seed {seed}, step {step}, {lazy:?}; {} {}", eager.current, eager.target);
            assert!(near(lazy.current, eager.current) && near(lazy.target, eager.target), "{}", context());
            let alpha = f64::from(lazy.alpha) / f64::from(ONE);
            assert!((alpha - eager.alpha).abs() < 1e-5, "{}: {alpha} {}", context(), eager.alpha);
            let steps = (lazy.timer_steps, lazy.byte_steps, lazy.bytes);
            assert_eq!(steps, (eager.timer_steps, eager.byte_steps, eager.bytes), "{}", context());
            let threshold = u32::from(parameters.rp_threshold);
            let (more, less) = (steps.0.max(steps.1), steps.0.min(steps.1));
            kinds[usize::from(more >= threshold) + usize::from(less > threshold)] += 1;
        }
    }
    assert!(kinds.iter().all(|count| *count > 1000), "{kinds:?}");
}

#[test]
fn a_burst_of_notifications_counts_once_and_no_flood_goes_below_the_lowest_rate() {
    let parameters = Dcqcn::default();
    let mut point = notified_once(0, &parameters);
    assert_eq!(point.rate(), parameters.rp_max_rate / 2);
    for now in 0..49 {
        point.notified(Instant(now * 1000), NOTHING, &parameters);
    }
    assert_eq!(point.rate(), parameters.rp_max_rate / 2);
    for now in 50..10_000 {
        point.notified(Instant(now * 1000), NOTHING, &parameters);
        assert!(point.rate() >= parameters.rp_min_rate);
    }
    assert_eq!(point.rate(), parameters.rp_min_rate);
    // It sends, however many more come.
    let (mut sent, mut now) = (0, 10_000_000);
    while now < 1_010_000_000 {
        point.notified(Instant(now), NOTHING, &parameters);
        if point.wait(Instant(now)).is_none() {
            let burst = point.burst(4200);
            assert!(burst >= 4200);
            point.sent(Instant(now), burst, &parameters);
            sent += burst;
        }
        now += 10_000;
    }
    let expected = parameters.rp_min_rate;
    assert!((expected * 95 / 100..expected * 110 / 100).contains(&sent), "{sent}");
}

#[test]
fn a_rate_recovers_to_that_of_the_link_and_is_forgotten() {
    let parameters = Dcqcn::default();
    let mut point = notified_once(0, &parameters);
    for now in 1..100 {
        point.notified(Instant(now * 60_000), NOTHING, &parameters);
    }
    assert!(point.rate() < parameters.rp_max_rate / 100 && !point.is_over(&parameters));
    let mut now = 100 * 60_000;
    let mut last = point.rate();
    while !point.is_over(&parameters) {
        now += 1_000_000;
        point.advance(Instant(now), &parameters);
        assert!(point.rate() >= last, "it only grows");
        last = point.rate();
        assert!(now < 5_000_000_000, "{point:?}");
    }
    // One look later is as good as many in between.
    point.advance(Instant(u64::MAX - 1), &parameters);
    assert_eq!((point.rate(), point.alpha), (parameters.rp_max_rate, 0));
}

#[test]
fn what_is_sent_has_the_rate_and_little_more_at_once() {
    let parameters = Dcqcn::default();
    for notifications in [1, 3, 6, 10, 14] {
        let mut point = notified_once(0, &parameters);
        for it in 1..notifications {
            point.notified(Instant(it * 50_000), NOTHING, &parameters);
        }
        let rate = point.rate();
        let begin = notifications * 50_000;
        let (mut sent, mut now) = (0, begin);
        // The rate stays for 300 us.
        while now < begin + 200_000 {
            if let Some(at) = point.wait(Instant(now)) {
                now = at.0.max(now + 1);
                continue;
            }
            let burst = point.burst(4200);
            let limit = (u128::from(rate) * 16_000 / 1_000_000_000) as u64;
            assert!(burst <= limit.max(4 * 4200));
            point.sent(Instant(now), burst, &parameters);
            sent += burst;
            let most =
                rate as f64 * (now - begin) as f64 / 1e9 + 2.0 * burst as f64 + 0.000_016 * rate as f64;
            assert!(sent as f64 <= most, "{sent} {most}");
        }
        let least = rate as f64 * 0.000_2 * 0.98;
        assert!(sent as f64 >= least, "{notifications}: {sent} {least}");
    }
}

#[test]
fn a_rate_does_not_fall_below_half_of_what_gets_through_and_recovers_to_all_of_it() {
    let parameters = Dcqcn::default();
    let mut point = notified_once(0, &parameters);
    // 4 KB in 10 us get through, which is 3.2 Gb/s, while a queue drains for 2 ms.
    let share = 400_000_000;
    for micros in (50..2000).step_by(50) {
        // The peer acknowledges 128 KB at once.
        point.notified(Instant(micros * 1000), micros * 400 / 131_072 * 131_072, &parameters);
    }
    assert!((share * 3 / 10..share * 7 / 10).contains(&point.rate()), "{}", point.rate());
    point.advance(Instant(4_000_000), &parameters);
    assert!((share * 7 / 10..share * 13 / 10).contains(&point.rate()), "{}", point.rate());
    // If nothing gets through any more, it falls further.
    for micros in (4050..60_000).step_by(50) {
        point.notified(Instant(micros * 1000), 800_000, &parameters);
    }
    assert_eq!(point.rate(), parameters.rp_min_rate);
}

#[test]
fn an_odd_state_neither_stops_a_qp_nor_takes_long() {
    let parameters = Dcqcn { rp_byte_reset: 1000, ..Dcqcn::default() };
    let later = Instant(u64::MAX / 2);
    let mut point = notified_once(0, &parameters);
    point = ReactionPoint {
        alpha_since: later,
        fell_at: later,
        timer_since: later,
        measured_at: later,
        next_at: later,
        bytes: u64::MAX / 2 - 1,
        ..point
    };
    assert!(point.is_possible());
    let now = Instant(5_000_000);
    point.advance(now, &parameters);
    assert!(point.wait(now).unwrap() <= now + Duration::from_secs(1));
    point.sent(now, 4000, &parameters);
    assert!(point.bytes < 1000);
    point.notified(now + Duration::from_secs(1), 0, &parameters);
    point.advance(now + Duration::from_secs(9), &parameters);
    assert!(point.is_over(&parameters));
}

#[test]
fn a_rate_from_before_the_lowest_rate_was_raised_can_be_saved() {
    let before = Dcqcn { rp_min_rate: Dcqcn::LOWEST_RATE, ..Dcqcn::default() };
    let mut point = notified_once(0, &before);
    for it in 1..2000 {
        point.notified(Instant(it * 50_000), NOTHING, &before);
    }
    assert_eq!(point.rate(), Dcqcn::LOWEST_RATE);
    let after = Dcqcn { rp_min_rate: 1_250_000_000, ..before };
    point.notified(Instant(100_050_000), NOTHING, &after);
    assert!(point.rate() == after.rp_min_rate && point.is_possible(), "{point:?}");
}

#[test]
fn a_worker_that_is_late_does_not_cost_the_rate() {
    let parameters = Dcqcn::default();
    for notifications in [3, 6, 10] {
        let mut point = notified_once(0, &parameters);
        for it in 1..notifications {
            point.notified(Instant(it * 50_000), NOTHING, &parameters);
        }
        // Its rate stays as it is.
        point.target = point.current;
        let (rate, begin) = (point.rate(), notifications * 50_000);
        let (mut rng, mut sent, mut now) = (Rng::new(notifications), 0, begin);
        let time = point.time_of(point.burst(4200)).as_nanos() as u64;
        while now < begin + 100 * time {
            if let Some(at) = point.wait(Instant(now)) {
                now = at.0.max(now + 1) + rng.next() % (time / 2);
                continue;
            }
            let burst = point.burst(4200);
            point.sent(Instant(now), burst, &Dcqcn { rp_byte_reset: 1 << 40, ..parameters });
            sent += burst;
        }
        let least = rate as f64 * (now - begin) as f64 / 1e9 * 0.97;
        assert!(sent as f64 >= least, "{notifications}: {sent} {least}");
    }
}

/// Parameters of a QP for which round-trip times beyond 500 us count.
fn by_delay() -> Dcqcn {
    Dcqcn { rp_delay_target: Some(Duration::from_micros(500)), ..Dcqcn::default() }
}

#[test]
fn a_round_trip_that_is_too_long_takes_the_rate_below_what_was_carried_in_it() {
    let parameters = by_delay();
    let micros = Duration::from_micros;
    for (time, carried, expected) in [
        (10_000, 52_428_800, 52_428_800 / 2),
        (1000, 1_000_000_000, 600_000_000),
        (625, 1_000_000_000, 840_000_000),
        (1000, 10, parameters.rp_min_rate),
    ] {
        let mut point = ReactionPoint::new(Instant(7), NOTHING, &parameters);
        point.delayed(Instant(1_000_000_000), micros(time), carried, &parameters);
        assert!(point.rate().abs_diff(expected) < 10, "{time} us: {}", point.rate());
        assert!(point.is_possible());
    }
    let mut point = ReactionPoint::new(Instant(7), NOTHING, &parameters);
    point.delayed(Instant(1_000_000_000), micros(500), 1, &parameters);
    assert_eq!(point.rate(), parameters.rp_max_rate, "the target is no congestion");
}

#[test]
fn a_round_trip_that_began_before_the_rate_fell_lowers_it_no_further() {
    let parameters = by_delay();
    let millis = |millis: u64| Instant(millis * 1_000_000);
    let mut point = ReactionPoint::new(millis(1), NOTHING, &parameters);
    let mut fall = |now| {
        let before = point.rate();
        point.delayed(millis(now), Duration::from_millis(10), 1 << 40, &parameters);
        point.rate() < before
    };
    assert_eq!([100, 101, 109, 110, 115, 120].map(&mut fall), [true, false, false, true, false, true]);
}

#[test]
fn no_number_of_long_round_trips_stops_a_qp() {
    let parameters = by_delay();
    let mut point = ReactionPoint::new(Instant(1), NOTHING, &parameters);
    for millis in 1..1000 {
        point.delayed(Instant(millis * 1_000_000), Duration::from_nanos(u64::MAX), 0, &parameters);
        point.delayed(Instant(millis * 1_000_000 + 9), Duration::from_micros(600), 0, &parameters);
        assert!(point.rate() >= parameters.rp_min_rate && point.is_possible());
    }
    assert_eq!(point.rate(), parameters.rp_min_rate);
    point.advance(Instant(60_000_000_000), &parameters);
    assert!(point.is_over(&parameters), "it recovers");
}
