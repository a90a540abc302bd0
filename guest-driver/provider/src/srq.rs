//! Shared receive queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::UserCreateSrqResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{Errno, boxed, check, code, lock, object};
use crate::ffi;
use crate::objects::zeroed;
use crate::pd::Pd;
use crate::refs::Ref;
use crate::slots::Slots;
use crate::table::Numbered;

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_srq>,
    /// Number of the queue.
    pub srqn: u32,
    /// Most SGEs of a request.
    pub max_sge: u32,
    /// Outstanding receives. Each post locks them for a moment, under the lock of
    /// [`crate::context::Own::work`]. So does each poll that finds a completion of the queue, under
    /// the lock of the CQ.
    pub slots: Mutex<Slots>,
    /// Held during a resize.
    resizing: Mutex<()>,
    /// CQ of the receives of an XRC queue; otherwise NULL.
    cq: *mut ffi::ibv_cq,
    _pd: Ref<Pd>,
}

impl Srq {
    /// Returns the queue that libibverbs calls `srq`.
    ///
    /// # Safety
    /// `srq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(srq: *mut ffi::ibv_srq) -> &'a Self {
        // SAFETY: `ibv_srq` is the beginning of `verbs_srq`, the first field.
        unsafe { &*srq.cast::<Self>() }
    }

    /// Returns the context of the queue.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_srq(); a context outlives its
        // objects.
        unsafe { Context::of((*self.ibv()).context) }
    }

    fn ibv(&self) -> *mut ffi::ibv_srq {
        self.verbs.get().cast()
    }
}

impl Numbered for Srq {
    fn number(&self) -> u32 {
        self.srqn
    }

    fn cqs(&self) -> [*const Cq; 2] {
        // A `Cq` begins with the `ibv_cq` of libibverbs.
        [self.cq.cast_const().cast(), ptr::null()]
    }
}

/// [`ffi::ib_uverbs_create_srq_resp`] with driver data.
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

