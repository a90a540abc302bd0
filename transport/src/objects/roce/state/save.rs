//! The state of a reliable connection on RoCE, in the record.

use super::{Probes, RcRoce, RequesterState, ResponderState, RoundTrip};
use crate::base::time::NEVER;
use crate::base::transport_kind::TransportKind;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::roce::congestion::Congestion;
use crate::objects::roce::early::EarlyResponses;
use crate::objects::roce::loss_interval::LossInterval;
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::reorder::ReorderBuffer;
use crate::objects::roce::selective::{ReadAgain, SelectiveRepeat};
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use core::time::Duration;

impl RcRoce {
    /// Returns the record of the state.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> record::Roce {
        let RcRoce {
            requester,
            responder,
            reorder,
            deadline: at,
            left,
            round_trip,
            probes,
            selective,
            read_again,
            again_end,
            early,
            losses,
            stays_here: _,
            is_near: _,
            congestion,
        } = self;
        record::Roce::Rc(Box::new(record::RcRoce {
            requester: requester.save(qp, requests),
            responder: responder.save(qp),
            reorder: reorder.as_deref().map(ReorderBuffer::save),
            deadline: deadline(*at),
            left: left.map(|left| left.as_nanos() as u64),
            round_trip: round_trip.save(),
            probes: probes.save(),
            selective: selective.save(),
            read_again: read_again.save(),
            again_end: again_end.number(),
            early: early.as_deref().map(EarlyResponses::save),
            losses: losses.as_ref().map(LossInterval::save),
            congestion: congestion.as_deref().map(Congestion::save),
        }))
    }

    /// Restores the state, for a QP with its attributes and queues.
    pub(crate) fn restore(
        record: &record::RcRoce,
        qp: &Qp,
        requests: &Requests,
    ) -> Result<RcRoce, Violation> {
        if qp.transport == TransportKind::Roce && qp.requester.offset > 0 {
            return Err(Violation::Progress);
        }
        let deadline = to_deadline(record.deadline)?;
        let reorder = record.reorder.as_ref().map(|buffer| ReorderBuffer::restore(buffer, qp));
        let requester = RequesterState::restore(&record.requester, qp, requests)?;
        let (una, next) = (requester.una, qp.requester.psn);
        let early = record.early.as_ref();
        let early = early.map(|early| EarlyResponses::restore(early, (una, next), qp.path_mtu));
        let waits = early.as_ref().is_some_and(|early| early.as_ref().is_ok_and(|early| !early.is_empty()));
        let first = requests.first_send(&qp.requester.queue);
        if waits && !first.is_some_and(|first| first.work().row.has_response()) {
            return Err(Violation::Early);
        }
        let (read_again, again_end) = (ReadAgain::restore(record.read_again), to_psn(record.again_end)?);
        // It may be behind.
        if read_again == ReadAgain::All && (ahead(next, una) + 1..HALF).contains(&ahead(again_end, una)) {
            return Err(Violation::Early);
        }
        let has_lost = record.losses.is_some() || record.early.is_some();
        Ok(RcRoce {
            requester,
            responder: ResponderState::restore(&record.responder, qp)?,
            reorder: reorder.transpose()?.map(Box::new),
            deadline,
            left: record.left.map(Duration::from_nanos),
            round_trip: RoundTrip::restore(&record.round_trip)?,
            probes: Probes::restore(&record.probes)?,
            selective: SelectiveRepeat::restore(&record.selective)?,
            read_again,
            again_end,
            early: early.transpose()?.map(Box::new),
            losses: record.losses.as_ref().map(LossInterval::restore).transpose()?,
            // This holds until the QP's next turn. A connection without a timeout has a deadline
            // during a wait for an acknowledge only if its peer is in this process, or after a
            // loss.
            stays_here: qp.attr().timeout == 0 && deadline != NEVER && !has_lost,
            is_near: false,
            congestion: record.congestion.as_ref().map(Congestion::restore).transpose()?.map(Box::new),
        })
    }
}
