//! A QP that was looked up once, and is borrowed with what it needs of its device.

use crate::carrier::Carrier;
use crate::completion::{Completion, Event, Sink, WcStatus};
use crate::counters::Counters;
use crate::device::{Device, DeviceParts, Devices};
use crate::engine::Engine;
use crate::memory::Region;
use crate::mr::Mrs;
use crate::outstanding::{Requests, Scratch};
use crate::place::Place;
use crate::qp::Qp;
use crate::qp::attr::{QpState, QpType};
use crate::qp::entry::QpEntry;
use crate::schedule::{Direction, Schedule};
use crate::service::Service;
use crate::srq::Srqs;
use crate::time::{Instant, NEVER};
use crate::work::Work;
use core::mem;
use vrdma_wire::num::Mac;

/// The last deadline that there can be.
const LAST: Instant = Instant(NEVER.0 - 1);

/// A QP, what of its device goes with it, and where results go.
pub(crate) struct BorrowedQp<'a, R, S> {
    pub(crate) place: Place,
    pub(crate) qp: &'a mut Qp,
    pub(crate) service: &'a mut Service,
    pub(crate) mrs: &'a mut Mrs<R>,
    pub(crate) requests: &'a mut Requests,
    pub(crate) srqs: &'a mut Srqs,
    pub(crate) counters: &'a mut Counters,
    pub(crate) schedule: &'a mut Schedule,
    /// For the elements of its own send,
    pub(crate) send_scratch: &'a mut Scratch,
    /// and of the receive that a message consumes.
    pub(crate) recv_scratch: &'a mut Scratch,
    pub(crate) sink: &'a mut S,
    /// Source of its device's packets.
    pub(crate) mac: Mac,
    /// Its device is suspended.
    pub(crate) suspended: bool,
    /// There is a port to other hosts.
    pub(crate) has_port: bool,
}

/// What of the engine goes with any QP, and where results go.
pub(crate) struct Common<'a, S> {
    schedule: &'a mut Schedule,
    send_scratch: &'a mut Scratch,
    pub(crate) recv_scratch: &'a mut Scratch,
    sink: &'a mut S,
    has_port: bool,
}

impl<S> Common<'_, S> {
    /// With a QP of a device.
    #[inline(always)]
    pub(crate) fn lend<'a, R>(
        &'a mut self,
        place: Place,
        entry: &'a mut QpEntry,
        device: &'a mut DeviceParts<R>,
    ) -> BorrowedQp<'a, R, S> {
        let (qp, service) = entry.parts();
        BorrowedQp {
            place,
            qp,
            service,
            mrs: &mut device.mrs,
            requests: &mut device.requests,
            srqs: &mut device.srqs,
            counters: &mut device.counters,
            schedule: self.schedule,
            send_scratch: self.send_scratch,
            recv_scratch: self.recv_scratch,
            sink: self.sink,
            mac: device.mac,
            suspended: device.suspended,
            has_port: self.has_port,
        }
    }
}

impl<R: Region> Engine<R> {
    /// All devices, and what goes with any QP of them.
    #[inline(always)]
    pub(crate) fn parts<'a, S>(&'a mut self, sink: &'a mut S) -> (&'a mut Devices<R>, Common<'a, S>) {
        let Engine { devices, schedule, send_scratch, recv_scratch, port, .. } = self;
        (devices, Common { schedule, send_scratch, recv_scratch, sink, has_port: port.exists() })
    }

    /// The QP at `place`, if there is one.
    #[inline]
    pub(crate) fn borrow<'a, S>(&'a mut self, place: Place, sink: &'a mut S) -> Option<BorrowedQp<'a, R, S>> {
        let Engine { devices, schedule, send_scratch, recv_scratch, port, .. } = self;
        let Device { qps, parts, .. } = devices.get_mut(place.device)?;
        let DeviceParts { mrs, requests, srqs, counters, mac, suspended } = parts;
        let (qp, service) = qps.get_mut(place.qpn.number())?.parts();
        Some(BorrowedQp {
            place,
            qp,
            service,
            mrs,
            requests,
            srqs,
            counters,
            schedule,
            send_scratch,
            recv_scratch,
            sink,
            mac: *mac,
            suspended: *suspended,
            has_port: port.exists(),
        })
    }

    /// The QP at `place`, which was found before in the same call of the engine: none goes within one.
    #[inline]
    pub(crate) fn known<'a, S>(&'a mut self, place: Place, sink: &'a mut S) -> BorrowedQp<'a, R, S> {
        self.borrow(place, sink).expect("no QP goes within a call of the engine")
    }
}