/// Makes a queue by extended attributes.
///
/// libibverbs calls it if [`create_srq`] is not enough: for XRC queues, and for kinds that are not
/// supported.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_srq_init_attr_ex,
) -> *mut ffi::ibv_srq {
    let create = || -> Result<*mut ffi::ibv_srq, Errno> {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &mut *attr };
        let has = |bit| attr.comp_mask & bit != 0;
        if has(ffi::IBV_SRQ_INIT_ATTR_TYPE) && attr.srq_type == ffi::IBV_SRQT_XRC {
            // SAFETY: the caller's context and attributes.
            return unsafe { create_xrc(context, attr) };
        }
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

/// Makes a queue that the kernel does not know yet.
///
/// # Safety
/// The caller's PD is alive.
unsafe fn prepare(pd: *mut ffi::ibv_pd, max_sge: u32, cq: *mut ffi::ibv_cq) -> Result<Box<Srq>, Errno> {
    boxed(Srq {
        verbs: UnsafeCell::new(zeroed!()),
        srqn: 0,
        max_sge,
        slots: Mutex::new(Slots::new(0)?),
        resizing: Mutex::new(()),
        cq,
        // SAFETY: by this function's own contract.
        _pd: unsafe { Pd::of(pd) },
    })
}

/// Makes an XRC queue, and registers it.
///
/// # Safety
/// `ibv_context` is the caller's open context. The objects in `attr` are alive.
unsafe fn create_xrc(
    ibv_context: *mut ffi::ibv_context,
    attr: &mut ffi::ibv_srq_init_attr_ex,
) -> Result<*mut ffi::ibv_srq, Errno> {
    let needed = ffi::IBV_SRQ_INIT_ATTR_TYPE
        | ffi::IBV_SRQ_INIT_ATTR_PD
        | ffi::IBV_SRQ_INIT_ATTR_XRCD
        | ffi::IBV_SRQ_INIT_ATTR_CQ;
    // SAFETY: by this function's own contract.
    let context = unsafe { Context::of(ibv_context) };
    if attr.comp_mask & !needed != 0 || context.device_cap & device_cap::XRC == 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let is_named = !attr.pd.is_null() && !attr.xrcd.is_null() && !attr.cq.is_null();
    if attr.comp_mask != needed || !is_named || attr.attr.max_sge > context.max_sge {
        return Err(libc::EINVAL);
    }
    // SAFETY: by this function's own contract.
    let make = || unsafe { make_xrc(ibv_context, attr) };
    // SAFETY: made just now, and nobody knows it.
    let undo = |srq: Box<Srq>| _ = unsafe { ffi::ibv_cmd_destroy_srq(srq.ibv()) };
    Ok(Box::into_raw(context.srqs.register(make, undo)?).cast())
}

/// Has the kernel make an XRC queue.
///
/// # Safety
/// `ibv_context` is the caller's open context. The objects in `attr` are present and alive.
unsafe fn make_xrc(
    ibv_context: *mut ffi::ibv_context,
    attr: &mut ffi::ibv_srq_init_attr_ex,
) -> Result<Box<Srq>, Errno> {
    // SAFETY: by this function's own contract.
    let mut srq = unsafe { prepare(attr.pd, attr.attr.max_sge, attr.cq) }?;
    let mut command: ffi::ibv_create_xsrq = zeroed!();
    let mut reply = Reply { ibv: zeroed!(), driver: UserCreateSrqResp::new_zeroed() };
    // SAFETY: the caller's context and attributes; the reply is as long as stated.
    check(unsafe {
        ffi::ibv_cmd_create_srq_ex(
            ibv_context,
            srq.verbs.get(),
            attr,
            &raw mut command,
            size_of_val(&command),
            &raw mut reply.ibv,
            size_of::<Reply>(),
        )
    })?;
    srq.srqn = reply.driver.srqn.get();
    // The kernel has checked that the number is within the limits.
    if let Err(errno) = lock(&srq.slots).set_limit(attr.attr.max_wr) {
        // SAFETY: made just now, and nobody knows it.
        unsafe { ffi::ibv_cmd_destroy_srq(srq.ibv()) };
        return Err(errno);
    }
    Ok(srq)
}

/// Makes a basic queue.
///
/// # Safety
/// The caller's PD belongs to an open context.
unsafe fn create(
    pd: *mut ffi::ibv_pd,
    attr: &mut ffi::ibv_srq_init_attr,
) -> Result<*mut ffi::ibv_srq, Errno> {
    // SAFETY: by this function's own contract, the PD is alive, and belongs to a context of ours.
    let context = unsafe { Context::of((*pd).context) };
    if attr.attr.max_sge > context.max_sge {
        return Err(libc::EINVAL);
    }
    // SAFETY: by this function's own contract.
    let mut srq = unsafe { prepare(pd, attr.attr.max_sge, ptr::null_mut()) }?;
    let mut command: ffi::ibv_create_srq = zeroed!();
    let mut reply = Reply { ibv: zeroed!(), driver: UserCreateSrqResp::new_zeroed() };
    // SAFETY: the caller's PD and attributes; the reply is as long as stated.
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
    // The kernel has checked that the number is within the limits.
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
    // One resize at a time.
    let _resizing = lock(&srq.resizing);
    let before = lock(&srq.slots).limit();
    if asked < before {
        // Under this lock, each receive that has a slot is in the channel. The device takes it
        // before the command.
        let _work = lock(&context.work);
        lock(&srq.slots).set_limit(asked)?;
    }
    let result = modify();
    let limit = match result {
        Ok(()) => asked,
        // It is unknown whether the command was, or will be, executed.
        Err(libc::EIO) => before.min(asked),
        Err(_) => before,
    };
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

pub unsafe extern "C" fn destroy_srq(ibv: *mut ffi::ibv_srq) -> c_int {
    // SAFETY: the caller's queue, which nobody uses from now on. If it is an XRC queue, polls of
    // its CQ may still find it.
    let srq = unsafe { Srq::of(ibv) };
    // No lock is held: this waits until the program has acknowledged the queue's events
    // (ibv_destroy_srq(3)).
    // SAFETY: the caller's queue.
    let result = check(unsafe { ffi::ibv_cmd_destroy_srq(ibv) });
    if result.is_ok() {
        if !srq.cq.is_null() {
            let srqs = &srq.context().srqs;
            srqs.hide(srq.srqn);
            // After this no poll uses the queue: later polls do not find it, and earlier ones have
            // ended.
            // SAFETY: CQs outlive the queues that use them.
            unsafe { Cq::of(srq.cq) }.ring.lock().clean_srq(srq.srqn);
            srqs.free(srq.srqn);
        }
        // SAFETY: made by create() or create_xrc(), and unused after the kernel has destroyed it:
        // no QP uses it any more.
        drop(unsafe { Box::from_raw(ibv.cast::<Srq>()) });
    }
    code(result)
}
