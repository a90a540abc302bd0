//! cloud-hypervisor as the VMM: which messages it sends, and in which order.
//!
//! This is what its generic vhost-user device does in v52.0 and v53.0, read in
//! `virtio-devices/src/vhost_user/`: `generic_vhost_user.rs`, `vu_common_ctrl.rs` and `mod.rs` of
//! its sources. What differs from [`FrontEnd::start`], which is QEMU's order:
//!
//! - It takes each feature that both sides know, and all protocol features that it knows.
//! - SET_FEATURES comes when the driver starts, and SET_MEM_TABLE behind it. SET_OWNER does not
//!   come again if the driver starts again.
//! - A virtqueue starts at its available index, and not at an index that a message told.
//! - A reset of the guest stops the virtqueues. RESET_DEVICE is not sent.
//! - A lost connection is made again, with the features of the one before.

use crate::front_end::{EVENT_IDX, FrontEnd, Queue, VERSION_1, address_of};
use crate::guest::{Guest, GuestOptions};
use crate::memory::Memory;
use crate::wait;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VringConfigData};
use vrdma_abi::config::{Config, device};
use vrdma_abi::zerocopy::FromBytes;

/// The virtio feature bits that it takes if the device offers them.
///
/// `DEFAULT_VIRTIO_FEATURES`: indirect descriptors, EVENT_IDX, VERSION_1, IN_ORDER, ORDER_PLATFORM,
/// NOTIFICATION_DATA, and those of vhost-user for protocol features and for a log of written pages.
const FEATURES: u64 = 1 << 28
    | EVENT_IDX
    | VERSION_1
    | 1 << 35
    | 1 << 36
    | 1 << 38
    | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    | VhostUserVirtioFeatures::LOG_ALL.bits();

/// The protocol features that it takes if the device offers them.
fn protocol_features() -> VhostUserProtocolFeatures {
    use VhostUserProtocolFeatures as F;
    F::CONFIG
        | F::MQ
        | F::CONFIGURE_MEM_SLOTS
        | F::REPLY_ACK
        | F::INFLIGHT_SHMFD
        | F::LOG_SHMFD
        | F::DEVICE_STATE
        | F::BACKEND_REQ
}

/// What the VMM and the device agreed on. It holds for later connections too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Virtio feature bits. The driver sees them as those of the device.
    pub features: u64,
    /// Protocol features.
    pub protocol: VhostUserProtocolFeatures,
    /// Number of virtqueues of the VMM's command line.
    pub num_queues: u16,
}

/// Creates a VM whose guest starts the driver.
///
/// `num_queues` is the number of virtqueues on the VMM's command line.
///
/// # Errors
/// Those of [`create`] and [`activate`].
pub fn connect(socket: &Path, num_queues: u16, options: GuestOptions) -> Result<(Arc<Guest>, Agreed)> {
    let memory = options.make_memory()?;
    let (mut front_end, agreed) = create(socket, num_queues)?;
    let config = read_config(&mut front_end)?;
    let queues = options.make_queues(&memory, &config, num_queues)?;
    activate(&mut front_end, &memory, &queues, options.driver_features())?;
    Ok((Guest::of(front_end, memory, options, config, queues), agreed))
}

/// Connects when the VM is created, before its guest runs. No message about memory or queues comes.
///
/// # Errors
/// The daemon is not there, refuses something, or has fewer than `num_queues` virtqueues.
pub fn create(socket: &Path, num_queues: u16) -> Result<(FrontEnd, Agreed)> {
    let mut link = Frontend::connect(socket, num_queues.into()).context("connect")?;
    link.set_owner().context("SET_OWNER")?;
    let features = FEATURES & link.get_features().context("GET_FEATURES")?;
    let offered = link.get_protocol_features().context("GET_PROTOCOL_FEATURES")?;
    let protocol = protocol_features() & offered;
    link.set_protocol_features(protocol).context("SET_PROTOCOL_FEATURES")?;
    ensure!(protocol.contains(VhostUserProtocolFeatures::REPLY_ACK), "protocol features {protocol:?}");
    link.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    let served = link.get_queue_num().context("GET_QUEUE_NUM")?;
    ensure!(u64::from(num_queues) <= served, "{num_queues} virtqueues of {served}");
    Ok((FrontEnd::over(link, num_queues), Agreed { features, protocol, num_queues }))
}

