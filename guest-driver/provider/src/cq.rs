//! Completion queues.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use vrdma_verbs::abi::control::{device_cap, limit};
use vrdma_verbs::abi::cqe::flags;
use vrdma_verbs::abi::user::{UserCreateCqReq, UserCreateCqResp};
use vrdma_verbs::abi::zerocopy::FromZeros;
use vrdma_verbs::{Cq as Queue, CqLayout, Cqe};

use crate::context::Context;
use crate::errno::{Errno, boxed, check, code, object};
use crate::ffi;
use crate::memory::Pages;
use crate::objects::zeroed;
use crate::pd::{Pd, Resource};
use crate::poll_ex::{self, PollEx};
use crate::qp::Qp;
use crate::refs::Ref;
use crate::ring_lock::RingLock;

/// A completion queue.
#[repr(C)]
pub struct Cq {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_cq>,
    /// State of ibv_start_poll(). The field comes before `ring`, to which it points, so that it is
    /// dropped first.
    pub poll_ex: PollEx,
    /// The ring. Each poll and each arm locks it.
    pub ring: RingLock,
    /// The CQEs have a time stamp.
    pub is_timed: bool,
    /// Held during a resize. `ring` is locked under it, but not while the resize waits for the
    /// device.
    pub resizing: Mutex<()>,
    /// The parent domain of the queue, if it has one. The field comes after the memory from its
    /// allocators.
    pub domain: Option<Ref<Pd>>,
}

/// Value of [`Ring::last`] if there is no QP.
const NO_QP: (u32, *const Qp) = (limit::NONE, ptr::null());

/// State of a CQ that polls work on.
pub struct Ring {
    /// The queue in memory that the device writes.
    pub queue: Queue,
    /// Number of the QP of the last CQE, and the QP or NULL. The next CQE is often for that QP,
    /// which uses this CQ.
    pub last: (u32, *const Qp),
    /// CQEs left over from former rings with their time stamps, the oldest first. They come before
    /// the CQEs in `queue`.
    pub held: VecDeque<(Cqe, u64)>,
    /// Memory of `queue`. The field comes after it, so that it is dropped later.
    pub memory: Pages,
    /// Memory of the next ring during a resize, or after a resize that the device did not answer.
    pub successor: Option<Pages>,
}

// SAFETY: `last` is only dereferenced under the lock. It is cleared under the lock before the QP is
// freed.
unsafe impl Send for Ring {}

impl Ring {
    /// Takes the next CQE, and its time stamp, or 0 if it has none.
    ///
    /// The device may reuse the entry only after [`Ring::queue`] is published.
    #[inline]
    pub fn take(&mut self) -> Option<(Cqe, u64)> {
        match self.held.pop_front() {
            None => self.queue.take_timed(),
            held => held,
        }
    }

    /// Invalidates the completions of `qp` that are still in the ring.
    ///
    /// If they include receives of its shared queue, these receives are completed.
    pub fn clean(&mut self, qp: &Qp) {
        if ptr::eq(self.last.1, qp) {
            self.last = NO_QP;
        }
        let complete = |cqe: &Cqe| {
            if cqe.flags & flags::RECV != 0 && !qp.has_receive_queue() {
                qp.complete_recv(cqe.wqe_id.get());
            }
        };
        // XRC receives belong to a shared queue, whichever QP took them.
        let is_its = |cqe: &Cqe| cqe.qpn.get() == qp.qpn && cqe.flags & flags::XRC == 0;
        self.held.retain(|(cqe, _)| {
            if is_its(cqe) {
                complete(cqe);
            }
            !is_its(cqe)
        });
        self.queue.rename(is_its, limit::NONE, |cqe| complete(&cqe));
    }

    /// Invalidates the completions of a destroyed XRC shared receive queue that are still in the
    /// ring.
    pub fn clean_srq(&mut self, srqn: u32) {
        let is_its = |cqe: &Cqe| cqe.flags & flags::XRC != 0 && cqe.src_qpn.get() == srqn;
        self.held.retain(|(cqe, _)| !is_its(cqe));
        self.queue.rename(is_its, limit::NONE, |_| ());
    }
}

impl Cq {
    /// Returns the queue that libibverbs calls `cq`.
    ///
    /// # Safety
    /// `cq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(cq: *mut ffi::ibv_cq) -> &'a Self {
        // SAFETY: `ibv_cq` is the beginning of `verbs_cq`, the first field.
        unsafe { &*cq.cast::<Self>() }
    }

    /// Returns the context of the queue.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_cq(); a context outlives its
        // objects.
        unsafe { Context::of((*self.verbs.get().cast::<ffi::ibv_cq>()).context) }
    }
}

