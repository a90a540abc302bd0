//! Probes: a peer that is silent for longer than usual is asked how far it has come.
//!
//! The packet at the oldest PSN without an answer is sent again, alone. For a READ it asks for the
//! rest of its data. A lost last packet, acknowledge, NAK or response is found in this way, without
//! the local ACK timeout. A probe spends no retry.

use crate::base::memory::Region;
use crate::base::time::{Instant, NEVER, SLOW_CHECK, ack_timeout};
use crate::message::ctx::QpCtx;
use crate::message::outlet::PacketOutlet;
use crate::objects::qp::requester::Wait;
use crate::objects::roce::packet::{asks_for_ack, request_packet};
use crate::objects::roce::probes::{Due, Patience};
use crate::objects::roce::psn::ahead;
use crate::objects::roce::requester_state::psns;
use crate::objects::roce::selective::{Ahead, ReadAgain, Shown};
use crate::objects::roce::state::RcRoce;
use crate::protocol::allowance::Allowance;
use crate::protocol::roce::congestion::data_path;
use crate::protocol::roce::qp::RoceQp;
use crate::protocol::roce::retry::Cause;
use crate::protocol::roce::slices::{next_slice, packet_payload};
use crate::verbs::completion::Sink;
use crate::verbs::op::Answer;
use vrdma_wire::num::Psn;

