//! Reliable connections between two QPs of this engine: no packets, one copy. A segment is taken from the requester, judged by the responder
//! and carried out, and both are told; all rules are theirs.

use crate::completion::{Event, Sink, WcStatus};
use crate::engine::turn::Turn;
use crate::engine::{Engine, Step};
use crate::memory::Region;
use crate::message::effect::{Failure, Own, carry_out};
use crate::message::segment::Segment;
use crate::message::stretch::next_segment;
use crate::message::verdict::{Objection, Reason, Receiver, verdict};
use crate::qp::Qp;
use crate::qp::requester::Wait;
use crate::request::Work;
use crate::schedule::Place;
use crate::time::{Instant, rnr_delay};
use crate::work::Payload;
use core::time::Duration;

/// What became of one segment.
enum Carried {
    /// It arrived; more of the message is to come.
    Part,
    /// It arrived, and with it the message: the request has ended.
    All,
    /// The peer has no receive, and asks to wait.
    NotReady(Duration),
    /// The peer has no receive so far; the caller is asked to look for it.
    Asked,
    /// It got lost.
    Lost,
    /// The request fails. The peer's QP, if it is that which refused, goes to ERR, with an event; it does so after the request
    /// has ended (it may be the same QP).
    Failed(WcStatus, Option<(Place, Option<Event>)>),
}

impl<R: Region> Engine<R> {
    /// One stretch of at most `limit` bytes of `work`, the first request of a QP that may send. (It need not be in the
    /// queue yet, if that is empty.)
    #[inline]
    pub(crate) fn step_rc(
        &mut self,
        now: Instant,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Step {
        match self.carry(place, work, payload, limit, sink) {
            Carried::All => Step::Ended,
            Carried::Part => Step::More,
            Carried::Asked => Step::Waits,
            Carried::Failed(status, refused) => {
                self.known(place, sink).fail(work, status);
                if let Some((peer, event)) = refused {
                    self.known(peer, sink).offended(event);
                }
                Step::Ended
            }
            Carried::NotReady(delay) => {
                let mut turn = self.known(place, sink);
                match turn.qp.requester.not_ready(now, delay) {
                    Ok(at) => turn.wait_until(at),
                    Err(status) => {
                        turn.fail(work, status);
                        return Step::Ended;
                    }
                }
                Step::Waits
            }
            Carried::Lost => {
                let mut turn = self.known(place, sink);
                let timeout = turn.qp.attr().timeout;
                let at = turn.qp.requester.lost(now, timeout);
                turn.wait_until(at);
                Step::Waits
            }
        }
    }

    /// Carries the next segment to the peer.
    #[inline]
    fn carry(
        &mut self,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Carried {
        let (device, qp) = self.devices.known(place);
        let segment = match next_segment(&device.mrs, qp, work, payload, limit) {
            Ok(segment) => segment,
            Err(status) => return Carried::Failed(status, None),
        };
        let (peer, peer_device, peer_qp) = match self.devices.find_peer(qp) {
            Ok(found) => found,
            Err((at, reason)) => {
                self.devices.count_drop(at.unwrap_or(place.device), reason);
                return Carried::Lost;
            }
        };
        let receiver = Receiver::new(peer_device, peer_qp);
        let verdict = in_sequence(peer_qp, &segment).and_then(|()| verdict(&receiver, &segment));
        let moved = match verdict {
            Err(Objection::Drop(reason)) => {
                self.devices.count_drop(peer.device, reason);
                return Carried::Lost;
            }
            Err(Objection::Rnr) if qp.requester.wait != Wait::Looked => {
                self.ask(place, peer);
                return Carried::Asked;
            }
            Err(Objection::Rnr) => {
                let delay = rnr_delay(peer_qp.attr().min_rnr_timer);
                self.not_ready(place, peer, sink);
                return Carried::NotReady(delay);
            }
            Err(Objection::Nak(refusal)) => Err(Failure::Remote(refusal)),
            Ok(target) => {
                let own = Own::new(&device.mrs, qp, payload, &segment);
                carry_out(&receiver, &segment, target, &own, &mut self.far)
            }
        };
        match moved {
            Ok(_) => {
                self.known(peer, sink).arrived(place.qpn, &segment);
                let mut turn = self.known(place, sink);
                turn.qp.set_route(peer.device);
                if turn.departed(work, &segment) { Carried::All } else { Carried::Part }
            }
            Err(Failure::Local) => Carried::Failed(WcStatus::LocProt, None),
            Err(Failure::Remote(refusal)) => {
                let event = self.known(peer, sink).refuse(refusal);
                Carried::Failed(refusal.nak.status(), Some((peer, event)))
            }
        }
    }

    /// The peer has no receive: it will wake the requester when it gets one.
    #[cold]
    fn not_ready(&mut self, place: Place, peer: Place, sink: &mut impl Sink) {
        let turn = self.known(peer, sink);
        turn.counters.rnr_naks_sent += 1;
        turn.qp.responder.sender_waits = true;
        // The wake-up takes this way back.
        turn.qp.set_route(place.device);
        self.known(place, sink).counters.rnr_naks += 1;
    }
}

impl<R: Region, S: Sink> Turn<'_, R, S> {
    /// The time to wait for the peer is over.
    pub(crate) fn rc_local_timer_expired(&mut self) {
        if self.qp.requester.wait == Wait::Answer {
            self.counters.timeouts += 1;
        }
        let timeout = self.qp.attr().timeout;
        match self.qp.requester.timed_out(timeout) {
            Ok(()) => {
                self.counters.retries += 1;
                self.make_ready();
            }
            Err(status) => self.fail_first(status),
        }
    }
}

/// Whether a segment is the one that its responder expects next. (One that is not ready says so in its verdict.)
#[inline]
fn in_sequence(peer: &Qp, segment: &Segment<'_>) -> Result<(), Objection> {
    if peer.is_receiving() && segment.psn != peer.responder.psn {
        return Err(Objection::Drop(Reason::Psn));
    }
    Ok(())
}
