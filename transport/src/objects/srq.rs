//! Shared receive queues: QPs that have one take their receives from it, one at a time as messages
//! need them (IBTA 10.2.9).
//!
//! A receive that was taken is the first of the QP's own queue, like one that was posted there: it
//! completes on the QP's CQ, is flushed with the QP, and names memory of the PD of the queue that
//! it was posted to. If its message is dropped, or the QP reset or destroyed before it ends, the
//! queue has it again, before all others, so that whoever counts what is outstanding need not lose
//! it; until then its place in the queue is kept.
//!
//! A QP has its shared queue as long as it lives, but for an XRC target: which queue it takes a
//! receive from each message says. Such a queue says where receives complete, too, and can be
//! destroyed whatever peers have begun: a receive that a target has taken from it is gone then, and
//! its message refused.

pub(crate) mod life;
mod save;
mod waiters;

use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::collections::pool::List;
use crate::collections::table::{Numbered, Numbering, Table};
use crate::collections::wakes::Wakes;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::srq::life::SrqRef;
use crate::objects::srq::waiters::Waiters;
use core::mem;
use vrdma_wire::num::{Qpn, Srqn};

/// Numbers of shared receive queues, of 24 bits as in XRC packets.
pub(crate) const SRQS: Numbering = Numbering { index_shift: 0, index_bits: 16, tag_shift: 16, tag_bits: 8 };

/// What a shared receive queue is made with (ibv_create_srq(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqInit {
    /// Who may post, and make QPs that use it.
    pub owner: OwnerId,
    /// The protection domain that its receives name memory of. (The QPs' may be others.)
    pub pd: PdId,
    /// Most receives outstanding: those that QPs have taken count until they end.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// For an XRC shared receive queue, which takes the place of others: XRC targets take receives
    /// from it, and no other QPs.
    pub xrc: Option<XrcSrq>,
}

/// What is special about an XRC shared receive queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// The domain of those targets whose peers may name it.
    pub xrcd: XrcdId,
    /// Where its receives complete.
    pub cq: CqId,
}

/// What ibv_query_srq(3) tells.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// [`Event::SrqLimitReached`](crate::Event::SrqLimitReached) comes once fewer receives are left
    /// than this; 0: it is not armed.
    pub limit: u32,
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) this: SrqRef,
    pub(crate) init: SrqInit,
    pub(crate) receives: List,
    /// Receives that QPs have taken and that have not ended.
    pub(crate) taken: u32,
    /// [`SrqAttr::limit`]
    pub(crate) limit: u32,
    /// QPs whose peers on this host wait for a receive: those with
    /// [`sender_waits`](crate::objects::qp::responder::Responder::sender_waits).
    pub(crate) waiters: Waiters,
    /// It is in [`Wakes`].
    pub(crate) listed: bool,
    /// QPs that have it as long as they live.
    pub(crate) users: u32,
    /// It takes no receives any more, after one that was wrong.
    pub(crate) failed: bool,
}

impl Srq {
    pub(crate) fn new(this: SrqRef, init: SrqInit) -> Srq {
        Srq {
            this,
            init,
            receives: List::EMPTY,
            taken: 0,
            limit: 0,
            waiters: Waiters::default(),
            listed: false,
            users: 0,
            failed: false,
        }
    }

    /// Whether it has come below its limit; the limit is not armed any more then.
    pub(crate) fn limit_reached(&mut self) -> bool {
        let reached = self.receives.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// A QP has taken its first receive, and so waits for none. Its number, if it has come below
    /// its limit thereby.
    #[inline]
    pub(crate) fn first_taken_by(&mut self, qp: &mut Qp) -> Option<SrqId> {
        if mem::take(&mut qp.responder.sender_waits) {
            self.waiters.leave(qp.qpn);
        }
        self.limit_reached().then(|| self.this.id())
    }

    /// It fails: it has no receives any more, and takes none.
    pub(crate) fn fail(&mut self, requests: &mut Requests) {
        requests.drop_queues(&mut { List::EMPTY }, &mut self.receives);
        (self.failed, self.limit) = (true, 0);
    }

    /// Receives that have not ended, its own and those that QPs have taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.receives.len() + self.taken
    }

    /// Receives that a QP has taken and that did not end are the queue's again, before all others;
    /// if it failed, they end with it.
    pub(crate) fn take_back(&mut self, taken: &mut List, requests: &mut Requests) {
        self.taken -= taken.len();
        if self.failed {
            requests.drop_queues(&mut { List::EMPTY }, taken);
        } else {
            requests.append_receives(taken, &mut self.receives);
            self.receives = mem::take(taken);
        }
    }

    /// Whether it has receives, and senders wait for them.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.any() && !self.receives.is_empty()
    }

    /// Sees to it that those who wait are woken, if there is something for them.
    #[inline]
    pub(crate) fn list(&mut self, device: u32, wakes: &mut Wakes) {
        if self.is_wanted() && !mem::replace(&mut self.listed, true) {
            wakes.push(device, self.this.id());
        }
    }

    /// The first that waits is woken, if there are more receives than were woken and have not
    /// tried.
    pub(crate) fn wake_first(&mut self) -> Option<Qpn> {
        if self.receives.len() as usize > self.waiters.num_woken() { self.waiters.wake_first() } else { None }
    }
}

impl Numbered for Srq {
    #[inline]
    fn number(&self) -> u32 {
        self.this.id().0
    }
}

/// The shared receive queues of a device.
pub(crate) type Srqs = Table<Srq>;

impl Srqs {
    /// One that was found before in the same call of the engine, or that a QP has as long as it
    /// lives.
    #[inline]
    pub(crate) fn used(&mut self, id: SrqId) -> &mut Srq {
        self.get_mut(id.0).expect("a shared receive queue is not destroyed while QPs use it")
    }

    /// The one that a QP takes its receives from, or an XRC target that of the last message. `None`
    /// if it has none; a target's may have been destroyed.
    #[inline]
    pub(crate) fn of(&mut self, qp: &Qp) -> Option<&mut Srq> {
        let this = qp.srq?;
        self.get_mut(this.id().0).filter(|srq| srq.this == this)
    }

    /// The same, to look at.
    #[inline]
    pub(crate) fn peek(&self, qp: &Qp) -> Option<&Srq> {
        let this = qp.srq?;
        self.get(this.id().0).filter(|srq| srq.this == this)
    }

    /// Whether the one that a QP has is there, and has that number.
    #[inline]
    pub(crate) fn has_numbered(&self, qp: &Qp, srqn: Srqn) -> bool {
        self.peek(qp).is_some_and(|srq| srq.this.id().0 == srqn.number() && !srq.failed)
    }

    /// The one with that number, if it is an XRC one of a domain.
    pub(crate) fn find_xrc(&self, srqn: Srqn, xrcd: XrcdId) -> Option<(&Srq, XrcSrq)> {
        let srq = self.get(srqn.number())?;
        srq.init.xrc.filter(|xrc| xrc.xrcd == xrcd).map(|xrc| (srq, xrc))
    }

    /// The peer of a QP waits no longer for a receive of its shared queue, if it has one.
    pub(crate) fn waits_no_longer(&mut self, qp: &mut Qp) {
        if qp.srq.is_some()
            && mem::take(&mut qp.responder.sender_waits)
            && let Some(srq) = self.of(qp)
        {
            srq.waiters.leave(qp.qpn);
        }
    }
}
