//! Rates of guests' frames.
//!
//! Frames that a guest sends wait in its transmit queue while its rate is used up. Frames to a
//! guest are dropped then, as a NIC does that has no room.

use vrdma_transport::{Instant, Meter, RateLimits};

/// Bytes of the longest frame that is sent at once.
const PIECE: u64 = 64 << 10;

/// The rates of a guest.
#[derive(Debug)]
struct GuestRates {
    tx: Meter,
    rx: Meter,
    /// Since when its frames wait.
    held_since: Option<Instant>,
    counters: HeldFrames,
}

impl Default for GuestRates {
    fn default() -> GuestRates {
        let meter = Meter::of_pieces(PIECE);
        GuestRates { tx: meter.clone(), rx: meter, held_since: None, counters: HeldFrames::default() }
    }
}

/// The counters of what rates held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HeldFrames {
    /// How often frames had to wait in the transmit queue because of the guest's rate.
    pub tx_held: u64,
    /// How many microseconds they waited.
    pub tx_held_us: u64,
    /// Dropped: more frames to the guest than its rate allows.
    pub rx_limited: u64,
}

/// The rates of all guests.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// By the guest's number; `None` for guests without rates.
    guests: Vec<Option<Box<GuestRates>>>,
    now: Instant,
}

impl Rates {
    /// Records the time.
    pub fn see(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Sets the rates of a guest.
    pub fn set(&mut self, guest: usize, limits: &RateLimits) {
        if guest >= self.guests.len() {
            self.guests.resize_with(guest + 1, || None);
        }
        if self.guests[guest].is_none() && limits.tx.is_none() && limits.rx.is_none() {
            return;
        }
        // Counters stay for the operator, even without rates.
        let rates = self.guests[guest].get_or_insert_default();
        rates.tx.set(self.now, &limits.tx);
        rates.rx.set(self.now, &limits.rx);
    }

    /// Forgets the rates and counters of a guest that is removed.
    pub fn remove(&mut self, guest: usize) {
        if let Some(rates) = self.guests.get_mut(guest) {
            *rates = None;
        }
    }

    #[inline]
    fn of(&self, guest: usize) -> Option<&GuestRates> {
        self.guests.get(guest)?.as_deref()
    }

    #[inline]
    fn of_mut(&mut self, guest: usize) -> Option<&mut GuestRates> {
        self.guests.get_mut(guest)?.as_deref_mut()
    }

    /// Whether a guest has rates, or had some.
    #[inline]
    pub fn has(&self, guest: usize) -> bool {
        self.of(guest).is_some()
    }

    /// Returns until when a guest's frames have to wait.
    #[inline]
    pub fn wait(&self, guest: usize) -> Option<Instant> {
        self.of(guest)?.tx.wait(self.now)
    }

    /// Whether frames of a guest, which there are, have to wait. The wait is counted.
    pub fn holds(&mut self, guest: usize) -> bool {
        let now = self.now;
        let Some(rates) = self.of_mut(guest) else { return false };
        if rates.tx.wait(now).is_some() {
            if rates.held_since.is_none() {
                rates.held_since = Some(now);
                rates.counters.tx_held += 1;
            }
            return true;
        }
        if let Some(since) = rates.held_since.take() {
            rates.counters.tx_held_us += now.0.saturating_sub(since.0) / 1000;
        }
        false
    }

    /// Counts a frame that a guest has sent, which becomes this many frames.
    #[inline]
    pub fn sent(&mut self, guest: usize, bytes: u64, frames: u64) {
        let now = self.now;
        if let Some(rates) = self.of_mut(guest) {
            rates.tx.charge(now, bytes, frames);
        }
    }

    /// Counts a frame to a guest, which becomes this many frames. Returns whether the guest gets
    /// it.
    #[inline]
    pub fn admits(&mut self, guest: usize, bytes: u64, frames: u64) -> bool {
        let now = self.now;
        let Some(rates) = self.of_mut(guest) else { return true };
        if rates.rx.wait(now).is_some() {
            rates.counters.rx_limited += 1;
            return false;
        }
        rates.rx.charge(now, bytes, frames);
        true
    }

    /// Returns the counters of a guest.
    pub fn counters(&self, guest: usize) -> HeldFrames {
        self.of(guest).map(|rates| rates.counters).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;
    use std::time::Duration;
    use vrdma_transport::RateLimit;

    #[test]
    fn frames_wait_at_the_sender_are_dropped_at_the_receiver_and_counted_at_both() {
        let messages = NonZeroU64::new(1000);
        let limit = RateLimit { bytes: None, messages, burst: Duration::from_millis(10) };
        let mut rates = Rates::default();
        rates.set(2, &RateLimits { tx: limit, rx: limit });
        rates.see(Instant(1_000_000_000));
        for frame in 0..10 {
            assert!(!rates.holds(2) && rates.admits(2, 1500, 1), "{frame}");
            rates.sent(2, 1500, 1);
        }
        assert!(rates.holds(2) && rates.holds(2) && !rates.admits(2, 1500, 1));
        let at = rates.wait(2).expect("it waits");
        rates.see(at);
        assert_eq!((at, rates.holds(2), rates.admits(2, 1500, 1)), (Instant(1_001_000_000), false, true));
        let counters = HeldFrames { tx_held: 1, tx_held_us: 1000, rx_limited: 1 };
        assert_eq!(rates.counters(2), counters);
        // Others are not held, and a guest whose limits go keeps its counters.
        assert!(!rates.holds(0) && rates.admits(7, 1500, 1) && rates.wait(1).is_none());
        rates.set(2, &RateLimits::default());
        rates.sent(2, u64::MAX, u64::MAX);
        assert!(!rates.holds(2) && rates.admits(2, 1, 1));
        assert_eq!(rates.counters(2), counters);
    }
}
