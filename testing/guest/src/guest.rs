//! A guest: its VMM, its memory and its kernel's driver.

use crate::control::ControlQueue;
use crate::events::EventReceiver;
use crate::front_end::{EVENT_IDX, FrontEnd, Queue, VERSION_1};
use crate::memory::Memory;
use crate::ring::Ring;
use anyhow::Result;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use vhost::vhost_user::message::VhostUserVirtioFeatures;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vrdma_abi::config::{Config, queue};

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Regions of memory: guest-physical address and length.
    pub memory: Vec<(u64, u64)>,
    /// Whether to use huge pages, if enough of them are free.
    pub huge_pages: bool,
    /// Whether VIRTIO_F_EVENT_IDX is negotiated.
    pub event_idx: bool,
    /// Entries of the control queue.
    pub control_size: u16,
    /// Entries of each event queue.
    pub event_size: u16,
    /// Entries of each channel.
    pub channel_size: u16,
    /// Last byte of the guest's address 10.0.0.x, which is its GID.
    pub host: u8,
    /// VLAN in which the guest has that address.
    pub vlan: Option<u16>,
    /// The TCP implementation that carries the guests' connections.
    pub tcp: GuestTcp,
}

/// The TCP implementation that carries the guests' connections.
///
/// It decides the guests' addresses and the next hop of their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestTcp {
    /// The TCP of the host's kernel.
    #[default]
    Kernel,
    /// The daemon's own TCP. Guest i has address 10.0.0.(i+1) and MAC address 52:54:00:00:00:(i+1).
    Own,
}

impl Default for GuestOptions {
    fn default() -> Self {
        GuestOptions {
            // As in QEMU's machines: some memory below 4 GiB, a gap, the rest above.
            memory: vec![(0x1000, 32 << 20), (1 << 32, 96 << 20)],
            huge_pages: false,
            event_idx: true,
            control_size: 64,
            event_size: 64,
            channel_size: 256,
            host: 1,
            vlan: None,
            tcp: GuestTcp::default(),
        }
    }
}

impl GuestOptions {
    /// Makes the guest's memory.
    pub(crate) fn make_memory(&self) -> Result<Arc<Memory>> {
        let huge = self.huge_pages.then(|| Memory::huge(&self.memory).ok()).flatten();
        Ok(huge.map_or_else(|| Memory::new(&self.memory), Ok)?)
    }

    /// Makes `num` clear virtqueues.
    pub(crate) fn make_queues(&self, memory: &Arc<Memory>, config: &Config, num: u16) -> Result<Vec<Queue>> {
        let first_channel = queue::FIRST_COMP_EVENTS + config.num_comp_vectors.get();
        let make = |index| {
            let size = match index {
                queue::CONTROL => self.control_size,
                _ if index < first_channel => self.event_size,
                _ => self.channel_size,
            };
            let eventfd =
                || Ok::<_, std::io::Error>(Arc::new(EventFd::new(EFD_NONBLOCK | libc::EFD_CLOEXEC)?));
            Ok(Queue { ring: Ring::new(memory, size), kick: eventfd()?, call: eventfd()? })
        };
        (0..num).map(make).collect()
    }

    /// Returns the feature bits that driver and VMM accept.
    pub(crate) fn driver_features(&self) -> u64 {
        let event_idx = if self.event_idx { EVENT_IDX } else { 0 };
        event_idx | VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }
}

/// A guest that is connected to the daemon. Several threads can use it at once.
#[derive(Debug)]
pub struct Guest {
    /// The guest's memory.
    pub memory: Arc<Memory>,
    /// The options it was created with.
    pub options: GuestOptions,
    /// The device's configuration.
    pub config: Config,
    /// All virtqueues.
    pub queues: Vec<Queue>,
    front_end: Mutex<FrontEnd>,
    control: Mutex<ControlQueue>,
    /// The queue of asynchronous events, then one queue for each completion vector.
    events: Vec<Mutex<EventReceiver>>,
    free_channels: Mutex<Vec<u16>>,
    /// The device's capabilities (`device_cap`), cached after the first query.
    pub(crate) functions: OnceLock<u64>,
}

impl Guest {
    /// Connects to the daemon's socket and starts the driver.
    ///
    /// # Errors
    /// The daemon is not there or refuses something, or a resource of the system is exhausted.
    pub fn connect(socket: &Path, options: GuestOptions) -> Result<Arc<Guest>> {
        let memory = options.make_memory()?;
        let (mut front_end, config) = FrontEnd::connect(socket, &memory, options.event_idx)?;
        let queues = options.make_queues(&memory, &config, front_end.num_queues)?;
        for (index, queue) in queues.iter().enumerate() {
            front_end.start(index as u16, queue, 0)?;
        }
        Ok(Guest::of(front_end, memory, options, config, queues))
    }

