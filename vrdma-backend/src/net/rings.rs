//! A virtqueue of an Ethernet function while its front-end lets it run: started, stopped, moved to
//! a new memory table.

use crate::memory::GuestMemory;
use crate::queue::chains::{ChainDirection, ChainError, ChainQueue};
use crate::queue::{Call, VirtqueueSetup};
use std::sync::Arc;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use vmm_sys_util::epoll::Epoll;

/// A virtqueue, or the place for one.
#[derive(Debug, Default)]
pub struct Rings {
    /// The virtqueue while it runs.
    pub queue: Option<ChainQueue>,
    /// Features that the driver took.
    pub features: u64,
    /// Its kick is in the epoll set, under this token.
    watched: Option<u64>,
}

impl Rings {
    /// The front-end starts the virtqueue. False if it cannot be: its rings are not in guest
    /// memory.
    pub fn start(
        &mut self,
        memory: &Arc<GuestMemory>,
        setup: VirtqueueSetup,
        base: u16,
        features: u64,
        direction: ChainDirection,
    ) -> bool {
        let indirect = features & 1 << VIRTIO_RING_F_INDIRECT_DESC != 0;
        self.features = features;
        self.queue = ChainQueue::new(memory, setup, base, indirect, direction);
        self.queue.is_some()
    }

    /// The front-end stops the virtqueue: returns the index at which it may go on, if it was
    /// running.
    pub fn stop(&mut self) -> Option<u16> {
        let mut queue = self.queue.take()?;
        queue.publish();
        Some(queue.next())
    }

    /// What rings the driver has changed.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        if let Some(queue) = &mut self.queue {
            queue.set_call(call);
        }
    }

    /// Follows a new memory table.
    ///
    /// # Errors
    /// The queue is broken from now on.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) -> Result<(), ChainError> {
        self.queue.as_mut().map_or(Ok(()), |queue| queue.remap(memory))
    }

    /// Watches the kick, or, without a token, no longer.
    pub fn watch(&mut self, epoll: &Epoll, token: Option<u64>) {
        let Some(kick) = self.queue.as_ref().and_then(ChainQueue::kick) else { return };
        if let Some(old) = self.watched.take() {
            let _ = kick.watch(epoll, old, false);
        }
        let Some(token) = token else { return };
        match kick.watch(epoll, token, true) {
            Ok(()) => self.watched = Some(token),
            Err(error) => log::debug!("a transmit queue's kick: {error}"),
        }
    }
}
