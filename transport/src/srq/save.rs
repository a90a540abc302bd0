//! Shared receive queues in the record.

use super::{Srq, SrqInit, Srqs};
use crate::id::{OwnerId, PdId, SrqId};
use crate::outstanding::Requests;
use crate::pool::List;
use crate::qp::entry::Qps;
use crate::save::{Violation, record, to_qpn};
use std::collections::{BTreeSet, VecDeque};

impl Srq {
    /// The record of it, with its receives.
    pub(crate) fn save(&self, requests: &Requests) -> record::Srq {
        let Srq { id, init, receives, limit, waiting, users: _, failed } = self;
        let SrqInit { owner, pd, max_wr, max_sge } = *init;
        record::Srq {
            srq: id.0,
            owner: owner.0,
            pd: pd.0,
            max_wr,
            max_sge,
            limit: *limit,
            failed: *failed,
            receives: requests.save_receives(receives),
            waiting: waiting.iter().map(|qpn| qpn.number()).collect(),
        }
    }

    /// From the record, whose `init` may be. No QP uses it yet.
    pub(crate) fn restore(record: &record::Srq, requests: &mut Requests) -> Result<Srq, Violation> {
        let init = record.init();
        let mut receives = List::EMPTY;
        for receive in &record.receives {
            requests.restore_receive(&mut receives, receive, init.max_sge as usize)?;
        }
        let limit = record.limit;
        if receives.len() > init.max_wr || limit > receives.len() || record.failed && !receives.is_empty() {
            return Err(Violation::SharedQueue);
        }
        let waiting = record.waiting.iter().map(|&qpn| to_qpn(qpn)).collect::<Result<VecDeque<_>, _>>()?;
        Ok(Srq { id: SrqId(record.srq), init, receives, limit, waiting, users: 0, failed: record.failed })
    }
}

impl record::Srq {
    /// What it was made with.
    pub(crate) fn init(&self) -> SrqInit {
        let record::Srq { owner, pd, max_wr, max_sge, .. } = *self;
        SrqInit { owner: OwnerId(owner), pd: PdId(pd), max_wr, max_sge }
    }
}

impl Srqs {
    /// Whether those QPs wait in each that use it and whose peers wait, each once, now that all are restored.
    pub(crate) fn check_waiting(&self, qps: &Qps) -> Result<(), Violation> {
        let waits = |entry: &&crate::qp::entry::QpEntry| entry.qp.responder.sender_waits;
        let told: BTreeSet<_> = (qps.iter().filter(waits))
            .filter_map(|entry| Some((entry.qp.init.srq?, entry.qp.qpn.number())))
            .collect();
        let mut listed = BTreeSet::new();
        for srq in self.iter() {
            for qpn in &srq.waiting {
                if !listed.insert((srq.id, qpn.number())) {
                    return Err(Violation::SharedQueue);
                }
            }
        }
        if listed == told { Ok(()) } else { Err(Violation::SharedQueue) }
    }
}
