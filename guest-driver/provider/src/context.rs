//! Opening and closing a device.

use std::cell::UnsafeCell;
use std::ffi::{OsStr, c_int, c_void};
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::{AllocContextExResp, AllocContextReq, AllocContextResp, context_flags};
use vrdma_verbs::abi::wqe::unit;
use vrdma_verbs::abi::zerocopy::FromZeros;
use vrdma_verbs::{Channel, ChannelParts, MappedDoorbell, Sge};

use crate::errno::{self, Errno};
use crate::mapping::Mapping;
use crate::objects::zeroed;
use crate::qp::Qp;
use crate::refs::Ref;
use crate::srq::Srq;
use crate::table::Table;
use crate::work::{ContextDoorbell, KernelPath, OwnChannel, Work};
use crate::{ah, clock, cq, dm, ffi, mr, objects, pd, poll, post, qp, resize, srq, uverbs, windows, xrcd};

/// The driver ID of `vrdma.ko`, called `RDMA_DRIVER_UNKNOWN` in the kernel's enumeration.
const DRIVER_UNKNOWN: u32 = 0;

/// Size of the table of shared receive queues.
///
/// A device has at most this many of them. So no two living ones have numbers that are equal modulo
/// this.
const SRQ_NUMBERS: u32 = 1 << 16;

/// An open device. libibverbs allocates it (see [`open`]).
#[repr(C)]
pub struct Context {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_context>,
    own: Own,
}

/// The provider's own part of a [`Context`].
pub struct Own {
    /// The path of requests to the device. Each post takes this lock, and no lock of a QP: this
    /// lock protects the posting side of all QPs.
    pub work: Mutex<Work>,
    /// All QPs by their numbers.
    pub qps: Table<Qp>,
    /// All XRC shared receive queues by their numbers.
    pub srqs: Table<Srq>,
    /// Most bytes of inline data in a request.
    pub max_inline: u32,
    /// Most elements (SGEs) of a request.
    pub max_sge: u32,
    /// Most entries of a CQ.
    pub max_cqe: u32,
    /// Functions that both device and kernel driver have (`VRDMA_CAP_*`).
    pub device_cap: u64,
    /// The device is lost for good, so posts do not wait for it. This flag is outside of the lock
    /// of `work`, because a waiting post holds that lock.
    lost: Ref<AtomicBool>,
    /// The mappings that `work` points into. The field comes after `work`, so that it is dropped
    /// later.
    _mappings: Vec<Mapping>,
}

// Memory of calloc() is aligned for all types of C.
const _: () = assert!(align_of::<Context>() <= 16);

impl Deref for Context {
    type Target = Own;

    #[inline]
    fn deref(&self) -> &Own {
        &self.own
    }
}

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

impl Context {
    /// Returns the context that libibverbs calls `context`.
    ///
    /// # Safety
    /// `context` was opened by this provider and isn't closed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(context: *mut ffi::ibv_context) -> &'a Self {
        const OFFSET: usize = offset_of!(Context, verbs) + offset_of!(ffi::verbs_context, context);
        // SAFETY: `context` is the part at that offset of a Context.
        unsafe { &*context.byte_sub(OFFSET).cast::<Self>() }
    }
}

/// Opens a device: `alloc_context` of libibverbs, ibv_open_device(3).
pub unsafe extern "C" fn alloc_context(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    _private: *mut c_void,
) -> *mut ffi::verbs_context {
    let wants_channel = !is_set(std::env::var_os("VRDMA_NO_CHANNEL").as_deref());
    // SAFETY: the caller's device and file descriptor.
    errno::object(unsafe { open(device, cmd_fd, Entry::Open { wants_channel }) })
}

