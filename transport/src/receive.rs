//! Receives: where a message finds its own, and how it ends.
//!
//! A message claims its receive with the first segment that needs one, and holds it until it ends; one that is cut off leaves it to the
//! next, or gives it back to the shared queue that it is from. What is claimed is the first of the QP's own queue, so that further segments find it there, and a flush ends it with the others.

use crate::completion::{Completion, Event, Sink, WcStatus};
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::op::WcOpcode;
use vrdma_wire::num::Qpn;

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A message found no receive: the first of the QP's shared queue becomes the QP's own. False if there is no such queue, or nothing in it.
    pub(crate) fn draw_receive(&mut self) -> bool {
        let Some(id) = self.qp.init.srq else { return false };
        let srq = self.srqs.used(id);
        let sender_waited = self.qp.responder.sender_waits;
        if !self.requests.move_receive(&mut srq.receives, &mut self.qp.responder.queue) {
            if sender_waited {
                // If it was woken, it was in vain.
                srq.waiters.wait(self.qp.qpn);
            }
            return false;
        }
        srq.taken += 1;
        if sender_waited {
            self.qp.responder.sender_waits = false;
            srq.waiters.leave(self.qp.qpn);
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
        self.qp.responder.sender_waits = true;
        if let Some(id) = self.qp.init.srq {
            self.srqs.used(id).waiters.wait(self.qp.qpn);
        }
    }

    /// A message was dropped for which the QP has taken a receive from its shared queue: that has it again. (IBTA 9.9.3, class E, and rdma_rxe end it
    /// with an error; with an own queue, class D, it stays for the next message.)
    #[cold]
    pub(crate) fn give_back(&mut self) {
        let Some(id) = self.qp.init.srq else { return };
        let srq = self.srqs.used(id);
        // One that failed has no receives any more, but what was taken before is the QP's.
        if !srq.failed {
            srq.take_back(&mut self.qp.responder.queue, self.requests);
            srq.list(self.place.device, &mut self.schedule.wakes);
        }
    }

    /// A receive of the QP has ended: its shared queue, if it is of one, has room for another.
    #[inline]
    pub(crate) fn receive_ended(&mut self) {
        // One that uses a shared queue has no receives of its own.
        if self.qp.caps.recv_wr == 0
            && let Some(id) = self.qp.init.srq
        {
            self.srqs.used(id).taken -= 1;
        }
    }

    /// The message in the claimed receive has arrived; `completion` is of that id.
    #[inline]
    pub(crate) fn complete_claimed(&mut self, completion: impl FnOnce(u32) -> Completion) {
        let taken = self.requests.take_receive(&mut self.qp.responder.queue);
        let id = taken.expect("the verdict found a receive").end();
        self.receive_ended();
        self.counters.receives += 1;
        self.complete_receive(&completion(id));
    }

    /// The claimed receive, if there is one, ends with an error.
    #[cold]
    pub(crate) fn fail_claimed(&mut self, status: WcStatus) {
        if let Some(taken) = self.requests.take_receive(&mut self.qp.responder.queue) {
            self.receive_ended();
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
        invalidated: None,
        src_qpn: Qpn::default(),
        solicited: false,
        arrival: None,
    }
}
