//! The vhost-user protocol: what the front-end (the VMM) sets up, handed on to the [`Function`] that it sets up.
//!
//! This is the adapter alone: messages come in one at a time, each leaves the function in a state that makes sense.
//! `vhost-user-backend` is not used: it keeps each virtqueue behind a lock and reads rings by itself, and its device has at most 64 of them.

use crate::config::Config;
use crate::memory::{Backlog, GuestMemory, MapOptions, RegionSpec, Run};
use crate::queue::{Call, Kick, Ringer, VirtqueueSetup};
use crate::worker::Stopped;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Most regions of a memory table.
const MAX_MEM_SLOTS: usize = 509;
/// What all functions have: their rings are those of virtio 1, and they are set up through vhost-user.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

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

    /// What the driver kicks for the virtqueue that the session's own thread serves, if there is one and it runs.
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
        let options = MapOptions { backlog, memory_max, connection };
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
        self.function.serve(&self.setup)
    }

    /// The front-end is gone: everything is as before it came.
    pub fn disconnect(&mut self) {
        self.forget();
        self.setup.memory = Arc::default();
    }

    /// What the front-end has set up is forgotten. If it sets up more, that is on the same conditions.
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
        let size = u64::from(setup.size);
        let rings = [(setup.desc, 16 * size), (setup.avail, 6 + 2 * size), (setup.used, 6 + 8 * size)];
        self.setup.memory.populate(&rings.map(|(gpa, len)| Run { gpa, len }), &mut { u64::MAX });
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
    /// A virtqueue, for those who serve it; `None` while it is not active, or if there is no such virtqueue.
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

impl<F: Function> VhostUserBackendReqHandlerMut for FrontEnd<F> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.forget();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..self.num_queues() {
            self.queue(index)?.enabled = false;
            self.update(index)?;
        }
        self.function.reset().map_err(stopped)
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(FEATURES | F::FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !(FEATURES | F::FEATURES);
        if unknown != 0 {
            return Err(refused(format!("features {unknown:#x} are not on offer")));
        }
        self.setup.features = features;
        (0..self.num_queues()).try_for_each(|index| self.update(index))
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let specs = regions.iter().zip(files).map(|(region, file)| RegionSpec {
            gpa: region.guest_phys_addr,
            len: region.memory_size,
            front_end_addr: region.user_addr,
            file_offset: region.mmap_offset,
            file,
        });
        let memory = self.setup.memory.map_anew(specs.collect()).map_err(Error::ReqHandlerError)?;
        self.set_memory(memory)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        const MAX: u16 = Config::MAX_QUEUE_SIZE;
        let queue = self.stopped_queue(index)?;
        let size = u16::try_from(num).ok().filter(|n| n.is_power_of_two() && *n <= MAX);
        let why = || format!("queue {index}: size {num}; a power of two up to {MAX} is; the VMM's vq_size");
        queue.size = size.ok_or_else(|| refused(why()))?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let rings = [("descriptor table", descriptor), ("available ring", available), ("used ring", used)];
        let gpa = |(name, addr)| {
            let why = || {
                format!(
                    "queue {index}: its {name}, {addr:#x}, is not in the VMM's shared memory (QEMU: share=on)"
                )
            };
            self.setup.memory.front_end_to_gpa(addr).ok_or_else(|| refused(why()))
        };
        let gpas = rings.map(gpa);
        let queue = self.stopped_queue(index)?;
        let [desc, avail, used] = gpas;
        (queue.desc, queue.avail, queue.used) = (desc?, avail?, used?);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let why = |_| refused(format!("queue {index}: index {base}; 65535 is the last"));
        self.stopped_queue(index)?.base = u16::try_from(base).map_err(why)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.queue(index)?.started = false;
        self.update(index)?;
        let queue = self.queue(index)?;
        (queue.kick, queue.call) = (None, None);
        Ok(VhostUserVringState::new(index, queue.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = u32::from(index);
        let kick = file.map(|file| Kick::new(file, &self.open)).transpose();
        let kick = kick.map_err(Error::ReqHandlerError)?.map(Arc::new);
        if self.queue(index)?.started {
            self.queue(index)?.started = false;
            self.update(index)?;
        }
        let queue = self.queue(index)?;
        queue.kick = kick;
        queue.started = true;
        self.update(index)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(|file| Call::new(file, &self.ringer, &self.open)).transpose();
        let call = call.map_err(Error::ReqHandlerError)?.map(Arc::new);
        let queue = self.queue(index.into())?;
        queue.call = call.clone();
        if queue.active {
            self.function.set_call(index.into(), call).map_err(stopped)?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(index.into()).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as P;
        Ok(P::REPLY_ACK | P::CONFIGURE_MEM_SLOTS | P::RESET_DEVICE | F::PROTOCOL)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.function.queue_num())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enabled = enable;
        self.update(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        let space = self.function.config_space();
        let why = || format!("{size} bytes at {offset}; there are {}; the VMM's config_size", space.len());
        space.get(range).map(<[u8]>::to_vec).ok_or_else(|| refused(why()))
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(refused("the configuration space is read-only".into()))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_MEM_SLOTS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        if self.setup.memory.num_regions() >= MAX_MEM_SLOTS {
            return Err(refused(format!("a memory region beyond {MAX_MEM_SLOTS}")));
        }
        let spec = RegionSpec {
            gpa: region.guest_phys_addr,
            len: region.memory_size,
            front_end_addr: region.user_addr,
            file_offset: region.mmap_offset,
            file,
        };
        let memory = self.setup.memory.with(spec).map_err(Error::ReqHandlerError)?;
        self.set_memory(memory)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let memory = self.setup.memory.without(region.guest_phys_addr, region.memory_size);
        self.set_memory(memory.map_err(Error::ReqHandlerError)?)
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        unsupported()
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        unsupported()
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        unsupported()
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        unsupported()
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::ReqHandlerError(io::ErrorKind::Unsupported.into()))
}
