//! The way between two QPs of this process: no packets, one copy. It asks the requester for a segment and the
//! responder for its verdict, moves the bytes, and tells both; all rules are theirs.

use crate::completion::{Event, Sink, WcStatus};
use crate::device::{Device, Devices, Held};
use crate::engine::Engine;
use crate::gid::GidEntry;
use crate::memory::{Access, Region};
use crate::message::arrival::{Failure, Receiver, atomic, failure, landing};
use crate::message::segment::Segment;
use crate::message::stretch::next_segment;
use crate::message::transfer::{Elements, Side, Span, copy, scatter};
use crate::message::verdict::{Objection, Reason, Target, verdict};
use crate::qp::attr::QpState;
use crate::qp::requester::Wait;
use crate::qp::{Qp, Way};
use crate::request::{Scratch, Work};
use crate::schedule::Place;
use crate::time::rnr_delay;
use crate::work::{Payload, SendOp};
use core::time::Duration;

/// What became of one segment.
#[derive(Debug)]
pub(crate) enum Carried {
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
    /// The request fails. The peer's QP, if it took offence, goes to ERR, with an event; it does so after the request
    /// has ended (it may be the same QP).
    Failed(WcStatus, Option<(Place, Option<Event>)>),
}

impl<R: Region> Engine<R> {
    /// Carries the next at most `limit` bytes of `work`, the first request of the QP at `place`, to its peer.
    #[inline]
    pub(crate) fn carry(
        &mut self,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Carried {
        let Some((device, qp)) = self.devices.with_qp(place) else { return Carried::Lost };
        let segment = match next_segment(device, qp, work, payload, limit) {
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
        let verdict = in_sequence(peer_qp, &segment).and_then(|()| verdict(peer_device, peer_qp, &segment));
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
                return self.not_ready(place, peer, delay);
            }
            Err(Objection::Nak(refusal)) => Err(Failure::Remote(refusal)),
            Ok(target) => {
                let receiver = Receiver::new(peer_device, peer_qp);
                move_bytes(device, qp, payload, &segment, &receiver, target, &mut self.far)
            }
        };
        match moved {
            Ok(()) => {
                self.arrived(peer, place.qpn, &segment, sink);
                self.departed(place, peer, work, &segment, sink)
            }
            Err(Failure::Local) => Carried::Failed(WcStatus::LocProt, None),
            Err(Failure::Remote(refusal)) => {
                let event = self.refuse(peer, refusal, sink);
                Carried::Failed(refusal.nak.status(), Some((peer, event)))
            }
        }
    }

    /// The requester's side of a segment that arrived: PSN, and if it was the last, the end of the request.
    #[inline]
    pub(crate) fn departed(
        &mut self,
        place: Place,
        peer: Place,
        work: &Work<'_>,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Carried {
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else {
            return Carried::Lost;
        };
        qp.requester.acknowledged(segment);
        qp.set_route(peer.device);
        let count = counters.moved(segment.op, segment.length.into());
        if !segment.last {
            qp.requester.started = true;
            return Carried::Part;
        }
        *count += 1;
        // Nothing comes off the queue if it went straight through.
        requests.pop_send(&mut qp.requester.queue);
        qp.requester.ended();
        if work.signaled {
            sink.complete(place.id(), qp.send_cq, &work.completion(place.qpn, WcStatus::Success));
        }
        if qp.state == QpState::Sqd {
            self.tell_if_drained(place, sink);
        }
        Carried::All
    }

    /// The peer has no receive: it will wake the requester when it gets one.
    #[cold]
    fn not_ready(&mut self, place: Place, peer: Place, delay: Duration) -> Carried {
        if let Some(Held { qp, counters, .. }) = self.devices.hold(peer) {
            counters.rnr_naks_sent += 1;
            qp.responder.sender_waits = true;
            // The wake-up takes this way back.
            qp.set_route(place.device);
        }
        if let Some(device) = self.devices.get_mut(place.device) {
            device.counters.rnr_naks += 1;
        }
        Carried::NotReady(delay)
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

/// Where a peer is, and it.
type Peer<'a, R> = (Place, &'a Device<R>, &'a Qp);

impl<R> Devices<R> {
    /// The QP that `qp` is connected to, if that is connected to it; or why not, and which device noticed.
    #[inline]
    pub(crate) fn find_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        let place = Place { device: qp.route(), qpn: qp.dest_qpn };
        match self.with_qp(place) {
            Some((device, peer)) if !device.suspended && connected(qp, peer) => Ok((place, device, peer)),
            _ => self.search_peer(qp),
        }
    }

    #[cold]
    fn search_peer(&self, qp: &Qp) -> Result<Peer<'_, R>, (Option<u32>, Reason)> {
        // Without a GID of its own nothing that a QP sends can be sent.
        let index = self.gids.owner(GidEntry { gid: qp.dgid, vlan: qp.vlan });
        let index = index.filter(|_| !qp.sgid.is_zero());
        let index = index.ok_or((None, Reason::NoRoute))?;
        let place = Place { device: index, qpn: qp.dest_qpn };
        match self.with_qp(place) {
            None => Err((Some(index), Reason::NoQp)),
            Some((it, _)) if it.suspended => Err((Some(index), Reason::State)),
            Some((device, peer)) if connected(qp, peer) => Ok((place, device, peer)),
            Some((_, peer)) if !peer.is_receiving() => Err((Some(index), Reason::State)),
            Some(_) => Err((Some(index), Reason::NotConnected)),
        }
    }

