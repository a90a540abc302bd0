//! What has not happened in time, and trying again.

use crate::completion::{Sink, WcStatus};
use crate::device::Held;
use crate::engine::Engine;
use crate::memory::Region;
use crate::qp::NEVER;
use crate::qp::requester::Wait;
use crate::schedule::Place;
use crate::time::Instant;
use core::time::Duration;

/// Why to try again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// No answer in time.
    Timeout,
    /// The peer says that it lacks something.
    Nak,
    /// A response did not come, but one after it.
    Lost,
}

impl<R: Region> Engine<R> {
    /// Says when to do something if nothing happens before; `None`: not at all.
    ///
    /// The timer in the schedule may be earlier: it finds then that there is nothing to do yet. So most packets touch no timer.
    pub(super) fn set_deadline(&mut self, place: Place, at: Option<Instant>) {
        let Some(qp) = self.devices.qp_mut(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        wire.deadline = at.unwrap_or(NEVER);
        let deadline = wire.deadline;
        if deadline < qp.timer {
            self.arm(place, deadline);
        }
    }

    /// The timer of a QP whose peer is on the wire.
    pub(crate) fn wire_timed_out(&mut self, now: Instant, place: Place, sink: &mut impl Sink) {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        let deadline = wire.deadline;
        if deadline == NEVER {
            return;
        }
        if deadline > now {
            return self.arm(place, deadline);
        }
        wire.deadline = NEVER;
        if qp.requester.wait == Wait::Receive {
            qp.requester.wait = Wait::No;
            counters.retries += 1;
            self.make_turn_due(place);
        } else if wire.sending.una != qp.requester.psn {
            counters.timeouts += 1;
            self.try_again(place, Cause::Timeout, sink);
        }
    }

    /// Sends all again that was not answered, if it may still do so and has not just done it.
    pub(super) fn try_again(&mut self, place: Place, cause: Cause, sink: &mut impl Sink) {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        let sending = &mut wire.sending;
        // Whoever complains of the same gap twice got the answer on its way already, or does so for harm. What got lost again shows in the
        // timeout.
        if cause != Cause::Timeout && sending.went_back {
            return;
        }
        if sending.next() == sending.una {
            // It is about to be sent anyway.
            return self.make_turn_due(place);
        }
        match qp.requester.spend_retry() {
            Ok(()) => {
                wire.deadline = NEVER;
                sending.went_back = cause != Cause::Timeout;
                counters.responses_lost += u64::from(cause == Cause::Lost);
                sending.narrow();
                sending.go_back(qp.requester.queue.head());
                counters.retries += 1;
                self.make_turn_due(place);
            }
            Err(status) => self.fail_first(place, status, sink),
        }
    }

    /// The peer has no receive for the first request: it is sent again after `delay`.
    pub(super) fn wait_for_receive(
        &mut self,
        now: Instant,
        place: Place,
        delay: Duration,
        sink: &mut impl Sink,
    ) {
        let Some(Held { qp, counters, .. }) = self.devices.hold(place) else { return };
        let Some(wire) = qp.wire.as_deref_mut() else { return };
        if qp.requester.wait == Wait::Receive {
            return;
        }
        counters.rnr_naks += 1;
        match qp.requester.spend_rnr_retry() {
            Ok(()) => {
                qp.requester.wait = Wait::Receive;
                wire.sending.went_back = false;
                wire.sending.go_back(qp.requester.queue.head());
                self.set_deadline(place, Some(now + delay));
            }
            Err(status) => self.fail_first(place, status, sink),
        }
    }

    /// The first request fails, and with it the QP.
    pub(super) fn fail_first(&mut self, place: Place, status: WcStatus, sink: &mut impl Sink) {
        let Some(Held { qp, requests, .. }) = self.devices.hold(place) else { return };
        if let Some(&kept) = requests.first_send(&qp.requester.queue) {
            self.fail(place, &kept.work(), status, sink);
        }
    }
}
