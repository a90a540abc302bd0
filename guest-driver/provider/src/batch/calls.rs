//! The functions of a queue pair that make requests, and those that begin and end a batch.

use std::ffi::{c_int, c_void};
use std::{iter, slice};

use vrdma_verbs::abi::control::device_cap;

use super::list::Batch;
use crate::errno::{code, refusal};
use crate::ffi::{self, zeroed};
use crate::qp::{Kind, Qp};
use crate::{flush, keys, post};

/// Returns the requests that a QP of this kind supports by function calls, as `IBV_QP_EX_WITH_*`.
///
/// `device_cap` has the functions of the device.
pub fn operations(kind: Kind, device_cap: u64) -> u32 {
    let datagram = ffi::IBV_QP_EX_WITH_SEND | ffi::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let unreliable = datagram | ffi::IBV_QP_EX_WITH_RDMA_WRITE | ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let keys = keys::Functions::of(device_cap).operations(kind);
    match kind {
        Kind::Ud => datagram,
        Kind::Uc => unreliable | keys,
        Kind::XrcRecv => 0,
        Kind::Rc | Kind::XrcSend => {
            let has_it = device_cap & device_cap::ATOMIC_WRITE != 0;
            let atomic_write = if has_it { ffi::IBV_QP_EX_WITH_ATOMIC_WRITE } else { 0 };
            unreliable
                | ffi::IBV_QP_EX_WITH_RDMA_READ
                | ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
                | atomic_write
                | flush::operations(kind, device_cap)
                | keys
        }
    }
}

/// Bytes of an ATOMIC WRITE.
const ATOMIC_WRITE_LENGTH: u32 = 8;

/// Returns the bytes of inline data that `operations` need in addition to the program's own inline
/// data.
pub fn inline_data(operations: u64) -> u32 {
    if operations & u64::from(ffi::IBV_QP_EX_WITH_ATOMIC_WRITE) == 0 { 0 } else { ATOMIC_WRITE_LENGTH }
}

/// Sets the functions of the QP. The functions that the program may call were checked when it made
/// the QP.
pub fn set_functions(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_atomic_write = Some(atomic_write);
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_flush = Some(flush);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_xrc_srqn = Some(set_xrc_srqn);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
}

unsafe extern "C" fn start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: the caller's QP, which does not move.
    unsafe { Qp::of(qp.cast()).batches.start() }
}

unsafe extern "C" fn complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (qp, batch) = unsafe { current(qp) };
    let Some(batch) = batch else { return refusal(libc::EINVAL) };
    let result = if batch.error == 0 {
        batch.link();
        // SAFETY: the requests were linked just now. Inline data was copied to the batch, and
        // address handles are alive.
        unsafe { post::post_all(qp, &batch.requests) }
    } else {
        Err(batch.error)
    };
    // SAFETY: the caller's QP, whose batch the caller has started.
    unsafe { qp.batches.end() };
    code(result)
}

unsafe extern "C" fn abort(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    unsafe { Qp::of(qp.cast()).batches.end() }
}

unsafe extern "C" fn send(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND, |_| ()) }
}

unsafe extern "C" fn send_imm(qp: *mut ffi::ibv_qp_ex, imm: ffi::__be32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND_WITH_IMM, |wr| wr.__bindgen_anon_1.imm_data = imm) }
}

unsafe extern "C" fn rdma_write(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_RDMA_WRITE, |wr| wr.wr.rdma = rdma(rkey, remote_addr)) }
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, imm: ffi::__be32) {
    // SAFETY: as for `begin`.
    unsafe {
        begin(qp, ffi::IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
            wr.wr.rdma = rdma(rkey, remote_addr);
            wr.__bindgen_anon_1.imm_data = imm;
        });
    }
}

unsafe extern "C" fn rdma_read(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_RDMA_READ, |wr| wr.wr.rdma = rdma(rkey, remote_addr)) }
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    let atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_ATOMIC_CMP_AND_SWP, |wr| wr.wr.atomic = atomic) }
}

unsafe extern "C" fn atomic_fetch_add(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
) {
    let atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap: 0, rkey };
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_ATOMIC_FETCH_AND_ADD, |wr| wr.wr.atomic = atomic) }
}

