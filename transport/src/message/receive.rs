//! Receives: which receive a message takes, and how the receive ends.
//!
//! A message claims its receive when the first segment arrives that needs one, and keeps it until
//! the message ends. If the message is cut off, the receive stays for the next message, or goes
//! back to its shared queue.
//!
//! A claimed receive is the first of the QP's own queue. Further segments find it there, and a
//! flush ends it with the others. (A SEND that arrives out of order in an iWARP stream also claims
//! the receives of the messages before it.)
//!
//! Before that, the responder's checks look at the first receive of the shared queue, and leave it
//! there. A message that is refused or dropped therefore takes none.

use crate::base::id::SrqId;
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::verdict::{Nak, Refusal};
use crate::objects::outstanding::Taken;
use crate::objects::qp::Qp;
use crate::objects::service::ConnState;
use crate::verbs::attr::Receives;
use crate::verbs::completion::{Completion, Event, Sink, WcStatus};
use crate::verbs::op::{Message, WcOpcode};
use vrdma_wire::num::{Qpn, Srqn};

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Claims the receive that the responder's checks found.
    ///
    /// If it is the first of the QP's shared queue, it moves to the QP's own queue.
    #[inline]
    pub(crate) fn claim_receive(&mut self) {
        if self.qp.responder.queue.is_empty() {
            self.claim_another();
        }
    }

    /// Moves the first receive of the QP's shared queue to the end of its own queue.
    ///
    /// Returns false if there is none.
    pub(crate) fn claim_another(&mut self) -> bool {
        let Some(srq) = self.srqs.of(self.qp) else { return false };
        if !self.requests.move_receive(&mut srq.receives, &mut self.qp.responder.queue) {
            return false;
        }
        srq.taken += 1;
        let limit_reached = srq.first_taken_by(self.qp);
        self.tell_of_limit(limit_reached);
        true
    }

    /// Takes the first receive of the QP's shared queue for a message that is complete.
    ///
    /// The receive never enters the QP's own queue.
    #[inline]
    fn take_shared(&mut self) -> Option<Taken<u32>> {
        let srq = self.srqs.of(self.qp)?;
        let taken = self.requests.take_receive(&mut srq.receives);
        let limit_reached = srq.first_taken_by(self.qp);
        self.tell_of_limit(limit_reached);
        taken
    }

    #[inline]
    fn tell_of_limit(&mut self, reached: Option<SrqId>) {
        if let Some(srq) = reached {
            self.event(Event::SrqLimitReached(srq));
        }
    }

    /// Records that the peer, on this host, tried again and found no receive.
    ///
    /// If it was woken, that was in vain.
    #[cold]
    pub(crate) fn still_no_receive(&mut self) {
        if self.qp.responder.sender_waits
            && let Some(srq) = self.srqs.of(self.qp)
        {
            srq.waiters.wait(self.qp.qpn);
        }
    }

    /// Reports that the QP is in ERR and everything is flushed, if it is bound to a shared queue.
    #[cold]
    pub(crate) fn tell_last_wqe(&mut self) {
        if let Receives::Shared(_) = self.qp.receives() {
            self.event(Event::LastWqeReached(self.place.qpn));
        }
    }

    /// Records that the peer, on this host, waits for a receive.
    #[cold]
    pub(crate) fn sender_waits(&mut self) {
        self.qp.responder.sender_waits = true;
        if let Some(srq) = self.srqs.of(self.qp) {
            srq.waiters.wait(self.qp.qpn);
        }
    }

    /// Returns the receive of a dropped message to the shared queue from which the QP took it.
    ///
    /// (IBTA 9.9.3, class E, and rdma_rxe end the receive with an error. A receive of the QP's own
    /// queue, class D, stays for the next message.)
    #[cold]
    pub(crate) fn give_back(&mut self) {
        let Some(srq) = self.srqs.of(self.qp) else { return };
        // A failed queue has no receives any more, but the QP keeps those that it has taken.
        if !srq.failed {
            srq.take_back(&mut self.qp.responder.queue, self.requests);
            srq.list(self.place.device, &mut self.schedule.wakes);
        }
    }

    /// Selects the shared queue that an XRC request names, for the target.
    ///
    /// The request must be the one that is expected next. The target keeps the queue until a
    /// request names another. The queue must be in the target's domain, and must be the same in all
    /// packets of a message (annex A14).
    pub(crate) fn choose_queue(&mut self, srqn: Srqn) -> Result<(), Refusal> {
        if self.srqs.has_numbered(self.qp, srqn) {
            return Ok(());
        }
        let refuse = |nak| Err(Refusal { nak, receive: None });
        let Receives::Xrc(xrcd) = self.qp.receives() else {
            unreachable!("requests of XRC come to targets alone")
        };
        let Some((srq, xrc)) = self.srqs.find_xrc(srqn, xrcd) else { return refuse(Nak::Access) };
        if srq.failed {
            // The queue takes no receives any more, so there will never be one. With this NAK the
            // requester can name other queues later.
            return refuse(Nak::Operational);
        }
        if self.qp.responder.in_progress != Message::None {
            return refuse(Nak::Invalid);
        }
        let (this, pd) = (srq.this, srq.init.pd);
        self.leave_queue();
        self.qp.have_queue(this, pd, xrc.cq);
        Ok(())
    }

    /// Detaches the target from its shared queue. Its peer does not wait for a receive there any
    /// more.
    #[cold]
    fn leave_queue(&mut self) {
        self.srqs.waits_no_longer(self.qp);
        match self.srqs.of(self.qp) {
            Some(srq) if !srq.failed => {
                srq.take_back(&mut self.qp.responder.queue, self.requests);
                srq.list(self.place.device, &mut self.schedule.wakes);
            }
            Some(srq) => srq.taken -= self.qp.responder.queue.len(),
            None => {}
        }
        // A receive of a queue that failed or was destroyed ends without a completion.
        if let Some(taken) = self.requests.take_receive(&mut self.qp.responder.queue) {
            taken.end();
        }
    }

    /// Records that a receive of the QP has ended, so that its shared queue has room for another.
    ///
    /// Returns false if nobody is to be told, because the queue was destroyed.
    #[inline]
    pub(crate) fn receive_ended(&mut self) -> bool {
        // A QP with a shared queue has no receives of its own.
        if self.qp.caps.recv_wr != 0 {
            return true;
        }
        match self.srqs.of(self.qp) {
            Some(srq) => srq.taken -= 1,
            None => return self.qp.receives() == Receives::Own,
        }
        true
    }

    /// Completes the receive of a message that has arrived. `completion` gets the receive's id.
    #[inline]
    pub(crate) fn complete_claimed(&mut self, completion: impl FnOnce(u32) -> Completion) {
        let is_claimed = !self.qp.responder.queue.is_empty();
        let taken = match is_claimed {
            true => self.requests.take_receive(&mut self.qp.responder.queue),
            false => self.take_shared(),
        };
        let id = taken.expect("the verdict found a receive").end();
        let told = !is_claimed || self.receive_ended();
        debug_assert!(told, "a target has a queue that is there when a message arrives");
        self.counters.receives += 1;
        self.complete_receive(&completion(id));
    }

    /// Ends the receive that the responder's checks found, with an error.
    #[cold]
    pub(crate) fn fail_claimed(&mut self, status: WcStatus) {
        self.claim_receive();
        if let Some(taken) = self.requests.take_receive(&mut self.qp.responder.queue) {
            let id = taken.end();
            if self.receive_ended() {
                self.counters.errors += 1;
                self.complete_receive(&recv_failure(self.qp, id, status));
            }
        }
    }
}

/// Returns the completion of a receive that ends without a message.
pub(crate) fn recv_failure(qp: &Qp, id: u32, status: WcStatus) -> Completion {
    let opcode = WcOpcode::Recv;
    Completion {
        id,
        qpn: qp.qpn,
        opcode,
        status,
        byte_len: 0,
        imm: None,
        invalidated: None,
        src_qpn: Qpn::default(),
        solicited: false,
        srq: qp.xrc_queue(),
        arrival: None,
    }
}
