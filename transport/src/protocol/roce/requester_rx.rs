//! The requester receives responses to its outstanding requests (IBTA 9.7.5.1, 9.7.5.2).

use crate::base::memory::Region;
use crate::base::time::{Instant, rnr_delay};
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::{Response, ResponseData};
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::requester_state::Acked;
use crate::protocol::roce::answered::ResponseEffect;
use crate::protocol::roce::qp::RoceQp;
use crate::protocol::roce::retry::Cause;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};
use vrdma_wire::num::{AethMsn, Psn};
use vrdma_wire::roce::{Aeth, Credits, NakCode, RnrTimer, Syndrome};

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Handles a response from the peer.
    pub(super) fn receive_response(&mut self, now: Instant, psn: Psn, response: Response<'_, R>) {
        if !matches!(self.qp.state, QpState::Rts | QpState::Sqd) {
            self.counters.drop_state += 1;
            return;
        }
        if !self.is_outstanding(now, psn, response) {
            return;
        }
        match response {
            Response::Ack(Aeth { syndrome, msn }) => match syndrome {
                Syndrome::Ack(credits) => {
                    self.credited(msn, credits);
                    if self.acknowledge(now, psn.add(1), psn.add(1)) {
                        self.go_on_sending();
                    } else {
                        self.acknowledged_early(now, psn.add(1));
                    }
                }
                Syndrome::Rnr(timer) => self.receive_rnr_nak(now, psn, timer),
                Syndrome::Nak(code) => self.receive_nak(now, psn, code),
            },
            Response::Data(aeth, data) => self.receive_data(now, psn, aeth, data),
        }
    }

    /// Whether a response is to an outstanding PSN. Any other response is dropped.
    fn is_outstanding(&mut self, now: Instant, psn: Psn, response: Response<'_, R>) -> bool {
        let roce = &mut *self.conn;
        let state = &mut roce.requester;
        let outstanding = ahead(self.qp.requester.psn, state.una);
        let distance = ahead(psn, state.una);
        let gap = Syndrome::Nak(NakCode::PsnSequenceError);
        // A NAK for a gap names the PSN that the peer expects, which may be the next one to be
        // sent.
        let names_next = matches!(response, Response::Ack(aeth) if aeth.syndrome == gap);
        if distance < outstanding || distance == outstanding && names_next {
            return true;
        }
        match distance >= HALF {
            true => {
                self.counters.drop_response_old += 1;
                if let Some(early) = &mut roce.early {
                    early.repeated(psn);
                }
            }
            false => self.counters.drop_response_future += 1,
        }
        if let Response::Data(_, ResponseData::Read { psns, .. }) = response
            && (1..psns).contains(&ahead(state.una, psn))
        {
            // A part of the response came before, in other packets. The requester asks for the
            // rest.
            state.retransmitted = false;
            self.try_again(now, Cause::Lost);
            return false;
        }
        // A repeated last acknowledge may report more receives (IBTA 9.7.7.2.5). It then need not
        // answer anything.
        if let Response::Ack(Aeth { syndrome: Syndrome::Ack(credits), msn }) = response
            && psn.add(1) == state.una
        {
            if !state.credited(msn, credits) {
                self.peer_has_no_more(now);
            }
            self.go_on_sending();
        }
        false
    }

    /// Handles an RNR NAK for the request at `psn`. It acknowledges all requests before it.
    fn receive_rnr_nak(&mut self, now: Instant, psn: Psn, timer: RnrTimer) {
        match self.acknowledge(now, psn, psn) {
            true => self.wait_for_receive(now, rnr_delay(timer.code())),
            false => self.try_again(now, Cause::Lost),
        }
    }

    /// Handles a NAK for `psn`. It acknowledges all requests before it.
    fn receive_nak(&mut self, now: Instant, psn: Psn, code: NakCode) {
        let roce = &mut *self.conn;
        // A NAK from an engine of this process is never stale or forged.
        roce.requester.retransmitted &= !roce.is_near;
        let there = self.acknowledge(now, psn, psn);
        if !there {
            self.try_again(now, Cause::Lost);
        }
        let status = match code {
            NakCode::PsnSequenceError => {
                self.counters.naks_sequence_in += 1;
                if there {
                    self.try_again(now, Cause::Nak);
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

    /// Acknowledges all PSNs before `end`, and ends the requests that have no responses of their
    /// own.
    ///
    /// The answer that says so covers all before `covered`. If a request among them has a response
    /// of its own, that response is missing. This returns false then.
    fn acknowledge(&mut self, now: Instant, end: Psn, covered: Psn) -> bool {
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
            self.progressed(now, progress, covered);
        }
        !lost
    }

    fn credited(&mut self, msn: AethMsn, credits: Credits) {
        self.conn.requester.credited(msn, credits);
    }

    /// Schedules requests that waited for an acknowledge.
    fn go_on_sending(&mut self) {
        if self.qp.requester.wait == Wait::No && self.conn.has_unsent() {
            self.make_turn_due();
        }
    }

    /// Handles a response with data, to a READ or an atomic. It acknowledges all requests before
    /// its own.
    fn receive_data(&mut self, now: Instant, psn: Psn, aeth: Option<Aeth>, response: ResponseData<'_, R>) {
        if !self.acknowledge(now, psn, psn.add(1)) {
            return self.responded_early(now, psn, aeth, response);
        }
        let came = self.conn.requester.una;
        match self.take_response(aeth, response) {
            Ok(ResponseEffect::Part { last, psns }) => {
                if last {
                    self.end_first();
                }
                self.progressed(now, psns, came.add(psns));
                self.take_early(now, came);
                self.go_on_sending();
            }
            Ok(ResponseEffect::Nothing) => {}
            Ok(ResponseEffect::Lost) => {
                self.conn.requester.retransmitted = false;
                self.try_again(now, Cause::Lost);
            }
            Err(status) => self.fail_first(status),
        }
    }
}
