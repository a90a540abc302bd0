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
    assert_eq!(bench.bad.held(), Some(MAX_WAIT));
    assert_eq!(bench.run(0..0, MAX_WAIT).len(), 10);
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
        ("colour=1", "there is no key colour: there are loss, dup"),
        ("dir=up", "dir: there is no value up: there are rx, tx, both"),
        ("loss", "KEY=VALUE"),
    ] {
        let error = format!("{:#}", text.parse::<FaultsConfig>().unwrap_err());
        assert!(error.contains(part), "{text}: {error}");
    }
}
