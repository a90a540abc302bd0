//! The vhost-user protocol: what the front-end (the VMM) sets up, handed on to the worker.
//!
//! This is the adapter alone: messages come in one at a time, each leaves the device in a state that makes sense.
//! `vhost-user-backend` is not used: it keeps each virtqueue behind a lock and reads rings by itself, and its device has at most 64 of them.

use crate::config::Config;
use crate::control;
use crate::memory::{GuestMemory, RegionSpec};
use crate::queue::{Call, Kick, VirtqueueSetup};
use crate::worker::{Stopped, WorkerHandle};
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};
use vrdma_abi::config as abi;
use vrdma_abi::wqe::unit;
use vrdma_abi::zerocopy::IntoBytes;
use vrdma_transport::DeviceId;
use vrdma_wire::num::{Mac, Mtu};

/// Most regions of a memory table.
const MAX_MEM_SLOTS: usize = 509;
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// A guest's device as its front-end has set it up.
#[derive(Debug)]
pub struct FrontEnd {
    worker: WorkerHandle,
    device: DeviceId,
    config: Arc<Config>,
    config_space: [u8; abi::device::CONFIG_SIZE as usize],
    memory: Arc<GuestMemory>,
    regions: usize,
    features: u64,
    queues: Vec<Virtqueue>,
    /// The control queue while it runs.
    control: Option<Queue>,
    /// Where it stopped last.
    stopped_at: Option<u16>,
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

impl FrontEnd {
    /// A device that no front-end has set up yet.
    pub fn new(worker: WorkerHandle, device: DeviceId, config: Arc<Config>, mac: Mac) -> FrontEnd {
        let space = abi::Config {
            magic: abi::device::MAGIC.into(),
            version_major: (abi::device::VERSION_MAJOR as u16).into(),
            version_minor: (abi::device::VERSION_MINOR as u16).into(),
            mac: mac.0,
            num_comp_vectors: config.comp_vectors.into(),
            num_channels: config.channels.into(),
            max_wqe_units: unit::MAX_UNITS as u8,
            link: abi::link::UP,
            max_mtu: Mtu::M4096.bytes().into(),
            reserved: [0; 40],
        };
        let mut config_space = [0; abi::device::CONFIG_SIZE as usize];
        config_space[..abi::Config::SIZE].copy_from_slice(space.as_bytes());
        let queues = (0..config.num_queues()).map(|_| Virtqueue::default()).collect();
        FrontEnd {
            worker,
            device,
            config,
            config_space,
            memory: Arc::default(),
            regions: 0,
            features: 0,
            queues,
            control: None,
            stopped_at: None,
        }
    }

    /// What the driver rings for the control queue.
    pub fn control_kick(&self) -> Option<&Arc<Kick>> {
        self.queues[usize::from(abi::queue::CONTROL)].kick.as_ref().filter(|_| self.control.is_some())
    }

    /// Serves the control queue. True if there may be more to do at once.
    pub fn serve_control(&mut self) -> bool {
        let Some(queue) = &mut self.control else { return false };
        let context = control::Context { memory: &self.memory, limits: &self.config.limits };
        let (queues, features, worker, device) = (&self.queues, self.features, &self.worker, self.device);
        let setup = |index: u16| queues.get(usize::from(index))?.setup(index, features);
        let execute = |command| {
            let stopped = Err(vrdma_abi::control::Status::INTERNAL);
            worker.call(move |worker| worker.execute(device, command)).unwrap_or(stopped)
        };
        let call = &self.queues[usize::from(abi::queue::CONTROL)].call;
        let result = control::serve(queue, &context, setup, execute).and_then(|notify| {
            if let Some(call) = call.as_ref().filter(|_| notify) {
                call.ring();
            }
            queue.enable_notification(context.memory.mmap())
        });
        result.unwrap_or_else(|error| {
            log::warn!("device {}: the control queue is broken: {error}", device.0);
            self.control = None;
            false
        })
    }

    /// The front-end is gone: everything is as before it came.
    pub fn disconnect(&mut self) {
        (self.control, self.stopped_at) = (None, None);
        let device = self.device;
        // If the worker has stopped there is nothing to reset.
        let _ = self.worker.call(move |worker| worker.detach_device(device));
        self.memory = Arc::default();
        self.regions = 0;
        self.features = 0;
        self.queues.iter_mut().for_each(|queue| *queue = Virtqueue::default());
    }

