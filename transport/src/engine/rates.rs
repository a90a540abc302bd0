//! Rates of devices and of QPs.

use crate::agenda::rate::RateLimit;
use crate::agenda::rates::{Flow, Next, RateCounters, RateLimits, Rates};
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

/// What moves by rates in a turn of the port.
#[derive(Copy, Clone, Default)]
pub(super) struct Moving {
    pub(super) bytes: u64,
    /// Requests that began.
    pub(super) messages: u64,
    /// Bytes that READs and atomics have asked for.
    pub(super) asked: u64,
}

/// What a step of a QP has moved on this host.
pub(super) struct MovedHere {
    pub(super) bytes: u64,
    /// Whether the request has ended.
    pub(super) has_ended: bool,
    /// Whether it arrived at the peer.
    pub(super) was_accepted: bool,
}

/// What the rates of a QP and of its peer decide about a QP that has a turn.
enum Turn {
    /// It waits until then.
    Waits(Instant),
    /// It has its turn: here with this many bytes, at the port with requests for this many.
    Goes(u64),
}

/// What the rate of a QP and those at the ends of its message mean for it.
enum Admission {
    /// It waits until then.
    Waits(Instant),
    /// It has waited for a time of its own, and may move this many bytes.
    Granted(u64),
    /// It need not wait.
    Free,
}

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

    /// Returns how many bytes a QP may move in its turn on this host. It then has one step.
    ///
    /// Returns `None` if there is a limit for which it now waits. Rates concern its turn.
    #[cold]
    pub(super) fn limit_here(&mut self, place: QpRef) -> Option<u32> {
        if !self.core.devices.with_qp(place).is_some_and(|(_, qp)| qp.requester.ready) {
            // It has no turn.
            return Some(GRAIN);
        }
        if self.core.schedule.waits_here(place) {
            return None;
        }
        match self.turn_here(place) {
            Turn::Waits(at) => {
                self.core.schedule.local.postpone(place, Direction::Requests, at);
                None
            }
            Turn::Goes(bytes) => {
                Some((bytes.min(QP_TURN.into()) as u32).next_multiple_of(GRAIN).clamp(GRAIN, QP_TURN))
            }
        }
    }

    /// Returns the device of the peer that takes what a connected QP sends, if there is one here.
    fn peer_here(&self, place: QpRef) -> Option<u32> {
        let qp = self.core.devices.known(place).1;
        if qp.service().is_datagram() {
            return None;
        }
        // Without a connection, nothing arrives.
        self.core.devices.find_peer(qp).ok().map(|(peer, ..)| peer.device)
    }

    /// Decides whether the first request of a QP has to wait because of its own rate, or of its
    /// peer, which is on this host. The rate of its device does not keep it from its turn.
    fn turn_here(&mut self, place: QpRef) -> Turn {
        let peer = self.peer_here(place);
        let schedule = &mut self.core.schedule;
        let (device, qp) = self.core.devices.known(place);
        let first = device.requests.first_send(&qp.requester.queue).map(|first| first.work());
        let ends: &[_] = match (peer, &first) {
            (Some(peer), Some(work)) if !work.row.alone => match work.row.data {
                DataDirection::Out => &[(peer, Flow::Rx)],
                DataDirection::Back => &[(peer, Flow::Tx), (place.device, Flow::Rx)],
            },
            _ => &[],
        };
        let length = first.as_ref().map_or(0, |work| work.length);
        let rest = u64::from(length.saturating_sub(qp.requester.offset).min(QP_TURN));
        // The data of a READ are sent by its peer.
        let sends = first.is_some_and(|work| work.row.data == DataDirection::Out);
        let of_device = |bytes: u64| if sends { bytes } else { u64::MAX };
        let rates = &mut schedule.rates;
        // No time is kept free for more than its own rates let it move at once.
        let most = of_device(rates.holds(place.device, Flow::Tx)).min(rates.holds_of_qp(place));
        let next = Next::UpTo(rest.min(most.max(GRAIN.into())));
        let granted = match admit(rates, place, ends, Some(next)) {
            Admission::Waits(at) => return Turn::Waits(at),
            Admission::Granted(bytes) => Some(bytes),
            Admission::Free => None,
        };
        // What it has waited for, it moves whatever others have moved meanwhile.
        let by_ends = granted.unwrap_or_else(|| {
            ends.iter().map(|&(device, flow)| rates.left(device, flow)).min().unwrap_or(u64::MAX)
        });
        let of_qp = rates.left_of_qp(place);
        Turn::Goes(by_ends.min(of_qp).min(of_device(schedule.left_here(place.device))))
    }

    /// Counts what a QP has moved on this host: bytes of its first request, and whether that has
    /// ended.
    ///
    /// What its peer has not accepted costs the peer nothing.
    #[cold]
    pub(super) fn moved_here(&mut self, place: QpRef, work: &Work<'_>, moved: MovedHere) {
        if work.row.alone {
            return;
        }
        let MovedHere { bytes, has_ended, was_accepted } = moved;
        let qp = self.core.devices.known(place).1;
        let peer = self.core.devices.device_of_peer(qp).filter(|_| was_accepted);
        let (messages, schedule) = (u64::from(has_ended), &mut self.core.schedule);
        let is_read = work.row.data == DataDirection::Back;
        // What was read is moved in a turn of the reader, even if its message goes on.
        let (sent, read) = if is_read { (0, bytes) } else { (bytes, 0) };
        schedule.rates.charge_qp(place, bytes, messages);
        schedule.sent(place.device, SentIn::Local, sent, messages);
        let Some(peer) = peer else { return };
        schedule.came(peer, sent, messages);
        if is_read {
            schedule.sent(peer, SentIn::Peer, read, 0);
            schedule.came(place.device, read, 0);
        }
    }

    /// Returns what a QP of a device with rates may move in its turn of the port, or `None` if it
    /// now waits for a limit.
    ///
    /// It is at least as much as a turn on this host moves. Where nothing may be sent, the QP has
    /// no turn.
    #[cold]
    pub(super) fn limit_by_port(&mut self, place: QpRef, direction: Direction) -> Option<Moving> {
        let asked = match self.turn_by_port(place, direction)? {
            Turn::Waits(at) => {
                self.core.schedule.wire.postpone(place, direction, at);
                return None;
            }
            Turn::Goes(bytes) => bytes,
        };
        let schedule = &self.core.schedule;
        let (rates, of_device) = (&schedule.rates, schedule.left_by_port(place.device, direction));
        Some(Moving {
            bytes: of_device.min(rates.left_of_qp(place)).max(GRAIN.into()),
            messages: rates.messages_left(place.device).max(1),
            asked,
        })
    }

    /// Decides whether a QP that has a turn of the port waits for a time of its own, and how many
    /// bytes it may ask for. Returns `None` if its whole device waits.
    fn turn_by_port(&mut self, place: QpRef, direction: Direction) -> Option<Turn> {
        let no_sink = &mut NoSink;
        let Some(borrowed) = self.core.borrow(place, no_sink) else { return Some(Turn::Goes(0)) };
        if direction == Direction::Answers {
            let has_data = borrowed.qp.answer_due && answers_with_data(borrowed);
            let waits = has_data && self.core.schedule.waits_for_port(place, direction);
            return (!waits).then_some(Turn::Goes(0));
        }
        if !borrowed.qp.turn_due {
            return Some(Turn::Goes(0));
        }
        let asked = next_asks(borrowed);
        if self.core.schedule.waits_for_port(place, direction) {
            return None;
        }
        let (rates, own) = (&mut self.core.schedule.rates, (place.device, Flow::Rx));
        // A request asks for all of its data.
        Some(match admit(rates, place, &[own], asked.map(Next::Whole)) {
            Admission::Waits(at) => Turn::Waits(at),
            Admission::Granted(bytes) => Turn::Goes(bytes.max(1)),
            Admission::Free if rates.wait(own.0, own.1).is_some() => Turn::Goes(0),
            // One request may ask for more.
            Admission::Free => Turn::Goes(rates.left(own.0, own.1).max(1)),
        })
    }

    /// Counts what a QP has moved in its turn of the port.
    #[cold]
    pub(super) fn moved_by_port(&mut self, place: QpRef, direction: Direction, moved: Moving) {
        let schedule = &mut self.core.schedule;
        if direction == Direction::Requests {
            schedule.rates.charge_qp(place, moved.bytes, moved.messages);
        }
        schedule.sent(place.device, SentIn::Wire(direction), moved.bytes, moved.messages);
        if moved.asked > 0 {
            schedule.asked(place.device, moved.asked);
        }
    }
}

/// Decides whether a QP waits, for its own rate or for a time at these ends of its message.
///
/// `next` is what it has for them, if it has something. While it waits for its own rate, a time
/// that it has waited for at the ends stays its own.
fn admit(rates: &mut Rates, place: QpRef, ends: &[(u32, Flow)], next: Option<Next>) -> Admission {
    let own = wait_of_qp(rates, place);
    if own.is_none()
        && let Some(bytes) = rates.take_grant(place)
    {
        return Admission::Granted(bytes);
    }
    let next = next.filter(|_| !rates.has_grant(place));
    let reserved = next.and_then(|next| rates.reserve(ends, next));
    if let Some(bytes) = reserved.and_then(|reserved| reserved.bytes) {
        rates.grant(place, bytes);
    }
    own.max(reserved.map(|reserved| reserved.at)).map_or(Admission::Free, Admission::Waits)
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
