//! Two ports in memory, joined by a cable: for tests, and for engines in one process.

use super::{BURST, Capabilities, Checksums, Driver, ETHERNET, External, Frame};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use vrdma_wire::num::Mac;

/// Frames that one direction of the cable holds; the sender keeps what does not fit.
const DEPTH: usize = 1024;

/// One end.
#[derive(Debug)]
pub struct Pair {
    mac: Mac,
    mtu: u16,
    cable: Cable,
    inward: Arc<Direction>,
    outward: Arc<Direction>,
}

/// What joins the two.
#[derive(Clone, Debug)]
pub struct Cable(Arc<AtomicBool>);

#[derive(Debug)]
struct Direction {
    frames: Mutex<VecDeque<Frame>>,
    /// Counts bursts that the receiver has not looked for.
    bell: OwnedFd,
}

/// Two ports for IP packets of `mtu` bytes, and the cable between them, which is plugged in.
///
/// # Errors
/// The system has no eventfd left.
pub fn pair(mtu: u16) -> io::Result<(Pair, Pair, Cable)> {
    let (left, right) = (Arc::new(Direction::new()?), Arc::new(Direction::new()?));
    let cable = Cable(Arc::new(AtomicBool::new(true)));
    let end = |last, inward, outward| Pair {
        mac: Mac([2, 0, 0, 0, 0, last]),
        mtu,
        cable: cable.clone(),
        inward,
        outward,
    };
    let ends = (end(1, left.clone(), right.clone()), end(2, right, left));
    Ok((ends.0, ends.1, cable))
}

impl Cable {
    /// Plugs it in or pulls it out. What it holds meanwhile is lost.
    pub fn plug(&self, up: bool) {
        self.0.store(up, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Direction {
    fn new() -> io::Result<Direction> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Direction { frames: Mutex::new(VecDeque::with_capacity(DEPTH)), bell })
    }

    fn frames(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.frames.lock().expect("nothing panics while it holds the lock")
    }

    fn ring(&self) {
        // A full counter rings too.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Driver for Pair {
    fn capabilities(&self) -> Capabilities {
        let max_frame = usize::from(self.mtu) + ETHERNET;
        Capabilities { mtu: self.mtu, max_frame, external: false, checksums: Checksums::default() }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn receive(&mut self, frames: &mut Vec<Frame>) {
        let mut from = self.inward.frames();
        if !self.cable.is_up() {
            from.clear();
        }
        let count = from.len().min(BURST - frames.len());
        frames.extend(from.drain(..count));
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        let len = usize::from(self.mtu) + ETHERNET;
        frames.resize_with(BURST.max(frames.len()), || Frame::new(vec![0; len]));
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        let mut to = self.outward.frames();
        let count = frames.len().min(BURST).min(DEPTH - to.len());
        let taken = frames.drain(..count);
        if self.cable.is_up() {
            to.extend(taken);
            self.outward.ring();
        }
    }

    fn attach(&mut self, _frame: &mut Frame, _external: External) -> bool {
        false
    }

    fn append(&mut self, _frame: &mut Frame, _bytes: &[u8]) -> bool {
        false
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inward.bell.as_fd())
    }

    fn arm(&mut self) -> bool {
        let frames = self.inward.frames();
        let _ = rustix::io::read(&self.inward.bell, &mut [0; 8]);
        if !frames.is_empty() {
            self.inward.ring();
        }
        true
    }

    fn link(&mut self) -> bool {
        self.cable.is_up()
    }

    fn counters(&self, _count: &mut dyn FnMut(&'static str, u64)) {}
}
