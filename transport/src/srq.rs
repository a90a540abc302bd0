//! Shared receive queues: QPs that have one take their receives from it, one at a time as messages need them (IBTA 10.2.9).
//!
//! A receive that was taken is the first of the QP's own queue, like one that was posted there: it completes on the QP's CQ, is flushed with the QP,
//! and names memory of the PD of the queue that it was posted to. One whose message is dropped stays with the QP for the next. If the QP is reset or
//! destroyed before it completes, the queue has it again, so that whoever counts what is outstanding need not lose it.

mod save;

use crate::id::{OwnerId, PdId, SrqId};
use crate::outstanding::Requests;
use crate::pool::List;
use crate::qp::Qp;
use crate::table::{Numbered, Numbering, Table};
use core::mem;
use std::collections::VecDeque;
use vrdma_wire::num::Qpn;

/// Numbers of shared receive queues, of 24 bits as in XRC packets.
pub(crate) const SRQS: Numbering = Numbering { index_shift: 0, index_bits: 16, tag_shift: 16, tag_bits: 8 };

/// What a shared receive queue is made with (ibv_create_srq(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqInit {
    /// Who may post, and make QPs that use it.
    pub owner: OwnerId,
    /// The protection domain that its receives name memory of. (The QPs' may be others.)
    pub pd: PdId,
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
}

/// What ibv_query_srq(3) tells.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SrqAttr {
    /// Most receives outstanding.
    pub max_wr: u32,
    /// Most elements of a receive.
    pub max_sge: u32,
    /// [`Event::SrqLimitReached`](crate::Event::SrqLimitReached) comes once fewer receives are left than this; 0: it is not armed.
    pub limit: u32,
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) id: SrqId,
    pub(crate) init: SrqInit,
    pub(crate) receives: List,
    /// [`SrqAttr::limit`]
    pub(crate) limit: u32,
    /// QPs whose peers on this host wait for a receive ([`sender_waits`](crate::qp::responder::Responder::sender_waits)), in order.
    pub(crate) waiting: VecDeque<Qpn>,
    /// QPs that use it.
    pub(crate) users: u32,
    /// It takes no receives any more, after one that was wrong.
    pub(crate) failed: bool,
}

impl Srq {
    pub(crate) fn new(id: SrqId, init: SrqInit) -> Srq {
        let (receives, waiting) = (List::EMPTY, VecDeque::new());
        Srq { id, init, receives, limit: 0, waiting, users: 0, failed: false }
    }

    /// Whether it has come below its limit; the limit is not armed any more then.
    pub(crate) fn limit_reached(&mut self) -> bool {
        let reached = self.receives.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Receives that a QP has taken and that did not complete are the queue's again, before all others, as far as it may hold them.
    pub(crate) fn take_back(&mut self, taken: &mut List, requests: &mut Requests) {
        if !self.failed && self.receives.len() + taken.len() <= self.init.max_wr {
            requests.append_receives(taken, &mut self.receives);
            self.receives = mem::take(taken);
        }
    }
}

impl Numbered for Srq {
    #[inline]
    fn number(&self) -> u32 {
        self.id.0
    }
}

/// The shared receive queues of a device.
pub(crate) type Srqs = Table<Srq>;

impl Srqs {
    /// The one that a QP uses.
    #[inline]
    pub(crate) fn used(&mut self, id: SrqId) -> &mut Srq {
        self.get_mut(id.0).expect("a shared receive queue is not destroyed while QPs use it")
    }

    /// The peer of a QP waits no longer for a receive of its shared queue, if it has one.
    pub(crate) fn waits_no_longer(&mut self, qp: &mut Qp) {
        if let Some(id) = qp.init.srq
            && mem::take(&mut qp.responder.sender_waits)
        {
            self.used(id).waiting.retain(|&waiting| waiting != qp.qpn);
        }
    }
}
