//! Measures the quality of service of guests: shares by weight, and rates.
//!
//! Two guests send all the time, with weights 1 and 3. Their shares, and their rates where they
//! have limits, are measured on each way. A third guest plays a ping-pong of 8 bytes, alone and
//! beside them. One thread plays all guests.
//!
//! The program ends with 1 if a share or rate is off by more than 5 %, or if the 99th percentile of
//! the ping-pong on one worker is more than three times that alone.
//!
//! `cargo bench -p vrdma-tests --bench qos [-- PART]` runs only the parts whose names contain PART.
//! To be of use, worker and program need a processor each.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use vrdma_backend::config::{GuestConfig, Weight};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::greedy::{Greedy, LONG};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, Setting, proc};

/// Bytes of a short message.
const SHORT: u32 = 8;
/// Time of a measurement.
const TIME: Duration = Duration::from_secs(5);
/// Time before a measurement, in which bursts pass.
const BEFORE: Duration = Duration::from_secs(1);
/// Rate of bytes.
const BYTES: u64 = 100_000_000;
/// Rate of messages.
const MESSAGES: u64 = 10_000;
/// Largest accepted deviation.
const OFF: f64 = 0.05;
/// Largest accepted 99th percentile, as a multiple of that alone.
const LATENCY: f64 = 3.0;

/// What the guests that send all the time are limited to.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Weights,
    Bytes,
    Messages,
}

fn by_weight(index: u8, guest: GuestConfig) -> GuestConfig {
    let weight = if index == 2 { 3 } else { 1 };
    GuestConfig { weight: Weight::new(weight).expect("it is in the range"), ..guest }
}

/// Limits the two guests that send all the time.
fn is_greedy(index: u8) -> bool {
    index == 0 || index == 2
}

fn by_bytes(index: u8, guest: GuestConfig) -> GuestConfig {
    let tx_bytes = if is_greedy(index) { BYTES } else { 0 };
    GuestConfig { tx_bytes, ..by_weight(index, guest) }
}

fn by_messages(index: u8, guest: GuestConfig) -> GuestConfig {
    let tx_messages = if is_greedy(index) { MESSAGES } else { 0 };
    GuestConfig { tx_messages, ..by_weight(index, guest) }
}

/// Plays rounds of 8 bytes for some time. Returns the 99th percentile of the time of a round.
fn ping_pong(a: &mut Side, b: &mut Side, time: Duration, mut meanwhile: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < time {
        let begun = Instant::now();
        for there in [true, false] {
            let (from, to) = if there { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            to.recv(1, &[to.mr.sge(0, SHORT)]);
            let own = [from.mr.sge(0, SHORT)];
            from.post(&Request::send(from.qp.tag(2), Data::Sges(&own)).signaled(true));
            for cq in [&mut to.cq, &mut from.cq] {
                let wc = loop {
                    match cq.poll() {
                        Some(wc) => break wc,
                        None => meanwhile(),
                    }
                };
                assert_eq!(wc.status(), WcStatus::SUCCESS, "a message failed");
            }
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[(times.len() - 1) * 99 / 100]
}

/// Whether a value is what was expected, within the accepted deviation.
fn is_about(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() <= OFF
}

/// Measures one way with one limit. Returns whether all of it is as promised.
fn run(name: &str, setting: Setting, limit: Limit) -> bool {
    let host_says = match limit {
        Limit::Weights => by_weight,
        Limit::Bytes => by_bytes,
        Limit::Messages => by_messages,
    };
    // Where there are more threads than processors, workers sleep.
    let busy_poll = setting == Setting::OneWorker;
    let mut options = LabOptions { busy_poll, poll_us: 20, host_says, ..setting.options() };
    if setting == Setting::TwoWorkers {
        // All who send are on the first one.
        options.workers = 2;
    }
    let lab = Lab::with(6, options);
    if setting == Setting::OneWorker
        && let Some(worker) = proc::thread_named("worker")
    {
        proc::pin(worker, 1);
        proc::pin(0, 0);
    }
    let length = if limit == Limit::Messages { SHORT } else { LONG };
    let (mut a, mut b) = pair_between(&lab.guests[4], &lab.guests[5], 4096, &QpOptions::default());
    let alone = ping_pong(&mut a, &mut b, TIME, || {});
    let mut greedy = [0, 2].map(|own| Greedy::new(&lab, own, length));
    // Nothing but the two.
    let start = Instant::now();
    let mut before = None;
    let (messages, seconds) = loop {
        greedy.iter_mut().for_each(Greedy::step);
        let counts = [greedy[0].messages, greedy[1].messages];
        match before {
            None if start.elapsed() >= BEFORE => before = Some((counts, Instant::now())),
            Some((then, since)) if since.elapsed() >= TIME => {
                let seconds = since.elapsed().as_secs_f64();
                break ([counts[0] - then[0], counts[1] - then[1]], seconds);
            }
            _ => {}
        }
    };
    let rates = messages.map(|count| count as f64 / seconds);
    let (show, right) = match limit {
        Limit::Weights => {
            let share = rates[1] / rates[0];
            (format!("{:.0} and {:.0} messages/s, 1 to {share:.3}", rates[0], rates[1]), is_about(share, 3.0))
        }
        Limit::Bytes => {
            let bytes = rates.map(|rate| rate * f64::from(length));
            let right = bytes.iter().all(|&rate| is_about(rate, BYTES as f64));
            (format!("{:.2} and {:.2} MB/s", bytes[0] / 1e6, bytes[1] / 1e6), right)
        }
        Limit::Messages => {
            let right = rates.iter().all(|&rate| is_about(rate, MESSAGES as f64));
            (format!("{:.0} and {:.0} messages/s", rates[0], rates[1]), right)
        }
    };
    // What one worker sends to another waits for that one, in the order in which it was sent.
    let is_shared = limit != Limit::Weights || setting != Setting::TwoWorkers;
    let verdict = match (is_shared, right) {
        (false, _) => "not judged",
        (true, true) => "passed",
        (true, false) => "FAILED",
    };
    println!("{name:<26} {show}: {verdict}");
    let beside = ping_pong(&mut a, &mut b, TIME, || greedy.iter_mut().for_each(Greedy::step));
    let times = beside.as_secs_f64() / alone.as_secs_f64();
    // Without limits, the ping-pong waits for turns of guests that always have more. With more
    // workers, it waits for processors.
    let is_judged = limit != Limit::Weights && setting == Setting::OneWorker;
    let fast = times <= LATENCY;
    let verdict = match (is_judged, fast) {
        (false, _) => "not judged",
        (true, true) => "passed",
        (true, false) => "FAILED",
    };
    println!(
        "{name:<26} 8 B ping-pong, 99th percentile: alone {alone:.2?}, beside {beside:.2?}, {times:.2} times: {verdict}"
    );
    greedy.iter_mut().for_each(Greedy::end);
    (right || !is_shared) && (fast || !is_judged)
}

fn main() -> ExitCode {
    // cargo passes "--bench".
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let ways = [
        ("one worker", Setting::OneWorker),
        ("two workers", Setting::TwoWorkers),
        ("wire", Setting::TwoHosts),
    ];
    let limits = [("weights", Limit::Weights), ("bytes", Limit::Bytes), ("messages", Limit::Messages)];
    let mut passed = true;
    for (way, setting) in ways {
        for (what, limit) in limits {
            let name = format!("{way} {what}");
            if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
                // Each part has a thread of its own. Pinning in one part must not pin the threads
                // of the next.
                let part = || run(&name, setting, limit);
                passed &= thread::scope(|scope| scope.spawn(part).join().expect("it does not panic"));
            }
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
