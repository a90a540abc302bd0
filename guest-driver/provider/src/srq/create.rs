//! Creation of shared receive queues.

use std::ptr;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::UserCreateSrqResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use super::Srq;
use crate::context::Context;
use crate::errno::{Errno, check, object};
use crate::ffi::{self, zeroed};
use crate::heap::boxed;
use crate::locks::lock;
use crate::pd::Pd;

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
    // SAFETY: by this function's own contract.
    boxed(Srq::new(max_sge, cq, unsafe { Pd::of(pd) })?)
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
