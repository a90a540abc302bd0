//! Rates of devices and of QPs.

use crate::agenda::rate::RateLimit;
use crate::agenda::rates::{Flow, RateCounters, RateLimits, Rates};
use crate::agenda::schedule::{GRAIN, QP_TURN, SentIn};
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::ctx::QpCtx;
use crate::objects::qp::Direction;
use crate::verbs::completion::NoSink;
use crate::verbs::op::DataDirection;
use crate::verbs::work::Work;
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::{Body, Part, Rc, Uc};

impl<R: Region> Engine<R> {
    /// Sets how much a device may send and receive in a second.
    ///
    /// A new device has no limits. They stay when it is reset. A record of the engine does not have
    /// them. Messages between devices of the engine count at both. A sender waits while its own
    /// limit is used up, or that of the receiver. From the wire, more may come than the limit: the
    /// device acknowledges later then, and drops what is unreliable.
    pub fn set_rates(&mut self, now: Instant, device: DeviceId, limits: &RateLimits) -> Result<(), Error> {
        self.core.devices.find(device)?;
        self.core.schedule.rates.see(now);
        self.core.schedule.rates.set_device(device.0, limits);
        self.core.schedule.start_over(device.0);
        self.follow_rates(device.0);
        Ok(())
    }

    /// Sets how much a QP may send in a second, by requests of its own.
    ///
    /// The limit stays until the QP is destroyed or its device reset.
    pub fn set_qp_rate(
        &mut self,
        now: Instant,
        device: DeviceId,
        qpn: Qpn,
        limit: &RateLimit,
    ) -> Result<(), Error> {
        self.core.devices.find(device)?.qp(qpn).ok_or(Error::NotFound)?;
        self.core.schedule.rates.see(now);
        let place = QpRef { device: device.0, qpn };
        self.core.schedule.rates.set_qp(place, limit);
        self.core.schedule.start_qp_over(place);
        self.follow_rates(device.0);
        Ok(())
    }

    /// Notes whether a device has rates, whose rates or QPs have changed.
    pub(super) fn follow_rates(&mut self, device: u32) {
        if let Some(known) = self.core.devices.get_mut(device) {
            known.limited = self.core.schedule.rates.concern(device);
        }
    }

    /// Returns what was held back because of a device's rates.
    pub fn rate_counters(&self, device: DeviceId) -> RateCounters {
        self.core.schedule.rates.counters(device.0)
    }

    /// Whether rates may concern a message of a QP whose peer may be on this host.
    #[inline]
    pub(super) fn may_be_limited(&self, place: QpRef, peer: QpRef) -> bool {
        // What is not known of a peer is looked up in a turn.
        self.core.schedule.rates.any()
            && (self.core.is_limited(place.device)
                || self.core.devices.get(peer.device).is_none_or(|peer| peer.limited))
    }

    /// Whether rates may concern what a QP does in its turn on this host.
    #[inline]
    pub(crate) fn is_limited_here(&self, place: QpRef) -> bool {
        self.core.schedule.rates.any()
            && self.core.devices.with_qp(place).is_some_and(|(device, qp)| {
                let is_limited = |peer| self.core.is_limited(peer);
                device.limited || self.core.devices.device_of_peer(qp).is_some_and(is_limited)
            })
    }

    /// Makes a QP that has a turn on this host wait for its time, if there is a limit that says so.
    #[cold]
    pub(super) fn waits_here(&mut self, place: QpRef) -> bool {
        if !self.core.devices.with_qp(place).is_some_and(|(_, qp)| qp.requester.ready) {
            return false;
        }
        if self.core.schedule.waits_here(place) {
            return true;
        }
        let Some(at) = self.time_here(place) else { return false };
        self.core.schedule.local.postpone(place, at);
        true
    }

    /// Returns until when the first request of a QP has to wait because of its own rate, or of its
    /// peer, which is on this host.
    fn time_here(&mut self, place: QpRef) -> Option<Instant> {
        let rates = &mut self.core.schedule.rates;
        let is_granted = rates.is_granted(place);
        let own = wait_of_qp(rates, place);
        let (device, qp) = self.core.devices.known(place);
        let first = device.requests.first_send(&qp.requester.queue);
        let Some(first) = first.filter(|_| !qp.service().is_datagram()) else { return own };
        let work = first.work();
        if work.row.alone || is_granted {
            return own;
        }
        let next = u64::from(work.length.saturating_sub(qp.requester.offset).min(QP_TURN));
        let Some(peer) = self.core.devices.device_of_peer(qp) else { return own };
        let ends: &[_] = match work.row.data {
            DataDirection::Out => &[(peer, Flow::Rx)],
            DataDirection::Back => &[(peer, Flow::Tx), (place.device, Flow::Rx)],
        };
        let (mut latest, mut are_its_own) = (own, true);
        for &end in ends {
            if let Some(at) = rates.wait(end.0, end.1) {
                let reserved = rates.reserve(end, at, next);
                latest = latest.max(Some(reserved.at));
                are_its_own &= reserved.is_its_own;
            }
        }
        // Of several times, the last one counts. It goes then, or it would find the first one used
        // by others for ever.
        if latest.is_some() && are_its_own {
            rates.grant(place);
        }
        latest
    }

