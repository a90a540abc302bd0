//! The NIC at a worker that has a queue pair of it.
//!
//! Frames that arrive there go to all workers. If it is the only queue pair, the other workers'
//! frames are sent by it.

use super::channel::FrameReceiver;
use crate::port::frame::Frame;
use crate::port::{BURST, Driver};

/// The number of frames that may wait for a driver that takes none.
const WAITING: usize = 4 * BURST;

/// The queue pair of the NIC that a worker uses, with the frames that wait for it.
#[derive(Debug)]
pub(super) struct Nic {
    pub driver: Box<dyn Driver>,
    /// Whether this is the first worker, which checks the link for all others.
    pub is_first: bool,
    pub up: bool,
    /// Scratch space for a received burst.
    pub received: Vec<Frame>,
    /// Buffers of the driver, for frames of other workers.
    free: Vec<Frame>,
    /// Frames that wait to be sent.
    waiting: Vec<Frame>,
    /// The channels by which other workers send to the NIC.
    from: Vec<FrameReceiver>,
    /// The channel whose turn is next.
    next: usize,
    pub counters: NicCounters,
}

/// The counters that the NIC's [`Port`](crate::port::Port) would have without other workers.
#[derive(Debug, Default)]
pub(super) struct NicCounters {
    pub frames_received: u64,
    pub bytes_received: u64,
    pub frames_sent: u64,
    pub bytes_sent: u64,
    pub tx_link_down: u64,
    /// Frames that came for guests of other workers only.
    pub handed_over: u64,
}

impl Nic {
    pub fn new(mut driver: Box<dyn Driver>, is_first: bool, from: Vec<FrameReceiver>) -> Nic {
        let up = driver.link();
        let (free, waiting, received) = (Vec::new(), Vec::new(), Vec::with_capacity(BURST));
        let counters = NicCounters::default();
        Nic { driver, is_first, up, received, free, waiting, from, next: 0, counters }
    }

    /// Returns how many frames [`Nic::send`] takes at the moment.
    pub fn room(&self) -> usize {
        WAITING.saturating_sub(self.waiting.len())
    }

    /// Queues a frame for the next [`Nic::flush`].
    pub fn send(&mut self, frame: Frame) {
        if self.up {
            self.waiting.push(frame);
        } else {
            self.counters.tx_link_down += 1;
        }
    }

    /// Whether everything was sent.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives the driver the frames that wait, and the frames of other workers.
    ///
    /// Returns true if there were any frames of other workers.
    pub fn flush(&mut self) -> bool {
        let mut relayed = false;
        let channels = self.from.len();
        for step in 0..channels {
            relayed |= self.take((self.next + step) % channels);
        }
        self.next = (self.next + 1) % channels.max(1);
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

    /// Takes frames of one worker while few wait for the driver. Returns true if there were any.
    ///
    /// The other frames wait in the worker's own channel.
    fn take(&mut self, from: usize) -> bool {
        let channel = &mut self.from[from];
        let mut taken = 0;
        while self.waiting.len() < BURST {
            if self.free.is_empty() {
                self.driver.allocate(&mut self.free);
            }
            let Some(mut frame) = self.free.pop() else { break };
            let Some(theirs) = channel.pop() else {
                self.free.push(frame);
                break;
            };
            taken += 1;
            let len = theirs.copy_into(frame.room());
            frame.set_len(len);
            if let Ok(buffer) = theirs.into_buffer() {
                channel.give_back(buffer);
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
        channel.release();
        channel.publish_empty();
        taken != 0
    }

    /// Checks the link. `may_be_up` is false if another worker knows that it is down.
    pub fn look(&mut self, may_be_up: bool) -> bool {
        self.up = self.driver.link() && may_be_up;
        if !self.up {
            // The driver might keep these frames until the link is up again. They would be out of
            // date then.
            self.counters.tx_link_down += self.waiting.len() as u64;
            self.waiting.clear();
        }
        self.up
    }

    /// Releases external memory as soon as possible.
    pub fn reclaim(&mut self) {
        self.waiting.iter_mut().for_each(Frame::own);
        self.driver.reclaim();
    }
}
