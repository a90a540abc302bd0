//! The requester sends requests: each segment is a part of the request at the cursor.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{Fpdu, Pieces, StreamOutlet};
use crate::message::segmentation::check_request;
use crate::message::transfer::{Elements, Span};
use crate::objects::iwarp::operation::{headers_before_payload, immediate, segment_of};
use crate::objects::iwarp::requester_state::StreamRequester;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::iwarp::stream::{ReadyToReceive, Stream};
use crate::objects::mr::Mrs;
use crate::objects::qp::Direction;
use crate::objects::qp::Qp;
use crate::protocol::allowance::Allowance;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::DataDirection;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;
use vrdma_wire::iwarp::Segment;
use vrdma_wire::iwarp::cause::Cause;
use vrdma_wire::iwarp::num::Stag;
use vrdma_wire::iwarp::rdmap::Tagged;
use vrdma_wire::iwarp::request::ReadRequest;

/// Why a QP sends no more requests for now.
enum RequestPause {
    /// The QP's turn is over.
    More,
    /// Nothing is left, or what is left has to wait.
    Idle,
    /// The request at the cursor cannot be sent.
    Broken(WcStatus),
    /// The request at the cursor only changes keys of its own device. It is the first request, and
    /// is to be executed here.
    Alone,
    /// A request was sent in full.
    Sent,
}

/// The part of a request that its next segment carries.
struct Slice {
    offset: u32,
    length: u32,
    /// Whether the payload ends with it. Immediate data may follow.
    last: bool,
}

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Sends the requests of the send queue. Returns whether there are more.
    pub(super) fn send_requests(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl StreamOutlet<R>,
    ) -> bool {
        if !self.send_ready(allowance, outlet) {
            return false;
        }
        loop {
            match self.send_segments(allowance, outlet) {
                RequestPause::Sent => {
                    self.end_what_is_sent();
                    if !self.conn.responder.is_idle() {
                        // Between two messages, the other direction has its turn.
                        self.make_answer_due();
                        return true;
                    }
                }
                RequestPause::Alone if allowance.may_send(outlet) => self.change_first_key(allowance),
                RequestPause::Alone => return true,
                RequestPause::More => return true,
                RequestPause::Idle => break,
                RequestPause::Broken(status) => {
                    // The request fails only after the requests before it have ended.
                    if self.conn.requester.cursor_is_first() {
                        self.terminate_for_own(Cause::RdmapCatastrophic);
                        self.fail_first(status);
                    }
                    break;
                }
            }
        }
        false
    }

    /// Sends the message that allows the peer to send, if that was negotiated. Returns false if it
    /// cannot be sent now.
    fn send_ready(&mut self, allowance: &mut Allowance, outlet: &mut impl StreamOutlet<R>) -> bool {
        let place = self.place;
        let RcTcp { stream, requester, .. } = self.conn;
        let Some(ready) = stream.ready else { return true };
        if !stream.is_open_for(Direction::Requests) || !allowance.may_send(outlet) {
            return false;
        }
        if !outlet.stream_has_room(place.id(), place.qpn) {
            stream.block();
            return false;
        }
        let nothing = Stag(0);
        let segment = match ready {
            ReadyToReceive::Fpdu => None,
            ReadyToReceive::Write => Some(Segment::Write(Tagged { stag: nothing, offset: 0, last: true })),
            ReadyToReceive::Read => {
                let (sink, source) = (nothing, nothing);
                let request = ReadRequest { sink, sink_offset: 0, length: 0, source, source_offset: 0 };
                Some(Segment::ReadRequest(requester.request_msn, request))
            }
        };
        let fpdu = Fpdu { framing: stream.framing(), place: stream.place(), segment };
        let sent = outlet.send_fpdu(place.id(), place.qpn, &fpdu, &Pieces::bytes(&[]));
        assert!(sent.is_ok(), "no memory is behind it");
        stream.sent(fpdu.len(0));
        stream.ready = None;
        if ready == ReadyToReceive::Read {
            requester.ready_sent();
        }
        allowance.sent(0);
        self.counters.fpdus_out += 1;
        true
    }

    /// Executes the first request, which only changes keys of its own device.
    ///
    /// All requests before it have ended.
    fn change_first_key(&mut self, allowance: &mut Allowance) {
        let QpCtx { qp, requests, conn, .. } = self;
        let queue = &qp.requester.queue;
        let after = queue.head().and_then(|at| requests.send_after(at));
        let send = *requests.first_send(queue).expect("the cursor is at it");
        allowance.executed(send.op.extra_cost());
        conn.requester.first_ended_alone(after);
        self.change_key(&send.work());
    }

    /// Ends the first requests of the queue that were sent and need no answer.
    fn end_what_is_sent(&mut self) {
        while self.conn.requester.first_is_sent()
            && let Some(send) = self.requests.first_send(&self.qp.requester.queue)
            && !send.op.row().has_response()
        {
            self.end_first();
        }
    }

    /// Ends the first request, which was answered, and the requests behind it that were sent and
    /// need no answer.
    pub(super) fn first_is_answered(&mut self) {
        self.conn.requester.first_answered();
        self.end_first();
        self.end_what_is_sent();
        // Requests that waited for an answer may be sent, or the stream may end.
        self.try_stream_again();
    }

    fn end_first(&mut self) {
        let QpCtx { qp, requests, counters, conn, .. } = self;
        let send = *requests.first_send(&qp.requester.queue).expect("what was sent is in the send queue");
        let work = send.work();
        let state = &mut conn.requester;
        state.first_ended();
        qp.requester.started = state.is_outstanding();
        work.row.count_bytes(counters, work.length.into());
        work.row.count(counters);
        self.end_send(&work, WcStatus::Success);
        self.tell_if_drained();
    }

    /// Sends segments of the request at the cursor.
    fn send_segments(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl StreamOutlet<R>,
    ) -> RequestPause {
        let QpCtx { place, qp, mrs, requests, counters, send_scratch, conn, .. } = self;
        let (device, qpn) = (place.id(), place.qpn);
        let RcTcp { stream, requester: state, .. } = conn;
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) || !stream.is_open_for(Direction::Requests) {
            return RequestPause::Idle;
        }
        let Some(at) = state.cursor else { return RequestPause::Idle };
        let (send, payload) = requests.send_at(at, send_scratch);
        let work = send.work();
        if !state.begun {
            if stream.finishes {
                return RequestPause::Idle;
            }
            if let Some(pause) = why_not_begin(mrs, qp, state, &work, payload) {
                return pause;
            }
        }
        loop {
            if !allowance.may_send(outlet) {
                return RequestPause::More;
            }
            if !outlet.stream_has_room(device, qpn) {
                stream.block();
                return RequestPause::Idle;
            }
            let imm_is_due = state.begun && state.sent == work.length && work.op.imm().is_some();
            let slice = next_slice(&work, state.sent, stream, imm_is_due);
            let Some(pieces) = payload_of(mrs, qp, &work, payload, &slice) else {
                return RequestPause::Broken(WcStatus::LocProt);
            };
            let (framing, place) = (stream.framing(), stream.place());
            let fpdu = match work.op.imm() {
                Some(imm) if imm_is_due => {
                    let segment = immediate(state.send_msn, work.flags.solicited(), imm);
                    Fpdu { framing, place, segment: Some(segment) }
                }
                _ => Fpdu { framing, place, segment: Some(segment_of(&work, state, slice.last)) },
            };
            if outlet.send_fpdu(device, qpn, &fpdu, &pieces).is_err() {
                return RequestPause::Broken(WcStatus::LocProt);
            }
            stream.sent(fpdu.len(pieces.len()));
            allowance.sent(pieces.len() as u32);
            counters.fpdus_out += 1;
            qp.requester.started = true;
            state.begun = true;
            state.sent += slice.length;
            if let Some(Segment::Send { .. } | Segment::Immediate { .. }) = fpdu.segment
                && slice.last
            {
                state.send_msn = state.send_msn.add(1);
            }
            // Immediate data follow their WRITE at once.
            let goes_on = !slice.last || work.op.imm().is_some() && !imm_is_due;
            stream.set_message(Direction::Requests, goes_on);
            if !goes_on {
                state.request_sent(&work, requests.send_after(at));
                return RequestPause::Sent;
            }
        }
    }
}

