//! The way of frames from one worker to another, and of their empty buffers back.

use super::ring::{self, Receiver, Sender};
use super::sleeper::Sleeper;
use super::sync::AtomicBool;
use crate::port::frame::{Buffer, Frame};
use crate::port::sizes::{BACKLOG, TURN};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames that a lane holds, as the receive ring of a NIC does; what is more is lost.
pub(super) const DEPTH: usize = 1024;

/// A worker to which frames are sent. What others look at all the time shares no line with what
/// anybody writes.
#[derive(Debug)]
#[repr(align(128))]
pub struct Station {
    sleeper: Sleeper,
    /// Readable once it was woken.
    pub(super) bell: OwnedFd,
}

/// The sender's end. Ends of several workers lie side by side when they are made: none shares a
/// line, nor a pair of them.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Outward {
    frames: Sender<Frame>,
    empty: Receiver<Buffer>,
    to: Arc<Station>,
    /// Something was put in that was not published yet.
    unpublished: bool,
}

/// The receiver's end.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inward {
    frames: Receiver<Frame>,
    empty: Sender<Buffer>,
}

/// A lane to that worker.
pub(super) fn lane(to: &Arc<Station>) -> (Outward, Inward) {
    let (frames, received) = ring::ring(DEPTH);
    let (returned, empty) = ring::ring(DEPTH);
    let outward = Outward { frames, empty, to: to.clone(), unpublished: false };
    (outward, Inward { frames: received, empty: returned })
}

impl Station {
    /// Of a worker that is awake.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Station> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Station { sleeper: Sleeper { asleep: AtomicBool::new(false) }, bell })
    }

    /// Its worker is about to sleep.
    pub(super) fn arm(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.sleeper.sleeps();
    }

    /// Its worker is awake.
    pub(super) fn disarm(&self) {
        self.sleeper.is_awake();
    }

    /// Something was published for its worker, which is woken if it sleeps.
    pub fn wake(&self) {
        if self.sleeper.is_to_be_woken() {
            // A full counter wakes too.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Outward {
    /// Sends a frame that lies in a buffer of the sender's.
    ///
    /// # Errors
    /// There is no room: the frame comes back.
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        self.frames.push(frame)?;
        self.unpublished = true;
        Ok(())
    }

    /// Whether it takes what a port sends in one turn, and before that what waits in the port.
    pub fn has_room(&mut self) -> bool {
        self.frames.has_room(TURN + BACKLOG)
    }

    /// Lets the receiver see what was sent, and wakes it if it sleeps.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.unpublished) {
            return;
        }
        self.frames.publish();
        self.to.wake();
    }

    /// Takes buffers that came back.
    pub fn take_empty(&mut self, free: &mut Vec<Buffer>) {
        while let Some(buffer) = self.empty.pop() {
            free.push(buffer);
        }
        self.empty.release();
    }
}

impl Inward {
    /// Takes the next frame.
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// After some [`Inward::pop`]: gives the places in the ring back.
    pub fn release(&mut self) {
        self.frames.release();
    }

    /// Gives a buffer back, which the sender sees after [`Inward::publish_empty`].
    pub fn give_back(&mut self, buffer: Buffer) {
        // The sender takes them when it has no other. What finds no room is freed: the sender will
        // make another.
        let _ = self.empty.push(buffer);
    }

    /// Lets the sender see which buffers came back.
    pub fn publish_empty(&mut self) {
        self.empty.publish();
    }
}
