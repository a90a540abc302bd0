//! What commands need of the guest.

use crate::config::{GuestConfig, GuestLimits, Transport};
use crate::memory::{GuestMemory, Run, TooMany};
use crate::tcp::KeepAlive;
use std::sync::Arc;
use vrdma_abi::control::Status;

/// What a command may need of the guest beside its own bytes.
#[derive(Debug)]
pub struct CommandContext<'a> {
    /// The guest's memory.
    pub memory: &'a Arc<GuestMemory>,
    /// What it may have.
    pub limits: &'a GuestLimits,
    /// What the host says of it.
    pub guest: &'a GuestConfig,
    /// Of its connections.
    pub keep_alive: &'a KeepAlive,
}

impl CommandContext<'_> {
    /// What its QPs are connected by.
    pub(super) fn transport(&self) -> Transport {
        self.guest.transport
    }

    /// Has the pages of what the worker is about to use ready, here, where no other guest waits for it. No more than the guest has, since
    /// runs may name the same memory again and again.
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
