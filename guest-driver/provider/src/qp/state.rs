//! A queue pair: what posts and polls need of it.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use vrdma_verbs::WrRing;

use super::Kind;
use crate::batch::Batches;
use crate::errno::Errno;
use crate::ffi::{self, zeroed};
use crate::locks::lock;
use crate::memory::WrIds;
use crate::pd::{Pd, Resource};
use crate::refs::Ref;
use crate::srq::Srq;
use crate::table::Numbered;

/// wr_ids of the outstanding requests on one side of a QP.
pub type Requests = WrRing<WrIds>;

/// A queue pair.
#[repr(C)]
pub struct Qp {
    /// rdma-core's part, which rdma-core may change at any time.
    pub(super) verbs: UnsafeCell<ffi::verbs_qp>,
    /// Number of the QP.
    pub qpn: u32,
    /// Transport service of the QP.
    pub kind: Kind,
    /// Each send request generates a completion.
    pub signal_all: bool,
    /// State after the last modify. The QP may have moved to an error state since then.
    pub(super) state: AtomicU32,
    /// Most SGEs of a send request.
    pub max_send_sge: u32,
    /// Most SGEs of a receive request.
    pub max_recv_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
    /// Send queue. The lock of [`crate::context::Own::work`] protects its posting side, and the
    /// lock of the send CQ its completing side.
    pub sends: Requests,
    /// Receive queue. The lock of [`crate::context::Own::work`] protects its posting side, and the
    /// lock of the receive CQ its completing side. It is empty if the QP has a shared receive
    /// queue.
    pub recvs: Requests,
    /// CQs of sends and of receives, as libibverbs calls them, or NULL. XRC targets have none, and
    /// XRC initiators have one. CQs outlive the QPs that use them.
    pub(super) cqs: [*mut ffi::ibv_cq; 2],
    /// Shared receive queue, or NULL.
    srq: *mut ffi::ibv_srq,
    /// PD of the QP. XRC targets have none.
    pd: Option<Ref<Pd>>,
    /// Requests that ibv_wr_complete() will post.
    pub batches: Batches,
}

impl Qp {
    /// Makes a QP that the kernel does not know yet.
    pub(super) fn new(kind: Kind, signal_all: bool, pd: Option<Ref<Pd>>) -> Result<Self, Errno> {
        Ok(Self {
            verbs: UnsafeCell::new(zeroed!()),
            qpn: 0,
            kind,
            signal_all,
            state: AtomicU32::new(ffi::IBV_QPS_RESET),
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline: 0,
            sends: requests(pd.as_ref(), 0, Resource::SendQueue)?,
            recvs: requests(pd.as_ref(), 0, Resource::RecvQueue)?,
            cqs: [ptr::null_mut(); 2],
            srq: ptr::null_mut(),
            pd,
            batches: Batches::new(),
        })
    }

    /// Stores what the kernel returned: the number, and the capabilities in `attr`.
    pub(super) fn set_up(&mut self, qpn: u32, attr: &ffi::ibv_qp_init_attr_ex) -> Result<(), Errno> {
        let cap = &attr.cap;
        self.qpn = qpn;
        self.max_send_sge = cap.max_send_sge;
        self.max_recv_sge = cap.max_recv_sge;
        self.max_inline = cap.max_inline_data;
        self.sends = requests(self.pd.as_ref(), cap.max_send_wr, Resource::SendQueue)?;
        self.recvs = requests(self.pd.as_ref(), cap.max_recv_wr, Resource::RecvQueue)?;
        self.cqs = [attr.send_cq, attr.recv_cq];
        self.srq = attr.srq;
        Ok(())
    }

    /// Returns the QP that libibverbs calls `qp`.
    ///
    /// # Safety
    /// `qp` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(qp: *mut ffi::ibv_qp) -> &'a Self {
        // SAFETY: `ibv_qp` is the beginning of `verbs_qp`, the first field.
        unsafe { &*qp.cast::<Self>() }
    }

    /// Stores the state after a modify.
    pub(super) fn set_state(&self, state: u32) {
        self.state.store(self.for_posts(state), Ordering::Relaxed);
    }

    /// Returns the state that decides about posts.
    ///
    /// An iWARP QP moves to RTS without a modify, when it is connected. So from INIT on it may be
    /// in RTS.
    pub(super) fn for_posts(&self, state: u32) -> u32 {
        // SAFETY: the context was set when the QP was made, and its device outlives it. (In tests
        // there may be no device.)
        let device = unsafe { (*(*self.ibv()).context).device.as_ref() };
        let is_iwarp = device.is_some_and(|device| device.transport_type == ffi::IBV_TRANSPORT_IWARP);
        let connects = matches!(state, ffi::IBV_QPS_INIT | ffi::IBV_QPS_RTR);
        if is_iwarp && connects { ffi::IBV_QPS_RTS } else { state }
    }

    /// Whether send requests may be posted.
    #[inline]
    pub fn takes_sends(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ffi::IBV_QPS_RTS
    }

    /// Whether receive requests may be posted.
    #[inline]
    pub fn takes_recvs(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ffi::IBV_QPS_RESET
    }

    /// Whether the QP has its own receive queue: it neither uses a shared one nor is an XRC QP.
    #[inline]
    pub fn has_receive_queue(&self) -> bool {
        self.srq.is_null() && !matches!(self.kind, Kind::XrcSend | Kind::XrcRecv)
    }

    /// Completes a receive, and returns its wr_id. Returns `None` if there is no such receive.
    #[inline]
    pub fn complete_recv(&self, wqe_id: u32) -> Option<u64> {
        if self.has_receive_queue() {
            return self.recvs.complete(wqe_id);
        }
        // SAFETY: NULL, or a shared receive queue, which outlives the QPs that use it.
        let srq = (!self.srq.is_null()).then(|| unsafe { Srq::of(self.srq) })?;
        lock(&srq.slots).complete(wqe_id)
    }

    /// Returns the QP as libibverbs calls it.
    #[inline]
    pub fn ibv(&self) -> *mut ffi::ibv_qp {
        self.verbs.get().cast()
    }
}

impl Numbered for Qp {
    fn number(&self) -> u32 {
        self.qpn
    }

    fn cqs(&self) -> [*mut ffi::ibv_cq; 2] {
        self.cqs
    }
}

fn requests(pd: Option<&Ref<Pd>>, limit: u32, resource: Resource) -> Result<Requests, Errno> {
    let len = Requests::storage_len(limit);
    let wr_ids = match pd {
        Some(pd) if limit > 0 => WrIds::new(pd, len, resource)?,
        _ => WrIds::own(len)?,
    };
    WrRing::new(wr_ids, limit).ok_or(libc::EINVAL)
}
