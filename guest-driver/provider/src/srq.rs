//! Shared receive queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use vrdma_verbs::abi::user::UserCreateSrqResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::context::Context;
use crate::errno::{Errno, boxed, check, code, lock, object};
use crate::ffi;
use crate::objects::zeroed;
use crate::pd::Pd;
use crate::refs::Ref;
use crate::slots::Slots;

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_srq>,
    /// Its number.
    pub srqn: u32,
    /// Most elements of a request.
    pub max_sge: u32,
    /// Its outstanding requests. Locked for moments by each post, under the lock of [`crate::context::Own::work`], and by each poll that finds a
    /// completion of it, under that of the CQ.
    pub slots: Mutex<Slots>,
    _pd: Ref<Pd>,
}

impl Srq {
    /// The queue that libibverbs calls `srq`.
    ///
    /// # Safety
    /// `srq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(srq: *mut ffi::ibv_srq) -> &'a Self {
        // SAFETY: ibv_srq is what verbs_srq, the first field, begins with.
        unsafe { &*srq.cast::<Self>() }
    }

    /// The context it belongs to.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_srq(); a context outlives its objects.
        unsafe { Context::of((*self.ibv()).context) }
    }

    fn ibv(&self) -> *mut ffi::ibv_srq {
        self.verbs.get().cast()
    }
}

/// As [`ffi::ib_uverbs_create_srq_resp`] with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_create_srq_resp,
    driver: UserCreateSrqResp,
}

pub unsafe extern "C" fn create_srq(
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_srq_init_attr,
) -> *mut ffi::ibv_srq {
    // SAFETY: the caller's PD and attributes.
    object(unsafe { create(pd, &mut *attr) })
}

/// libibverbs calls it for what [`create_srq`] is not enough for, so usually for what there is not.
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_srq_init_attr_ex,
) -> *mut ffi::ibv_srq {
    let create = || -> Result<*mut ffi::ibv_srq, Errno> {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &mut *attr };
        let has = |bit| attr.comp_mask & bit != 0;
        let known = ffi::IBV_SRQ_INIT_ATTR_TYPE | ffi::IBV_SRQ_INIT_ATTR_PD;
        let is_basic = !has(ffi::IBV_SRQ_INIT_ATTR_TYPE) || attr.srq_type == ffi::IBV_SRQT_BASIC;
        if !is_basic || attr.comp_mask & !known != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if !has(ffi::IBV_SRQ_INIT_ATTR_PD) {
            return Err(libc::EINVAL);
        }
        let mut basic = ffi::ibv_srq_init_attr { srq_context: attr.srq_context, attr: attr.attr };
        // SAFETY: the caller's PD.
        let srq = unsafe { create(attr.pd, &mut basic) }?;
        attr.attr = basic.attr;
        Ok(srq)
    };
    object(create())
}

/// # Safety
/// The caller's PD belongs to an open context.
unsafe fn create(
    pd: *mut ffi::ibv_pd,
    attr: &mut ffi::ibv_srq_init_attr,
) -> Result<*mut ffi::ibv_srq, Errno> {
    // SAFETY: by this function's own contract, the PD is alive, and of a context of ours.
    let context = unsafe { Context::of((*pd).context) };
    if attr.attr.max_sge > context.max_sge {
        return Err(libc::EINVAL);
    }
    let mut srq = boxed(Srq {
        verbs: UnsafeCell::new(zeroed!()),
        srqn: 0,
        max_sge: attr.attr.max_sge,
        slots: Mutex::new(Slots::new(0)?),
        // SAFETY: by this function's own contract.
        _pd: unsafe { Pd::of(pd) },
    })?;
    let mut command: ffi::ibv_create_srq = zeroed!();
    let mut reply = Reply { ibv: zeroed!(), driver: UserCreateSrqResp::new_zeroed() };
    // SAFETY: the caller's PD and attributes; the reply is as long as said.
    check(unsafe {
        ffi::ibv_cmd_create_srq(
            pd,
            srq.ibv(),
            attr,
            &raw mut command,
            size_of_val(&command),
            &raw mut reply.ibv,
            size_of::<Reply>(),
        )
    })?;
    srq.srqn = reply.driver.srqn.get();
    // The kernel has found it to be within the limits.
    if let Err(errno) = lock(&srq.slots).set_limit(attr.attr.max_wr) {
        // SAFETY: made just now, and nobody knows it.
        unsafe { ffi::ibv_cmd_destroy_srq(srq.ibv()) };
        return Err(errno);
    }
    Ok(Box::into_raw(srq).cast())
}

pub unsafe extern "C" fn modify_srq(
    ibv: *mut ffi::ibv_srq,
    attr: *mut ffi::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue and attributes.
    let (srq, asked) = unsafe { (Srq::of(ibv), (*attr).max_wr) };
    let modify = || {
        let mut command: ffi::ibv_modify_srq = zeroed!();
        // SAFETY: the caller's queue and attributes.
        check(unsafe { ffi::ibv_cmd_modify_srq(ibv, attr, mask, &raw mut command, size_of_val(&command)) })
    };
    code(if mask as u32 & ffi::IBV_SRQ_MAX_WR == 0 { modify() } else { resize(srq, asked, modify) })
}

/// Resizes a queue by `modify`, so that never more receives are posted than the device takes.
fn resize(srq: &Srq, asked: u32, modify: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let context = srq.context();
    // One at a time.
    let _control = lock(&context.qps.control);
    let before = lock(&srq.slots).limit();
    if asked < before {
        // Under this lock whatever has a slot is in the channel, which the device takes before the command.
        let _work = lock(&context.work);
        lock(&srq.slots).set_limit(asked)?;
    }
    let result = modify();
    let limit = if result.is_ok() { asked } else { before };
    result.and(lock(&srq.slots).set_limit(limit))
}

pub unsafe extern "C" fn query_srq(srq: *mut ffi::ibv_srq, attr: *mut ffi::ibv_srq_attr) -> c_int {
    let mut command: ffi::ibv_query_srq = zeroed!();
    // SAFETY: the caller's queue and attributes.
    code(check(unsafe { ffi::ibv_cmd_query_srq(srq, attr, &raw mut command, size_of_val(&command)) }))
}

pub unsafe extern "C" fn get_srq_num(srq: *mut ffi::ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the caller's queue, and place for its number.
    unsafe { ptr::write(number, Srq::of(srq).srqn) };
    0
}

pub unsafe extern "C" fn destroy_srq(srq: *mut ffi::ibv_srq) -> c_int {
    // SAFETY: made by create(), and unused once the kernel has let it go: no QP has it any more.
    unsafe { code(check(ffi::ibv_cmd_destroy_srq(srq)).map(|()| drop(Box::from_raw(srq.cast::<Srq>())))) }
}
