//! The requester sends requests: each packet is a part of the request at the cursor.

use crate::base::inter_worker::{InterWorkerPart, most_psns};
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::outlet::{PacketOutlet, Pieces};
use crate::message::segmentation::check_request;
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::{RequestSlice, asks_for_ack, request_packet};
use crate::objects::roce::probes::Due;
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::requester_state::{RequesterState, psns};
use crate::objects::roce::state::RcRoce;
use crate::protocol::allowance::Allowance;
use crate::protocol::roce::congestion::data_path;
use crate::protocol::roce::qp::RoceQp;
use crate::protocol::roce::slices::{next_slice, packet_payload};
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::op::DataDirection;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;

/// Why a QP sends no more requests for now.
enum RequestPause {
    /// The QP's turn is over.
    More,
    /// Nothing is left, or what is left has to wait.
    Idle,
    /// The request at the cursor cannot be sent.
    Broken(WcStatus),
    /// The request at the cursor only changes keys of its own device. It is the first request, and
    /// is to be executed here.
    Alone,
}

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Sends the packets that the send queue has and the windows allow. Returns whether there are
    /// more.
    pub(super) fn send_requests(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl PacketOutlet<R>,
    ) -> bool {
        if self.conn.probes.due != Due::Nothing && !self.send_first_alone(allowance, outlet) {
            return true;
        }
        let before = allowance.packets_sent();
        let state = &self.conn.requester;
        let is_again = state.next() == state.una && state.una != self.qp.requester.psn;
        let pause = loop {
            match self.send_request_packets(allowance, outlet) {
                RequestPause::Alone => self.change_first_key(allowance),
                pause => break pause,
            }
        };
        if allowance.packets_sent() > before {
            self.packets_were_sent(allowance.now, is_again);
        } else {
            self.nothing_was_sent(allowance.now);
        }
        match pause {
            RequestPause::Idle => false,
            RequestPause::More => true,
            RequestPause::Broken(status) => {
                // The request fails only after the requests before it have ended.
                if self.conn.requester.cursor_is_first() {
                    self.fail_first(status);
                }
                false
            }
            RequestPause::Alone => unreachable!("it was carried out"),
        }
    }

    /// Executes the first request, which only changes keys of its own device.
    ///
    /// All requests before it have ended.
    fn change_first_key(&mut self, allowance: &mut Allowance) {
        let QpCtx { qp, requests, conn, .. } = self;
        let queue = &qp.requester.queue;
        let after = queue.head().and_then(|at| requests.send_after(at));
        let send = *requests.first_send(queue).expect("the cursor is at it");
        allowance.executed(send.op.extra_cost());
        conn.requester.first_ended_alone(after);
        self.change_key(&send.work());
    }

    /// Sends packets of requests, one request after the other.
    fn send_request_packets(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl PacketOutlet<R>,
    ) -> RequestPause {
        let device = self.place.id();
        let QpCtx { qp, mrs, requests, counters, send_scratch, .. } = self;
        if !matches!(qp.state, QpState::Rts | QpState::Sqd) || qp.requester.wait == Wait::Receive {
            return RequestPause::Idle;
        }
        let path = data_path(self.schedule, qp.path(self.mac, self.marks));
        let mtu = qp.path_mtu;
        let is_controlled = self.schedule.dcqcn.is_some();
        let (most_requests, most_responses) =
            self.conn.most_outstanding((allowance.now, qp.requester.psn), mtu, is_controlled);
        let RcRoce { requester: state, round_trip, probes, is_near, .. } = self.conn;
        let is_near = *is_near;
        while let Some(at) = state.cursor.at {
            let (send, payload) = requests.send_at(at, send_scratch);
            let work = send.work();
            if work.row.alone {
                return match state.cursor_is_first() && qp.state == QpState::Rts {
                    true if allowance.may_send(outlet) => RequestPause::Alone,
                    true => RequestPause::More,
                    false => RequestPause::Idle,
                };
            }
            let psns = psns(&work, mtu);
            if let Some(pause) = why_not_begin((mrs, qp), state, &work, payload, (psns, most_responses)) {
                return pause;
            }
            while state.cursor.at == Some(at) {
                if !allowance.may_send(outlet) {
                    return RequestPause::More;
                }
                let limited = state.lacks_credit(work.op);
                let outstanding = ahead(state.next(), state.una);
                if state.window_is_full(most_requests) || outstanding >= HALF || limited && outstanding > 0 {
                    return RequestPause::Idle;
                }
                if work.row.data == DataDirection::Back && !outlet.may_ask() {
                    return RequestPause::More;
                }
                let most =
                    if is_near { most_psns(mtu, state.cursor.sent).min(HALF - outstanding) } else { 1 };
                let next = next_packet((mrs, qp), &work, payload, (state.cursor.sent, psns, most), outlet);
                let Some((slice, pieces)) = next else { return RequestPause::Broken(WcStatus::LocProt) };
                // If a rate ends the turn, the next one may be later than the local ACK timeout.
                let is_asked = slice.last
                    || limited
                    || state.ack_req_due(slice.psns)
                    || allowance.ends_with(pieces.len() as u32, slice.first, outlet);
                let ack_req = asks_for_ack(&work) && is_asked;
                let packet = request_packet(&path, qp, state.next(), &work, &slice, ack_req);
                let carried = if work.row.data == DataDirection::Out { slice.psns } else { 1 };
                let part = is_near.then_some(InterWorkerPart { psns: carried, path_mtu: mtu, may_pin: true });
                let done = outlet.pass(device, &packet, part, &pieces);
                if done.is_err() {
                    return RequestPause::Broken(WcStatus::LocProt);
                }
                allowance.sent(pieces.len() as u32);
                counters.packets_out += 1;
                let count = carried.min(u8::MAX.into()) as u8;
                state.since_ack_req = if ack_req { 0 } else { state.since_ack_req.saturating_add(count) };
                let psn = state.next();
                let is_answered = psn == qp.requester.psn && (ack_req || work.row.has_response()) && !is_near;
                // Behind READs, the answer waits for their data.
                if is_answered && (state.reads == 0 || probes.has_backed_off()) {
                    let is_alone = state.reads == 0 && !work.row.has_response();
                    round_trip.sent(psn, is_alone.then_some(state.una), allowance.now);
                }
                state.packet_sent(&work, slice.psns, psns, requests.send_after(at));
                let next = state.next();
                if ahead(next, state.una) > ahead(qp.requester.psn, state.una) {
                    qp.requester.psn = next;
                }
                qp.requester.started = true;
            }
        }
        RequestPause::Idle
    }
}

