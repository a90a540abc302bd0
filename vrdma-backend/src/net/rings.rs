//! A virtqueue of an Ethernet function, between its start and stop by the front-end.

use crate::memory::GuestMemory;
use crate::queue::chains::{ChainDirection, ChainError, ChainQueue};
use crate::queue::{Call, VirtqueueSetup};
use std::sync::Arc;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use vmm_sys_util::epoll::Epoll;

/// A virtqueue, or an empty place for one.
#[derive(Debug, Default)]
pub struct Rings {
    /// The virtqueue while it runs.
    pub queue: Option<ChainQueue>,
    /// Features that the driver accepted.
    pub features: u64,
    /// The token of its kick in the epoll set, if the kick is watched.
    watched: Option<u64>,
}

impl Rings {
    /// Starts the virtqueue. Returns false if its rings are not in guest memory, or not aligned.
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

    /// Stops the virtqueue. Returns the index at which it can continue, if it was running.
    pub fn stop(&mut self) -> Option<u16> {
        let mut queue = self.queue.take()?;
        queue.publish();
        Some(queue.next())
    }

    /// Replaces the driver's interrupt.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        if let Some(queue) = &mut self.queue {
            queue.set_call(call);
        }
    }

    /// Changes to a new memory table.
    ///
    /// # Errors
    /// The queue is broken. It cannot be used any more.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) -> Result<(), ChainError> {
        self.queue.as_mut().map_or(Ok(()), |queue| queue.remap(memory))
    }

    /// Watches the kick under a token, or stops watching if there is no token.
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
