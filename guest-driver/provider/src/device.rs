//! How a device is opened: its limits, the channel and the mappings.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::{AllocContextExResp, AllocContextReq, AllocContextResp, context_flags};
use vrdma_verbs::abi::wqe::unit;
use vrdma_verbs::abi::zerocopy::FromZeros;
use vrdma_verbs::{Channel, ChannelParts, MappedDoorbell, Sge};

use crate::context::{Context, Own};
use crate::errno::{self, Errno};
use crate::ffi::zeroed;
use crate::mapping::Mapping;
use crate::refs::Ref;
use crate::table::Table;
use crate::work::{ContextDoorbell, KernelPath, OwnChannel, Work};
use crate::{ffi, queries, uverbs};

/// Size of the table of shared receive queues.
///
/// A device has at most this many of them. So no two living ones have numbers that are equal modulo
/// this.
const SRQ_NUMBERS: u32 = 1 << 16;

/// [`ffi::ibv_get_context`] with driver data.
#[repr(C)]
struct Command {
    ibv: ffi::ibv_get_context,
    driver: AllocContextReq,
}

/// [`ffi::ib_uverbs_get_context_resp`] with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_get_context_resp,
    driver: AllocContextExResp,
}

/// How a process gets a context.
#[derive(Clone, Copy)]
pub enum Entry {
    /// It opens the device.
    Open {
        /// The context gets its own channel, if one is free.
        wants_channel: bool,
    },
    /// It imports a context that this process or another one has opened. A channel has one poster,
    /// so an import posts through the kernel's channel.
    Import,
}

/// Opens a device. The context does not have our operations yet.
///
/// # Safety
/// `device` and `cmd_fd` are as for `alloc_context` of libibverbs.
pub unsafe fn open(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    entry: Entry,
) -> Result<*mut ffi::verbs_context, Errno> {
    // SAFETY: by this function's own contract; the closure gets a context that libibverbs has made.
    unsafe { Context::make(device, cmd_fd, |verbs| set_up(verbs, cmd_fd, entry)) }
}

/// Sets up the provider's own part of a context.
///
/// # Safety
/// `verbs` is initialised.
unsafe fn set_up(verbs: *mut ffi::verbs_context, cmd_fd: c_int, entry: Entry) -> Result<Own, Errno> {
    let AllocContextExResp { base: reply, device_cap, .. } = match entry {
        // SAFETY: by this function's own contract.
        Entry::Open { wants_channel } => unsafe { allocate(verbs, wants_channel) }?,
        Entry::Import => {
            // The core's part of the context, which the kernel fills in.
            // SAFETY: by this function's own contract.
            errno::check(unsafe { ffi::ibv_cmd_query_context(&raw mut (*verbs).context, ptr::null_mut()) })?;
            uverbs::query_context(cmd_fd)?
        }
    };
    let lost = Ref::new(AtomicBool::new(false))?;
    // Each of the two paths to the device has its own limit for the size of a request.
    let (work, mappings, path_units) = if reply.flags.get() & context_flags::CHANNEL != 0 {
        let (channel, mappings) = own_channel(&reply, device_cap.get(), cmd_fd)?;
        let entries = u32::from(channel.entries());
        (Work::Own(OwnChannel::new(channel, lost.clone())), mappings, entries)
    } else {
        (Work::Kernel(KernelPath::new(cmd_fd)?), Vec::new(), uverbs::POST_MAX_UNITS as u32)
    };
    // The largest request limits what a QP may ask for. So posting need not check it.
    let units = reply.max_wqe_units.get().clamp(1, unit::MAX_UNITS_V1_1).min(path_units);
    let bytes = units * unit::UNIT_SIZE - unit::DATA_OFFSET;
    Ok(Own {
        work: Mutex::new(work),
        qps: Table::new(reply.max_qp.get())?,
        srqs: Table::new(SRQ_NUMBERS)?,
        max_inline: reply.max_inline.get().min(bytes),
        max_sge: bytes / size_of::<Sge>() as u32,
        // SAFETY: by this function's own contract.
        max_cqe: unsafe { queries::max_cqe(&raw mut (*verbs).context) }?,
        device_cap: if device_cap.get() == 0 { device_cap::V1_0 } else { device_cap.get() },
        lost,
        _mappings: mappings,
    })
}

/// Has the kernel make a context.
///
/// # Safety
/// `verbs` is initialised.
unsafe fn allocate(verbs: *mut ffi::verbs_context, wants_channel: bool) -> Result<AllocContextExResp, Errno> {
    let flags = if wants_channel { 0 } else { context_flags::NO_CHANNEL };
    let driver = AllocContextReq { flags: flags.into(), ..Default::default() };
    let mut command = Command { ibv: zeroed!(), driver };
    let mut reply = Reply { ibv: zeroed!(), driver: AllocContextExResp::new_zeroed() };
    // SAFETY: command and reply begin with what rdma-core expects, and are as long as stated.
    errno::check(unsafe {
        ffi::ibv_cmd_get_context(
            verbs,
            &raw mut command.ibv,
            size_of::<Command>(),
            &raw mut reply.ibv,
            size_of::<Reply>(),
        )
    })?;
    Ok(reply.driver)
}

/// Maps the channel.
///
/// The kernel is trusted. But if provider and driver do not fit together, that should fail here,
/// and not corrupt memory.
fn own_channel(
    reply: &AllocContextResp,
    device_cap: u64,
    cmd_fd: c_int,
) -> Result<(Channel<ContextDoorbell>, Vec<Mapping>), Errno> {
    let (entries, event_idx) = (reply.entries.get(), reply.flags.get() & context_flags::EVENT_IDX != 0);
    let count = usize::from(entries);
    let rings = Mapping::shared(cmd_fd, reply.rings_mmap.get(), reply.rings_len.get())?;
    let slots = Mapping::shared(cmd_fd, reply.slots_mmap.get(), reply.slots_len.get())?;
    let part =
        |mapping: &Mapping, offset: u32, len: usize| mapping.part(offset as usize, len).ok_or(libc::EPROTO);
    let avail = part(&rings, reply.avail_offset.get(), 6 + 2 * count)?;
    let used = part(&rings, reply.used_offset.get(), 6 + 8 * count)?;
    let first_slot = part(&slots, 0, unit::UNIT_SIZE as usize * count)?.cast();
    let mut mappings = vec![rings, slots];
    let doorbell = if reply.flags.get() & context_flags::DOORBELL != 0 {
        let page = Mapping::write_only(cmd_fd, reply.doorbell_mmap.get(), reply.doorbell_len.get())?;
        let register: NonNull<u16> = part(&page, reply.doorbell_offset.get(), 2)?.cast();
        if !register.is_aligned() {
            return Err(libc::EPROTO);
        }
        mappings.push(page);
        // SAFETY: inside the page and aligned; the page is kept as long as the channel.
        ContextDoorbell::Mapped(unsafe { MappedDoorbell::new(register, reply.queue.get()) })
    } else {
        ContextDoorbell::Ioctl(cmd_fd)
    };
    let lists = device_cap & device_cap::WQE_LIST != 0;
    let parts = ChannelParts { avail, used, slots: first_slot, entries, event_idx, lists, doorbell };
    // SAFETY: all parts are in mappings of the right length, which live as long as the channel. The
    // kernel has just bound the channel to this context, which alone uses it.
    let channel = unsafe { Channel::new(parts) }.ok_or(libc::EPROTO)?;
    Ok((channel, mappings))
}
