//! Inter-worker channels: rings for frames from one worker to another, and for empty buffers back.

use super::ring::{self, RingReceiver, RingSender};
use super::sleeper::Sleeper;
use super::sync::AtomicBool;
use crate::port::frame::{Buffer, Frame};
use crate::port::sizes::{BACKLOG, TURN};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The number of frames that a channel holds, as many as the receive ring of a NIC. More are lost.
pub(super) const DEPTH: usize = 1024;

/// The endpoint of a worker to which others send: it tells whether the worker sleeps, and wakes it.
///
/// Senders read it all the time, so it shares no cache line with data that is written.
#[derive(Debug)]
#[repr(align(128))]
pub struct Endpoint {
    sleeper: Sleeper,
    /// An eventfd that is readable after the worker was woken.
    pub(super) bell: OwnedFd,
}

/// The sender's end of a channel.
///
/// Ends of several workers are adjacent in memory when they are made. The alignment keeps each in
/// its own cache lines and pairs of lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct FrameSender {
    frames: RingSender<Frame>,
    empty: RingReceiver<Buffer>,
    to: Arc<Endpoint>,
    /// Whether something was pushed and is not yet published.
    unpublished: bool,
}

/// The receiver's end of a channel.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct FrameReceiver {
    frames: RingReceiver<Frame>,
    empty: RingSender<Buffer>,
}

/// Creates a channel to the worker with this endpoint.
pub(super) fn channel(to: &Arc<Endpoint>) -> (FrameSender, FrameReceiver) {
    let (frames, received) = ring::ring(DEPTH);
    let (returned, empty) = ring::ring(DEPTH);
    let outward = FrameSender { frames, empty, to: to.clone(), unpublished: false };
    (outward, FrameReceiver { frames: received, empty: returned })
}

impl Endpoint {
    /// Creates the endpoint of a worker that is awake.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Endpoint> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Endpoint { sleeper: Sleeper { asleep: AtomicBool::new(false) }, bell })
    }

    /// Announces that the worker is about to sleep.
    pub(super) fn arm(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.sleeper.sleeps();
    }

    /// Announces that the worker is awake.
    pub(super) fn disarm(&self) {
        self.sleeper.is_awake();
    }

    /// Wakes the worker if it sleeps. The caller has published something for it.
    pub fn wake(&self) {
        if self.sleeper.is_to_be_woken() {
            // A full counter wakes too.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl FrameSender {
    /// Sends a frame that is in one of the sender's buffers.
    ///
    /// # Errors
    /// There is no room. The frame is returned.
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        self.frames.push(frame)?;
        self.unpublished = true;
        Ok(())
    }

    /// Whether the ring takes what a port sends in one round, after all that is queued in the port.
    pub fn has_room(&mut self) -> bool {
        self.frames.has_room(TURN + BACKLOG)
    }

    /// Makes sent frames visible to the receiver, and wakes it if it sleeps.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.unpublished) {
            return;
        }
        self.frames.publish();
        self.to.wake();
    }

    /// Takes the buffers that were returned.
    pub fn take_empty(&mut self, free: &mut Vec<Buffer>) {
        while let Some(buffer) = self.empty.pop() {
            free.push(buffer);
        }
        self.empty.release();
    }
}

impl FrameReceiver {
    /// Takes the next frame.
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// Releases the slots of frames that [`FrameReceiver::pop`] has taken.
    pub fn release(&mut self) {
        self.frames.release();
    }

    /// Returns a buffer. The sender sees it after [`FrameReceiver::publish_empty`].
    pub fn give_back(&mut self, buffer: Buffer) {
        // The sender takes buffers back when it has no others. A buffer that finds no room is
        // freed, and the sender makes another.
        let _ = self.empty.push(buffer);
    }

    /// Makes returned buffers visible to the sender.
    pub fn publish_empty(&mut self) {
        self.empty.publish();
    }
}
