//! The guest that issues a command.

use crate::config::{GuestConfig, GuestLimits};
use crate::memory::{Extent, GuestMemory, TooMany};
use crate::queue::VirtqueueSetup;
use crate::tcp::KeepAlive;
use std::sync::Arc;
use vrdma_abi::control::Status;

/// The data about a guest that parsing its commands needs.
pub struct Caller<'a> {
    /// The guest's memory.
    pub memory: &'a Arc<GuestMemory>,
    /// The limits of its objects.
    pub limits: &'a GuestLimits,
    /// Its configuration by the host.
    pub guest: &'a GuestConfig,
    /// Settings of its connections over the host's TCP.
    pub keep_alive: &'a KeepAlive,
    /// Returns how the virtqueue with this number is set up. `None` if it is not set up.
    pub virtqueue: &'a dyn Fn(u16) -> Option<VirtqueueSetup>,
}

impl Caller<'_> {
    /// Makes the pages that the worker is about to use resident.
    ///
    /// This runs in the session's thread, so no other guest waits for it. Extents may name one page
    /// many times. The number of pages is nevertheless limited by the size of guest memory.
    ///
    /// # Errors
    /// `NO_RESOURCES`: this would exceed the number of pages that the daemon may make of its
    /// memory.
    pub(super) fn populate(&self, extents: &[Extent]) -> Result<(), Status> {
        self.memory.populate(extents, &mut self.memory.len()).map_err(|TooMany| {
            self.memory.refuse();
            Status::NO_RESOURCES
        })
    }
}
