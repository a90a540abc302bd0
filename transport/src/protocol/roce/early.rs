//! The requester holds responses that come ahead of a missing one, and asks for that one alone.

use crate::base::inter_worker::InterWorkerPayload;
use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER, ack_timeout};
use crate::message::ctx::QpCtx;
use crate::objects::qp::requester::Wait;
use crate::objects::roce::early::{EarlyResponses, HeldData, HeldResponse};
use crate::objects::roce::packet::ResponseData;
use crate::objects::roce::psn::ahead;
use crate::objects::roce::requester_state::{Acked, psns};
use crate::objects::roce::selective::ReadAgain;
use crate::protocol::roce::answered::{Fit, ResponseEffect, match_response};
use crate::protocol::roce::qp::RoceQp;
use crate::protocol::roce::retry::Cause;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::Answer;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Aeth, Syndrome};

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Handles an acknowledge of all before `end`, while an earlier response is missing.
    #[cold]
    pub(super) fn acknowledged_early(&mut self, now: Instant, end: Psn) {
        if self.conn.is_near {
            return self.try_again(now, Cause::Lost);
        }
        let una = self.conn.requester.una;
        self.early(now).executed_to(una, end);
        self.conn.round_trip.all_sent_again();
        self.response_is_missing(now);
    }

    /// Handles a response with data, while an earlier one is missing.
    #[cold]
    pub(super) fn responded_early(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Option<Aeth>,
        response: ResponseData<'_, R>,
    ) {
        if self.conn.is_near {
            return self.try_again(now, Cause::Lost);
        }
        let is_later = self.place_among_requests(psn, &response);
        let (Some(held), Some(is_later)) = (to_hold(aeth, response), is_later) else {
            self.counters.drop_response_odd += 1;
            return;
        };
        let una = self.conn.requester.una;
        let early = self.early(now);
        if early.has(psn) {
            self.counters.drop_response_old += 1;
            return self.response_is_missing(now);
        }
        if is_later && held.is_of_read() && self.is_before_its_turn() {
            self.counters.drop_response_future += 1;
            self.peer_is_alive(now);
            return self.response_is_missing(now);
        }
        let early = self.early(now);
        early.executed_to(una, psn);
        let is_held = early.hold(psn, held);
        self.conn.round_trip.all_sent_again();
        if is_held {
            self.peer_is_alive(now);
        } else {
            self.counters.drop_reorder += 1;
            self.try_again(now, Cause::Full);
            if self.conn.requester.next() == una {
                // All is about to be sent again.
                return;
            }
        }
        self.response_is_missing(now);
    }

    /// Whether data of a READ behind the first request may be older than what a READ before it will
    /// read. That one was sent again, and later ones have to be executed after it.
    fn is_before_its_turn(&mut self) -> bool {
        let first = self.requests.first_send(&self.qp.requester.queue);
        let is_read = first.is_some_and(|first| first.work().row.answer == Answer::Data);
        let again = &mut self.conn.read_again;
        if *again == ReadAgain::Alone && is_read {
            *again = ReadAgain::Dropped;
        }
        match *again {
            ReadAgain::No => false,
            // Those behind what was sent again may have overtaken it.
            ReadAgain::All => self.conn.is_asked_again(self.conn.requester.una),
            ReadAgain::Alone | ReadAgain::Dropped | ReadAgain::Due => is_read,
        }
    }

    /// Restarts the local ACK timeout, because the peer answers, though not the oldest request
    /// first. Without progress, a request still ends after as many timeouts as the QP allows.
    fn peer_is_alive(&mut self, now: Instant) {
        let Some(timeout) = ack_timeout(self.qp.attr().timeout) else { return };
        let last =
            self.conn.probes.no_progress_since() + timeout * (u32::from(self.qp.requester.retry_cnt) + 1);
        if self.qp.requester.wait == Wait::No && self.conn.deadline != NEVER && now + timeout <= last {
            self.restart_deadline(now);
        }
    }

    /// Returns what came ahead of a missing response.
    fn early(&mut self, now: Instant) -> &mut EarlyResponses {
        let (schedule, device) = (&mut *self.schedule, self.place.device);
        let new = || Box::new(EarlyResponses::new(now, schedule.early.share(device)));
        self.conn.early.get_or_insert_with(new)
    }

    /// Returns whether a response is to a READ or atomic behind the first one, or `None` if it
    /// fits no outstanding request. What is held leaves when its request is answered, so nothing
    /// else may be held.
    fn place_among_requests(&mut self, psn: Psn, response: &ResponseData<'_, R>) -> Option<bool> {
        let QpCtx { qp, requests, conn, send_scratch, .. } = self;
        let has_parts = conn.early.as_ref().is_some_and(|early| early.has_parts());
        let (mut at, mut first) = (qp.requester.queue.head(), conn.requester.first());
        while let Some(request) = at {
            let (send, _) = requests.send_at(request, send_scratch);
            let (count, from) = (psns(&send.work(), qp.path_mtu), ahead(psn, first));
            if from < count {
                let fit = match_response(&send, response, (from, qp.path_mtu.bytes()), has_parts);
                return matches!(fit, Fit::Offset(_)).then_some(at != qp.requester.queue.head());
            }
            (at, first) = (requests.send_after(request), first.add(count));
        }
        None
    }

    /// Asks for the oldest response again, if it counts as lost.
    fn response_is_missing(&mut self, now: Instant) {
        self.conn.probes.heard(now);
        let una = self.conn.requester.una;
        if self.early(now).came_ahead(now, una) {
            self.try_again(now, Cause::Gap);
        }
        self.follow_deadlines();
    }

    /// Takes the responses that came ahead of the one with PSN `came`, which has come now.
    #[inline]
    pub(super) fn take_early(&mut self, now: Instant, came: Psn) {
        if self.conn.early.as_ref().is_some_and(|early| !early.is_idle()) {
            self.go_on_from(now, came);
        }
    }

    #[cold]
    fn go_on_from(&mut self, now: Instant, came: Psn) {
        let is_again = self.conn.is_asked_again(came);
        let early = self.early(now);
        // Old answers to what was sent again do not tell how late this one is.
        if !is_again || early.waits(came) {
            early.came(now, came);
        }
        let mut count = 0;
        while let Some(send) = self.requests.first_send(&self.qp.requester.queue).copied() {
            let una = self.conn.requester.una;
            let early = self.early(now);
            let is_over = match (send.work().row.has_response(), early.executed(una)) {
                (true, _) => {
                    let Some(response) = early.take(una) else { break };
                    match self.take_held(&response) {
                        Ok(ResponseEffect::Part { last, .. }) => last,
                        Ok(ResponseEffect::Nothing | ResponseEffect::Lost) => break,
                        Err(status) => return self.fail_first(status),
                    }
                }
                (false, Some(end)) => {
                    let acked = self.conn.requester.acknowledged(end, &send.work(), self.qp.path_mtu);
                    acked == Acked::First
                }
                (false, None) => break,
            };
            count += ahead(self.conn.requester.una, una);
            if is_over {
                self.end_first();
            }
        }
        if count > 0 {
            self.progressed(now, count, self.conn.requester.una);
        }
        let una = self.conn.requester.una;
        if self.early(now).went_on(now, una) {
            self.try_again(now, Cause::Gap);
        }
        self.follow_deadlines();
    }

    /// Takes a response that was held, as if it came now.
    fn take_held(&mut self, response: &HeldResponse) -> Result<ResponseEffect, WcStatus> {
        let aeth = response.aeth.map(|(msn, credits)| Aeth { syndrome: Syndrome::Ack(credits), msn });
        let data = match &response.data {
            HeldData::Read { last, data } => {
                ResponseData::Read { last: *last, psns: 1, data: InterWorkerPayload::Bytes(data) }
            }
            HeldData::Atomic(before) => ResponseData::Atomic(*before),
        };
        self.take_response(aeth, data)
    }
}

/// Returns what is to be held of a response, or `None` if no peer of another host sends such a one.
fn to_hold<R>(aeth: Option<Aeth>, response: ResponseData<'_, R>) -> Option<HeldResponse> {
    let aeth = match aeth {
        Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) => Some((msn, credits)),
        Some(_) => return None,
        None => None,
    };
    let data = match response {
        ResponseData::Read { last, psns: 1, data: InterWorkerPayload::Bytes(data) } => {
            HeldData::Read { last, data: data.into() }
        }
        ResponseData::Read { .. } => return None,
        ResponseData::Atomic(before) => HeldData::Atomic(before),
    };
    Some(HeldResponse { aeth, data })
}
