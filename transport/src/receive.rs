//! Receives: where a message finds its own, and how it ends.
//!
//! A message claims its receive with the first segment that needs one, and holds it until it ends; one that is cut off leaves it to the
//! next. What is claimed is the first of the QP's own queue, so that further segments find it there, and a flush ends it with the others.

use crate::completion::{Completion, Event, Sink, WcStatus};
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::op::WcOpcode;
use core::mem;
use vrdma_wire::num::Qpn;

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A message found no receive: the first of the QP's shared queue becomes the QP's own. False if there is no such queue, or nothing in it.
    pub(crate) fn draw_receive(&mut self) -> bool {
        let Some(id) = self.qp.init.srq else { return false };
        let srq = self.srqs.used(id);
        if !self.requests.move_receive(&mut srq.receives, &mut self.qp.responder.queue) {
            return false;
        }
        if srq.limit_reached() {
            self.event(Event::SrqLimitReached(id));
        }
        true
    }

    /// The QP is in ERR, and all that it had is flushed: says so, if it has a shared queue.
    #[cold]
    pub(crate) fn tell_last_wqe(&mut self) {
        if self.qp.init.srq.is_some() {
            self.event(Event::LastWqeReached(self.place.qpn));
        }
    }

    /// The peer, on this host, waits for a receive.
    #[cold]
    pub(crate) fn sender_waits(&mut self) {
        if mem::replace(&mut self.qp.responder.sender_waits, true) {
            return;
        }
        if let Some(id) = self.qp.init.srq {
            self.srqs.used(id).waiting.push_back(self.qp.qpn);
        }
    }

    /// The message in the claimed receive has arrived; `completion` is of that id.
    #[inline]
    pub(crate) fn complete_claimed(&mut self, completion: impl FnOnce(u32) -> Completion) {
        let taken = self.requests.take_receive(&mut self.qp.responder.queue);
        let id = taken.expect("the verdict found a receive").end();
        self.counters.receives += 1;
        self.complete_receive(&completion(id));
    }

    /// The claimed receive, if there is one, ends with an error.
    #[cold]
    pub(crate) fn fail_claimed(&mut self, status: WcStatus) {
        if let Some(taken) = self.requests.take_receive(&mut self.qp.responder.queue) {
            self.counters.errors += 1;
            self.complete_receive(&recv_failure(self.place.qpn, taken.end(), status));
        }
    }
}

/// How a receive of QP `qpn` ends without a message.
pub(crate) fn recv_failure(qpn: Qpn, id: u32, status: WcStatus) -> Completion {
    let opcode = WcOpcode::Recv;
    Completion {
        id,
        qpn,
        opcode,
        status,
        byte_len: 0,
        imm: None,
        src_qpn: Qpn::default(),
        solicited: false,
        arrival: None,
    }
}