/// Flags that request CQEs with a time stamp.
const TIMESTAMPS: u64 =
    (ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) as u64;

/// [`ffi::ibv_create_cq`] with driver data.
#[repr(C)]
struct Command {
    ibv: ffi::ibv_create_cq,
    driver: UserCreateCqReq,
}

/// [`ffi::ib_uverbs_create_cq_resp`] with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_create_cq_resp,
    driver: UserCreateCqResp,
}

/// [`ffi::ibv_create_cq_ex`] with driver data.
#[repr(C)]
struct CommandEx {
    ibv: ffi::ibv_create_cq_ex,
    driver: UserCreateCqReq,
}

/// [`ffi::ib_uverbs_ex_create_cq_resp`] with driver data.
#[repr(C)]
struct ReplyEx {
    ibv: ffi::ib_uverbs_ex_create_cq_resp,
    driver: UserCreateCqResp,
}

pub unsafe extern "C" fn create_cq(
    context: *mut ffi::ibv_context,
    cqes: c_int,
    channel: *mut ffi::ibv_comp_channel,
    vector: c_int,
) -> *mut ffi::ibv_cq {
    let create = || -> Result<*mut ffi::ibv_cq, Errno> {
        let asked = Asked { cqes, is_timed: false, is_shared: true };
        // SAFETY: the caller's open context; any number of threads may use the queue.
        let (cq, driver) = unsafe { prepare(Context::of(context), asked, None) }?;
        let mut command = Command { ibv: zeroed!(), driver };
        let mut reply = Reply { ibv: zeroed!(), driver: UserCreateCqResp::new_zeroed() };
        // SAFETY: the caller's context and channel. Command and reply begin with what rdma-core
        // expects, and are as long as stated.
        check(unsafe {
            ffi::ibv_cmd_create_cq(
                context,
                cqes,
                channel,
                vector,
                cq.verbs.get().cast(),
                &raw mut command.ibv,
                size_of::<Command>(),
                &raw mut reply.ibv,
                size_of::<Reply>(),
            )
        })?;
        Ok(Box::into_raw(cq).cast())
    };
    object(create())
}

pub unsafe extern "C" fn create_cq_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    let create = || -> Result<*mut ffi::ibv_cq_ex, Errno> {
        // SAFETY: the caller's attributes and open context.
        let (attr, own) = unsafe { (&*attr, Context::of(context)) };
        let asked = Asked::of(attr, own.device_cap)?;
        // SAFETY: the caller's parent domain.
        let domain = unsafe { domain(context, attr) }?;
        // SAFETY: by a flag the program promises that a single thread uses the queue.
        let (mut cq, driver) = unsafe { prepare(own, asked, domain) }?;
        if attr.wc_flags & u64::from(ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0 {
            // SAFETY: the caller's context.
            cq.poll_ex.compare_clocks(unsafe { (*context).cmd_fd })?;
        }
        let mut command = CommandEx { ibv: zeroed!(), driver };
        let mut reply = ReplyEx { ibv: zeroed!(), driver: UserCreateCqResp::new_zeroed() };
        // SAFETY: the caller's context and attributes. Command and reply begin with what rdma-core
        // expects, and are as long as stated.
        check(unsafe {
            ffi::ibv_cmd_create_cq_ex(
                context,
                attr,
                cq.verbs.get(),
                &raw mut command.ibv,
                size_of::<CommandEx>(),
                &raw mut reply.ibv,
                size_of::<ReplyEx>(),
                0,
            )
        })?;
        let is_timed = cq.is_timed;
        // SAFETY: `ibv_cq_ex` begins with `ibv_cq`. The rest is zero, which means no functions.
        poll_ex::set_functions(unsafe { &mut cq.verbs.get_mut().__bindgen_anon_1.cq_ex }, is_timed);
        Ok(Box::into_raw(cq).cast())
    };
    object(create())
}

/// Requested properties of a new queue.
#[derive(Clone, Copy)]
struct Asked {
    /// Least number of entries.
    cqes: c_int,
    /// Completions have a time stamp.
    is_timed: bool,
    /// Several threads use the queue.
    is_shared: bool,
}

