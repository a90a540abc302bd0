//! Congestion on the path to a peer: notifications for marked packets, and the rate of a QP that is
//! notified (IBTA annex A17.9, DCQCN).

use crate::agenda::schedule::Schedule;
use crate::base::dcqcn::Dcqcn;
use crate::base::memory::Region;
use crate::base::time::{Instant, SLOW_CHECK, ack_timeout};
use crate::base::transport_kind::TransportKind;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{PacketOutlet, Pieces};
use crate::objects::qp::{Direction, Qp};
use crate::objects::roce::packet::{OVERHEAD, base_header};
use crate::objects::roce::round_trip::{Estimate, RoundTrip, Sample};
use crate::objects::roce::state::RcRoce;
use crate::protocol::allowance::Allowance;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::Sink;
use core::time::Duration;
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{Body, Bth, Packet, Path};

/// The bits of a traffic class that are those of ECN.
const ECN_BITS: u8 = 3;
/// ECT(0): the ends of the connection understand marks.
const CAPABLE: u8 = 2;

/// What the rate of a QP means for its turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// It has no rate.
    Free,
    /// It waits until then.
    Waits(Instant),
    /// It may send this many bytes. `is_slow` tells that its next turn is far.
    Burst { bytes: u64, is_slow: bool },
}

/// The longest time between two steps in which a rate grows. One round-trip time may be far too long.
const LONGEST_STEP: Duration = Duration::from_millis(10);

/// The time between two turns from which on a peer is asked for an acknowledge in each.
const SLOW: Duration = Duration::from_millis(1);
const _: () = assert!(SLOW.as_nanos() < SLOW_CHECK.as_nanos());

/// Returns the path of packets that carry data. Switches may mark them if congestion control is on.
pub(super) fn data_path(schedule: &Schedule, path: Path) -> Path {
    match schedule.dcqcn {
        Some(_) => Path { traffic_class: path.traffic_class & !ECN_BITS | CAPABLE, ..path },
        None => path,
    }
}

/// Returns the path of acknowledges and NAKs, which switches do not mark.
pub(super) fn answer_path(schedule: &Schedule, path: Path) -> Path {
    match schedule.dcqcn {
        Some(_) => Path { traffic_class: path.traffic_class & !ECN_BITS, ..path },
        None => path,
    }
}

/// Takes a notification for a QP.
///
/// Only the peer of the QP can slow it down. A QP of an unreliable service has no rate.
pub(crate) fn notified<R: Region, S: Sink>(ctx: QpCtx<'_, R, S>, now: Instant, packet: &Packet) {
    let has_rate = ctx.qp.transport == TransportKind::Roce && ctx.qp.service().is_reliable();
    let is_of_peer = ctx.qp.is_path_of_peer(&packet.path) && ctx.qp.is_receiving();
    if ctx.schedule.dcqcn.is_none() || !has_rate || !is_of_peer {
        ctx.counters.rp_cnp_ignored += 1;
        return;
    }
    let qp = ctx.roce();
    let parameters = parameters_of(qp.schedule.dcqcn.as_ref(), &qp.conn.round_trip);
    let Some(parameters) = parameters.filter(|_| !qp.conn.is_near) else {
        qp.counters.rp_cnp_ignored += 1;
        return;
    };
    qp.counters.rp_cnp_handled += 1;
    let through = through(qp.conn);
    qp.conn.congestion.get_or_insert_default().notified(now, through, &parameters);
}

/// Returns the bytes of frames that got through to the peer, modulo 2 to the power of 64.
fn through(conn: &RcRoce) -> u64 {
    // A peer that READs asks for more when its data have come.
    conn.requester.carried.wrapping_add(conn.responder.asked)
}

