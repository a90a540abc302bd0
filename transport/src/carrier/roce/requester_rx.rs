//! Responses arrive: what they say of outstanding requests (IBTA 9.7.5.1, 9.7.5.2).

use crate::base::memory::Region;
use crate::base::near::NearPayload;
use crate::base::time::{Instant, rnr_delay};
use crate::carrier::roce::qp::RoceQp;
use crate::carrier::roce::retry::Cause;
use crate::message::ctx::QpCtx;
use crate::message::transfer::{Elements, Side, Span, collect, scatter};
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::{Response, ResponseData};
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::requester_state::Acked;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::{Answer, DataDirection};
use crate::verbs::request::Payload;
use crate::verbs::work::OutstandingSend;
use vrdma_wire::num::{Msn, Psn};
use vrdma_wire::roce::{Aeth, Credits, NakCode, RnrTimer, Syndrome};

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// A response came from the peer.
    pub(super) fn receive_response(&mut self, now: Instant, psn: Psn, response: Response<'_, R>) {
        if !matches!(self.qp.state, QpState::Rts | QpState::Sqd) {
            self.counters.drop_state += 1;
            return;
        }
        if !self.is_outstanding(psn, response) {
            return;
        }
        match response {
            Response::Ack(Aeth { syndrome, msn }) => match syndrome {
                Syndrome::Ack(credits) => {
                    self.credited(msn, credits);
                    if self.acknowledge(now, psn.add(1)) {
                        self.go_on_sending();
                    }
                }
                Syndrome::Rnr(timer) => self.receive_rnr_nak(now, psn, timer),
                Syndrome::Nak(code) => self.receive_nak(now, psn, code),
            },
            Response::Data(aeth, data) => self.receive_data(now, psn, aeth, data),
        }
    }

    /// Whether a response is to an outstanding PSN. What is not is dropped.
    fn is_outstanding(&mut self, psn: Psn, response: Response<'_, R>) -> bool {
        let state = &mut self.conn.requester;
        let outstanding = ahead(self.qp.requester.psn, state.una);
        let distance = ahead(psn, state.una);
        let gap = Syndrome::Nak(NakCode::PsnSequenceError);
        // A peer that misses a packet names the one that it expects, and that may be yet to be
        // sent.
        let names_next = matches!(response, Response::Ack(aeth) if aeth.syndrome == gap);
        if distance < outstanding || distance == outstanding && names_next {
            return true;
        }
        match distance >= HALF {
            true => self.counters.drop_response_old += 1,
            false => self.counters.drop_response_future += 1,
        }
        if let Response::Data(_, ResponseData::Read { psns, .. }) = response
            && (1..psns).contains(&ahead(state.una, psn))
        {
            // A part of it came before, in other packets: the rest is asked for.
            state.retransmitted = false;
            self.try_again(Cause::Lost);
            return false;
        }
        // The last acknowledge, again: it may tell of more receives (IBTA 9.7.7.2.5).
        if let Response::Ack(Aeth { syndrome: Syndrome::Ack(credits), msn }) = response
            && psn.add(1) == state.una
        {
            state.credited(msn, credits);
            self.go_on_sending();
        }
        false
    }

    /// An RNR NAK for the request at `psn`. It acknowledges all requests before it.
    fn receive_rnr_nak(&mut self, now: Instant, psn: Psn, timer: RnrTimer) {
        if self.acknowledge(now, psn) {
            self.wait_for_receive(now, rnr_delay(timer.code()));
        }
    }

    /// A NAK for `psn`. It acknowledges all requests before it.
    fn receive_nak(&mut self, now: Instant, psn: Psn, code: NakCode) {
        let roce = &mut *self.conn;
        // From an engine of this process none is stale or forged.
        roce.requester.retransmitted &= !roce.is_near;
        let there = self.acknowledge(now, psn);
        let status = match code {
            NakCode::PsnSequenceError => {
                self.counters.naks_sequence_in += 1;
                if there {
                    self.try_again(Cause::Nak);
                }
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => WcStatus::RemInvReq,
            NakCode::RemoteAccessError => WcStatus::RemAccess,
            NakCode::RemoteOperationalError => WcStatus::RemOp,
        };
        self.counters.naks_in += 1;
        if there {
            self.fail_first(status);
        }
    }

    /// All PSNs before `end` are acknowledged: requests end that have no responses of their own. If
    /// there is one among them that does, its response got lost, and it is asked for again: then
    /// false.
    fn acknowledge(&mut self, now: Instant, end: Psn) -> bool {
        let mut progress = 0;
        let mut lost = false;
        while let Some(send) = self.requests.first_send(&self.qp.requester.queue) {
            let state = &mut self.conn.requester;
            let before = state.una;
            let acked = state.acknowledged(end, &send.work(), self.qp.path_mtu);
            progress += ahead(state.una, before);
            match acked {
                Acked::First => self.end_first(),
                Acked::NoMore => break,
                Acked::Lost => {
                    lost = true;
                    break;
                }
            }
        }
        if progress > 0 {
            self.progressed(now, progress);
        }
        if lost {
            self.try_again(Cause::Lost);
        }
        !lost
    }

    /// So many PSNs were answered that had not been before.
    fn progressed(&mut self, now: Instant, count: u32) {
        let state = &mut self.conn.requester;
        state.retransmitted = false;
        state.widen(count);
        let all = state.una == self.qp.requester.psn;
        self.qp.requester.refresh_retries();
        self.qp.requester.wait = Wait::No;
        match all {
            true => self.set_deadline(None),
            false => self.restart_deadline(now),
        }
    }

    fn credited(&mut self, msn: Msn, credits: Credits) {
        self.conn.requester.credited(msn, credits);
    }

    /// What waited for an acknowledge may be sent.
    fn go_on_sending(&mut self) {
        if self.qp.requester.wait == Wait::No && self.conn.has_unsent() {
            self.make_turn_due();
        }
    }

    /// The first request ended well.
    fn end_first(&mut self) {
        let QpCtx { qp, requests, counters, .. } = self;
        let queue = &qp.requester.queue;
        let after = queue.head().and_then(|at| requests.send_after(at));
        let send = *requests.first_send(queue).expect("what was answered is in the send queue");
        let work = send.work();
        let state = &mut self.conn.requester;
        state.first_ended(&work, qp.path_mtu, after);
        qp.requester.started = state.una != qp.requester.psn;
        *work.op.moved(counters, work.length.into()) += 1;
        self.end_send(&work, WcStatus::Success);
        self.tell_if_drained();
    }

    /// A response with data, to a READ or an atomic. It acknowledges all requests before its own.
    fn receive_data(&mut self, now: Instant, psn: Psn, aeth: Option<Aeth>, response: ResponseData<'_, R>) {
        if !self.acknowledge(now, psn) {
            return;
        }
        match self.take_response(aeth, response) {
            Ok(Taken::Part { last, psns }) => {
                if last {
                    self.end_first();
                }
                self.progressed(now, psns);
                self.go_on_sending();
            }
            Ok(Taken::Nothing) => {}
            Ok(Taken::Lost) => {
                self.conn.requester.retransmitted = false;
                self.try_again(Cause::Lost);
            }
            Err(status) => self.fail_first(status),
        }
    }

    /// Writes the response's data to the elements of the first request.
    /// An error is how the request ends.
    fn take_response(
        &mut self,
        aeth: Option<Aeth>,
        response: ResponseData<'_, R>,
    ) -> Result<Taken, WcStatus> {
        let QpCtx { qp, mrs, requests, counters, send_scratch, .. } = self;
        let state = &mut self.conn.requester;
        let first = requests.front_send(&qp.requester.queue, send_scratch);
        let (send, payload) = first.expect("a PSN that is outstanding is one of a request");
        let offset = match match_response(&send, &response, state.answered(), qp.path_mtu.bytes()) {
            Fit::Not => {
                counters.drop_response_odd += 1;
                return Ok(Taken::Nothing);
            }
            Fit::Offset(offset) => offset,
            Fit::Wrong => {
                counters.bad_responses += 1;
                return Err(WcStatus::BadResp);
            }
        };
        match aeth {
            Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) => state.credited(msn, credits),
            Some(_) => {
                counters.bad_responses += 1;
                return Err(WcStatus::BadResp);
            }
            None => {}
        }
        let elements = Elements { mrs, pd: qp.pd, rights: send.op.row().local };
        // Nothing comes back to inline data.
        let sges = if let Payload::Sges(sges) = payload { sges } else { &[] };
        let local = Span::list(elements, sges, offset);
        let (moved, psns) = match response {
            ResponseData::Read { data: NearPayload::Bytes(data), psns, .. } => (scatter(data, local), psns),
            ResponseData::Read { data: NearPayload::Loan(loan, length), psns, .. } => {
                (collect(loan, local, length), psns)
            }
            // In the byte order of guests, which is the host's.
            ResponseData::Atomic(before) => (scatter(&before.to_ne_bytes(), local), 1),
        };
        match moved {
            Ok(()) => Ok(Taken::Part { last: state.responded(&send.work(), qp.path_mtu, psns), psns }),
            // The peer has taken its loan back: the response is lost.
            Err(error) if error.side == Side::Source => Ok(Taken::Lost),
            Err(_) => Err(WcStatus::LocProt),
        }
    }
}

/// What became of a response.
enum Taken {
    /// It is not for the first request.
    Nothing,
    /// Its data were taken back by the peer: as if it had not come.
    Lost,
    /// It was the next for the first request, of so many PSNs.
    Part { last: bool, psns: u32 },
}

/// How a response fits the first request.
enum Fit {
    /// It is for no request like that.
    Not,
    /// Its data belong there.
    Offset(u32),
    /// A response that must not be.
    Wrong,
}

fn match_response<R>(send: &OutstandingSend, response: &ResponseData<'_, R>, answered: u32, mtu: u32) -> Fit {
    let work = send.work();
    let row = work.row;
    match (row.answer, row.data, response) {
        (Answer::Data, _, &ResponseData::Read { last, psns, data }) => {
            let offset = answered * mtu;
            let rest = work.length.saturating_sub(offset);
            // Less than the most PSNs of a near packet, so within 2^32.
            let most = psns * mtu;
            let right = data.len() == rest.min(most) && last == (rest <= most);
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
