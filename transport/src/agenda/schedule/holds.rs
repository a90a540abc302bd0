//! Devices and QPs that have no turn until some time.
//!
//! A hold takes the QPs of a device out of the round, in one direction. They stay in their queue,
//! and others may come behind them. A QP that waits alone stands in the queue by time.
//!
//! A device has a hold for each kind of turn: here, requests of the port, and answers. No hold is
//! prolonged. When one ends, something may move there before the next begins, whatever other turns
//! of the device have moved meanwhile. So none of them keeps another from the rate, and all wait
//! until the debt is paid that they have made together.

use super::delays::{Hold, Restraint};
use super::{QP_TURN, Schedule, Turns};
use crate::agenda::rates::{Flow, PATIENCE};
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::objects::qp::Direction;
#[cfg(test)]
use core::mem;

/// QPs whose time has come that go into their queues in one call.
const LET_GO: usize = 256;

/// The turn in which something was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SentIn {
    /// A turn of the device on this host.
    Local,
    /// A turn of the device at the port.
    Wire(Direction),
    /// A turn of another device, which has read.
    Peer,
}

/// A hold that has ended.
struct Released {
    device: u32,
    flow: Flow,
    since: Instant,
    /// Whether QPs waited.
    was_needed: bool,
}

impl Turns {
    /// Gives a device no turns in a direction until some time.
    ///
    /// A hold that there is stays. Nothing is held while QPs are still to have the turns for which
    /// they waited.
    fn hold(&mut self, device: u32, direction: Direction, flow: Flow, (now, until): (Instant, Instant)) {
        let index = device as usize;
        if index >= self.shares.len() {
            self.make_shares(index);
        }
        let share = &mut self.shares[index];
        let restraint = share.restraints.get_or_insert_default().of_mut(direction);
        if !restraint.may_be_held(direction) {
            return;
        }
        restraint.granted = false;
        restraint.hold = Some(Hold { since: now, until, flow });
        self.entries -= share.queue(direction).len();
        self.holds.insert((until, device, direction == Direction::Answers));
    }

    fn restraint(&self, device: u32, direction: Direction) -> Option<&Restraint> {
        let share = self.shares.get(device as usize)?;
        share.restraints.as_ref().map(|restraints| restraints.of(direction))
    }

    /// Whether something may move in a direction, whatever has moved elsewhere, because QPs have
    /// waited.
    pub(crate) fn is_granted(&self, device: u32, direction: Direction) -> bool {
        self.restraint(device, direction).is_some_and(|restraint| restraint.granted)
    }

    /// Notes that something has moved in a direction.
    fn moved(&mut self, device: u32, direction: Direction) {
        let share = self.shares.get_mut(device as usize);
        if let Some(restraints) = share.and_then(|share| share.restraints.as_mut()) {
            restraints.of_mut(direction).granted = false;
        }
    }

    /// Puts a QP back that had no turn: before all others of its device with requests, behind all
    /// that owe an answer.
    fn give_back(&mut self, place: QpRef, direction: Direction) {
        self.push(place, direction);
        if direction == Direction::Requests {
            let queue = self.shares[place.device as usize].queue(direction);
            if let Some(qpn) = queue.rest.pop_back() {
                queue.push_front(qpn);
            }
        }
    }

    /// Gives a QP, which was taken out of its queue, a turn at some time. It is still marked as
    /// waiting for one.
    ///
    /// There must be a rate, or the rates were told that something waits.
    pub(crate) fn postpone(&mut self, place: QpRef, direction: Direction, at: Instant) {
        self.later.insert((place, direction), at);
    }

