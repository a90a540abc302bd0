//! The state of a completion queue that polls work on.

use std::collections::VecDeque;
use std::ptr;

use vrdma_verbs::abi::control::limit;
use vrdma_verbs::abi::cqe::flags;
use vrdma_verbs::{Cq as Queue, Cqe};

use crate::memory::Pages;
use crate::qp::Qp;

/// Value of [`Ring::last`] if there is no QP.
const NO_QP: (u32, *const Qp) = (limit::NONE, ptr::null());

/// State of a CQ that polls work on.
pub struct Ring {
    /// The queue in memory that the device writes.
    pub queue: Queue,
    /// Number of the QP of the last CQE, and the QP or NULL. The next CQE is often for that QP,
    /// which uses this CQ.
    pub last: (u32, *const Qp),
    /// CQEs left over from former rings with their time stamps, the oldest first. They come before
    /// the CQEs in `queue`.
    pub held: VecDeque<(Cqe, u64)>,
    /// Memory of `queue`. The field comes after it, so that it is dropped later.
    pub memory: Pages,
    /// Memory of the next ring during a resize, or after a resize that the device did not answer.
    pub successor: Option<Pages>,
}

// SAFETY: `last` is only dereferenced under the lock. It is cleared under the lock before the QP is
// freed.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes the state of a new queue in `memory`.
    pub fn new(queue: Queue, memory: Pages) -> Self {
        Self { queue, last: NO_QP, held: VecDeque::new(), memory, successor: None }
    }

    /// Takes the next CQE, and its time stamp, or 0 if it has none.
    ///
    /// The device may reuse the entry only after [`Ring::queue`] is published.
    #[inline]
    pub fn take(&mut self) -> Option<(Cqe, u64)> {
        match self.held.pop_front() {
            None => self.queue.take_timed(),
            held => held,
        }
    }

    /// Invalidates the completions of `qp` that are still in the ring.
    ///
    /// If they include receives of its shared queue, these receives are completed.
    pub fn clean(&mut self, qp: &Qp) {
        if ptr::eq(self.last.1, qp) {
            self.last = NO_QP;
        }
        let complete = |cqe: &Cqe| {
            if cqe.flags & flags::RECV != 0 && !qp.has_receive_queue() {
                qp.complete_recv(cqe.wqe_id.get());
            }
        };
        // XRC receives belong to a shared queue, whichever QP took them.
        let is_its = |cqe: &Cqe| cqe.qpn.get() == qp.qpn && cqe.flags & flags::XRC == 0;
        self.held.retain(|(cqe, _)| {
            if is_its(cqe) {
                complete(cqe);
            }
            !is_its(cqe)
        });
        self.queue.rename(is_its, limit::NONE, |cqe| complete(&cqe));
    }

    /// Invalidates the completions of a destroyed XRC shared receive queue that are still in the
    /// ring.
    pub fn clean_srq(&mut self, srqn: u32) {
        let is_its = |cqe: &Cqe| cqe.flags & flags::XRC != 0 && cqe.src_qpn.get() == srqn;
        self.held.retain(|(cqe, _)| !is_its(cqe));
        self.queue.rename(is_its, limit::NONE, |_| ());
    }
}
