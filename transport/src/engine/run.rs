//! What happens by itself: requests whose turn comes, and deadlines.

use crate::completion::{Event, Sink, WcStatus};
use crate::device::Held;
use crate::engine::Engine;
use crate::memory::Region;
use crate::qp::attr::{QpState, QpType};
use crate::qp::requester::Wait;
use crate::qp::{NEVER, Way};
use crate::rc::local::Carried;
use crate::request::{Scratch, Work};
use crate::schedule::Place;
use crate::time::Instant;
use crate::ud::requester::Closed;
use crate::work::Payload;
use core::mem;

/// Long messages are carried in stretches of so many bytes: a multiple of every MTU.
const BITE: u32 = 256 << 10;
/// A QP hands over to the next after so many bytes.
const TURN: u64 = BITE as u64;
/// What a request costs of a budget beside its bytes.
const REQUEST_COST: u64 = 512;

/// Deadlines that one call attends to.
pub(crate) const DEADLINES: usize = 256;

/// The last deadline that there can be.
const LAST: Instant = Instant(NEVER.0 - 1);

/// What became of the first request of a send queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It ended, well or not.
    Ended,
    /// There is more of it.
    More,
    /// It has to wait.
    Waits,
}

impl<R: Region> Engine<R> {
    /// Works on what is ready and due, on about `budget` bytes but at least one stretch of a message; true if more is
    /// ready now. QPs take turns.
    pub fn poll(&mut self, now: Instant, budget: u64, sink: &mut impl Sink) -> bool {
        for _ in 0..DEADLINES {
            let Some(place) = self.schedule.due(now) else { break };
            self.timed_out(now, place, sink);
        }
        self.sweep_some();
        self.lose_packets(now, sink);
        self.carried = 0;
        let mut spent = 0u64;
        while let Some(place) = self.schedule.local.pop() {
            let Some(qp) = self.devices.qp_mut(place) else { continue };
            if !mem::take(&mut qp.requester.ready) {
                continue;
            }
            spent = spent.saturating_add(self.take_turn(now, place, sink));
            self.make_ready(place);
            if spent >= budget {
                break;
            }
        }
        self.schedule.local.len() > 0
            || self.sweeps.any()
            || self.schedule.deadline().is_some_and(|at| at <= now)
    }

