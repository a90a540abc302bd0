//! What a port drives: a NIC, or what does duty for one.

use super::{BURST, Checksums, Dma, External, Frame, Offload};
use anyhow::Result;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use vrdma_wire::num::Mac;

/// What a port can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest IP packet in bytes.
    pub mtu: u16,
    /// Longest frame in bytes, Ethernet header and VLAN tag included, FCS not.
    pub max_frame: usize,
    /// Memory of others goes out without a copy ([`super::Transmit::commit_with`] copies it once
    /// otherwise).
    pub external: bool,
    /// Checksums that the port fills in ([`super::Transmit::offload`]).
    pub checksums: Checksums,
}

/// A NIC, or a queue pair of one, as a [`Port`](super::Port) uses it.
///
/// Its methods stand in the trait of their callers: [`Frames`] has those of each burst, [`Wakeup`]
/// those around a sleep, [`Queues`] those that give a queue pair to each worker.
pub trait Driver: Frames + Wakeup + Send + std::fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// The device that has to know memory before frames may take that memory with them. None if the
    /// driver reads any memory of this process.
    fn dma(&self) -> Option<Dma> {
        None
    }

    /// The NIC's own MAC address.
    fn mac(&self) -> Mac;

    /// Makes the calling thread the one that uses the driver from now on.
    fn adopt(&mut self) {}

    /// The queue pairs of a driver that was opened for several workers.
    fn queues(&mut self) -> Option<&mut dyn Queues> {
        None
    }

    /// Whether the link is up, as of now.
    fn link(&mut self) -> bool;

    /// Speed of the link in Mb/s, if it is known.
    fn speed(&mut self) -> Option<u32> {
        None
    }

    /// Names and values of what it counts.
    fn counters(&self, count: &mut dyn FnMut(&'static str, u64));
}

/// Gives and takes frames, a burst at a time.
pub trait Frames {
    /// Appends frames that came, each in one piece, until `frames` holds [`BURST`]. A port of a
    /// worker appends as many from other workers besides.
    fn receive(&mut self, frames: &mut Vec<Frame>);

    /// Takes back all frames of [`Frames::receive`]: they have been read.
    fn recycle(&mut self, frames: &mut Vec<Frame>) {
        frames.clear();
    }

    /// Appends empty frames with room for the longest, until `frames` holds [`BURST`] or there are
    /// no more.
    fn allocate(&mut self, frames: &mut Vec<Frame>);

    /// Takes frames from the front: as many as it can now, at most [`BURST`].
    fn send(&mut self, frames: &mut Vec<Frame>);

    /// Appends memory to a frame of [`Frames::allocate`]. False if that cannot be now: then the
    /// frame is lost.
    fn attach(&mut self, frame: &mut Frame, external: External) -> bool;

    /// Appends a copy of at most 16 bytes to a frame that has memory attached. False if that cannot
    /// be now: then the frame is lost.
    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool;

    /// Asks for checksums of a frame of [`Frames::allocate`].
    fn offload(&mut self, _frame: &mut Frame, _offload: Offload) {}

    /// Lets go of memory that was attached: of frames that have been sent at once, and of frames
    /// that wait by copying it. Frames that somebody else holds keep theirs.
    fn reclaim(&mut self) {}
}

/// Wakes a user who sleeps until frames come.
pub trait Wakeup {
    /// Readable when frames came, once [`Wakeup::arm`] was called. It is the same one always.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Announces a sleep on [`Wakeup::readiness`]: frames from now on make it readable. False if it
    /// cannot be had.
    fn arm(&mut self) -> bool {
        self.readiness().is_some()
    }

    /// Announces that the user is awake.
    fn disarm(&mut self) {}

    /// The time from now until frames that it holds back want to go on. Fault injection delays
    /// frames.
    fn held(&self) -> Option<Duration> {
        None
    }
}

/// The queue pairs of a NIC that was opened for several workers.
pub trait Queues {
    /// Drivers of the further queue pairs, each for one more worker. They are given once. A frame
    /// to any worker may come to any of them.
    fn split(&mut self) -> Vec<Box<dyn Driver>>;

    /// Has frames to this address come to that queue pair. 0 is this one; the others count as
    /// [`Queues::split`] gave them.
    ///
    /// # Errors
    /// The device cannot, or will not; the error has its own words.
    fn steer(&mut self, dst: Mac, queue: usize) -> Result<()>;
}

/// Frames that came in one burst.
#[derive(Debug)]
pub struct Burst(pub(super) Vec<Frame>);

impl Default for Burst {
    fn default() -> Burst {
        Burst(Vec::with_capacity(BURST))
    }
}

impl Burst {
    /// The frames, in the order in which they came. They borrow the burst, not the port.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// Gives their buffers back.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
