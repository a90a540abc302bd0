//! The responder sends answers.
//!
//! These are responses to READs and atomics, in the order of the requests, and the TERMINATE of a
//! connection that fails.

use crate::base::id::PdId;
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{Fpdu, Pieces, StreamEnd, StreamOutlet};
use crate::message::transfer::Span;
use crate::objects::iwarp::responder_state::StreamResponse;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::mr::{Holder, Mrs};
use crate::objects::qp::Direction;
use crate::objects::qp::Qp;
use crate::protocol::allowance::Allowance;
use crate::protocol::iwarp::qp::StreamQp;
use crate::protocol::iwarp::terminate::refused_read;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;
use crate::verbs::op::READ;
use vrdma_wire::iwarp::Segment;
use vrdma_wire::iwarp::cause::Cause;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::Tagged;
use vrdma_wire::iwarp::request::ReadRequest;
use vrdma_wire::num::Rkey;

/// Why a QP sends no more answers for now.
enum ResponsePause {
    /// The QP's turn is over.
    More,
    /// Nothing is left, or what is left has to wait.
    Idle,
    /// This READ cannot be answered.
    Failed(Msn, ReadRequest, Cause),
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Sends the answers that are due. Returns whether there are more.
    pub(super) fn send_answers(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl StreamOutlet<R>,
    ) -> bool {
        if self.qp.state == QpState::Err {
            return self.send_terminate(allowance, outlet);
        }
        match self.send_response_segments(allowance, outlet) {
            ResponsePause::More => {
                // Between two messages, the other direction has its turn.
                self.make_ready();
                true
            }
            ResponsePause::Idle => {
                self.make_ready();
                false
            }
            ResponsePause::Failed(msn, request, cause) => {
                self.terminate_for_read(msn, request, cause);
                false
            }
        }
    }

    fn send_response_segments(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl StreamOutlet<R>,
    ) -> ResponsePause {
        let QpCtx { place, qp, mrs, counters, conn, .. } = self;
        let (device, qpn) = (place.id(), place.qpn);
        let RcTcp { stream, responder: state, requester, .. } = conn;
        while let Some(response) = state.first() {
            if !stream.is_open_for(Direction::Answers) {
                return ResponsePause::Idle;
            }
            if !allowance.may_send(outlet) {
                return ResponsePause::More;
            }
            if !outlet.stream_has_room(device, qpn) {
                stream.block();
                return ResponsePause::Idle;
            }
            let (segment, pieces, last) = match response {
                StreamResponse::Atomic(response) => {
                    (Segment::AtomicResponse(state.atomic_msn(), response), Pieces::bytes(&[]), true)
                }
                StreamResponse::Read { request, msn, pd } => {
                    let offset = request.sink_offset.wrapping_add(state.sent.into());
                    let mut to = Tagged { stag: request.sink, offset, last: true };
                    let rest = request.length - state.sent;
                    let length = rest.min(stream.most(&Segment::ReadResponse(to)));
                    to.last = length == rest;
                    match data_of(mrs, (qp, pd), &request, state.sent, length) {
                        Ok(pieces) => (Segment::ReadResponse(to), pieces, to.last),
                        Err(cause) => return ResponsePause::Failed(msn, request, cause),
                    }
                }
            };
            let fpdu = Fpdu { framing: stream.framing(), place: stream.place(), segment: Some(segment) };
            if outlet.send_fpdu(device, qpn, &fpdu, &pieces).is_err() {
                let StreamResponse::Read { request, msn, .. } = response else {
                    unreachable!("no memory is behind what an atomic found")
                };
                return ResponsePause::Failed(msn, request, Cause::RdmapStreamCatastrophic);
            }
            let payload = pieces.len() as u32;
            stream.sent(fpdu.len(pieces.len()));
            stream.set_message(Direction::Answers, !last);
            state.response_sent(payload, last);
            allowance.sent(payload);
            counters.fpdus_out += 1;
            counters.bytes_served += u64::from(payload);
            if last && requester.cursor.is_some() && !state.is_idle() {
                return ResponsePause::More;
            }
        }
        ResponsePause::Idle
    }

    /// Ends the stream of a QP in ERR, after a TERMINATE with the reason, if there is one.
    ///
    /// Returns whether it is to be tried again.
    fn send_terminate(&mut self, allowance: &mut Allowance, outlet: &mut impl StreamOutlet<R>) -> bool {
        let place = self.place;
        let stream = &mut self.conn.stream;
        let mut end = StreamEnd::Abort;
        if let Some(segment) = stream.terminate.as_deref().copied()
            && stream.may_send
        {
            if stream.is_blocked() {
                return false;
            }
            if !allowance.may_send(outlet) {
                return true;
            }
            if !outlet.stream_has_room(place.id(), place.qpn) {
                stream.block();
                return false;
            }
            let fpdu = Fpdu { framing: stream.framing(), place: stream.place(), segment: Some(segment) };
            let sent = outlet.send_fpdu(place.id(), place.qpn, &fpdu, &Pieces::bytes(&[]));
            assert!(sent.is_ok(), "no memory is behind it");
            allowance.sent(0);
            self.counters.fpdus_out += 1;
            self.counters.terminates_out += 1;
            end = StreamEnd::Close;
        }
        self.conn.stream.end();
        outlet.end_stream(place.id(), place.qpn, end);
        false
    }
}

/// Returns data that a READ asks for.
///
/// Key, PD, range and rights are looked up for each segment, for the whole rest of the response.
fn data_of<'a, R: Region>(
    mrs: &'a Mrs<R>,
    (qp, pd): (&Qp, PdId),
    request: &ReadRequest,
    sent: u32,
    length: u32,
) -> Result<Pieces<'a, R>, Cause> {
    if length == 0 {
        return Ok(Pieces::bytes(&[]));
    }
    let holder = Holder { pd, ..qp.holder() };
    let rest = u64::from(request.length - sent);
    let Stag(source) = request.source;
    let found = request.source_offset.checked_add(sent.into()).and_then(|addr| {
        let (region, at) = mrs.remote(Rkey(source), holder, READ.remote, addr, rest)?;
        Pieces::memory(Span::Flat(region, at), length)
    });
    match found {
        Some(pieces) if qp.access().contains(READ.remote) => Ok(pieces),
        _ => Err(refused_read(mrs, holder, request)),
    }
}
