//! A virtqueue of an Ethernet function while its front-end lets it run: started, stopped, moved to a new memory table.

use super::{Net, RECEIVE};
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
    /// The front-end starts the virtqueue. False if it cannot be: its rings are not in guest memory.
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

    /// The front-end stops the virtqueue: returns the index at which it may go on, if it was running.
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

impl Net {
    /// The front-end starts a virtqueue; its kick wakes the worker under `token`.
    pub fn start(
        &mut self,
        guest: usize,
        memory: &Arc<GuestMemory>,
        (setup, base, features): (VirtqueueSetup, u16, u64),
        epoll: &Epoll,
        token: u64,
    ) {
        let index = setup.index;
        let direction = if index == RECEIVE { ChainDirection::ToDriver } else { ChainDirection::FromDriver };
        let name = &self.names[guest];
        let rings = match index {
            RECEIVE => &mut self.outlets.receivers[guest].rings,
            _ => &mut self.senders[guest].rings,
        };
        if !rings.start(memory, setup, base, features, direction) {
            let rings = "are not in guest memory, or not aligned";
            self.violations.warn(|| format!("guest {name}: the rings of its Ethernet queue {index} {rings}"));
        }
        if index == RECEIVE {
            self.outlets.receivers[guest].revive();
        } else {
            rings.watch(epoll, Some(token));
        }
    }

    /// The front-end stops a virtqueue; returns the index at which it may go on, if it was running.
    pub fn stop(&mut self, guest: usize, index: u16, epoll: &Epoll) -> Option<u16> {
        let rings = self.rings(guest, index);
        rings.watch(epoll, None);
        rings.stop()
    }

    /// The front-end changed what rings the driver for a virtqueue.
    pub fn set_call(&mut self, guest: usize, index: u16, call: Option<Arc<Call>>) {
        self.rings(guest, index).set_call(call);
    }

    /// Follows a new memory table of a guest.
    pub fn remap(&mut self, guest: usize, memory: &Arc<GuestMemory>) {
        if let Err(broken) = self.senders[guest].rings.remap(memory) {
            self.sender_broken(guest, broken);
        }
        let receiver = &mut self.outlets.receivers[guest];
        receiver.revive();
        if let Err(broken) = receiver.rings.remap(memory) {
            receiver.counters.rx_broken += 1;
            self.outlets.broken.push((guest, broken));
        }
    }

    fn rings(&mut self, guest: usize, index: u16) -> &mut Rings {
        match index {
            RECEIVE => &mut self.outlets.receivers[guest].rings,
            _ => &mut self.senders[guest].rings,
        }
    }
}