    /// When to [`poll`](Engine::poll), and with an uplink [`transmit`](Engine::transmit), next if nothing else happens: the start of
    /// time if something is ready now, `None` if never.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ready = self.schedule.local.len() > 0 || self.can_transmit() || self.sweeps.any();
        if ready { Some(Instant(0)) } else { self.schedule.deadline() }
    }

    /// One QP's turn; what it cost.
    fn take_turn(&mut self, now: Instant, place: Place, sink: &mut impl Sink) -> u64 {
        let mut scratch = mem::take(&mut self.own);
        let mut spent = 0;
        while spent < TURN {
            let Some(cost) = self.try_first(now, place, &mut scratch, sink) else { break };
            spent += cost;
        }
        self.own = scratch;
        spent
    }

    /// One stretch of a QP's first request; what it cost, or `None` if there is none to work on.
    fn try_first(
        &mut self,
        now: Instant,
        place: Place,
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) -> Option<u64> {
        let (device, qp) = self.devices.with_qp(place)?;
        if device.suspended || !(qp.can_send() && qp.requester.has_work()) {
            return None;
        }
        if qp.service().is_datagram() {
            return match self.send_first_datagram(place, scratch, &mut Closed, sink) {
                Step::Ended | Step::More => Some(REQUEST_COST),
                Step::Waits => None,
            };
        }
        let service = qp.service();
        let (kept, payload) = device.requests.front_send(&qp.requester.queue, scratch)?;
        let work = kept.work();
        let rest = work.length.saturating_sub(qp.requester.offset);
        let step = match service {
            QpType::Uc => self.step_uc(place, &work, payload, BITE, sink),
            _ => self.step(now, place, &work, payload, BITE, sink),
        };
        let cost = match step {
            Step::Ended | Step::More => u64::from(rest.min(BITE)),
            Step::Waits => 0,
        };
        Some(cost + REQUEST_COST)
    }

    /// One stretch of at most `limit` bytes of `work`, the first request of a QP that may send. (It need not be in the
    /// queue yet, if that is empty.)
    #[inline]
    pub(super) fn step(
        &mut self,
        now: Instant,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Step {
        match self.carry(place, work, payload, limit, sink) {
            Carried::All => return Step::Ended,
            Carried::Part => return Step::More,
            Carried::Failed(status, offended) => {
                self.fail(place, work, status, sink);
                if let Some((peer, event)) = offended {
                    self.offended(peer, event, sink);
                }
                return Step::Ended;
            }
            Carried::Asked => {}
            Carried::NotReady(_) | Carried::Lost if self.devices.qp_mut(place).is_none() => {}
            Carried::NotReady(delay) => {
                let again = self.devices.qp_mut(place).map(|qp| qp.requester.not_ready(now, delay));
                match again {
                    Some(Ok(at)) => self.wait_until(place, at),
                    Some(Err(status)) => {
                        self.fail(place, work, status, sink);
                        return Step::Ended;
                    }
                    None => {}
                }
            }
            Carried::Lost => {
                let again = self.devices.qp_mut(place).map(|qp| qp.requester.lost(now, qp.attr().timeout));
                if let Some(at) = again {
                    self.wait_until(place, at);
                }
            }
        }
        Step::Waits
    }

    /// The first request of a QP fails, and with it the QP; of an unreliable service its send queue alone.
    #[cold]
    pub(crate) fn fail(&mut self, place: Place, work: &Work<'_>, status: WcStatus, sink: &mut impl Sink) {
        let Some(Held { qp, requests, counters, .. }) = self.devices.hold(place) else { return };
        // Nothing comes off the queue if it was tried before it was put there.
        requests.pop_send(&mut qp.requester.queue);
        counters.errors += 1;
        sink.complete(place.id(), qp.send_cq, &work.completion(place.qpn, status));
        match qp.service() {
            QpType::Rc => self.enter_error(place, sink),
            QpType::Uc | QpType::Ud | QpType::Gsi => self.enter_sqe(place, sink),
        }
    }

    /// A peer's request made a QP go to ERR.
    #[cold]
    pub(crate) fn offended(&mut self, place: Place, event: Option<Event>, sink: &mut impl Sink) {
        self.enter_error(place, sink);
        if let Some(event) = event {
            sink.event(place.id(), event);
        }
    }

    /// A QP's deadline has come.
    fn timed_out(&mut self, now: Instant, place: Place, sink: &mut impl Sink) {
        let Some(Held { qp, counters, suspended, .. }) = self.devices.hold(place) else { return };
        qp.timer = NEVER;
        if suspended || qp.requester.wait == Wait::Look {
            // It is tried again when the device goes on, or the caller has looked.
            return;
        }
        if qp.way == Way::Wire {
            return self.wire_timed_out(now, place, sink);
        }
        if qp.requester.wait == Wait::Answer {
            counters.timeouts += 1;
        }
        match qp.requester.timed_out(qp.attr().timeout) {
            Ok(()) => {
                counters.retries += 1;
                self.make_ready(place);
            }
            Err(status) => {
                let mut scratch = mem::take(&mut self.own);
                let first = self.devices.with_qp(place).and_then(|(device, qp)| {
                    device.requests.front_send(&qp.requester.queue, &mut scratch).map(|first| first.0)
                });
                self.own = scratch;
                if let Some(kept) = first {
                    self.fail(place, &kept.work(), status, sink);
                }
            }
        }
    }

    /// A QP waits until `at`, or until it is woken.
    fn wait_until(&mut self, place: Place, at: Instant) {
        let Some(qp) = self.devices.qp_mut(place) else { return };
        qp.requester.started = true;
        self.arm(place, at);
    }

    /// A QP's deadline is `at`, and no other.
    pub(crate) fn arm(&mut self, place: Place, at: Instant) {
        self.disarm(place);
        let Some(qp) = self.devices.qp_mut(place) else { return };
        qp.timer = at.min(LAST);
        self.schedule.arm(qp.timer, place);
    }

    /// A QP has no deadline.
    pub(super) fn disarm(&mut self, place: Place) {
        if let Some(qp) = self.devices.qp_mut(place)
            && qp.timer != NEVER
        {
            let at = mem::replace(&mut qp.timer, NEVER);
            self.schedule.disarm(at, place);
        }
    }

    /// What the peer of a QP waits for may have come.
    pub(super) fn wake_peer(&mut self, place: Place) {
        let Some((_, qp)) = self.devices.with_qp(place) else { return };
        let Ok((peer, ..)) = self.devices.find_peer(qp) else { return };
        let Some(Held { qp, counters, .. }) = self.devices.hold(peer) else { return };
        if matches!(qp.requester.wait, Wait::Receive | Wait::Answer) {
            qp.requester.wait = Wait::No;
            counters.retries += 1;
            self.disarm(peer);
            self.make_ready(peer);
        }
    }

    /// The device of a QP goes on: neither it nor its peer waits any longer.
    pub(super) fn go_on(&mut self, place: Place) {
        self.disarm(place);
        if let Some(qp) = self.devices.qp_mut(place) {
            qp.requester.wait = Wait::No;
            let queue = &qp.requester.queue;
            if let Some(wire) = qp.wire.as_deref_mut().filter(|_| qp.way == Way::Wire) {
                wire.start_over(queue);
                self.make_turn_due(place);
            }
        }
        self.make_ready(place);
        self.wake_peer(place);
    }

    /// If a QP has work that it may do, its turn will come.
    #[inline]
    pub(crate) fn make_ready(&mut self, place: Place) {
        let Some(Held { qp, suspended, .. }) = self.devices.hold(place) else { return };
        if qp.way == Way::Wire {
            let unsent = match qp.wire.as_deref() {
                Some(wire) => wire.has_unsent() && matches!(qp.state, QpState::Rts | QpState::Sqd),
                None => qp.can_send() && qp.requester.has_work(),
            };
            if unsent && !suspended {
                self.make_turn_due(place);
            }
            return;
        }
        if suspended || !(qp.can_send() && qp.requester.has_work()) {
            return;
        }
        if qp.service().is_datagram() && self.port.exists() {
            // There it is seen whether it needs a packet.
            return self.make_turn_due(place);
        }
        if !qp.requester.ready {
            qp.requester.ready = true;
            self.schedule.local.push(place);
        }
    }
}
