//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use vrdma_verbs::abi::control::limit;
use vrdma_verbs::abi::cqe::flags;
use vrdma_verbs::abi::user::{UserCreateCqReq, UserCreateCqResp};
use vrdma_verbs::abi::zerocopy::FromZeros;
use vrdma_verbs::{Cq as Queue, CqLayout};

use crate::context::Context;
use crate::errno::{Errno, boxed, check, code, object};
use crate::ffi;
use crate::mapping::Mapping;
use crate::objects::zeroed;
use crate::poll_ex::{self, PollEx};
use crate::qp::Qp;

/// A completion queue.
#[repr(C)]
pub struct Cq {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_cq>,
    /// State of ibv_start_poll(). Before `ring`, to which it points, so that it is dropped first.
    pub poll_ex: PollEx,
    /// Locked by each poll and each arm.
    pub ring: Mutex<Ring>,
    /// What `ring` points into; after it, so that it is dropped last.
    _memory: Mapping,
}

/// What a poll works on.
pub struct Ring {
    /// The queue itself.
    pub queue: Queue,
    /// QP of the last CQE, or NULL: the next CQE is often for the same QP.
    pub last: *const Qp,
}

// SAFETY: `last` is only followed under the lock, under which it is also cleared before the QP is freed.
unsafe impl Send for Ring {}

impl Ring {
    /// Invalidates the completions of `qp` that are still in the ring. Receives of its shared queue among them have completed.
    pub fn clean(&mut self, qp: &Qp) {
        if ptr::eq(self.last, qp) {
            self.last = ptr::null();
        }
        self.queue.rename(qp.qpn, limit::NONE, |cqe| {
            if cqe.flags & flags::RECV != 0 && !qp.has_receive_queue() {
                qp.complete_recv(cqe.wqe_id.get());
            }
        });
    }
}

impl Cq {
    /// The queue that libibverbs calls `cq`.
    ///
    /// # Safety
    /// `cq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(cq: *mut ffi::ibv_cq) -> &'a Self {
        // SAFETY: ibv_cq is what verbs_cq, the first field, begins with.
        unsafe { &*cq.cast::<Self>() }
    }

    /// The context it belongs to.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_cq(); a context outlives its objects.
        unsafe { Context::of((*self.verbs.get().cast::<ffi::ibv_cq>()).context) }
    }
}

/// As [`ffi::ibv_create_cq`] with driver data.
#[repr(C)]
struct Command {
    ibv: ffi::ibv_create_cq,
    driver: UserCreateCqReq,
}

/// As [`ffi::ib_uverbs_create_cq_resp`] with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_create_cq_resp,
    driver: UserCreateCqResp,
}

pub unsafe extern "C" fn create_cq(
    context: *mut ffi::ibv_context,
    cqes: c_int,
    channel: *mut ffi::ibv_comp_channel,
    vector: c_int,
) -> *mut ffi::ibv_cq {
    // SAFETY: the caller's context and channel.
    object(unsafe { create(context, cqes, channel, vector) }.map(|cq| Box::into_raw(cq).cast()))
}

pub unsafe extern "C" fn create_cq_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    let create = || -> Result<*mut ffi::ibv_cq_ex, Errno> {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &*attr };
        let has_flags = attr.comp_mask & ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
        // That a single thread polls need not be made use of.
        if attr.wc_flags & !u64::from(ffi::IBV_WC_STANDARD_FLAGS) != 0
            || attr.comp_mask & !ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
            || has_flags && attr.flags & !ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
        {
            return Err(libc::EOPNOTSUPP);
        }
        let cqes = c_int::try_from(attr.cqe).map_err(|_| libc::EINVAL)?;
        // SAFETY: the caller's context and channel.
        let mut cq = unsafe { create(context, cqes, attr.channel, attr.comp_vector as c_int) }?;
        // SAFETY: ibv_cq_ex begins with ibv_cq, and what follows is zero: no functions.
        poll_ex::set_functions(unsafe { &mut cq.verbs.get_mut().__bindgen_anon_1.cq_ex });
        Ok(Box::into_raw(cq).cast())
    };
    object(create())
}

/// # Safety
/// As for the arguments of [`create_cq`].
unsafe fn create(
    context: *mut ffi::ibv_context,
    cqes: c_int,
    channel: *mut ffi::ibv_comp_channel,
    vector: c_int,
) -> Result<Box<Cq>, Errno> {
    let cqes = u32::try_from(cqes).ok().filter(|cqes| *cqes > 0).ok_or(libc::EINVAL)?;
    let layout = CqLayout::for_entries(cqes).ok_or(libc::EINVAL)?;
    let memory = Mapping::anonymous(layout.size())?;
    // SAFETY: zeroed, page-aligned memory of that size which lives as long as the queue.
    let queue = unsafe { Queue::new(memory.start(), layout) }.ok_or(libc::EINVAL)?;
    let mut command = Command {
        ibv: zeroed!(),
        driver: UserCreateCqReq {
            buf: (memory.start().as_ptr().expose_provenance() as u64).into(),
            entries: layout.entries().into(),
            ..UserCreateCqReq::new_zeroed()
        },
    };
    let mut reply = Reply { ibv: zeroed!(), driver: UserCreateCqResp::new_zeroed() };
    let cq = boxed(Cq {
        verbs: UnsafeCell::new(zeroed!()),
        poll_ex: PollEx::new(),
        ring: Mutex::new(Ring { queue, last: ptr::null() }),
        _memory: memory,
    })?;
    // SAFETY: command and reply begin with what rdma-core expects and are as long as said.
    check(unsafe {
        ffi::ibv_cmd_create_cq(
            context,
            cqes as c_int,
            channel,
            vector,
            cq.verbs.get().cast(),
            &raw mut command.ibv,
            size_of::<Command>(),
            &raw mut reply.ibv,
            size_of::<Reply>(),
        )
    })?;
    Ok(cq)
}

pub unsafe extern "C" fn destroy_cq(cq: *mut ffi::ibv_cq) -> c_int {
    // SAFETY: made by create(), and unused once the kernel has let it go: the device writes no more.
    unsafe { code(check(ffi::ibv_cmd_destroy_cq(cq)).map(|()| drop(Box::from_raw(cq.cast::<Cq>())))) }
}
