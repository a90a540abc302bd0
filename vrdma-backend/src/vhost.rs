//! The vhost-user protocol: passes what the front-end (the VMM) sets up to a [`Function`].
//!
//! This is an adapter only. Messages come in one at a time, and each leaves the function in a
//! consistent state. The crate `vhost-user-backend` is not used. It keeps each virtqueue behind a
//! lock, reads rings itself, and its device has at most 64 of them.

mod messages;

use crate::memory::{Backlog, Extent, GuestMemory, Ledger, MapOptions};
use crate::port::Dma;
use crate::queue::{Call, Kick, Ringer, VirtqueueSetup, ring_lens};
use crate::worker::Stopped;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Error, Result};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// A virtio device of a guest's NIC. It defines what the front-end's settings mean.
///
/// The session's thread calls it. Each call leaves the device in a consistent state.
pub trait Function: Send + 'static {
    /// Name of the function in log messages.
    const NAME: &'static str;
    /// Feature bits offered in addition to those of all functions.
    const FEATURES: u64;
    /// Protocol features offered in addition to those of all functions.
    const PROTOCOL: VhostUserProtocolFeatures;

    /// Returns the number of virtqueues.
    fn num_queues(&self) -> usize;

    /// Returns the most bytes of guest memory that a front-end may have mapped.
    fn memory_max(&self) -> u64;

    /// Returns the account of pages that this process may allocate in its guest's memory.
    fn ledger(&self) -> Arc<Ledger> {
        Arc::default()
    }

    /// Returns the device that is to access the guest's memory by DMA.
    fn dma(&self) -> Option<Dma> {
        None
    }

    /// Returns the answer to `VHOST_USER_GET_QUEUE_NUM`.
    ///
    /// It is the number of virtqueues. For a network device it is the number of pairs of
    /// virtqueues.
    fn queue_num(&self) -> u64 {
        self.num_queues() as u64
    }

    /// Returns the configuration space. It is empty if the front-end has its own.
    fn config_space(&self) -> &[u8] {
        &[]
    }

    /// Starts to serve a virtqueue from index `base` on.
    ///
    /// # Errors
    /// The worker has stopped.
    fn start(&mut self, setup: VirtqueueSetup, base: u16, front: &Setup) -> std::result::Result<(), Stopped>;

    /// Stops serving a virtqueue.
    ///
    /// Returns the index at which it can continue, if the device has used the queue.
    ///
    /// # Errors
    /// The worker has stopped.
    fn stop(&mut self, index: u16) -> std::result::Result<Option<u16>, Stopped>;

    /// Replaces the driver's interrupt for a virtqueue that is served.
    ///
    /// # Errors
    /// The worker has stopped.
    fn set_call(&mut self, index: u16, call: Option<Arc<Call>>) -> std::result::Result<(), Stopped>;

    /// Changes to a new memory table.
    ///
    /// # Errors
    /// The worker has stopped.
    fn remap(&mut self, memory: &Arc<GuestMemory>) -> std::result::Result<(), Stopped>;

    /// Resets the device, as the front-end asked.
    ///
    /// # Errors
    /// The worker has stopped.
    fn reset(&mut self) -> std::result::Result<(), Stopped>;

    /// Ends the service, because the front-end is gone.
    fn detach(&mut self);

    /// Cleans up after a step of the session panicked. The front-end is gone.
    fn panicked(&mut self);

    /// Returns the kick of the virtqueue that the session's thread serves, if there is one and it
    /// runs.
    fn kick<'a>(&self, _front: &'a Setup) -> Option<&'a Arc<Kick>> {
        None
    }

    /// Serves the virtqueue that belongs to the session's thread.
    fn serve(&mut self, _front: &Setup) -> Served {
        Served::Nothing
    }
}

/// The result of serving a virtqueue once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There was nothing to do.
    Nothing,
    /// Some work was done, and no more is left for now.
    Some,
    /// There may be more to do at once.
    More,
}

/// The settings of a front-end.
#[derive(Debug)]
pub struct Setup {
    /// The guest's memory.
    pub memory: Arc<GuestMemory>,
    /// Feature bits that the driver accepted.
    pub features: u64,
    queues: Vec<Virtqueue>,
}

/// A guest's device, with its front-end's settings.
#[derive(Debug)]
pub struct FrontEnd<F> {
    function: F,
    setup: Setup,
    ringer: Ringer,
    /// Memory tables to be unmapped, of this front-end and of those before it.
    backlog: Arc<Backlog>,
    /// Eventfds in use or to be closed, of this front-end and of those before it.
    open: Arc<Backlog>,
}

#[derive(Debug, Default)]
struct Virtqueue {
    size: u16,
    desc: u64,
    avail: u64,
    used: u64,
    base: u16,
    kick: Option<Arc<Kick>>,
    call: Option<Arc<Call>>,
    /// Whether it is between SET_VRING_KICK and GET_VRING_BASE.
    started: bool,
    enabled: bool,
    /// Whether the device serves it.
    active: bool,
}

impl<F: Function> FrontEnd<F> {
    /// Returns a device that no front-end has set up yet.
    pub fn new(function: F, ringer: Ringer) -> FrontEnd<F> {
        let queues = (0..function.num_queues()).map(|_| Virtqueue::default()).collect();
        let setup = Setup { memory: Arc::default(), features: 0, queues };
        FrontEnd { function, setup, ringer, backlog: Arc::default(), open: Arc::default() }
    }

