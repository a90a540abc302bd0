//! The state of both halves of a QP whose peer is reached by packets.

mod save;

use crate::base::time::{Instant, NEVER};
use crate::collections::pool::{At, List};
use crate::objects::qp::Qp;
use crate::objects::roce::congestion::Congestion;
use crate::objects::roce::early::EarlyResponses;
use crate::objects::roce::loss_interval::LossInterval;
use crate::objects::roce::probes::{Due, Probes};
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::reorder::ReorderBuffer;
use crate::objects::roce::requester_state::RequesterState;
use crate::objects::roce::responder_state::ResponderState;
use crate::objects::roce::round_trip::RoundTrip;
use crate::objects::roce::selective::{ReadAgain, SelectiveRepeat};
use crate::verbs::work::Work;
use core::time::Duration;
use vrdma_wire::num::{Mtu, Psn};

/// The state of a QP whose peer is reached by packets.
pub(crate) struct RcRoce {
    pub(crate) requester: RequesterState,
    pub(crate) responder: ResponderState,
    /// Requests that came ahead of a gap, since there first was one.
    pub(crate) reorder: Option<Box<ReorderBuffer>>,
    /// When the local ACK timeout or the wait for a receive ends, or [`NEVER`].
    pub(crate) deadline: Instant,
    /// What was left of the local ACK timeout when the cursor went back, until packets are sent
    /// again. Meanwhile the QP waits for its turn, and nobody can answer.
    pub(crate) left: Option<Duration>,
    pub(crate) round_trip: RoundTrip,
    /// Probes, which have a time of their own.
    pub(crate) probes: Probes,
    pub(crate) selective: SelectiveRepeat,
    pub(crate) read_again: ReadAgain,
    /// The PSN before which all was sent again, if `read_again` says that.
    pub(crate) again_end: Psn,
    /// Responses that came ahead of a missing one, since one was first missing.
    pub(crate) early: Option<Box<EarlyResponses>>,
    /// How often the path loses packets, since it first lost one.
    pub(crate) losses: Option<LossInterval>,
    /// [`Way::stays_here`](crate::Way::stays_here) of the peer, as the outlet reported it in the
    /// QP's last turn.
    pub(crate) stays_here: bool,
    /// [`Way::is_near`](crate::Way::is_near) of the peer, as the outlet reported it in the QP's
    /// last turn.
    pub(crate) is_near: bool,
    /// What it knows of congestion, since it first met some.
    pub(crate) congestion: Option<Box<Congestion>>,
}

/// After this time without requests, nothing is known of the queues on the path.
const IDLE: Duration = Duration::from_millis(1);

impl RcRoce {
    /// Makes the state for a QP whose attributes are set.
    pub(crate) fn new(qp: &Qp) -> RcRoce {
        RcRoce {
            requester: RequesterState::new(),
            responder: ResponderState::new(qp.max_dest_rd_atomic),
            reorder: None,
            deadline: NEVER,
            left: None,
            round_trip: RoundTrip::default(),
            probes: Probes::new(),
            selective: SelectiveRepeat::default(),
            read_again: ReadAgain::No,
            again_end: Psn::default(),
            early: None,
            losses: None,
            stays_here: false,
            is_near: false,
            congestion: None,
        }
    }

    /// Sets the PSN of the next request. Nothing of the requests in `queue` was sent.
    pub(crate) fn start(&mut self, psn: Psn, queue: &List) {
        self.requester.start(psn, queue.head());
        (self.round_trip, self.probes) = (RoundTrip::default(), Probes::new());
        (self.selective, self.early) = (SelectiveRepeat::default(), None);
        (self.read_again, self.losses) = (ReadAgain::No, None);
        (self.deadline, self.left) = (NEVER, None);
    }

    /// Records a request that was added to the end of `queue`.
    #[inline]
    pub(crate) fn posted(&mut self, queue: &List) {
        self.requester.posted(queue.tail());
    }

    /// Goes back to retransmit everything outstanding. Its time begins anew when it is sent.
    ///
    /// `next` is the next PSN to be sent for the first time.
    pub(crate) fn send_again(&mut self, next: Psn, queue: &List) {
        self.requester.go_back(queue.head());
        self.round_trip.all_sent_again();
        self.probes.rest();
        self.selective.all_sent_again(next);
        // READs are executed again in their order, so what came of later ones does not count.
        (self.read_again, self.again_end) = (ReadAgain::All, next);
        if let Some(early) = &mut self.early {
            early.clear();
        }
        (self.deadline, self.left) = (NEVER, None);
    }

