//! The guest that gives a command.

use crate::config::{GuestConfig, GuestLimits};
use crate::memory::{GuestMemory, Run, TooMany};
use crate::queue::VirtqueueSetup;
use crate::tcp::KeepAlive;
use std::sync::Arc;
use vrdma_abi::control::Status;

/// What is known, in its session, of the guest that gives a command.
pub struct Caller<'a> {
    /// The guest's memory.
    pub memory: &'a Arc<GuestMemory>,
    /// What it may have.
    pub limits: &'a GuestLimits,
    /// What the host says of it.
    pub guest: &'a GuestConfig,
    /// Settings of its connections over the host's TCP.
    pub keep_alive: &'a KeepAlive,
    /// How the virtqueue with this number is set up; `None` if it is not.
    pub virtqueue: &'a dyn Fn(u16) -> Option<VirtqueueSetup>,
}

impl Caller<'_> {
    /// Makes the pages of memory that the worker is about to use. No other guest waits for that
    /// here. Runs may name the same page again and again: no more pages are made than the guest
    /// has.
    ///
    /// # Errors
    /// `NO_RESOURCES`: the daemon would have made more pages of its memory than it may.
    pub(super) fn populate(&self, runs: &[Run]) -> Result<(), Status> {
        self.memory.populate(runs, &mut self.memory.len()).map_err(|TooMany| {
            self.memory.refuse();
            Status::NO_RESOURCES
        })
    }
}
