//! The interface between a port and its driver: a NIC, or a substitute for one.

use super::{BURST, Checksums, Dma, External, Frame, Offload};
use anyhow::Result;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use vrdma_wire::num::Mac;

/// What a port can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest IP packet, in bytes.
    pub mtu: u16,
    /// Longest frame in bytes. This includes Ethernet header and VLAN tag, but not the FCS.
    pub max_frame: usize,
    /// Whether external memory is sent without a copy. If not, [`super::Transmit::commit_with`]
    /// copies it once.
    pub external: bool,
    /// Checksums that the port fills in ([`super::Transmit::offload`]).
    pub checksums: Checksums,
}

/// A NIC, or a queue pair of one, as a [`Port`](super::Port) uses it.
///
/// The methods are in traits according to their callers. [`Frames`] has those of each burst,
/// [`Wakeup`] those around a sleep. [`Queues`] has those that give a queue pair to each worker.
pub trait Driver: Frames + Wakeup + Send + std::fmt::Debug {
    /// Returns what the driver can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the device that has to know memory before frames may carry this memory.
    ///
    /// `None` if the driver reads any memory of this process.
    fn dma(&self) -> Option<Dma> {
        None
    }

    /// Returns the NIC's own MAC address.
    fn mac(&self) -> Mac;

    /// Makes the calling thread the one that uses the driver from here on.
    fn adopt(&mut self) {}

    /// Returns the queue pairs, if the driver was opened for several workers.
    fn queues(&mut self) -> Option<&mut dyn Queues> {
        None
    }

    /// Checks whether the link is up.
    fn link(&mut self) -> bool;

    /// Returns the speed of the link in Mb/s, if it is known.
    fn speed(&mut self) -> Option<u32> {
        None
    }

    /// Reports the names and values of the driver's counters.
    fn counters(&self, count: &mut dyn FnMut(&'static str, u64));
}

/// Receives and sends frames, a burst at a time.
pub trait Frames {
    /// Appends received frames, each in one piece, until `frames` holds [`BURST`].
    ///
    /// The port of a worker also appends up to as many from other workers.
    fn receive(&mut self, frames: &mut Vec<Frame>);

    /// Takes back all frames of [`Frames::receive`], which have been read.
    fn recycle(&mut self, frames: &mut Vec<Frame>) {
        frames.clear();
    }

    /// Appends empty frames with room for the longest frame, until `frames` holds [`BURST`].
    ///
    /// There are fewer if the driver runs out of buffers.
    fn allocate(&mut self, frames: &mut Vec<Frame>);

    /// Takes frames from the front: as many as it can, at most [`BURST`].
    fn send(&mut self, frames: &mut Vec<Frame>);

    /// Appends external memory to a frame of [`Frames::allocate`].
    ///
    /// Returns false if that is impossible at the moment. The frame is lost then.
    fn attach(&mut self, frame: &mut Frame, external: External) -> bool;

    /// Appends a copy of at most 16 bytes to a frame that has external memory.
    ///
    /// Returns false if that is impossible at the moment. The frame is lost then.
    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool;

    /// Requests checksums for a frame of [`Frames::allocate`].
    fn offload(&mut self, _frame: &mut Frame, _offload: Offload) {}

    /// Releases external memory. Frames that were sent release it at once, and frames that wait get
    /// copies.
    ///
    /// Frames that are held elsewhere keep theirs.
    fn reclaim(&mut self) {}
}

/// Wakes a user who sleeps until frames arrive.
pub trait Wakeup {
    /// Returns a descriptor that becomes readable when frames arrive after [`Wakeup::arm`].
    ///
    /// It is always the same descriptor.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Announces a sleep on [`Wakeup::readiness`]. Frames that arrive from here on make it
    /// readable.
    ///
    /// Returns false if nothing will make it readable.
    fn arm(&mut self) -> bool {
        self.readiness().is_some()
    }

    /// Announces that the user is awake.
    fn disarm(&mut self) {}

    /// Returns the time until the next frame that the driver holds back is due.
    ///
    /// Fault injection delays frames.
    fn held(&self) -> Option<Duration> {
        None
    }
}

/// The queue pairs of a NIC that was opened for several workers.
pub trait Queues {
    /// Returns the drivers of the further queue pairs, one for each further worker.
    ///
    /// They are returned only once. A frame for any worker may come to any queue pair.
    fn split(&mut self) -> Vec<Box<dyn Driver>>;

    /// Steers frames to this address to this queue pair.
    ///
    /// Queue pair 0 is this one. The others are numbered from 1 in the order of [`Queues::split`].
    ///
    /// # Errors
    /// The device cannot or will not steer. The error has its own words.
    fn steer(&mut self, dst: Mac, queue: usize) -> Result<()>;
}

/// Frames that were received in one burst.
#[derive(Debug)]
pub struct Burst(pub(super) Vec<Frame>);

impl Default for Burst {
    fn default() -> Burst {
        Burst(Vec::with_capacity(BURST))
    }
}

impl Burst {
    /// Returns the frames in the order of their arrival. They borrow the burst, not the port.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// Drops the frames, which releases their buffers.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
