//! What a thread has that polls a completion queue from ibv_start_poll() to ibv_end_poll().

use std::cell::UnsafeCell;
use std::ffi::c_int;

use super::lock::RingGuard;
use crate::clock::Wall;
use crate::errno::Errno;
use crate::ffi::{self, zeroed};

/// State of a poll that a thread has started by ibv_start_poll().
pub struct Started {
    /// The lock of the CQ's ring, held by the caller from start to end.
    pub(super) held: UnsafeCell<Option<RingGuard<'static>>>,
    /// The current completion.
    pub(super) current: UnsafeCell<ffi::ibv_wc>,
    /// Time stamp of the current completion.
    pub(super) timestamp: UnsafeCell<u64>,
    /// The last comparison of the wall clock with the device's clock, if completions have
    /// wall-clock time.
    pub(super) wall: UnsafeCell<Option<Wall>>,
}

impl Started {
    /// Makes the state of a queue on which no thread has started a poll.
    pub fn new() -> Self {
        Self {
            held: UnsafeCell::new(None),
            current: UnsafeCell::new(zeroed!()),
            timestamp: UnsafeCell::new(0),
            wall: UnsafeCell::new(None),
        }
    }

    /// Makes completions have wall-clock time.
    pub fn compare_clocks(&mut self, cmd_fd: c_int) -> Result<(), Errno> {
        *self.wall.get_mut() = Some(Wall::compare(cmd_fd)?);
        Ok(())
    }

    /// Makes the last comparison of the clocks older by `nanoseconds`. No thread may poll the CQ.
    #[cfg(test)]
    pub fn age(&self, nanoseconds: u64) {
        // SAFETY: nobody else uses it.
        if let Some(wall) = unsafe { (*self.wall.get()).as_mut() } {
            wall.age(nanoseconds);
        }
    }
}