    /// Starts the driver over a front-end that has started the virtqueues.
    pub(crate) fn of(
        front_end: FrontEnd,
        memory: Arc<Memory>,
        options: GuestOptions,
        config: Config,
        queues: Vec<Queue>,
    ) -> Arc<Guest> {
        let control = ControlQueue::new(&queues[0], &memory, options.event_idx);
        let first_channel = queue::FIRST_COMP_EVENTS + config.num_comp_vectors.get();
        let events = queues[1..usize::from(first_channel)].iter();
        let events: Vec<_> =
            events.map(|queue| EventReceiver::new(queue, &memory, options.event_idx)).collect();
        events.iter().for_each(EventReceiver::kick);
        let guest = Guest {
            memory,
            options,
            config,
            front_end: Mutex::new(front_end),
            control: Mutex::new(control),
            events: events.into_iter().map(Mutex::new).collect(),
            free_channels: Mutex::new(Vec::new()),
            functions: OnceLock::new(),
            queues,
        };
        guest.refill_channels();
        Arc::new(guest)
    }

    /// Locks the VMM.
    pub fn front_end(&self) -> MutexGuard<'_, FrontEnd> {
        self.front_end.lock().expect("no panic with it")
    }

    /// Locks the control queue.
    pub fn control(&self) -> MutexGuard<'_, ControlQueue> {
        self.control.lock().expect("no panic with it")
    }

    /// Locks the queue of asynchronous events.
    pub fn async_events(&self) -> MutexGuard<'_, EventReceiver> {
        self.events[0].lock().expect("no panic with it")
    }

    /// Locks the queue of completion events of a vector.
    pub fn comp_events(&self, vector: u16) -> MutexGuard<'_, EventReceiver> {
        self.events[1 + usize::from(vector)].lock().expect("no panic with it")
    }

    /// Returns the virtqueue number of the first channel, which is the kernel's.
    pub fn first_channel(&self) -> u16 {
        queue::FIRST_COMP_EVENTS + self.config.num_comp_vectors.get()
    }

    /// Takes a channel from the pool, if one is left.
    pub fn take_channel(&self) -> Option<u16> {
        self.free_channels.lock().expect("no panic with it").pop()
    }

    /// Returns a channel to the pool.
    pub fn return_channel(&self, queue: u16) {
        self.free_channels.lock().expect("no panic with it").push(queue);
    }

    fn refill_channels(&self) {
        let all = (self.first_channel() + 1..self.queues.len() as u16).rev().collect();
        *self.free_channels.lock().expect("no panic with it") = all;
    }

    /// Returns the address that [`Guest::set_gid`] registers: ::ffff:10.0.0.x.
    pub fn gid(&self) -> [u8; 16] {
        gid(self.options.host)
    }

    /// Pauses the guest as a VMM does: stops all virtqueues.
    ///
    /// Returns the index at which each virtqueue may continue.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn pause(&self) -> Result<Vec<u16>> {
        let mut front_end = self.front_end();
        (0..self.queues.len() as u16).map(|index| front_end.stop(index)).collect()
    }

    /// Resumes a paused guest.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn resume(&self, bases: &[u16]) -> Result<()> {
        let mut front_end = self.front_end();
        for (index, (queue, base)) in self.queues.iter().zip(bases).enumerate() {
            front_end.start(index as u16, queue, *base)?;
        }
        Ok(())
    }

    /// Resets the guest: stops all virtqueues, clears them and starts them again at 0.
    ///
    /// Existing contexts and objects become invalid.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn reset(&self) -> Result<()> {
        self.pause()?;
        self.restart()
    }

    /// Starts the driver anew: clears all virtqueues and starts them at 0.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn restart(&self) -> Result<()> {
        self.forget_queues();
        self.fill_events();
        self.resume(&vec![0; self.queues.len()])
    }

    /// Clears all virtqueues. The driver's ends of those with buffers of its own begin anew.
    pub(crate) fn forget_queues(&self) {
        self.queues.iter().for_each(|queue| queue.ring.clear());
        *self.control() = ControlQueue::new(&self.queues[0], &self.memory, self.options.event_idx);
        self.refill_channels();
    }

    /// Gives the device buffers for events, of queues that are clear.
    pub(crate) fn fill_events(&self) {
        for (receiver, queue) in self.events.iter().zip(&self.queues[1..]) {
            let fresh = EventReceiver::new(queue, &self.memory, self.options.event_idx);
            fresh.kick();
            *receiver.lock().expect("no panic with it") = fresh;
        }
    }
}

/// Returns the GID ::ffff:10.0.0.`host`.
pub fn gid(host: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host]
}