/// Returns why the next packet of a request cannot be sent now.
///
/// The packet is the request's first, or the first one of a turn.
fn why_not_begin<R: Region>(
    (mrs, qp): (&Mrs<R>, &Qp),
    state: &RequesterState,
    work: &Work<'_>,
    payload: Payload<'_>,
    (psns, most_responses): (u32, u32),
) -> Option<RequestPause> {
    let begins = state.cursor.sent == 0;
    if begins && qp.state == QpState::Sqd && state.next() == qp.requester.psn {
        return Some(RequestPause::Idle);
    }
    if begins && let Err(status) = check_request(mrs, qp, work, payload) {
        return Some(RequestPause::Broken(status));
    }
    if begins && work.flags.fence() && state.reads > 0 {
        return Some(RequestPause::Idle);
    }
    if work.row.has_response() {
        let outstanding = ahead(state.next(), state.una);
        // A request that has begun may go on, even if no such requests are allowed by now.
        let too_many = state.reads >= u32::from(qp.max_rd_atomic.max(1));
        let is_window_full = state.reads > 0 && state.awaited() >= most_responses;
        if too_many || is_window_full || outstanding + (psns - state.cursor.sent) > HALF {
            return Some(RequestPause::Idle);
        }
    }
    None
}

/// Returns the next packet of a request. Returns `None` if the request's own memory may not be
/// read.
///
/// The packet has at most `most` PSNs, or only one if the outlet does not take so many at once.
fn next_packet<'a, R: Region>(
    (mrs, qp): (&'a Mrs<R>, &Qp),
    work: &Work<'_>,
    payload: Payload<'a>,
    (sent, psns, most): (u32, u32, u32),
    outlet: &mut impl PacketOutlet<R>,
) -> Option<(RequestSlice, Pieces<'a, R>)> {
    let mtu = qp.path_mtu.bytes();
    let slice = next_slice(work, sent, psns, (mtu, most));
    let pieces = packet_payload(mrs, qp, work, payload, &slice)?;
    if work.row.data != DataDirection::Out || slice.psns == 1 || outlet.carries(&pieces) {
        return Some((slice, pieces));
    }
    let slice = next_slice(work, sent, psns, (mtu, 1));
    let pieces = packet_payload(mrs, qp, work, payload, &slice)?;
    Some((slice, pieces))
}
