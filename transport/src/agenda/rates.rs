//! The rates of devices and of QPs, and what was held back for them.

use crate::agenda::rate::{Meter, RateLimit};
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, SLOW_CHECK};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use vrdma_wire::num::Qpn;

/// How long answers of a device wait at most because of its rates.
///
/// Acknowledges that wait slow senders on other hosts. The wait is a quarter of the usual local ACK
/// timeout (code 14), so nothing is sent again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(16);
/// The longest debt of a device for what comes by connections, and for its answers, neither of
/// which can be stopped at once.
///
/// Acknowledges and answers wait no longer than [`PATIENCE`]. A longer debt would hold up only
/// senders on this host, or requests, and for as long as others send or read too much.
const LONGEST_DEBT: Duration = PATIENCE.saturating_mul(2);
/// The longest debt of a device for data that it has asked for on the wire.
///
/// A request may ask for two gigabytes. At a low rate these would hold up all senders for hours.
const LONGEST_OF_READS: Duration = Duration::from_secs(10);

/// The limits of a device, in both directions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RateLimits {
    /// Of what its QPs send.
    pub tx: RateLimit,
    /// Of what its QPs receive.
    pub rx: RateLimit,
}

/// What was held back because of a device's rates.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RateCounters {
    /// How often its QPs had to wait before they sent more requests, or more answers. A rate of
    /// a single QP counts, too. Waits at the same time count once.
    pub tx_held: u64,
    /// For how many nanoseconds any of them waited.
    pub tx_held_ns: u64,
    /// How often a message for it waited at its sender, or data in a stream, or its acknowledges.
    /// Waits at the same time count once.
    pub rx_held: u64,
    /// For how many nanoseconds any of these waited.
    pub rx_held_ns: u64,
    /// Packets and datagrams of unreliable services that were dropped.
    pub rx_limited: u64,
}

/// A direction, as the device sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// What leaves the device.
    Tx,
    /// What comes to it.
    Rx,
}

/// One direction of a device with rates.
#[derive(Default)]
struct OneWay {
    meter: Meter,
    /// Until when the senders have been told to wait that wait already.
    reserved: Instant,
    /// Until when waits were counted.
    counted: Instant,
}

/// A device with rates.
#[derive(Default)]
struct Limited {
    tx: OneWay,
    rx: OneWay,
    counters: RateCounters,
    /// Until when nothing is taken out of its streams. `Rates::stopped` has it, too.
    streams_stopped: Option<Instant>,
}

impl OneWay {
    /// Returns when the next sender may go on that waits; `None` if none has to wait.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        self.meter.wait(now).map(|at| at.max(self.reserved))
    }
}

impl Limited {
    fn has_limits(&self) -> bool {
        !(self.tx.meter.is_none() && self.rx.meter.is_none())
    }

    fn way(&self, flow: Flow) -> &OneWay {
        match flow {
            Flow::Tx => &self.tx,
            Flow::Rx => &self.rx,
        }
    }

    fn way_mut(&mut self, flow: Flow) -> &mut OneWay {
        match flow {
            Flow::Tx => &mut self.tx,
            Flow::Rx => &mut self.rx,
        }
    }

    /// Counts a wait. What of it was counted before is not counted again.
    fn waited(&mut self, flow: Flow, (since, until): (Instant, Instant)) {
        let counted = &mut self.way_mut(flow).counted;
        let is_new = since >= *counted;
        let nanos = until.0.saturating_sub(since.max(*counted).0);
        *counted = until.max(*counted);
        let RateCounters { tx_held, tx_held_ns, rx_held, rx_held_ns, .. } = &mut self.counters;
        let (times, sum) = match flow {
            Flow::Tx => (tx_held, tx_held_ns),
            Flow::Rx => (rx_held, rx_held_ns),
        };
        (*times, *sum) = (*times + u64::from(is_new), *sum + nanos);
    }
}

/// When a sender may go on that waits for a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reserved {
    pub(crate) at: Instant,
    /// How many bytes it may move then, whatever has moved meanwhile. `None`: it only looks again.
    pub(crate) bytes: Option<u64>,
}

