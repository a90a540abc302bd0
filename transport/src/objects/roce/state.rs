//! What a QP has whose peer is reached in packets: the state of both halves.

mod save;

use crate::base::time::{Instant, NEVER};
use crate::collections::pool::List;
use crate::objects::qp::Qp;
use crate::objects::roce::requester_state::RequesterState;
use crate::objects::roce::responder_state::ResponderState;
use vrdma_wire::num::Psn;

/// What a QP has whose peer is reached in packets.
pub(crate) struct RcRoce {
    pub(crate) requester: RequesterState,
    pub(crate) responder: ResponderState,
    /// When to do something about what has not happened until then, or [`NEVER`]. The QP's timer is
    /// not later than this.
    pub(crate) deadline: Instant,
    /// What the outlet said of its peer ([`Way::stays_here`](crate::Way::stays_here)) when it last
    /// had its turn.
    pub(crate) stays_here: bool,
    /// The same: [`Way::is_near`](crate::Way::is_near).
    pub(crate) is_near: bool,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::qp::entry::QpEntry;
    use crate::objects::roce::responder_state::Resource;
    use crate::verbs::limits::Limits;

    #[test]
    fn an_idle_queue_pair_on_the_wire_is_small() {
        // Room for READs and atomics of its peer it has from the first of them on.
        let all = size_of::<Option<QpEntry>>() + size_of::<RcRoce>();
        assert!(all < 768, "{all}");
        let resources = Limits::default().max_dest_rd_atomic as usize * size_of::<Resource>();
        assert!(all + resources < 2048, "{all} and {resources}");
    }
}
