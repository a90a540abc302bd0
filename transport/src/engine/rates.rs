//! Rates of devices and of QPs.

use crate::agenda::rate::RateLimit;
use crate::agenda::rates::{Flow, RateCounters, RateLimits};
use crate::agenda::schedule::{GRAIN, QP_TURN, Schedule};
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::ctx::QpCtx;
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
        Ok(())
    }

    /// Returns what was held back because of a device's rates.
    pub fn rate_counters(&self, device: DeviceId) -> RateCounters {
        self.core.schedule.rates.counters(device.0)
    }

    /// Whether a message between these QPs has to wait for its turn, because there may be a limit.
    #[cold]
    pub(super) fn may_be_limited(&mut self, now: Instant, place: QpRef, peer: QpRef) -> bool {
        let rates = &mut self.core.schedule.rates;
        rates.see(now);
        let is_known = self.core.devices.get(peer.device).is_some();
        !is_known || rates.is_limited(place) || rates.is_limited(peer)
    }

    /// Makes a QP that has a turn on this host wait for its time, if there is a limit that says so.
    #[cold]
    pub(super) fn waits_here(&mut self, place: QpRef) -> bool {
        if !self.core.devices.with_qp(place).is_some_and(|(_, qp)| qp.requester.ready) {
            return false;
        }
        let Some(at) = self.time_here(place) else { return false };
        self.core.schedule.local.postpone(place, at);
        true
    }

    /// Returns until when the first request of a QP has to wait, whose peer is on this host.
    fn time_here(&mut self, place: QpRef) -> Option<Instant> {
        let rates = &mut self.core.schedule.rates;
        // The device itself is held, unless the engine was restored meanwhile.
        let is_granted = rates.is_granted(place);
        let of_qp = rates.wait_of_qp(place);
        if let Some(at) = of_qp {
            rates.held_qp(place, at);
        }
        let own = of_qp.max(rates.wait(place.device, Flow::Tx));
        let (device, qp) = self.core.devices.known(place);
        let first = device.requests.first_send(&qp.requester.queue);
        let Some(first) = first.filter(|_| !qp.service().is_datagram()) else { return own };
        let work = first.work();
        if work.row.alone {
            return own;
        }
        let next = u64::from(work.length.saturating_sub(qp.requester.offset).min(QP_TURN));
        let peer = qp.peer_hint().device;
        let ends: &[_] = match work.row.data {
            DataDirection::Out => &[(peer, Flow::Rx)],
            DataDirection::Back => &[(peer, Flow::Tx), (place.device, Flow::Rx)],
        };
        let mut latest = own;
        for &(device, flow) in ends {
            if is_granted && flow == Flow::Rx {
                continue;
            }
            if let Some(at) = rates.wait(device, flow) {
                latest = latest.max(Some(rates.reserve(place, (device, flow), at, next)));
            }
        }
        latest
    }

    /// Returns how many bytes a QP may move in its turn on this host, if that is limited. It then
    /// has one step.
    #[cold]
    pub(super) fn limit_here(&self, place: QpRef) -> Option<u32> {
        let rates = &self.core.schedule.rates;
        let peer = self.core.devices.known(place).1.peer_hint();
        if !rates.is_limited(place) && !rates.is_limited(peer) {
            return None;
        }
        let (own, peer) = (place.device, peer.device);
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
        let peer = self.core.devices.known(place).1.peer_hint().device;
        let (messages, schedule) = (u64::from(has_ended), &mut self.core.schedule);
        schedule.rates.charge_qp(place, bytes, messages);
        match work.row.data {
            DataDirection::Out => {
                schedule.sent(place.device, bytes, messages);
                schedule.came(peer, bytes, messages);
            }
            DataDirection::Back => {
                schedule.sent(place.device, 0, messages);
                schedule.came(peer, 0, messages);
                schedule.sent(peer, bytes, 0);
                schedule.came(place.device, bytes, 0);
            }
        }
    }

    /// Makes a QP that has a turn of the port wait for its time, if there is a limit that says so.
    #[cold]
    pub(super) fn waits_for_port(&mut self, place: QpRef) -> bool {
        let no_sink = &mut NoSink;
        let borrowed = self.core.borrow(place, no_sink).filter(|borrowed| borrowed.qp.turn_due);
        let Some(borrowed) = borrowed else { return false };
        let asked = next_asks(borrowed);
        let rates = &mut self.core.schedule.rates;
        let is_granted = rates.is_granted(place);
        let answers = match (asked, rates.wait(place.device, Flow::Rx)) {
            (Some(bytes), Some(at)) if !is_granted => {
                Some(rates.reserve(place, (place.device, Flow::Rx), at, bytes))
            }
            _ => None,
        };
        let of_qp = rates.wait_of_qp(place);
        if let Some(at) = of_qp {
            rates.held_qp(place, at);
        }
        let own = of_qp.max(rates.wait(place.device, Flow::Tx));
        let Some(at) = own.max(answers) else { return false };
        self.core.schedule.wire.postpone(place, at);
        true
    }

    /// Counts a packet that came for a device by the wire or from another worker. Returns whether
    /// it may be delivered.
    #[cold]
    pub(super) fn came_by_port(&mut self, now: Instant, place: QpRef, body: &Body, payload: usize) -> bool {
        let (schedule, device, bytes) = (&mut self.core.schedule, place.device, payload as u64);
        schedule.rates.see(now);
        match body {
            Body::Rc(body) => came_by_connection(schedule, device, body, bytes),
            Body::Xrc(body) => came_by_connection(schedule, device, body.rc(), bytes),
            // Datagrams to QP1 set connections up. Without them no limit would be of use.
            Body::Ud { .. } if place.qpn.number() == 1 => {}
            Body::Ud { .. } | Body::Uc(_) => return schedule.rates.admit(device, bytes, meaning(body).0),
            Body::Cnp => {}
        }
        true
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

fn came_by_connection(schedule: &mut Schedule, device: u32, body: &Rc, bytes: u64) {
    // What answers a READ was counted when the READ asked for it.
    if !matches!(body, Rc::ReadResponse(_) | Rc::Ack(_) | Rc::AtomicAck(..)) {
        schedule.came_unasked(device, bytes, begins(body).into());
    }
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
