//! Rates of 8-byte operations between two guests of one host, each beside that of WRITE: receives of a shared queue, windows, binds and invalidations,
//! ATOMIC WRITE. One thread drives both guests, the daemon's worker has another processor. Ends with 1 if one of them has less than 0.7 of the rate of
//! WRITE.
//!
//! Both sides of a comparison have connections between the same two guests, and are measured in turns. What counts is the median of the ratios of neighbouring
//! windows: whatever slows the machine down for longer than a window slows both. WRITE beside WRITE shows how far a ratio can be trusted.
//!
//! A SEND needs a receive and has two completions: WRITE with immediate, which has the same, shows what of a difference is due to that.

use std::process::ExitCode;
use std::time::Instant;
use vrdma_tests::abi::control::{CreateSrqReq, access, limit, mw_type};
use vrdma_tests::proc;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Bind, Data, Remote, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, connect};

/// Rounds, in each of which all are compared in turn, with a daemon of its own each.
const ROUNDS: usize = 3;
/// Pairs of windows of each round, and operations in each window.
const PAIRS: usize = 20;
const OPERATIONS: u32 = 10_000;
/// Requests outstanding.
const DEPTH: u32 = 128;
/// Memory windows that are bound and invalidated in turn.
const MEMORY_WINDOWS: usize = 64;
/// The least rate, in parts of that of WRITE.
const LEAST: f64 = 0.7;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Write,
    AtomicWrite,
    WriteType1,
    WriteType2b,
    BindInvalidate,
    WriteImm,
    Send,
    SendShared,
}

use Operation::*;

/// Each with its name.
const ALL: [(Operation, &str); 8] = [
    (Write, "WRITE"),
    (AtomicWrite, "ATOMIC WRITE"),
    (WriteType1, "WRITE to a window of type 1"),
    (WriteType2b, "WRITE to a window of type 2B"),
    (BindInvalidate, "BIND_MW and LOCAL_INV in turn"),
    (WriteImm, "WRITE with immediate"),
    (Send, "SEND to the QP's receives"),
    (SendShared, "SEND to a shared queue"),
];

impl Operation {
    fn takes_receives(self) -> bool {
        matches!(self, WriteImm | Send | SendShared)
    }
}

/// Two connected processes, and the keys that requests of the first name.
struct Ends {
    a: Side,
    b: Side,
    operation: Operation,
    remote: Remote,
    /// The shared queue of `b`.
    srqn: u32,
    /// Windows of `a` for binds.
    windows: Vec<u32>,
}

impl Ends {
    fn new(lab: &Lab, operation: Operation) -> Ends {
        let options = QpOptions { send_wr: DEPTH, recv_wr: 2 * DEPTH, ..QpOptions::default() };
        let (mut a, mut b) = pair(lab, 1, 4096, &options);
        let mut srqn = limit::NONE;
        if operation == SendShared {
            let req = CreateSrqReq {
                context: b.process.number.into(),
                pdn: b.process.pd.into(),
                max_wr: (2 * DEPTH).into(),
                max_sge: 1.into(),
                xrcdn: limit::NONE.into(),
                cqn: limit::NONE.into(),
            };
            srqn = b.guest().create_srq(&req).expect("a shared queue");
            let [one, other] =
                [&a, &b].map(|side| QpOptions { srqn: limit::NONE, ..side.qp.options.clone() });
            a.qp = a.process.qp(&a.cq, &a.cq, &one);
            b.qp = b.process.qp(&b.cq, &b.cq, &QpOptions { srqn, ..other });
            connect(&a.qp, &b.qp);
        }
        a.mr.fill(1);
        let mut remote = b.mr.remote(0);
        let window = match operation {
            WriteType1 => Some(mw_type::TYPE_1),
            WriteType2b => Some(mw_type::TYPE_2B),
            _ => None,
        };
        if let Some(mw_type) = window {
            let rkey = b.guest().alloc_mw(b.process.pd, mw_type).expect("a window");
            let bind = bind(&b, rkey);
            b.post(&Request::bind_mw(b.qp.tag(0), &bind).signaled(true));
            b.cq.expect_success();
            remote.rkey = bind.new_rkey;
        }
        let windows = if operation == BindInvalidate { MEMORY_WINDOWS } else { 0 };
        let pd = a.process.pd;
        let windows =
            (0..windows).map(|_| a.guest().alloc_mw(pd, mw_type::TYPE_2B).expect("a window")).collect();
        let mut ends = Ends { a, b, operation, remote, srqn, windows };
        if operation.takes_receives() {
            (0..DEPTH + DEPTH / 2).for_each(|_| ends.receive());
            ends.b.process.channel.driver.ring();
        }
        ends
    }

