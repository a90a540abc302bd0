//! Two ports in memory, connected by a cable. They serve tests, and engines in one process.

use super::{BURST, Capabilities, Checksums, Driver, ETHERNET, External, Frame, Frames, Origin, Wakeup};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use vrdma_wire::num::Mac;

/// The number of frames that one direction of a cable holds, as the rings of two NICs do.
///
/// The sender keeps frames that do not fit.
pub const DEPTH: usize = 1024;

/// One end of the cable.
#[derive(Debug)]
pub struct Pair {
    mac: Mac,
    mtu: u16,
    /// Whether it takes external memory. Drivers differ in this.
    external: bool,
    cable: Cable,
    inward: Arc<PairQueue>,
    outward: Arc<PairQueue>,
}

/// The cable between the two ends.
#[derive(Clone, Debug)]
pub struct Cable(Arc<AtomicBool>);

#[derive(Debug)]
struct PairQueue {
    frames: Mutex<VecDeque<Frame>>,
    depth: usize,
    /// Counts bursts that the receiver has not polled for.
    bell: OwnedFd,
}

/// Creates two ports for IP packets of `mtu` bytes, and the cable between them, plugged in.
///
/// The first port takes external memory with its frames. The second takes only frames in one piece.
///
/// # Errors
/// The system has no eventfd left.
pub fn pair(mtu: u16) -> io::Result<(Pair, Pair, Cable)> {
    pair_of_depth(mtu, DEPTH)
}

/// Creates two ports like [`pair()`], with a cable that holds `depth` frames in each direction.
///
/// # Errors
/// The system has no eventfd left.
pub fn pair_of_depth(mtu: u16, depth: usize) -> io::Result<(Pair, Pair, Cable)> {
    let (left, right) = (Arc::new(PairQueue::new(depth)?), Arc::new(PairQueue::new(depth)?));
    let cable = Cable(Arc::new(AtomicBool::new(true)));
    let end = |last, inward, outward| Pair {
        external: last == 1,
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
    /// Plugs the cable in or pulls it out. Frames that it holds meanwhile are lost.
    pub fn plug(&self, up: bool) {
        self.0.store(up, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PairQueue {
    fn new(depth: usize) -> io::Result<PairQueue> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(PairQueue { frames: Mutex::new(VecDeque::with_capacity(depth)), depth, bell })
    }

    fn frames(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.frames.lock().expect("nothing panics while it holds the lock")
    }

    fn ring(&self) {
        // A full counter wakes too.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// The speed that it reports, in Mb/s. The real speed has no limit.
const SPEED: u32 = 25_000;

impl Driver for Pair {
    fn capabilities(&self) -> Capabilities {
        let max_frame = usize::from(self.mtu) + ETHERNET;
        Capabilities { mtu: self.mtu, max_frame, external: self.external, checksums: Checksums::default() }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn link(&mut self) -> bool {
        self.cable.is_up()
    }

    fn speed(&mut self) -> Option<u32> {
        Some(SPEED)
    }

    fn counters(&self, _count: &mut dyn FnMut(&'static str, u64)) {}
}

impl Frames for Pair {
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
        let count = frames.len().min(BURST).min(self.outward.depth - to.len());
        // A frame's origin does not cross a wire.
        let taken = frames.drain(..count).map(|mut frame| {
            frame.set_origin(Origin::Wire);
            frame
        });
        if self.cable.is_up() {
            to.extend(taken);
            self.outward.ring();
        }
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        frame.extend(external.len(), |to| external.copy_to(to))
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        frame.extend(bytes.len(), |to| to.copy_from_slice(bytes))
    }
}

impl Wakeup for Pair {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Burst, Port};

    fn send(port: &mut Port, len: usize) -> bool {
        let Some(mut token) = port.transmit(len) else { return false };
        token.buf()[..len].fill(len as u8);
        token.commit(len);
        true
    }

    #[test]
    fn frames_cross_in_order_and_come_in_bursts() {
        let (left, right, _) = pair(4200).unwrap();
        let (mut left, mut right) = (Port::new(Box::new(left)), Port::new(Box::new(right)));
        assert!((0..100).all(|i| send(&mut left, 60 + i)));
        let _ = left.transmit(60).unwrap();
        left.flush();
        let mut burst = Burst::default();
        assert_eq!((right.receive(&mut burst), burst.frames()[3].len()), (BURST, 63));
        assert_eq!(right.receive(&mut burst), 100 - BURST);
        assert_eq!((right.receive(&mut burst), burst.frames().len()), (0, 0));
        assert!(send(&mut right, 4218) && !send(&mut right, 4219));
        right.flush();
        assert_eq!((left.receive(&mut burst), burst.frames()[0].to_vec()), (1, vec![4218u32 as u8; 4218]));
    }

    #[test]
    fn who_takes_nothing_stops_the_sender() {
        let (left, right, cable) = pair(1500).unwrap();
        let (mut left, mut right) = (Port::new(Box::new(left)), Port::new(Box::new(right)));
        let mut sent = 0;
        while left.has_room() {
            assert!(send(&mut left, 60));
            sent += 1;
        }
        assert!(sent > DEPTH && !send(&mut left, 60) && left.stats()["tx_full"] == 1);
        let mut burst = Burst::default();
        assert_eq!(right.receive(&mut burst), BURST);
        assert!(left.has_room() && send(&mut left, 60));
        // Frames that wait when the link goes down are lost, and counted.
        let waiting = left.backlog() as u64;
        cable.plug(false);
        assert_eq!(left.poll_link(), Some(false));
        assert_eq!((left.backlog(), left.stats()["tx_link_down"]), (0, waiting));
        assert_eq!(right.receive(&mut burst), 0);
        cable.plug(true);
        assert_eq!((left.poll_link(), left.poll_link()), (Some(true), None));
        assert!(send(&mut left, 61));
        left.flush();
        assert_eq!((right.receive(&mut burst), burst.frames()[0].len()), (1, 61));
    }

    #[test]
    fn external_memory_is_copied_and_let_go() {
        let (left, right, _) = pair(1500).unwrap();
        assert!(left.capabilities().external && !right.capabilities().external);
        external_memory_arrives(left, right);
        let (left, right, _) = pair(1500).unwrap();
        external_memory_arrives(right, left);
    }

    fn external_memory_arrives(left: Pair, right: Pair) {
        let (mut left, mut right) = (Port::new(Box::new(left)), Port::new(Box::new(right)));
        let owner = Arc::new([5u8; 1000]);
        // SAFETY: the owner holds the bytes.
        #[allow(unsafe_code, reason = "a test gives memory of its own away")]
        let piece = unsafe { External::new(owner.as_ptr(), 1000, owner.clone()) };
        let mut token = left.transmit(1500).unwrap();
        token.buf()[..50].fill(1);
        token.commit_with(50, [piece], &[9; 4]);
        assert_eq!(Arc::strong_count(&owner), 1);
        left.flush();
        let mut burst = Burst::default();
        right.receive(&mut burst);
        assert!(burst.frames()[0][..] == [vec![1; 50], vec![5; 1000], vec![9; 4]].concat());
    }
}
