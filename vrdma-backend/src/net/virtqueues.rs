//! Starts, stops and remaps the virtqueues of Ethernet functions.

use super::rings::Rings;
use super::{Net, RECEIVE};
use crate::memory::GuestMemory;
use crate::queue::chains::ChainDirection;
use crate::queue::{Call, VirtqueueSetup};
use crate::ratelimit::limited;
use std::sync::Arc;
use vmm_sys_util::epoll::Epoll;

impl Net {
    /// Starts a virtqueue, as the front-end asked. A transmit queue's kick wakes the worker under
    /// `token`.
    pub fn start(
        &mut self,
        guest: usize,
        memory: &Arc<GuestMemory>,
        (setup, base, features): (VirtqueueSetup, u16, u64),
        epoll: &Epoll,
        token: u64,
    ) {
        let index = setup.index;
        self.connections[guest] = memory.connection().as_ref().map(Arc::downgrade).unwrap_or_default();
        let direction = if index == RECEIVE { ChainDirection::ToDriver } else { ChainDirection::FromDriver };
        let name = &self.names[guest];
        let rings = match index {
            RECEIVE => &mut self.outlets.receivers[guest].rings,
            _ => &mut self.senders[guest].rings,
        };
        if !rings.start(memory, setup, base, features, direction) {
            let rings = "are not in guest memory, or not aligned";
            limited!(self.violations, Warn, guest = name;
                "guest {name}: the rings of its Ethernet queue {index} {rings}");
        }
        if index == RECEIVE {
            self.outlets.receivers[guest].revive();
        } else {
            rings.watch(epoll, Some(token));
        }
    }

    /// Stops a virtqueue, as the front-end asked.
    ///
    /// Returns the index at which it can continue, if it was running.
    pub fn stop(&mut self, guest: usize, index: u16, epoll: &Epoll) -> Option<u16> {
        let rings = self.rings(guest, index);
        rings.watch(epoll, None);
        rings.stop()
    }

    /// Replaces the driver's interrupt for a virtqueue.
    pub fn set_call(&mut self, guest: usize, index: u16, call: Option<Arc<Call>>) {
        self.rings(guest, index).set_call(call);
    }

    /// Changes to a guest's new memory table.
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
