//! Work that is due: requests whose turn comes, and deadlines.

use crate::agenda::schedule::{Cost, GRAIN, OPERATION, QP_TURN};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, NEVER};
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::engine::rates::MovedHere;
use crate::message::outlet::NoOutlet;
use crate::message::step::Step;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::requester::Wait;
use crate::protocol::local::rc_local_timer_expired;
use crate::protocol::local::step_rc_of_any;
use crate::protocol::uc::local::step_uc;
use crate::protocol::ud::send::send_first_datagram;
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::completion::{NoSink, Sink};
use core::mem;

/// Most turns of QPs in one call. More may have work than fits a budget of bytes.
pub(crate) const TURNS: usize = 128;

/// Most deadlines that one call handles.
pub(crate) const DEADLINES: usize = 256;
/// Most deadlines of one device that are handled before the next device has its turn.
const DEADLINES_TURN: usize = 32;

/// Most deadlines that are moved before a sleep. If there are more, the caller wakes too early.
const MOVED: usize = 64;

impl<R: Region> Engine<R> {
    /// Works on what is ready and due. Returns whether more is ready now.
    ///
    /// The work is about `budget` bytes, but at least one segment of a message. Devices take turns,
    /// and so do the QPs of each.
    pub fn poll(&mut self, now: Instant, budget: u64, sink: &mut impl Sink) -> bool {
        self.core.schedule.see(now);
        self.flush_some(sink);
        self.attend_to_deadlines(now, sink);
        self.sweep_some(sink);
        self.fan_out_some(now, sink);
        self.lose_packets(now, sink);
        self.wake_some(sink);
        self.core.schedule.local.begin_poll();
        let mut spent: Cost = 0;
        for _ in 0..TURNS {
            self.begin_step();
            let Some((place, direction)) = self.core.schedule.local.pop() else { break };
            let limited = self.is_limited_here(place);
            let limit = if limited { self.limit_here(place) } else { None };
            if limited && limit.is_none() {
                // Without a cost, a device whose QPs all wait would keep others from their turns.
                self.core.schedule.local.spend(place.device, direction, OPERATION);
                continue;
            }
            // The QP may have been destroyed since it was ready.
            let Some(qp) = self.core.devices.qp_mut(place) else { continue };
            if !mem::take(&mut qp.requester.ready) {
                continue;
            }
            let cost = self.take_turn(now, place, limit, sink);
            self.core.schedule.local.spend(place.device, direction, cost);
            spent = spent.saturating_add(cost);
            self.core.known(place, sink).make_ready();
            if spent >= budget {
                break;
            }
        }
        self.core.schedule.local.len() > 0
            || self.sweeps.any()
            || self.fan_outs.any()
            || self.core.schedule.flushes.any()
            || self.core.schedule.wakes.any()
            || !self.core.port.is_up() && self.can_transmit()
            || self.core.schedule.is_due(now)
            || self.core.schedule.deadlines.first().is_some_and(|at| at <= now)
    }

    /// Handles deadlines that have come.
    fn attend_to_deadlines(&mut self, now: Instant, sink: &mut impl Sink) {
        if self.core.schedule.deadlines.first().is_none_or(|at| at > now) {
            return;
        }
        self.core.schedule.deadlines.begin(now);
        let mut left = DEADLINES;
        while left > 0
            && let Some(device) = self.core.schedule.deadlines.next_due(now)
        {
            for _ in 0..left.min(DEADLINES_TURN) {
                self.begin_step();
                let Some(place) = self.core.schedule.deadlines.due(device, now) else { break };
                self.timed_out(now, place, sink);
                left -= 1;
            }
        }
    }

    /// Moves deadlines at which nothing will be to do. The caller is about to sleep.
    ///
    /// Messages do not move the deadlines of their QPs each time. Without this call,
    /// [`Engine::poll_timeout`] may therefore be too early.
    pub fn move_idle_deadlines(&mut self) {
        for _ in 0..MOVED {
            let Some(place) = self.core.schedule.deadlines.first_place() else { break };
            let mut sink = NoSink;
            let mut ctx = self.core.known(place, &mut sink);
            if ctx.qp.transport != TransportKind::Roce || !ctx.qp.service().is_reliable() || ctx.suspended {
                break;
            }
            let next = ctx.conn.rc_roce().next_time();
            if next <= ctx.qp.timer {
                break;
            }
            ctx.disarm();
            if next != NEVER {
                ctx.arm(next);
            }
        }
    }

