//! The NIC, at a worker that has a queue pair of it: frames that come there go to all workers.
//! Where it has the only one, the others' frames go to it.

use super::lane::Inward;
use crate::port::frame::Frame;
use crate::port::{BURST, Driver};

/// Frames that wait for a driver that takes none.
const WAITING: usize = 4 * BURST;

/// See the module.
#[derive(Debug)]
pub(super) struct Nic {
    pub driver: Box<dyn Driver>,
    /// It looks at the link for all others that there are.
    pub is_first: bool,
    pub up: bool,
    /// Room for a burst.
    pub received: Vec<Frame>,
    /// Buffers of the driver, for frames of other workers.
    free: Vec<Frame>,
    /// Frames to be sent.
    waiting: Vec<Frame>,
    /// What other workers send to it.
    from: Vec<Inward>,
    /// Whose turn it is of them.
    next: usize,
    pub counters: NicCounters,
}

/// What the NIC's [`Port`](crate::port::Port) would count if there were no other workers.
#[derive(Debug, Default)]
pub(super) struct NicCounters {
    pub frames_received: u64,
    pub bytes_received: u64,
    pub frames_sent: u64,
    pub bytes_sent: u64,
    pub tx_link_down: u64,
    /// Frames that came for guests of other workers alone.
    pub handed_over: u64,
}

impl Nic {
    pub fn new(mut driver: Box<dyn Driver>, is_first: bool, from: Vec<Inward>) -> Nic {
        let up = driver.link();
        let (free, waiting, received) = (Vec::new(), Vec::new(), Vec::with_capacity(BURST));
        let counters = NicCounters::default();
        Nic { driver, is_first, up, received, free, waiting, from, next: 0, counters }
    }

    /// How many frames [`Nic::send`] takes now.
    pub fn room(&self) -> usize {
        WAITING.saturating_sub(self.waiting.len())
    }

    /// Sends a frame with the next [`Nic::flush`].
    pub fn send(&mut self, frame: Frame) {
        if self.up {
            self.waiting.push(frame);
        } else {
            self.counters.tx_link_down += 1;
        }
    }

    /// Whether all was sent.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives the driver what waits, and what other workers send; true if there was anything of
    /// theirs.
    pub fn flush(&mut self) -> bool {
        let mut relayed = false;
        let lanes = self.from.len();
        for step in 0..lanes {
            relayed |= self.take((self.next + step) % lanes);
        }
        self.next = (self.next + 1) % lanes.max(1);
        while !self.waiting.is_empty() {
            let before = self.waiting.len();
            let bytes = |frames: &[Frame]| frames.iter().map(|frame| frame.total_len() as u64).sum::<u64>();
            let queued = bytes(&self.waiting);
            self.driver.send(&mut self.waiting);
            let sent = before - self.waiting.len();
            self.counters.frames_sent += sent as u64;
            self.counters.bytes_sent += queued - bytes(&self.waiting);
            if sent == 0 {
                break;
            }
        }
        relayed
    }

    /// Takes frames of one worker, as long as few wait: what it leaves waits in the worker's own
    /// lane. True if there were any.
    fn take(&mut self, from: usize) -> bool {
        let lane = &mut self.from[from];
        let mut taken = 0;
        while self.waiting.len() < BURST {
            if self.free.is_empty() {
                self.driver.allocate(&mut self.free);
            }
            let Some(mut frame) = self.free.pop() else { break };
            let Some(theirs) = lane.pop() else {
                self.free.push(frame);
                break;
            };
            taken += 1;
            let len = theirs.copy_into(frame.room());
            frame.set_len(len);
            if let Ok(buffer) = theirs.into_buffer() {
                lane.give_back(buffer);
            }
            if self.up {
                self.waiting.push(frame);
            } else {
                self.counters.tx_link_down += 1;
            }
            if taken == BURST {
                break;
            }
        }
        lane.release();
        lane.publish_empty();
        taken != 0
    }

    /// Looks at the link, which is down if others know that it is.
    pub fn look(&mut self, may_be_up: bool) -> bool {
        self.up = self.driver.link() && may_be_up;
        if !self.up {
            // The driver may keep them until the link is up again, and nobody waits for them by
            // then.
            self.counters.tx_link_down += self.waiting.len() as u64;
            self.waiting.clear();
        }
        self.up
    }

    /// Has memory of others given back as soon as can be.
    pub fn reclaim(&mut self) {
        self.waiting.iter_mut().for_each(Frame::own);
        self.driver.reclaim();
    }
}
