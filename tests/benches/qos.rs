//! Measures the quality of service of guests: shares by weight, and rates.
//!
//! Two guests send all the time, with weights 1 and 3. Their shares, and their rates where they
//! have limits, are measured on each way. A third guest plays a ping-pong of 8 bytes, alone and
//! beside them. One thread plays all guests.
//!
//! A share counts while both guests have something to send. Where this thread was kept from its
//! processor until a guest had nothing left, the daemon gave the other guest all, and that time
//! does not count. A guest whose requests all wait only for acknowledges has nothing left, either.
//! This thread cannot see that, so such time on the wire counts.
//!
//! The program ends with 1 if a share or rate is off by more than 5 %. A share that counts in less
//! than 10 % of the time fails, too. Shares between workers are shown and not judged. The program
//! also ends with 1 if rates hold on one worker, and the 99th percentile of the ping-pong is more
//! than three times that alone.
//!
//! `cargo bench -p vrdma-tests --bench qos [-- PART]` runs only the parts whose names contain PART.
//! To be of use, worker and program need a processor each.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use vrdma_backend::config::{GuestConfig, Weight};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::connected;
use vrdma_tests::greedy::{Frames, Greedy, LONG};
use vrdma_tests::lab::over_own_tcp;
use vrdma_tests::net::{Header, NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, GuestOptions, GuestTcp, Lab, LabOptions, QpOptions, Setting, proc};

/// Bytes of a short message.
const SHORT: u32 = 8;
/// Bytes of a long frame, and of a short one.
const FRAMES: [u32; 2] = [1514, 60];
/// Time of a measurement.
const TIME: Duration = Duration::from_secs(5);
/// Time before a measurement, in which bursts pass.
const BEFORE: Duration = Duration::from_secs(1);
/// The time of which a share counts, or does not.
const WINDOW: Duration = Duration::from_millis(5);
/// The part of a measurement that has to count.
const COUNTED: f64 = 0.1;
/// Rate of bytes.
const BYTES: u64 = 100_000_000;
/// Rate of messages.
const MESSAGES: u64 = 10_000;
/// Largest accepted deviation.
const OFF: f64 = 0.05;
/// Largest accepted 99th percentile, as a multiple of that alone.
const LATENCY: f64 = 3.0;

/// The way that messages take.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    Roce(Setting),
    /// On one host, without TCP.
    Iwarp,
    /// Between two hosts, over the daemons' own TCP.
    IwarpWire,
    /// Frames between guests of one worker.
    Ethernet,
}

impl Path {
    /// Whether one worker does all the work.
    fn is_of_one_worker(self) -> bool {
        matches!(self, Path::Roce(Setting::OneWorker) | Path::Iwarp | Path::Ethernet)
    }

    fn is_iwarp(self) -> bool {
        matches!(self, Path::Iwarp | Path::IwarpWire)
    }

    fn options(self) -> LabOptions {
        let own = GuestOptions { tcp: GuestTcp::Own, ..GuestOptions::default() };
        let cable = |held| Some(CableOptions { held, ..CableOptions::default() });
        match self {
            // All who send are on the first one.
            Path::Roce(Setting::TwoWorkers) => LabOptions { workers: 2, ..Setting::TwoWorkers.options() },
            Path::Roce(setting) => setting.options(),
            Path::Iwarp => LabOptions {
                guest: own,
                cable: cable(true),
                tcp_between_guests: false,
                ..LabOptions::default()
            },
            Path::IwarpWire => LabOptions { guest: own, cable: cable(false), ..LabOptions::default() },
            Path::Ethernet => LabOptions::default(),
        }
    }
}

/// What the guests that send all the time are limited to.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Weights,
    Bytes,
    Messages,
}

/// Says what guest `index` may do. `LIMIT` is a [`Limit`], as a number.
fn says<const LIMIT: usize, const IWARP: bool>(index: u8, guest: GuestConfig) -> GuestConfig {
    let weight = Weight::new(if index == 2 { 3 } else { 1 }).expect("it is in the range");
    // The two that send all the time.
    let limit = if index == 0 || index == 2 { LIMIT } else { Limit::Weights as usize };
    let tx_bytes = if limit == Limit::Bytes as usize { BYTES } else { 0 };
    let tx_messages = if limit == Limit::Messages as usize { MESSAGES } else { 0 };
    let guest = GuestConfig { weight, tx_bytes, tx_messages, ..guest };
    if IWARP { over_own_tcp(index, guest) } else { guest }
}