impl Asked {
    /// Reads the attributes. Fails with EOPNOTSUPP if they request an unsupported function.
    fn of(attr: &ffi::ibv_cq_init_attr_ex, device_cap: u64) -> Result<Self, Errno> {
        let has_flags = attr.comp_mask & ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        let flags = if has_flags { attr.flags } else { 0 };
        let mut known = ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if device_cap & device_cap::CQ_IGNORE_OVERRUN != 0 {
            known |= ffi::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        }
        let mut fields = u64::from(ffi::IBV_WC_STANDARD_FLAGS);
        if device_cap & device_cap::CQ_TIMESTAMP != 0 {
            fields |= TIMESTAMPS;
        }
        if attr.wc_flags & !fields != 0
            || attr.comp_mask & !(ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS | ffi::IBV_CQ_INIT_ATTR_MASK_PD) != 0
            || flags & !known != 0
        {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(Self {
            cqes: c_int::try_from(attr.cqe).map_err(|_| libc::EINVAL)?,
            is_timed: attr.wc_flags & TIMESTAMPS != 0,
            is_shared: flags & ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED == 0,
        })
    }
}

/// Returns the parent domain for a new queue, if the attributes name one.
///
/// # Safety
/// The domain is alive.
unsafe fn domain(
    context: *mut ffi::ibv_context,
    attr: &ffi::ibv_cq_init_attr_ex,
) -> Result<Option<Ref<Pd>>, Errno> {
    if attr.comp_mask & ffi::IBV_CQ_INIT_ATTR_MASK_PD == 0 {
        return Ok(None);
    }
    if attr.parent_domain.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by this function's own contract.
    let domain = unsafe { Pd::of(attr.parent_domain) };
    if domain.is_parent() && domain.context() == context { Ok(Some(domain)) } else { Err(libc::EINVAL) }
}

/// Returns the layout of a queue with at least `cqes` entries.
///
/// Fails with EINVAL if the device has no such queue. The kernel would refuse it too, but only
/// after its memory was allocated.
pub fn layout(cqes: c_int, context: &Context) -> Result<CqLayout, Errno> {
    let cqes = u32::try_from(cqes).map_err(|_| libc::EINVAL)?;
    if cqes == 0 || cqes > context.max_cqe {
        return Err(libc::EINVAL);
    }
    CqLayout::for_entries(cqes).ok_or(libc::EINVAL)
}

/// Makes a queue that the kernel does not know yet, and the driver data for the kernel.
///
/// # Safety
/// If it is not shared, a single thread at a time uses the queue and all QPs that use it.
unsafe fn prepare(
    context: &Context,
    Asked { cqes, is_timed, is_shared }: Asked,
    domain: Option<Ref<Pd>>,
) -> Result<(Box<Cq>, UserCreateCqReq), Errno> {
    let layout = layout(cqes, context)?.with_timestamps(is_timed);
    let memory = Pages::new(domain.as_ref(), layout.size(), Resource::Cq)?;
    // SAFETY: zeroed, page-aligned memory of that size, which lives as long as the queue.
    let queue = unsafe { Queue::new(memory.start(), layout) }.ok_or(libc::EINVAL)?;
    let driver = UserCreateCqReq {
        buf: (memory.start().as_ptr().expose_provenance() as u64).into(),
        entries: layout.entries().into(),
        ..UserCreateCqReq::new_zeroed()
    };
    let ring = Ring { queue, last: NO_QP, held: VecDeque::new(), memory, successor: None };
    let cq = boxed(Cq {
        verbs: UnsafeCell::new(zeroed!()),
        poll_ex: PollEx::new(),
        // SAFETY: by this function's own contract.
        ring: unsafe { RingLock::new(ring, is_shared) },
        is_timed,
        resizing: Mutex::new(()),
        domain,
    })?;
    Ok((cq, driver))
}

pub unsafe extern "C" fn modify_cq(cq: *mut ffi::ibv_cq, attr: *mut ffi::ibv_modify_cq_attr) -> c_int {
    let mut command: ffi::ibv_modify_cq = zeroed!();
    // SAFETY: the caller's CQ and attributes; the command is as long as stated.
    code(check(unsafe { ffi::ibv_cmd_modify_cq(cq, attr, &raw mut command, size_of_val(&command)) }))
}

pub unsafe extern "C" fn destroy_cq(cq: *mut ffi::ibv_cq) -> c_int {
    // SAFETY: made by create_cq() or create_cq_ex(), and unused after the kernel has destroyed it:
    // the device does not write to it any more.
    unsafe { code(check(ffi::ibv_cmd_destroy_cq(cq)).map(|()| drop(Box::from_raw(cq.cast::<Cq>())))) }
}
