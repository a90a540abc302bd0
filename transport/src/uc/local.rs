//! The way between two unreliable connections' ends in this process: no packets, one copy.

use crate::completion::{Sink, WcStatus};
use crate::engine::{Engine, Step};
use crate::memory::Region;
use crate::message::arrival::{Failure, Receiver};
use crate::message::segment::Segment;
use crate::message::stretch::next_segment;
use crate::message::verdict::{Reason, Refusal};
use crate::qp::requester::Wait;
use crate::rc::local::{Carried, move_bytes};
use crate::request::Work;
use crate::schedule::Place;
use crate::uc::responder::accept;
use crate::work::Payload;

/// What became of a segment.
enum Carriage {
    Arrived(Place),
    /// It, and so the rest of its message, never arrives.
    Lost,
    /// The same, and the receiver has to go to ERR.
    Broke(Place, Refusal),
    /// The sender's own memory may not be read.
    Unreadable,
    /// There is no receive so far; the caller is asked to look for it.
    Asked,
}

impl<R: Region> Engine<R> {
    /// One stretch of at most `limit` bytes of `work`, the first request of a QP that may send. (It need not be in the
    /// queue yet, if that is empty.)
    pub(crate) fn step_uc(
        &mut self,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Step {
        let Some((device, qp)) = self.devices.with_qp(place) else { return Step::Waits };
        let segment = match work.op.row().unreliable {
            true => next_segment(device, qp, work, payload, limit),
            false => Err(work.error.unwrap_or(WcStatus::LocQpOp)),
        };
        let segment = match segment {
            Ok(segment) => segment,
            Err(status) => {
                self.fail(place, work, status, sink);
                return Step::Ended;
            }
        };
        let mut offended = None;
        let sent = match self.carry_uc(place, payload, &segment, sink) {
            Carriage::Arrived(peer) => self.departed(place, peer, work, &segment, sink),
            Carriage::Asked => return Step::Waits,
            Carriage::Unreadable => {
                self.fail(place, work, WcStatus::LocProt, sink);
                return Step::Ended;
            }
            lost => {
                if let Carriage::Broke(peer, refusal) = lost {
                    offended = Some((peer, refusal));
                }
                self.skip_rest(place, work, &segment, sink)
            }
        };
        // After the request: it may be the same QP.
        if let Some((peer, refusal)) = offended {
            self.landing_failed(peer, refusal, sink);
        }
        if matches!(sent, Carried::Part) { Step::More } else { Step::Ended }
    }

    /// Carries a segment to the peer.
    fn carry_uc(
        &mut self,
        place: Place,
        payload: Payload<'_>,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Carriage {
        let Some((_, qp)) = self.devices.with_qp(place) else { return Carriage::Lost };
        let peer = match self.devices.find_peer(qp) {
            Ok((peer, ..)) => peer,
            Err((at, reason)) => {
                self.devices.count_drop(at.unwrap_or(place.device), reason);
                return Carriage::Lost;
            }
        };
        self.resync(peer, segment);
        let (Some((device, qp)), Some((peer_device, peer_qp))) =
            (self.devices.with_qp(place), self.devices.with_qp(peer))
        else {
            return Carriage::Lost;
        };
        let moved = match accept(peer_device, peer_qp, segment) {
            Ok(target) => {
                let receiver = Receiver::new(peer_device, peer_qp);
                move_bytes(device, qp, payload, segment, &receiver, target, &mut self.far)
            }
            Err(Reason::NoReceive) if qp.requester.wait != Wait::Looked => {
                self.ask(place, peer);
                return Carriage::Asked;
            }
            Err(reason) => {
                let rest = qp.path_mtu.packets(segment.message - segment.offset);
                self.drop_message(peer, reason, segment.psn.add(rest));
                return Carriage::Lost;
            }
        };
        match moved {
            Ok(()) => {
                self.arrived(peer, place.qpn, segment, sink);
                Carriage::Arrived(peer)
            }
            Err(Failure::Local) => Carriage::Unreadable,
            Err(Failure::Remote(refusal)) => Carriage::Broke(peer, refusal),
        }
    }

    /// A segment got lost: the rest of its message need not be sent, but the sender sees it leave.
    fn skip_rest(
        &mut self,
        place: Place,
        work: &Work<'_>,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Carried {
        let Some((_, qp)) = self.devices.with_qp(place) else { return Carried::Lost };
        let length = work.length.saturating_sub(segment.offset);
        let rest = Segment { last: true, length, packets: qp.path_mtu.packets(length), ..*segment };
        let route = Place { device: qp.route(), qpn: qp.dest_qpn };
        self.departed(place, route, work, &rest, sink)
    }
}
