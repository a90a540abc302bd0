use super::*;
use crate::port::pair::{Pair, pair};

/// Sends numbered frames through faults.
///
/// It returns their numbers as they arrive, each with whether the frame is unchanged.
struct Bench {
    bad: Faults,
    good: Pair,
}

impl Bench {
    fn new(faults: &str) -> Bench {
        let (left, good, _) = pair(1500).unwrap();
        let mut bad = Faults::new(Box::new(left), faults.parse().unwrap());
        bad.clock = Clock::Test(Duration::ZERO);
        Bench { bad, good }
    }

    /// Sends and receives `numbers`, and then polls once more at the time `later`.
    fn run(&mut self, numbers: std::ops::Range<u32>, later: Duration) -> Vec<(u32, bool)> {
        let mut out = Vec::new();
        for number in numbers {
            self.bad.send(&mut vec![frame(number)]);
            self.take(&mut out);
        }
        self.bad.clock = Clock::Test(later);
        self.bad.receive(&mut Vec::new());
        self.take(&mut out);
        out
    }

    fn take(&mut self, out: &mut Vec<(u32, bool)>) {
        loop {
            let mut frames = Vec::new();
            self.good.receive(&mut frames);
            if frames.is_empty() {
                return;
            }
            out.extend(frames.iter().map(|got| {
                let number = u32::from_be_bytes(got[..4].try_into().unwrap());
                (number, **got == *frame(number))
            }));
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let mut found = None;
        self.bad.counters(&mut |this, value| found = if this == name { Some(value) } else { found });
        found.unwrap()
    }
}

fn frame(number: u32) -> Frame {
    Frame::new([&number.to_be_bytes()[..], &[7; 56], &number.to_be_bytes()].concat())
}

const LATER: Duration = Duration::from_secs(1);

#[test]
fn without_faults_all_arrive_as_they_were() {
    let all = Bench::new("seed=5").run(0..1000, LATER);
    assert!(all == (0..1000).map(|number| (number, true)).collect::<Vec<_>>());
}

#[test]
fn rates_are_kept_and_counted() {
    const COUNT: u32 = 100_000;
    for (fault, name, arrived) in [
        ("loss", "fault_tx_lost", 0.99),
        ("dup", "fault_tx_duplicated", 1.01),
        ("reorder", "fault_tx_reordered", 1.),
        ("corrupt", "fault_tx_corrupted", 1.),
        ("delay", "fault_tx_delayed", 1.),
    ] {
        let mut bench = Bench::new(&format!("{fault}=0.01"));
        let all = bench.run(0..COUNT, LATER);
        let count = bench.counter(name);
        assert!((900..1100).contains(&count), "{fault}: {count}");
        let off = (all.len() as f64 - f64::from(COUNT) * arrived).abs();
        assert!(off < 100., "{fault}: {} arrived", all.len());
        let spoilt = all.iter().filter(|(_, whole)| !whole).count() as u64;
        assert_eq!(spoilt, if fault == "corrupt" { count } else { 0 }, "{fault}");
        let ordered = all.iter().filter(|(_, whole)| *whole).is_sorted();
        assert_eq!(ordered, !matches!(fault, "reorder" | "delay"), "{fault}");
    }
}

#[test]
fn everything_can_be_lost_doubled_or_spoilt() {
    assert!(Bench::new("loss=1").run(0..100, LATER).is_empty());
    let twice = Bench::new("dup=1").run(0..100, LATER);
    assert!(twice == (0..200).map(|number| (number / 2, true)).collect::<Vec<_>>());
    let mut bench = Bench::new("corrupt=1");
    bench.bad.send(&mut vec![frame(1)]);
    let mut got = Vec::new();
    bench.good.receive(&mut got);
    let bits: u32 = got[0].iter().zip(frame(1).iter()).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1);
}

#[test]
fn a_frame_out_of_order_is_overtaken_by_a_few() {
    let all = Bench::new("reorder=0.2").run(0..10_000, LATER);
    let mut numbers: Vec<u32> = all.iter().map(|(number, _)| *number).collect();
    assert!(!numbers.is_sorted());
    let apart = numbers.iter().zip(0u32..).map(|(number, place)| number.abs_diff(place)).max();
    // Frames that overtake may be held back themselves.
    assert!(apart < Some(50), "{apart:?}");
    numbers.sort_unstable();
    assert!(numbers == (0..10_000).collect::<Vec<_>>());
}

