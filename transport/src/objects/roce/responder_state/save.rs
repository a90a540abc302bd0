//! The responder's state in the record.

use super::{ACK_EVERY, Pending, PendingNak, Resource, ResponderState, ResponseKind};
use crate::base::id::PdId;
use crate::objects::qp::Qp;
use crate::save::{Violation, record, to_psn};
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::request::MAX_MESSAGE;
use vrdma_wire::num::AethMsn;
use vrdma_wire::roce::{NakCode, RnrTimer, Syndrome};

impl ResponderState {
    /// Returns the record of a QP's responder state.
    pub(crate) fn save(&self, qp: &Qp) -> record::RcResponder {
        let ResponderState {
            msn,
            write,
            ack,
            unacknowledged,
            nak_sent,
            peer_waits,
            // A dropped packet is sent again after a timeout, and posts are drained for it again.
            looked: _,
            nak,
            ref resources,
            newest: _,
            most: _,
            pending: _,
            asked,
        } = *self;
        let (newer, older) = resources.split_at(self.oldest());
        record::RcResponder {
            msn: msn.number(),
            write: write.into(),
            ack,
            unacknowledged,
            nak_sent,
            peer_waits,
            nak: nak.map(|nak| nak.save()),
            asked,
            resources: older.iter().chain(newer).filter_map(|it| it.save(qp)).collect(),
        }
    }

    /// Restores the responder's state, for a QP with its attributes.
    pub(crate) fn restore(record: &record::RcResponder, qp: &Qp) -> Result<ResponderState, Violation> {
        let mut state = ResponderState::new(qp.max_dest_rd_atomic);
        if record.resources.len() > state.most.into() {
            return Err(Violation::Resource);
        }
        for resource in &record.resources {
            state.push(Resource::restore(resource, qp)?);
        }
        if record.unacknowledged >= ACK_EVERY {
            return Err(Violation::Window);
        }
        let nak = record.nak.as_ref().map(PendingNak::restore).transpose()?;
        if nak.is_some_and(|nak| nak.fatal && qp.state != QpState::Err) {
            return Err(Violation::Nak);
        }
        let record::RcResponder { ref write, ack, unacknowledged, nak_sent, peer_waits, asked, .. } = *record;
        let msn = AethMsn::truncate(to_psn(record.msn)?.number());
        let write = write.into();
        Ok(ResponderState { msn, write, ack, unacknowledged, nak_sent, peer_waits, nak, asked, ..state })
    }
}

impl PendingNak {
    fn save(&self) -> record::PendingNak {
        // The code tells whether a NAK is fatal.
        let PendingNak { psn, syndrome, fatal: _ } = *self;
        let nak = match syndrome {
            Syndrome::Rnr(timer) => record::Nak::Rnr(timer.code()),
            Syndrome::Nak(NakCode::PsnSequenceError) => record::Nak::Sequence,
            Syndrome::Nak(NakCode::InvalidRequest) => record::Nak::InvalidRequest,
            Syndrome::Nak(NakCode::RemoteAccessError) => record::Nak::RemoteAccess,
            Syndrome::Nak(NakCode::RemoteOperationalError) => record::Nak::RemoteOperational,
            Syndrome::Nak(NakCode::InvalidRdRequest) | Syndrome::Ack(_) => {
                unreachable!("no such NAK is ever to be sent")
            }
        };
        record::PendingNak { psn: psn.number(), nak }
    }

    fn restore(record: &record::PendingNak) -> Result<PendingNak, Violation> {
        let (syndrome, fatal) = match record.nak {
            record::Nak::Rnr(code) => (Syndrome::Rnr(RnrTimer::new(code).ok_or(Violation::Nak)?), false),
            record::Nak::Sequence => (Syndrome::Nak(NakCode::PsnSequenceError), false),
            record::Nak::InvalidRequest => (Syndrome::Nak(NakCode::InvalidRequest), true),
            record::Nak::RemoteAccess => (Syndrome::Nak(NakCode::RemoteAccessError), true),
            record::Nak::RemoteOperational => (Syndrome::Nak(NakCode::RemoteOperationalError), true),
        };
        Ok(PendingNak { psn: to_psn(record.psn)?, syndrome, fatal })
    }
}

impl Resource {
    /// Returns the record of a resource that is in use.
    fn save(&self, qp: &Qp) -> Option<record::Resource> {
        let Resource { psn, psns, msn, kind, state, from, next, to, then } = *self;
        let (kind, pd) = match kind {
            ResponseKind::None => return None,
            ResponseKind::Data(reth, pd) => (record::ResourceKind::Data(reth.into()), Some(pd.0)),
            ResponseKind::Once(before) => (record::ResourceKind::Once(before), None),
        };
        let pd = pd.filter(|_| qp.service() == QpType::XrcRecv);
        let pending = match state {
            Pending::Nothing => record::Pending::Nothing,
            Pending::First => record::Pending::First,
            Pending::Again => record::Pending::Again,
        };
        let (psn, msn) = (psn.number(), msn.number());
        Some(record::Resource {
            psn,
            msn,
            kind,
            pending,
            pd,
            from,
            next,
            to: (to < psns).then_some(to),
            then,
        })
    }

    fn restore(record: &record::Resource, qp: &Qp) -> Result<Resource, Violation> {
        let (kind, psns) = match (&record.kind, record.pd) {
            (record::ResourceKind::Data(reth), pd) => {
                let target = qp.service() == QpType::XrcRecv;
                if reth.length > MAX_MESSAGE || pd.is_some() != target {
                    return Err(Violation::Resource);
                }
                (ResponseKind::Data(reth.into(), pd.map_or(qp.pd, PdId)), qp.path_mtu.packets(reth.length))
            }
            (record::ResourceKind::Once(before), None) => (ResponseKind::Once(*before), 1),
            (record::ResourceKind::Once(_), Some(_)) => return Err(Violation::Resource),
        };
        let state = match record.pending {
            record::Pending::Nothing => Pending::Nothing,
            record::Pending::First => Pending::First,
            record::Pending::Again => Pending::Again,
        };
        let record::Resource { from, next, to, then, .. } = *record;
        if to == Some(psns) {
            return Err(Violation::Resource);
        }
        let to = to.unwrap_or(psns);
        let done = next == to;
        let is_interrupted = then > 0 && state != Pending::Nothing;
        if from > next || from >= to || next > to || to > psns || done && state != Pending::Nothing {
            return Err(Violation::Resource);
        }
        if then > 0 && !(is_interrupted && (to..psns).contains(&then)) {
            return Err(Violation::Resource);
        }
        let (psn, msn) = (to_psn(record.psn)?, AethMsn::truncate(to_psn(record.msn)?.number()));
        Ok(Resource { psn, psns, msn, kind, state, from, next, to, then })
    }
}
