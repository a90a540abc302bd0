//! Devices and QPs that have no turn until some time.
//!
//! A hold takes the QPs of a device out of the round, in one direction. They stay in their queue,
//! and others may come behind them. A QP that waits alone stands in the queue by time.

use super::delays::Hold;
use super::{Schedule, Turns};
use crate::agenda::rates::{Flow, PATIENCE};
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::objects::qp::Direction;
#[cfg(test)]
use core::mem;
use core::time::Duration;

/// QPs whose time has come that go into their queues in one call.
const LET_GO: usize = 256;

/// A hold that has ended.
struct Released {
    device: u32,
    flow: Flow,
    /// How long the QPs were held that waited.
    held: Duration,
}

impl Turns {
    /// Gives a device no turns in a direction until some time. A longer hold stays.
    ///
    /// However often it is prolonged, it lasts for no longer than `most`.
    fn hold(
        &mut self,
        device: u32,
        direction: Direction,
        flow: Flow,
        (now, until): (Instant, Instant),
        most: Duration,
    ) {
        let index = device as usize;
        if index >= self.shares.len() {
            self.make_shares(index);
        }
        let share = &mut self.shares[index];
        let before = share.hold(direction);
        let since = before.map_or(now, |before| before.since);
        let until = until.min(since + most);
        match before {
            Some(before) if before.until >= until => return,
            Some(before) => {
                self.holds.remove(&(before.until, device, direction == Direction::Answers));
            }
            None => self.entries -= share.queue(direction).len(),
        }
        *share.hold_mut(direction) = Some(Hold { since, until, flow });
        self.holds.insert((until, device, direction == Direction::Answers));
    }

    /// Gives a QP, which was taken out of its queue, a turn at some time. It is still marked as
    /// waiting for one.
    pub(crate) fn postpone(&mut self, place: QpRef, at: Instant) {
        self.later.insert(place, at);
    }

    /// Removes a destroyed QP from the queue by time. Returns whether it was there.
    pub(crate) fn forget_later(&mut self, place: QpRef) -> bool {
        self.later.remove(place)
    }

    /// Returns when a hold ends, or a QP is due that waits for its time.
    fn next_time(&self) -> Option<Instant> {
        let hold = self.holds.first().map(|&(at, ..)| at);
        let times = hold.into_iter().chain(self.later.first());
        times.min()
    }

    /// Puts some QPs whose time has come into their queues.
    fn let_go(&mut self, now: Instant) {
        for _ in 0..LET_GO {
            let Some(place) = self.later.pop_due(now) else { break };
            self.push(place, Direction::Requests);
        }
    }

    /// Puts a QP into its queue if it waits for a time.
    fn hurry(&mut self, place: QpRef) {
        if self.later.remove(place) {
            self.push(place, Direction::Requests);
        }
    }

    /// Ends one hold whose time has come. Returns it.
    fn release(&mut self, now: Instant) -> Option<Released> {
        let &(at, device, answers) = self.holds.first()?;
        if at > now {
            return None;
        }
        self.holds.pop_first();
        let direction = if answers { Direction::Answers } else { Direction::Requests };
        let share = &mut self.shares[device as usize];
        let hold = share.hold_mut(direction).take().expect("a device knows its holds");
        let waiting = share.queue(direction).len();
        self.entries += waiting;
        if waiting > 0 && !share.listed {
            share.listed = true;
            self.round.push_back(device);
        }
        let held = if waiting > 0 { now.0.saturating_sub(hold.since.0) } else { 0 };
        Some(Released { device, flow: hold.flow, held: Duration::from_nanos(held) })
    }

    /// Ends all holds of a device, and the waits of its QPs.
    fn release_device(&mut self, device: u32) {
        let waiting: Vec<QpRef> = self.later.of_device(device).collect();
        waiting.into_iter().for_each(|place| self.hurry(place));
        for (direction, answers) in [(Direction::Answers, true), (Direction::Requests, false)] {
            let Some(share) = self.shares.get(device as usize) else { return };
            let Some(hold) = share.hold(direction) else { continue };
            self.holds.remove(&(hold.until, device, answers));
            // At the start of time each hold has ended.
            self.holds.insert((Instant(0), device, answers));
            if let Some(held) = self.shares[device as usize].hold_mut(direction) {
                held.until = Instant(0);
            }
        }
        while self.holds.first().is_some_and(|&(at, ..)| at == Instant(0)) {
            self.release(Instant(0));
        }
    }
}

impl Schedule {
    /// Gives turns to what waited for this time because of a rate.
    #[inline]
    pub(crate) fn see(&mut self, now: Instant) {
        if self.rates.any() {
            self.let_go(now);
        }
    }

    #[cold]
    fn let_go(&mut self, now: Instant) {
        self.rates.see(now);
        for turns in [&mut self.local, &mut self.wire] {
            turns.let_go(now);
            while let Some(released) = turns.release(now) {
                if !released.held.is_zero() {
                    self.rates.held(released.device, released.flow, released.held);
                }
            }
        }
        self.settle();
    }

    /// Notes it if nothing has a rate, and nothing waits for one that there was.
    fn settle(&mut self) {
        if self.next_time().is_none() {
            self.rates.nothing_waits();
        }
    }

