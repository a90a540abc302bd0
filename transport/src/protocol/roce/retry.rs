//! Timeouts and retransmission.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER, ack_timeout};
use crate::objects::qp::requester::Wait;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::Sink;
use core::time::Duration;

/// Why packets are retransmitted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// No answer in time.
    Timeout,
    /// The peer reports that something is missing.
    Nak,
    /// A later response arrived before an earlier one.
    Lost,
    /// The peer has answered a probe, and nothing more came.
    Silence,
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sets the local ACK timeout, or when a wait for a receive ends. `None` is no deadline.
    pub(super) fn set_deadline(&mut self, at: Option<Instant>) {
        self.conn.deadline = at.unwrap_or(NEVER);
        self.follow_deadlines();
    }

    /// Has the QP's timer expire when something is to be done, or before.
    ///
    /// The timer in the schedule may be earlier. When it expires, there is nothing to do yet. Most
    /// packets therefore do not touch a timer.
    pub(super) fn follow_deadlines(&mut self) {
        let next = self.conn.next_time();
        if next < self.qp.timer {
            self.arm(next);
        } else if self.qp.timer != NEVER {
            self.note_idle_timer(next == NEVER);
        }
    }

    /// Handles the expiry of the QP's timer.
    pub(crate) fn timer_expired(&mut self, now: Instant) {
        if self.conn.deadline <= now {
            self.conn.deadline = NEVER;
            self.deadline_passed(now);
        } else if self.conn.probes.at <= now {
            self.conn.probes.at = NEVER;
            self.peer_is_silent(now);
        }
        self.follow_deadlines();
    }

    /// Handles the end of the local ACK timeout, or of a wait for a receive.
    fn deadline_passed(&mut self, now: Instant) {
        let state = &self.conn.requester;
        let is_outstanding = state.una != self.qp.requester.psn;
        if self.qp.requester.wait == Wait::Receive {
            self.qp.requester.wait = Wait::No;
            self.counters.retries += 1;
            self.make_turn_due();
        } else if is_outstanding && state.next() == state.una {
            // It is about to be sent again. Until it is, nobody can answer it: its turn may have to
            // wait for a rate.
            self.make_turn_due();
        } else if is_outstanding {
            self.counters.timeouts += 1;
            self.try_again(now, Cause::Timeout);
        }
    }

    /// Retransmits everything outstanding, unless this was just done.
    ///
    /// After as many timeouts without progress as the QP allows, its first request fails. Other
    /// causes spend no retry: what is lost more often than usual costs time, but not the connection.
    pub(super) fn try_again(&mut self, now: Instant, cause: Cause) {
        let roce = &mut *self.conn;
        let state = &mut roce.requester;
        // A second NAK or gap for the same PSN may be stale or forged. It is not, once the answer
        // to what was retransmitted should be there.
        let is_told = matches!(cause, Cause::Nak | Cause::Lost);
        if is_told && state.retransmitted && now < roce.probes.went_back + roce.round_trip.answer_time() {
            return;
        }
        if state.next() == state.una {
            // It is about to be sent anyway.
            return self.make_turn_due();
        }
        if cause == Cause::Timeout
            && ack_timeout(self.qp.attr().timeout).is_some()
            && let Err(status) = self.qp.requester.spend_retry()
        {
            return self.fail_first(status);
        }
        state.retransmitted = cause != Cause::Timeout;
        self.counters.responses_lost += u64::from(cause == Cause::Lost);
        if !roce.is_near || cause == Cause::Timeout {
            state.narrow();
        }
        self.counters.retries += 1;
        roce.probes.went_back = now;
        // Only progress restarts the local ACK timeout, except if the peer's engine is known to exist:
        // a ring was full, or a pinned region was revoked.
        match cause == Cause::Timeout || roce.is_near {
            true => roce.send_again(&self.qp.requester.queue),
            false => roce.go_back(&self.qp.requester.queue),
        }
        self.make_turn_due();
    }

    /// Sends the first request again after `delay`, because the peer has no receive for it.
    pub(super) fn wait_for_receive(&mut self, now: Instant, delay: Duration) {
        if self.qp.requester.wait == Wait::Receive {
            return;
        }
        self.counters.rnr_naks += 1;
        match self.qp.requester.spend_rnr_retry() {
            Ok(()) => {
                self.qp.requester.wait = Wait::Receive;
                self.conn.requester.retransmitted = false;
                self.conn.go_back(&self.qp.requester.queue);
                self.set_deadline(Some(now + delay));
            }
            Err(status) => self.fail_first(status),
        }
    }
}
