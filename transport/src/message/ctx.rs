//! The view of a QP, looked up once, with what it needs of its device and of the engine.

use crate::agenda::schedule::Schedule;
use crate::base::marks::Marks;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, NEVER};
use crate::base::transport_kind::TransportKind;
use crate::objects::device::DeviceParts;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::mr::Mrs;
use crate::objects::outstanding::{Requests, Scratch};
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::{Direction, Qp};
use crate::objects::roce::round_trip::Peers;
use crate::objects::roce::state::RcRoce;
use crate::objects::service::{ConnState, Service};
use crate::objects::srq::Srqs;
use crate::objects::uc::UcRoce;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Completion, Event, Sink, WatchedEnd, WcStatus};
use crate::verbs::counters::Counters;
use crate::verbs::work::Work;
use core::mem;
use vrdma_wire::num::Mac;

/// The latest possible deadline.
const LAST: Instant = Instant(NEVER.0 - 1);

/// The view of a QP, with what it needs of its device and of the engine, and the sink for results.
///
/// `T` is the state of its connection: [`Service`] for any, or the state of one transport kind.
pub(crate) struct QpCtx<'a, R, S, T = Service> {
    pub(crate) place: QpRef,
    pub(crate) qp: &'a mut Qp,
    /// The state of its connection.
    pub(crate) conn: &'a mut T,
    pub(crate) mrs: &'a mut Mrs<R>,
    pub(crate) requests: &'a mut Requests,
    pub(crate) srqs: &'a mut Srqs,
    pub(crate) counters: &'a mut Counters,
    /// What the device knows of its peers on other hosts.
    pub(crate) peers: &'a mut Peers,
    pub(crate) schedule: &'a mut Schedule,
    /// Buffer for the elements of the QP's own send.
    pub(crate) send_scratch: &'a mut Scratch,
    /// Buffer for the elements of the receive that a message consumes.
    pub(crate) recv_scratch: &'a mut Scratch,
    pub(crate) sink: &'a mut S,
    /// Source MAC address of the device's packets.
    pub(crate) mac: Mac,
    /// Marks of the device's packets.
    pub(crate) marks: Marks,
    /// Whether the device is suspended.
    pub(crate) suspended: bool,
    /// Whether the device has rates, or a QP of it.
    pub(crate) limited: bool,
    /// Whether there is a port to other hosts.
    pub(crate) has_port: bool,
}

/// What every QP needs of the engine, and the sink for results.
pub(crate) struct Common<'a, S> {
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) send_scratch: &'a mut Scratch,
    pub(crate) recv_scratch: &'a mut Scratch,
    pub(crate) sink: &'a mut S,
    pub(crate) has_port: bool,
}

impl<S> Common<'_, S> {
    /// Returns the view of a QP of a device.
    #[inline(always)]
    pub(crate) fn lend<'a, R>(
        &'a mut self,
        place: QpRef,
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
            peers: &mut device.peers,
            schedule: self.schedule,
            send_scratch: self.send_scratch,
            recv_scratch: self.recv_scratch,
            sink: self.sink,
            mac: device.mac,
            marks: device.marks,
            suspended: device.suspended,
            limited: device.limited,
            has_port: self.has_port,
        }
    }
}

impl<R, S, T> QpCtx<'_, R, S, T> {
    /// Borrows the view again, for code that rarely runs.
    ///
    /// A function that is not inlined needs all fields in memory. With this second borrow they are
    /// stored only then.
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
            peers: self.peers,
            schedule: self.schedule,
            send_scratch: self.send_scratch,
            recv_scratch: self.recv_scratch,
            sink: self.sink,
            mac: self.mac,
            marks: self.marks,
            suspended: self.suspended,
            limited: self.limited,
            has_port: self.has_port,
        }
    }
}