    /// Returns when to [`poll`](Engine::poll) next, if nothing else happens.
    ///
    /// With an uplink this is also the time to [`transmit`](Engine::transmit). It is the start of
    /// time if something is ready now, and `None` if nothing will be.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ready = self.core.schedule.local.len() > 0
            || self.can_transmit()
            || self.sweeps.any()
            || self.fan_outs.any()
            || self.core.schedule.flushes.any()
            || self.core.schedule.wakes.any();
        let times = self.core.schedule.deadlines.first().into_iter().chain(self.core.schedule.next_time());
        if ready { Some(Instant(0)) } else { times.min() }
    }

    /// Gives one QP its turn. Returns the cost, at most a
    /// [`QUANTUM`](crate::agenda::schedule::QUANTUM).
    ///
    /// If rates concern it, `limit` is how many bytes it may move. It then has one step.
    fn take_turn(&mut self, now: Instant, place: QpRef, limit: Option<u32>, sink: &mut impl Sink) -> Cost {
        let mut scratch = mem::take(&mut self.core.send_scratch);
        let mut spent = 0;
        loop {
            let left = Cost::from(QP_TURN).saturating_sub(spent) as u32 / GRAIN * GRAIN;
            let left = limit.map_or(left, |limit| if spent == 0 { limit } else { 0 });
            if left == 0 {
                break;
            }
            let most = (left, limit.is_some());
            let Some(cost) = self.try_first(now, place, most, &mut scratch, sink) else { break };
            spent += cost;
        }
        self.core.send_scratch = scratch;
        spent
    }

    /// Executes one segment of a QP's first request, of at most `limit` bytes.
    ///
    /// `limited` tells that rates concern it. Returns the cost, or `None` if there is no request to
    /// execute.
    fn try_first(
        &mut self,
        now: Instant,
        place: QpRef,
        (limit, limited): (u32, bool),
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) -> Option<Cost> {
        let (device, qp) = self.core.devices.known(place);
        // The QP may have been made ready before its address vector changed.
        if device.suspended || qp.transport.needs_port() || !(qp.can_send() && qp.requester.has_work()) {
            return None;
        }
        if qp.service().is_datagram() {
            let first = device.requests.first_send(&qp.requester.queue);
            let length = first.map_or(0, |send| send.work().length);
            let sent = send_first_datagram(&mut self.core, place, scratch, &mut NoOutlet, sink);
            return match sent.step {
                Step::Ended | Step::More => Some(sent.cost(length.min(limit))),
                Step::Waits => None,
            };
        }
        let (service, was_woken, peer) = (qp.service(), qp.requester.wait == Wait::Woken, qp.peer_hint());
        let (send, payload) = device.requests.front_send(&qp.requester.queue, scratch)?;
        let work = send.work();
        let rest = work.length.saturating_sub(qp.requester.offset);
        let (step, was_accepted) = match service {
            QpType::Uc => step_uc(&mut self.core, (place, peer), &work, payload, limit, sink),
            _ => {
                let step = step_rc_of_any(&mut self.core, now, (place, peer), &work, payload, limit, sink);
                // A request that failed has taken the QP to ERR.
                (step, !limited || self.core.devices.known(place).1.state != QpState::Err)
            }
        };
        if was_woken && step != Step::Waits {
            self.core.known(place, sink).waited_enough();
        }
        let cost = match step {
            Step::Ended | Step::More => Cost::from(rest.max(work.op.extra_cost()).min(limit)),
            Step::Waits => 0,
        };
        if step != Step::Waits && limited {
            let moved =
                MovedHere { bytes: rest.min(limit).into(), has_ended: step == Step::Ended, was_accepted };
            self.moved_here(place, &work, moved);
        }
        Some(cost + OPERATION)
    }

    /// Handles a QP's deadline, which has come.
    fn timed_out(&mut self, now: Instant, place: QpRef, sink: &mut impl Sink) {
        // A QP that is reset or destroyed has no deadline, so this one exists.
        let mut borrowed = self.core.known(place, sink);
        borrowed.note_idle_timer(false);
        borrowed.qp.timer = NEVER;
        if borrowed.suspended || borrowed.qp.requester.wait == Wait::Drain {
            // Its request is tried again when the device goes on, or when the caller has drained
            // the posts.
            return;
        }
        match (borrowed.qp.transport, borrowed.qp.service()) {
            (TransportKind::Roce, service) if service.is_reliable() => borrowed.roce().timer_expired(now),
            (TransportKind::Roce, _) => {}
            (TransportKind::Tcp, _) => borrowed.stream().silence_is_over(),
            (TransportKind::Local, _) => rc_local_timer_expired(&mut borrowed),
        }
    }
}