fn host_says(limit: Limit, is_iwarp: bool) -> fn(u8, GuestConfig) -> GuestConfig {
    match (limit, is_iwarp) {
        (Limit::Weights, false) => says::<0, false>,
        (Limit::Bytes, false) => says::<1, false>,
        (Limit::Messages, false) => says::<2, false>,
        (Limit::Weights, true) => says::<0, true>,
        (Limit::Bytes, true) => says::<1, true>,
        (Limit::Messages, true) => says::<2, true>,
    }
}

/// A guest that sends all the time.
enum Load {
    Messages(Box<Greedy>),
    Frames(Box<Frames>),
}

impl Load {
    /// Lets it send. Returns how many have arrived, and whether it had nothing left to send.
    fn step(&mut self) -> (u64, bool) {
        match self {
            Load::Messages(load) => {
                load.step();
                (load.messages, load.ran_dry)
            }
            Load::Frames(load) => {
                load.step();
                (load.messages, load.ran_dry)
            }
        }
    }

    fn end(&mut self) {
        match self {
            Load::Messages(load) => load.end(),
            Load::Frames(load) => load.end(),
        }
    }
}

/// What two guests of weights 1 and 3 have sent.
struct Sent {
    /// In a second of the whole measurement.
    rates: [f64; 2],
    /// While both had something to send.
    counted: [u64; 2],
    /// The part of the time that this was.
    part: f64,
}

/// Lets both guests send for some time.
fn measure(loads: &mut [Load; 2]) -> Sent {
    let mut step = || {
        let [(one, one_is_dry), (other, other_is_dry)] = loads.each_mut().map(Load::step);
        ([one, other], one_is_dry || other_is_dry)
    };
    let start = Instant::now();
    while start.elapsed() < BEFORE {
        step();
    }
    let (first, start) = (step().0, Instant::now());
    let (mut window, mut since) = (first, start);
    let (mut counted, mut time, mut ran_dry) = ([0; 2], Duration::ZERO, true);
    loop {
        let (now, is_dry) = step();
        if is_dry {
            (window, since, ran_dry) = (now, Instant::now(), true);
        } else if since.elapsed() >= WINDOW {
            // The first messages after a pause are copied as they are posted, without turns.
            if !ran_dry {
                time += since.elapsed();
                (0..2).for_each(|at| counted[at] += now[at] - window[at]);
            }
            (window, since, ran_dry) = (now, Instant::now(), false);
        }
        let seconds = start.elapsed().as_secs_f64();
        if start.elapsed() >= TIME {
            let rates = [0, 1].map(|at| (now[at] - first[at]) as f64 / seconds);
            return Sent { rates, counted, part: time.as_secs_f64() / seconds };
        }
    }
}

/// Two guests that play a ping-pong.
enum Players {
    Messages(Box<[Side; 2]>),
    Frames(Box<[NetGuest; 2]>),
}

impl Players {
    fn new(lab: &Lab, path: Path) -> Players {
        let (a, b, options) = (4, 5, QpOptions::default());
        match path {
            Path::Ethernet => {
                let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default());
                Players::Frames([a, b].map(|index| connect(index).expect("it connects")).into())
            }
            _ => {
                let [a, b] = [a, b].map(|index| &lab.guests[usize::from(index)]);
                let (a, b) = match path.is_iwarp() {
                    true => {
                        let ((a, _), (b, _)) = connected(a, b, 4096, &options);
                        (a, b)
                    }
                    false => pair_between(a, b, 4096, &options),
                };
                Players::Messages([a, b].into())
            }
        }
    }

    /// Plays one round.
    fn round(&mut self, meanwhile: &mut impl FnMut()) {
        for there in [true, false] {
            match self {
                Players::Messages(both) => {
                    let [a, b] = &mut **both;
                    let (from, to) = if there { (a, b) } else { (b, a) };
                    send(from, to, meanwhile);
                }
                Players::Frames(both) => {
                    let [a, b] = &mut **both;
                    // They are guests 5 and 6, counted from 1.
                    let (from, to, way) = if there { (a, b, [6, 5]) } else { (b, a, [5, 6]) };
                    let [dst, src] = way.map(mac);
                    assert!(from.try_send(Header::default(), &frame(dst, src, 0x88b5, &[7; 46])));
                    while to.recv_within(Duration::ZERO).is_none() {
                        meanwhile();
                    }
                }
            }
        }
    }

    /// Plays for some time. Returns the 99th percentile of the time of a round.
    fn play(&mut self, time: Duration, mut meanwhile: impl FnMut()) -> Duration {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < time {
            let begun = Instant::now();
            self.round(&mut meanwhile);
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times[(times.len() - 1) * 99 / 100]
    }
}

