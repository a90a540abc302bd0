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
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sets the deadline at which to act if nothing happens before. `None` is no deadline.
    ///
    /// The timer in the schedule may be earlier. When it expires, there is nothing to do yet. Most
    /// packets therefore do not touch a timer.
    pub(super) fn set_deadline(&mut self, at: Option<Instant>) {
        let deadline = at.unwrap_or(NEVER);
        self.conn.deadline = deadline;
        if deadline < self.qp.timer {
            self.arm(deadline);
        }
    }

    /// Handles the expiry of the QP's timer.
    pub(crate) fn timer_expired(&mut self, now: Instant) {
        self.gap_is_old(now);
        let nak_at = self.conn.nak_at();
        let roce = &mut *self.conn;
        let deadline = roce.deadline;
        if deadline > now {
            let next = deadline.min(nak_at);
            if next != NEVER {
                self.arm(next);
            }
            return;
        }
        roce.deadline = NEVER;
        if nak_at != NEVER {
            self.arm(nak_at);
        }
        let roce = &*self.conn;
        if self.qp.requester.wait == Wait::Receive {
            self.qp.requester.wait = Wait::No;
            self.counters.retries += 1;
            self.make_turn_due();
        } else if roce.requester.una != self.qp.requester.psn {
            self.counters.timeouts += 1;
            self.try_again(Cause::Timeout);
        }
    }

    /// Retransmits everything outstanding, if retries are left and this was not just done.
    pub(super) fn try_again(&mut self, cause: Cause) {
        let roce = &mut *self.conn;
        let state = &mut roce.requester;
        // A second NAK or gap for the same PSN is stale or forged. The ACK timer covers a
        // retransmission that got lost.
        if cause != Cause::Timeout && state.retransmitted {
            return;
        }
        if state.next() == state.una {
            // It is about to be sent anyway.
            return self.make_turn_due();
        }
        let is_for_ever = match cause {
            Cause::Timeout => ack_timeout(self.qp.attr().timeout).is_none(),
            // The peer's engine exists, and reports what it lacks: a ring was full, or a pinned
            // region was revoked.
            Cause::Nak | Cause::Lost => roce.is_near,
        };
        let spent = if is_for_ever { Ok(()) } else { self.qp.requester.spend_retry() };
        match spent {
            Ok(()) => {
                state.retransmitted = cause != Cause::Timeout;
                self.counters.responses_lost += u64::from(cause == Cause::Lost);
                if !roce.is_near || cause == Cause::Timeout {
                    state.narrow();
                }
                roce.send_again(&self.qp.requester.queue);
                self.counters.retries += 1;
                self.make_turn_due();
            }
            Err(status) => self.fail_first(status),
        }
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
                let state = &mut self.conn.requester;
                state.retransmitted = false;
                state.go_back(self.qp.requester.queue.head());
                self.set_deadline(Some(now + delay));
            }
            Err(status) => self.fail_first(status),
        }
    }
}
