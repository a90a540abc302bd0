//! The requester keeps responses that come ahead of a missing one, and asks for that one alone.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER};
use crate::message::ctx::QpCtx;
use crate::objects::roce::early::{EARLY_WINDOW, EarlyResponses};
use crate::objects::roce::packet::ResponseData;
use crate::objects::roce::psn::ahead;
use crate::objects::roce::requester_state::{Acked, psns};
use crate::objects::roce::state::RcRoce;
use crate::protocol::roce::qp::RoceQp;
use crate::protocol::roce::requester_rx::{Fit, match_response, place};
use crate::protocol::roce::retry::Cause;
use crate::verbs::completion::Sink;
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
        self.gap_is_there(now);
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
        let una = self.conn.requester.una;
        if self.early(now).has(psn) {
            self.counters.drop_response_old += 1;
            return self.conn.probes.heard(now);
        }
        if ahead(psn, una) >= EARLY_WINDOW {
            self.counters.drop_response_future += 1;
            return self.gap_is_there(now);
        }
        if !self.keep_response(psn, aeth, response) {
            self.counters.drop_response_odd += 1;
            return;
        }
        let early = self.early(now);
        early.put(psn);
        early.executed_to(una, psn);
        // The peer answers, though not the oldest request first.
        if self.conn.deadline != NEVER {
            self.restart_deadline(now);
        }
        self.gap_is_there(now);
    }

    /// Returns what came ahead of a missing response.
    fn early(&mut self, now: Instant) -> &mut EarlyResponses {
        self.conn.early.get_or_insert_with(|| Box::new(EarlyResponses::new(now)))
    }

    /// Asks for the oldest response again, if it counts as lost.
    fn gap_is_there(&mut self, now: Instant) {
        self.conn.probes.heard(now);
        let una = self.conn.requester.una;
        if self.early(now).came_ahead(now, una) {
            self.try_again(now, Cause::Gap);
        }
    }

    /// Writes a response's data to the elements of its request. Returns false if it fits no request,
    /// or cannot be written. It is judged when it comes again in its order.
    fn keep_response(&mut self, psn: Psn, aeth: Option<Aeth>, response: ResponseData<'_, R>) -> bool {
        let QpCtx { qp, mrs, requests, conn, send_scratch, .. } = self;
        let has_parts = conn.early.as_ref().is_some_and(|early| early.has_parts());
        let state = &mut conn.requester;
        match aeth {
            Some(Aeth { syndrome: Syndrome::Ack(credits), msn }) => state.credited(msn, credits),
            Some(_) => return false,
            None => {}
        }
        let (mut at, mut first) = (qp.requester.queue.head(), state.first());
        while let Some(request) = at {
            let (send, payload) = requests.send_at(request, send_scratch);
            let count = psns(&send.work(), qp.path_mtu);
            let from = ahead(psn, first);
            if from >= count {
                (at, first) = (requests.send_after(request), first.add(count));
                continue;
            }
            return match match_response(&send, &response, (from, qp.path_mtu.bytes()), has_parts) {
                Fit::Offset(offset) => place(mrs, qp, &send, payload, offset, response).is_ok(),
                Fit::Not | Fit::Wrong => false,
            };
        }
        false
    }

    /// Takes the responses that came ahead of the one with PSN `came`, which has come now.
    #[inline]
    pub(super) fn take_early(&mut self, now: Instant, came: Psn) {
        if self.conn.early.is_some() {
            self.go_on_from(now, came);
        }
    }

    #[cold]
    fn go_on_from(&mut self, now: Instant, came: Psn) {
        self.early(now).came(now, came);
        let mut count = 0;
        while let Some(send) = self.requests.first_send(&self.qp.requester.queue).copied() {
            let (work, mtu) = (send.work(), self.qp.path_mtu);
            let RcRoce { requester: state, early, .. } = &mut *self.conn;
            let early = early.as_mut().expect("it is there until the QP is reset");
            let una = state.una;
            let is_over = match (work.row.has_response(), early.executed(una)) {
                (true, _) if early.take(una) => state.responded(&work, mtu, 1),
                (false, Some(end)) => state.acknowledged(end, &work, mtu) == Acked::First,
                _ => break,
            };
            count += ahead(state.una, una);
            if is_over {
                self.end_first();
            }
        }
        if count > 0 {
            self.progressed(now, count);
        }
        let una = self.conn.requester.una;
        if self.early(now).went_on(now, una) {
            self.try_again(now, Cause::Gap);
        }
    }
}
