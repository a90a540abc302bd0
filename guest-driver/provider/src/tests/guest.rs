//! A verbs program for the tests.

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;
use std::sync::Arc;

use crate::context::{self, Entry};
use crate::errno::Errno;
use crate::fake::{self, Kernel};
use crate::ffi::*;

/// An open device with one PD.
pub struct Guest {
    pub kernel: Arc<Kernel>,
    pub context: *mut ibv_context,
    pub ops: &'static verbs_context_ops,
    pub pd: *mut ibv_pd,
}

// SAFETY: verbs objects may be used from any thread.
unsafe impl Send for Guest {}
// SAFETY: verbs objects may be used from any thread.
unsafe impl Sync for Guest {}

/// A pointer to a verbs object that threads share.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub *mut T);
// SAFETY: verbs objects may be used from any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: verbs objects may be used from any thread.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Returns the pointer.
    ///
    /// A closure that named the field would capture only the pointer, which threads cannot share.
    pub fn get(&self) -> *mut T {
        self.0
    }
}

pub const CAP: ibv_qp_cap =
    ibv_qp_cap { max_send_wr: 8, max_recv_wr: 4, max_send_sge: 4, max_recv_sge: 3, max_inline_data: 80 };

impl Guest {
    pub fn new(kernel: &Arc<Kernel>) -> Self {
        Self::open(kernel, true).unwrap()
    }

    pub fn open(kernel: &Arc<Kernel>, wants_channel: bool) -> Result<Self, Errno> {
        Self::by(kernel, Entry::Open { wants_channel })
    }

    /// Imports a context, as another process would.
    pub fn import(kernel: &Arc<Kernel>) -> Result<Self, Errno> {
        Self::by(kernel, Entry::Import)
    }

    fn by(kernel: &Arc<Kernel>, entry: Entry) -> Result<Self, Errno> {
        unsafe {
            let verbs = context::open(ptr::null_mut(), kernel.fd(), entry)?;
            let ops: &'static verbs_context_ops = fake::ops(verbs);
            let context = &raw mut (*verbs).context;
            Ok(Self { kernel: kernel.clone(), context, ops, pd: ops.alloc_pd.unwrap()(context) })
        }
    }

    pub fn cq(&self, cqes: c_int) -> *mut ibv_cq {
        let cq = unsafe { self.ops.create_cq.unwrap()(self.context, cqes, ptr::null_mut(), 0) };
        assert!(!cq.is_null());
        cq
    }

    pub fn try_qp(&self, cq: *mut ibv_cq, change: impl FnOnce(&mut ibv_qp_init_attr)) -> *mut ibv_qp {
        unsafe {
            let mut attr: ibv_qp_init_attr = zeroed();
            (attr.send_cq, attr.recv_cq) = (cq, cq);
            (attr.qp_type, attr.cap) = (IBV_QPT_RC, CAP);
            change(&mut attr);
            self.ops.create_qp.unwrap()(self.pd, &raw mut attr)
        }
    }

    /// Makes a QP in RTS.
    pub fn qp(&self, cq: *mut ibv_cq, change: impl FnOnce(&mut ibv_qp_init_attr)) -> *mut ibv_qp {
        let qp = self.try_qp(cq, change);
        assert!(!qp.is_null());
        self.modify(qp, IBV_QPS_RTS);
        qp
    }

    pub fn modify(&self, qp: *mut ibv_qp, state: ibv_qp_state) {
        unsafe {
            let mut attr: ibv_qp_attr = zeroed();
            attr.qp_state = state;
            assert_eq!(self.ops.modify_qp.unwrap()(qp, &raw mut attr, IBV_QP_STATE as c_int), 0);
        }
    }

