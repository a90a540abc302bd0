//! Fault injection: a wire that loses, duplicates, reorders, corrupts and delays frames.
//!
//! For the same seed, the faults are the same each time.

use super::{BURST, Capabilities, Dma, Driver, External, Frame, Frames, Offload, Wakeup};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vrdma_wire::num::Mac;

/// The most frames that overtake a reordered frame.
const MAX_PASSED: u64 = 4;
/// The longest time that a reordered frame waits for others to overtake it.
const MAX_WAIT: Duration = Duration::from_millis(2);

/// The largest integer of TOML.
const MOST: u64 = i64::MAX as u64;

/// How often each fault happens. Rates are from 0 to 1 and apply to each direction.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultsConfig {
    /// Rate of frames that are lost.
    pub loss: f64,
    /// Rate of frames that arrive twice.
    pub dup: f64,
    /// Rate of frames that later ones overtake.
    pub reorder: f64,
    /// Rate of frames with one flipped bit.
    pub corrupt: f64,
    /// Rate of frames that arrive later by [`FaultsConfig::delay_us`].
    pub delay: f64,
    /// The delay of those frames, in microseconds.
    pub delay_us: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The direction in which faults happen.
    pub dir: Direction,
}

/// The frames that have faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received frames.
    Rx,
    /// Sent frames.
    Tx,
    /// All frames.
    Both,
}

impl Default for FaultsConfig {
    fn default() -> FaultsConfig {
        FaultsConfig {
            loss: 0.,
            dup: 0.,
            reorder: 0.,
            corrupt: 0.,
            delay: 0.,
            delay_us: 1000,
            seed: 1,
            dir: Direction::Both,
        }
    }
}

impl FaultsConfig {
    /// Checks that all rates are rates, and that other numbers fit into a configuration file.
    ///
    /// # Errors
    /// One does not. The error names it.
    pub fn check(&self) -> Result<()> {
        let rates = [
            ("loss", self.loss),
            ("dup", self.dup),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("delay", self.delay),
        ];
        for (name, rate) in rates {
            ensure!((0. ..=1.).contains(&rate), "faults.{name} = {rate}: this is no rate from 0 to 1");
        }
        for (name, number) in [("delay_us", self.delay_us), ("seed", self.seed)] {
            ensure!(number <= MOST, "faults.{name} = {number}: give a number from 0 to {MOST}");
        }
        Ok(())
    }
}

/// A driver with a faulty wire.
#[derive(Debug)]
pub struct Faults {
    driver: Box<dyn Driver>,
    rx: FaultyWire,
    tx: FaultyWire,
    /// Frames on their way between the driver and the faults.
    scratch: Vec<Frame>,
    clock: Clock,
}

#[derive(Clone, Copy, Debug)]
enum Clock {
    Started(Instant),
    #[cfg(test)]
    Test(Duration),
}

/// One direction.
#[derive(Debug)]
struct FaultyWire {
    config: FaultsConfig,
    random: fastrand::Rng,
    /// Frames that can go on at once.
    ready: VecDeque<Frame>,
    held: Vec<DelayedFrame>,
    /// The number of frames that went on so far.
    passed: u64,
    counters: Counters,
}

#[derive(Debug)]
struct DelayedFrame {
    /// The frame goes on when `passed` has this value, or at the time `at`.
    after: u64,
    at: Duration,
    frame: Frame,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    delayed: u64,
}

impl Faults {
    /// Puts a faulty wire before `driver`.
    pub fn new(driver: Box<dyn Driver>, config: FaultsConfig) -> Faults {
        let wire = |on: bool, seed| FaultyWire {
            config: if on { config } else { FaultsConfig::default() },
            random: fastrand::Rng::with_seed(seed),
            ready: VecDeque::new(),
            held: Vec::new(),
            passed: 0,
            counters: Counters::default(),
        };
        // Each direction has a random sequence of its own. So traffic in one direction does not
        // change the faults of the other.
        let (rx, tx) =
            (wire(config.dir != Direction::Tx, config.seed), wire(config.dir != Direction::Rx, !config.seed));
        Faults { driver, rx, tx, scratch: Vec::with_capacity(BURST), clock: Clock::Started(Instant::now()) }
    }

    fn now(&self) -> Duration {
        match self.clock {
            Clock::Started(start) => start.elapsed(),
            #[cfg(test)]
            Clock::Test(now) => now,
        }
    }

    /// Gives the driver the frames that can go on.
    fn push(&mut self) {
        while !self.tx.ready.is_empty() {
            let count = self.tx.ready.len().min(BURST - self.scratch.len());
            self.scratch.extend(self.tx.ready.drain(..count));
            self.driver.send(&mut self.scratch);
            if !self.scratch.is_empty() {
                self.scratch.drain(..).rev().for_each(|frame| self.tx.ready.push_front(frame));
                break;
            }
        }
    }
}

