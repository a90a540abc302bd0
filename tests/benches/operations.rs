//! Rates of 8-byte operations between two guests of one host, beside that of WRITE in the same run: receives of a shared queue, windows, binds and
//! invalidations, ATOMIC WRITE. One thread drives both guests, the daemon's worker has another processor. Ends with 1 if one of them has less than
//! 0.7 of the rate of WRITE.
//!
//! A SEND needs a receive and has two completions: WRITE with immediate, which has the same, shows what of a difference is due to that.

use std::process::ExitCode;
use std::time::Instant;
use vrdma_tests::abi::control::{CreateSrqReq, access, limit, mw_type};
use vrdma_tests::proc;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Bind, Data, Remote, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, connect};

/// Rounds, in each of which all are measured in turn.
const ROUNDS: usize = 7;
/// Windows of each round, and operations in each.
const WINDOWS: usize = 10;
const OPERATIONS: u32 = 10_000;
/// Requests outstanding.
const DEPTH: u32 = 128;
/// Memory windows that are bound and invalidated in turn.
const MEMORY_WINDOWS: usize = 64;
/// The least rate, in parts of that beside it.
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

/// Each with its name, and what it is compared with.
const ALL: [(Operation, &str, Option<Operation>); 8] = [
    (Write, "WRITE", None),
    (AtomicWrite, "ATOMIC WRITE", Some(Write)),
    (WriteType1, "WRITE to a window of type 1", Some(Write)),
    (WriteType2b, "WRITE to a window of type 2B", Some(Write)),
    (BindInvalidate, "BIND_MW and LOCAL_INV in turn", Some(Write)),
    (WriteImm, "WRITE with immediate", Some(Write)),
    (Send, "SEND to the QP's receives", Some(Write)),
    (SendShared, "SEND to a shared queue", Some(Write)),
];

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
        Ends { a, b, operation, remote, srqn, windows }
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

    /// Operations per second, with many outstanding.
    fn rate(&mut self, count: u32) -> f64 {
        let receives = matches!(self.operation, WriteImm | Send | SendShared);
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
        f64::from(count) / start.elapsed().as_secs_f64()
    }

    /// The best of some windows, in million a second.
    fn best(mut self) -> f64 {
        if matches!(self.operation, WriteImm | Send | SendShared) {
            (0..DEPTH + DEPTH / 2).for_each(|_| self.receive());
            self.b.process.channel.driver.ring();
        }
        (0..WINDOWS).map(|_| self.rate(OPERATIONS)).fold(0.0, f64::max) / 1e6
    }
}

/// Binds a window to the whole region of its process, with the next key.
fn bind(side: &Side, rkey: u32) -> Bind {
    let new_rkey = rkey & !0xff | (rkey.wrapping_add(1) & 0xff);
    let access = access::REMOTE_WRITE | access::REMOTE_READ;
    Bind { rkey, new_rkey, lkey: side.mr.key, access, addr: side.mr.iova, length: side.mr.len }
}

fn main() -> ExitCode {
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        println!("driver and worker need a processor each");
        return ExitCode::SUCCESS;
    }
    // As `cargo bench --bench operations -- SEND`: all that have this in their names.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut best = [0.0f64; ALL.len()];
    for _ in 0..ROUNDS {
        for ((operation, name, _), best) in ALL.into_iter().zip(&mut best) {
            if !name.contains(&only) {
                continue;
            }
            proc::pin(0, 0);
            let mut options = LabOptions { busy_poll: true, ..LabOptions::default() };
            options.guest.channel_size = 512;
            let lab = Lab::with(2, options);
            proc::pin(proc::thread_named("worker").expect("the daemon's worker"), 1);
            *best = best.max(Ends::new(&lab, operation).best());
        }
    }
    let rate =
        |of: Operation| best[ALL.iter().position(|(operation, ..)| *operation == of).expect("one of all")];
    println!("{:<32} {:>10} {:>7}  beside, at least {LEAST}", "8 bytes, same host, RC", "million/s", "ratio");
    let mut passed = true;
    for (operation, name, beside) in ALL {
        let own = rate(operation);
        if own == 0.0 {
            continue;
        }
        let Some(beside) = beside.filter(|beside| rate(*beside) > 0.0) else {
            println!("{name:<32} {own:>10.3}");
            continue;
        };
        let ratio = own / rate(beside);
        let name_beside = ALL.iter().find(|(other, ..)| *other == beside).map_or("", |(_, name, _)| name);
        println!("{name:<32} {own:>10.3} {ratio:>7.2}  {name_beside}");
        passed &= ratio >= LEAST;
    }
    println!(
        "{ROUNDS} rounds, each figure is the best of all windows: {}",
        if passed { "passed" } else { "FAILED" }
    );
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
