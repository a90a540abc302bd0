//! Translation of CQEs to work completions.

use std::ffi::c_int;

use vrdma_verbs::abi::control::limit;
use vrdma_verbs::abi::cqe::{WcStatus, flags};
use vrdma_verbs::{Arm, Cqe};

use crate::cq::{Cq, Ring};
use crate::errno::lock;
use crate::ffi;
use crate::srq::Srq;
use crate::table::Table;

pub unsafe extern "C" fn poll_cq(cq: *mut ffi::ibv_cq, count: c_int, wc: *mut ffi::ibv_wc) -> c_int {
    // SAFETY: libibverbs calls this with a CQ that `create_cq` made and `destroy_cq` has not
    // destroyed (ibv_poll_cq(3)).
    let cq = unsafe { Cq::of(cq) };
    let mut ring = cq.ring.lock();
    let mut found = 0;
    while found < count
        && let Some((completion, _)) = next(cq, &mut ring)
    {
        // SAFETY: `wc` has room for `count` completions (ibv_poll_cq(3)), and `found` is less.
        unsafe { wc.add(found as usize).write(completion) };
        found += 1;
    }
    ring.queue.publish();
    found
}

pub unsafe extern "C" fn req_notify_cq(cq: *mut ffi::ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: libibverbs calls this with a CQ that `create_cq` made and `destroy_cq` has not
    // destroyed (ibv_req_notify_cq(3)).
    let cq = unsafe { Cq::of(cq) };
    cq.ring.lock().queue.arm(if solicited_only == 0 { Arm::Next } else { Arm::Solicited });
    0
}

/// Takes the next completion of a QP that exists, and its time stamp (see [`Ring::take`]).
#[inline]
pub fn next(cq: &Cq, ring: &mut Ring) -> Option<(ffi::ibv_wc, u64)> {
    loop {
        let (cqe, timestamp) = ring.take()?;
        // Completions of destroyed QPs are dropped.
        if let Some(completion) = translate(&cqe, ring, cq) {
            return Some((completion, timestamp));
        }
    }
}

#[inline]
fn translate(cqe: &Cqe, ring: &mut Ring, cq: &Cq) -> Option<ffi::ibv_wc> {
    let context = cq.context();
    let qpn = cqe.qpn.get();
    if cqe.flags & flags::XRC != 0 {
        return completion(cqe, xrc_receive(cqe, &context.srqs, cq)?, 0);
    }
    let (last_qpn, last) = ring.last;
    // The numbers are compared before the QP is dereferenced. Only a QP of this CQ is remembered or
    // found, whatever the device writes.
    let found = if last_qpn == qpn { last } else { context.qps.find(qpn, cq) };
    // SAFETY: before a QP of this CQ is freed, it is hidden in the table. Then it is removed from
    // `last` under the lock of this CQ, which is held here.
    let qp = unsafe { found.as_ref() }.filter(|qp| qp.qpn == qpn)?;
    ring.last = (qpn, found);
    let wqe_id = cqe.wqe_id.get();
    let wr_id =
        if cqe.flags & flags::RECV != 0 { qp.complete_recv(wqe_id) } else { qp.sends.complete(wqe_id) }?;
    completion(cqe, wr_id, cqe.src_qpn.get())
}

/// Completes a receive of an XRC shared receive queue, and returns its wr_id.
///
/// The QP that took the receive may be of any process. Returns `None` if there is no such receive.
/// The lock of the CQ is held.
#[cold]
fn xrc_receive(cqe: &Cqe, srqs: &Table<Srq>, cq: &Cq) -> Option<u64> {
    // The queue is destroyed, and another one may have its number.
    if cqe.qpn.get() == limit::NONE {
        return None;
    }
    let srqn = cqe.src_qpn.get();
    let found: *const Srq = srqs.find(srqn, cq);
    // SAFETY: before a queue of this CQ is freed, it is hidden in the table. Then the lock of this
    // CQ is taken once more, and it is held here.
    let srq = unsafe { found.as_ref() }.filter(|srq| srq.srqn == srqn)?;
    lock(&srq.slots).complete(cqe.wqe_id.get())
}

#[inline]
fn completion(cqe: &Cqe, wr_id: u64, src_qp: u32) -> Option<ffi::ibv_wc> {
    let mut wc_flags = 0;
    if cqe.flags & flags::IMM != 0 {
        wc_flags |= ffi::IBV_WC_WITH_IMM;
    }
    if cqe.flags & flags::GRH != 0 {
        wc_flags |= ffi::IBV_WC_GRH;
    }
    // Immediate data keep their byte order. The key is a number.
    let imm = if cqe.flags & flags::INV != 0 {
        wc_flags |= ffi::IBV_WC_WITH_INV;
        ffi::ibv_wc__bindgen_ty_1 { invalidated_rkey: cqe.imm.get() }
    } else {
        ffi::ibv_wc__bindgen_ty_1 { imm_data: u32::from_ne_bytes(cqe.imm.to_bytes()) }
    };
    Some(ffi::ibv_wc {
        wr_id,
        status: match WcStatus(cqe.status).name() {
            Some(_) => u32::from(cqe.status),
            None => ffi::IBV_WC_GENERAL_ERR,
        },
        opcode: u32::from(cqe.opcode),
        // The status that the device wrote, even if it has no name.
        vendor_err: u32::from(cqe.status),
        byte_len: cqe.byte_len.get(),
        __bindgen_anon_1: imm,
        qp_num: cqe.qpn.get(),
        src_qp,
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    })
}
