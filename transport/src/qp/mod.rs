//! A queue pair: what it is, and its two halves.

pub(crate) mod attr;
pub(crate) mod state;

use crate::qp::attr::{QpAttr, QpInit, QpState};
use crate::rc::requester::Requester;
use crate::rc::responder::Responder;
use crate::table::{Numbered, Numbering, Table};
use vrdma_wire::num::{Gid, Qpn};

/// A queue pair. What each message touches comes first.
#[repr(C, align(64))]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) state: QpState,
    pub(crate) init: QpInit,
    /// Where the peer was found last: a hint, proven by comparing addresses each time.
    pub(crate) route: u32,
    /// Own GID: that of `attr.sgid_index`, kept up to date; zero if there is none.
    pub(crate) sgid: Gid,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Attributes; `state`, `cur_state`, `sq_psn` and `rq_psn` in it do not count.
    pub(crate) attr: QpAttr,
}

impl Qp {
    pub(crate) fn new(qpn: Qpn, init: QpInit) -> Qp {
        Qp {
            qpn,
            state: QpState::Reset,
            init,
            route: u32::MAX,
            sgid: Gid::ZERO,
            requester: Requester::new(),
            responder: Responder::new(),
            attr: QpAttr::default(),
        }
    }

    /// Whether the first request of the send queue may be worked on.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        match self.state {
            QpState::Rts => true,
            QpState::Sqd => self.requester.started,
            _ => false,
        }
    }

    /// What ibv_query_qp(3) tells.
    pub(crate) fn query(&self) -> QpAttr {
        QpAttr {
            state: self.state,
            cur_state: self.state,
            sq_draining: self.state == QpState::Sqd && self.requester.started,
            sq_psn: self.requester.psn,
            rq_psn: self.responder.psn,
            ..self.attr
        }
    }
}

impl Numbered for Qp {
    #[inline]
    fn number(&self) -> u32 {
        self.qpn.number()
    }
}

/// The queue pairs of a device.
pub(crate) type Qps = Table<Qp>;

/// QPNs: a generation above an index, so that a QPN modulo `max_qp` (a power of two) is unique among the living.
pub(crate) fn numbering(max_qp: u32) -> Numbering {
    let bits = max_qp.ilog2();
    Numbering { index_shift: 0, index_bits: bits, tag_shift: bits, tag_bits: 24 - bits }
}

/// Indices of QP0 and QP1.
pub(crate) const SPECIAL_QPS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_small() {
        assert!(size_of::<Option<Qp>>() <= 384, "{}", size_of::<Option<Qp>>());
    }
}