impl FaultyWire {
    fn accept(&mut self, frame: Frame, now: Duration) {
        // All numbers are drawn for each frame. So one rate does not change what another rate
        // causes.
        let [loss, dup, reorder, corrupt, delay] = std::array::from_fn(|_| self.random.f64());
        let (bit, passed) = (self.random.u64(..), 1 + self.random.u64(..MAX_PASSED));
        let config = &self.config;
        if loss < config.loss {
            self.counters.lost += 1;
            return;
        }
        let mut frame = frame;
        if corrupt < config.corrupt {
            frame = spoil(&frame, bit);
            self.counters.corrupted += 1;
        }
        let twin = (dup < config.dup).then(|| frame.to_heap());
        if delay < config.delay {
            self.counters.delayed += 1;
            let at = now + Duration::from_micros(config.delay_us);
            self.held.push(DelayedFrame { after: u64::MAX, at, frame: frame.to_heap() });
        } else if reorder < config.reorder {
            self.counters.reordered += 1;
            let after = self.passed + passed;
            self.held.push(DelayedFrame { after, at: now + MAX_WAIT, frame: frame.to_heap() });
        } else {
            self.pass(frame);
        }
        if let Some(twin) = twin {
            self.counters.duplicated += 1;
            self.pass(twin);
        }
        self.release(now);
    }

    fn pass(&mut self, frame: Frame) {
        self.passed += 1;
        self.ready.push_back(frame);
    }

    /// Lets frames go on that were held back long enough, in the order of their arrival.
    fn release(&mut self, now: Duration) {
        let passed = self.passed;
        let due = |held: &DelayedFrame| held.after <= passed || held.at <= now;
        if !self.held.iter().any(due) {
            return;
        }
        for held in std::mem::take(&mut self.held) {
            if due(&held) { self.pass(held.frame) } else { self.held.push(held) }
        }
    }

    /// Returns when the next frame that is held back is due.
    fn next(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.at).min()
    }

    fn count(&self, names: [&'static str; 5], count: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.counters;
        let values = [c.lost, c.duplicated, c.reordered, c.corrupted, c.delayed];
        names.into_iter().zip(values).for_each(|(name, value)| count(name, value));
    }
}

/// Returns a copy of the frame with one flipped bit.
fn spoil(frame: &Frame, bit: u64) -> Frame {
    let mut bytes = Vec::with_capacity(frame.total_len());
    frame.copy_to(&mut bytes);
    if !bytes.is_empty() {
        let bit = (bit % (bytes.len() as u64 * 8)) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Frame::new(bytes)
}

impl Driver for Faults {
    fn capabilities(&self) -> Capabilities {
        // Copies of frames do not tell which checksums the driver has still to fill in.
        Capabilities { checksums: Default::default(), ..self.driver.capabilities() }
    }

    fn dma(&self) -> Option<Dma> {
        self.driver.dma()
    }

    fn mac(&self) -> Mac {
        self.driver.mac()
    }

    fn adopt(&mut self) {
        self.driver.adopt();
    }

    fn link(&mut self) -> bool {
        self.driver.link()
    }

    fn speed(&mut self) -> Option<u32> {
        self.driver.speed()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.driver.counters(count);
        self.rx.count(
            [
                "fault_rx_lost",
                "fault_rx_duplicated",
                "fault_rx_reordered",
                "fault_rx_corrupted",
                "fault_rx_delayed",
            ],
            count,
        );
        self.tx.count(
            [
                "fault_tx_lost",
                "fault_tx_duplicated",
                "fault_tx_reordered",
                "fault_tx_corrupted",
                "fault_tx_delayed",
            ],
            count,
        );
    }
}

impl Frames for Faults {
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        let now = self.now();
        self.tx.release(now);
        self.push();
        self.driver.receive(&mut self.scratch);
        for frame in self.scratch.drain(..) {
            self.rx.accept(frame, now);
        }
        self.rx.release(now);
        let count = self.rx.ready.len().min(BURST - frames.len());
        frames.extend(self.rx.ready.drain(..count));
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        self.driver.allocate(frames);
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        let now = self.now();
        let room = (4 * BURST).saturating_sub(self.tx.ready.len());
        let count = frames.len().min(BURST).min(room);
        for frame in frames.drain(..count) {
            self.tx.accept(frame, now);
        }
        self.tx.release(now);
        self.push();
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        self.driver.attach(frame, external)
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        self.driver.append(frame, bytes)
    }

    fn reclaim(&mut self) {
        // The frames that are held back are copies.
        self.tx.ready.iter_mut().for_each(Frame::own);
        self.driver.reclaim();
    }

    fn offload(&mut self, frame: &mut Frame, offload: Offload) {
        self.driver.offload(frame, offload);
    }
}

impl Wakeup for Faults {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.driver.readiness()
    }

    fn arm(&mut self) -> bool {
        self.driver.arm()
    }

    fn disarm(&mut self) {
        self.driver.disarm();
    }

    fn held(&self) -> Option<Duration> {
        let ready = !self.rx.ready.is_empty() || !self.tx.ready.is_empty();
        let now = self.now();
        let next = [self.rx.next(), self.tx.next()].into_iter().flatten().min();
        let next = next.map(|at| at.saturating_sub(now));
        if ready { Some(Duration::ZERO) } else { next }
    }
}

#[cfg(test)]
mod tests;
