//! FLUSH requests: ibv_wr_flush(3).

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::{Flush, Remote, Request, Tag};

use crate::batch::begin;
use crate::errno::Errno;
use crate::ffi;
use crate::qp::{Kind, Qp};

/// The opcode of a FLUSH as [`flush`] writes it.
///
/// `ibv_send_wr` has no fields for a FLUSH. So `IBV_WR_FLUSH` itself, by ibv_post_send(3), is
/// refused.
pub const OPCODE: ffi::ibv_wr_opcode = ffi::IBV_WR_FLUSH | 1 << 31;

/// Returns `IBV_QP_EX_WITH_FLUSH` if a QP of this kind supports FLUSH on a device with `cap`, or
/// else 0.
pub fn operations(kind: Kind, cap: u64) -> u32 {
    let has_it = kind.is_reliable() && cap & device_cap::FLUSH_GLOBAL != 0;
    if has_it { ffi::IBV_QP_EX_WITH_FLUSH } else { 0 }
}

/// Translates `wr`, a FLUSH as [`flush`] writes it, for the device.
pub fn translate<'a>(wr: &ffi::ibv_send_wr, qp: &Qp, tag: Tag) -> Result<Request<'a>, Errno> {
    // SAFETY: any bytes are valid integers.
    let ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add: length, swap, rkey } =
        unsafe { wr.wr.atomic };
    let (placement, level) = (swap as u32, (swap >> 32) as u32);
    let whole = match level {
        ffi::IBV_FLUSH_RANGE => false,
        ffi::IBV_FLUSH_MR => true,
        _ => return Err(libc::EINVAL),
    };
    // Neither the device nor the wire has room for more than 32 bits.
    let length = match u32::try_from(length) {
        Ok(length) => length,
        Err(_) if whole => 0,
        Err(_) => return Err(libc::EINVAL),
    };
    let known = ffi::IBV_FLUSH_GLOBAL | ffi::IBV_FLUSH_PERSISTENT;
    if operations(qp.kind, qp.context().device_cap) == 0
        || wr.num_sge != 0
        || placement == 0
        || placement & !known != 0
    {
        return Err(libc::EINVAL);
    }
    let flush = Flush { placement: placement as u8, whole, length };
    Ok(Request::flush(tag, Remote { addr: remote_addr, rkey }, flush))
}

/// Sets the FLUSH function of the QP (see [`crate::batch::set_functions`]).
pub fn set_functions(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_flush = Some(flush);
}

unsafe extern "C" fn flush(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let (compare_add, swap) = (length as u64, u64::from(placement) | u64::from(level) << 32);
    let flush = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
    // SAFETY: as for `begin`.
    unsafe { begin(qp, OPCODE, |wr| wr.wr.atomic = flush) }
}
