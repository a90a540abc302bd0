//! Handlers of the vhost-user messages.

use super::{FrontEnd, Function, refused, stopped};
use crate::config::Config;
use crate::memory::{Extent, RegionSpec};
use crate::queue::{Call, Kick, ring_lens};
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Largest number of regions of a memory table.
const MAX_MEM_SLOTS: usize = 509;
/// Features of all functions: virtio 1 rings with EVENT_IDX, and protocol features of vhost-user.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

impl<F: Function> VhostUserBackendReqHandlerMut for FrontEnd<F> {
    fn set_owner(&mut self) -> Result<()> {
        // A session starts (vhost-user, SET_OWNER). A VMM may plug a new device over the connection
        // of the previous one, without undoing the previous settings.
        self.forget();
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
        #[cfg(feature = "hooks")]
        crate::hooks::step("message");
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
        // The length is that of at least one entry. If the size comes later, starting the queue
        // checks all entries.
        let lens = ring_lens(self.queue(index)?.size.max(1));
        let memory = &self.setup.memory;
        let gpa = |name, addr, len| {
            let shared = "the VMM's shared memory";
            let why = || format!("queue {index}: its {name}, {addr:#x}, is not in {shared} (QEMU: share=on)");
            let gpa = memory.front_end_to_gpa(addr).ok_or_else(|| refused(why()))?;
            let why = || {
                format!(
                    "queue {index}: its {name}, {len} bytes at {addr:#x}, is not in one region of {shared}"
                )
            };
            memory.resolve_one(Extent { gpa, len }).map(|_| gpa).ok_or_else(|| refused(why()))
        };
        let gpas = [
            gpa("descriptor table", descriptor, lens[0]),
            gpa("available ring", available, lens[1]),
            gpa("used ring", used, lens[2]),
        ];
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
        // Bytes beyond the space are zero. QEMU asks for all bytes of its `config_size`, and
        // cloud-hypervisor for what its guest reads. With fewer bytes, QEMU refuses the device and
        // cloud-hypervisor panics. The vhost crate bounds offset and size.
        let space = self.function.config_space().get(offset as usize..).unwrap_or_default();
        let mut bytes = space[..space.len().min(size as usize)].to_vec();
        bytes.resize(size as usize, 0);
        Ok(bytes)
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