    /// Returns when something is due that waits for its rate.
    #[inline]
    pub(crate) fn next_time(&self) -> Option<Instant> {
        if !self.rates.any() {
            return None;
        }
        self.local.next_time().into_iter().chain(self.wire.next_time()).min()
    }

    /// Whether something is due that waited for its rate.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next_time().is_some_and(|at| at <= now)
    }

    /// Counts what a device has sent. If its rate is used up, the device waits.
    ///
    /// Its answers wait, too, but no longer than peers have patience.
    #[cold]
    pub(crate) fn sent(&mut self, device: u32, bytes: u64, messages: u64) {
        let now = self.rates.now();
        if let Some(until) = self.rates.charge(device, Flow::Tx, bytes, messages) {
            self.local.hold(device, Direction::Requests, Flow::Tx, (now, until), Duration::MAX);
            self.wire.hold(device, Direction::Requests, Flow::Tx, (now, until), Duration::MAX);
            self.wire.hold(device, Direction::Answers, Flow::Tx, (now, until), PATIENCE);
        }
    }

    /// Counts what came for a device from a sender that waits for its rate, or what the device has
    /// asked for. If its rate is used up, its acknowledges wait, but no longer than peers have
    /// patience.
    #[cold]
    pub(crate) fn came(&mut self, device: u32, bytes: u64, messages: u64) {
        let now = self.rates.now();
        if let Some(until) = self.rates.charge(device, Flow::Rx, bytes, messages) {
            self.wire.hold(device, Direction::Answers, Flow::Rx, (now, until), PATIENCE);
        }
    }

    /// Counts what came for a device by a connection without being asked for. If its rate is used
    /// up, its acknowledges wait, but no longer than peers have patience.
    #[cold]
    pub(crate) fn came_unasked(&mut self, device: u32, bytes: u64, messages: u64) {
        let now = self.rates.now();
        if let Some(until) = self.rates.charge_unasked(device, bytes, messages) {
            self.wire.hold(device, Direction::Answers, Flow::Rx, (now, until), PATIENCE);
        }
    }

    /// Counts what came for a device in a stream. If its rate is used up, nothing more is taken.
    ///
    /// TCP then tells the peer that there is no room.
    #[cold]
    pub(crate) fn came_in_stream(&mut self, device: u32, bytes: u64, messages: u64) {
        let now = self.rates.now();
        if let Some(until) = self.rates.charge(device, Flow::Rx, bytes, messages) {
            self.rates.held(device, Flow::Rx, Duration::from_nanos(until.0.saturating_sub(now.0)));
            // The caller looks again when this ends.
            self.wire.hold(device, Direction::Answers, Flow::Rx, (now, until), Duration::MAX);
        }
    }

    /// Ends the waits of a device whose rates are others now. What is still too much waits again.
    pub(crate) fn start_over(&mut self, device: u32) {
        self.local.release_device(device);
        self.wire.release_device(device);
        self.settle();
    }

    /// Ends the wait of a QP whose rate is another now. If that is still too much, it waits again.
    pub(crate) fn start_qp_over(&mut self, place: QpRef) {
        self.local.hurry(place);
        self.wire.hurry(place);
        self.settle();
    }

    /// Takes over what the caller of a restored engine sets again: weights and rates.
    #[cfg(test)]
    pub(crate) fn set_again(&mut self, from: &mut Schedule) {
        self.rates = mem::take(&mut from.rates);
        for (device, share) in from.local.shares.iter().enumerate() {
            self.set_weight(device as u32, share.weight);
        }
        // What had to wait has to wait again.
        for device in 0..from.wire.shares.len().max(from.local.shares.len()) as u32 {
            self.sent(device, 0, 0);
            self.came(device, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::rate::RateLimit;
    use core::num::NonZeroU64;
    use vrdma_wire::num::Qpn;

    #[test]
    fn of_many_qps_whose_time_has_come_some_go_in_each_call() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1), messages: None, burst: Duration::ZERO };
        schedule.rates.set_qp(QpRef { device: 0, qpn: Qpn::truncate(1) }, &limit);
        let count = 3 * LET_GO + 1;
        for qpn in 0..count as u32 {
            schedule.local.postpone(QpRef { device: 0, qpn: Qpn::truncate(qpn) }, Instant(5));
        }
        schedule.see(Instant(4));
        assert_eq!((schedule.local.len(), schedule.is_due(Instant(4))), (0, false));
        for call in 1..=4 {
            assert!(schedule.is_due(Instant(5)));
            schedule.see(Instant(5));
            assert_eq!(schedule.local.len(), (call * LET_GO).min(count));
        }
        assert!(!schedule.is_due(Instant(5)) && schedule.next_time().is_none());
    }

    #[test]
    fn what_waits_for_its_time_goes_at_once_when_the_rate_changes() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1), messages: None, burst: Duration::ZERO };
        let [one, other] = [1, 2].map(|qpn| QpRef { device: 3, qpn: Qpn::truncate(qpn) });
        schedule.rates.set_qp(one, &limit);
        schedule.local.postpone(one, Instant(u64::MAX));
        schedule.wire.postpone(other, Instant(u64::MAX));
        schedule.start_qp_over(one);
        assert_eq!((schedule.local.len(), schedule.wire.len()), (1, 0));
        schedule.start_over(3);
        assert_eq!((schedule.local.len(), schedule.wire.len()), (1, 1));
        assert!(schedule.next_time().is_none() && schedule.rates.any(), "its rate stays");
    }
}