/// Begins an ATOMIC WRITE. Its value is an argument, so it becomes inline data, for which the QP
/// has room ([`inline_data`]).
unsafe extern "C" fn atomic_write(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    value: *const c_void,
) {
    // SAFETY: as for `begin`; `value` has 8 bytes.
    unsafe {
        begin(qp, ffi::IBV_WR_ATOMIC_WRITE, |wr| wr.wr.rdma = rdma(rkey, remote_addr));
        set_inline_data(qp, value.cast_mut(), ATOMIC_WRITE_LENGTH as usize);
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ffi::ibv_qp_ex,
    mw: *mut ffi::ibv_mw,
    rkey: u32,
    info: *const ffi::ibv_mw_bind_info,
) {
    // SAFETY: as for `begin`; the caller's attributes, window and region.
    unsafe {
        let bind = ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info: *info };
        begin(qp, ffi::IBV_WR_BIND_MW, |wr| wr.__bindgen_anon_2.bind_mw = bind);
    }
}

unsafe extern "C" fn local_inv(qp: *mut ffi::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_LOCAL_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}

unsafe extern "C" fn send_inv(qp: *mut ffi::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND_WITH_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}

unsafe extern "C" fn flush(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let fields = flush::fields(rkey, remote_addr, length, placement, level);
    // SAFETY: as for `begin`.
    unsafe { begin(qp, flush::OPCODE, |wr| wr.wr.atomic = fields) }
}

unsafe extern "C" fn set_ud_addr(
    qp: *mut ffi::ibv_qp_ex,
    ah: *mut ffi::ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (_, Some(batch)) = (unsafe { current(qp) }) else { return };
    match batch.requests.last_mut() {
        Some(wr) => {
            wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
        }
        None => batch.fail(libc::EINVAL),
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ffi::ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (_, Some(batch)) = (unsafe { current(qp) }) else { return };
    match batch.requests.last_mut() {
        Some(wr) => {
            wr.qp_type.xrc = ffi::ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn };
        }
        None => batch.fail(libc::EINVAL),
    }
}

unsafe extern "C" fn set_sge(qp: *mut ffi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        batch.add(qp.max_send_sge, 1, iter::once(ffi::ibv_sge { addr, length, lkey }));
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_sge) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        // SAFETY: the caller's list; the batch reads no more of it than there is.
        batch.add(qp.max_send_sge, count, (0..count).map(|i| unsafe { *list.add(i) }));
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ffi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    let piece = ffi::ibv_data_buf { addr, length };
    // SAFETY: the caller's QP and data.
    unsafe { set_inline_data_list(qp, 1, &raw const piece) }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ffi::ibv_qp_ex,
    count: usize,
    list: *const ffi::ibv_data_buf,
) {
    // SAFETY: the caller's list; a list without elements may have any address.
    let pieces = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(list, count) } };
    // SAFETY: the caller's QP, whose batch the caller has started, and the caller's data.
    unsafe {
        if let (qp, Some(batch)) = current(qp) {
            batch.add_inline(qp.max_inline, pieces);
        }
    }
}

/// Returns the QP, and the caller's batch if it has started one.
///
/// # Safety
/// The caller's QP, of which no other thread has started a batch. An earlier result is not used any
/// more.
unsafe fn current<'a>(qp: *mut ffi::ibv_qp_ex) -> (&'a Qp, Option<&'a mut Batch>) {
    // SAFETY: by this function's own contract.
    unsafe {
        let qp = Qp::of(qp.cast());
        (qp, qp.batches.current())
    }
}

/// Begins a request.
///
/// # Safety
/// The caller's QP, whose batch the caller has started.
unsafe fn begin(
    qp: *mut ffi::ibv_qp_ex,
    opcode: ffi::ibv_wr_opcode,
    fill: impl FnOnce(&mut ffi::ibv_send_wr),
) {
    // SAFETY: by this function's own contract, `qp` is one of ours. Its fields belong to this
    // thread since it started a batch.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let mut wr: ffi::ibv_send_wr = zeroed!();
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, flags & !ffi::IBV_SEND_INLINE);
    fill(&mut wr);
    // SAFETY: by this function's own contract; no other borrow of its batch exists.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        batch.begin(qp.sends.limit(), wr);
    }
}

fn rdma(rkey: u32, remote_addr: u64) -> ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey }
}
