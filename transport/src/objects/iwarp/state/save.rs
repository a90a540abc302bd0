//! The state of a connection in a stream, in the record.

use super::{Input, RcTcp, RequesterState, ResponderState, Stream};
use crate::objects::outstanding::Requests;
use crate::objects::qp::Direction;
use crate::objects::qp::Qp;
use crate::save::{Violation, record};
use crate::verbs::attr::QpState;

impl RcTcp {
    /// Returns the record of the state.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> record::Tcp {
        let RcTcp { stream, requester, responder, input } = self;
        record::Tcp {
            output: stream.save(),
            input: input.save(),
            requester: requester.save(qp, requests),
            responder: responder.save(),
        }
    }

    /// Restores the state, for a QP with its attributes and queues.
    pub(crate) fn restore(record: &record::Tcp, qp: &Qp, requests: &Requests) -> Result<RcTcp, Violation> {
        let requester = RequesterState::restore(&record.requester, qp, requests)?;
        let responder = ResponderState::restore(&record.responder, qp)?;
        let message = match (requester.begun, responder.sent > 0) {
            (false, false) => None,
            (true, false) => Some(Direction::Requests),
            (false, true) => Some(Direction::Answers),
            (true, true) => return Err(Violation::Stream),
        };
        let stream = Stream::restore(&record.output, message)?;
        let tcp = RcTcp { stream, requester, responder, input: Input::restore(&record.input)? };
        // In ERR nothing is under way. In other states no TERMINATE is due.
        let is_outstanding = tcp.requester.is_outstanding();
        let is_right = match qp.state {
            QpState::Err => !is_outstanding && tcp.responder.is_idle(),
            _ => tcp.stream.terminate.is_none() && qp.requester.started == is_outstanding,
        };
        if !is_right {
            return Err(Violation::Stream);
        }
        Ok(tcp)
    }

    /// Returns the number with which the waiting message has asked, if one waits.
    pub(crate) fn waiting_number(&self) -> Option<u32> {
        self.input.waiting.as_ref().map(|waiting| waiting.number)
    }
}
