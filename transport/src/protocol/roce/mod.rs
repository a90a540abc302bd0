//! Reliable connections on RoCEv2 packets (IBTA 9.7).
//!
//! Each end is a requester and a responder. Both send ([`requester_tx`], [`responder_tx`]) and
//! receive ([`requester_rx`], [`responder_rx`]). [`retry`] retransmits packets without an answer,
//! and [`probe`] asks silent peers how far they have come.
//! The states are in `objects/roce/`.

mod answered;
pub(crate) mod congestion;
mod early;
mod gap;
mod probe;
pub(crate) mod qp;
mod reorder;
mod requester_rx;
mod requester_tx;
mod responder_rx;
mod responder_tx;
mod retry;
mod slices;

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::inter_worker::{InterWorkerPart, InterWorkerPayload};
use crate::base::memory::Region;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{DiscardOutlet, PacketOutlet};
use crate::objects::qp::Direction;
use crate::objects::roce::packet::Response;
use crate::protocol::allowance::Allowance;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::attr::QpType;
use crate::verbs::completion::Sink;
use vrdma_wire::num::Srqn;
use vrdma_wire::roce::{Body, Packet, Rc};

/// Returns what a packet says to a QP of a reliable service, or `None` if it is of another service.
///
/// With a request of XRC comes the shared receive queue that it names.
#[inline]
pub(crate) fn body_for(service: QpType, body: &Body) -> Option<(&Rc, Option<Srqn>)> {
    match (service, body) {
        (QpType::Rc, Body::Rc(body)) => Some((body, None)),
        (QpType::XrcSend, Body::Xrc(body)) if body.srqn().is_none() => Some((body.rc(), None)),
        (QpType::XrcRecv, Body::Xrc(body)) if body.srqn().is_some() => Some((body.rc(), body.srqn())),
        _ => None,
    }
}

/// Handles a packet of a reliable connection that came for a QP.
///
/// `part` is set for an inter-worker packet. `srqn` is the shared receive queue that a request of
/// XRC names.
#[inline]
pub(crate) fn receive<R: Region, S: Sink>(
    ctx: QpCtx<'_, R, S>,
    now: Instant,
    packet: &Packet,
    (part, payload): (Option<InterWorkerPart>, InterWorkerPayload<'_, R>),
    (body, srqn): (&Rc, Option<Srqn>),
    posted: PostedReceives,
) -> Fate {
    if !ctx.qp.is_path_of_peer(&packet.path) {
        ctx.counters.drop_source += 1;
        return Fate::Done;
    }
    if ctx.qp.transport != TransportKind::Roce {
        ctx.counters.drop_not_connected += 1;
        return Fate::Done;
    }
    let mut qp = ctx.roce();
    match Response::of(body, part.map_or(1, |part| part.psns), payload) {
        Some(response) => {
            qp.receive_response(now, packet.bth.psn, response);
            Fate::Done
        }
        None => qp.receive_request(now, &packet.bth, (body, srqn), (part, payload), posted),
    }
}

/// Asks the peer for the expected packet again, which was dropped because there was no receive.
///
/// The caller has drained posts of the QP's receives.
pub(crate) fn looked_near<R: Region, S: Sink>(ctx: QpCtx<'_, R, S>) {
    if ctx.qp.transport == TransportKind::Roce && ctx.qp.is_receiving() {
        let mut qp = ctx.roce();
        let psn = qp.qp.responder.psn;
        qp.ask_again(psn, Some(psn));
    }
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sends packets while `outlet` has room, and executes requests that need none.
    ///
    /// Together they count as at most `budget` packets. Returns the number of packets, and what the
    /// other requests counted as.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl PacketOutlet<R>,
    ) -> (usize, usize) {
        if self.qp.sgid.is_zero() {
            // Without a source address nothing can be sent, so the packets are lost.
            return self.take_turn(now, direction, budget, &mut DiscardOutlet);
        }
        self.take_turn(now, direction, budget, outlet)
    }

    fn take_turn(
        &mut self,
        now: Instant,
        direction: Direction,
        budget: usize,
        outlet: &mut impl PacketOutlet<R>,
    ) -> (usize, usize) {
        let way = outlet.way_to(self.qp.attr().dmac);
        let roce = &mut *self.conn;
        (roce.stays_here, roce.is_near) = (way.stays_here, way.is_near);
        if !way.has_room {
            match direction {
                Direction::Answers => self.make_answer_due(),
                Direction::Requests => self.make_turn_due(),
            }
            return (0, 0);
        }
        let mut allowance = Allowance::new(now, budget);
        match direction {
            Direction::Answers => {
                self.send_notification(&mut allowance, outlet);
                let more = self.send_responses(&mut allowance, outlet);
                if more || self.conn.congestion.as_ref().is_some_and(|it| it.cnp_is_due()) {
                    self.make_answer_due();
                }
            }
            Direction::Requests => {
                if self.send_requests(&mut allowance, outlet) {
                    self.make_turn_due();
                }
            }
        }
        allowance.spent()
    }
}
