//! The responder receives requests: it executes them, repeats answers to duplicates, or refuses
//! them (IBTA 9.7.4).

use crate::agenda::drains::{Fate, PostedReceives};
use crate::base::inter_worker::{InterWorkerPart, InterWorkerPayload};
use crate::base::memory::Region;
use crate::base::time::Instant;
use crate::message::verdict::{Nak, Refusal, Rejection};
use crate::objects::roce::packet::{RcRequest, decode};
use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::responder_state::ResponseKind;
use crate::protocol::roce::qp::RoceQp;
use crate::verbs::completion::Sink;
use crate::verbs::op::{Answer, Row};
use crate::verbs::segment::{Segment, Segmentation};
use vrdma_wire::num::{Psn, Srqn};
use vrdma_wire::roce::{Bth, NakCode, Rc, Reth, RnrTimer, Syndrome};

const INVALID: Refusal = Refusal { nak: Nak::Invalid, receive: None };

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Handles a request from the peer.
    pub(super) fn receive_request(
        &mut self,
        now: Instant,
        bth: &Bth,
        (body, srqn): (&Rc, Option<Srqn>),
        data: (Option<InterWorkerPart>, InterWorkerPayload<'_, R>),
        posted: PostedReceives,
    ) -> Fate {
        if !self.qp.is_receiving() {
            self.counters.drop_state += 1;
            return Fate::Done;
        }
        match ahead(bth.psn, self.qp.responder.psn) {
            0 => {
                if let Some(srqn) = srqn
                    && let Err(refusal) = self.choose_queue(srqn)
                {
                    self.nak_for_good(bth.psn, refusal);
                    return Fate::Done;
                }
                return self.receive_expected(now, bth, body, data, posted);
            }
            distance if distance < HALF => return self.receive_early(data.0.is_some()),
            // A part of the request came before, in other packets. The responder asks for the rest.
            _ if data.0.is_some_and(|part| ahead(self.qp.responder.psn, bth.psn) < part.psns) => {
                self.ask_again(self.qp.responder.psn, None);
            }
            _ => self.receive_duplicate(now, bth, body),
        }
        Fate::Done
    }

    /// Handles a duplicate request, which is acknowledged or answered again.
    fn receive_duplicate(&mut self, now: Instant, bth: &Bth, body: &Rc) {
        self.counters.duplicates += 1;
        let psn = bth.psn;
        let request = decode(body, &self.conn.responder.write);
        let is_last = request.as_ref().is_none_or(|request| request.last);
        self.note_duplicate(now, psn, may_be_probe(bth, is_last));
        let state = &mut self.conn.responder;
        let answer = request.as_ref().map_or(Answer::Acknowledge, |request| request.op.row().answer);
        let known = match (answer, request.and_then(|request| request.reth)) {
            (Answer::Data, Some(reth)) => state.read_again(psn, &reth, self.qp.path_mtu),
            (Answer::Once, _) => state.once_again(psn),
            (Answer::Acknowledge | Answer::Data, _) => {
                state.repeated(bth.ack_req);
                if !state.ack_is_due() {
                    return;
                }
                true
            }
        };
        match known {
            true => self.make_answer_due(),
            false => self.counters.drop_duplicate += 1,
        }
    }

    /// Handles the request packet that is expected.
    fn receive_expected(
        &mut self,
        now: Instant,
        bth: &Bth,
        body: &Rc,
        (part, payload): (Option<InterWorkerPart>, InterWorkerPayload<'_, R>),
        posted: PostedReceives,
    ) -> Fate {
        let qp = &*self.qp;
        let Some(RcRequest { op, first, last, reth }) = decode(body, &self.conn.responder.write) else {
            self.nak_for_good(bth.psn, INVALID);
            return Fate::Done;
        };
        let length = payload.len();
        let offset = if first { 0 } else { qp.responder.received };
        let message = reth.map_or(offset.saturating_add(length), |reth| reth.length);
        let row = op.row();
        let segment = Segment {
            op: &op,
            row,
            solicited: bth.solicited,
            first,
            last,
            psn: bth.psn,
            packets: match part {
                Some(InterWorkerPart { psns: psns @ 2.., .. }) => psns,
                _ => row.psns_of_packet(qp.path_mtu, message),
            },
            offset,
            length,
            message,
            // A packet of several PSNs has the right length, because an engine of this process made
            // it.
            segmentation: match part {
                Some(InterWorkerPart { psns: 2.., path_mtu, .. }) => Segmentation::Local(path_mtu),
                _ => Segmentation::Packet,
            },
        };
        // READs and atomics need room for their responses (IBTA 9.7.4.1.5).
        if row.has_response() && !self.conn.responder.has_room() {
            self.nak_for_good(bth.psn, INVALID);
            return Fate::Done;
        }
        match self.accept(&segment, payload.into()) {
            Ok(found) => {
                if self.limited {
                    self.schedule.came_unasked(self.place.device, length.into(), first.into());
                }
                self.answer(row, bth, last, segment.packets, reth, found);
            }
            Err(&(Rejection::Refused(refusal) | Rejection::Memory(refusal))) => {
                self.nak_for_good(bth.psn, refusal);
            }
            Err(Rejection::NoReceive) => {
                let all_taken =
                    posted == PostedReceives::AllTaken || part.is_some() && self.drop_until_looked(bth.psn);
                if !all_taken {
                    return Fate::NeedsDrain;
                }
                self.no_receive(now, bth.psn);
            }
            // The pinned region was revoked. This is as if the packet had not arrived.
            Err(Rejection::Source) => self.ask_again(bth.psn, None),
            Err(&Rejection::Dropped(reason)) => unreachable!("the state was checked before: {reason:?}"),
        }
        Fate::Done
    }

    /// Schedules the response to a request packet that was executed, or its acknowledge.
    ///
    /// `found` is the value that an atomic found.
    fn answer(
        &mut self,
        row: &Row,
        bth: &Bth,
        last: bool,
        psns: u32,
        reth: Option<Reth>,
        found: Option<u64>,
    ) {
        if let Some(buffer) = self.conn.reorder.as_deref_mut() {
            let is_unsent = self.conn.responder.nak.is_some();
            buffer.came(bth.psn, is_unsent, may_be_probe(bth, last));
        }
        let state = &mut self.conn.responder;
        match (row.answer, reth) {
            (Answer::Once, _) => state.respond(bth.psn, psns, ResponseKind::Once(found)),
            (Answer::Data, Some(reth)) => state.respond(bth.psn, psns, ResponseKind::Data(reth, self.qp.pd)),
            (Answer::Data, None) => unreachable!("a request for data says which"),
            (Answer::Acknowledge, reth) => {
                if let Some(reth) = reth {
                    state.write = reth;
                }
                state.accepted(last, bth.ack_req);
                if !state.ack_is_due() && !self.conn.holds() {
                    return;
                }
            }
        }
        if self.conn.holds() {
            // The packets that are held behind this one are executed in a turn.
            return self.answer_at_once();
        }
        self.make_answer_due();
    }

    /// Drops an inter-worker packet that finds no receive.
    ///
    /// Returns true if the caller has just drained posts for this packet. Otherwise the peer is
    /// asked for the packet again once the caller has done so.
    fn drop_until_looked(&mut self, psn: Psn) -> bool {
        let responder = &mut self.conn.responder;
        let was_looked = responder.looked.take() == Some(psn);
        if !was_looked {
            responder.wait();
        }
        was_looked
    }

    /// Tells the peer to wait for a receive.
    fn no_receive(&mut self, now: Instant, psn: Psn) {
        let timer = RnrTimer::new(self.qp.attr().min_rnr_timer).expect("an attribute of five bits");
        self.counters.rnr_naks_sent += 1;
        self.conn.responder.not_ready(psn, Syndrome::Rnr(timer));
        self.note_rnr(now);
        self.make_answer_due();
    }

    /// Refuses the peer's request with a NAK, and takes the QP to ERR.
    #[cold]
    pub(super) fn nak_for_good(&mut self, psn: Psn, refusal: Refusal) {
        let event = self.refuse(refusal);
        self.enter_error_with(event);
        let nak = Syndrome::Nak(nak_code(refusal.nak));
        self.conn.responder.nak_for_good(psn, nak);
        self.make_answer_due();
    }
}

/// Whether a packet may be one that its sender sends again because nothing was answered.
///
/// Within a message, few other packets ask for an acknowledge.
fn may_be_probe(bth: &Bth, is_last: bool) -> bool {
    bth.ack_req && !is_last
}

/// Returns the code of a NAK on the wire.
fn nak_code(nak: Nak) -> NakCode {
    match nak {
        Nak::Invalid => NakCode::InvalidRequest,
        Nak::Access => NakCode::RemoteAccessError,
        Nak::Operational => NakCode::RemoteOperationalError,
    }
}
