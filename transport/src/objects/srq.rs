//! Shared receive queues. Their QPs take receives from them, one at a time as messages need them
//! (IBTA 10.2.9).
//!
//! A taken receive is the first of the QP's own queue, like a receive that was posted there. It
//! completes on the QP's CQ, and is flushed with the QP. It names memory of the PD of the queue
//! that it was posted to.
//!
//! A receive returns to the front of the shared queue if its message is dropped. It also does if
//! the QP is reset or destroyed before it ends. A program that counts outstanding receives
//! therefore does not lose it. Until then its place in the shared queue is reserved.
//!
//! A QP keeps its shared queue as long as it lives, except an XRC target. Each message to a target
//! names the queue that the receive comes from. Such a queue also has the CQ in which receives
//! complete. It can be destroyed at any time. A receive that a target has taken from it is then
//! gone, and its message is refused.

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

/// Numbering of shared receive queues. Numbers have 24 bits, as in XRC packets.
pub(crate) const SRQS: Numbering = Numbering { index_shift: 0, index_bits: 16, tag_shift: 16, tag_bits: 8 };

/// Parameters of a new shared receive queue (ibv_create_srq(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqInit {
    /// The context that may post, and may make QPs that use the queue.
    pub owner: OwnerId,
    /// The protection domain of the memory that its receives name. (The QPs may be in others.)
    pub pd: PdId,
    /// Most receives outstanding. Receives that QPs have taken count until they end.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// Set for an XRC shared receive queue. Only XRC targets take receives from such a queue.
    pub xrc: Option<XrcSrq>,
}

/// The additional parameters of an XRC shared receive queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct XrcSrq {
    /// The domain of the targets whose peers may name the queue.
    pub xrcd: XrcdId,
    /// The CQ in which its receives complete.
    pub cq: CqId,
}

/// Attributes that ibv_query_srq(3) returns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// Raise [`Event::SrqLimitReached`](crate::Event::SrqLimitReached) once fewer receives are left
    /// than this. 0 is not armed.
    pub limit: u32,
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) this: SrqRef,
    pub(crate) init: SrqInit,
    pub(crate) receives: List,
    /// Number of receives that QPs have taken and that have not ended.
    pub(crate) taken: u32,
    /// The armed limit ([`SrqAttr::limit`]).
    pub(crate) limit: u32,
    /// QPs whose peers on this host wait for a receive. They have
    /// [`sender_waits`](crate::objects::qp::responder::Responder::sender_waits) set.
    pub(crate) waiters: Waiters,
    /// Whether the queue is in [`Wakes`].
    pub(crate) listed: bool,
    /// Number of QPs that have the queue as long as they live.
    pub(crate) users: u32,
    /// Whether a wrong receive made the queue fail. It then takes no more receives.
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

    /// Whether the queue is below its limit. If so, disarms the limit.
    pub(crate) fn limit_reached(&mut self) -> bool {
        let reached = self.receives.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Records that a QP has taken its first receive, and so waits for none.
    ///
    /// Returns the queue's number if it is now below its limit.
    #[inline]
    pub(crate) fn first_taken_by(&mut self, qp: &mut Qp) -> Option<SrqId> {
        if mem::take(&mut qp.responder.sender_waits) {
            self.waiters.leave(qp.qpn);
        }
        self.limit_reached().then(|| self.this.id())
    }

    /// Makes the queue fail: it drops its receives and takes no more.
    pub(crate) fn fail(&mut self, requests: &mut Requests) {
        requests.drop_queues(&mut { List::EMPTY }, &mut self.receives);
        (self.failed, self.limit) = (true, 0);
    }

    /// Returns the number of receives that have not ended, including those that QPs have taken.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.receives.len() + self.taken
    }

    /// Returns receives that a QP has taken and that did not end to the front of the queue.
    ///
    /// If the queue failed, the receives end with it.
    pub(crate) fn take_back(&mut self, taken: &mut List, requests: &mut Requests) {
        self.taken -= taken.len();
        if self.failed {
            requests.drop_queues(&mut { List::EMPTY }, taken);
        } else {
            requests.append_receives(taken, &mut self.receives);
            self.receives = mem::take(taken);
        }
    }

    /// Whether the queue has receives, and senders wait for them.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.any() && !self.receives.is_empty()
    }

    /// Lists the queue for waking its senders, if it has receives for them.
    #[inline]
    pub(crate) fn list(&mut self, device: u32, wakes: &mut Wakes) {
        if self.is_wanted() && !mem::replace(&mut self.listed, true) {
            wakes.push(device, self.this.id());
        }
    }

    /// Wakes the first waiting QP.
    ///
    /// Does so only if there are more receives than QPs that were woken and have not tried.
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
    /// Returns a queue that must exist.
    ///
    /// It was found in the same call of the engine, or a QP has it as long as it lives.
    #[inline]
    pub(crate) fn used(&mut self, id: SrqId) -> &mut Srq {
        self.get_mut(id.0).expect("a shared receive queue is not destroyed while QPs use it")
    }

    /// Returns the queue that a QP takes its receives from.
    ///
    /// For an XRC target this is the queue of the last message. Returns `None` if the QP has none,
    /// or if a target's queue was destroyed.
    #[inline]
    pub(crate) fn of(&mut self, qp: &Qp) -> Option<&mut Srq> {
        let this = qp.srq?;
        self.get_mut(this.id().0).filter(|srq| srq.this == this)
    }

    /// Returns the queue that a QP takes its receives from, for reading.
    #[inline]
    pub(crate) fn peek(&self, qp: &Qp) -> Option<&Srq> {
        let this = qp.srq?;
        self.get(this.id().0).filter(|srq| srq.this == this)
    }

    /// Whether a QP's queue exists, has that number, and has not failed.
    #[inline]
    pub(crate) fn has_numbered(&self, qp: &Qp, srqn: Srqn) -> bool {
        self.peek(qp).is_some_and(|srq| srq.this.id().0 == srqn.number() && !srq.failed)
    }

    /// Returns the XRC queue with that number, if it is in that domain.
    pub(crate) fn find_xrc(&self, srqn: Srqn, xrcd: XrcdId) -> Option<(&Srq, XrcSrq)> {
        let srq = self.get(srqn.number())?;
        srq.init.xrc.filter(|xrc| xrc.xrcd == xrcd).map(|xrc| (srq, xrc))
    }

    /// Records that the peer of a QP no longer waits for a receive of its shared queue, if it has
    /// one.
    pub(crate) fn waits_no_longer(&mut self, qp: &mut Qp) {
        if qp.srq.is_some()
            && mem::take(&mut qp.responder.sender_waits)
            && let Some(srq) = self.of(qp)
        {
            srq.waiters.leave(qp.qpn);
        }
    }
}