/// Returns the parameters of a QP.
///
/// If round-trip times count, the timer lets a rate grow once in a round trip at most. What it grew before shows
/// only then. It grows by a thousandth of the link's rate, so that many QPs that share a slow link
/// fill its queue slowly.
fn parameters_of(parameters: Option<&Dcqcn>, round_trip: &RoundTrip) -> Option<Dcqcn> {
    let mut parameters = *parameters?;
    if parameters.rp_delay_target.is_some() {
        let srtt = round_trip.estimate().map_or(Duration::ZERO, Estimate::srtt);
        parameters.rp_time_reset = parameters.rp_time_reset.max(srtt.min(LONGEST_STEP));
        let part = |of: u64| (parameters.rp_max_rate / of).max(Dcqcn::LOWEST_RATE / 10);
        parameters.rp_ai_rate = parameters.rp_ai_rate.min(part(1000));
        parameters.rp_hai_rate = parameters.rp_hai_rate.min(part(100));
    }
    Some(parameters)
}

/// Returns what the rate of a QP means for its turn, if it is a reliable connection on RoCE.
#[inline]
pub(crate) fn pace<R: Region, S>(ctx: &mut QpCtx<'_, R, S>, now: Instant, direction: Direction) -> Pace {
    if ctx.qp.transport != TransportKind::Roce || !ctx.qp.service().is_reliable() {
        return Pace::Free;
    }
    let conn = ctx.conn.rc_roce();
    if conn.congestion.is_none() {
        return Pace::Free;
    }
    pace_of(conn, ctx.qp, ctx.schedule.dcqcn.as_ref(), now, direction)
}

#[cold]
fn pace_of(
    conn: &mut RcRoce,
    qp: &Qp,
    parameters: Option<&Dcqcn>,
    now: Instant,
    direction: Direction,
) -> Pace {
    if parameters.is_none() {
        // Congestion control was switched off.
        conn.congestion = None;
    }
    let RcRoce { congestion, requester, responder, probes, round_trip, .. } = conn;
    let Some(congestion) = congestion else { return Pace::Free };
    let (cnp_is_due, was_last) = (congestion.cnp_is_due(), congestion.last == Some(direction));
    let Some(point) = &mut congestion.point else { return Pace::Free };
    let Some(parameters) = &parameters_of(parameters, round_trip) else { return Pace::Free };
    if let Some(target) = parameters.rp_delay_target {
        let is_outstanding = requester.reads == 0 && requester.next() != requester.una;
        let is_silent = is_outstanding && now > probes.no_progress_since() + target;
        // While the path is congested already, the rate does not grow.
        if is_silent || round_trip.takes_longer(target, now) {
            point.hold(now);
        }
    }
    point.advance(now, parameters);
    if point.is_over(parameters) {
        congestion.point = None;
        return Pace::Free;
    }
    let has_responses = responder.has_data_pending();
    if direction == Direction::Answers && !has_responses {
        return Pace::Free;
    }
    let longest = u64::from(qp.path_mtu.bytes()) + OVERHEAD;
    let bytes = point.burst(longest);
    // Packets after which an acknowledge is requested must not take as long as its timeout.
    let patience = ack_timeout(qp.attr().timeout).map_or(SLOW_CHECK, |timeout| timeout / 4);
    let is_slow = point.time_of(bytes) > SLOW || point.time_of(32 * longest) > patience;
    match point.wait(now) {
        // A notification does not wait. It takes the whole turn.
        Some(_) if direction == Direction::Answers && cnp_is_due => Pace::Burst { bytes: 1, is_slow },
        Some(at) => Pace::Waits(at),
        // Both directions of a QP share its rate by turns.
        None if was_last
            && match direction {
                Direction::Answers => qp.turn_due && requester.has_unsent(),
                Direction::Requests => qp.answer_due && has_responses,
            } =>
        {
            congestion.last = None;
            Pace::Waits(now + point.time_of(bytes))
        }
        // The peer's timeout runs between two responses, so these do not come in bursts.
        None if is_slow && direction == Direction::Answers => Pace::Burst { bytes: 1, is_slow },
        None => Pace::Burst { bytes, is_slow },
    }
}

