//! A guest: its VMM, its memory and its kernel's driver.

use crate::control::ControlQueue;
use crate::events::EventReceiver;
use crate::front_end::{FrontEnd, Queue};
use crate::memory::Memory;
use crate::ring::Ring;
use anyhow::Result;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vrdma_abi::config::{Config, queue};
use vrdma_abi::control::device_cap;

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Regions of memory: guest-physical address and length.
    pub memory: Vec<(u64, u64)>,
    /// In huge pages, if there are enough of them free.
    pub huge_pages: bool,
    /// Whether VIRTIO_F_EVENT_IDX is negotiated.
    pub event_idx: bool,
    /// Entries of the control queue.
    pub control_size: u16,
    /// Entries of each event queue.
    pub event_size: u16,
    /// Entries of each channel.
    pub channel_size: u16,
    /// Last byte of its address 10.0.0.x, which is its GID.
    pub host: u8,
    /// The VLAN in which it has that address.
    pub vlan: Option<u16>,
    /// Whose TCP the connections of guests go over.
    pub tcp: GuestTcp,
}

/// Whose TCP the connections of guests go over: from which addresses, and to whom frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestTcp {
    /// The host's.
    #[default]
    Kernel,
    /// The daemon's own: guest i has 10.0.0.(i+1), and the MAC address 52:54:00:00:00:(i+1).
    Own,
}

impl Default for GuestOptions {
    fn default() -> Self {
        GuestOptions {
            // As in QEMU's machines: some below 4 GiB, a hole, the rest above.
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

/// A guest that is connected to the daemon. All of it can be used from several threads.
#[derive(Debug)]
pub struct Guest {
    /// Its memory.
    pub memory: Arc<Memory>,
    /// How it was made.
    pub options: GuestOptions,
    /// What the device says of itself.
    pub config: Config,
    /// All virtqueues.
    pub queues: Vec<Queue>,
    front_end: Mutex<FrontEnd>,
    control: Mutex<ControlQueue>,
    /// Async events first, then a queue for each completion vector.
    events: Vec<Mutex<EventReceiver>>,
    free_channels: Mutex<Vec<u16>>,
    /// The device's functions, once it was asked.
    functions: OnceLock<u64>,
}

impl Guest {
    /// Connects to the daemon's socket and starts the driver.
    ///
    /// # Errors
    /// The daemon is not there, or refuses something; the system is out of something.
    pub fn connect(socket: &Path, options: GuestOptions) -> Result<Arc<Guest>> {
        let huge = options.huge_pages.then(|| Memory::huge(&options.memory).ok()).flatten();
        let memory = huge.map_or_else(|| Memory::new(&options.memory), Ok)?;
        let (mut front_end, config) = FrontEnd::connect(socket, &memory, options.event_idx)?;
        let first_channel = queue::FIRST_COMP_EVENTS + config.num_comp_vectors.get();
        let make = |index| {
            let size = match index {
                queue::CONTROL => options.control_size,
                _ if index < first_channel => options.event_size,
                _ => options.channel_size,
            };
            let eventfd =
                || Ok::<_, std::io::Error>(Arc::new(EventFd::new(EFD_NONBLOCK | libc::EFD_CLOEXEC)?));
            Ok(Queue { ring: Ring::new(&memory, size), kick: eventfd()?, call: eventfd()? })
        };
        let queues = (0..front_end.num_queues).map(make).collect::<Result<Vec<Queue>>>()?;
        let control = ControlQueue::new(&queues[0], &memory, options.event_idx);
        let events = queues[1..usize::from(first_channel)].iter();
        let events: Vec<_> =
            events.map(|queue| EventReceiver::new(queue, &memory, options.event_idx)).collect();
        for (index, queue) in queues.iter().enumerate() {
            front_end.start(index as u16, queue, 0)?;
        }
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
        Ok(Arc::new(guest))
    }

    /// The VMM.
    pub fn front_end(&self) -> MutexGuard<'_, FrontEnd> {
        self.front_end.lock().expect("no panic with it")
    }

    /// The control queue.
    pub fn control(&self) -> MutexGuard<'_, ControlQueue> {
        self.control.lock().expect("no panic with it")
    }

    /// The queue of async events.
    pub fn async_events(&self) -> MutexGuard<'_, EventReceiver> {
        self.events[0].lock().expect("no panic with it")
    }

    /// The queue of completion events of a vector.
    pub fn comp_events(&self, vector: u16) -> MutexGuard<'_, EventReceiver> {
        self.events[1 + usize::from(vector)].lock().expect("no panic with it")
    }

    /// Virtqueue number of the first channel, the kernel's.
    pub fn first_channel(&self) -> u16 {
        queue::FIRST_COMP_EVENTS + self.config.num_comp_vectors.get()
    }

    /// Whether the device takes lists of requests.
    pub fn has_lists(&self) -> bool {
        let known = self.functions.get().copied();
        let functions = known.or_else(|| {
            let told = self.query_device_ex().ok()?.device_cap.get();
            Some(*self.functions.get_or_init(|| told))
        });
        functions.is_some_and(|functions| functions & device_cap::WQE_LIST != 0)
    }

    /// Takes a channel from the pool, if one is left.
    pub fn take_channel(&self) -> Option<u16> {
        self.free_channels.lock().expect("no panic with it").pop()
    }

    /// Gives a channel back to the pool.
    pub fn return_channel(&self, queue: u16) {
        self.free_channels.lock().expect("no panic with it").push(queue);
    }

    fn refill_channels(&self) {
        let all = (self.first_channel() + 1..self.queues.len() as u16).rev().collect();
        *self.free_channels.lock().expect("no panic with it") = all;
    }

    /// The address that [`Guest::set_gid`] registers: ::ffff:10.0.0.x.
    pub fn gid(&self) -> [u8; 16] {
        gid(self.options.host)
    }

    /// Registers its address as GID 0.
    pub fn set_gid(&self) {
        self.add_gid_in(self.options.vlan, 0, self.gid())
            .expect("the daemon lets the guest have its address");
    }

    /// Pauses the guest as a VMM does: stops all virtqueues; where they may go on.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn pause(&self) -> Result<Vec<u16>> {
        let mut front_end = self.front_end();
        (0..self.queues.len() as u16).map(|index| front_end.stop(index)).collect()
    }

    /// Lets a paused guest go on.
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

    /// Resets the guest: all virtqueues stop, are cleared, and begin anew. Contexts and objects
    /// made before are void.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn reset(&self) -> Result<()> {
        self.pause()?;
        self.restart()
    }

    /// A driver that starts: clears all virtqueues and starts them at 0.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn restart(&self) -> Result<()> {
        self.queues.iter().for_each(|queue| queue.ring.clear());
        *self.control() = ControlQueue::new(&self.queues[0], &self.memory, self.options.event_idx);
        for (receiver, queue) in self.events.iter().zip(&self.queues[1..]) {
            let fresh = EventReceiver::new(queue, &self.memory, self.options.event_idx);
            *receiver.lock().expect("no panic with it") = fresh;
        }
        self.refill_channels();
        self.resume(&vec![0; self.queues.len()])
    }
}

/// The GID ::ffff:10.0.0.`host`.
pub fn gid(host: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host]
}