/// Reads the configuration space as a guest's driver does: in accesses of at most four bytes.
///
/// # Errors
/// The daemon refuses, or answers with fewer bytes. The VMM panics then.
pub fn read_config(front_end: &mut FrontEnd) -> Result<Config> {
    let words = (0..device::CONFIG_SIZE).step_by(4).map(|at| front_end.config_space(at, 4));
    let space = words.collect::<Result<Vec<_>>>()?.concat();
    let (config, _) = Config::read_from_prefix(&space).ok().context("the configuration space is short")?;
    Ok(config)
}

/// Sets up the device when its driver says DRIVER_OK. `features` are those that both took.
///
/// # Errors
/// The daemon refuses.
pub fn activate(front_end: &mut FrontEnd, memory: &Memory, queues: &[Queue], features: u64) -> Result<()> {
    front_end.link().set_features(features).context("SET_FEATURES")?;
    front_end.set_memory(memory, memory.regions())?;
    let link = front_end.link();
    for (index, queue) in queues.iter().enumerate() {
        link.set_vring_num(index, queue.ring.size).context("SET_VRING_NUM")?;
    }
    for (index, Queue { ring, kick, call }) in queues.iter().enumerate() {
        let config = VringConfigData {
            queue_max_size: ring.size,
            queue_size: ring.size,
            flags: 0,
            desc_table_addr: address_of(ring, ring.desc),
            used_ring_addr: address_of(ring, ring.used),
            avail_ring_addr: address_of(ring, ring.avail),
            log_addr: None,
        };
        link.set_vring_addr(index, &config).context("SET_VRING_ADDR")?;
        link.set_vring_base(index, ring.avail_idx()).context("SET_VRING_BASE")?;
        link.set_vring_call(index, call).context("SET_VRING_CALL")?;
        link.set_vring_kick(index, kick).context("SET_VRING_KICK")?;
    }
    enable(front_end, queues.len(), true)
}

fn enable(front_end: &mut FrontEnd, queues: usize, on: bool) -> Result<()> {
    (0..queues).try_for_each(|index| front_end.link().set_vring_enable(index, on).context("SET_VRING_ENABLE"))
}

/// Pauses the VM: the virtqueues are disabled, and keep their settings.
///
/// # Errors
/// The daemon refuses.
pub fn pause(guest: &Guest) -> Result<()> {
    enable(&mut guest.front_end(), guest.queues.len(), false)
}

/// Resumes a paused VM.
///
/// # Errors
/// The daemon refuses.
pub fn resume(guest: &Guest) -> Result<()> {
    enable(&mut guest.front_end(), guest.queues.len(), true)
}

/// Stops the device when its driver resets it, or when the guest's kernel starts anew.
///
/// # Errors
/// The daemon refuses.
pub fn reset(guest: &Guest) -> Result<()> {
    let mut front_end = guest.front_end();
    for index in 0..guest.queues.len() {
        front_end.link().set_vring_enable(index, false).context("SET_VRING_ENABLE")?;
        front_end.link().get_vring_base(index).context("GET_VRING_BASE")?;
    }
    Ok(())
}

/// Lets a driver start that finds the device reset: it clears the virtqueues and says DRIVER_OK.
///
/// # Errors
/// The daemon refuses.
pub fn start_driver(guest: &Guest) -> Result<()> {
    guest.forget_queues();
    activate(&mut guest.front_end(), &guest.memory, &guest.queues, guest.options.driver_features())?;
    guest.fill_events();
    Ok(())
}

/// Connects again after the daemon ended the connection, which the guest does not notice.
///
/// # Errors
/// The daemon refuses.
pub fn reconnect(guest: &Guest, socket: &Path, agreed: Agreed) -> Result<()> {
    let connect = || Frontend::connect(socket, agreed.num_queues.into()).ok();
    let mut link = wait::until("the daemon to listen", connect);
    link.set_owner().context("SET_OWNER")?;
    link.get_features().context("GET_FEATURES")?;
    link.set_protocol_features(agreed.protocol).context("SET_PROTOCOL_FEATURES")?;
    link.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    let mut front_end = FrontEnd::over(link, agreed.num_queues);
    activate(&mut front_end, &guest.memory, &guest.queues, guest.options.driver_features())?;
    *guest.front_end() = front_end;
    Ok(())
}
