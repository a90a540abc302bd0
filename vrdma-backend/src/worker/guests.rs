//! What sessions have the worker do: guests, their memory and their virtqueues come and go.

use super::{BoundChannel, NET, Worker};
use crate::config::{GuestConfig, Qos, Transport};
use crate::device::counters::ObjectCounts;
use crate::device::{Device, DeviceLimits, Result};
use crate::memory::{GuestMemory, reap};
use crate::net::Member;
use crate::queue::channel::Channel;
use crate::queue::{Call, VirtqueueSetup};
use crate::ratelimit::limited;
use crate::translate::event::AsyncEvent;
use crate::translate::limits;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vrdma_transport::{DeviceId, Error, OwnerId};

/// The MTU of IP packets if nothing sets it.
const USUAL_MTU: u16 = 1500;

impl Worker {
    /// Whether this virtqueue is bound as a channel.
    pub fn has_channel(&self, device: DeviceId, index: u16) -> bool {
        self.position(device, index).is_some()
    }

    /// Binds a virtqueue as a channel of a context.
    ///
    /// # Errors
    /// `Busy`: it is a channel already. Those of [`Device::check_channel`].
    pub fn bind_channel(&mut self, id: DeviceId, owner: OwnerId, channel: Channel) -> Result<()> {
        let queue = channel.index();
        self.outputs.device(id).check_channel(owner, queue)?;
        if self.has_channel(id, queue) {
            return Err(Error::Busy);
        }
        self.outputs.device(id).channel_bound(owner)?;
        self.add_channel(id, owner, channel);
        Ok(())
    }

    /// Unbinds a channel.
    ///
    /// # Errors
    /// `NotFound`: the virtqueue is no channel.
    pub fn unbind_channel(&mut self, id: DeviceId, queue: u16) -> Result<()> {
        let owner = self.remove_channel(id, queue).ok_or(Error::NotFound)?;
        self.outputs.device(id).channel_unbound(owner, queue);
        Ok(())
    }

    /// Starts to serve a channel.
    pub fn add_channel(&mut self, device: DeviceId, owner: OwnerId, channel: Channel) {
        self.serials += 1;
        let serial = self.serials;
        let mut bound = BoundChannel { device, owner, channel, serial, watched: false };
        bound.watch(&self.epoll, true);
        // The position is behind the guest's other channels.
        let last = self.channels.iter().rposition(|other| other.device == device);
        self.channels.insert(last.map_or(self.channels.len(), |last| last + 1), bound);
    }

    /// Ends a channel. Returns the context that owned it.
    pub fn remove_channel(&mut self, device: DeviceId, index: u16) -> Option<OwnerId> {
        let at = self.position(device, index)?;
        let mut bound = self.channels.remove(at);
        bound.watch(&self.epoll, false);
        Some(bound.owner)
    }

    /// Starts a virtqueue other than the control queue, for the front-end.
    pub fn start_queue(&mut self, id: DeviceId, memory: &Arc<GuestMemory>, setup: VirtqueueSetup, base: u16) {
        let index = setup.index;
        if let Some(queue) = self.outputs.device(id).event_queue(index) {
            if !queue.attach(memory, &setup, base) {
                let guest = &self.outputs.device(id).guest;
                let (name, rings) = (&guest.name, "are not in guest memory, or not aligned");
                limited!(self.violations, Warn, guest = guest.configured_name();
                    "guest {name}: the rings of event queue {index} {rings}");
            }
        } else if let Some(at) = self.position(id, index) {
            // The channel was bound before the guest was paused. Other virtqueues wait for their
            // driver to bind them.
            if self.channels[at].channel.resume(memory, setup, base) {
                self.channels[at].watch(&self.epoll, true);
            }
        }
    }

    /// Stops a virtqueue, for the front-end.
    ///
    /// Returns the index at which it may continue, if the device has used it.
    pub fn stop_queue(&mut self, id: DeviceId, index: u16) -> Option<u16> {
        if let Some(queue) = self.outputs.device(id).event_queue(index) {
            return queue.detach();
        }
        let at = self.position(id, index)?;
        self.channels[at].watch(&self.epoll, false);
        Some(self.channels[at].channel.stop())
    }

    /// Sets the eventfd by which a queue interrupts its driver. The front-end has changed it.
    pub fn set_queue_call(&mut self, id: DeviceId, index: u16, call: Option<Arc<Call>>) {
        if let Some(queue) = self.outputs.device(id).event_queue(index) {
            queue.set_call(call);
        }
    }

    pub(super) fn position(&self, device: DeviceId, index: u16) -> Option<usize> {
        self.channels.iter().position(|b| b.device == device && b.channel.index() == index)
    }

    /// Returns the number of bound channels.
    pub fn num_channels(&self, device: DeviceId) -> u32 {
        self.channels.iter().filter(|b| b.device == device).count() as u32
    }

    /// Adds a guest, with a device and a port of the switch. They wait for its front-ends.
    pub fn add_guest(&mut self, guest: GuestConfig, limits: DeviceLimits) -> (DeviceId, usize) {
        let port = self.net.add(&guest.name, Member::of(&guest), limits.guest.flood_rate);
        (self.add_function(guest, limits, port), port)
    }

    /// Changes the quality of service of a guest's RDMA function and of its port of the switch.
    ///
    /// It holds from the next turn on, whatever the guest does meanwhile. A guest with two RDMA
    /// functions has it for both, so each is named in a call of its own.
    pub fn set_qos(&mut self, id: DeviceId, port: usize, qos: Qos) {
        let now = self.now();
        self.outputs.device(id).guest.set_qos(&qos);
        let is_there = "the guest has a device, and its weight is checked";
        self.engine.set_weight(id, qos.weight.get()).expect(is_there);
        self.engine.set_rates(now, id, &qos.rates()).expect(is_there);
        self.engine.set_marks(id, qos.marks()).expect(is_there);
        self.streams.set_weight(id, qos.weight.get());
        self.channel_turns.of(id).weight = qos.weight.get();
        self.net.set_qos(port, &qos);
    }

