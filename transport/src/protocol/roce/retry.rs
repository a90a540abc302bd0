//! Timeouts and retransmission.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER, SLOW_CHECK, ack_timeout};
use crate::objects::qp::requester::Wait;
use crate::objects::roce::loss_interval::LossInterval;
use crate::objects::roce::probes::Due;
use crate::objects::roce::psn::ahead;
use crate::objects::roce::requester_state::RequesterState;
use crate::objects::roce::selective::Ahead;
use crate::objects::roce::state::RcRoce;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;
use core::time::Duration;

/// Why packets are retransmitted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// No answer in time.
    Timeout,
    /// The peer reports that something is missing.
    Nak,
    /// A later response arrived before an earlier one, and was dropped.
    Lost,
    /// A later response arrived before an earlier one.
    Gap,
    /// A later response arrived before an earlier one, and there was no room for it.
    Full,
    /// The peer has answered after a probe, but not all, and nothing more comes.
    Silence,
    /// The peer has nothing behind a packet that was sent again alone. The next one may be lost,
    /// too.
    More,
    /// The peer has dropped what came behind a packet that was sent again alone.
    Dropped,
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

    /// Restarts the local ACK timeout.
    pub(super) fn restart_deadline(&mut self, now: Instant) {
        let RcRoce { stays_here, losses, early, probes, .. } = &*self.conn;
        let slow_check = match (stays_here, losses.is_some() || early.is_some()) {
            (true, _) => Some(SLOW_CHECK),
            // What is dropped because of a loss is not reported by the peer.
            (false, true) => Some(probes.doubled(SLOW_CHECK)),
            (false, false) => None,
        };
        let timeout = ack_timeout(self.qp.attr().timeout).or(slow_check);
        self.set_deadline(timeout.map(|timeout| now + timeout));
    }

    /// Retransmits what is outstanding, or only the oldest packet, unless this was just done.
    ///
    /// After as many timeouts without progress as the QP allows, its first request fails. Other
    /// causes spend no retry: losses cost time, but not the connection. Without a local ACK
    /// timeout, NAKs do, because nothing else ends the request.
    pub(super) fn try_again(&mut self, now: Instant, cause: Cause) {
        let roce = &mut *self.conn;
        let state = &mut roce.requester;
        if state.next() == state.una {
            // It is about to be sent anyway.
            return self.make_turn_due();
        }
        if roce.probes.due == Due::Repeat && !matches!(cause, Cause::Timeout | Cause::Dropped) {
            return self.make_turn_due();
        }
        let timeout = ack_timeout(self.qp.attr().timeout);
        let (una, retransmitted) = (state.una, state.retransmitted);
        let (answer_time, longest) = (roce.round_trip.answer_time(), timeout.unwrap_or(SLOW_CHECK));
        let waits = roce.early.as_ref().is_some_and(|early| early.waits(una));
        // Rings do not reorder packets.
        let may_be_old = !roce.is_near && roce.is_asked_again(una);
        let is_part = roce.early.as_ref().is_some_and(|early| early.waits_for_part(una));
        let is_obeyed = match cause {
            Cause::Timeout | Cause::More | Cause::Dropped => true,
            Cause::Silence if !roce.probes.has_gone_back() => true,
            Cause::Nak if !retransmitted => true,
            Cause::Silence | Cause::Nak => roce.probes.obeys_nak(now, answer_time, longest),
            // Its answer may get lost, too. A part costs little. What finds no room costs more.
            Cause::Gap if is_part => roce.probes.obeys_nak(now, answer_time, longest),
            Cause::Full => (retransmitted || waits) && roce.probes.obeys_nak(now, answer_time, longest),
            // The responses that follow the gap may come for long. A probe finds a request that got
            // lost when it was repeated.
            Cause::Lost | Cause::Gap if (retransmitted || waits) && timeout.is_some() => {
                roce.probes.heard(now);
                false
            }
            // Old answers may come until those to what was sent again are there.
            Cause::Lost | Cause::Gap if retransmitted || waits || may_be_old => {
                roce.probes.obeys_nak(now, answer_time, longest)
            }
            Cause::Lost | Cause::Gap => true,
        };
        if !is_obeyed {
            let at = roce.probes.obeys_from(answer_time, longest).max(now + answer_time);
            return self.look_later(cause, at);
        }
        let is_spent = match cause {
            Cause::Timeout => timeout.is_some(),
            Cause::Nak => timeout.is_none() && !roce.is_near,
            Cause::Lost | Cause::Gap | Cause::Full => false,
            Cause::Silence | Cause::More | Cause::Dropped => false,
        };
        if is_spent && let Err(status) = self.qp.requester.spend_retry() {
            return self.fail_first(status);
        }
        let ahead = self.conn.selective.ahead;
        let is_alone = self.is_first_enough(cause);
        self.tell_device(ahead);
        let roce = &mut *self.conn;
        let state = &mut roce.requester;
        state.retransmitted = cause != Cause::Timeout;
        if !roce.is_near && !matches!(cause, Cause::More | Cause::Dropped) {
            match &mut roce.losses {
                Some(losses) => losses.lost(una),
                none => *none = Some(LossInterval::new(una)),
            }
        }
        self.counters.retries += 1;
        self.counters.responses_lost += u64::from(matches!(cause, Cause::Lost | Cause::Gap | Cause::Full));
        if is_alone {
            if !matches!(cause, Cause::Gap | Cause::Full) && roce.round_trip.is_queued() {
                state.narrow_a_little();
            }
            roce.send_first_again(now);
            return self.make_turn_due();
        }
        if !roce.is_near || cause == Cause::Timeout {
            state.narrow();
        }
        // Only progress restarts the local ACK timeout. It stops until the packets are sent. An
        // engine of this process is known to exist, and reports what it lacks: a ring was full, or
        // a pinned region was revoked.
        match cause == Cause::Timeout || roce.is_near {
            true => roce.send_again(self.qp.requester.psn, &self.qp.requester.queue),
            false => roce.go_back(now, self.qp.requester.psn, &self.qp.requester.queue),
        }
        self.make_turn_due();
    }

    /// Whether something was sent that the peer has not answered, and that will not be sent again
    /// anyway.
    pub(super) fn may_probe(&self) -> bool {
        let state = &self.conn.requester;
        matches!(self.qp.state, QpState::Rts | QpState::Sqd)
            && self.qp.requester.wait == Wait::No
            && state.next() != state.una
    }

    /// Has a sign of a loss that is not obeyed now looked at later, if no probe does that.
    fn look_later(&mut self, cause: Cause, at: Instant) {
        let is_sign = matches!(cause, Cause::Lost | Cause::Gap | Cause::Full);
        let has_timeout = self.conn.stays_here || ack_timeout(self.qp.attr().timeout).is_some();
        let RequesterState { una, retransmitted, .. } = self.conn.requester;
        if !has_timeout && is_sign {
            // Nothing more may come.
            self.set_deadline(Some(at));
        } else if cause == Cause::Gap
            && !retransmitted
            && let Some(early) = &mut self.conn.early
        {
            early.look_at(at, una);
        }
    }

    /// Returns the local ACK timeout, if probes may be sent before its end.
    ///
    /// Packets to other engines of this process are not lost on the way. A QP without a local ACK
    /// timeout waits for ever, as its program asked for.
    pub(super) fn longest_silence(&self) -> Option<Duration> {
        let is_on_the_wire = !self.conn.is_near && !self.conn.stays_here;
        ack_timeout(self.qp.attr().timeout).filter(|_| is_on_the_wire)
    }

    /// Tells the device what the peer does with packets ahead of a gap, if that was `before`.
    pub(super) fn tell_device(&mut self, before: Ahead) {
        if self.conn.selective.ahead != before {
            self.peers.does(self.qp.dgid, self.conn.selective.ahead);
        }
    }

    /// Whether only the oldest packet without an answer is to be sent again, because the peer may
    /// have what came behind it.
    fn is_first_enough(&mut self, cause: Cause) -> bool {
        let state = &self.conn.requester;
        // Without probes, a packet that is lost again would not be missed.
        if self.longest_silence().is_none() || ahead(state.next(), state.una) == 1 {
            return false;
        }
        let selective = &mut self.conn.selective;
        match cause {
            Cause::Timeout | Cause::Dropped | Cause::Lost => false,
            Cause::Gap | Cause::Full | Cause::More => true,
            Cause::Silence => selective.ahead == Ahead::Held && selective.is_alone(state.una),
            Cause::Nak => {
                let first = self.requests.first_send(&self.qp.requester.queue);
                let is_response = first.is_some_and(|first| first.work().row.has_response());
                // The answer to a READ does not show what became of the packets behind it.
                (selective.ahead == Ahead::Held || !is_response) && selective.is_alone(state.una)
            }
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
                self.conn.requester.retransmitted = false;
                self.conn.send_again(self.qp.requester.psn, &self.qp.requester.queue);
                self.set_deadline(Some(now + delay));
            }
            Err(status) => self.fail_first(status),
        }
    }
}
