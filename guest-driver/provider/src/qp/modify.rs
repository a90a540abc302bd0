//! Modify, query and destruction of queue pairs.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering;

use super::{Kind, Qp};
use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{check, code};
use crate::ffi::{self, zeroed};
use crate::locks::lock;

pub unsafe extern "C" fn modify_qp(ibv: *mut ffi::ibv_qp, attr: *mut ffi::ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's QP.
    let qp = unsafe { Qp::of(ibv) };
    let mut command: ffi::ibv_modify_qp = zeroed!();
    // SAFETY: the caller's QP and attributes.
    let result =
        check(unsafe { ffi::ibv_cmd_modify_qp(ibv, attr, mask, &raw mut command, size_of_val(&command)) });
    if result.is_ok() && mask as u32 & ffi::IBV_QP_STATE != 0 {
        // SAFETY: the caller's attributes.
        let state = unsafe { (*attr).qp_state };
        // Set first, so that later posts of other threads are refused in RESET.
        qp.set_state(state);
        if state == ffi::IBV_QPS_RESET {
            qp.forget_requests();
        }
    }
    code(result)
}

pub unsafe extern "C" fn query_qp(
    qp: *mut ffi::ibv_qp,
    attr: *mut ffi::ibv_qp_attr,
    mask: c_int,
    init_attr: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    let mut command: ffi::ibv_query_qp = zeroed!();
    // SAFETY: the caller's QP.
    let known = unsafe { Qp::of(qp) };
    let before = known.state.load(Ordering::Relaxed);
    // SAFETY: the caller's QP and attributes.
    let result = check(unsafe {
        ffi::ibv_cmd_query_qp(qp, attr, mask, init_attr, &raw mut command, size_of_val(&command))
    });
    if result.is_ok() && mask as u32 & ffi::IBV_QP_STATE != 0 {
        // The state may have changed without a modify, and posting depends on it. If a modify of
        // another thread has stored a state meanwhile, that one is newer.
        // SAFETY: attributes just filled in.
        let found = known.for_posts(unsafe { (*attr).qp_state });
        let _ = known.state.compare_exchange(before, found, Ordering::Relaxed, Ordering::Relaxed);
    }
    code(result)
}

pub unsafe extern "C" fn destroy_qp(ibv: *mut ffi::ibv_qp) -> c_int {
    // SAFETY: the caller's QP, which nobody uses from now on; only polls of its CQs may find it.
    let (qp, context) = unsafe { (Qp::of(ibv), Context::of((*ibv).context)) };
    // No lock is held: this waits until the program has acknowledged the QP's events
    // (ibv_destroy_qp(3)).
    // SAFETY: the caller's QP.
    let result = check(unsafe { ffi::ibv_cmd_destroy_qp(ibv) });
    if result.is_ok() {
        // Targets are not in the table.
        if qp.kind != Kind::XrcRecv {
            context.qps.hide(qp.qpn);
            // After this no poll uses the QP: later polls do not find it, and earlier ones have
            // ended.
            qp.clean_cqs();
            context.qps.free(qp.qpn);
        }
        // SAFETY: made by create(), and no longer found by anybody.
        drop(unsafe { Box::from_raw(ibv.cast::<Qp>()) });
    }
    code(result)
}

impl Qp {
    /// Iterates over the CQs of the QP, each once.
    fn each_cq(&self) -> impl Iterator<Item = &Cq> {
        let [send, recv] = self.cqs;
        let second = if ptr::eq(recv, send) { ptr::null_mut() } else { recv };
        let named = [send, second].into_iter().filter(|cq| !cq.is_null());
        // SAFETY: a CQ; CQs outlive the QPs that use them.
        named.map(|cq| unsafe { Cq::of(cq) })
    }

    /// Invalidates completions of this QP, so that a later QP with its number does not get them.
    fn clean_cqs(&self) {
        for cq in self.each_cq() {
            cq.ring.lock().clean(self);
        }
    }

    /// Invalidates completions of this QP, and forgets its outstanding requests.
    ///
    /// So later requests do not get these completions. The QP takes no posts now.
    fn forget_requests(&self) {
        for cq in self.each_cq() {
            let mut ring = cq.ring.lock();
            ring.clean(self);
            // Both sides of the ring of requests must be idle. Completing needs the lock of the CQ.
            // Posting needs the lock below, until a refused request has been taken back.
            let _work = lock(&self.context().work);
            let [send, recv] = self.cqs;
            if ptr::eq(cq.ibv(), send) {
                self.sends.reset();
            }
            if ptr::eq(cq.ibv(), recv) {
                self.recvs.reset();
            }
        }
    }
}
