//! A QP that was looked up once, with what it needs of its device and of the engine.

use crate::agenda::schedule::Schedule;
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::base::time::{Instant, NEVER};
use crate::objects::device::DeviceParts;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::mr::Mrs;
use crate::objects::outstanding::{Requests, Scratch};
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::{Direction, Qp};
use crate::objects::roce::state::RcRoce;
use crate::objects::service::{ConnState, Service};
use crate::objects::srq::Srqs;
use crate::objects::uc::UcRoce;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Completion, Event, Sink, WcStatus};
use crate::verbs::counters::Counters;
use crate::verbs::work::Work;
use core::mem;
use vrdma_wire::num::Mac;

/// The last deadline that there can be.
const LAST: Instant = Instant(NEVER.0 - 1);

/// A QP with what it needs of its device, and where results go. `T` is the state of its connection:
/// [`Service`] if it may be any, or that of one carrier.
pub(crate) struct QpCtx<'a, R, S, T = Service> {
    pub(crate) place: Place,
    pub(crate) qp: &'a mut Qp,
    /// The state of its connection.
    pub(crate) conn: &'a mut T,
    pub(crate) mrs: &'a mut Mrs<R>,
    pub(crate) requests: &'a mut Requests,
    pub(crate) srqs: &'a mut Srqs,
    pub(crate) counters: &'a mut Counters,
    pub(crate) schedule: &'a mut Schedule,
    /// For the elements of its own send.
    pub(crate) send_scratch: &'a mut Scratch,
    /// For the elements of the receive that a message consumes.
    pub(crate) recv_scratch: &'a mut Scratch,
    pub(crate) sink: &'a mut S,
    /// Source of its device's packets.
    pub(crate) mac: Mac,
    /// Its device is suspended.
    pub(crate) suspended: bool,
    /// There is a port to other hosts.
    pub(crate) has_port: bool,
}

/// What any QP needs of the engine, and where results go.
pub(crate) struct Common<'a, S> {
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) send_scratch: &'a mut Scratch,
    pub(crate) recv_scratch: &'a mut Scratch,
    pub(crate) sink: &'a mut S,
    pub(crate) has_port: bool,
}

impl<S> Common<'_, S> {
    /// With a QP of a device.
    #[inline(always)]
    pub(crate) fn lend<'a, R>(
        &'a mut self,
        place: Place,
        entry: &'a mut QpEntry,
        device: &'a mut DeviceParts<R>,
    ) -> QpCtx<'a, R, S> {
        let (qp, conn) = entry.parts();
        QpCtx {
            place,
            qp,
            conn,
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

impl<R, S, T> QpCtx<'_, R, S, T> {
    /// A second borrow, for what rarely happens. A function that is not inlined needs all fields in
    /// memory. They are put there only then.
    #[inline(always)]
    pub(crate) fn again(&mut self) -> QpCtx<'_, R, S, T> {
        QpCtx {
            place: self.place,
            qp: self.qp,
            conn: self.conn,
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

impl<'a, R, S> QpCtx<'a, R, S> {
    /// With its state as a reliable connection on RoCE, which its carrier has to be.
    #[inline(always)]
    pub(crate) fn roce(self) -> QpCtx<'a, R, S, RcRoce> {
        self.with(Service::rc_roce)
    }

    /// With its state as an unreliable connection on RoCE, which its carrier has to be.
    #[inline(always)]
    pub(crate) fn uc_roce(self) -> QpCtx<'a, R, S, UcRoce> {
        self.with(Service::uc_roce)
    }

    /// With its state as a connection in a stream, which its carrier has to be.
    #[inline(always)]
    pub(crate) fn stream(self) -> QpCtx<'a, R, S, RcTcp> {
        self.with(Service::tcp)
    }

    #[inline(always)]
    fn with<T>(self, state: impl FnOnce(&'a mut Service) -> &'a mut T) -> QpCtx<'a, R, S, T> {
        QpCtx {
            conn: state(self.conn),
            place: self.place,
            qp: self.qp,
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

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
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
        if self.suspended || !self.conn.has_work(self.qp) {
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
