//! Receives: where a message finds its own, and how it ends.
//!
//! A message claims its receive with the first segment that needs one, and holds it until it ends; one that is cut off leaves it to the
//! next. What is claimed is the first of the QP's own queue, so that further segments find it there, and a flush ends it with the others.

use crate::completion::{Completion, Sink, WcStatus};
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::op::WcOpcode;
use crate::outstanding::{RecvSlot, Requests};
use crate::qp::Qp;
use vrdma_wire::num::Qpn;

/// The receive of the message that a segment for `qp` is of; `None` if there is none so far.
#[inline]
pub(crate) fn claim<'a>(requests: &'a Requests, qp: &Qp) -> Option<&'a RecvSlot> {
    requests.front_receive(&qp.responder.queue)
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
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