    /// Returns how many bytes a QP may move in its turn on this host, if that is limited. It then
    /// has one step.
    #[inline]
    pub(super) fn limit_here(&self, place: QpRef) -> Option<u32> {
        if !self.is_limited_here(place) {
            return None;
        }
        let rates = &self.core.schedule.rates;
        let qp = self.core.devices.known(place).1;
        let (own, peer) = (place.device, self.core.devices.device_of_peer(qp).unwrap_or(place.device));
        let ends = [rates.left(own, Flow::Tx), rates.left(own, Flow::Rx), rates.left_of_qp(place)];
        let peers = [rates.left(peer, Flow::Tx), rates.left(peer, Flow::Rx)];
        let left = ends.into_iter().chain(peers).min().unwrap_or(u64::MAX);
        Some((left.min(QP_TURN.into()) as u32).next_multiple_of(GRAIN).clamp(GRAIN, QP_TURN))
    }

    /// Counts what a QP has moved on this host: bytes of its first request, which has ended or not.
    #[cold]
    pub(super) fn moved_here(&mut self, place: QpRef, work: &Work<'_>, bytes: u64, has_ended: bool) {
        if work.row.alone {
            return;
        }
        let qp = self.core.devices.known(place).1;
        let Some(peer) = self.core.devices.device_of_peer(qp) else { return };
        let (messages, schedule) = (u64::from(has_ended), &mut self.core.schedule);
        schedule.rates.charge_qp(place, bytes, messages);
        match work.row.data {
            DataDirection::Out => {
                schedule.sent(place.device, SentIn::Local, bytes, messages);
                schedule.came(peer, bytes, messages);
            }
            DataDirection::Back => {
                // What was read is moved in a turn of the reader, even if its message goes on.
                schedule.sent(place.device, SentIn::Local, 0, messages);
                schedule.came(peer, 0, messages);
                schedule.sent(peer, SentIn::Peer, bytes, 0);
                schedule.came(place.device, bytes, 0);
            }
        }
    }

    /// Makes a QP that has a turn of the port wait for its time, if there is a limit that says so.
    #[cold]
    pub(super) fn waits_for_port(&mut self, place: QpRef, direction: Direction) -> bool {
        let no_sink = &mut NoSink;
        let Some(borrowed) = self.core.borrow(place, no_sink) else { return false };
        if direction == Direction::Answers {
            let has_data = borrowed.qp.answer_due && answers_with_data(borrowed);
            return has_data && self.core.schedule.waits_for_port(place, direction);
        }
        if !borrowed.qp.turn_due {
            return false;
        }
        let asked = next_asks(borrowed);
        if self.core.schedule.waits_for_port(place, direction) {
            return true;
        }
        let rates = &mut self.core.schedule.rates;
        let is_granted = rates.is_granted(place);
        let answers = match (asked, rates.wait(place.device, Flow::Rx)) {
            (Some(bytes), Some(at)) if !is_granted => {
                let reserved = rates.reserve((place.device, Flow::Rx), at, bytes);
                if reserved.is_its_own {
                    rates.grant(place);
                }
                Some(reserved.at)
            }
            _ => None,
        };
        let Some(at) = wait_of_qp(rates, place).max(answers) else { return false };
        self.core.schedule.wire.postpone(place, at);
        true
    }
}

/// Returns until when a QP has to wait because of its own rate, and counts the wait.
fn wait_of_qp(rates: &mut Rates, place: QpRef) -> Option<Instant> {
    let at = rates.wait_of_qp(place)?;
    rates.waited(place.device, Flow::Tx, (rates.now(), at));
    Some(at)
}

/// Whether the next answer of a QP has data, which count for rates.
fn answers_with_data<R: Region, S>(borrowed: QpCtx<'_, R, S>) -> bool {
    match (borrowed.qp.transport, borrowed.qp.service().is_reliable()) {
        (TransportKind::Roce, true) => borrowed.roce().conn.responder.has_data_pending(),
        // Acknowledges in a stream are those of TCP.
        (TransportKind::Tcp, _) => true,
        _ => false,
    }
}

/// Returns how many bytes the answer to the next request of a QP brings, if it brings data.
///
/// In a stream, data count when they come.
fn next_asks<R: Region, S>(borrowed: QpCtx<'_, R, S>) -> Option<u64> {
    let is_reliable = borrowed.qp.service().is_reliable();
    if borrowed.qp.transport != TransportKind::Roce || !is_reliable {
        return None;
    }
    let qp = borrowed.roce();
    let request = qp.requests.send_at(qp.conn.requester.cursor.at?, qp.send_scratch).0;
    let work = request.work();
    (work.row.data == DataDirection::Back).then_some(work.length.into())
}

fn is_first<F, L>(part: &Part<F, L>) -> bool {
    matches!(part, Part::First(_) | Part::Only(..))
}

/// Whether a packet of a reliable connection is the first one of a request.
fn begins(body: &Rc) -> bool {
    match body {
        Rc::Send(part) => is_first(part),
        Rc::Write(part) => is_first(part),
        Rc::ReadRequest(_) | Rc::Atomic(..) | Rc::AtomicWrite(_) | Rc::Flush(..) => true,
        Rc::ReadResponse(_) | Rc::Ack(_) | Rc::AtomicAck(..) => false,
    }
}

/// What a packet means for rates: how many requests begin with it, and how many bytes it asks for.
pub(super) fn meaning(body: &Body) -> (u64, u64) {
    let of_rc = |body: &Rc| {
        let asks = match body {
            Rc::ReadRequest(reth) => reth.length.into(),
            Rc::Atomic(..) => 8,
            _ => 0,
        };
        (u64::from(begins(body)), asks)
    };
    match body {
        Body::Rc(body) => of_rc(body),
        Body::Xrc(body) => of_rc(body.rc()),
        Body::Uc(Uc::Send(part)) => (is_first(part).into(), 0),
        Body::Uc(Uc::Write(part)) => (is_first(part).into(), 0),
        Body::Ud { .. } => (1, 0),
        Body::Cnp => (0, 0),
    }
}
