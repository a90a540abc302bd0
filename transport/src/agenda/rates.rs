//! The rates of devices and of QPs, and what was held back for them.

use crate::agenda::rate::{Meter, RateLimit};
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, SLOW_CHECK};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// How long answers of a device wait at most because of its rates.
///
/// Acknowledges that wait slow senders on other hosts. The wait is a quarter of the usual local ACK
/// timeout (code 14), so nothing is sent again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(16);
/// The longest debt of a device for what comes by connections, which cannot be stopped at once.
///
/// Acknowledges wait no longer than [`PATIENCE`]. A longer debt would hold up only senders on this
/// host, and for as long as others send too much.
const LONGEST_DEBT: Duration = PATIENCE.saturating_mul(2);

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
    /// a single QP counts, too.
    pub tx_held: u64,
    /// How many nanoseconds they waited.
    pub tx_held_ns: u64,
    /// How often a message for it waited at its sender, or data in a stream, or its acknowledges.
    pub rx_held: u64,
    /// How many nanoseconds that took.
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

/// A device with rates.
#[derive(Default)]
struct Limited {
    tx: Meter,
    rx: Meter,
    counters: RateCounters,
    /// Until when the senders have been told to wait that wait already.
    reserved: Instant,
}

impl Limited {
    fn has_limits(&self) -> bool {
        !(self.tx.is_none() && self.rx.is_none())
    }

    fn meter(&mut self, flow: Flow) -> &mut Meter {
        match flow {
            Flow::Tx => &mut self.tx,
            Flow::Rx => &mut self.rx,
        }
    }
}

/// The rates of all devices and QPs.
#[derive(Default)]
pub(crate) struct Rates {
    /// By the device's index. Devices without rates have nothing here.
    devices: BTreeMap<u32, Limited>,
    /// QPs with a rate of their own.
    qps: BTreeMap<QpRef, Meter>,
    /// QPs that have waited for their time, or do so. They then have a turn, whatever has come
    /// meanwhile.
    granted: BTreeSet<QpRef>,
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
    pub(crate) fn set_device(&mut self, device: u32, limits: &RateLimits) {
        if limits.tx.is_none() && limits.rx.is_none() {
            // Counters stay for the operator.
            if let Some(limited) = self.devices.get_mut(&device) {
                *limited = Limited { counters: limited.counters, ..Limited::default() };
            }
        } else {
            let limited = self.devices.entry(device).or_default();
            limited.tx.set(self.now, &limits.tx);
            limited.rx.set(self.now, &limits.rx);
        }
        self.follow();
    }

    /// Sets the rate of a QP, or takes it away.
    pub(crate) fn set_qp(&mut self, place: QpRef, limit: &RateLimit) {
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
        self.granted.retain(|place| place.device != device);
        self.follow();
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.devices.remove(&device);
        self.forget_qps(device);
    }

