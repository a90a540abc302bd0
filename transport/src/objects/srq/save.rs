//! Shared receive queues in the record.

use super::{Srq, SrqInit, Srqs, XrcSrq};
use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::collections::pool::List;
use crate::objects::outstanding::Requests;
use crate::objects::qp::entry::Qps;
use crate::objects::srq::life::SrqRef;
use crate::objects::srq::waiters::Waiters;
use crate::save::{Violation, record, to_qpn};
use std::collections::BTreeSet;
use vrdma_wire::num::{Qpn, Srqn};

impl Srq {
    /// Returns the record of the queue, with its receives.
    pub(crate) fn save(&self, requests: &Requests) -> record::Srq {
        // The records of QPs and turns tell the users, what they have taken, and whether it is
        // listed.
        let Srq { this, init, receives, taken: _, limit, waiters, listed: _, users: _, failed } = self;
        let SrqInit { owner, pd, max_wr, max_sge, xrc } = *init;
        let (waiting, woken) = waiters.in_order();
        let numbers = |qpns: Vec<Qpn>| qpns.into_iter().map(Qpn::number).collect();
        record::Srq {
            srq: this.id().0,
            owner: owner.0,
            pd: pd.0,
            max_wr,
            max_sge,
            xrc: xrc.map(|XrcSrq { xrcd, cq }| record::XrcSrq { xrcd: xrcd.0, cq: cq.0 }),
            limit: *limit,
            failed: *failed,
            receives: requests.save_receives(receives),
            waiting: numbers(waiting),
            woken: numbers(woken),
        }
    }

    /// Restores a queue, whose parameters were checked. No QP uses it yet.
    ///
    /// `made` is the number of queues that were made so far, including this one.
    pub(crate) fn restore(
        record: &record::Srq,
        made: u64,
        requests: &mut Requests,
    ) -> Result<Srq, Violation> {
        let number = Srqn::new(record.srq).ok_or(Violation::Number)?;
        let this = SrqRef::new(SrqId(number.number()), made);
        let init = record.init();
        let mut receives = List::EMPTY;
        for receive in &record.receives {
            requests.restore_receive(&mut receives, receive, init.max_sge as usize)?;
        }
        let limit = record.limit;
        if receives.len() > init.max_wr || limit > receives.len() || record.failed && !receives.is_empty() {
            return Err(Violation::SharedQueue);
        }
        let qpns = |numbers: &[u32]| numbers.iter().map(|&qpn| to_qpn(qpn)).collect::<Result<Vec<_>, _>>();
        let waiters = Waiters::restore(&qpns(&record.waiting)?, &qpns(&record.woken)?);
        let waiters = waiters.ok_or(Violation::SharedQueue)?;
        let failed = record.failed;
        Ok(Srq { receives, limit, waiters, failed, ..Srq::new(this, init) })
    }
}

impl record::Srq {
    /// Returns the parameters with which the queue was made.
    pub(crate) fn init(&self) -> SrqInit {
        let record::Srq { owner, pd, max_wr, max_sge, ref xrc, .. } = *self;
        let xrc = xrc.as_ref().map(|xrc| XrcSrq { xrcd: XrcdId(xrc.xrcd), cq: CqId(xrc.cq) });
        SrqInit { owner: OwnerId(owner), pd: PdId(pd), max_wr, max_sge, xrc }
    }
}

impl Srqs {
    /// Checks the queues against the QPs, after all were restored.
    ///
    /// No QP may have taken more than there is room for. The waiting QPs of each queue must be
    /// those of its users whose peers wait.
    pub(crate) fn check_users(&self, qps: &Qps) -> Result<(), Violation> {
        let waits = |entry: &&crate::objects::qp::entry::QpEntry| entry.qp.responder.sender_waits;
        let told: BTreeSet<_> = (qps.iter().filter(waits))
            .filter_map(|entry| Some((entry.qp.srq?.id(), entry.qp.qpn.number())))
            .collect();
        let mut listed = BTreeSet::new();
        for srq in self.iter() {
            if srq.outstanding() > srq.init.max_wr {
                return Err(Violation::SharedQueue);
            }
            let (waiting, _) = srq.waiters.in_order();
            listed.extend(waiting.into_iter().map(|qpn| (srq.this.id(), qpn.number())));
        }
        if listed == told { Ok(()) } else { Err(Violation::SharedQueue) }
    }
}
