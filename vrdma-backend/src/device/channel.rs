//! Channels, as far as the device counts them. The worker serves them.

use super::{Device, Result};
use crate::translate::event::AsyncEvent;
use vrdma_transport::{Error, OwnerId};

impl Device {
    /// Checks whether this virtqueue may become a channel of the context.
    ///
    /// # Errors
    /// `Invalid`: the virtqueue is not for a channel. `Denied`: it is the kernel's. `NotFound`: the
    /// context does not exist.
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

    /// Counts a new channel of the context.
    ///
    /// # Errors
    /// `NotFound`: the context does not exist.
    pub fn channel_bound(&mut self, owner: OwnerId) -> Result<()> {
        self.context(owner)?.objects += 1;
        Ok(())
    }

    /// Counts a channel that ended, and discards its events.
    pub fn channel_unbound(&mut self, owner: OwnerId, queue: u16) {
        self.async_events.forget(queue.into(), &[AsyncEvent::channel_error(queue).kind]);
        self.release(owner);
    }
}
