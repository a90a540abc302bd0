//! The RDMA function, as its front-end sets it up.
//!
//! The session's thread serves the control queue. The worker serves all other queues.

use crate::command::{self, Caller};
use crate::config::{Config, GuestConfig, GuestLimits};
use crate::device::queues::CONTROL;
use crate::memory::{Extents, Pins};
use crate::memory::{GuestMemory, Ledger};
use crate::port::Dma;
use crate::queue::{Call, Kick, VirtqueueSetup};
use crate::ratelimit::{RateLimit, limited};
use crate::tcp::KeepAlive;
use crate::translate::config_space::{self, config_space};
use crate::vhost::{Function, Served, Setup};
use crate::worker::{CommandError, Stopped, WorkerHandle};
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};
use vrdma_transport::DeviceId;
use vrdma_wire::num::Mtu;

/// A guest's RDMA function.
#[derive(Debug)]
pub struct RdmaFunction {
    worker: WorkerHandle,
    device: DeviceId,
    limits: GuestLimits,
    guest: GuestConfig,
    keep_alive: KeepAlive,
    num_queues: usize,
    config_space: [u8; config_space::SIZE],
    /// The control queue while it runs.
    control: Option<Queue>,
    /// Whether commands were answered since the driver's last interrupt.
    quiet: bool,
    /// Index at which the control queue stopped last.
    stopped_at: Option<u16>,
    violations: RateLimit,
    /// Account of pages that this process allocated in the guest's memory.
    ledger: Arc<Ledger>,
    /// The device that reads payload from the guest's memory by DMA.
    dma: Option<Dma>,
}

impl RdmaFunction {
    /// Returns the function of a device of the worker.
    pub fn new(
        worker: WorkerHandle,
        device: DeviceId,
        config: &Config,
        guest: &GuestConfig,
        max_mtu: Mtu,
    ) -> RdmaFunction {
        let limits = config.limits_of(guest);
        RdmaFunction {
            worker,
            device,
            guest: guest.clone(),
            keep_alive: KeepAlive::after(config.tcp_keepalive),
            num_queues: config.num_queues() as usize,
            config_space: config_space(config, guest, max_mtu),
            control: None,
            quiet: false,
            stopped_at: None,
            violations: RateLimit::default(),
            ledger: Arc::new(Ledger::new(limits.pages_bytes(), limits.all_pages_bytes())),
            limits,
            dma: None,
        }
    }

    /// Sets the device that is to be told of the guest's memory.
    pub fn with_dma(self, dma: Option<Dma>) -> RdmaFunction {
        RdmaFunction { dma, ..self }
    }
}

impl Function for RdmaFunction {
    const NAME: &'static str = "RDMA";
    const FEATURES: u64 = 0;
    const PROTOCOL: VhostUserProtocolFeatures =
        VhostUserProtocolFeatures::MQ.union(VhostUserProtocolFeatures::CONFIG);

    fn num_queues(&self) -> usize {
        self.num_queues
    }

    fn config_space(&self) -> &[u8] {
        &self.config_space
    }

    fn memory_max(&self) -> u64 {
        self.limits.memory_bytes()
    }

    fn ledger(&self) -> Arc<Ledger> {
        self.ledger.clone()
    }

    fn dma(&self) -> Option<Dma> {
        self.dma.clone()
    }

    fn start(&mut self, setup: VirtqueueSetup, base: u16, front: &Setup) -> Result<(), Stopped> {
        let (device, memory) = (self.device, front.memory.clone());
        if setup.index != CONTROL {
            return self.worker.call(move |worker| worker.start_queue(device, &memory, setup, base));
        }
        self.control = setup.queue(base, &memory);
        if self.control.is_none() {
            let (name, rings) = (&self.guest.name, "rings are not in guest memory, or not aligned");
            limited!(self.violations, Warn, guest = self.guest.configured_name();
                "guest {name}: the control queue's {rings}");
        }
        // A driver begins at index 0. A front-end that continues after a pause begins where the
        // queue stopped.
        let goes_on = self.stopped_at == Some(0) && wrapped(&setup, &memory);
        let fresh = base == 0 && !goes_on;
        self.worker.call(move |worker| worker.start_device(device, fresh, memory.connection()))
    }

    fn stop(&mut self, index: u16) -> Result<Option<u16>, Stopped> {
        let device = self.device;
        if index != CONTROL {
            return self.worker.call(move |worker| worker.stop_queue(device, index));
        }
        let next = self.control.take().map(|queue| queue.next_avail());
        self.stopped_at = next;
        self.worker.call(move |worker| worker.suspend_device(device))?;
        self.worker.wait_for_device(device)?;
        Ok(next)
    }

    fn set_call(&mut self, index: u16, call: Option<Arc<Call>>) -> Result<(), Stopped> {
        let device = self.device;
        self.worker.call(move |worker| worker.set_queue_call(device, index, call))
    }

    fn remap(&mut self, memory: &Arc<GuestMemory>) -> Result<(), Stopped> {
        remap(&self.worker, self.device, memory)
    }

    fn reset(&mut self) -> Result<(), Stopped> {
        let device = self.device;
        self.worker.call(move |worker| worker.reset_device(device))
    }