/// What a sender has for the ends of its message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// At most this many bytes, of which a part may move.
    UpTo(u64),
    /// This many bytes, all of which are asked for at once.
    Whole(u64),
}

/// The rates of all devices and QPs.
#[derive(Default)]
pub(crate) struct Rates {
    /// By the device's index. Devices without rates have nothing here.
    devices: BTreeMap<u32, Limited>,
    /// QPs with a rate of their own.
    qps: BTreeMap<QpRef, Meter>,
    /// QPs that have waited for a time of their own, or do so, and the bytes that they may move
    /// then.
    granted: BTreeMap<QpRef, u64>,
    /// Devices that take nothing out of their streams, by the time until which they do not.
    stopped: BTreeSet<(Instant, u32)>,
    /// Whether any device or QP has a rate.
    has_limits: bool,
    /// Whether there is any rate, or something waits for one that there was.
    any: bool,
    /// The time of the current call, if there is any rate.
    now: Instant,
}

impl Rates {
    /// Whether any device or QP has a rate, or something waits. If not, nothing below has an
    /// effect.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Records the time. It does not go back.
    pub(crate) fn see(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Returns the time of the current call.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Sets the rates of a device, or takes them away.
    ///
    /// Grants were made by the old rates, at any end of a message. Whoever waits gets another one.
    pub(crate) fn set_device(&mut self, device: u32, limits: &RateLimits) {
        self.granted.clear();
        self.look_again(device);
        if limits.tx.is_none() && limits.rx.is_none() {
            // Counters stay for the operator.
            if let Some(limited) = self.devices.get_mut(&device) {
                *limited = Limited { counters: limited.counters, ..Limited::default() };
            }
        } else {
            let limited = self.devices.entry(device).or_default();
            limited.tx.meter.set(self.now, &limits.tx);
            limited.rx.meter.set(self.now, &limits.rx);
            // What was promised was so by the old rates.
            (limited.tx.reserved, limited.rx.reserved) = (self.now, self.now);
        }
        self.follow();
    }

    /// Sets the rate of a QP, or takes it away.
    pub(crate) fn set_qp(&mut self, place: QpRef, limit: &RateLimit) {
        self.drop_grant(place);
        if limit.is_none() {
            self.qps.remove(&place);
        } else {
            self.qps.entry(place).or_default().set(self.now, limit);
            // Its waits are counted there.
            self.devices.entry(place.device).or_default();
        }
        self.follow();
    }

    /// Forgets a destroyed QP.
    pub(crate) fn forget_qp(&mut self, place: QpRef) {
        self.granted.remove(&place);
        if self.qps.remove(&place).is_some() {
            self.follow();
        }
    }

    /// Forgets the rates of QPs of a device. Its own rates stay.
    pub(crate) fn forget_qps(&mut self, device: u32) {
        self.qps.retain(|place, _| place.device != device);
        self.granted.retain(|place, _| place.device != device);
        self.follow();
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.look_again(device);
        self.devices.remove(&device);
        self.forget_qps(device);
    }

    fn follow(&mut self) {
        self.has_limits = !self.qps.is_empty() || self.devices.values().any(Limited::has_limits);
        self.any |= self.has_limits;
    }

    /// Notes that a QP waits for a time, whether there is a rate or not.
    pub(crate) fn something_waits(&mut self, now: Instant) {
        self.any = true;
        self.see(now);
    }

    /// Notes that nothing waits.
    pub(crate) fn nothing_waits(&mut self) {
        if !self.has_limits {
            self.any = false;
            self.granted.clear();
        }
    }

    /// Returns the counters of a device.
    pub(crate) fn counters(&self, device: u32) -> RateCounters {
        self.devices.get(&device).map(|limited| limited.counters).unwrap_or_default()
    }

    /// Whether a device has rates, or a QP of it one of its own.
    pub(crate) fn concern(&self, device: u32) -> bool {
        let first = QpRef { device, qpn: Qpn::truncate(0) };
        self.devices.get(&device).is_some_and(Limited::has_limits)
            || self.qps.range(first..).next().is_some_and(|(place, _)| place.device == device)
    }

    /// Returns until when nothing more may move; `None` if something may now.
    pub(crate) fn wait(&self, device: u32, flow: Flow) -> Option<Instant> {
        self.devices.get(&device)?.way(flow).meter.wait(self.now)
    }

    /// Returns until when a QP has to wait because of its own rate.
    pub(crate) fn wait_of_qp(&self, place: QpRef) -> Option<Instant> {
        self.qps.get(&place)?.wait(self.now)
    }

    /// Returns how many bytes may move without a debt.
    pub(crate) fn left(&self, device: u32, flow: Flow) -> u64 {
        let Some(limited) = self.devices.get(&device) else { return u64::MAX };
        limited.way(flow).meter.bytes_left(self.now).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes a device may save up.
    pub(crate) fn holds(&self, device: u32, flow: Flow) -> u64 {
        self.devices.get(&device).map_or(u64::MAX, |limited| limited.way(flow).meter.holds())
    }

    /// Returns how many bytes of answers a device may send that have waited, although it has a
    /// debt.
    ///
    /// It is what the rate brings in half of the time that answers wait at most. The debt does not
    /// grow beyond [`LONGEST_DEBT`] by it, so all of it counts.
    pub(crate) fn holds_of_answers(&self, device: u32) -> u64 {
        let Some(limited) = self.devices.get(&device) else { return u64::MAX };
        let meter = &limited.tx.meter;
        let owed = meter.wait(self.now).map_or(0, |until| until.0 - self.now.0);
        let time = LONGEST_DEBT.saturating_sub(Duration::from_nanos(owed)).min(PATIENCE / 2);
        meter.bytes_in(time).min(meter.holds())
    }

    /// Returns how many bytes a QP may save up.
    pub(crate) fn holds_of_qp(&self, place: QpRef) -> u64 {
        self.qps.get(&place).map_or(u64::MAX, Meter::holds)
    }

    /// Returns how many messages a device may send without a debt.
    pub(crate) fn messages_left(&self, device: u32) -> u64 {
        let limited = self.devices.get(&device);
        limited.and_then(|limited| limited.tx.meter.messages_left(self.now)).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes a QP may send without a debt.
    pub(crate) fn left_of_qp(&self, place: QpRef) -> u64 {
        self.qps.get(&place).and_then(|meter| meter.bytes_left(self.now)).unwrap_or(u64::MAX)
    }

    /// Counts what came by a connection without being asked for, and returns until when nothing
    /// more may.
    pub(crate) fn charge_unasked(&mut self, device: u32, bytes: u64, messages: u64) -> Option<Instant> {
        self.charge_up_to((device, Flow::Rx), (bytes, messages), LONGEST_DEBT)
    }

    /// Counts what a device has asked for, and returns until when nothing more may move.
    pub(crate) fn charge_asked(&mut self, device: u32, bytes: u64) -> Option<Instant> {
        self.charge_up_to((device, Flow::Rx), (bytes, 0), LONGEST_OF_READS)
    }

    /// Counts the data of answers that a device has sent, and returns until when nothing more may
    /// move.
    pub(crate) fn charge_answers(&mut self, device: u32, bytes: u64, messages: u64) -> Option<Instant> {
        self.charge_up_to((device, Flow::Tx), (bytes, messages), LONGEST_DEBT)
    }

    fn charge_up_to(
        &mut self,
        (device, flow): (u32, Flow),
        (bytes, messages): (u64, u64),
        most: Duration,
    ) -> Option<Instant> {
        let now = self.now;
        let meter = &mut self.devices.get_mut(&device)?.way_mut(flow).meter;
        meter.charge_up_to(now, bytes, messages, most);
        meter.wait(now)
    }

    /// Counts what has moved, and returns until when nothing more may.
    pub(crate) fn charge(&mut self, device: u32, flow: Flow, bytes: u64, messages: u64) -> Option<Instant> {
        let now = self.now;
        let meter = &mut self.devices.get_mut(&device)?.way_mut(flow).meter;
        meter.charge(now, bytes, messages);
        meter.wait(now)
    }

    /// Counts what a QP has sent.
    pub(crate) fn charge_qp(&mut self, place: QpRef, bytes: u64, messages: u64) {
        let now = self.now;
        if let Some(meter) = self.qps.get_mut(&place) {
            meter.charge(now, bytes, messages);
        }
    }

    /// Returns when a sender may go on, if a device at one of these ends of its message has to
    /// wait.
    ///
    /// Senders that wait get times one after the other, so that they do not all come at once.
    /// At its time a sender may move as many bytes as a full bucket holds, or all that it asks for
    /// at once. No other sender has the time that this takes. What is asked for takes as long as
    /// its debt may be.
    pub(crate) fn reserve(&mut self, ends: &[(u32, Flow)], next: Next) -> Option<Reserved> {
        let now = self.now;
        // A sender with a late time looks again before that, because others may have gone, or the
        // rate may have changed.
        let latest = now + SLOW_CHECK;
        let (mut bytes, most) = match next {
            Next::UpTo(bytes) => (bytes, Duration::MAX),
            Next::Whole(bytes) => (bytes, LONGEST_OF_READS),
        };
        let mut last = None;
        for &(device, flow) in ends {
            let Some(limited) = self.devices.get(&device) else { continue };
            let way = limited.way(flow);
            last = last.max(way.next_time(now));
            if let Next::UpTo(_) = next {
                bytes = bytes.min(way.meter.holds());
            }
        }
        // Of several times, the last one counts. It goes then, or it would find the first one used
        // by others for ever.
        let at = last?;
        let is_its_own = at <= latest;
        for &(device, flow) in ends {
            let Some(limited) = self.devices.get_mut(&device) else { continue };
            let way = limited.way_mut(flow);
            let Some(time) = way.next_time(now) else { continue };
            if is_its_own {
                way.reserved = time + way.meter.time_of(bytes, 1).min(most);
            }
            limited.waited(flow, (now, time.min(latest)));
        }
        Some(Reserved { at: at.min(latest), bytes: is_its_own.then_some(bytes) })
    }

    /// Lets a QP go on when it has waited for its time, although others have moved something
    /// meanwhile. It may move this many bytes then.
    pub(crate) fn grant(&mut self, place: QpRef, bytes: u64) {
        self.granted.insert(place, bytes);
    }

    /// Returns how many bytes a QP may move that has waited for a time of its own. It uses that
    /// time now.
    pub(crate) fn take_grant(&mut self, place: QpRef) -> Option<u64> {
        self.granted.remove(&place)
    }

    /// Whether a QP has a time of its own at which it may move something.
    pub(crate) fn has_grant(&self, place: QpRef) -> bool {
        self.granted.contains_key(&place)
    }

    /// Forgets what a QP may move at its time. It waits for another one, if it still has to.
    pub(crate) fn drop_grant(&mut self, place: QpRef) {
        self.granted.remove(&place);
    }

    /// Counts a wait of a device.
    pub(crate) fn waited(&mut self, device: u32, flow: Flow, wait: (Instant, Instant)) {
        if let Some(limited) = self.devices.get_mut(&device) {
            limited.waited(flow, wait);
        }
    }

    /// Notes that nothing is taken out of a device's streams until some time.
    pub(crate) fn stop_streams(&mut self, device: u32, until: Instant) {
        let now = self.now;
        if let Some(limited) = self.devices.get_mut(&device) {
            let before = limited.streams_stopped.replace(until);
            limited.waited(Flow::Rx, (now, until));
            if before != Some(until) {
                if let Some(before) = before {
                    self.stopped.remove(&(before, device));
                }
                self.stopped.insert((until, device));
            }
        }
    }

    /// Lets a device look at its streams.
    fn look_again(&mut self, device: u32) {
        let limited = self.devices.get_mut(&device);
        if let Some(at) = limited.and_then(|limited| limited.streams_stopped.take()) {
            self.stopped.remove(&(at, device));
        }
    }

    /// Returns when a device may take something out of its streams again.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.stopped.first().map(|&(at, _)| at)
    }

    /// Forgets the times that have come at which devices look at their streams.
    pub(crate) fn look_at_streams(&mut self) {
        while let Some(&(at, device)) = self.stopped.first()
            && at <= self.now
        {
            self.look_again(device);
        }
    }

    /// Whether a packet or datagram of an unreliable service may come for a device. If not, it is
    /// counted as dropped.
    ///
    /// One that comes counts once it was [taken](Rates::charge), so that others cost nothing.
    pub(crate) fn admits(&mut self, device: u32) -> bool {
        let now = self.now;
        let Some(limited) = self.devices.get_mut(&device) else { return true };
        let is_free = limited.rx.meter.wait(now).is_none();
        limited.counters.rx_limited += u64::from(!is_free);
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::num::NonZeroU64;
    use vrdma_wire::num::Qpn;

    /// A device that may receive a megabyte in a second.
    fn limited() -> (Rates, RateLimits) {
        let rx =
            RateLimit { bytes: NonZeroU64::new(1_000_000), messages: None, burst: Duration::from_millis(10) };
        let (mut rates, limits) = (Rates::default(), RateLimits { rx, ..RateLimits::default() });
        rates.set_device(7, &limits);
        (rates, limits)
    }

    #[test]
    fn a_sender_that_has_waited_goes_on_although_others_send_more_than_they_may() {
        let (mut rates, _) = limited();
        let place = QpRef { device: 1, qpn: Qpn::truncate(5) };
        let mut now = Instant(0);
        for round in 0..100 {
            // Another host never stops.
            for _ in 0..1000 {
                rates.charge_unasked(7, 4096, 1);
            }
            let until = rates.wait(7, Flow::Rx).expect("the rate is used up");
            assert!(until <= now + LONGEST_DEBT + Duration::from_millis(5), "{round}: {until:?}");
            assert_eq!(rates.take_grant(place), None);
            let reserved = rates.reserve(&[(7, Flow::Rx)], Next::UpTo(1000)).expect("the rate is used up");
            assert!(reserved.at >= until && reserved.at <= now + SLOW_CHECK, "{round}: {reserved:?}");
            rates.grant(place, reserved.bytes.expect("it has a time of its own"));
            now = reserved.at;
            rates.see(now);
            rates.charge_unasked(7, 4096, 1);
            // It goes once.
            assert!(rates.wait(7, Flow::Rx).is_some());
            assert_eq!((rates.take_grant(place), rates.take_grant(place)), (Some(1000), None));
        }
    }

    #[test]
    fn a_sender_with_a_late_time_looks_again_and_keeps_no_other_from_an_earlier_one() {
        let (mut rates, _) = limited();
        let end = [(7, Flow::Rx)];
        assert_eq!(rates.reserve(&end, Next::UpTo(1000)), None, "nothing waits");
        rates.charge(7, Flow::Rx, 10_000_000, 1);
        let place = |qpn| QpRef { device: 1, qpn: Qpn::truncate(qpn) };
        let until = rates.wait(7, Flow::Rx).expect("the rate is used up");
        assert!(until > Instant(0) + Duration::from_secs(9));
        let looks = Reserved { at: Instant(0) + SLOW_CHECK, bytes: None };
        assert_eq!(rates.reserve(&end, Next::UpTo(1000)), Some(looks));
        // Who comes next has a time behind those that have one, in the same direction. No more
        // moves then than a full bucket holds, in whole pieces.
        rates.see(Instant(until.0 - 10_000));
        let soon = [2000, 1 << 20, 1].map(|next| rates.reserve(&end, Next::UpTo(next)).expect("it waits"));
        let (millis, bytes) = ([0, 2, 2 + 8], [2000, 8192, 1]);
        for ((reserved, millis), bytes) in soon.into_iter().zip(millis).zip(bytes) {
            assert!(reserved.at.0.abs_diff(until.0 + millis * 1_000_000) < 200_000, "{reserved:?}");
            assert_eq!(reserved.bytes, Some(bytes));
        }
        assert_eq!(rates.reserve(&[(7, Flow::Tx)], Next::UpTo(1)), None, "another direction");
        // What is gone has nothing.
        [2, 3].into_iter().for_each(|qpn| rates.grant(place(qpn), 1));
        rates.forget_qp(place(2));
        rates.forget_qps(1);
        assert!([2, 3].into_iter().all(|qpn| rates.take_grant(place(qpn)).is_none()));
    }

    /// A READ has two ends. If one has no time soon, the other's time stays for others.
    #[test]
    fn who_only_looks_again_at_one_end_takes_no_time_of_the_other() {
        let (mut rates, limits) = limited();
        rates.set_device(8, &limits);
        rates.charge(7, Flow::Rx, 10_000, 1);
        rates.charge(8, Flow::Rx, 10_000_000, 1);
        let until = rates.wait(7, Flow::Rx).expect("the rate is used up");
        for _ in 0..5 {
            let both = rates.reserve(&[(7, Flow::Rx), (8, Flow::Rx)], Next::UpTo(4096)).expect("both wait");
            assert_eq!(both, Reserved { at: Instant(0) + SLOW_CHECK, bytes: None });
        }
        let one = rates.reserve(&[(7, Flow::Rx)], Next::UpTo(4096));
        assert_eq!(one, Some(Reserved { at: until, bytes: Some(4096) }));
    }

    /// A READ asks for all of its data at once. Those behind it wait until they are paid.
    #[test]
    fn what_is_asked_for_at_once_takes_its_whole_time() {
        let (mut rates, _) = limited();
        let end = [(7, Flow::Rx)];
        rates.charge(7, Flow::Rx, 10_000, 1);
        let until = rates.wait(7, Flow::Rx).expect("the rate is used up");
        let first = rates.reserve(&end, Next::Whole(50_000));
        assert_eq!(first, Some(Reserved { at: until, bytes: Some(50_000) }));
        let second = rates.reserve(&end, Next::Whole(1 << 31));
        let after = until + Duration::from_millis(50);
        assert_eq!(second, Some(Reserved { at: after, bytes: Some(1 << 31) }));
        let looks = Reserved { at: Instant(0) + SLOW_CHECK, bytes: None };
        assert_eq!(rates.reserve(&end, Next::Whole(1)), Some(looks));
        // No more than the longest debt is kept free.
        rates.see(after + LONGEST_OF_READS);
        rates.charge(7, Flow::Rx, 1_000_000, 1);
        rates.see(Instant(rates.wait(7, Flow::Rx).expect("it owes").0 - 1_000_000));
        let third = rates.reserve(&end, Next::Whole(1)).expect("it waits");
        assert_eq!(third.bytes, Some(1));
    }

    #[test]
    fn other_rates_make_other_grants() {
        let (mut rates, limits) = limited();
        let [one, other] = [1, 2].map(|qpn| QpRef { device: 1, qpn: Qpn::truncate(qpn) });
        [one, other].into_iter().for_each(|place| rates.grant(place, 1 << 18));
        rates.set_qp(one, &limits.rx);
        assert_eq!([one, other].map(|place| rates.has_grant(place)), [false, true]);
        // They are another device's, and may be for this one.
        rates.set_device(7, &limits);
        assert_eq!((rates.has_grant(other), rates.take_grant(other)), (false, None));
    }

    #[test]
    fn answers_that_have_waited_move_what_counts() {
        let (mut rates, _) = limited();
        let tx = |bytes, millis| RateLimits {
            tx: RateLimit {
                bytes: NonZeroU64::new(bytes),
                messages: None,
                burst: Duration::from_millis(millis),
            },
            ..RateLimits::default()
        };
        // Half of 16 ms, or what a bucket holds, which is two pieces at least.
        for (bytes, millis, expected) in
            [(100_000_000, 10, 800_000), (100_000_000, 1, 98_304), (1_000_000, 10, 8_000), (1, 10, 0)]
        {
            rates.set_device(5, &tx(bytes, millis));
            assert_eq!(rates.holds_of_answers(5), expected);
        }
        // What would be beyond the longest debt does not count, so it does not move.
        rates.set_device(6, &tx(1_000_000, 10));
        rates.charge(6, Flow::Tx, 10_000 + 30_000, 1);
        assert!(rates.holds_of_answers(6).abs_diff(2_000) < 10, "{}", rates.holds_of_answers(6));
        rates.charge(6, Flow::Tx, 10_000, 1);
        assert_eq!(rates.holds_of_answers(6), 0);
        assert_eq!(rates.holds_of_answers(8), u64::MAX, "a device without rates");
    }

    #[test]
    fn devices_whose_streams_are_stopped_look_at_them_in_the_order_of_their_times() {
        let (mut rates, limits) = limited();
        [5, 6, 9].into_iter().for_each(|device| rates.set_device(device, &limits));
        for (device, at) in [(5, 30), (6, 20), (7, 40), (9, 10), (7, 25)] {
            rates.stop_streams(device, Instant(at));
        }
        rates.stop_streams(1000, Instant(1));
        assert_eq!(rates.next_look(), Some(Instant(10)), "devices without rates do not stop");
        rates.forget(9);
        rates.see(Instant(20));
        rates.look_at_streams();
        assert_eq!(rates.next_look(), Some(Instant(25)));
        // Other rates are another time.
        rates.set_device(7, &limits);
        assert_eq!(rates.next_look(), Some(Instant(30)));
        rates.set_device(5, &RateLimits::default());
        assert_eq!((rates.next_look(), rates.stopped.len()), (None, 0));
    }

    #[test]
    fn rates_that_are_gone_cost_nothing_once_nothing_waits() {
        let (mut rates, limits) = limited();
        let place = QpRef { device: 7, qpn: Qpn::truncate(5) };
        rates.set_qp(place, &limits.rx);
        rates.nothing_waits();
        assert!(rates.any() && rates.concern(7));
        rates.set_device(7, &RateLimits::default());
        rates.nothing_waits();
        assert!(rates.any() && rates.concern(7) && !rates.concern(6) && !rates.concern(8));
        rates.forget_qp(place);
        assert!(rates.any() && !rates.concern(7), "something may wait");
        rates.nothing_waits();
        assert!(!rates.any());
    }

    #[test]
    fn what_is_dropped_is_counted_and_costs_nothing() {
        let (mut rates, _) = limited();
        for _ in 0..3 {
            assert!(rates.admits(7));
            rates.charge(7, Flow::Rx, 4000, 1);
        }
        assert!((0..5).all(|_| !rates.admits(7)));
        assert_eq!(rates.counters(7).rx_limited, 5);
        rates.see(Instant(2_001_000));
        assert!(rates.admits(7));
        assert!((0..5).all(|_| rates.admits(8)), "a device without rates");
    }

    #[test]
    fn waits_at_the_same_time_count_once() {
        let (mut rates, _) = limited();
        let waits = [(10, 20), (10, 20), (15, 25), (12, 18), (25, 30), (40, 50)];
        for (since, until) in waits {
            rates.waited(7, Flow::Tx, (Instant(since), Instant(until)));
        }
        // Another direction, and another device.
        rates.waited(7, Flow::Rx, (Instant(0), Instant(5)));
        rates.waited(8, Flow::Tx, (Instant(0), Instant(5)));
        let expected = RateCounters { tx_held: 3, tx_held_ns: 30, rx_held: 1, rx_held_ns: 5, rx_limited: 0 };
        assert_eq!(rates.counters(7), expected);
    }

    #[test]
    fn a_read_makes_no_longer_debt_than_its_limit() {
        let (mut rates, _) = limited();
        let until = rates.charge_asked(7, 1 << 31).expect("it is more than the rate");
        assert!(until > Instant(0) + LONGEST_OF_READS, "{until:?}");
        assert!(until <= Instant(0) + LONGEST_OF_READS + Duration::from_millis(10), "{until:?}");
        // Others add nothing.
        assert_eq!(rates.charge_asked(7, 1 << 31), Some(until));
    }
}
