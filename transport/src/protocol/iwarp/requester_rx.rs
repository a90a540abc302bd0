//! The requester receives responses to the first READ or atomic that waits for one.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::transfer::{Elements, Span, scatter};
use crate::objects::iwarp::state::RcTcp;
use crate::protocol::iwarp::data::Data;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::{Answer, DataDirection};
use crate::verbs::request::Payload;
use vrdma_wire::iwarp::cause::Cause;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{Tagged, terminate_for};
use vrdma_wire::iwarp::request::AtomicResponse;

/// Why a response ends the connection.
enum Wrong {
    /// No request asked for it.
    Unexpected,
    /// It does not fit the request.
    Different(Cause),
    /// The memory for it cannot be used.
    Memory,
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Handles data of a READ.
    pub(super) fn receive_read_response(&mut self, to: Tagged, data: Data<'_>, ulpdu: &[u8]) {
        let requester = &mut self.conn.requester;
        if requester.ready_awaited && to.last && data.is_empty() {
            requester.ready_awaited = false;
            // The peer had no room for a further READ beside that one. Such a READ may be sent now.
            self.try_stream_again();
            return;
        }
        match self.take_data(to, data) {
            Ok(true) => self.first_is_answered(),
            Ok(false) => {}
            Err(wrong) => self.fail_response(&wrong, ulpdu),
        }
    }

    /// Handles the value that an atomic found.
    pub(super) fn receive_atomic_response(&mut self, msn: Msn, response: AtomicResponse, ulpdu: &[u8]) {
        match self.take_original(msn, response) {
            Ok(()) => self.first_is_answered(),
            Err(wrong) => self.fail_response(&wrong, ulpdu),
        }
    }

    /// Writes data to the elements of the first request, unless they were placed already.
    ///
    /// Returns whether the request has all its data then.
    fn take_data(&mut self, to: Tagged, data: Data<'_>) -> Result<bool, Wrong> {
        let RcTcp { requester: state, .. } = self.conn;
        let first = self.requests.first_send(&self.qp.requester.queue).filter(|_| state.reads > 0);
        let first = first.ok_or(Wrong::Unexpected)?;
        if first.op.row().answer != Answer::Data {
            return Err(Wrong::Unexpected);
        }
        if to.stag != Stag(state.token()) {
            return Err(Wrong::Different(Cause::TaggedInvalidStag));
        }
        let end = u64::from(state.answered) + u64::from(data.len());
        let is_right = to.offset == u64::from(state.answered) && to.last == (end == u64::from(first.length));
        if !is_right || end > u64::from(first.length) {
            return Err(Wrong::Different(Cause::TaggedBounds));
        }
        let offset = state.answered;
        state.answered = end as u32;
        if let Data::Bytes(bytes) = data {
            self.scatter_to_first(bytes, offset)?;
        }
        Ok(to.last)
    }

    fn take_original(&mut self, msn: Msn, response: AtomicResponse) -> Result<(), Wrong> {
        let RcTcp { requester: state, .. } = self.conn;
        let first = self.requests.first_send(&self.qp.requester.queue).filter(|_| state.reads > 0);
        let row = first.ok_or(Wrong::Unexpected)?.op.row();
        if (row.answer, row.data) != (Answer::Once, DataDirection::Back) {
            return Err(Wrong::Unexpected);
        }
        if msn != state.response_msn || response.id != state.token() {
            return Err(Wrong::Different(Cause::UntaggedMsn));
        }
        state.response_msn = msn.add(1);
        // The value has the byte order of guests, which is the host's.
        self.scatter_to_first(&response.original.to_ne_bytes(), 0)
    }

    fn scatter_to_first(&mut self, data: &[u8], offset: u32) -> Result<(), Wrong> {
        let QpCtx { qp, mrs, requests, send_scratch, .. } = self;
        let first = requests.front_send(&qp.requester.queue, send_scratch);
        let (send, payload) = first.expect("it was looked at before");
        let elements = Elements { mrs, pd: qp.pd, rights: send.op.row().local };
        // Nothing is returned to inline data.
        let sges = if let Payload::Sges(sges) = payload { sges } else { &[] };
        scatter(data, Span::list(elements, sges, offset)).map_err(|_| Wrong::Memory)
    }

    #[cold]
    fn fail_response(&mut self, wrong: &Wrong, ulpdu: &[u8]) {
        match *wrong {
            Wrong::Unexpected => {
                self.counters.bad_responses += 1;
                self.terminate_fatally(Cause::RdmapOpcode, ulpdu);
            }
            Wrong::Different(cause) => {
                self.counters.bad_responses += 1;
                self.conn.stream.terminate = Some(Box::new(terminate_for(cause, ulpdu)));
                self.fail_first(WcStatus::BadResp);
            }
            Wrong::Memory => {
                self.terminate_for_own(Cause::RdmapCatastrophic);
                self.fail_first(WcStatus::LocProt);
            }
        }
    }
}
