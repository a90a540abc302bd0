//! One guest's RDMA function: its objects, and the operations of its driver on them.

pub mod ah;
pub mod broken;
mod channel;
pub mod clock;
mod context;
pub mod counters;
mod cq;
pub mod failures;
pub mod latency;
pub mod moderation;
mod mr;
pub mod objects;
pub mod outputs;
mod pd;
pub mod peaks;
mod qp;
pub mod queues;
mod quota;
mod srq;
mod table;

use crate::config::GuestConfig;
use crate::memory::{GuestMemory, PinGate};
use crate::queue::event::EventQueue;
use crate::ratelimit::RateLimit;
use ah::AhTable;
use counters::{DeviceCounters, ObjectCounts};
use failures::Failures;
use latency::Latencies;
use objects::{Cq, UserContext};
use peaks::RecentPeaks;
use queues::Events;
use quota::Quota;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use table::ObjectTable;
use vrdma_transport::{DeviceId, Error, OwnerId};

pub use mr::{NewMemory, NewRegion};
pub use quota::DeviceLimits;

/// The result of a command. A command that is refused has changed nothing.
pub type Result<T> = std::result::Result<T, Error>;

/// The worker's state of a guest's device, except for its QPs and regions. The engine has those.
#[derive(Debug)]
pub struct Device {
    /// The host's configuration of the guest.
    pub guest: GuestConfig,
    /// The device's number in the engine.
    pub id: DeviceId,
    memory: Arc<GuestMemory>,
    limits: DeviceLimits,
    quota: Quota,
    contexts: ObjectTable<UserContext>,
    cqs: ObjectTable<Cq>,
    ah_table: Option<AhTable>,
    comp_events: Box<[EventQueue]>,
    async_events: EventQueue,
    /// The connection of its front-end, which is shut down if the device ends.
    connection: Option<Arc<UnixStream>>,
    /// That connection, once the device is about to end.
    ended: Option<Arc<UnixStream>>,
    /// Controls which of its guest's memory other workers may copy.
    pub pin_gate: Arc<PinGate>,
    /// Counters of events.
    pub counters: DeviceCounters,
    /// How long some of its requests took.
    pub latencies: Latencies,
    /// Its largest numbers of the last minute.
    pub peaks: RecentPeaks,
    /// The last errors of its QPs. They stay when the driver is gone: numbers are not soon reused.
    pub failures: Failures,
    /// Limits messages about QPs that failed.
    failure_messages: RateLimit,
}

impl Device {
    /// Creates a device in its state before any command of the driver.
    pub fn new(id: DeviceId, guest: GuestConfig, limits: DeviceLimits) -> Device {
        let mut device = Device {
            guest,
            id,
            memory: Default::default(),
            contexts: ObjectTable::new(limits.contexts()),
            cqs: ObjectTable::new(limits.guest.cqs),
            ah_table: None,
            comp_events: (0..limits.comp_vectors).map(|_| EventQueue::default()).collect(),
            async_events: EventQueue::default(),
            connection: None,
            ended: None,
            quota: Quota::default(),
            pin_gate: Arc::default(),
            counters: DeviceCounters::default(),
            latencies: Latencies::new(id),
            peaks: RecentPeaks::default(),
            failures: Failures::default(),
            failure_messages: RateLimit::default(),
            limits,
        };
        drop(device.reset());
        device
    }

    /// Removes all objects. Returns those that may be many, for the caller to drop.
    ///
    /// The event queues stay attached, because only the front-end stops them.
    pub fn reset(&mut self) -> impl Send + use<> {
        self.contexts = ObjectTable::new(self.limits.contexts());
        let kernel = self.contexts.insert(UserContext::default());
        debug_assert_eq!(kernel, Some(OwnerId::KERNEL.0));
        let cqs = std::mem::replace(&mut self.cqs, ObjectTable::new(self.limits.guest.cqs));
        self.ah_table = None;
        self.quota = Quota::default();
        for queue in self.comp_events.iter_mut().chain([&mut self.async_events]) {
            queue.clear();
        }
        cqs
    }

    /// Handles that the front-end is gone, and with it the guest's memory and virtqueues.
    pub fn detach(&mut self) {
        self.memory = Arc::default();
        self.connection = None;
        for queue in self.event_queues() {
            queue.detach();
        }
    }

    /// Returns its event queues.
    fn event_queues(&mut self) -> impl Iterator<Item = &mut EventQueue> {
        self.comp_events.iter_mut().chain([&mut self.async_events])
    }

    /// Records the connection of its front-end.
    pub fn connected(&mut self, connection: Option<Arc<UnixStream>>) {
        self.connection = connection;
    }

    /// Takes the connection of its front-end out of the device.
    pub fn take_connection(&mut self) -> Option<Arc<UnixStream>> {
        self.connection.take()
    }

    /// Records that the device is about to end, with this connection.
    fn ended(&mut self, connection: Arc<UnixStream>) {
        self.ended = Some(connection);
    }

    /// Takes out the front-end's connection that ends with the device.
    pub fn take_ended(&mut self) -> Option<Arc<UnixStream>> {
        let (connection, ended) = (self.connection.take(), self.ended.take());
        ended.or(connection)
    }

    /// Switches to a new memory table, except for its CQs.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) {
        self.memory = memory.clone();
        for queue in self.comp_events.iter_mut().chain([&mut self.async_events]) {
            queue.remap(memory);
        }
        if let Some(table) = &mut self.ah_table {
            table.remap(memory);
        }
    }

    /// Returns the event queue with this virtqueue number.
    pub fn event_queue(&mut self, index: u16) -> Option<&mut EventQueue> {
        match Events::of_queue(index)? {
            Events::Async => Some(&mut self.async_events),
            Events::Completion(vector) => self.comp_events.get_mut(usize::from(vector)),
        }
    }

    /// Returns its limits.
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// Returns the table of address handles.
    #[inline]
    pub fn ah_table(&self) -> Option<&AhTable> {
        self.ah_table.as_ref()
    }

    /// SET_AH_TABLE.
    ///
    /// # Errors
    /// `Busy`: there already is a table.
    pub fn set_ah_table(&mut self, table: AhTable) -> Result<()> {
        if self.ah_table.is_some() {
            return Err(Error::Busy);
        }
        self.ah_table = Some(table);
        Ok(())
    }

    /// Returns the numbers of its objects, except those that the engine and the worker count.
    pub fn counts(&self) -> ObjectCounts {
        ObjectCounts {
            contexts: self.contexts.len() - 1,
            cqs: self.cqs.len(),
            runs: self.quota.extents(),
            ahs: self.ah_table.as_ref().map_or(0, |table| table.in_use()),
            ..ObjectCounts::default()
        }
    }
}