    /// Starts a front-end. `connection` is shut down if the front-end truncates its memory.
    pub fn connect(&mut self, connection: UnixStream) {
        let memory_max = self.function.memory_max();
        let (backlog, connection) = (self.backlog.clone(), Some(Arc::new(connection)));
        let options = MapOptions {
            backlog,
            memory_max,
            connection,
            dma: self.function.dma(),
            ledger: self.function.ledger(),
        };
        self.setup.memory = Arc::new(GuestMemory::empty(options));
    }

    /// Whether the front-end has truncated its memory.
    pub fn has_lost_memory(&self) -> bool {
        self.setup.memory.is_lost()
    }

    /// Returns the kick of the virtqueue that the session's thread serves.
    pub fn kick(&self) -> Option<&Arc<Kick>> {
        self.function.kick(&self.setup)
    }

    /// Serves the virtqueue that belongs to the session's thread.
    pub fn serve(&mut self) -> Served {
        #[cfg(feature = "hooks")]
        crate::hooks::step("queue");
        self.function.serve(&self.setup)
    }

    /// Resets everything to the state before a front-end came, because it is gone.
    pub fn disconnect(&mut self) {
        self.forget();
        self.setup.memory = Arc::default();
    }

    /// Resets everything after a step of the session panicked.
    pub fn panicked(&mut self) {
        self.disconnect();
        self.function.panicked();
    }

    /// Discards what the front-end has set up. The options of its memory stay for further settings.
    fn forget(&mut self) {
        self.function.detach();
        self.setup.memory = Arc::new(self.setup.memory.emptied());
        self.setup.features = 0;
        self.setup.queues.iter_mut().for_each(|queue| *queue = Virtqueue::default());
    }

    /// Whether the front-end has acknowledged VHOST_USER_F_PROTOCOL_FEATURES.
    pub fn has_protocol_features(&self) -> bool {
        self.setup.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
    }

    fn queue(&mut self, index: u32) -> Result<&mut Virtqueue> {
        let served = self.setup.queues.len();
        let why = || format!("queue {index}: {served} are served; the VMM's num_vqs, or `channels` here");
        self.setup.queues.get_mut(index as usize).ok_or_else(|| refused(why()))
    }

    fn num_queues(&self) -> u32 {
        self.setup.queues.len() as u32
    }

    /// Starts or stops serving a virtqueue, according to its settings.
    fn update(&mut self, index: u32) -> Result<()> {
        let protocol_features = self.has_protocol_features();
        let queue = self.queue(index)?;
        let wanted = queue.started && (queue.enabled || !protocol_features) && queue.size != 0;
        match (queue.active, wanted) {
            (false, true) => self.start(index as u16),
            (true, false) => self.stop(index as u16),
            _ => Ok(()),
        }
    }

    fn start(&mut self, index: u16) -> Result<()> {
        let queue = &mut self.setup.queues[usize::from(index)];
        queue.active = true;
        let base = queue.base;
        let Some(setup) = self.setup.virtqueue(index) else { return Ok(()) };
        let [desc, avail, used] = ring_lens(setup.size);
        let rings = [(setup.desc, desc), (setup.avail, avail), (setup.used, used)];
        // Pages beyond the limit are allocated when they are used, so the error is ignored.
        let _ = self.setup.memory.populate(&rings.map(|(gpa, len)| Extent { gpa, len }), &mut { u64::MAX });
        self.function.start(setup, base, &self.setup).map_err(stopped)
    }

    fn stop(&mut self, index: u16) -> Result<()> {
        let base = self.function.stop(index).map_err(stopped)?;
        let queue = &mut self.setup.queues[usize::from(index)];
        queue.base = base.unwrap_or(queue.base);
        queue.active = false;
        Ok(())
    }

    /// Returns a virtqueue to be set up.
    ///
    /// # Errors
    /// It runs. GET_VRING_BASE stops it.
    fn stopped_queue(&mut self, index: u32) -> Result<&mut Virtqueue> {
        let queue = self.queue(index)?;
        if queue.active {
            return Err(refused(format!("queue {index}: it runs; GET_VRING_BASE stops it")));
        }
        Ok(queue)
    }

    fn set_memory(&mut self, memory: GuestMemory) -> Result<()> {
        self.setup.memory = Arc::new(memory);
        self.function.remap(&self.setup.memory).map_err(stopped)
    }
}

fn stopped(_: Stopped) -> Error {
    Error::BackendInternalError
}

/// Returns the error that refuses a message. The session adds which message it was.
fn refused(why: String) -> Error {
    Error::ReqHandlerError(io::Error::new(io::ErrorKind::InvalidInput, why))
}

impl Setup {
    /// Returns the setup of a virtqueue; `None` if it is not active or does not exist.
    pub fn virtqueue(&self, index: u16) -> Option<VirtqueueSetup> {
        let queue = self.queues.get(usize::from(index)).filter(|queue| queue.active)?;
        Some(VirtqueueSetup {
            index,
            size: queue.size,
            desc: queue.desc,
            avail: queue.avail,
            used: queue.used,
            event_idx: self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0,
            kick: queue.kick.clone(),
            call: queue.call.clone(),
        })
    }

    /// Returns the kick of a virtqueue.
    pub fn kick(&self, index: u16) -> Option<&Arc<Kick>> {
        self.queues.get(usize::from(index))?.kick.as_ref()
    }

    /// Returns the interrupt of a virtqueue.
    pub fn call(&self, index: u16) -> Option<&Arc<Call>> {
        self.queues.get(usize::from(index))?.call.as_ref()
    }
}
