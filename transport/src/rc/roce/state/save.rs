//! The state of a reliable connection on RoCE, in the record.

use super::{RcRoce, RequesterState, ResponderState};
use crate::carrier::Carrier;
use crate::outstanding::Requests;
use crate::qp::Qp;
use crate::save::{Violation, deadline, record, to_deadline};

impl RcRoce {
    /// The record of it.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> record::Roce {
        let RcRoce { requester, responder, deadline: at } = self;
        record::Roce::Rc(Box::new(record::RcRoce {
            requester: requester.save(qp, requests),
            responder: responder.save(qp),
            deadline: deadline(*at),
        }))
    }

    /// From the record, for a QP with its attributes and queues.
    pub(crate) fn restore(
        record: &record::RcRoce,
        qp: &Qp,
        requests: &Requests,
    ) -> Result<RcRoce, Violation> {
        if qp.carrier == Carrier::Roce && qp.requester.offset > 0 {
            return Err(Violation::Progress);
        }
        Ok(RcRoce {
            requester: RequesterState::restore(&record.requester, qp, requests)?,
            responder: ResponderState::restore(&record.responder, qp)?,
            deadline: to_deadline(record.deadline)?,
        })
    }
}
