//! When a QP whose peer is silent sends a probe, and what the answer means. Pure state.
//!
//! A probe is the oldest packet without an answer, sent again alone. It is either the packet that
//! got lost, or a duplicate. The peer acknowledges both, and so tells how far it has come.

mod save;

use crate::base::rng::Rng;
use crate::base::time::{Instant, NEVER};
use crate::objects::roce::psn::{HALF, ahead};
use core::time::Duration;
use vrdma_wire::num::Psn;

/// The probes of a QP.
#[derive(Debug)]
pub(crate) struct Probes {
    /// When to act if nothing more is answered, or [`NEVER`].
    pub(crate) at: Instant,
    /// When packets were last sent again from the oldest one on.
    pub(crate) went_back: Instant,
    /// How often packets were sent again because of one more NAK, since something was answered.
    naks: u8,
    /// The PSN that was next when the last probe was sent, until all PSNs before it are answered.
    end: Option<Psn>,
    /// Number of probes since something was answered.
    sent: u8,
    /// Whether a probe is to be sent in the QP's next turn.
    pub(crate) is_due: bool,
}

/// Time that a device's QPs leave to each probe. A probe costs a hundredth of that.
const SPACING: Duration = Duration::from_micros(10);

/// After this many probes, their interval does not grow any more.
const MOST_DOUBLED: u8 = 20;

impl Probes {
    pub(crate) fn new() -> Probes {
        Probes { at: NEVER, went_back: Instant(0), naks: 0, end: None, sent: 0, is_due: false }
    }

    /// Forgets all probes. Nothing is outstanding, or all of it will be sent again.
    pub(crate) fn rest(&mut self) {
        let Probes { went_back, naks, .. } = *self;
        *self = Probes { went_back, naks, ..Probes::new() };
    }

    /// Whether one more NAK for the same PSN is to be obeyed.
    ///
    /// It may be stale or forged. It is not, once the answer to what was sent again should be
    /// there, which takes `answer_time`. That time doubles with each such NAK, up to `longest`.
    pub(crate) fn obeys_nak(&mut self, now: Instant, answer_time: Duration, longest: Duration) -> bool {
        let doubled = answer_time.saturating_mul(1 << self.naks.min(MOST_DOUBLED));
        let is_late = now >= self.went_back + doubled.min(longest);
        self.naks = self.naks.saturating_add(is_late.into());
        is_late
    }

    /// Records that a probe was sent. `next` is the next PSN to be sent.
    pub(crate) fn sent(&mut self, next: Psn) {
        self.is_due = false;
        self.end = Some(next);
        self.sent = self.sent.saturating_add(1);
    }

    /// Records that all PSNs before `una`, and no more, are answered now.
    #[inline]
    pub(crate) fn answered(&mut self, una: Psn) {
        (self.sent, self.naks) = (0, 0);
        self.is_due = false;
        // At most `HALF` PSNs are outstanding.
        if self.end.is_some_and(|end| ahead(una, end) < HALF) {
            self.end = None;
        }
    }

    /// Whether a probe was answered, but not all that had been sent before it.
    ///
    /// If no more answers come, packets between them were lost. What was sent after the probe does
    /// not count: the peer may not have got that when it answered.
    pub(crate) fn shows_loss(&self) -> bool {
        self.sent == 0 && self.end.is_some()
    }

    /// Returns how long to wait before the next probe.
    ///
    /// `timeout` is the interval before the first one. `waiting` QPs of the device wait for
    /// answers: together they send a probe each [`SPACING`] at most. The result is no longer than
    /// the local ACK timeout, `longest`. QPs that became silent together send their probes at
    /// different times, which `seed` decides.
    pub(crate) fn interval(
        &self,
        timeout: Duration,
        waiting: usize,
        longest: Duration,
        seed: u64,
    ) -> Duration {
        let nanos = |time: Duration| time.as_nanos() as u64;
        let doubled = nanos(timeout) << self.sent.min(MOST_DOUBLED);
        let spaced = nanos(SPACING).saturating_mul(waiting as u64);
        let interval = doubled.max(spaced).min(nanos(longest));
        // Up to 10 % more, in steps of a 1024th of that.
        let extra = interval / 10_240 * (Rng::new(seed).next() % 1024);
        Duration::from_nanos(interval + extra).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(number: u32) -> Psn {
        Psn::truncate(number)
    }

    #[test]
    fn an_answer_shows_a_loss_only_before_the_end_that_the_probe_had() {
        let mut probes = Probes::new();
        probes.answered(psn(1));
        assert!(!probes.shows_loss(), "there was no probe");
        probes.sent(psn(2));
        assert!(!probes.shows_loss(), "there was no answer");
        probes.answered(psn(0xff_fffe));
        assert!(probes.shows_loss());
        probes.answered(psn(1));
        assert!(probes.shows_loss());
        probes.answered(psn(2));
        assert!(!probes.shows_loss(), "all that was sent before the probe is there");
        probes.sent(psn(2).add(HALF));
        probes.answered(psn(2));
        assert!(probes.shows_loss(), "as much may be outstanding");
        probes.sent(psn(5));
        probes.answered(psn(4));
        probes.rest();
        assert!(!probes.shows_loss());
    }

    #[test]
    fn intervals_double_up_to_the_timeout_and_differ_a_little() {
        let [timeout, longest] = [100, 67_000].map(Duration::from_micros);
        let mut probes = Probes::new();
        let interval = |probes: &Probes, seed| probes.interval(timeout, 1, longest, seed);
        for doubled in 0..300 {
            let least = timeout.saturating_mul(1 << doubled.min(20)).min(longest);
            let all: Vec<Duration> = (0..1000).map(|seed| interval(&probes, seed)).collect();
            let (first, last) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
            assert!(first >= least && last <= (least + least / 10).min(longest), "{doubled}: {first:?}");
            assert!(least == longest || last - first > least / 20, "{doubled}: {first:?} to {last:?}");
            probes.sent(psn(1));
        }
        probes.answered(psn(0));
        assert!(interval(&probes, 0) < 2 * timeout);
    }

    #[test]
    fn many_queue_pairs_leave_each_other_time() {
        let probes = Probes::new();
        let [timeout, longest] = [100, 67_000].map(Duration::from_micros);
        let interval = |waiting| probes.interval(timeout, waiting, longest, 0);
        assert_eq!(interval(1), interval(10));
        assert!(interval(1000) >= Duration::from_millis(10) && interval(1000) <= Duration::from_millis(11));
        assert_eq!(interval(10_000), longest);
        assert_eq!(interval(usize::MAX), longest);
    }
}
