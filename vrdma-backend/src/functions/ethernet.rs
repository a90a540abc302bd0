//! The Ethernet function, as its front-end sets it up. The worker serves both virtqueues.
//!
//! A network device over vhost-user has its configuration space, its control queue and its link
//! state in the VMM (QEMU's `vhost-user` netdev). Only the two virtqueues of a pair are set up
//! here, and the features that concern them.

use crate::memory::GuestMemory;
use crate::net::{RECEIVE, TRANSMIT};
use crate::queue::{Call, VirtqueueSetup};
use crate::vhost::{Function, Setup};
use crate::worker::{Stopped, WorkerHandle};
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use virtio_bindings::virtio_net::*;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// A guest's Ethernet function.
#[derive(Debug)]
pub struct EthernetFunction {
    worker: WorkerHandle,
    guest: usize,
    memory_max: u64,
}

impl EthernetFunction {
    /// Returns the function of a guest of the worker's switch.
    ///
    /// It may map `memory_max` bytes of guest memory.
    pub fn new(worker: WorkerHandle, guest: usize, memory_max: u64) -> EthernetFunction {
        EthernetFunction { worker, guest, memory_max }
    }
}

impl Function for EthernetFunction {
    const NAME: &'static str = "Ethernet";
    const FEATURES: u64 = 1 << VIRTIO_NET_F_MRG_RXBUF
        | 1 << VIRTIO_NET_F_CSUM
        | 1 << VIRTIO_NET_F_GUEST_CSUM
        | 1 << VIRTIO_NET_F_HOST_TSO4
        | 1 << VIRTIO_NET_F_HOST_TSO6
        | 1 << VIRTIO_NET_F_GUEST_TSO4
        | 1 << VIRTIO_NET_F_GUEST_TSO6
        | 1 << VIRTIO_NET_F_MTU
        | 1 << VIRTIO_RING_F_INDIRECT_DESC;
    const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::empty();

    fn num_queues(&self) -> usize {
        2
    }

    fn queue_num(&self) -> u64 {
        1
    }

    fn memory_max(&self) -> u64 {
        self.memory_max
    }

    fn start(&mut self, setup: VirtqueueSetup, base: u16, front: &Setup) -> Result<(), Stopped> {
        let (guest, memory, features) = (self.guest, front.memory.clone(), front.features);
        self.worker.call(move |worker| worker.start_net_queue(guest, &memory, setup, base, features))
    }

    fn stop(&mut self, index: u16) -> Result<Option<u16>, Stopped> {
        let guest = self.guest;
        self.worker.call(move |worker| worker.stop_net_queue(guest, index))
    }

    fn set_call(&mut self, index: u16, call: Option<Arc<Call>>) -> Result<(), Stopped> {
        let guest = self.guest;
        self.worker.call(move |worker| worker.net.set_call(guest, index, call))
    }

    fn remap(&mut self, memory: &Arc<GuestMemory>) -> Result<(), Stopped> {
        let (guest, memory) = (self.guest, memory.clone());
        self.worker.call(move |worker| worker.net.remap(guest, &memory))
    }

    fn reset(&mut self) -> Result<(), Stopped> {
        // The virtqueues are stopped already, and there is no other state.
        Ok(())
    }

    fn detach(&mut self) {
        let guest = self.guest;
        // If the worker has stopped, there is nothing to detach from.
        let _ = self.worker.call(move |worker| {
            worker.stop_net_queue(guest, RECEIVE);
            worker.stop_net_queue(guest, TRANSMIT);
        });
    }

    fn panicked(&mut self) {
        let guest = self.guest;
        self.worker.tell(move |worker| worker.net.panicked(guest));
    }
}
