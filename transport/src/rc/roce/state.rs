//! What a QP has whose peer is reached in packets: the state of both halves.

mod save;

use crate::pool::List;
use crate::qp::Qp;
use crate::rc::roce::requester_state::RequesterState;
use crate::rc::roce::responder_state::ResponderState;
use crate::time::{Instant, NEVER};
use vrdma_wire::num::Psn;

/// What a QP has whose peer is reached in packets.
pub(crate) struct RcRoce {
    pub(super) requester: RequesterState,
    pub(super) responder: ResponderState,
    /// When to do something about what has not happened until then, or [`NEVER`]. The QP's timer is not later than this.
    pub(super) deadline: Instant,
    /// What the outlet said of its peer ([`Way::stays_here`](crate::Way::stays_here)) when it last had its turn.
    pub(super) stays_here: bool,
    /// The same: [`Way::is_near`](crate::Way::is_near).
    pub(super) is_near: bool,
}

impl RcRoce {
    /// For a QP whose attributes are set.
    pub(crate) fn new(qp: &Qp) -> RcRoce {
        RcRoce {
            requester: RequesterState::new(),
            responder: ResponderState::new(qp.max_dest_rd_atomic),
            deadline: NEVER,
            stays_here: false,
            is_near: false,
        }
    }

    /// The next request begins with `psn`; nothing of those in `queue` was sent.
    pub(crate) fn start(&mut self, psn: Psn, queue: &List) {
        self.requester.start(psn, queue.head());
        self.deadline = NEVER;
    }

    /// A request was added to the end of `queue`.
    #[inline]
    pub(crate) fn posted(&mut self, queue: &List) {
        self.requester.posted(queue.tail());
    }

    /// What is outstanding is retransmitted.
    pub(crate) fn send_again(&mut self, queue: &List) {
        self.requester.go_back(queue.head());
        self.deadline = NEVER;
    }

    /// The QP takes as many READs and atomics now.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        self.responder.resize(max_dest_rd_atomic);
    }

    /// Whether there is a request to send, if nothing forbids it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.requester.has_unsent()
    }
}
