//! What a port drives: a NIC, or what does duty for one.

use super::{BURST, Checksums, Dma, External, Frame, Offload};
use anyhow::{Result, bail};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use vrdma_transport::Way;
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

/// What gives and takes frames, a burst at a time.
pub trait Driver: Send + std::fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// To what memory has to be made known before frames may take it with them; none if the driver
    /// reads any memory of this process.
    fn dma(&self) -> Option<Dma> {
        None
    }
    /// Its own address.
    fn mac(&self) -> Mac;
    /// The calling thread is the one that will use the driver from now on.
    fn adopt(&mut self) {}
    /// Drivers of its further queue pairs, each for one more worker; they are given once. What
    /// comes to any of them may be for any worker.
    fn split(&mut self) -> Vec<Box<dyn Driver>> {
        Vec::new()
    }
    /// Has frames to this address come to that queue pair: 0 is this one, the others are as
    /// [`Driver::split`] gave them.
    ///
    /// # Errors
    /// It cannot, or will not; in its own words.
    fn steer(&mut self, _dst: Mac, _queue: usize) -> Result<()> {
        bail!("it has no flow rules")
    }
    /// Appends frames that came, each of one piece, until `frames` holds [`BURST`]; where it leads
    /// to other workers, as many of theirs besides.
    fn receive(&mut self, frames: &mut Vec<Frame>);
    /// Frames of [`Driver::receive`] have been read: takes them all.
    fn recycle(&mut self, frames: &mut Vec<Frame>) {
        frames.clear();
    }
    /// Appends empty frames with room for the longest, until `frames` holds [`BURST`] or there are
    /// no more.
    fn allocate(&mut self, frames: &mut Vec<Frame>);
    /// Takes frames from the front, as many as it can now, at most [`BURST`].
    fn send(&mut self, frames: &mut Vec<Frame>);
    /// Appends memory to a frame of [`Driver::allocate`]; false if that cannot be now, and the
    /// frame is lost.
    fn attach(&mut self, frame: &mut Frame, external: External) -> bool;
    /// Appends a copy of a few bytes (at most 16) to a frame to which memory was attached; false as
    /// in [`Driver::attach`].
    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool;
    /// Lets go memory of others: of frames that have been sent, and, by copying it, of those that
    /// are still to be. Frames that others have keep theirs.
    fn reclaim(&mut self) {}
    /// Asks for checksums of a frame of [`Driver::allocate`].
    fn offload(&mut self, _frame: &mut Frame, _offload: Offload) {}
    /// Readable when frames came, once [`Driver::arm`] was called; the same one always.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;
    /// The user is about to sleep on [`Driver::readiness`]: frames from now on make it readable.
    /// False if it cannot be had.
    fn arm(&mut self) -> bool {
        self.readiness().is_some()
    }
    /// The user is awake.
    fn disarm(&mut self) {}
    /// Whether it leads to other workers of this process too, which are reached while the link is
    /// down.
    fn reaches_workers(&self) -> bool {
        false
    }
    /// The way to this address; it has room if it takes what a port sends in one turn, beside all
    /// that waits in the port.
    fn way_to(&mut self, _dst: Mac) -> Way {
        Way::default()
    }
    /// Whether it leads to other hosts.
    fn leads_out(&self) -> bool {
        true
    }
    /// Whether it sends and receives itself, by a queue pair of its own or as the only one;
    /// otherwise another worker does.
    fn has_queue(&self) -> bool {
        true
    }
    /// Whether the last [`Driver::receive`] brought any frame on its way, though not to its caller.
    fn has_relayed(&self) -> bool {
        false
    }
    /// Whether the link is up, as of now.
    fn link(&mut self) -> bool;
    /// Speed of the link in Mb/s, if it is known.
    fn speed(&mut self) -> Option<u32> {
        None
    }
    /// Names and values of what it counts.
    fn counters(&self, count: &mut dyn FnMut(&'static str, u64));
    /// The same of frames between workers.
    fn worker_counters(&self, _count: &mut dyn FnMut(&'static str, u64)) {}
    /// When frames that it holds back (faults) want to go on, from now.
    fn held(&self) -> Option<Duration> {
        None
    }
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