    fn queue(&mut self, index: u32) -> Result<&mut Virtqueue> {
        self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Starts or stops serving a virtqueue, whatever its settings now say.
    fn update(&mut self, index: u32) -> Result<()> {
        let protocol_features = self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        let queue = self.queue(index)?;
        let wanted = queue.started && (queue.enabled || !protocol_features) && queue.size != 0;
        match (queue.active, wanted) {
            (false, true) => self.start(index as u16),
            (true, false) => self.stop(index as u16),
            _ => Ok(()),
        }
    }

    fn start(&mut self, index: u16) -> Result<()> {
        let features = self.features;
        let queue = &mut self.queues[usize::from(index)];
        queue.active = true;
        let base = queue.base;
        let Some(setup) = queue.setup(index, features) else { return Ok(()) };
        let (device, memory) = (self.device, self.memory.clone());
        if index == abi::queue::CONTROL {
            self.control = setup.queue(base, &memory);
            if self.control.is_none() {
                log::warn!("device {}: the control queue's rings are not in guest memory", device.0);
            }
            // A driver begins at 0; a front-end that goes on after a pause continues where it was.
            let goes_on = self.stopped_at == Some(0) && wrapped(&setup, &memory);
            let fresh = base == 0 && !goes_on;
            return self.call(move |worker| worker.start_device(device, fresh));
        }
        self.call(move |worker| worker.start_queue(device, &memory, setup, base))
    }

    fn stop(&mut self, index: u16) -> Result<()> {
        let device = self.device;
        let base = if index == abi::queue::CONTROL {
            let next = self.control.take().map(|queue| queue.next_avail());
            self.stopped_at = next;
            self.call(move |worker| worker.suspend_device(device))?;
            next
        } else {
            self.call(move |worker| worker.stop_queue(device, index))?
        };
        let queue = &mut self.queues[usize::from(index)];
        queue.base = base.unwrap_or(queue.base);
        queue.active = false;
        Ok(())
    }

    fn set_memory(&mut self, memory: GuestMemory, regions: usize) -> Result<()> {
        self.memory = Arc::new(memory);
        self.regions = regions;
        let (device, memory) = (self.device, self.memory.clone());
        self.call(move |worker| worker.remap_device(device, &memory))
    }

    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut crate::worker::Worker) -> R + Send + 'static,
    ) -> Result<R> {
        self.worker.call(f).map_err(|Stopped| Error::BackendInternalError)
    }
}

impl Virtqueue {
    /// For those who serve it; `None` while it is not active.
    fn setup(&self, index: u16, features: u64) -> Option<VirtqueueSetup> {
        self.active.then(|| VirtqueueSetup {
            index,
            size: self.size,
            desc: self.desc,
            avail: self.avail,
            used: self.used,
            event_idx: features & 1 << VIRTIO_RING_F_EVENT_IDX != 0,
            kick: self.kick.clone(),
            call: self.call.clone(),
        })
    }
}

/// Whether the control queue has been in use since its driver began, so that an index of 0 is one that wrapped: a driver that
/// begins has cleared the rings, and each reply has a length.
fn wrapped(setup: &VirtqueueSetup, memory: &GuestMemory) -> bool {
    const LEN: u64 = 4;
    let last = u64::from(setup.size - 1);
    let len = setup.used.checked_add(4 + 8 * last + LEN);
    len.and_then(|at| memory.mmap().read_obj::<u32>(GuestAddress(at)).ok()).is_some_and(|len| len != 0)
}

impl VhostUserBackendReqHandlerMut for FrontEnd {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.disconnect();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        let device = self.device;
        for index in 0..self.queues.len() as u32 {
            self.queue(index)?.enabled = false;
            self.update(index)?;
        }
        self.call(move |worker| worker.reset_device(device))
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !FEATURES != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        (0..self.queues.len() as u32).try_for_each(|index| self.update(index))
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
        let memory = GuestMemory::map(specs.collect()).map_err(Error::ReqHandlerError)?;
        self.set_memory(memory, regions.len())?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let queue = self.queue(index)?;
        let size = u16::try_from(num).ok().filter(|n| n.is_power_of_two() && *n <= Config::MAX_QUEUE_SIZE);
        if queue.active {
            return Err(Error::InvalidOperation("the virtqueue is running"));
        }
        queue.size = size.ok_or(Error::InvalidParam)?;
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
        let [desc, avail, used] =
            [descriptor, available, used].map(|addr| self.memory.front_end_to_gpa(addr));
        let queue = self.queue(index)?;
        if queue.active {
            return Err(Error::InvalidOperation("the virtqueue is running"));
        }
        queue.desc = desc.ok_or(Error::InvalidParam)?;
        queue.avail = avail.ok_or(Error::InvalidParam)?;
        queue.used = used.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let queue = self.queue(index)?;
        if queue.active {
            return Err(Error::InvalidOperation("the virtqueue is running"));
        }
        queue.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
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
        let kick = file.map(Kick::new).transpose().map_err(Error::ReqHandlerError)?.map(Arc::new);
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
        let call = file.map(Call::new).transpose().map_err(Error::ReqHandlerError)?.map(Arc::new);
        let queue = self.queue(index.into())?;
        queue.call = call.clone();
        if queue.active {
            let device = self.device;
            self.call(move |worker| worker.set_queue_call(device, index.into(), call))?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(index.into()).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as F;
        Ok(F::MQ | F::REPLY_ACK | F::CONFIG | F::CONFIGURE_MEM_SLOTS | F::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.queues.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enabled = enable;
        self.update(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        self.config_space.get(range).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration space is read-only"))
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
        if self.regions >= MAX_MEM_SLOTS {
            return Err(Error::InvalidParam);
        }
        let spec = RegionSpec {
            gpa: region.guest_phys_addr,
            len: region.memory_size,
            front_end_addr: region.user_addr,
            file_offset: region.mmap_offset,
            file,
        };
        let memory = self.memory.with(spec).map_err(Error::ReqHandlerError)?;
        self.set_memory(memory, self.regions + 1)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let memory = self.memory.without(region.guest_phys_addr, region.memory_size);
        self.set_memory(memory.map_err(Error::ReqHandlerError)?, self.regions.saturating_sub(1))
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