/// Returns why a request cannot begin now.
fn why_not_begin<R: Region>(
    mrs: &Mrs<R>,
    qp: &Qp,
    state: &StreamRequester,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Option<RequestPause> {
    let row = work.row;
    if row.alone {
        return Some(match state.cursor_is_first() && qp.state == QpState::Rts {
            true => RequestPause::Alone,
            false => RequestPause::Idle,
        });
    }
    if qp.state == QpState::Sqd {
        return Some(RequestPause::Idle);
    }
    if !work.op.is_of_iwarp() {
        return Some(RequestPause::Broken(WcStatus::LocQpOp));
    }
    if let Err(status) = check_request(mrs, qp, work, payload) {
        return Some(RequestPause::Broken(status));
    }
    let waits = work.flags.fence() && state.reads > 0
        || row.has_response() && state.unanswered() >= u32::from(qp.max_rd_atomic);
    waits.then_some(RequestPause::Idle)
}

/// Returns what the next segment of a request carries: nothing if the immediate data are due.
fn next_slice(work: &Work<'_>, sent: u32, stream: &Stream, imm_is_due: bool) -> Slice {
    match work.row.data {
        _ if imm_is_due => Slice { offset: work.length, length: 0, last: true },
        DataDirection::Out => {
            let (rest, most) = (work.length - sent, stream.most_behind(headers_before_payload(work.op)));
            Slice { offset: sent, length: rest.min(most), last: rest <= most }
        }
        // The request asks for everything.
        DataDirection::Back => Slice { offset: 0, length: 0, last: true },
    }
}

/// Returns the payload of a segment, or `None` if the request's own memory may not be read.
///
/// Inlined, as [`Pieces::memory`] is.
#[inline(always)]
fn payload_of<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
    slice: &Slice,
) -> Option<Pieces<'a, R>> {
    if slice.length == 0 {
        return Some(Pieces::bytes(&[]));
    }
    match payload {
        Payload::Inline(data) => {
            let from = slice.offset as usize;
            data.get(from..from + slice.length as usize).map(Pieces::bytes)
        }
        Payload::Sges(sges) => {
            let elements = Elements { mrs, pd: qp.pd, rights: work.row.local };
            Pieces::memory(Span::list(elements, sges, slice.offset), slice.length)
        }
    }
}