impl<R, S> BorrowedQp<'_, R, S> {
    /// The same, for what rarely happens: a function that is not inlined wants all of this in memory, and only then it is put there.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> BorrowedQp<'_, R, S> {
        BorrowedQp {
            place: self.place,
            qp: self.qp,
            service: self.service,
            mrs: self.mrs,
            requests: self.requests,
            srqs: self.srqs,
            counters: self.counters,
            schedule: self.schedule,
            send_scratch: self.send_scratch,
            recv_scratch: self.recv_scratch,
            sink: self.sink,
            mac: self.mac,
            suspended: self.suspended,
            has_port: self.has_port,
        }
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// Completes a send.
    #[inline(always)]
    pub(crate) fn complete_send(&mut self, completion: &Completion) {
        self.sink.complete(self.place.id(), self.qp.send_cq, completion);
    }

    /// Completes a receive.
    #[inline]
    pub(crate) fn complete_receive(&mut self, completion: &Completion) {
        self.sink.complete(self.place.id(), self.qp.recv_cq, completion);
    }

    /// Something happened to the QP.
    #[inline]
    pub(crate) fn event(&mut self, event: Event) {
        self.sink.event(self.place.id(), event);
    }

    /// Its first request fails, and with it the QP; of an unreliable service its send queue alone.
    #[cold]
    pub(crate) fn fail(&mut self, work: &Work<'_>, status: WcStatus) {
        self.counters.errors += 1;
        match status {
            WcStatus::RetryExc => self.counters.retry_exceeded += 1,
            WcStatus::RnrRetryExc => self.counters.rnr_exceeded += 1,
            _ => {}
        }
        self.end_send(work, status);
        match self.qp.service() {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => self.enter_error(),
            QpType::Uc | QpType::Ud | QpType::Gsi => self.enter_sqe(),
        }
    }

    /// The first request fails, and with it the QP.
    pub(crate) fn fail_first(&mut self, status: WcStatus) {
        let first = self.requests.first_send(&self.qp.requester.queue);
        let send = *first.expect("what waits, or is outstanding, is in the send queue");
        self.fail(&send.work(), status);
    }

    /// To SQE: what was posted after the send that failed is flushed, and receiving goes on (IBTA 10.3.1).
    #[cold]
    fn enter_sqe(&mut self) {
        self.disarm();
        self.qp.state = QpState::Sqe;
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.flush(false);
    }

    /// To ERR: sends are flushed in order, then receives.
    #[cold]
    pub(crate) fn enter_error(&mut self) {
        self.disarm();
        let before = mem::replace(&mut self.qp.state, QpState::Err);
        let was_flushed = before == QpState::Err && self.qp.flush.is_none();
        self.srqs.waits_no_longer(self.qp);
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.service.stop(self.qp.requester.psn);
        if self.qp.carrier == Carrier::Tcp {
            // Its stream ends in its turn.
            self.make_answer_due();
        }
        self.flush(true);
        if !was_flushed && self.qp.flush.is_none() {
            self.tell_last_wqe();
        }
    }

    /// The first request, `work`, ends: with a completion, unless it is unsignaled and succeeded.
    #[inline(always)]
    pub(crate) fn end_send(&mut self, work: &Work<'_>, status: WcStatus) {
        // It is not in the queue if it was tried before it was put there.
        if let Some(taken) = self.requests.take_send(&mut self.qp.requester.queue, |_| ()) {
            taken.end();
        }
        if work.flags.signaled() || status != WcStatus::Success {
            self.complete_send(&work.completion(self.place.qpn, status));
        }
    }

    /// To ERR for a reason that no completion tells.
    #[cold]
    pub(crate) fn enter_fatal(&mut self) {
        self.enter_error();
        self.event(Event::QpFatal(self.place.qpn));
    }

    /// To ERR because of a peer's request, with the event that tells of it.
    #[cold]
    pub(crate) fn enter_error_with(&mut self, event: Option<Event>) {
        self.enter_error();
        if let Some(event) = event {
            self.event(event);
        }
    }

    /// Tells once, if asked to, that what had been started in SQD has ended.
    #[inline(always)]
    pub(crate) fn tell_if_drained(&mut self) {
        if self.qp.state == QpState::Sqd {
            self.again().drained();
        }
    }

    #[cold]
    fn drained(&mut self) {
        let Qp { requester, .. } = &mut *self.qp;
        if requester.notify_drained && !requester.started {
            requester.notify_drained = false;
            self.event(Event::SqDrained(self.place.qpn));
        }
    }

    /// Its deadline is `at`, and no other.
    pub(crate) fn arm(&mut self, at: Instant) {
        self.disarm();
        self.qp.timer = at.min(LAST);
        self.schedule.deadlines.arm(self.qp.timer, self.place);
    }

    /// It has no deadline.
    pub(crate) fn disarm(&mut self) {
        if self.qp.timer != NEVER {
            let at = mem::replace(&mut self.qp.timer, NEVER);
            self.schedule.deadlines.disarm(at, self.place);
        }
    }

    /// It waits until `at`, or until it is woken.
    pub(crate) fn wait_until(&mut self, at: Instant) {
        self.qp.requester.started = true;
        self.arm(at);
    }

    /// It has requests to send in packets: its turn will come.
    #[inline]
    pub(crate) fn make_turn_due(&mut self) {
        if !mem::replace(&mut self.qp.turn_due, true) {
            self.schedule.wire.push(self.place, Direction::Requests);
        }
    }

    /// It owes its peer an answer: its turn for that will come.
    #[inline]
    pub(crate) fn make_answer_due(&mut self) {
        if !mem::replace(&mut self.qp.answer_due, true) {
            self.schedule.wire.push(self.place, Direction::Answers);
        }
    }

    /// If it has work that it may do, its turn will come.
    #[inline]
    pub(crate) fn make_ready(&mut self) {
        if self.suspended || !self.service.has_work(self.qp) {
            return;
        }
        // Of a datagram it is seen in a turn of the port whether it needs a packet.
        if self.qp.carrier.needs_port() || self.has_port && self.qp.service().is_datagram() {
            return self.make_turn_due();
        }
        if !mem::replace(&mut self.qp.requester.ready, true) {
            self.schedule.local.push(self.place, Direction::Requests);
        }
    }
}