/// Records that a QP with a rate has sent this many bytes in its turn.
pub(crate) fn paced<R: Region, S>(ctx: &mut QpCtx<'_, R, S>, now: Instant, direction: Direction, bytes: u64) {
    if ctx.qp.transport != TransportKind::Roce || bytes == 0 {
        return;
    }
    let RcRoce { congestion, round_trip, .. } = ctx.conn.rc_roce();
    let Some(congestion) = congestion.as_deref_mut() else { return };
    congestion.last = Some(direction);
    let Some(point) = &mut congestion.point else { return };
    if let Some(parameters) = parameters_of(ctx.schedule.dcqcn.as_ref(), round_trip) {
        point.sent(now, bytes, &parameters);
    }
}

/// Takes note of a packet of the peer that met congestion.
#[cold]
pub(crate) fn marked<R: Region, S: Sink>(ctx: QpCtx<'_, R, S>, now: Instant, packet: &Packet) {
    let is_of_peer = ctx.qp.is_path_of_peer(&packet.path) && ctx.qp.is_receiving();
    if ctx.qp.transport != TransportKind::Roce || !ctx.qp.service().is_reliable() || !is_of_peer {
        return;
    }
    let mut qp = ctx.roce();
    qp.counters.np_ecn_marked_roce_packets += 1;
    let Some(parameters) = qp.schedule.dcqcn else { return };
    if !qp.conn.congestion.get_or_insert_default().marked(now, &parameters) {
        return;
    }
    // Responses may wait for their time. The notification goes at once.
    match qp.schedule.wire.forget_later(qp.place, Direction::Answers) {
        true => qp.schedule.wire.push(qp.place, Direction::Answers),
        false => qp.make_answer_due(),
    }
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Takes a measured round-trip time.
    pub(super) fn round_trip_took(&mut self, now: Instant, sample: Sample) {
        let target = self.schedule.dcqcn.as_ref().and_then(|it| it.rp_delay_target);
        if target.is_some_and(|target| sample.time() > target) {
            self.was_delayed(now, sample);
        }
    }

    /// Returns the bytes a second that the path carried at most.
    fn carried(&self, sample: Sample, longest: u64) -> u64 {
        // A QP that has sent all it had does not show what the path can carry.
        match self.conn.requester.has_unsent() {
            true => sample.carried(self.qp.requester.psn, longest),
            false => u64::MAX,
        }
    }

    /// Lowers the rate of the QP, because a round trip took too long.
    #[cold]
    fn was_delayed(&mut self, now: Instant, sample: Sample) {
        let parameters = parameters_of(self.schedule.dcqcn.as_ref(), &self.conn.round_trip);
        let Some(parameters) = parameters.filter(|_| !self.conn.is_near && !self.conn.stays_here) else {
            return;
        };
        let longest = u64::from(self.qp.path_mtu.bytes()) + OVERHEAD;
        let (carried, through) = (self.carried(sample, longest), through(self.conn));
        let congestion = self.conn.congestion.get_or_insert_default();
        self.counters.rp_delay_handled +=
            u64::from(congestion.delayed(now, sample.time(), (carried, through), &parameters));
    }

    /// Sends the notification that is due, if there is one (IBTA annex A17.9.3).
    pub(super) fn send_notification(&mut self, allowance: &mut Allowance, outlet: &mut impl PacketOutlet<R>) {
        let Some(congestion) = self.conn.congestion.as_deref_mut() else { return };
        if !congestion.cnp_is_due() || !allowance.may_send(outlet) {
            return;
        }
        congestion.take_cnp();
        let Some(parameters) = self.schedule.dcqcn.filter(|_| self.qp.is_receiving()) else { return };
        let path = self.qp.path(self.mac, self.marks);
        let path = Path { traffic_class: parameters.np_cnp_dscp << 2, ..path };
        let bth = Bth { becn: true, ..base_header(self.qp, Psn::default()) };
        let packet = Packet { path, bth, body: Body::Cnp };
        // It has no payload, so no memory can be missing.
        let sent = outlet.pass(self.place.id(), &packet, None, &Pieces::bytes(&[]));
        debug_assert!(sent.is_ok());
        allowance.sent(0);
        self.counters.packets_out += 1;
        self.counters.np_cnp_sent += 1;
    }
}
