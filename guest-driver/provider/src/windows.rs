//! Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3).

use std::ffi::c_int;
use std::slice;

use crate::context::Context;
use crate::errno::{Errno, boxed, check, code, object, refusal};
use crate::ffi;
use crate::keys::Functions;
use crate::objects::zeroed;
use crate::pd::Pd;
use crate::post;
use crate::qp::Qp;
use crate::refs::Ref;

/// Flags of ibv_bind_mw(3).
const BIND_FLAGS: u32 = ffi::IBV_SEND_FENCE | ffi::IBV_SEND_SIGNALED;
/// The bits of a key that its owner chooses.
const TAG: u32 = 0xff;

/// A memory window.
#[repr(C)]
struct Mw {
    verbs: ffi::ibv_mw,
    _pd: Ref<Pd>,
}

pub unsafe extern "C" fn alloc_mw(pd: *mut ffi::ibv_pd, kind: ffi::ibv_mw_type) -> *mut ffi::ibv_mw {
    let alloc = || -> Result<*mut ffi::ibv_mw, Errno> {
        // SAFETY: the caller's PD, which belongs to an open context.
        let functions = Functions::of(unsafe { Context::of((*pd).context) }.device_cap);
        let has_it = match kind {
            ffi::IBV_MW_TYPE_1 => functions.type_1,
            ffi::IBV_MW_TYPE_2 => functions.type_2,
            _ if functions.bind() => return Err(libc::EINVAL),
            _ => false,
        };
        if !has_it {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: the caller's PD.
        let mut mw = boxed(Mw { verbs: zeroed!(), _pd: unsafe { Pd::of(pd) } })?;
        let mut command: ffi::ibv_alloc_mw = zeroed!();
        let mut reply: ffi::ib_uverbs_alloc_mw_resp = zeroed!();
        // SAFETY: the caller's PD; command and reply are as long as stated.
        check(unsafe {
            ffi::ibv_cmd_alloc_mw(
                pd,
                kind,
                &raw mut mw.verbs,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply,
                size_of_val(&reply),
            )
        })?;
        Ok(Box::into_raw(mw).cast())
    };
    object(alloc())
}

pub unsafe extern "C" fn dealloc_mw(mw: *mut ffi::ibv_mw) -> c_int {
    // SAFETY: made by alloc_mw(), and unused after the kernel has deallocated it.
    unsafe { code(check(ffi::ibv_cmd_dealloc_mw(mw)).map(|()| drop(Box::from_raw(mw.cast::<Mw>())))) }
}

/// Binds a window of type 1. libibverbs has checked its type, and the PDs.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ffi::ibv_qp,
    mw: *mut ffi::ibv_mw,
    bind: *mut ffi::ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller's attributes.
    let bind = unsafe { &*bind };
    if bind.send_flags & !BIND_FLAGS != 0 {
        return refusal(libc::EINVAL);
    }
    // SAFETY: the caller's window.
    let rkey = next_rkey(unsafe { (*mw).rkey });
    let mut wr: ffi::ibv_send_wr = zeroed!();
    (wr.wr_id, wr.opcode, wr.send_flags) = (bind.wr_id, ffi::IBV_WR_BIND_MW, bind.send_flags);
    wr.__bindgen_anon_2.bind_mw =
        ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info: bind.bind_info };
    // SAFETY: the caller's QP, window and region.
    let posted = unsafe { post::post_all(Qp::of(qp), slice::from_ref(&wr)) };
    if posted.is_ok() {
        // The key changes as ibv_bind_mw(3) specifies: if the request fails, the program restores
        // the former key.
        // SAFETY: the caller's window.
        unsafe { (*mw).rkey = rkey };
    }
    code(posted)
}

/// Returns the next key with another tag, as ibv_inc_rkey(3) does.
fn next_rkey(rkey: u32) -> u32 {
    rkey & !TAG | rkey.wrapping_add(1) & TAG
}