#[test]
fn the_last_frames_are_not_held_for_ever() {
    let mut bench = Bench::new("reorder=1");
    assert!(bench.run(0..10, Duration::ZERO).is_empty());
    assert_eq!(bench.bad.held(), Some(Duration::from_millis(2)));
    assert_eq!(bench.run(0..0, Duration::from_millis(2)).len(), 10);
    assert_eq!(bench.bad.held(), None);
}

#[test]
fn delay_is_as_long_as_it_was_said() {
    let mut bench = Bench::new("delay=1,delay_us=500");
    assert!(bench.run(0..10, Duration::from_micros(499)).is_empty());
    assert_eq!(bench.bad.held(), Some(Duration::from_micros(1)));
    assert_eq!(bench.run(0..0, Duration::from_micros(500)).len(), 10);
}

#[test]
fn a_reordered_frame_waits_as_long_as_it_was_said() {
    let mut bench = Bench::new("reorder=1,reorder_us=70");
    assert!(bench.run(0..1, Duration::from_micros(69)).is_empty());
    assert_eq!(bench.run(0..0, Duration::from_micros(70)).len(), 1);
}

#[test]
fn losses_come_in_bursts_of_the_length_and_rate_that_were_said() {
    const COUNT: u32 = 1_000_000;
    for (loss, burst) in [(0.01, 1.), (0.01, 8.), (0.2, 3.), (0.5, 1.5)] {
        let mut bench = Bench::new(&format!("loss={loss},burst={burst}"));
        let all = bench.run(0..COUNT, LATER);
        let lost = bench.counter("fault_tx_lost") as f64;
        let gaps = all.windows(2).filter(|pair| pair[1].0 != pair[0].0 + 1).count() as f64;
        let (rate, mean) = (lost / f64::from(COUNT), lost / gaps);
        assert!((rate / loss - 1.).abs() < 0.05, "loss={loss},burst={burst}: {rate} are lost");
        // Losses that are independent of each other follow each other at times, too.
        let expected = if burst == 1. { 1. / (1. - loss) } else { burst };
        assert!((mean / expected - 1.).abs() < 0.05, "loss={loss},burst={burst}: {mean} in a burst");
    }
}

#[test]
fn frames_are_lost_by_their_number() {
    let mut bench = Bench::new("drop=1,drop=5,drop=100");
    let all = bench.run(0..50, LATER);
    let expected = (0..50).filter(|number| ![0, 4].contains(number)).map(|number| (number, true));
    assert!(all == expected.collect::<Vec<_>>());
    assert_eq!(bench.counter("fault_tx_dropped"), 2);
}

/// The rate of the bottleneck of these tests, in which a frame takes a millisecond.
const RATE: u64 = 64_000;

#[test]
fn a_bottleneck_has_a_rate_and_keeps_the_order() {
    let mut bench = Bench::new(&format!("rate={RATE},queue=6400"));
    assert!(bench.run(0..100, Duration::from_micros(999)).is_empty());
    assert_eq!(bench.bad.held(), Some(Duration::from_micros(1)));
    assert_eq!(bench.run(0..0, Duration::from_millis(1)), [(0, true)]);
    assert_eq!(bench.run(0..0, Duration::from_millis(50)).last(), Some(&(49, true)));
    // It was idle for a while. That is no credit.
    assert_eq!(bench.run(0..0, Duration::from_millis(200)).len(), 50);
    bench.run(100..102, Duration::from_micros(200_999));
    assert_eq!(bench.bad.held(), Some(Duration::from_micros(1)));
    assert_eq!(bench.run(0..0, Duration::from_millis(202)).len(), 2);
    assert_eq!(bench.bad.held(), None);
}

#[test]
fn a_full_queue_loses_frames() {
    let mut bench = Bench::new(&format!("rate={RATE},queue=200"));
    assert_eq!(bench.run(0..10, LATER).len(), 3);
    assert_eq!(bench.counter("fault_tx_overflowed"), 7);
    // A frame that is longer than the queue passes if it is alone.
    let mut bench = Bench::new(&format!("rate={RATE},queue=1"));
    assert_eq!(bench.run(0..2, LATER).len(), 1);
    assert_eq!(bench.counter("fault_tx_overflowed"), 1);
}

