//! Queue pairs.

mod create;
mod kind;

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use vrdma_verbs::WrRing;

use crate::batch::{self, Batches};
use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{Errno, check, code, lock};
use crate::ffi;
use crate::memory::WrIds;
use crate::objects::zeroed;
use crate::pd::{Pd, Resource};
use crate::refs::Ref;
use crate::srq::Srq;
use crate::table::Numbered;
pub use create::{create_qp, create_qp_ex, open_qp};
pub use kind::Kind;
use kind::by_functions;

/// wr_ids of the outstanding requests on one side of a QP.
pub type Requests = WrRing<WrIds>;

/// A queue pair.
#[repr(C)]
pub struct Qp {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_qp>,
    /// Number of the QP.
    pub qpn: u32,
    /// Transport service of the QP.
    pub kind: Kind,
    /// Each send request generates a completion.
    pub signal_all: bool,
    /// State after the last modify. The QP may have moved to an error state since then.
    state: AtomicU32,
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
    /// CQs of sends and of receives, or NULL. XRC targets have none, and XRC initiators have one.
    /// CQs outlive the QPs that use them.
    cqs: [*const Cq; 2],
    /// Shared receive queue, or NULL.
    srq: *mut ffi::ibv_srq,
    /// PD of the QP. XRC targets have none.
    pd: Option<Ref<Pd>>,
    /// Requests that ibv_wr_complete() will post.
    pub batches: Batches,
}

impl Qp {
    /// Makes a QP that the kernel does not know yet.
    fn new(kind: Kind, signal_all: bool, pd: Option<Ref<Pd>>) -> Result<Self, Errno> {
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
            cqs: [ptr::null(); 2],
            srq: ptr::null_mut(),
            pd,
            batches: Batches::new(),
        })
    }

    /// Stores what the kernel returned: the number, and the capabilities in `attr`.
    fn set_up(&mut self, qpn: u32, attr: &ffi::ibv_qp_init_attr_ex) -> Result<(), Errno> {
        let cap = &attr.cap;
        self.qpn = qpn;
        self.max_send_sge = cap.max_send_sge;
        self.max_recv_sge = cap.max_recv_sge;
        self.max_inline = cap.max_inline_data;
        self.sends = requests(self.pd.as_ref(), cap.max_send_wr, Resource::SendQueue)?;
        self.recvs = requests(self.pd.as_ref(), cap.max_recv_wr, Resource::RecvQueue)?;
        // A `Cq` begins with the `ibv_cq` of libibverbs.
        self.cqs = [attr.send_cq, attr.recv_cq].map(|cq| cq.cast_const().cast());
        self.srq = attr.srq;
        if by_functions(attr) {
            let verbs = self.verbs.get_mut();
            verbs.comp_mask |= ffi::VERBS_QP_EX;
            // SAFETY: `ibv_qp_ex` begins with `ibv_qp`. The rest is zero, which means no functions.
            batch::set_functions(unsafe { &mut verbs.__bindgen_anon_1.qp_ex });
        }
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

    /// Returns the context of the QP.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the QP was made, by ibv_cmd_create_qp(); a context outlives its objects.
        unsafe { Context::of((*self.ibv()).context) }
    }

    /// Stores the state after a modify.
    fn set_state(&self, state: u32) {
        self.state.store(self.for_posts(state), Ordering::Relaxed);
    }

    /// Returns the state that decides about posts.
    ///
    /// An iWARP QP moves to RTS without a modify, when it is connected. So from INIT on it may be
    /// in RTS.
    fn for_posts(&self, state: u32) -> u32 {
        // SAFETY: the context is set as in context(), and its device outlives it. (In tests there
        // may be no device.)
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

    fn ibv(&self) -> *mut ffi::ibv_qp {
        self.verbs.get().cast()
    }

    /// Iterates over the CQs of the QP, each once.
    fn each_cq(&self) -> impl Iterator<Item = &Cq> {
        let [send, recv] = self.cqs;
        let second = if ptr::eq(recv, send) { ptr::null() } else { recv };
        // SAFETY: NULL, or a CQ; CQs outlive the QPs that use them.
        [send, second].into_iter().filter_map(|cq| unsafe { cq.as_ref() })
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
            if ptr::eq(cq, send) {
                self.sends.reset();
            }
            if ptr::eq(cq, recv) {
                self.recvs.reset();
            }
        }
    }
}

impl Numbered for Qp {
    fn number(&self) -> u32 {
        self.qpn
    }

    fn cqs(&self) -> [*const Cq; 2] {
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