    /// Goes back to retransmit everything outstanding. The local ACK timeout goes on when it is
    /// sent.
    pub(crate) fn go_back(&mut self, now: Instant, next: Psn, queue: &List) {
        self.stop_timeout(now);
        let left = self.left;
        self.send_again(next, queue);
        self.left = left;
    }

    /// Sends the packet at the oldest PSN again, and no other. The local ACK timeout goes on when
    /// it is sent.
    pub(crate) fn send_first_again(&mut self, now: Instant) {
        self.stop_timeout(now);
        self.probes.due = Due::Repeat;
    }

    /// Goes back to send again what is outstanding behind the first request.
    ///
    /// `work` is the first request, a READ. `after` is the request behind it.
    pub(crate) fn go_back_behind_first(&mut self, work: &Work<'_>, mtu: Mtu, after: Option<At>) {
        self.requester.go_back_behind_first(work, mtu, after);
        self.round_trip.all_sent_again();
    }

    /// Returns the most request packets, and the most responses, that may be outstanding now.
    ///
    /// `next` is the next PSN to be sent for the first time. After losses, the result depends on
    /// their number. `is_controlled` tells that there is congestion control. A connection that
    /// begins, or goes on after an idle time, then fills no queue in its first round trip.
    pub(crate) fn most_outstanding(
        &mut self,
        (now, next): (Instant, Psn),
        mtu: Mtu,
        is_controlled: bool,
    ) -> (u32, u32) {
        let RcRoce { requester: state, probes, selective, losses, is_near, stays_here, .. } = self;
        let first = if is_controlled && !*is_near && !*stays_here {
            state.is_new |= state.una == next && now > probes.no_progress_since() + IDLE;
            state.most_of_first(mtu)
        } else {
            u32::MAX
        };
        let Some(losses) = losses else { return (first, first) };
        losses.refresh(state.una);
        let requests = losses.most_requests(state.una, selective.ahead);
        (requests.min(first), losses.most_responses(state.una).min(first))
    }

    /// Whether the packet with a PSN was sent again behind a READ that is executed again, so that
    /// old answers to it do not count.
    pub(crate) fn is_asked_again(&self, psn: Psn) -> bool {
        self.read_again == ReadAgain::All && (1..HALF).contains(&ahead(self.again_end, psn))
    }

    /// Stops the local ACK timeout until something is sent again.
    fn stop_timeout(&mut self, now: Instant) {
        if self.deadline != NEVER {
            self.left = Some(Duration::from_nanos(self.deadline.0.saturating_sub(now.0)));
            self.deadline = NEVER;
        }
    }

    /// Returns when something is to be done if nothing happens before, or [`NEVER`]. The QP's timer
    /// is not later than this.
    pub(crate) fn next_time(&self) -> Instant {
        let late_at = self.early.as_ref().map_or(NEVER, |early| early.late_at());
        self.deadline.min(self.probes.at).min(self.nak_at()).min(late_at)
    }

    /// Sets how many READs and atomics the QP takes at once.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        self.responder.resize(max_dest_rd_atomic);
    }

    /// Whether anything is held ahead of a gap, or ahead of where one was.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.reorder.as_ref().is_some_and(|buffer| buffer.held().packets > 0)
    }

    /// Returns when a NAK for a gap is due at the latest, or [`NEVER`].
    #[inline]
    pub(crate) fn nak_at(&self) -> Instant {
        self.reorder.as_ref().map_or(NEVER, |buffer| buffer.nak_at())
    }

    /// Whether packets of the peer that come ahead of a gap may be held. In this process no ring
    /// reorders packets.
    #[inline]
    pub(crate) fn may_hold(&self) -> bool {
        !self.is_near && !self.stays_here
    }

    /// Whether there is a request to send, if nothing forbids it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.requester.has_unsent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::qp::entry::QpEntry;
    use crate::objects::roce::responder_state::Resource;
    use crate::verbs::limits::Limits;

    #[test]
    fn an_idle_queue_pair_on_the_wire_is_small() {
        // A QP has room for READs and atomics of its peer from the first one on.
        let all = size_of::<Option<QpEntry>>() + size_of::<RcRoce>();
        assert!(all < 768, "{all}");
        let resources = Limits::default().max_dest_rd_atomic as usize * size_of::<Resource>();
        assert!(all + resources < 2048, "{all} and {resources}");
    }
}