#[test]
fn a_late_look_finds_the_queue_as_it_is_then() {
    let mut bench = Bench::new(&format!("rate={RATE},queue=200"));
    bench.run(0..3, Duration::from_millis(3));
    assert_eq!(bench.run(3..6, LATER).len(), 3);
    assert_eq!(bench.counter("fault_tx_overflowed"), 0);
}

#[test]
fn a_rate_that_no_frame_divides_is_kept() {
    // A frame takes 64 / 12.5e9 s, which is 5.12 ns.
    let mut bench = Bench::new("rate=12500000000,queue=1000000");
    assert_eq!(bench.run(0..1000, Duration::from_nanos(5119)).len(), 999);
}

#[test]
fn a_seed_loses_the_same_frames_behind_a_bottleneck() {
    let run = |pause| {
        let mut bench = Bench::new(&format!("rate={RATE},queue=1000000,loss=0.3,seed=9"));
        let mut all = Vec::new();
        for number in 0..200 {
            all.extend(bench.run(number..number + 1, Duration::from_millis(u64::from(number) * pause)));
        }
        all.extend(bench.run(0..0, LATER));
        all
    };
    assert!(run(0) == run(3));
}

#[test]
fn faults_happen_behind_the_bottleneck() {
    let mut bench = Bench::new(&format!("rate={RATE},delay=1,delay_us=500"));
    assert!(bench.run(0..1, Duration::from_micros(1000)).is_empty());
    assert_eq!(bench.bad.held(), Some(Duration::from_micros(500)));
    assert_eq!(bench.run(0..0, Duration::from_micros(1500)), [(0, true)]);
}

#[test]
fn a_seed_says_what_happens() {
    let faults = "loss=0.1,dup=0.1,reorder=0.1,corrupt=0.1,delay=0.1";
    let run = |seed| Bench::new(&format!("{faults},seed={seed}")).run(0..1000, LATER);
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}

#[test]
fn a_direction_is_spared() {
    let mut bench = Bench::new("loss=1,dir=rx");
    assert_eq!(bench.run(0..10, LATER).len(), 10);
    bench.good.send(&mut vec![frame(1)]);
    let mut got = Vec::new();
    bench.bad.receive(&mut got);
    assert!(got.is_empty() && bench.counter("fault_rx_lost") == 1);
}

#[test]
fn a_burst_is_no_longer_for_duplicates() {
    let mut bench = Bench::new("dup=1,dir=rx");
    bench.good.send(&mut (0..BURST as u32).map(frame).collect());
    for _ in 0..2 {
        let mut got = Vec::new();
        bench.bad.receive(&mut got);
        assert_eq!(got.len(), BURST);
    }
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("loss=2", "faults.loss = 2: this is no rate from 0 to 1"),
        ("loss=-1", "loss"),
        ("loss=NaN", "loss"),
        (
            "seed=9223372036854775808",
            "faults.seed = 9223372036854775808: give a number from 0 to 9223372036854775807",
        ),
        ("delay_us=18446744073709551615", "faults.delay_us = 18446744073709551615: give a number"),
        ("seed=18446744073709551616", "seed: '18446744073709551616' is not a number that fits here"),
        ("loss=x", "loss: 'x' is not a number"),
        ("colour=1", "there is no key colour: there are loss, burst"),
        ("burst=0", "faults.burst = 0: give a number from 1 to 1000000"),
        ("burst=4,loss=0.9", "faults.loss = 0.9: with bursts of 4 frames, at most 0.800 of all are lost"),
        ("drop=0", "drop: '0' in '0' is not a number from 1 on"),
        ("drop=ack/x", "drop: 'x' in 'ack/x' is not a number from 1 on"),
        ("drop=acks/7", "drop: there is no kind acks: did you mean ack?"),
        ("drop=colour/7", "drop: there is no kind colour: there are tail, middle, ack"),
        ("rate=1,ecn_min=2,ecn_max=1", "faults.ecn_min = 2: it is more than ecn_max, 1"),
        ("ecn_max=1", "faults.ecn_max = 1: without a bottleneck nothing waits"),
        ("dir=up", "dir: there is no value up: there are rx, tx, both"),
        ("loss", "KEY=VALUE"),
    ] {
        let error = format!("{:#}", text.parse::<FaultsConfig>().unwrap_err());
        assert!(error.contains(part), "{text}: {error}");
    }
}