    /// Adds the device of an RDMA function, the first or second of its guest.
    ///
    /// `port` is the guest's port of the switch.
    pub fn add_function(&mut self, guest: GuestConfig, limits: DeviceLimits, port: usize) -> DeviceId {
        self.engine.set_request_memory(limits.guest.all_request_memory);
        let id = self.engine.add_device(limits::of_engine(&limits.guest, self.port.mtu));
        self.engine.set_mac(id, guest.mac).expect("the device was added just now");
        if guest.transport == Transport::Iwarp {
            // Its streams work whether there is an uplink or not.
            self.has_streams = true;
            self.engine.set_link(true);
            if guest.has_own_tcp() {
                let mtu = self.link().map_or(USUAL_MTU, |(_, mtu)| mtu);
                self.streams.user_tcp.add((id, port), &guest, &limits.guest, limits.tcp_keepalive, mtu);
                self.net.set_tcp(port);
                self.streams.has_local_way = !limits.tcp_between_guests;
            }
        }
        let device = Device::new(id, guest, limits);
        if let Some(packet_port) = &mut self.packet_port {
            packet_port.add(id, device.pin_gate.clone());
        }
        let qos = device.guest.qos();
        self.outputs.add(device);
        self.set_qos(id, port, qos);
        id
    }

    /// Tells the driver of a device that its port is down, and that the device is lost.
    pub fn announce_loss(&mut self, id: DeviceId) {
        for event in [AsyncEvent::port(false), AsyncEvent::device_lost()] {
            self.outputs.async_event(id, event);
        }
        let now = self.now();
        self.outputs.flush(now);
    }

    /// Removes the device of an RDMA function whose front-end is gone.
    pub fn remove_function(&mut self, id: DeviceId) {
        self.detach_device(id);
        self.streams.remove(id);
        self.outputs.remove(id);
        self.engine.remove_device(id);
    }

    /// Removes a guest's port of the switch, after its devices. Its front-end is gone.
    pub fn remove_port(&mut self, port: usize) {
        self.net.remove(port);
    }

    /// Starts a device, because its control queue runs. If the driver is `fresh`, the device is
    /// reset.
    pub fn start_device(&mut self, id: DeviceId, fresh: bool, connection: Option<Arc<UnixStream>>) {
        self.outputs.device(id).connected(connection);
        if fresh {
            self.reset_device(id);
        }
        self.engine.set_suspended(id, false);
        self.suspend_streams(id, false);
    }

    /// Suspends a device, because its control queue stopped.
    ///
    /// The guest is paused or about to be reset, and its memory must not change. Its peers see a
    /// guest that does not answer.
    pub fn suspend_device(&mut self, id: DeviceId) {
        self.engine.set_suspended(id, true);
        self.outputs.take_loans_back(id);
        self.suspend_streams(id, true);
    }

    /// Detaches a device, because its front-end is gone.
    pub fn detach_device(&mut self, id: DeviceId) {
        self.reset_device(id);
        self.outputs.device(id).detach();
        // Frames that wait for a link that takes none would keep all of the guest's memory mapped.
        if let Some(uplink) = &mut self.uplink {
            uplink.reclaim();
        }
    }

    /// Destroys all objects of a device, because its guest was reset or is gone.
    pub fn reset_device(&mut self, id: DeviceId) {
        let (gone, kept) = std::mem::take(&mut self.channels).into_iter().partition(|b| b.device == id);
        self.channels = kept;
        let mut gone: Vec<BoundChannel> = gone;
        gone.iter_mut().for_each(|bound| bound.watch(&self.epoll, false));
        self.barriers.retain(|barrier| barrier.device != id);
        self.failing.retain(|(device, _)| *device != id);
        self.outputs.take_loans_back(id);
        // Dropping many objects takes long, so another thread does it.
        self.streams.forget(id);
        reap((self.engine.reset_device(id), self.outputs.device(id).reset()));
        self.settle_gids(id);
    }

    /// Starts a virtqueue of an Ethernet function, for its front-end.
    ///
    /// `features` are those that its driver accepted.
    pub fn start_net_queue(
        &mut self,
        guest: usize,
        memory: &Arc<GuestMemory>,
        setup: VirtqueueSetup,
        base: u16,
        features: u64,
    ) {
        let token = (guest as u64) << 32 | NET;
        self.net.start(guest, memory, (setup, base, features), &self.epoll, token);
    }

    /// Stops a virtqueue of an Ethernet function, for its front-end.
    ///
    /// Returns the index at which it may continue, if it ran.
    pub fn stop_net_queue(&mut self, guest: usize, index: u16) -> Option<u16> {
        self.net.stop(guest, index, &self.epoll)
    }

    /// Returns how many objects of each kind a device has.
    pub fn counts(&mut self, id: DeviceId) -> ObjectCounts {
        let (reorder_packets, reorder_bytes) = self.engine.held_early(id);
        let engine = self.engine.counts(id);
        ObjectCounts {
            channels: self.num_channels(id),
            pds: engine.pds,
            mrs: engine.mrs,
            mws: engine.mws,
            qps: engine.qps,
            srqs: engine.srqs,
            xrcds: engine.xrcds,
            gids: engine.gids,
            mcast_attached: engine.mcast_attached,
            connections: self.streams.count(id),
            pending_requests: engine.pending_sends + engine.pending_receives,
            reorder_packets,
            reorder_bytes: reorder_bytes + self.engine.held_responses(id),
            ..self.outputs.device(id).counts()
        }
    }
}
