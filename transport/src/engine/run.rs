//! What happens by itself: requests whose turn comes, and deadlines.

use crate::carrier::Carrier;
use crate::completion::Sink;
use crate::engine::Engine;
use crate::memory::Region;
use crate::qp::NEVER;
use crate::qp::attr::QpType;
use crate::qp::requester::Wait;
use crate::request::Scratch;
use crate::schedule::Place;
use crate::time::Instant;
use crate::ud::requester::Closed;
use core::mem;

/// Long messages are carried in stretches of so many bytes: a multiple of every MTU.
const BITE: u32 = 256 << 10;
/// A QP hands over to the next after so many bytes.
const TURN: u64 = BITE as u64;
/// What a request costs of a budget beside its bytes.
const REQUEST_COST: u64 = 512;

/// Deadlines that one call attends to.
pub(crate) const DEADLINES: usize = 256;

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
        self.sweep_some(sink);
        self.lose_packets(now, sink);
        self.carried = 0;
        let mut spent = 0u64;
        while let Some(place) = self.schedule.local.pop() {
            // It may have gone since it was ready.
            let Some(qp) = self.devices.qp_mut(place) else { continue };
            if !mem::take(&mut qp.requester.ready) {
                continue;
            }
            spent = spent.saturating_add(self.take_turn(now, place, sink));
            self.known(place, sink).make_ready();
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
        let (device, qp) = self.devices.known(place);
        // It may have been made ready before its address vector changed.
        if device.suspended || qp.carrier.needs_port() || !(qp.can_send() && qp.requester.has_work()) {
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
            _ => self.step_rc(now, place, &work, payload, BITE, sink),
        };
        let cost = match step {
            Step::Ended | Step::More => u64::from(rest.min(BITE)),
            Step::Waits => 0,
        };
        Some(cost + REQUEST_COST)
    }

    /// A QP's deadline has come.
    fn timed_out(&mut self, now: Instant, place: Place, sink: &mut impl Sink) {
        // It may have gone since it was armed.
        let Some(mut turn) = self.turn(place, sink) else { return };
        turn.qp.timer = NEVER;
        if turn.suspended || turn.qp.requester.wait == Wait::Look {
            // It is tried again when the device goes on, or the caller has looked.
            return;
        }
        match (turn.qp.carrier, turn.qp.service()) {
            (Carrier::Roce, QpType::Rc) => turn.rc_timer_expired(now),
            (Carrier::Roce, _) => {}
            (Carrier::Local, _) => turn.rc_local_timer_expired(),
        }
    }

    /// What the peer of a QP waits for may have come.
    pub(super) fn wake_peer(&mut self, place: Place, sink: &mut impl Sink) {
        let (_, qp) = self.devices.known(place);
        let Ok((peer, ..)) = self.devices.find_peer(qp) else { return };
        let mut turn = self.known(peer, sink);
        if matches!(turn.qp.requester.wait, Wait::Receive | Wait::Answer) {
            turn.qp.requester.wait = Wait::No;
            turn.counters.retries += 1;
            turn.disarm();
            turn.make_ready();
        }
    }

    /// The device of a QP goes on: neither it nor its peer waits any longer.
    pub(super) fn go_on(&mut self, place: Place, sink: &mut impl Sink) {
        let mut turn = self.known(place, sink);
        turn.disarm();
        turn.qp.requester.wait = Wait::No;
        if turn.service.send_again(turn.qp) {
            turn.make_turn_due();
        }
        turn.make_ready();
        self.wake_peer(place, sink);
    }
}
