//! Channels, as far as the device counts them; the worker serves them.

use super::{Device, Result};
use crate::translate::event::AsyncEvent;
use vrdma_transport::{Error, OwnerId};

impl Device {
    /// Whether this virtqueue may become a channel of that context.
    ///
    /// # Errors
    /// `Invalid`: it is no channel's. `Denied`: it is the kernel's. `NotFound`: there is no such
    /// context.
    pub fn check_channel(&mut self, owner: OwnerId, queue: u16) -> Result<()> {
        let first = self.limits.first_channel;
        if queue < first || u32::from(queue) >= self.limits.num_queues {
            return Err(Error::Invalid);
        }
        if queue == first && owner != OwnerId::KERNEL {
            return Err(Error::Denied);
        }
        self.context(owner).map(|_| ())
    }

    /// A channel of that context begins.
    ///
    /// # Errors
    /// `NotFound`: there is no such context.
    pub fn channel_bound(&mut self, owner: OwnerId) -> Result<()> {
        self.context(owner)?.objects += 1;
        Ok(())
    }

    /// It ends.
    pub fn channel_unbound(&mut self, owner: OwnerId, queue: u16) {
        self.async_events.forget(queue.into(), &[AsyncEvent::channel_error(queue).kind]);
        self.release(owner);
    }
}