    /// Puts request number `id` into the channel, if there is room.
    #[inline]
    fn push(&mut self, id: u32) -> bool {
        let (tag, own) = (self.a.qp.tag(id), [self.a.mr.sge(0, 8)]);
        let data = Data::Sges(&own);
        let window = (id / 2) as usize % self.windows.len().max(1);
        let request = match self.operation {
            Write | WriteType1 | WriteType2b => Request::write(tag, self.remote, data),
            AtomicWrite => Request::atomic_write(tag, self.remote, data),
            WriteImm => Request::write_imm(tag, self.remote, [0; 4], data),
            Send | SendShared => Request::send(tag, data),
            BindInvalidate if id.is_multiple_of(2) => {
                Request::bind_mw(tag, &bind(&self.a, self.windows[window]))
            }
            BindInvalidate => {
                let bound = bind(&self.a, self.windows[window]);
                self.windows[window] = bound.new_rkey;
                Request::local_inv(tag, bound.new_rkey)
            }
        };
        self.a.process.channel.driver.push(&request.signaled(true)).is_ok()
    }

    /// Posts a receive.
    #[inline]
    fn receive(&mut self) {
        let (tag, own) = (self.b.qp.tag(0), [self.b.mr.sge(0, 8)]);
        let request = if self.srqn == limit::NONE {
            Request::recv(tag, &own)
        } else {
            Request::srq_recv(self.srqn, 0, &own)
        };
        self.b.process.channel.driver.push(&request).expect("there is room for as many as there are");
    }

    /// Million operations per second, with many outstanding.
    fn rate(&mut self, count: u32) -> f64 {
        let receives = self.operation.takes_receives();
        let (mut posted, mut done, mut received) = (0, 0, 0);
        let start = Instant::now();
        while done < count || (receives && received < count) {
            while posted < count && posted - done < DEPTH && self.push(posted) {
                posted += 1;
            }
            self.a.process.channel.driver.ring();
            self.a.cq.driver.poll_batch(DEPTH as usize, |cqe| {
                assert_eq!((cqe.wqe_id.get(), cqe.status), (done, 0));
                done += 1;
            });
            if receives {
                let mut now = 0;
                self.b.cq.driver.poll_batch(DEPTH as usize, |cqe| {
                    assert_eq!(cqe.status, 0);
                    now += 1;
                });
                (0..now).for_each(|_| self.receive());
                if now > 0 {
                    self.b.process.channel.driver.ring();
                }
                received += now;
            }
        }
        f64::from(count) / 1e6 / start.elapsed().as_secs_f64()
    }
}

/// Binds a window to the whole region of its process, with the next key.
fn bind(side: &Side, rkey: u32) -> Bind {
    let new_rkey = rkey & !0xff | (rkey.wrapping_add(1) & 0xff);
    let access = access::REMOTE_WRITE | access::REMOTE_READ;
    Bind { rkey, new_rkey, lkey: side.mr.key, access, addr: side.mr.iova, length: side.mr.len }
}

/// What windows of an operation gave, in million a second, and the ratio of each to its neighbour of WRITEs.
#[derive(Default)]
struct Compared {
    rates: Vec<f64>,
    ratios: Vec<f64>,
}

impl Compared {
    /// Measures an operation and WRITE in turns.
    fn measure(&mut self, lab: &Lab, operation: Operation) {
        let (mut own, mut write) = (Ends::new(lab, operation), Ends::new(lab, Write));
        // The first windows fill caches.
        own.rate(OPERATIONS);
        write.rate(OPERATIONS);
        for pair in 0..PAIRS {
            // Whichever comes first has no advantage.
            let own_first = pair % 2 == 0;
            let early = if own_first { own.rate(OPERATIONS) } else { write.rate(OPERATIONS) };
            let late = if own_first { write.rate(OPERATIONS) } else { own.rate(OPERATIONS) };
            let (own, write) = if own_first { (early, late) } else { (late, early) };
            self.rates.push(own);
            self.ratios.push(own / write);
        }
    }
}

/// Lower quartile, median and upper quartile.
fn quartiles(all: &mut [f64]) -> [f64; 3] {
    all.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| all[(all.len() - 1) * quarter / 4])
}

fn main() -> ExitCode {
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        println!("driver and worker need a processor each");
        return ExitCode::SUCCESS;
    }
    // As `cargo bench --bench operations -- SEND`: all that have this in their names.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut all: Vec<_> = ALL
        .into_iter()
        .filter(|(_, name)| name.contains(&only))
        .map(|(operation, name)| (operation, name, Compared::default()))
        .collect();
    for _ in 0..ROUNDS {
        for (operation, _, compared) in &mut all {
            proc::pin(0, 0);
            let mut options = LabOptions { busy_poll: true, ..LabOptions::default() };
            options.guest.channel_size = 512;
            let lab = Lab::with(2, options);
            proc::pin(proc::thread_named("worker").expect("the daemon's worker"), 1);
            compared.measure(&lab, *operation);
        }
    }
    println!("8 bytes, same host, RC               million/s         of WRITE's (quartiles)");
    let mut passed = !all.is_empty();
    for (_, name, compared) in &mut all {
        let ([_, rate, _], [low, ratio, high]) =
            (quartiles(&mut compared.rates), quartiles(&mut compared.ratios));
        println!("{name:<36} {rate:>9.3}  {ratio:>9.2} ({low:.2} to {high:.2})");
        passed &= ratio >= LEAST;
    }
    println!(
        "medians of {} windows each; the least ratio is to be {LEAST}: {}",
        ROUNDS * PAIRS,
        if passed { "passed" } else { "FAILED" }
    );
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