    /// Removes a destroyed QP from the queue by time. Returns whether it was there.
    pub(crate) fn forget_later(&mut self, place: QpRef, direction: Direction) -> bool {
        self.later.remove((place, direction))
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
            let Some((place, direction)) = self.later.pop_due(now) else { break };
            self.push(place, direction);
        }
    }

    /// Puts a QP into its queues if it waits for a time.
    pub(crate) fn hurry(&mut self, place: QpRef) {
        for direction in [Direction::Answers, Direction::Requests] {
            if self.later.remove((place, direction)) {
                self.push(place, direction);
            }
        }
    }

    /// Ends one hold whose time has come. Returns it.
    fn release(&mut self, now: Instant) -> Option<Released> {
        let &(at, device, answers) = self.holds.first()?;
        if at > now {
            return None;
        }
        self.end_hold(device, if answers { Direction::Answers } else { Direction::Requests })
    }

    /// Ends the hold of a device, if there is one.
    fn end_hold(&mut self, device: u32, direction: Direction) -> Option<Released> {
        let share = self.shares.get_mut(device as usize)?;
        let waiting = share.queue(direction).len();
        let restraint = share.restraints.as_mut()?.of_mut(direction);
        let Hold { since, until, flow } = restraint.hold.take()?;
        let was_needed = waiting > 0;
        restraint.granted = was_needed;
        // An acknowledge does not wait for the responses of other QPs once it has waited enough.
        restraint.passes = if direction == Direction::Answers { waiting } else { 0 };
        self.holds.remove(&(until, device, direction == Direction::Answers));
        self.entries += waiting;
        if was_needed && !share.listed {
            share.listed = true;
            self.round.push_back(device);
        }
        Some(Released { device, flow, since, was_needed })
    }

    /// Ends all holds of a device, and the waits of its QPs.
    fn release_device(&mut self, device: u32) {
        let waiting: Vec<QpRef> = self.later.of_device(device).map(|(place, _)| place).collect();
        waiting.into_iter().for_each(|place| self.hurry(place));
        for direction in [Direction::Answers, Direction::Requests] {
            self.end_hold(device, direction);
        }
        if let Some(share) = self.shares.get_mut(device as usize) {
            share.restraints = None;
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
            while let Some(Released { device, flow, since, was_needed }) = turns.release(now) {
                if was_needed {
                    self.rates.waited(device, flow, (since, now));
                }
            }
        }
        self.rates.look_at_streams();
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
        let turns = self.local.next_time().into_iter().chain(self.wire.next_time());
        turns.chain(self.rates.next_look()).min()
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
    pub(crate) fn sent(&mut self, device: u32, turn: SentIn, bytes: u64, messages: u64) {
        if bytes + messages > 0 {
            match turn {
                SentIn::Local => self.local.moved(device, Direction::Requests),
                SentIn::Wire(direction) => self.wire.moved(device, direction),
                SentIn::Peer => {}
            }
        }
        let until = match turn {
            // These cannot be stopped for long. What they owe must not stop requests for ever.
            SentIn::Wire(Direction::Answers) => self.rates.charge_answers(device, bytes, messages),
            _ => self.rates.charge(device, Flow::Tx, bytes, messages),
        };
        if let Some(until) = until {
            self.hold_tx(device, until);
        }
    }

    fn hold_tx(&mut self, device: u32, until: Instant) {
        let now = self.rates.now();
        let of_answers = until.min(now + PATIENCE);
        self.local.hold(device, Direction::Requests, Flow::Tx, (now, until));
        self.wire.hold(device, Direction::Requests, Flow::Tx, (now, until));
        self.wire.hold(device, Direction::Answers, Flow::Tx, (now, of_answers));
    }

    fn hold_acknowledges(&mut self, device: u32, until: Instant) {
        let now = self.rates.now();
        self.wire.hold(device, Direction::Answers, Flow::Rx, (now, until.min(now + PATIENCE)));
    }

    /// Makes a QP that has a turn on this host wait because its device has to. Returns whether it
    /// does.
    #[cold]
    pub(crate) fn waits_here(&mut self, place: QpRef) -> bool {
        let Some(until) = self.rates.wait(place.device, Flow::Tx) else { return false };
        if self.local.is_granted(place.device, Direction::Requests) {
            return false;
        }
        self.local.give_back(place, Direction::Requests);
        self.hold_tx(place.device, until);
        true
    }

    /// Makes a QP that has a turn of the port wait because its device has to. Returns whether it
    /// does.
    ///
    /// What it would send must have data. Acknowledges wait for holds alone.
    #[cold]
    pub(crate) fn waits_for_port(&mut self, place: QpRef, direction: Direction) -> bool {
        let Some(until) = self.rates.wait(place.device, Flow::Tx) else { return false };
        if self.wire.is_granted(place.device, direction) {
            return false;
        }
        self.wire.give_back(place, direction);
        self.hold_tx(place.device, until);
        true
    }

    /// Returns how many bytes of its own a device may send in a turn on this host.
    pub(crate) fn left_here(&self, device: u32) -> u64 {
        self.left_in(&self.local, device, Direction::Requests)
    }

    /// Returns how many bytes a device may send in a turn of the port.
    pub(crate) fn left_by_port(&self, device: u32, direction: Direction) -> u64 {
        self.left_in(&self.wire, device, direction)
    }

    /// Returns how many bytes a device may send in a turn.
    ///
    /// Others may have used its rate up while it waited for this turn. It then moves as much as
    /// they do, who have waited for times of their own. If it moved less, they would have the rate.
    fn left_in(&self, turns: &Turns, device: u32, direction: Direction) -> u64 {
        let left = self.rates.left(device, Flow::Tx);
        if self.rates.wait(device, Flow::Tx).is_none() || !turns.is_granted(device, direction) {
            return left;
        }
        let waited_for = match direction {
            Direction::Requests => self.rates.holds(device, Flow::Tx),
            Direction::Answers => self.rates.holds_of_answers(device),
        };
        left.max(waited_for.min(QP_TURN.into()))
    }

    /// Counts what came for a device from a sender that waits for its rate. If its rate is used up,
    /// its acknowledges wait, but no longer than peers have patience.
    #[cold]
    pub(crate) fn came(&mut self, device: u32, bytes: u64, messages: u64) {
        if let Some(until) = self.rates.charge(device, Flow::Rx, bytes, messages) {
            self.hold_acknowledges(device, until);
        }
    }

    /// Counts what a device has asked for, whose data come as fast as the peer sends them. If its
    /// rate is used up, its acknowledges wait, but no longer than peers have patience.
    #[cold]
    pub(crate) fn asked(&mut self, device: u32, bytes: u64) {
        if let Some(until) = self.rates.charge_asked(device, bytes) {
            self.hold_acknowledges(device, until);
        }
    }

    /// Counts what came for a device by a connection without being asked for. If its rate is used
    /// up, its acknowledges wait, but no longer than peers have patience.
    #[cold]
    pub(crate) fn came_unasked(&mut self, device: u32, bytes: u64, messages: u64) {
        if let Some(until) = self.rates.charge_unasked(device, bytes, messages) {
            self.hold_acknowledges(device, until);
        }
    }

    /// Counts what came for a device in a stream. If its rate is used up, nothing more is taken.
    ///
    /// TCP then tells the peer that there is no room.
    #[cold]
    pub(crate) fn came_in_stream(&mut self, device: u32, bytes: u64, messages: u64) {
        if let Some(until) = self.rates.charge(device, Flow::Rx, bytes, messages) {
            self.rates.stop_streams(device, until);
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
        self.dcqcn = from.dcqcn;
        for (device, share) in from.local.shares.iter().enumerate() {
            self.set_weight(device as u32, share.weight);
        }
        // What had to wait has to wait again.
        for device in 0..from.wire.shares.len().max(from.local.shares.len()) as u32 {
            self.sent(device, SentIn::Peer, 0, 0);
            self.came(device, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::rate::RateLimit;
    use crate::agenda::rates::RateLimits;
    use core::num::NonZeroU64;
    use core::time::Duration;
    use vrdma_wire::num::Qpn;

    #[test]
    fn of_many_qps_whose_time_has_come_some_go_in_each_call() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1), messages: None, burst: Duration::ZERO };
        schedule.rates.set_qp(QpRef { device: 0, qpn: Qpn::truncate(1) }, &limit);
        let count = 3 * LET_GO + 1;
        for qpn in 0..count as u32 {
            let place = QpRef { device: 0, qpn: Qpn::truncate(qpn) };
            schedule.local.postpone(place, Direction::Requests, Instant(5));
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
        schedule.local.postpone(one, Direction::Requests, Instant(u64::MAX));
        schedule.wire.postpone(other, Direction::Answers, Instant(u64::MAX));
        schedule.start_qp_over(one);
        assert_eq!((schedule.local.len(), schedule.wire.len()), (1, 0));
        schedule.start_over(3);
        assert_eq!((schedule.local.len(), schedule.wire.len()), (1, 1));
        assert!(schedule.next_time().is_none() && schedule.rates.any(), "its rate stays");
    }

    /// Lets QPs of a device move a kilobyte in each turn, for 20 s, at a megabyte in a second.
    /// Returns how many turns each kind had: here, requests of the port, and answers.
    fn turns(qps: [u32; 3]) -> [u64; 3] {
        let mut schedule = Schedule::default();
        let limit =
            RateLimit { bytes: NonZeroU64::new(1_000_000), messages: None, burst: Duration::from_millis(10) };
        schedule.rates.set_device(2, &RateLimits { tx: limit, ..RateLimits::default() });
        let place = |qpn| QpRef { device: 2, qpn: Qpn::truncate(qpn) };
        (0..qps[0]).for_each(|qpn| schedule.local.push(place(qpn), Direction::Requests));
        (0..qps[1]).for_each(|qpn| schedule.wire.push(place(qpn), Direction::Requests));
        (0..qps[2]).for_each(|qpn| schedule.wire.push(place(qpn), Direction::Answers));
        let (mut now, mut given) = (Instant(0), [0; 3]);
        while now < Instant(20_000_000_000) {
            schedule.see(now);
            // As the engine does, it works here before it works for the port.
            while let Some((place, direction)) = schedule.local.pop() {
                if !schedule.waits_here(place) {
                    schedule.sent(2, SentIn::Local, 1000, 1);
                    given[0] += 1;
                    schedule.local.push(place, direction);
                }
                schedule.local.spend(2, direction, 1000);
            }
            while let Some((place, direction)) = schedule.wire.pop() {
                if !schedule.waits_for_port(place, direction) {
                    schedule.sent(2, SentIn::Wire(direction), 1000, 1);
                    given[if direction == Direction::Answers { 2 } else { 1 }] += 1;
                    schedule.wire.push(place, direction);
                }
                schedule.wire.spend(2, direction, 1000);
            }
            now = schedule.next_time().expect("the rate is used up");
        }
        given
    }

    #[test]
    fn no_kind_of_turn_keeps_the_others_from_the_rate_of_the_device() {
        for qps in [[1, 1, 1], [100, 1, 1], [1, 100, 2], [3, 1, 100], [1, 1, 0], [0, 1, 1], [1, 0, 1]] {
            let given = turns(qps);
            let sum: u64 = given.iter().sum();
            assert!(sum.abs_diff(20_000) < 400, "{qps:?}: {given:?}");
            let kinds = qps.iter().filter(|&&qps| qps > 0).count() as u64;
            for (kind, _) in qps.iter().enumerate().filter(|&(_, &qps)| qps > 0) {
                assert!(given[kind] * kinds * 10 > sum * 8, "{qps:?}: {given:?}");
            }
        }
    }

    #[test]
    fn acknowledges_are_held_again_and_again_while_too_much_comes() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1_000_000), messages: None, burst: Duration::ZERO };
        schedule.rates.set_device(0, &RateLimits { rx: limit, ..RateLimits::default() });
        let place = QpRef { device: 0, qpn: Qpn::truncate(7) };
        let mut now = Instant(0);
        for round in 0..20 {
            schedule.came_unasked(0, 100_000, 1);
            schedule.wire.push(place, Direction::Answers);
            assert!(schedule.wire.pop().is_none(), "round {round}: its acknowledge waits");
            now = schedule.next_time().expect("it waits");
            schedule.see(now);
            assert_eq!(schedule.wire.pop(), Some((place, Direction::Answers)), "round {round}");
            schedule.sent(0, SentIn::Wire(Direction::Answers), 0, 0);
        }
        assert_eq!(now, Instant(0) + PATIENCE * 20);
        assert_eq!(schedule.rates.counters(0).rx_held, 20);
    }

    #[test]
    fn whoever_waits_when_answers_are_held_waits_for_one_hold() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1_000_000), messages: None, burst: Duration::ZERO };
        schedule.rates.set_device(0, &RateLimits { tx: limit, ..RateLimits::default() });
        let place = |qpn| QpRef { device: 0, qpn: Qpn::truncate(qpn) };
        // A debt of ten seconds.
        schedule.sent(0, SentIn::Local, 10_000_000, 1);
        (0..100).for_each(|qpn| schedule.wire.push(place(qpn), Direction::Answers));
        assert!(schedule.wire.pop().is_none());
        schedule.see(Instant(0) + PATIENCE);
        for qpn in 0..100 {
            assert_eq!(schedule.wire.pop(), Some((place(qpn), Direction::Answers)));
            // Every other one is an acknowledge, and the others have data.
            let bytes = u64::from(qpn % 2) * 1000;
            if bytes == 0 || !schedule.waits_for_port(place(qpn), Direction::Answers) {
                schedule.sent(0, SentIn::Wire(Direction::Answers), bytes, 0);
            }
        }
        // Of those with data, one had its turn.
        assert!(schedule.wire.pop().is_none());
        schedule.see(Instant(0) + PATIENCE * 2);
        assert_eq!(schedule.wire.len(), 49);
    }

    #[test]
    fn acknowledges_are_held_again_after_qps_went_that_had_waited() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1_000_000), messages: None, burst: Duration::ZERO };
        schedule.rates.set_device(0, &RateLimits { rx: limit, ..RateLimits::default() });
        let place = |qpn| QpRef { device: 0, qpn: Qpn::truncate(qpn) };
        schedule.came_unasked(0, 100_000, 1);
        (0..20).for_each(|qpn| schedule.wire.push(place(qpn), Direction::Answers));
        schedule.see(Instant(0) + PATIENCE);
        // All of them are destroyed but the last, which has its turn.
        for _ in 0..2 {
            schedule.wire.sweep(0, Direction::Answers, |qpn| qpn.number() == 19);
        }
        assert_eq!(schedule.wire.pop(), Some((place(19), Direction::Answers)));
        schedule.came_unasked(0, 100_000, 1);
        schedule.wire.push(place(19), Direction::Answers);
        assert_eq!(schedule.wire.pop(), None, "it waits");
    }

    #[test]
    fn what_answers_owe_stops_requests_for_a_short_time_only() {
        let mut schedule = Schedule::default();
        let limit = RateLimit { bytes: NonZeroU64::new(1_000), messages: None, burst: Duration::ZERO };
        schedule.rates.set_device(0, &RateLimits { tx: limit, ..RateLimits::default() });
        let [own, other] = [7, 8].map(|qpn| QpRef { device: 0, qpn: Qpn::truncate(qpn) });
        // A full bucket holds two pieces, which is what 8.2 s bring.
        for _ in 0..1000 {
            schedule.sent(0, SentIn::Wire(Direction::Answers), 4096, 0);
        }
        // The first holds end while nobody waits. So whoever comes next waits for the whole debt.
        schedule.see(Instant(0) + PATIENCE);
        let (begin, mut now, mut has_gone) = (schedule.rates.now(), schedule.rates.now(), false);
        schedule.wire.push(own, Direction::Requests);
        schedule.wire.push(other, Direction::Answers);
        while !has_gone {
            while let Some((place, direction)) = schedule.wire.pop() {
                if schedule.waits_for_port(place, direction) {
                    continue;
                }
                has_gone |= place == own;
                if place == other {
                    // There are more answers all the time.
                    schedule.sent(0, SentIn::Wire(Direction::Answers), 4096, 0);
                    schedule.wire.push(other, Direction::Answers);
                }
            }
            if !has_gone {
                now = schedule.next_time().expect("both wait");
                assert!(now <= begin + PATIENCE * 3, "{now:?}");
                schedule.see(now);
            }
        }
        assert!(now > begin, "it waited");
    }
}
