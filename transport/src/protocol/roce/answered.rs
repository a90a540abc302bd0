//! What responses do to the requests that they answer.

use crate::base::inter_worker::InterWorkerPayload;
use crate::base::memory::Region;
use crate::base::time::Instant;
use crate::message::ctx::QpCtx;
use crate::message::transfer::{Elements, Side, Span, collect, scatter};
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::ResponseData;
use crate::objects::roce::selective::ReadAgain;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::{Answer, DataDirection};
use crate::verbs::request::Payload;
use crate::verbs::work::OutstandingSend;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Aeth, Syndrome};

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Records that `count` more PSNs were answered. The answer covers all before `covered`.
    pub(super) fn progressed(&mut self, now: Instant, count: u32, covered: Psn) {
        let state = &mut self.conn.requester;
        (state.retransmitted, state.is_new) = (false, false);
        state.widen(count);
        self.qp.requester.refresh_retries();
        self.qp.requester.wait = Wait::No;
        self.answer_came(now, covered);
    }

    /// Ends the first request successfully.
    pub(super) fn end_first(&mut self) {
        let QpCtx { qp, requests, counters, .. } = self;
        let queue = &qp.requester.queue;
        let after = queue.head().and_then(|at| requests.send_after(at));
        let send = *requests.first_send(queue).expect("what was answered is in the send queue");
        let work = send.work();
        let state = &mut self.conn.requester;
        state.first_ended(&work, qp.path_mtu, after);
        let una = state.una;
        self.conn.read_again = match self.conn.read_again {
            ReadAgain::Dropped | ReadAgain::Due => ReadAgain::Due,
            // Old answers may still come to what was sent again.
            ReadAgain::All if self.conn.is_asked_again(una) => ReadAgain::All,
            ReadAgain::No | ReadAgain::Alone | ReadAgain::All => ReadAgain::No,
        };
        qp.requester.started = una != qp.requester.psn;
        work.row.count_bytes(counters, work.length.into());
        work.row.count(counters);
        self.end_send(&work, WcStatus::Success);
        self.tell_if_drained();
    }

    /// Writes the response's data to the elements of the first request.
    ///
    /// An error is the status with which the request ends.
    pub(super) fn take_response(
        &mut self,
        aeth: Option<Aeth>,
        response: ResponseData<'_, R>,
    ) -> Result<ResponseEffect, WcStatus> {
        let QpCtx { qp, mrs, requests, counters, send_scratch, .. } = self;
        let has_parts = self.conn.early.as_ref().is_some_and(|early| early.has_parts());
        let state = &mut self.conn.requester;
        let first = requests.front_send(&qp.requester.queue, send_scratch);
        let (send, payload) = first.expect("a PSN that is outstanding is one of a request");
        let offset =
            match match_response(&send, &response, (state.answered(), qp.path_mtu.bytes()), has_parts) {
                Fit::Not => {
                    counters.drop_response_odd += 1;
                    return Ok(ResponseEffect::Nothing);
                }
                Fit::Offset(offset) => offset,
                Fit::Wrong => {
                    counters.bad_responses += 1;
                    return Err(WcStatus::BadResp);
                }
            };
        match aeth {
            Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) => {
                state.credited(msn, credits);
            }
            Some(_) => {
                counters.bad_responses += 1;
                return Err(WcStatus::BadResp);
            }
            None => {}
        }
        let elements = Elements { mrs, pd: qp.pd, rights: send.op.row().local };
        // Nothing is returned to inline data.
        let sges = if let Payload::Sges(sges) = payload { sges } else { &[] };
        let local = Span::list(elements, sges, offset);
        let (moved, psns) = match response {
            ResponseData::Read { data: InterWorkerPayload::Bytes(data), psns, .. } => {
                (scatter(data, local), psns)
            }
            ResponseData::Read { data: InterWorkerPayload::Pinned(pinned, length), psns, .. } => {
                (collect(pinned, local, length), psns)
            }
            // The value has the byte order of guests, which is the host's.
            ResponseData::Atomic(before) => (scatter(&before.to_ne_bytes(), local), 1),
        };
        match moved {
            Ok(()) => {
                Ok(ResponseEffect::Part { last: state.responded(&send.work(), qp.path_mtu, psns), psns })
            }
            // The peer has revoked its pinned region, so the response is lost.
            Err(error) if error.side == Side::Source => Ok(ResponseEffect::Lost),
            Err(_) => Err(WcStatus::LocProt),
        }
    }
}

/// What became of a response.
pub(super) enum ResponseEffect {
    /// The response is not for the first request.
    Nothing,
    /// The peer has revoked the pinned region with the data. The response counts as lost.
    Lost,
    /// The response was the next one of the first request, and covers this many PSNs.
    Part { last: bool, psns: u32 },
}

/// How a response fits a request.
pub(super) enum Fit {
    /// The request takes no response with data.
    Not,
    /// The response fits. Its data belong at this offset of the message.
    Offset(u32),
    /// The response is wrong.
    Wrong,
}

pub(super) fn match_response<R>(
    send: &OutstandingSend,
    response: &ResponseData<'_, R>,
    (answered, mtu): (u32, u32),
    has_parts: bool,
) -> Fit {
    let work = send.work();
    let row = work.row;
    match (row.answer, row.data, response) {
        (Answer::Data, _, &ResponseData::Read { last, psns, data }) => {
            let offset = answered * mtu;
            let rest = work.length.saturating_sub(offset);
            // At most the PSNs of an inter-worker packet, so the product is within 2^32.
            let most = psns * mtu;
            let is_end = last == (rest <= most) || last && has_parts;
            let right = data.len() == rest.min(most) && is_end;
            if right { Fit::Offset(offset) } else { Fit::Wrong }
        }
        (Answer::Once, DataDirection::Back, ResponseData::Atomic(_)) => Fit::Offset(0),
        (Answer::Once, DataDirection::Out, ResponseData::Read { last: true, data, .. })
            if data.len() == 0 =>
        {
            Fit::Offset(0)
        }
        (Answer::Acknowledge, ..) => Fit::Not,
        _ => Fit::Wrong,
    }
}