    #[cold]
    pub(crate) fn count_drop(&mut self, device: u32, reason: Reason) {
        let Some(device) = self.get_mut(device) else { return };
        let counters = &mut device.counters;
        let count = match reason {
            Reason::NoRoute => &mut counters.drop_no_route,
            Reason::NoQp => &mut counters.drop_no_qp,
            Reason::NotConnected => &mut counters.drop_not_connected,
            Reason::State => &mut counters.drop_state,
            Reason::Psn => &mut counters.drop_psn,
            Reason::Service => &mut counters.drop_service,
            Reason::Qkey => &mut counters.drop_qkey,
            Reason::NoReceive => &mut counters.drop_no_receive,
            Reason::Length => &mut counters.drop_length,
            Reason::Access => &mut counters.drop_access,
            Reason::Invalid => &mut counters.drop_invalid,
        };
        *count += 1;
    }
}

/// Whether each of two QPs names the other's address and number (IBTA 9.6.1.1.1, 9.6.1.5). A QP without a GID
/// is nobody's peer, and one whose peer was on the wire when it was connected stays with that.
#[inline]
fn connected(one: &Qp, other: &Qp) -> bool {
    other.way == Way::Local
        && one.dest_qpn == other.qpn
        && other.dest_qpn == one.qpn
        && one.vlan == other.vlan
        && one.dgid == other.sgid
        && other.dgid == one.sgid
        && one.service() == other.service()
        && !one.sgid.is_zero()
        && !other.sgid.is_zero()
}

/// Moves a segment's bytes, whichever way they go.
#[inline]
pub(crate) fn move_bytes<R: Region>(
    device: &Device<R>,
    qp: &Qp,
    payload: Payload<'_>,
    segment: &Segment<'_>,
    receiver: &Receiver<'_, R>,
    target: Target<'_, R>,
    scratch: &mut Scratch,
) -> Result<(), Failure> {
    let Some(remote) = landing(receiver, target, scratch) else { return Ok(()) };
    let own = |rights, sges| {
        let elements = Elements { mrs: &device.mrs, pd: qp.pd, rights };
        Span::list(elements, sges, segment.offset)
    };
    match (*segment.op, payload) {
        (SendOp::Send { .. } | SendOp::Write { .. }, Payload::Sges(sges)) => {
            copy(own(Access::NONE, sges), remote, segment.length)
                .map_err(|trouble| failure(segment, trouble, Side::Source))
        }
        (SendOp::Send { .. } | SendOp::Write { .. }, Payload::Inline(data)) => {
            scatter(data, remote).map_err(|trouble| failure(segment, trouble, Side::Source))
        }
        (SendOp::Read { .. }, Payload::Sges(sges)) => {
            copy(remote, own(Access::LOCAL_WRITE, sges), segment.length)
                .map_err(|trouble| failure(segment, trouble, Side::Destination))
        }
        (SendOp::CompareSwap { compare, swap, .. }, Payload::Sges(sges)) => {
            let before = atomic(remote, |region, offset| region.compare_swap(offset, compare, swap))?;
            bring(before, own(Access::LOCAL_WRITE, sges))
        }
        (SendOp::FetchAdd { add, .. }, Payload::Sges(sges)) => {
            let before = atomic(remote, |region, offset| region.fetch_add(offset, add))?;
            bring(before, own(Access::LOCAL_WRITE, sges))
        }
        // Refused when posted.
        (SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Payload::Inline(_)) => {
            Err(Failure::Local)
        }
    }
}

/// Brings an atomic's result home, in the byte order of guests, which is the host's.
fn bring<R: Region>(before: u64, own: Span<'_, R>) -> Result<(), Failure> {
    scatter(&before.to_ne_bytes(), own).map_err(|_| Failure::Local)
}