/// Sends a short message, and waits until it has arrived and ended.
fn send(from: &mut Side, to: &mut Side, meanwhile: &mut impl FnMut()) {
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

/// Whether a value is what was expected, within the accepted deviation.
fn is_about(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() <= OFF
}

fn verdict(is_judged: bool, right: bool) -> &'static str {
    match (is_judged, right) {
        (false, _) => "not judged",
        (true, true) => "passed",
        (true, false) => "FAILED",
    }
}

/// Measures one way with one limit. Returns whether all of it is as promised.
fn run(name: &str, path: Path, limit: Limit) -> bool {
    // Where there are more threads than processors, workers sleep.
    let busy_poll = path.is_of_one_worker();
    let host_says = host_says(limit, path.is_iwarp());
    let options = LabOptions { busy_poll, poll_us: 20, host_says, ..path.options() };
    let lab = match path {
        Path::Ethernet => Lab::without_guests(6, options),
        _ => Lab::with(6, options),
    };
    if busy_poll && let Some(worker) = proc::thread_named("worker") {
        proc::pin(worker, 1);
        proc::pin(0, 0);
    }
    let [long, short] = if path == Path::Ethernet { FRAMES } else { [LONG, SHORT] };
    let length = if limit == Limit::Messages { short } else { long };
    let mut players = Players::new(&lab, path);
    let alone = players.play(TIME, || {});
    let mut loads = [0, 2].map(|own| match path {
        Path::Ethernet => Load::Frames(Frames::new(&lab, own, length).into()),
        _ => Load::Messages(Greedy::new(&lab, own.into(), length).into()),
    });
    let Sent { rates, counted, part } = measure(&mut loads);
    let (show, right) = match limit {
        Limit::Weights => {
            let share = counted[1] as f64 / counted[0] as f64;
            let of =
                format!("{:.0} and {:.0} messages/s, 1 to {:.3}", rates[0], rates[1], rates[1] / rates[0]);
            let show = format!("{of}, 1 to {share:.3} in the {:.0} % that count", part * 100.0);
            (show, part >= COUNTED && is_about(share, 3.0))
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
    let is_shared = limit != Limit::Weights || path != Path::Roce(Setting::TwoWorkers);
    println!("{name:<26} {show}: {}", verdict(is_shared, right));
    let beside = players.play(TIME, || {
        loads.iter_mut().for_each(|load| {
            load.step();
        })
    });
    let times = beside.as_secs_f64() / alone.as_secs_f64();
    // Without limits, the ping-pong waits for turns of guests that always have more. With more
    // workers, it waits for processors.
    let is_judged = limit != Limit::Weights && path == Path::Roce(Setting::OneWorker);
    let fast = times <= LATENCY;
    println!(
        "{name:<26} 8 B ping-pong, 99th percentile: alone {alone:.2?}, beside {beside:.2?}, {times:.2} times: {}",
        verdict(is_judged, fast)
    );
    loads.iter_mut().for_each(Load::end);
    (right || !is_shared) && (fast || !is_judged)
}

fn main() -> ExitCode {
    // cargo passes "--bench".
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let ways = [
        ("one worker", Path::Roce(Setting::OneWorker)),
        ("two workers", Path::Roce(Setting::TwoWorkers)),
        ("wire", Path::Roce(Setting::TwoHosts)),
        ("iwarp", Path::Iwarp),
        ("iwarp wire", Path::IwarpWire),
        ("ethernet", Path::Ethernet),
    ];
    let limits = [("weights", Limit::Weights), ("bytes", Limit::Bytes), ("messages", Limit::Messages)];
    let mut passed = true;
    for (way, path) in ways {
        for (what, limit) in limits {
            let name = format!("{way} {what}");
            if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
                // Each part has a thread of its own. Pinning in one part must not pin the threads
                // of the next.
                let part = || run(&name, path, limit);
                passed &= thread::scope(|scope| scope.spawn(part).join().expect("it does not panic"));
            }
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
