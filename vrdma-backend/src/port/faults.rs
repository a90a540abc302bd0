//! Fault injection: a wire that loses, duplicates, reorders, corrupts and delays frames, and that
//! may have a bottleneck.
//!
//! For the same seed, the faults are the same each time. What the bottleneck loses and marks
//! depends on time as well.

mod bottleneck;
mod config;
mod script;
mod wire;

pub use config::{Direction, FaultsConfig};
pub use script::{PacketKind, PlannedLoss};

use super::{BURST, Capabilities, Dma, Driver, External, Frame, Frames, Offload, Wakeup};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vrdma_wire::num::Mac;
use wire::FaultyWire;

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

impl Faults {
    /// Puts a faulty wire before `driver`.
    pub fn new(driver: Box<dyn Driver>, config: FaultsConfig) -> Faults {
        let wire =
            |on: bool, seed| FaultyWire::new(if on { config.clone() } else { FaultsConfig::default() }, seed);
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
                "fault_rx_dropped",
                "fault_rx_duplicated",
                "fault_rx_reordered",
                "fault_rx_corrupted",
                "fault_rx_delayed",
                "fault_rx_overflowed",
                "fault_rx_marked",
            ],
            count,
        );
        self.tx.count(
            [
                "fault_tx_lost",
                "fault_tx_dropped",
                "fault_tx_duplicated",
                "fault_tx_reordered",
                "fault_tx_corrupted",
                "fault_tx_delayed",
                "fault_tx_overflowed",
                "fault_tx_marked",
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
mod packets;
#[cfg(test)]
mod tests;