    fn follow(&mut self) {
        self.has_limits = !self.qps.is_empty() || self.devices.values().any(Limited::has_limits);
        self.any |= self.has_limits;
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
    pub(crate) fn is_limited(&self, place: QpRef) -> bool {
        self.devices.get(&place.device).is_some_and(Limited::has_limits) || self.qps.contains_key(&place)
    }

    /// Returns until when nothing more may move; `None` if something may now.
    pub(crate) fn wait(&self, device: u32, flow: Flow) -> Option<Instant> {
        let limited = self.devices.get(&device)?;
        let meter = if flow == Flow::Tx { &limited.tx } else { &limited.rx };
        meter.wait(self.now)
    }

    /// Returns until when a QP has to wait because of its own rate.
    pub(crate) fn wait_of_qp(&self, place: QpRef) -> Option<Instant> {
        self.qps.get(&place)?.wait(self.now)
    }

    /// Returns how many bytes may move without a debt.
    pub(crate) fn left(&self, device: u32, flow: Flow) -> u64 {
        let Some(limited) = self.devices.get(&device) else { return u64::MAX };
        let meter = if flow == Flow::Tx { &limited.tx } else { &limited.rx };
        meter.bytes_left(self.now).unwrap_or(u64::MAX)
    }

    /// Returns how many messages a device may send without a debt.
    pub(crate) fn messages_left(&self, device: u32) -> u64 {
        self.devices.get(&device).and_then(|limited| limited.tx.messages_left(self.now)).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes a QP may send without a debt.
    pub(crate) fn left_of_qp(&self, place: QpRef) -> u64 {
        self.qps.get(&place).and_then(|meter| meter.bytes_left(self.now)).unwrap_or(u64::MAX)
    }

    /// Counts what came by a connection without being asked for, and returns until when nothing
    /// more may.
    pub(crate) fn charge_unasked(&mut self, device: u32, bytes: u64, messages: u64) -> Option<Instant> {
        let now = self.now;
        let meter = self.devices.get_mut(&device)?.meter(Flow::Rx);
        meter.charge_up_to(now, bytes, messages, LONGEST_DEBT);
        meter.wait(now)
    }

    /// Counts what has moved, and returns until when nothing more may.
    pub(crate) fn charge(&mut self, device: u32, flow: Flow, bytes: u64, messages: u64) -> Option<Instant> {
        let now = self.now;
        let meter = self.devices.get_mut(&device)?.meter(flow);
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

    /// Returns when a sender may go on that waits for a device until `at`, at the earliest.
    ///
    /// Senders that wait get times one after the other, so that they do not all come at once. Who
    /// has waited for its time [goes on](Rates::is_granted) even if others have used the rate
    /// meanwhile. `next` is what the sender has for the device.
    pub(crate) fn reserve(
        &mut self,
        place: QpRef,
        (device, flow): (u32, Flow),
        at: Instant,
        next: u64,
    ) -> Instant {
        let now = self.now;
        let Some(limited) = self.devices.get_mut(&device) else { return at };
        // A sender with a late time looks again before that, because others may have gone, or the
        // rate may have changed.
        let (at, latest) = (at.max(limited.reserved), now + SLOW_CHECK);
        if at <= latest {
            limited.reserved = at + limited.meter(flow).time_of(next, 1);
            if flow == Flow::Rx {
                self.granted.insert(place);
            }
        }
        let at = at.min(latest);
        if flow == Flow::Rx {
            limited.counters.rx_held += 1;
            limited.counters.rx_held_ns += at.0.saturating_sub(now.0);
        }
        at
    }

    /// Whether a QP has waited for a receiver's time, which it now uses.
    pub(crate) fn is_granted(&mut self, place: QpRef) -> bool {
        self.granted.remove(&place)
    }

    /// Counts a wait of a QP for its own rate.
    pub(crate) fn held_qp(&mut self, place: QpRef, at: Instant) {
        let held = at.0.saturating_sub(self.now.0);
        self.held(place.device, Flow::Tx, Duration::from_nanos(held));
    }

    /// Counts a wait of a device, which lasted for `held`.
    pub(crate) fn held(&mut self, device: u32, flow: Flow, held: Duration) {
        let Some(limited) = self.devices.get_mut(&device) else { return };
        let nanos = held.as_nanos() as u64;
        let RateCounters { tx_held, tx_held_ns, rx_held, rx_held_ns, .. } = &mut limited.counters;
        let (times, sum) = match flow {
            Flow::Tx => (tx_held, tx_held_ns),
            Flow::Rx => (rx_held, rx_held_ns),
        };
        (*times, *sum) = (*times + 1, *sum + nanos);
    }

    /// Takes a packet of an unreliable service for a device. Returns whether it may be delivered.
    ///
    /// If not, it is counted as dropped.
    pub(crate) fn admit(&mut self, device: u32, bytes: u64, messages: u64) -> bool {
        let now = self.now;
        let Some(limited) = self.devices.get_mut(&device) else { return true };
        if limited.rx.wait(now).is_some() {
            limited.counters.rx_limited += 1;
            return false;
        }
        limited.rx.charge(now, bytes, messages);
        true
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
            assert!(!rates.is_granted(place));
            let at = rates.reserve(place, (7, Flow::Rx), until, 1000);
            assert!(at <= now + SLOW_CHECK, "{round}: {at:?}");
            now = at;
            rates.see(now);
            rates.charge_unasked(7, 4096, 1);
            // It goes once.
            assert!(rates.wait(7, Flow::Rx).is_some() && rates.is_granted(place));
        }
    }

    #[test]
    fn a_sender_with_a_late_time_looks_again_and_is_granted_nothing_before() {
        let (mut rates, _) = limited();
        rates.charge(7, Flow::Rx, 10_000_000, 1);
        let place = |qpn| QpRef { device: 1, qpn: Qpn::truncate(qpn) };
        let until = rates.wait(7, Flow::Rx).expect("the rate is used up");
        assert!(until > Instant(0) + Duration::from_secs(9));
        assert_eq!(rates.reserve(place(1), (7, Flow::Rx), until, 1000), Instant(0) + SLOW_CHECK);
        assert!(!rates.is_granted(place(1)));
        // Who comes next has a time behind those that have one.
        let soon = Instant(1_000_000);
        let times = [2, 3].map(|qpn| rates.reserve(place(qpn), (7, Flow::Rx), soon, 1000));
        assert_eq!(times, [soon, soon + Duration::from_millis(1)]);
        // What is gone has nothing.
        rates.forget_qp(place(2));
        rates.forget_qps(1);
        assert!(![2, 3].into_iter().any(|qpn| rates.is_granted(place(qpn))));
    }

    #[test]
    fn rates_that_are_gone_cost_nothing_once_nothing_waits() {
        let (mut rates, limits) = limited();
        let place = QpRef { device: 7, qpn: Qpn::truncate(5) };
        rates.set_qp(place, &limits.rx);
        rates.nothing_waits();
        assert!(rates.any() && rates.is_limited(place));
        rates.set_device(7, &RateLimits::default());
        rates.nothing_waits();
        let other = QpRef { device: 7, qpn: Qpn::truncate(6) };
        assert!(rates.any() && rates.is_limited(place) && !rates.is_limited(other));
        rates.forget_qp(place);
        assert!(rates.any() && !rates.is_limited(place), "something may wait");
        rates.nothing_waits();
        assert!(!rates.any());
    }

    #[test]
    fn what_is_dropped_is_counted_and_costs_nothing() {
        let (mut rates, _) = limited();
        // Packets behind the first one of a message are no messages.
        assert!((0..3).all(|_| rates.admit(7, 4000, 0)));
        assert!((0..5).all(|_| !rates.admit(7, 4000, 1)));
        assert_eq!(rates.counters(7).rx_limited, 5);
        rates.see(Instant(2_001_000));
        assert!(rates.admit(7, 4000, 1));
        assert!((0..5).all(|_| rates.admit(8, 4000, 1)), "a device without rates");
    }
}