    /// Posts `wrs` as one list. Returns the index of the bad request, and errno, if there is one.
    pub fn send(&self, qp: *mut ibv_qp, wrs: &mut [ibv_send_wr]) -> Result<(), (usize, Errno)> {
        for i in 1..wrs.len() {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        let mut bad = ptr::null_mut();
        let first = wrs.as_mut_ptr();
        match unsafe { self.ops.post_send.unwrap()(qp, first, &raw mut bad) } {
            0 => Ok(()),
            errno => Err((unsafe { bad.offset_from_unsigned(first) }, errno)),
        }
    }

    pub fn recv(&self, qp: *mut ibv_qp, wrs: &mut [ibv_recv_wr]) -> Result<(), (usize, Errno)> {
        for i in 1..wrs.len() {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        let mut bad = ptr::null_mut();
        let first = wrs.as_mut_ptr();
        match unsafe { self.ops.post_recv.unwrap()(qp, first, &raw mut bad) } {
            0 => Ok(()),
            errno => Err((unsafe { bad.offset_from_unsigned(first) }, errno)),
        }
    }

    /// Makes a shared receive queue.
    pub fn srq(&self, max_wr: u32) -> *mut ibv_srq {
        let attr = ibv_srq_attr { max_wr, max_sge: 3, srq_limit: 0 };
        let mut attr = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        unsafe { self.ops.create_srq.unwrap()(self.pd, &raw mut attr) }
    }

    pub fn srq_recv(&self, srq: *mut ibv_srq, wrs: &mut [ibv_recv_wr]) -> Result<(), (usize, Errno)> {
        for i in 1..wrs.len() {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        let mut bad = ptr::null_mut();
        let first = wrs.as_mut_ptr();
        match unsafe { self.ops.post_srq_recv.unwrap()(srq, first, &raw mut bad) } {
            0 => Ok(()),
            errno => Err((unsafe { bad.offset_from_unsigned(first) }, errno)),
        }
    }

    pub fn destroy_srq(&self, srq: *mut ibv_srq) {
        assert_eq!(unsafe { self.ops.destroy_srq.unwrap()(srq) }, 0);
    }

    pub fn poll(&self, cq: *mut ibv_cq, max: usize) -> Vec<ibv_wc> {
        unsafe {
            let mut wcs = vec![zeroed::<ibv_wc>(); max];
            let count = self.ops.poll_cq.unwrap()(cq, max as c_int, wcs.as_mut_ptr());
            wcs.truncate(count as usize);
            wcs
        }
    }

    pub fn destroy_qp(&self, qp: *mut ibv_qp) {
        assert_eq!(unsafe { self.ops.destroy_qp.unwrap()(qp) }, 0);
    }

    /// Closes the device, after its CQs. The context must have no other users.
    pub fn close(self, cqs: &[*mut ibv_cq]) {
        let kernel = self.kernel.clone();
        self.leave(cqs);
        assert_eq!(kernel.state().contexts, 0);
    }

    /// Closes the device, after its CQs. The context may have other users.
    pub fn leave(self, cqs: &[*mut ibv_cq]) {
        unsafe {
            for cq in cqs {
                assert_eq!(self.ops.destroy_cq.unwrap()(*cq), 0);
            }
            assert_eq!(self.ops.dealloc_pd.unwrap()(self.pd), 0);
            self.ops.free_context.unwrap()(self.context);
        }
    }
}

/// Makes a signaled WRITE without data.
pub fn write(wr_id: u64) -> ibv_send_wr {
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    wr
}

pub fn with_sges(mut wr: ibv_send_wr, sges: &mut [ibv_sge]) -> ibv_send_wr {
    (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
    wr
}

pub fn recv(wr_id: u64, sges: &mut [ibv_sge]) -> ibv_recv_wr {
    ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: sges.as_mut_ptr(), num_sge: sges.len() as c_int }
}

pub fn sge(addr: u64, length: u32, lkey: u32) -> ibv_sge {
    ibv_sge { addr, length, lkey }
}

pub fn wr_ids(wcs: &[ibv_wc]) -> Vec<u64> {
    wcs.iter().map(|wc| wc.wr_id).collect()
}
