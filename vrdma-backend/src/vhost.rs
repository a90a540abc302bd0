//! The vhost-user protocol: what the front-end (the VMM) sets up, handed on to the [`Function`]
//! that it sets up.
//!
//! This is the adapter alone: messages come in one at a time, each leaves the function in a state
//! that makes sense. `vhost-user-backend` is not used: it keeps each virtqueue behind a lock and
//! reads rings by itself, and its device has at most 64 of them.

mod messages;

use crate::memory::{Backlog, GuestMemory, Ledger, MapOptions, Run};
use crate::port::Dma;
use crate::queue::{Call, Kick, Ringer, VirtqueueSetup, ring_lens};
use crate::worker::Stopped;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Error, Result};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// A virtio device of a guest's NIC: what its front-end sets up has a meaning here.
///
/// The session's thread calls it. Each call leaves the device in a state that makes sense.
pub trait Function: Send + 'static {
    /// What log messages call it.
    const NAME: &'static str;
    /// Feature bits on offer beside those that all functions have.
    const FEATURES: u64;
    /// Protocol features on offer beside those that all functions have.
    const PROTOCOL: VhostUserProtocolFeatures;

    /// Number of virtqueues.
    fn num_queues(&self) -> usize;

    /// Most bytes of guest memory that a front-end may have mapped.
    fn memory_max(&self) -> u64;

    /// How many pages of its guest's memory this process may make.
    fn ledger(&self) -> Arc<Ledger> {
        Arc::default()
    }

    /// The device that is to reach its guest's memory by itself.
    fn dma(&self) -> Option<Dma> {
        None
    }

    /// What `VHOST_USER_GET_QUEUE_NUM` answers: virtqueues, but for a network device pairs of them.
    fn queue_num(&self) -> u64 {
        self.num_queues() as u64
    }

    /// The configuration space; empty if the front-end has one of its own.
    fn config_space(&self) -> &[u8] {
        &[]
    }

    /// Serves a virtqueue from index `base` on.
    ///
    /// # Errors
    /// The worker has stopped.
    fn start(&mut self, setup: VirtqueueSetup, base: u16, front: &Setup) -> std::result::Result<(), Stopped>;

    /// Serves a virtqueue no longer; the index at which it may go on, if the device has used it.
    ///
    /// # Errors
    /// The worker has stopped.
    fn stop(&mut self, index: u16) -> std::result::Result<Option<u16>, Stopped>;

    /// What rings the driver for a virtqueue that is served has changed.
    ///
    /// # Errors
    /// The worker has stopped.
    fn set_call(&mut self, index: u16, call: Option<Arc<Call>>) -> std::result::Result<(), Stopped>;

    /// Follows a new memory table.
    ///
    /// # Errors
    /// The worker has stopped.
    fn remap(&mut self, memory: &Arc<GuestMemory>) -> std::result::Result<(), Stopped>;

    /// The front-end resets the device.
    ///
    /// # Errors
    /// The worker has stopped.
    fn reset(&mut self) -> std::result::Result<(), Stopped>;

    /// The front-end is gone.
    fn detach(&mut self);

    /// A step of its session panicked. Its front-end is gone.
    fn panicked(&mut self);

    /// What the driver kicks for the virtqueue that the session's own thread serves, if there is
    /// one and it runs.
    fn kick<'a>(&self, _front: &'a Setup) -> Option<&'a Arc<Kick>> {
        None
    }

    /// Serves that virtqueue.
    fn serve(&mut self, _front: &Setup) -> Served {
        Served::Nothing
    }
}

/// What a look at a virtqueue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There was nothing to do.
    Nothing,
    /// Something was done, and that is all for now.
    Some,
    /// There may be more to do at once.
    More,
}

/// What a front-end has set up.
#[derive(Debug)]
pub struct Setup {
    /// The guest's memory.
    pub memory: Arc<GuestMemory>,
    /// Feature bits that the driver took.
    pub features: u64,
    queues: Vec<Virtqueue>,
}

/// A guest's device as its front-end has set it up.
#[derive(Debug)]
pub struct FrontEnd<F> {
    function: F,
    setup: Setup,
    ringer: Ringer,
    /// Memory tables that are still to be unmapped, of this front-end and of those before it.
    backlog: Arc<Backlog>,
    /// Eventfds, in use or still to be closed, likewise.
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
    /// Between SET_VRING_KICK and GET_VRING_BASE.
    started: bool,
    enabled: bool,
    /// The device serves it.
    active: bool,
}

impl<F: Function> FrontEnd<F> {
    /// A device that no front-end has set up yet.
    pub fn new(function: F, ringer: Ringer) -> FrontEnd<F> {
        let queues = (0..function.num_queues()).map(|_| Virtqueue::default()).collect();
        let setup = Setup { memory: Arc::default(), features: 0, queues };
        FrontEnd { function, setup, ringer, backlog: Arc::default(), open: Arc::default() }
    }

    /// A front-end came; `connection` is shut down if it cuts its memory short.
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

    /// Whether the front-end has cut its memory short.
    pub fn has_lost_memory(&self) -> bool {
        self.setup.memory.is_lost()
    }

    /// What the driver kicks for the session's thread.
    pub fn kick(&self) -> Option<&Arc<Kick>> {
        self.function.kick(&self.setup)
    }

    /// Serves the virtqueue that the session's own thread serves.
    pub fn serve(&mut self) -> Served {
        #[cfg(feature = "hooks")]
        crate::hooks::step("queue");
        self.function.serve(&self.setup)
    }

    /// The front-end is gone: everything is as before it came.
    pub fn disconnect(&mut self) {
        self.forget();
        self.setup.memory = Arc::default();
    }

    /// The same, because a step of the session panicked.
    pub fn panicked(&mut self) {
        self.disconnect();
        self.function.panicked();
    }

    /// What the front-end has set up is forgotten. If it sets up more, that is on the same
    /// conditions.
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

    /// Starts or stops serving a virtqueue, whatever its settings now say.
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
        // What would be too much comes when it is used.
        let _ = self.setup.memory.populate(&rings.map(|(gpa, len)| Run { gpa, len }), &mut { u64::MAX });
        self.function.start(setup, base, &self.setup).map_err(stopped)
    }

    fn stop(&mut self, index: u16) -> Result<()> {
        let base = self.function.stop(index).map_err(stopped)?;
        let queue = &mut self.setup.queues[usize::from(index)];
        queue.base = base.unwrap_or(queue.base);
        queue.active = false;
        Ok(())
    }

    /// The virtqueue, to set it up.
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

/// Refuses a message; the session says which it was.
fn refused(why: String) -> Error {
    Error::ReqHandlerError(io::Error::new(io::ErrorKind::InvalidInput, why))
}

impl Setup {
    /// A virtqueue, for those who serve it; `None` while it is not active, or if there is no such
    /// virtqueue.
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

    /// What the driver of a virtqueue kicks.
    pub fn kick(&self, index: u16) -> Option<&Arc<Kick>> {
        self.queues.get(usize::from(index))?.kick.as_ref()
    }

    /// What rings the driver of a virtqueue.
    pub fn call(&self, index: u16) -> Option<&Arc<Call>> {
        self.queues.get(usize::from(index))?.call.as_ref()
    }
}