impl<R: Region, S: Sink> RoceQp<'_, R, S> {
    /// Handles the expiry of the QP's timer.
    pub(crate) fn timer_expired(&mut self, now: Instant) {
        self.gap_is_old(now);
        self.response_is_late(now);
        if self.conn.deadline <= now {
            self.conn.deadline = NEVER;
            self.deadline_passed(now);
        } else if self.conn.probes.at <= now {
            self.conn.probes.at = NEVER;
            self.peer_is_silent(now);
        }
        self.follow_deadlines();
    }

    /// Asks for the oldest response again, if later ones came and its time is over.
    fn response_is_late(&mut self, now: Instant) {
        let una = self.conn.requester.una;
        let is_too_late = self.conn.early.as_mut().is_some_and(|early| early.is_too_late(now, una));
        if is_too_late && self.may_probe() {
            self.try_again(now, Cause::Gap);
        }
    }

    /// Handles the end of the local ACK timeout, or of a wait for a receive.
    fn deadline_passed(&mut self, now: Instant) {
        let state = &self.conn.requester;
        let is_outstanding = state.una != self.qp.requester.psn;
        if self.qp.requester.wait == Wait::Receive {
            self.qp.requester.wait = Wait::No;
            self.counters.retries += 1;
            self.make_turn_due();
        } else if is_outstanding && state.next() == state.una {
            // It is about to be sent again.
            self.make_turn_due();
        } else if is_outstanding {
            // Without a local ACK timeout, only a loss that was seen too early has a time.
            let is_timeout = self.conn.stays_here || ack_timeout(self.qp.attr().timeout).is_some();
            self.counters.timeouts += u64::from(is_timeout);
            self.try_again(now, if is_timeout { Cause::Timeout } else { Cause::Lost });
        }
    }

    /// Returns until when the next answer is expected, or [`NEVER`].
    fn silence_end(&self) -> Instant {
        let Some(longest) = self.longest_silence() else { return NEVER };
        let patience = Patience {
            timeout: self.conn.round_trip.probe_timeout(),
            answer_time: self.conn.round_trip.answer_time(),
            // The QP's own timer may just have expired.
            waiting: self.schedule.deadlines.waiting(self.place.device).max(1),
            answers: self.answers_to_probe(),
            longest,
            seed: u64::from(self.place.qpn.number()) << 40,
        };
        self.conn.probes.silence_end(patience, self.shows_loss())
    }

    /// Begins to wait for an answer, if probes may be sent.
    ///
    /// The QP's timer is early. When it expires, the QP decides whether the peer is silent.
    fn expect_answer(&mut self, now: Instant) {
        let Some(longest) = self.longest_silence() else { return };
        let QpCtx { qp, peers, conn, schedule, place, .. } = self;
        if conn.round_trip.estimate().is_none() {
            let known = peers.get(qp.dgid);
            conn.round_trip.begin_with(known.estimate);
            conn.selective.begin_with(known.ahead);
        }
        let timeout = conn.round_trip.probe_timeout();
        conn.probes.begin(now, timeout, schedule.deadlines.waiting(place.device), longest);
        self.follow_deadlines();
    }

    /// Has the QP wait for an answer if it has sent nothing in its turn, and was to do so after it.
    pub(super) fn nothing_was_sent(&mut self, now: Instant) {
        if !self.may_probe() {
            return;
        }
        if self.conn.deadline == NEVER {
            // There was no local ACK timeout when the packets were sent.
            self.restart_deadline(now);
        }
        let probes = &self.conn.probes;
        if probes.at == NEVER && probes.due == Due::Nothing {
            self.expect_answer(now);
        }
    }

    /// Records that packets were sent. `is_again` tells that the oldest PSN was among them, and not
    /// for the first time.
    ///
    /// The times are those of the oldest packet without an answer. Packets that are sent later do
    /// not restart them.
    pub(super) fn packets_were_sent(&mut self, now: Instant, is_again: bool) {
        let roce = &mut *self.conn;
        if is_again {
            roce.probes.went_back = now;
        }
        if roce.left.is_some() {
            self.go_on_with_timeout(now);
        } else if roce.deadline == NEVER {
            roce.probes.start(now);
            self.restart_deadline(now);
        }
        let probes = &self.conn.probes;
        if probes.at == NEVER && probes.due == Due::Nothing {
            self.expect_answer(now);
        }
    }

    /// Records that more PSNs were answered. The answer covers all before `covered`.
    pub(super) fn answer_came(&mut self, now: Instant, covered: Psn) {
        let roce = &mut *self.conn;
        roce.left = None;
        let una = roce.requester.una;
        let sample = roce.round_trip.answered(una, now);
        if let Some(sample) = sample {
            if let Some(estimate) = roce.round_trip.report() {
                self.peers.took(self.qp.dgid, estimate);
            }
            self.round_trip_took(now, sample);
        }
        let roce = &mut *self.conn;
        let ahead = roce.selective.ahead;
        let shown = roce.selective.answered(covered);
        self.tell_device(ahead);
        let may_be_earlier = self.conn.probes.answered(now, una, sample.is_some());
        if una == self.qp.requester.psn {
            self.conn.probes.at = NEVER;
            return self.set_deadline(None);
        }
        if self.conn.requester.next() == una {
            // The rest is sent again when the QP has its turn. Until then nobody can answer it.
            self.make_turn_due();
            return self.set_deadline(None);
        }
        if may_be_earlier {
            self.conn.probes.at = self.silence_end();
        }
        self.restart_deadline(now);
        if self.conn.read_again == ReadAgain::Due {
            self.conn.read_again = ReadAgain::No;
            return self.try_again(now, Cause::Dropped);
        }
        match shown {
            Shown::Nothing => {}
            Shown::NoMore => self.try_again(now, Cause::More),
            Shown::Drops => self.try_again(now, Cause::Dropped),
        }
    }

    /// Handles an acknowledge that was repeated: the peer has executed no more.
    ///
    /// It answers a duplicate, if packets are not reordered on the way. If that is a probe, all
    /// that was sent before it has arrived or is lost.
    pub(super) fn peer_has_no_more(&mut self, now: Instant) {
        if self.shows_loss() && self.may_probe() {
            self.try_again(now, Cause::Silence);
        }
    }

    /// Handles a silence of the peer that is longer than usual.
    fn peer_is_silent(&mut self, now: Instant) {
        if !self.may_probe() {
            return;
        }
        let end = self.silence_end();
        if end > now {
            self.conn.probes.at = end;
        } else if self.shows_loss() {
            // Several packets were lost. They are not found one by one.
            self.try_again(now, Cause::Silence);
        } else if !self.qp.turn_due {
            self.conn.probes.due = Due::Probe;
            self.make_turn_due();
        }
        // Else more packets are about to be sent. They ask for an answer.
    }

    /// Whether the answers after a probe show a loss, unless more answers come.
    ///
    /// A peer that makes pauses within the response to a request is slow.
    fn shows_loss(&self) -> bool {
        self.conn.probes.shows_loss() && !(self.conn.requester.answered() > 0 && self.answers_to_probe() > 0)
    }

    /// Returns how many packets of data a probe asks for.
    fn answers_to_probe(&self) -> u32 {
        let state = &self.conn.requester;
        let Some(first) = self.requests.first_send(&self.qp.requester.queue) else { return 0 };
        let work = first.work();
        if !work.row.has_response() {
            return 0;
        }
        // Behind a READ that is executed again, all is asked for again.
        match self.conn.read_again == ReadAgain::All && state.reads > 1 {
            true => ahead(state.next(), state.una),
            false => psns(&work, self.qp.path_mtu) - state.answered(),
        }
    }

    /// Sends the packet at the oldest PSN again, alone, which is due. Returns false if there is no
    /// room for it now.
    #[cold]
    pub(super) fn send_first_alone(
        &mut self,
        allowance: &mut Allowance,
        outlet: &mut impl PacketOutlet<R>,
    ) -> bool {
        let is_probe = self.conn.probes.due == Due::Probe;
        if !self.may_probe() || self.conn.is_near || is_probe && self.longest_silence().is_none() {
            self.conn.probes.due = Due::Nothing;
            self.go_on_with_timeout(allowance.now);
            return true;
        }
        if !allowance.may_send(outlet) {
            return false;
        }
        let QpCtx { qp, mrs, requests, counters, send_scratch, place, mac, marks, schedule, .. } = self;
        let state = &mut self.conn.requester;
        let front = requests.front_send(&qp.requester.queue, send_scratch);
        let (send, payload) = front.expect("a PSN that is outstanding is one of a request");
        let work = send.work();
        let mtu = qp.path_mtu.bytes();
        let mut slice = next_slice(&work, state.answered(), psns(&work, qp.path_mtu), (mtu, 1));
        // A peer that holds is most likely one that gives parts of READs, too.
        let is_read = work.row.answer == Answer::Data;
        let gap = self.conn.early.as_ref().filter(|early| !early.is_empty());
        let may_ask_part = is_read && self.conn.selective.ahead == Ahead::Held;
        let part = gap.filter(|early| may_ask_part && !(is_probe && early.waits(state.una)));
        let missing = part.map_or(slice.psns, |early| early.missing(state.una, slice.psns));
        let is_part = missing < slice.psns;
        if is_part {
            (slice.psns, slice.length) = (missing, missing * mtu);
        }
        let path = data_path(schedule, qp.path(*mac, *marks));
        let packet = request_packet(&path, qp, state.una, &work, &slice, asks_for_ack(&work));
        // Memory that is gone fails the request when it is retransmitted, and not because of this.
        let sent = packet_payload(mrs, qp, &work, payload, &slice).is_some_and(|pieces| {
            // Rates counted the data when they were asked for first.
            outlet.asks_again();
            let sent = outlet.pass(place.id(), &packet, None, &pieces);
            sent.is_ok().then(|| allowance.sent(pieces.len() as u32)).is_some()
        });
        let RcRoce { requester, probes, round_trip, selective, early, .. } = &mut *self.conn;
        let (una, next) = (requester.una, requester.next());
        let end = una.add(slice.psns);
        let early = early.as_mut().filter(|early| !early.is_empty());
        let is_gap = early.is_some();
        if sent {
            counters.packets_out += 1;
            round_trip.sent_again(una);
            if let Some(early) = early {
                early.asked(end, is_part);
            }
        }
        match (sent, is_probe) {
            (false, true) => probes.failed(allowance.now),
            // The request fails when all is sent again.
            (false, false) => {
                let queue = &qp.requester.queue;
                self.conn.go_back(allowance.now, qp.requester.psn, queue);
                return true;
            }
            (true, true) => {
                counters.roce_adp_retrans += 1;
                probes.sent(allowance.now, next);
            }
            (true, false) => {
                probes.repeated(allowance.now);
                round_trip.all_sent_again();
                // What is missing behind a gap in the responses is not the peer's doing.
                if !is_gap {
                    selective.sent(una, end, next, work.row.has_response());
                }
            }
        }
        if sent && is_read {
            self.first_is_read_again(allowance.now, is_gap);
        }
        self.conn.probes.at = self.silence_end();
        self.go_on_with_timeout(allowance.now);
        true
    }

    /// Records that the first request, a READ, is executed again. READs behind it have to be
    /// executed after it (IBTA 10.8.3.3). If something of them has come, they are asked for again.
    fn first_is_read_again(&mut self, now: Instant, is_gap: bool) {
        match self.conn.read_again {
            ReadAgain::No if !is_gap => {
                self.conn.read_again = ReadAgain::Alone;
                return;
            }
            ReadAgain::Alone | ReadAgain::Dropped if !is_gap => return,
            _ => {}
        }
        let QpCtx { qp, requests, conn, .. } = self;
        if conn.requester.reads == 1 {
            // READs that are sent from now on are executed after it, unless they overtake it.
            if !conn.is_asked_again(conn.requester.una) {
                conn.read_again = ReadAgain::Alone;
            }
            return;
        }
        let queue = &qp.requester.queue;
        let Some(first) = requests.first_send(queue) else { return };
        let (work, mtu) = (first.work(), qp.path_mtu);
        (conn.read_again, conn.again_end) = (ReadAgain::All, qp.requester.psn);
        conn.probes.went_back = now;
        if let Some(early) = &mut conn.early {
            early.forget_from(conn.requester.first().add(psns(&work, mtu)));
        }
        let after = queue.head().and_then(|at| requests.send_after(at));
        conn.go_back_behind_first(&work, mtu, after);
    }

    /// Lets the local ACK timeout go on, if it was stopped until something is sent again.
    ///
    /// The QP had to wait for its turn, perhaps because of a rate. The peer could not answer
    /// meanwhile. It has at least the time that an answer takes.
    fn go_on_with_timeout(&mut self, now: Instant) {
        let left = self.conn.left.take().filter(|_| self.conn.deadline == NEVER);
        let Some(left) = left else { return self.follow_deadlines() };
        let timeout = ack_timeout(self.qp.attr().timeout).unwrap_or(SLOW_CHECK);
        let least = self.conn.round_trip.answer_time().min(timeout);
        self.set_deadline(Some(now + left.max(least)));
    }
}