/// Imports a context: `import_context` of libibverbs, ibv_import_device(3).
pub unsafe extern "C" fn import_context(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
) -> *mut ffi::verbs_context {
    // SAFETY: the caller's device, and a file descriptor of a context that this provider has
    // opened, in this process or in another one.
    errno::object(unsafe { open(device, cmd_fd, Entry::Import) })
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

/// Whether an environment variable with this value is set: neither empty nor `0`.
fn is_set(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

unsafe extern "C" fn free_context(context: *mut ffi::ibv_context) {
    // SAFETY: libibverbs frees a context once, after its objects; open() made both parts.
    unsafe {
        let context = ptr::from_ref(Context::of(context)).cast_mut();
        ptr::drop_in_place(&raw mut (*context).own);
        discard(context);
    }
}

unsafe extern "C" fn async_event(context: *mut ffi::ibv_context, event: *mut ffi::ibv_async_event) {
    // SAFETY: the open context of libibverbs, and the event that it has just read.
    unsafe {
        if (*event).event_type == ffi::IBV_EVENT_DEVICE_FATAL {
            // Relaxed: posters read no other data with this flag.
            Context::of(context).lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Makes a context for [`alloc_context`] and [`import_context`].
///
/// # Safety
/// `device` and `cmd_fd` are as for `alloc_context`.
pub unsafe fn open(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    entry: Entry,
) -> Result<*mut ffi::verbs_context, Errno> {
    const OFFSET: *mut ffi::verbs_context = ptr::without_provenance_mut(offset_of!(Context, verbs));
    // SAFETY: the caller's device and file descriptor. The new memory is a Context except for our
    // part, which is written last. If that fails, what libibverbs made is undone.
    unsafe {
        let size = size_of::<Context>();
        let context: *mut Context =
            ffi::_verbs_init_and_alloc_context(device, cmd_fd, size, OFFSET, DRIVER_UNKNOWN).cast();
        if context.is_null() {
            return Err(errno::last());
        }
        let verbs = (*context).verbs.get();
        match set_up(verbs, cmd_fd, entry) {
            Ok(own) => {
                (&raw mut (*context).own).write(own);
                Ok(verbs)
            }
            Err(errno) => {
                discard(context);
                Err(errno)
            }
        }
    }
}

/// Undoes `_verbs_init_and_alloc_context`.
///
/// # Safety
/// Nobody uses the context any more, and it does not contain our part (any more).
unsafe fn discard(context: *mut Context) {
    // SAFETY: by this function's own contract; the memory is calloc's.
    unsafe {
        ffi::verbs_uninit_context((*context).verbs.get());
        libc::free(context.cast());
    }
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
    let own = Own {
        work: Mutex::new(work),
        qps: Table::new(reply.max_qp.get())?,
        srqs: Table::new(SRQ_NUMBERS)?,
        max_inline: reply.max_inline.get().min(bytes),
        max_sge: bytes / size_of::<Sge>() as u32,
        // SAFETY: by this function's own contract.
        max_cqe: unsafe { objects::max_cqe(&raw mut (*verbs).context) }?,
        device_cap: if device_cap.get() == 0 { device_cap::V1_0 } else { device_cap.get() },
        lost,
        _mappings: mappings,
    };
    // SAFETY: the table is copied.
    unsafe { ffi::verbs_set_ops(verbs, &ops()) };
    Ok(own)
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

/// Returns the operations of this provider. libibverbs has defaults for the others (mostly
/// EOPNOTSUPP).
fn ops() -> ffi::verbs_context_ops {
    ffi::verbs_context_ops {
        alloc_dm: Some(dm::alloc_dm),
        alloc_mw: Some(windows::alloc_mw),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        alloc_pd: Some(pd::alloc_pd),
        alloc_td: Some(pd::alloc_td),
        async_event: Some(async_event),
        attach_mcast: Some(ffi::ibv_cmd_attach_mcast),
        bind_mw: Some(windows::bind_mw),
        close_xrcd: Some(xrcd::close_xrcd),
        create_ah: Some(ah::create_ah),
        create_cq: Some(cq::create_cq),
        create_cq_ex: Some(cq::create_cq_ex),
        create_qp: Some(qp::create_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        create_srq: Some(srq::create_srq),
        create_srq_ex: Some(srq::create_srq_ex),
        dealloc_mw: Some(windows::dealloc_mw),
        dealloc_pd: Some(pd::dealloc_pd),
        dealloc_td: Some(pd::dealloc_td),
        dereg_mr: Some(mr::dereg_mr),
        destroy_ah: Some(ah::destroy_ah),
        destroy_cq: Some(cq::destroy_cq),
        destroy_qp: Some(qp::destroy_qp),
        destroy_srq: Some(srq::destroy_srq),
        detach_mcast: Some(ffi::ibv_cmd_detach_mcast),
        free_context: Some(free_context),
        free_dm: Some(dm::free_dm),
        get_srq_num: Some(srq::get_srq_num),
        import_dm: Some(dm::import_dm),
        import_mr: Some(mr::import_mr),
        import_pd: Some(pd::import_pd),
        modify_cq: Some(cq::modify_cq),
        modify_qp: Some(qp::modify_qp),
        modify_srq: Some(srq::modify_srq),
        open_qp: Some(qp::open_qp),
        open_xrcd: Some(xrcd::open_xrcd),
        poll_cq: Some(poll::poll_cq),
        post_recv: Some(post::post_recv),
        post_send: Some(post::post_send),
        post_srq_recv: Some(post::post_srq_recv),
        query_device_ex: Some(objects::query_device_ex),
        query_port: Some(objects::query_port),
        query_qp: Some(qp::query_qp),
        query_rt_values: Some(clock::query_rt_values),
        query_srq: Some(srq::query_srq),
        reg_dm_mr: Some(dm::reg_dm_mr),
        reg_mr: Some(mr::reg_mr),
        req_notify_cq: Some(poll::req_notify_cq),
        rereg_mr: Some(mr::rereg_mr),
        resize_cq: Some(resize::resize_cq),
        unimport_dm: Some(dm::unimport_dm),
        unimport_mr: Some(mr::unimport_mr),
        unimport_pd: Some(pd::unimport_pd),
        ..zeroed!()
    }
}

#[cfg(test)]
mod tests {
    use super::is_set;

    #[test]
    fn variables_that_ask() {
        for (value, asks) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(is_set(value.map(str::as_ref)), asks, "{value:?}");
        }
    }
}
