//! Unreliable connections between two QPs of this engine: no packets, one copy.

use crate::completion::{Sink, WcStatus};
use crate::engine::Engine;
use crate::engine::step::Step;
use crate::memory::Region;
use crate::message::effect::{Failure, LocalBuffer, execute};
use crate::message::reason::Reason;
use crate::message::segment::Segment;
use crate::message::stretch::next_segment;
use crate::message::verdict::Refusal;
use crate::place::Place;
use crate::qp::attr::QpType;
use crate::qp::requester::Wait;
use crate::request::Payload;
use crate::uc::responder::accept;
use crate::work::Work;

/// What became of a segment.
enum UcDelivery {
    Arrived,
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
        if work.row.alone {
            self.known(place, sink).change_key(work);
            return Step::Ended;
        }
        let (device, qp) = self.devices.known(place);
        let segment = match work.row.is_of(QpType::Uc) {
            true => next_segment(&device.mrs, qp, work, payload, limit),
            false => Err(work.error.unwrap_or(WcStatus::LocQpOp)),
        };
        let segment = match segment {
            Ok(segment) => segment,
            Err(status) => {
                self.known(place, sink).fail(work, status);
                return Step::Ended;
            }
        };
        let mut broken = None;
        let ended = match self.deliver_uc(place, payload, &segment, sink) {
            UcDelivery::Arrived => self.known(place, sink).departed(work, &segment),
            UcDelivery::Asked => return Step::Waits,
            UcDelivery::Unreadable => {
                self.known(place, sink).fail(work, WcStatus::LocProt);
                return Step::Ended;
            }
            UcDelivery::Lost => self.skip_rest(place, work, &segment, sink),
            UcDelivery::Broke(peer, refusal) => {
                broken = Some((peer, refusal));
                self.skip_rest(place, work, &segment, sink)
            }
        };
        // After the request: it may be the same QP.
        if let Some((peer, refusal)) = broken {
            self.known(peer, sink).placement_failed(refusal);
        }
        if ended { Step::Ended } else { Step::More }
    }

    /// Carries a segment to the peer.
    fn deliver_uc(
        &mut self,
        place: Place,
        payload: Payload<'_>,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> UcDelivery {
        let (_, qp) = self.devices.known(place);
        let peer = match self.devices.find_peer(qp) {
            Ok((peer, ..)) => peer,
            Err((at, reason)) => {
                self.devices.count_drop(at.unwrap_or(place.device), reason);
                return UcDelivery::Lost;
            }
        };
        self.known(peer, sink).resync(segment);
        let (device, qp) = self.devices.known(place);
        let (peer_device, peer_qp) = self.devices.known(peer);
        let receiver = peer_device.receiver(peer_qp);
        let moved = match accept(&receiver, segment) {
            Ok(target) => {
                let local = LocalBuffer::new(&device.mrs, qp, payload, segment.row);
                execute(&receiver, segment, target, local, &mut self.recv_scratch)
            }
            Err(reason) => {
                let looked = qp.requester.wait == Wait::Looked;
                if reason == Reason::NoReceive && !looked {
                    self.ask(place, peer);
                    return UcDelivery::Asked;
                }
                let (_, qp) = self.devices.known(place);
                let rest = qp.path_mtu.packets(segment.message - segment.offset);
                self.known(peer, sink).drop_message(reason, segment.psn.add(rest));
                return UcDelivery::Lost;
            }
        };
        match moved {
            Ok(_) => {
                self.known(peer, sink).arrived(place.qpn, segment);
                self.known(place, sink).qp.set_route(peer.device);
                UcDelivery::Arrived
            }
            Err(Failure::Local) => UcDelivery::Unreadable,
            Err(Failure::Remote(refusal)) => UcDelivery::Broke(peer, refusal),
        }
    }

    /// A segment got lost: the rest of its message need not be sent, but the sender sees it leave.
    fn skip_rest(
        &mut self,
        place: Place,
        work: &Work<'_>,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let mut borrowed = self.known(place, sink);
        let length = work.length.saturating_sub(segment.offset);
        let rest = Segment { last: true, length, packets: borrowed.qp.path_mtu.packets(length), ..*segment };
        borrowed.departed(work, &rest)
    }
}