    fn detach(&mut self) {
        (self.control, self.stopped_at) = (None, None);
        let device = self.device;
        // If the worker has stopped, there is nothing to reset.
        let _ = self.worker.call(move |worker| worker.detach_device(device));
    }

    fn panicked(&mut self) {
        let device = self.device;
        self.worker.tell(move |worker| worker.outputs.device(device).counters.panics += 1);
    }

    fn kick<'a>(&self, front: &'a Setup) -> Option<&'a Arc<Kick>> {
        front.kick(CONTROL).filter(|_| self.control.is_some())
    }

    fn serve(&mut self, front: &Setup) -> Served {
        let Some(queue) = &mut self.control else { return Served::Nothing };
        let caller = Caller {
            memory: &front.memory,
            limits: &self.limits,
            guest: &self.guest,
            keep_alive: &self.keep_alive,
            virtqueue: &|index| front.virtqueue(index),
        };
        let (worker, device) = (&self.worker, self.device);
        let execute = |job| {
            #[cfg(feature = "hooks")]
            crate::hooks::step("command");
            // The worker has stopped if it does not answer.
            worker.execute(device, job).unwrap_or(Err(CommandError::Internal))
        };
        let (used, quiet) = (queue.next_used(), &mut self.quiet);
        let result = command::serve(queue, &caller, execute).and_then(|notify| {
            // A driver that requested no interrupt for its replies gets one when there are no more
            // commands. Its request for an interrupt may have become visible too late.
            let served = queue.next_used() != used;
            let late = !served && std::mem::take(quiet);
            *quiet |= served && !notify;
            if let Some(call) = front.call(CONTROL).filter(|_| notify || late) {
                call.ring();
            }
            Ok(match (queue.enable_notification(caller.memory.mmap())?, served) {
                (true, _) => Served::More,
                (false, true) => Served::Some,
                (false, false) => Served::Nothing,
            })
        });
        self.tell_of_refused();
        result.unwrap_or_else(|error| {
            let name = &self.guest.name;
            limited!(self.violations, Warn, guest = self.guest.configured_name();
                "guest {name}: the control queue is broken: {error}");
            self.control = None;
            Served::Nothing
        })
    }
}

impl RdmaFunction {
    /// Counts and logs registrations that were refused for the pages that they would have needed.
    fn tell_of_refused(&mut self) {
        let refused = self.ledger.take_refused();
        if refused != 0 {
            let (device, name) = (self.device, &self.guest.name);
            limited!(self.violations, Warn, guest = self.guest.configured_name();
                "guest {name}: memory that its VMM never touched is not registered: the daemon would have made too many pages of it (limits.pages_max, limits.all_pages_max); have the VMM allocate its guest's memory (QEMU: prealloc=on)");
            self.worker.tell(move |worker| worker.outputs.device(device).counters.refused_pages += refused);
        }
    }
}

/// Whether the control queue has been used since its driver began.
///
/// If so, an index of 0 means that the index wrapped. A driver that begins has cleared the rings,
/// and each reply has a length.
fn wrapped(setup: &VirtqueueSetup, memory: &GuestMemory) -> bool {
    const LEN: u64 = 4;
    let last = u64::from(setup.size - 1);
    let len = setup.used.checked_add(4 + 8 * last + LEN);
    len.and_then(|at| memory.mmap().read_obj::<u32>(GuestAddress(at)).ok()).is_some_and(|len| len != 0)
}

/// Number of regions or CQs in one message to the worker.
const SLICE: usize = 256;

/// Moves a device to a new memory table.
///
/// # Errors
/// The worker has stopped.
pub fn remap(worker: &WorkerHandle, device: DeviceId, memory: &Arc<GuestMemory>) -> Result<(), Stopped> {
    let mut budget = memory.len();
    let mut pinned = Pins::default();
    let inventory = worker.call(move |worker| worker.inventory(device))?;
    for start in (0..inventory.regions).step_by(SLICE) {
        let places = worker.call(move |worker| worker.region_places(device, start..start + SLICE))?;
        let translate = |(at, extents): (usize, Extents)| {
            // Pages beyond the limit are allocated when they are used, if they are.
            if extents.populate(memory, &mut budget).is_err() {
                memory.refuse();
            }
            (at, extents.translate(memory))
        };
        let new: Vec<_> = places.into_iter().map(translate).collect();
        let memory = memory.clone();
        // Drop the old translations in this thread: freeing much memory would delay the worker.
        for (_, pins) in worker.call(move |worker| worker.install_regions(device, &memory, new))? {
            pinned.extend(pins);
        }
    }
    for start in (0..inventory.cqs).step_by(SLICE) {
        let layouts = worker.call(move |worker| worker.cq_layouts(device, start..start + SLICE as u32))?;
        let new: Vec<_> = layouts.into_iter().map(|(cq, layout)| (cq, layout.map(memory))).collect();
        drop(worker.call(move |worker| worker.install_cqs(device, new))?);
    }
    for channel in inventory.channels {
        let memory = memory.clone();
        worker.call(move |worker| worker.remap_channel(device, channel, &memory))?;
    }
    let memory = memory.clone();
    worker.call(move |worker| worker.remap_device(device, &memory))?;
    worker.wait_for(pinned)
}
