//! Creation of queue pairs.

use std::ffi::c_int;
use std::ptr;

use vrdma_verbs::abi::user::UserCreateQpResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use super::{Kind, Qp, by_functions};
use crate::batch;
use crate::context::Context;
use crate::errno::{Errno, boxed, check, object};
use crate::ffi;
use crate::objects::zeroed;
use crate::pd::Pd;

/// [`ffi::ib_uverbs_create_qp_resp`] with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_create_qp_resp,
    driver: UserCreateQpResp,
}

pub unsafe extern "C" fn create_qp(
    pd: *mut ffi::ibv_pd,
    attr: *mut ffi::ibv_qp_init_attr,
) -> *mut ffi::ibv_qp {
    let create = || -> Result<*mut ffi::ibv_qp, Errno> {
        // SAFETY: the caller's attributes.
        let attr = unsafe { &mut *attr };
        let mut extended = ffi::ibv_qp_init_attr_ex {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
            comp_mask: ffi::IBV_QP_INIT_ATTR_PD,
            pd,
            ..zeroed!()
        };
        // SAFETY: the caller's PD, which belongs to an open context, and attributes.
        let qp = unsafe { create((*pd).context, &mut extended) }?;
        attr.cap = extended.cap;
        Ok(qp)
    };
    object(create())
}

pub unsafe extern "C" fn create_qp_ex(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: the caller's context and attributes.
    object(unsafe { create(context, &mut *attr) })
}

/// Makes a QP.
///
/// # Safety
/// As for the arguments of [`create_qp_ex`].
unsafe fn create(
    ibv_context: *mut ffi::ibv_context,
    attr: &mut ffi::ibv_qp_init_attr_ex,
) -> Result<*mut ffi::ibv_qp, Errno> {
    // SAFETY: the caller's open context.
    let context = unsafe { Context::of(ibv_context) };
    let kind = Kind::asked(attr, context)?;
    let mut cap = attr.cap;
    // SAFETY: by this function's own contract; the attributes were checked for this kind.
    let mut make = || unsafe { make(ibv_context, kind, attr, &mut cap) };
    // SAFETY: made just now, and nobody knows it.
    let undo = |qp: Box<Qp>| _ = unsafe { ffi::ibv_cmd_destroy_qp(qp.ibv()) };
    // The kernel owns a target. Nothing is posted to it, and nothing completes.
    let qp = if kind == Kind::XrcRecv { make() } else { context.qps.register(make, undo) }?;
    // The kernel may have raised the capabilities. The caller reads them in `attr`.
    attr.cap = cap;
    Ok(Box::into_raw(qp).cast())
}

/// Has the kernel make a QP, and sets `cap` to its capabilities.
///
/// # Safety
/// As for the arguments of [`create_qp_ex`]. [`Kind::asked`] has returned this kind.
unsafe fn make(
    ibv_context: *mut ffi::ibv_context,
    kind: Kind,
    attr: &ffi::ibv_qp_init_attr_ex,
    cap: &mut ffi::ibv_qp_cap,
) -> Result<Box<Qp>, Errno> {
    // SAFETY: the caller's open context and PD; all PDs of this context are of this provider.
    let (context, pd) =
        unsafe { (Context::of(ibv_context), (kind != Kind::XrcRecv).then(|| Pd::of(attr.pd))) };
    let mut qp = boxed(Qp::new(kind, attr.sq_sig_all != 0, pd)?)?;
    let mut asked =
        ffi::ibv_qp_init_attr_ex { comp_mask: attr.comp_mask & !ffi::IBV_QP_INIT_ATTR_CREATE_FLAGS, ..*attr };
    if !attr.srq.is_null() || !qp.has_receive_queue() {
        (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (0, 0);
    }
    asked.cap.max_inline_data = inline_room(attr, context);
    // The QP would remember unused CQs and SRQs. Neither libibverbs nor the kernel makes sure that
    // these outlive it.
    if matches!(kind, Kind::XrcSend | Kind::XrcRecv) {
        (asked.recv_cq, asked.srq) = (ptr::null_mut(), ptr::null_mut());
    }
    if kind == Kind::XrcRecv {
        (asked.send_cq, asked.cap) = (ptr::null_mut(), zeroed!());
    }
    let mut command: ffi::ibv_create_qp = zeroed!();
    let mut reply = Reply { ibv: zeroed!(), driver: UserCreateQpResp::new_zeroed() };
    // SAFETY: the caller's context and attributes; the reply is as long as stated.
    check(unsafe {
        ffi::ibv_cmd_create_qp_ex(
            ibv_context,
            qp.verbs.get(),
            &raw mut asked,
            &raw mut command,
            size_of_val(&command),
            &raw mut reply.ibv,
            size_of::<Reply>(),
        )
    })?;
    limit(&mut asked.cap, context);
    *cap = asked.cap;
    if kind == Kind::XrcRecv {
        return Ok(qp);
    }
    // No lock is held here, because the parent domain's allocator may call verbs.
    if let Err(errno) = qp.set_up(reply.driver.qpn.get(), &asked) {
        // SAFETY: made just now, and nobody knows it.
        unsafe { ffi::ibv_cmd_destroy_qp(qp.ibv()) };
        return Err(errno);
    }
    Ok(qp)
}

/// Makes another object for an XRC target, which another process may have made.
pub unsafe extern "C" fn open_qp(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_qp_open_attr,
) -> *mut ffi::ibv_qp {
    let open = || -> Result<*mut ffi::ibv_qp, Errno> {
        let qp = boxed(Qp::new(Kind::XrcRecv, false, None)?)?;
        let mut command: ffi::ibv_open_qp = zeroed!();
        let mut reply: ffi::ib_uverbs_create_qp_resp = zeroed!();
        // SAFETY: the caller's context and attributes; all lengths are as stated.
        check(unsafe {
            ffi::ibv_cmd_open_qp(
                context,
                qp.verbs.get(),
                size_of::<ffi::verbs_qp>() as c_int,
                attr,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply,
                size_of_val(&reply),
            )
        })?;
        Ok(Box::into_raw(qp).cast())
    };
    object(open())
}

/// Returns the bytes of inline data to request for a QP: at least as many as its SGEs take.
///
/// Programs that request none rely on this, for example rdma_xclient(1). Devices whose requests are
/// in memory, and `rdma_rxe`, have that room anyway.
fn inline_room(attr: &ffi::ibv_qp_init_attr_ex, context: &Context) -> u32 {
    let cap = &attr.cap;
    let of_elements =
        cap.max_send_sge.saturating_mul(size_of::<ffi::ibv_sge>() as u32).min(context.max_inline);
    let of_operations = if by_functions(attr) { batch::inline_data(attr.send_ops_flags) } else { 0 };
    cap.max_inline_data.max(of_elements).max(of_operations)
}

/// Limits the capabilities to what requests of this context can hold.
fn limit(cap: &mut ffi::ibv_qp_cap, context: &Context) {
    cap.max_send_sge = cap.max_send_sge.min(context.max_sge);
    cap.max_recv_sge = cap.max_recv_sge.min(context.max_sge);
    cap.max_inline_data = cap.max_inline_data.min(context.max_inline);
}
