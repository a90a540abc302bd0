//! A checked ping-pong between two guests that runs beside a test, and canaries in guest memory.
//!
//! Both show whether a hostile guest disturbs what it must not reach.

use crate::guest::Guest;
use crate::memory::Memory;
use crate::qp::QpOptions;
use crate::rng::Rng;
use crate::side::{Side, pair_between};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vrdma_abi::cqe::WcStatus;
use vrdma_verbs::{Data, Request};

/// Bytes of each message.
const LEN: u64 = 9000;

/// A ping-pong in a thread of its own.
///
/// Any wrong byte, wrong completion or missing answer becomes a panic in [`PingPong::stop`].
#[derive(Debug)]
pub struct PingPong {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    rounds: AtomicU64,
}

impl PingPong {
    /// Starts a ping-pong between two guests.
    pub fn start(a: &Arc<Guest>, b: &Arc<Guest>) -> PingPong {
        PingPong::start_with(a, b, &QpOptions::default())
    }

    /// Starts a ping-pong between two guests, with these options of the QPs.
    pub fn start_with(a: &Arc<Guest>, b: &Arc<Guest>, options: &QpOptions) -> PingPong {
        let (mut a, mut b) = pair_between(a, b, 4 * LEN, options);
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            let mut rng = Rng::new(4711);
            while !theirs.stop.load(Ordering::Relaxed) {
                round(&mut a, &mut b, &mut rng);
                round(&mut b, &mut a, &mut rng);
                theirs.rounds.fetch_add(1, Ordering::Relaxed);
                let why = "leaves the processor to what it goes on beside";
                crate::wait::pause(Duration::from_micros(200), why);
            }
            a.close();
            b.close();
        });
        PingPong { shared, thread: Some(thread) }
    }

    /// Returns the number of rounds so far.
    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Waits until one more round has been played completely from here on.
    pub fn expect_another_round(&self) {
        let wanted = self.rounds() + 2;
        crate::wait::until("the ping-pong to go on", || (self.rounds() >= wanted).then_some(()));
    }

    /// Stops the ping-pong and returns its rounds. Panics if anything went wrong.
    pub fn stop(mut self) -> u64 {
        self.expect_another_round();
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not stopped yet").join().expect("the ping-pong went wrong");
        self.rounds()
    }
}

/// Transfers random bytes from one side to the other by a SEND, a WRITE and a READ.
fn round(from: &mut Side, to: &mut Side, rng: &mut Rng) {
    let data = rng.bytes(LEN as usize);
    from.mr.put(0, &data);
    let own = [from.mr.sge(0, LEN as u32)];
    to.recv(1, &[to.mr.sge(LEN, LEN as u32)]);
    from.post(&Request::send(from.qp.tag(2), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 2, WcStatus::SUCCESS);
    to.cq.expect(to.qp.number, 1, WcStatus::SUCCESS);
    assert!(to.mr.get(LEN, LEN) == data, "bytes of the SEND");
    from.post(&Request::write(from.qp.tag(3), to.mr.remote(2 * LEN), Data::Sges(&own)).signaled(true));
    from.cq.expect(from.qp.number, 3, WcStatus::SUCCESS);
    assert!(to.mr.get(2 * LEN, LEN) == data, "bytes of the WRITE");
    let back = [from.mr.sge(3 * LEN, LEN as u32)];
    from.post(&Request::read(from.qp.tag(4), to.mr.remote(2 * LEN), &back).signaled(true));
    from.cq.expect(from.qp.number, 4, WcStatus::SUCCESS);
    assert!(from.mr.get(3 * LEN, LEN) == data, "bytes of the READ");
}

/// Pages that nobody may write to. None of them is registered.
#[derive(Debug)]
pub struct Canary {
    memory: Arc<Memory>,
    pages: Vec<(u64, Vec<u8>)>,
}

impl Canary {
    /// Allocates canary pages with random bytes.
    pub fn new(memory: &Arc<Memory>, seed: u64) -> Canary {
        let mut canary = Canary { memory: memory.clone(), pages: Vec::new() };
        canary.extend(seed);
        canary
    }

    /// Adds canary pages. A test thus gets canaries between its allocations for a device.
    pub fn extend(&mut self, seed: u64) {
        let gpa = self.memory.alloc(2 * crate::memory::PAGE);
        let bytes = Rng::new(seed).bytes(2 * crate::memory::PAGE as usize);
        self.memory.write(gpa, &bytes);
        self.pages.push((gpa, bytes));
    }

    /// Asserts that all canary pages are unchanged.
    pub fn check(&self) {
        for (gpa, bytes) in &self.pages {
            let found = self.memory.bytes(*gpa, bytes.len() as u64);
            let at = found.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(at, None, "a canary at {gpa:#x} was written to");
        }
    }
}
