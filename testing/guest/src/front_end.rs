//! The VMM: a vhost-user front-end that sets up the device in QEMU's order.

use crate::memory::{Memory, Region};
use crate::ring::Ring;
use anyhow::{Context, Result, ensure};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;
use vrdma_abi::config::{Config, device};
use vrdma_abi::zerocopy::FromBytes;

/// Virtio feature bit VIRTIO_F_VERSION_1.
pub const VERSION_1: u64 = 1 << 32;
/// Virtio feature bit VIRTIO_F_EVENT_IDX.
pub const EVENT_IDX: u64 = 1 << 29;

/// A virtqueue in the front-end's view.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Where the virtqueue lies.
    pub ring: Ring,
    /// The eventfd by which the driver notifies the device.
    pub kick: Arc<EventFd>,
    /// The eventfd by which the device interrupts the driver.
    pub call: Arc<EventFd>,
}

/// A vhost-user connection to the daemon.
pub struct FrontEnd {
    link: Frontend,
    /// Number of virtqueues of the device, or of queue pairs of a network device.
    pub num_queues: u16,
}

impl FrontEnd {
    /// Connects to an RDMA function, negotiates and gives the device its memory.
    ///
    /// Returns the device's configuration too. No virtqueue runs yet.
    ///
    /// # Errors
    /// The daemon is not there, or refuses something.
    pub fn connect(socket: &Path, memory: &Memory, event_idx: bool) -> Result<(FrontEnd, Config)> {
        let mut front_end = FrontEnd::open(socket, if event_idx { EVENT_IDX } else { 0 }, memory)?;
        let space = front_end.config_space(0, device::CONFIG_SIZE)?;
        let (config, _) =
            Config::read_from_prefix(&space).ok().context("the configuration space is short")?;
        Ok((front_end, config))
    }

    /// Connects to any function, negotiates and gives the device its memory.
    ///
    /// It negotiates `features` and `VERSION_1`. No virtqueue runs yet.
    ///
    /// # Errors
    /// The daemon is not there, or refuses something.
    pub fn open(socket: &Path, features: u64, memory: &Memory) -> Result<FrontEnd> {
        let mut link = Frontend::connect(socket, 256).context("connect")?;
        link.set_owner().context("SET_OWNER")?;
        let offered = link.get_features().context("GET_FEATURES")?;
        let wanted = features | VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        ensure!(offered & wanted == wanted, "features {offered:#x} lack some of {wanted:#x}");
        let protocol = link.get_protocol_features().context("GET_PROTOCOL_FEATURES")?;
        use VhostUserProtocolFeatures as F;
        let protocol =
            protocol & (F::MQ | F::REPLY_ACK | F::CONFIG | F::CONFIGURE_MEM_SLOTS | F::RESET_DEVICE);
        ensure!(protocol.contains(F::REPLY_ACK), "protocol features {protocol:?}");
        link.set_protocol_features(protocol).context("SET_PROTOCOL_FEATURES")?;
        let num_queues = match protocol.contains(F::MQ) {
            true => u16::try_from(link.get_queue_num().context("GET_QUEUE_NUM")?)?,
            false => 1,
        };
        // The daemon acknowledges each message that follows, so an error shows at the message it
        // belongs to.
        link.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        link.set_features(wanted).context("SET_FEATURES")?;
        let mut front_end = FrontEnd { link, num_queues };
        front_end.set_memory(memory, memory.regions())?;
        Ok(front_end)
    }

    /// Returns a front-end over a connection on which protocol features are negotiated already.
    pub fn over(link: Frontend, num_queues: u16) -> FrontEnd {
        FrontEnd { link, num_queues }
    }

    /// Reads the configuration space.
    ///
    /// # Errors
    /// The daemon refuses, or answers with fewer bytes.
    pub fn config_space(&mut self, offset: u32, size: u32) -> Result<Vec<u8>> {
        let (flags, room) = (VhostUserConfigFlags::empty(), vec![0; size as usize]);
        let (said, space) = self.link.get_config(offset, size, flags, &room).context("GET_CONFIG")?;
        ensure!(said.size == size && space.len() == size as usize, "GET_CONFIG: {} bytes", space.len());
        Ok(space)
    }

    /// Sets the whole memory table.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn set_memory(&mut self, memory: &Memory, regions: &[Region]) -> Result<()> {
        let table: Vec<_> = regions.iter().map(|region| info(memory, region)).collect();
        self.link.set_mem_table(&table).context("SET_MEM_TABLE")?;
        Ok(())
    }

    /// Adds a region to the memory table.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn add_region(&mut self, memory: &Memory, region: &Region) -> Result<()> {
        self.link.add_mem_region(&info(memory, region)).context("ADD_MEM_REG")?;
        Ok(())
    }

    /// Removes a region from the memory table.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn remove_region(&mut self, memory: &Memory, region: &Region) -> Result<()> {
        self.link.remove_mem_region(&info(memory, region)).context("REM_MEM_REG")
    }

    /// Sets up a virtqueue and starts it at index `base`.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn start(&mut self, index: u16, queue: &Queue, base: u16) -> Result<()> {
        let (at, ring, link) = (usize::from(index), &queue.ring, &mut self.link);
        link.set_vring_num(at, ring.size).context("SET_VRING_NUM")?;
        link.set_vring_base(at, base).context("SET_VRING_BASE")?;
        let config = VringConfigData {
            queue_max_size: ring.size,
            queue_size: ring.size,
            flags: 0,
            desc_table_addr: address_of(ring, ring.desc),
            used_ring_addr: address_of(ring, ring.used),
            avail_ring_addr: address_of(ring, ring.avail),
            log_addr: None,
        };
        link.set_vring_addr(at, &config).context("SET_VRING_ADDR")?;
        link.set_vring_call(at, &queue.call).context("SET_VRING_CALL")?;
        link.set_vring_kick(at, &queue.kick).context("SET_VRING_KICK")?;
        link.set_vring_enable(at, true).context("SET_VRING_ENABLE")?;
        Ok(())
    }

    /// Stops a virtqueue and returns the index at which it may continue.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn stop(&mut self, index: u16) -> Result<u16> {
        let base = self.link.get_vring_base(index.into()).context("GET_VRING_BASE")?;
        Ok(u16::try_from(base)?)
    }

    /// Returns the connection, for messages that no well-behaved VMM sends.
    ///
    /// The daemon acknowledges each message.
    pub fn link(&mut self) -> &mut Frontend {
        &mut self.link
    }

    /// Returns whether the daemon has closed the connection.
    pub fn is_closed(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.link.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// Closes the connection without a message, as the connection of a killed VMM closes.
    pub fn disconnect(&self) {
        // SAFETY: shuts down a socket that this value owns.
        unsafe { libc::shutdown(self.link.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// Resets the device.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn reset_device(&mut self) -> Result<()> {
        self.link.reset_device().context("RESET_DEVICE")
    }
}

impl AsRawFd for FrontEnd {
    fn as_raw_fd(&self) -> RawFd {
        self.link.as_raw_fd()
    }
}

impl std::fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontEnd").field("num_queues", &self.num_queues).finish_non_exhaustive()
    }
}

/// Returns the front-end's address of a part of a virtqueue.
pub(crate) fn address_of(ring: &Ring, gpa: u64) -> u64 {
    ring.memory.host(gpa, 2).as_ptr().addr() as u64
}

fn info(memory: &Memory, region: &Region) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: region.gpa,
        memory_size: region.len,
        userspace_addr: region.front_end_addr(),
        mmap_offset: region.offset,
        mmap_handle: memory.fd(),
    }
}
