//! Receives: where a message finds its own, and how it ends.
//!
//! A message claims its receive when the first segment arrives that needs one, and holds it until
//! it ends; one that is cut off leaves it to the next, or gives it back to the shared queue that it
//! is from. What is claimed is the first of the QP's own queue, so that further segments find it
//! there, and a flush ends it with the others. (One that comes beyond a hole of a stream claims
//! those of the messages before it as well.) Until then a verdict looks at the first of the shared
//! queue where it is: what is refused or dropped has taken none.

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
    /// The receive that the verdict found is the message's: if it is the first of the QP's shared
    /// queue, it becomes the QP's own.
    #[inline]
    pub(crate) fn claim_receive(&mut self) {
        if self.qp.responder.queue.is_empty() {
            self.claim_another();
        }
    }

    /// The first receive of the QP's shared queue becomes its own, behind those that it has; false
    /// if there is none.
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

    /// The first receive of the QP's shared queue ends at once, as all of its message is there: the
    /// QP's own queue never has it.
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

    /// The peer, on this host, tried again, and there is no receive for it: if it was woken, it was
    /// in vain.
    #[cold]
    pub(crate) fn still_no_receive(&mut self) {
        if self.qp.responder.sender_waits
            && let Some(srq) = self.srqs.of(self.qp)
        {
            srq.waiters.wait(self.qp.qpn);
        }
    }

    /// The QP is in ERR, and all that it had is flushed: says so, if it has a shared queue for
    /// good.
    #[cold]
    pub(crate) fn tell_last_wqe(&mut self) {
        if let Receives::Shared(_) = self.qp.receives() {
            self.event(Event::LastWqeReached(self.place.qpn));
        }
    }

    /// The peer, on this host, waits for a receive.
    #[cold]
    pub(crate) fn sender_waits(&mut self) {
        self.qp.responder.sender_waits = true;
        if let Some(srq) = self.srqs.of(self.qp) {
            srq.waiters.wait(self.qp.qpn);
        }
    }

    /// A message was dropped for which the QP has taken a receive from its shared queue: that has
    /// it again. (IBTA 9.9.3, class E, and rdma_rxe end it with an error; with an own queue, class
    /// D, it stays for the next message.)
    #[cold]
    pub(crate) fn give_back(&mut self) {
        let Some(srq) = self.srqs.of(self.qp) else { return };
        // One that failed has no receives any more, but what was taken before is the QP's.
        if !srq.failed {
            srq.take_back(&mut self.qp.responder.queue, self.requests);
            srq.list(self.place.device, &mut self.schedule.wakes);
        }
    }

    /// A request of XRC, which is the one that is expected next, names a shared queue: the target
    /// has that from now on, until another is named. It has to be of the target's domain, and the
    /// same in all packets of a message (annex A14).
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
            // It takes no receives any more, so none will ever be there; the requester can name
            // other queues again.
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

    /// The target has nothing any more of the shared queue that it had, and its peer waits for
    /// nothing there.
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
        // What is of a queue that failed or was destroyed ended with that.
        if let Some(taken) = self.requests.take_receive(&mut self.qp.responder.queue) {
            taken.end();
        }
    }

    /// A receive of the QP has ended: its shared queue, if it is of one, has room for another.
    /// False if nobody is to know, as that was destroyed.
    #[inline]
    pub(crate) fn receive_ended(&mut self) -> bool {
        // One that uses a shared queue has no receives of its own.
        if self.qp.caps.recv_wr != 0 {
            return true;
        }
        match self.srqs.of(self.qp) {
            Some(srq) => srq.taken -= 1,
            None => return self.qp.receives() == Receives::Own,
        }
        true
    }

    /// The message in the claimed receive has arrived; `completion` is of that id.
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

    /// The receive that the verdict found ends with an error.
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

/// How a receive of a QP ends without a message.
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
