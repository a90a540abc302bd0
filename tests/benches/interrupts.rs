//! Measures what an interrupt costs a program that sleeps until its completion.
//!
//! Two guests of one host exchange WRITEs. These are large enough that the program is asleep when
//! they complete. The same WRITEs are measured with a program that polls.
//!
//! The lower limit is measured alternately. There a thread polls a word in memory, spins for the
//! same time, and signals an eventfd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, proc, wait};

/// Processor of the program.
const PROGRAM: usize = 0;
/// Processor of the worker, or of the thread that signals in its place.
const WORKER: usize = 1;
const ROUNDS: usize = 30;
const COUNT: u32 = 500;
/// Bytes of a WRITE, which takes some ten microseconds.
const LEN: u32 = 256 << 10;

fn median(mut operation: impl FnMut(u32)) -> Duration {
    let mut times: Vec<Duration> = (0..COUNT)
        .map(|id| {
            let start = Instant::now();
            operation(id);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn post(a: &mut Side, b: &Side, id: u32) {
    let own = [a.mr.sge(0, LEN)];
    a.process.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(true));
}

/// Measures WRITEs through the daemon with a program that polls.
fn polled(a: &mut Side, b: &Side) -> Duration {
    median(|id| {
        post(a, b, id);
        while a.cq.poll().is_none() {
            std::hint::spin_loop();
        }
    })
}

/// Measures WRITEs through the daemon with a program that sleeps until the interrupt.
fn interrupted(a: &mut Side, b: &Side) -> Duration {
    let guest = a.guest().clone();
    let mut events = guest.comp_events(0);
    median(|id| {
        assert!(a.cq.arm(Arm::Next).is_none(), "nothing is outstanding");
        post(a, b, id);
        events.recv();
        a.cq.expect_success();
    })
}

/// A thread that signals an eventfd some time after a word in memory changed.
///
/// It ends when the word is `u32::MAX`.
struct Bare {
    word: Arc<AtomicU32>,
    eventfd: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Bare {
    fn start(time: Duration) -> Bare {
        let word = Arc::new(AtomicU32::new(0));
        let eventfd = Arc::new(EventFd::new(EFD_NONBLOCK).expect("an eventfd"));
        let (theirs, bell) = (word.clone(), eventfd.clone());
        let thread = std::thread::spawn(move || {
            proc::pin(0, WORKER);
            let mut last = 0;
            while last != u32::MAX {
                let found = theirs.load(Ordering::Acquire);
                if found != last {
                    let start = Instant::now();
                    while start.elapsed() < time {
                        std::hint::spin_loop();
                    }
                    bell.write(1).expect("room in the counter");
                    last = found;
                }
                std::hint::spin_loop();
            }
        });
        Bare { word, eventfd, thread: Some(thread) }
    }

    fn measure(&self) -> Duration {
        median(|id| {
            self.word.store(id + 1, Ordering::Release);
            assert!(vrdma_tests::readable(&*self.eventfd, wait::PATIENCE));
            self.eventfd.read().expect("it was rung");
        })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.word.store(u32::MAX, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Measures through the daemon, polled and interrupted, and appends medians of windows.
fn through_the_daemon(polls: &mut Vec<Duration>, interrupts: &mut Vec<Duration>) {
    let lab = Lab::with(2, LabOptions { busy_poll: true, ..LabOptions::default() });
    proc::pin(proc::thread_named("worker").expect("the daemon's worker"), WORKER);
    let (mut a, b) = pair(&lab, 1, LEN.into(), &QpOptions::default());
    for _ in 0..5 {
        polls.push(polled(&mut a, &b));
        interrupts.push(interrupted(&mut a, &b));
    }
}

fn main() {
    proc::pin(0, PROGRAM);
    let (mut polls, mut interrupts, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let best = |all: &[Duration]| *all.iter().min().expect("a round");
    for _ in 0..ROUNDS / 5 {
        through_the_daemon(&mut polls, &mut interrupts);
        let device = Bare::start(best(&polls));
        bare.extend((0..5).map(|_| device.measure()));
    }
    let micros = |all: &[Duration]| best(all).as_secs_f64() * 1e6;
    let polled = micros(&polls);
    let (measured, limit) = (micros(&interrupts) - polled, micros(&bare) - polled);
    println!("{LEN} B WRITE, polled   {polled:>7.2} us");
    println!(
        "interrupt beyond that  {measured:>7.2} us, bare {limit:>7.2} us, ratio {:.2}",
        measured / limit
    );
}
