//! The responder's state, in the record.

use super::{ResponderState, Response};
use crate::base::id::PdId;
use crate::objects::qp::Qp;
use crate::save::{Violation, record};
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::request::{AtomicResponse, ReadRequest};

impl ResponderState {
    /// Returns the record of the responder's state.
    pub(crate) fn save(&self) -> record::TcpResponder {
        let ResponderState { pending, sent, atomics } = self;
        record::TcpResponder {
            pending: pending.iter().map(Into::into).collect(),
            sent: *sent,
            atomics: *atomics,
        }
    }

    /// Restores the responder's state, for a QP with its attributes.
    pub(crate) fn restore(record: &record::TcpResponder, qp: &Qp) -> Result<ResponderState, Violation> {
        let record::TcpResponder { pending, sent, atomics } = record;
        // The READ by which the peer allows this end to send needs no room.
        if pending.len() > usize::from(qp.max_dest_rd_atomic.max(1)) {
            return Err(Violation::Resource);
        }
        let pending = pending.iter().map(to_response).collect::<Result<_, Violation>>()?;
        let state = ResponderState { pending, sent: *sent, atomics: *atomics };
        let is_part = match state.first() {
            Some(Response::Read { request, .. }) => *sent == 0 || *sent < request.length,
            Some(Response::Atomic(_)) | None => *sent == 0,
        };
        if is_part { Ok(state) } else { Err(Violation::Resource) }
    }
}

impl From<&Response> for record::TcpResponse {
    fn from(response: &Response) -> record::TcpResponse {
        match *response {
            Response::Read { request, msn: Msn(msn), pd: PdId(pd) } => {
                let ReadRequest { sink, sink_offset, length, source, source_offset } = request;
                let (Stag(sink), Stag(source)) = (sink, source);
                record::TcpResponse::Read { msn, pd, sink, sink_offset, length, source, source_offset }
            }
            Response::Atomic(AtomicResponse { id, original }) => record::TcpResponse::Atomic { id, original },
        }
    }
}

fn to_response(record: &record::TcpResponse) -> Result<Response, Violation> {
    Ok(match *record {
        record::TcpResponse::Read { msn, pd, sink, sink_offset, length, source, source_offset } => {
            let (sink, source) = (Stag(sink), Stag(source));
            let request = ReadRequest { sink, sink_offset, length, source, source_offset };
            // A request whose range wraps is invalid.
            let last = u64::from(length.saturating_sub(1));
            if sink_offset.checked_add(last).is_none() || source_offset.checked_add(last).is_none() {
                return Err(Violation::Resource);
            }
            Response::Read { request, msn: Msn(msn), pd: PdId(pd) }
        }
        record::TcpResponse::Atomic { id, original } => Response::Atomic(AtomicResponse { id, original }),
    })
}
