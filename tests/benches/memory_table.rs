//! Measures how much a guest whose memory table changes 1,000 times disturbs another guest.
//!
//! The changing guest has a million extents registered. The other guest posts 8 B WRITEs at a fixed
//! rate, and its latencies are compared with those without changes. The program ends with 1 if the
//! 99.9th percentile is more than ten times that without changes.
//!
//! The worker has processor 1 for itself. This measuring thread is pinned to processor 0. So are
//! the guest's session, the thread that unmaps old tables, and the thread that plays its VMM. These
//! three have the policy `SCHED_IDLE`: the table changes only while the measuring thread sleeps.
//!
//! The reason is that there may be no third processor. Two busy threads on one processor would
//! measure the scheduler instead of what the worker gives a guest. For the same reason, time in
//! which the worker or this thread waited for a processor is subtracted from the WRITE. Another
//! program of the machine had the processor then.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vrdma_tests::abi::control::access;
use vrdma_tests::proc::Waits;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Context, Lab, LabOptions, Mr, QpOptions, proc};

const RUNS: u64 = 1 << 20;
const CHANGES: u32 = 1000;
/// Highest accepted 99.9th percentile, as a multiple of that without changes.
const LATENCY: f64 = 10.0;
/// Pause between two WRITEs.
const PERIOD: Duration = Duration::from_micros(200);

/// How long the threads that a WRITE needs waited for a processor.
struct Waiting(Vec<Waits>);

impl Waiting {
    fn total(&self) -> Duration {
        self.0.iter().map(Waits::total).sum()
    }
}

/// Returns the latencies of WRITEs until `done`, sorted.
///
/// A WRITE that takes longer than a period delays the ones after it. Each delayed WRITE counts with
/// the time that it would have waited.
fn latencies(from: &mut Side, to: &Side, waiting: &Waiting, done: impl Fn(usize) -> bool) -> Vec<Duration> {
    let own = [from.mr.sge(0, 8)];
    let mut all = Vec::new();
    while !done(all.len()) {
        std::thread::sleep(PERIOD);
        let waited = waiting.total();
        let start = Instant::now();
        from.post(&Request::write(from.qp.tag(1), to.mr.remote(0), Data::Sges(&own)).signaled(true));
        from.cq.expect_success();
        let mut latency = start.elapsed();
        latency = latency.saturating_sub(waiting.total() - waited);
        all.push(latency);
        while latency > PERIOD {
            latency -= PERIOD;
            all.push(latency);
        }
    }
    all.sort_unstable();
    all
}

fn show(what: &str, all: &[Duration]) -> Duration {
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
    println!(
        "{what:<28} {:>7} WRITEs  median {:>9.2?}  99th percentile {:>9.2?}  99.9th {:>9.2?}  longest {:>9.2?}",
        all.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    at(0.999)
}

fn main() -> ExitCode {
    let lab = Lab::with(3, LabOptions { busy_poll: true, ..LabOptions::default() });
    let worker = proc::thread_named("worker").expect("the daemon has one");
    proc::pin(worker, 1);
    // All threads that take part in a change of the table: they map the new table and unmap the old
    // one.
    for thread in ["RDMA g0", "ring g0", "reaper"].into_iter().filter_map(proc::thread_named) {
        proc::pin(thread, 0);
        proc::only_when_idle(thread);
    }
    proc::pin(0, 0);
    // SAFETY: the call has no arguments and cannot fail.
    let this = unsafe { libc::gettid() };
    let waiting = Waiting([worker, this].into_iter().filter_map(Waits::of).collect());
    let guest = lab.guests[0].clone();
    let process = Context::open(&guest).expect("a context");
    let pages = guest.memory.alloc(8192);
    // No two extents are adjacent, so none are merged.
    let runs: Vec<_> = (0..RUNS).map(|i| (pages + 4096 * ((i + 1) % 2), 4096)).collect();
    let _mr = Mr::register_runs(&guest, process.pd, access::ALL, 0x1000, &runs).expect("a region");
    let (mut a, b) = pair_between(&lab.guests[1], &lab.guests[2], 4096, &QpOptions::default());
    latencies(&mut a, &b, &waiting, |count| count >= 1000);
    let without = show("without changes", &latencies(&mut a, &b, &waiting, |count| count >= 50_000));
    let done = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            proc::only_when_idle(0);
            for _ in 0..CHANGES {
                guest.front_end().set_memory(&guest.memory, guest.memory.regions()).expect("a new table");
            }
            done.store(true, Ordering::Relaxed);
        });
        latencies(&mut a, &b, &waiting, |_| done.load(Ordering::Relaxed))
    });
    let beside = show(&format!("beside {CHANGES} changes"), &beside);
    let ratio = beside.as_secs_f64() / without.as_secs_f64();
    let passed = ratio <= LATENCY;
    let verdict = if passed { "passed" } else { "FAILED" };
    println!("99.9th percentile: {ratio:.1} times that without (at most {LATENCY}): {verdict}");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