impl<'a, R, S> QpCtx<'a, R, S> {
    /// Returns the view with the state of a reliable connection on RoCE, which must be the QP's
    /// transport kind.
    #[inline(always)]
    pub(crate) fn roce(self) -> QpCtx<'a, R, S, RcRoce> {
        self.with(Service::rc_roce)
    }

    /// Returns the view with the state of an unreliable connection on RoCE, which must be the QP's
    /// transport kind.
    #[inline(always)]
    pub(crate) fn uc_roce(self) -> QpCtx<'a, R, S, UcRoce> {
        self.with(Service::uc_roce)
    }

    /// Returns the view with the state of a connection in a stream, which must be the QP's
    /// transport kind.
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
            peers: self.peers,
            schedule: self.schedule,
            send_scratch: self.send_scratch,
            recv_scratch: self.recv_scratch,
            sink: self.sink,
            mac: self.mac,
            marks: self.marks,
            suspended: self.suspended,
            limited: self.limited,
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

    /// Reports an event of the QP.
    #[inline]
    pub(crate) fn event(&mut self, event: Event) {
        self.sink.event(self.place.id(), event);
    }

    /// Ends the first request, `work`.
    ///
    /// It completes, unless it is unsignaled and succeeded.
    #[inline(always)]
    pub(crate) fn end_send(&mut self, work: &Work<'_>, status: WcStatus) {
        // A request that is tried before it is queued is not in the queue.
        if let Some(taken) = self.requests.take_send(&mut self.qp.requester.queue, |_| ()) {
            let watched = taken.watched_since();
            taken.end();
            if let Some(since) = watched {
                self.again().watched_send_ended(since, status);
            }
        }
        if work.flags.signaled() || status != WcStatus::Success {
            self.complete_send(&work.completion(self.place.qpn, status));
        }
    }

    /// Reports the end of a send that was watched since then, if it succeeded.
    #[cold]
    pub(crate) fn watched_send_ended(&mut self, since: Instant, status: WcStatus) {
        if status == WcStatus::Success {
            let end = WatchedEnd { service: self.qp.service(), transport: self.qp.transport, since };
            self.sink.watched(self.place.id(), &end);
        }
    }

    /// Reports once, if asked to, that the requests that had started in SQD have ended.
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

    /// Sets the QP's only deadline.
    pub(crate) fn arm(&mut self, at: Instant) {
        self.disarm();
        self.qp.timer = at.min(LAST);
        self.schedule.deadlines.arm(self.qp.timer, self.place);
    }

    /// Removes the QP's deadline.
    pub(crate) fn disarm(&mut self) {
        if self.qp.timer != NEVER {
            self.note_idle_timer(false);
            let at = mem::replace(&mut self.qp.timer, NEVER);
            self.schedule.deadlines.disarm(at, self.place);
        }
    }

    /// Records whether nothing is waited for until the time of the QP's timer, which is armed.
    #[inline]
    pub(crate) fn note_idle_timer(&mut self, is_idle: bool) {
        if mem::replace(&mut self.qp.timer_is_idle, is_idle) != is_idle {
            self.schedule.deadlines.note_idle(self.place.device, is_idle);
        }
    }

    /// Makes the first request wait until `at`, or until it is woken.
    pub(crate) fn wait_until(&mut self, at: Instant) {
        self.qp.requester.started = true;
        self.arm(at);
    }

    /// Gives the QP a turn, because it has requests to send by the port.
    #[inline]
    pub(crate) fn make_turn_due(&mut self) {
        if !mem::replace(&mut self.qp.turn_due, true) {
            self.schedule.wire.push(self.place, Direction::Requests);
        }
    }

    /// Gives the QP a turn in which it begins to wait for an answer, if it has to.
    pub(crate) fn look_at_deadline(&mut self) {
        if self.qp.transport == TransportKind::Roce && self.qp.requester.started && !self.suspended {
            self.make_turn_due();
        }
    }

    /// Gives the QP a turn for answers, because it owes its peer one.
    #[inline]
    pub(crate) fn make_answer_due(&mut self) {
        if !mem::replace(&mut self.qp.answer_due, true) {
            self.schedule.wire.push(self.place, Direction::Answers);
        }
    }

    /// Gives the QP a turn, if it has work that it may do.
    #[inline]
    pub(crate) fn make_ready(&mut self) {
        if self.suspended || !self.conn.has_work(self.qp) {
            return;
        }
        // Whether a datagram needs a packet is decided in a turn of the port.
        if self.qp.transport.needs_port() || self.has_port && self.qp.service().is_datagram() {
            return self.make_turn_due();
        }
        if !mem::replace(&mut self.qp.requester.ready, true) {
            self.schedule.local.push(self.place, Direction::Requests);
        }
    }
}
