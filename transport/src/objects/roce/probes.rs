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
    /// When to look whether the peer is silent, or [`NEVER`]. Answers do not move it each time. It
    /// is then earlier than the end of the silence that counts.
    pub(crate) at: Instant,
    /// When packets were last sent again from the oldest one on.
    pub(crate) went_back: Instant,
    /// When something was last answered. If nothing was, when the oldest packet was sent.
    answered_at: Instant,
    /// When something was last answered, or when packets were sent while nothing was outstanding.
    /// What is sent again does not change it.
    progress_at: Instant,
    /// When a probe was last tried, or something made one unnecessary.
    tried_at: Instant,
    /// The longest time between two answers that had a probe in between, while `end` is set.
    pause: Duration,
    /// The PSN that was next when a probe was sent, until all PSNs before it are answered.
    end: Option<Psn>,
    /// Number of tried probes since a round-trip time was measured (RFC 6298, 5.5 to 5.7).
    backoff: u8,
    /// How often packets were sent again because of one more NAK, since something was answered.
    naks: u8,
    /// Whether a probe was sent, and nothing was answered since.
    is_asked: bool,
    /// What is to be sent in the QP's next turn, before all else.
    pub(crate) due: Due,
}

/// Whether the packet at the oldest PSN is to be sent again alone, and why.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Due {
    #[default]
    Nothing,
    /// The peer is silent.
    Probe,
    /// The packet is lost.
    Repeat,
}

/// How long a QP waits for an answer, apart from what its probes add to that.
#[derive(Copy, Clone)]
pub(crate) struct Patience {
    /// The interval before the first probe.
    pub(crate) timeout: Duration,
    /// The time in which most answers come.
    pub(crate) answer_time: Duration,
    /// QPs of the device that wait for answers.
    pub(crate) waiting: usize,
    /// Packets of data that a probe asks for.
    pub(crate) answers: u32,
    /// The local ACK timeout.
    pub(crate) longest: Duration,
    /// Has QPs that became silent together send their probes at different times.
    pub(crate) seed: u64,
}

/// Time that a device's QPs leave to each probe. A probe costs a hundredth of that.
const SPACING: Duration = Duration::from_micros(10);

/// After this many probes, their interval does not grow any more.
const MOST_DOUBLED: u8 = 20;

impl Probes {
    pub(crate) fn new() -> Probes {
        let long_ago = Instant(0);
        Probes {
            at: NEVER,
            went_back: long_ago,
            answered_at: long_ago,
            progress_at: long_ago,
            tried_at: long_ago,
            pause: Duration::ZERO,
            end: None,
            backoff: 0,
            naks: 0,
            is_asked: false,
            due: Due::Nothing,
        }
    }

    /// Forgets all probes. Nothing is outstanding, or all of it will be sent again.
    pub(crate) fn rest(&mut self) {
        let Probes { went_back, progress_at, backoff, naks, .. } = *self;
        *self = Probes { went_back, progress_at, backoff, naks, ..Probes::new() };
    }

    /// Whether one more NAK for the same PSN is to be obeyed.
    ///
    /// It may be stale or forged. It is not, once the answer to what was sent again should be
    /// there, which takes `answer_time`. That time doubles with each such NAK, up to `longest`.
    pub(crate) fn obeys_nak(&mut self, now: Instant, answer_time: Duration, longest: Duration) -> bool {
        let is_late = now >= self.obeys_from(answer_time, longest);
        self.naks = self.naks.saturating_add(is_late.into());
        is_late
    }

    /// Returns from when on one more sign of a loss at the same PSN counts.
    pub(crate) fn obeys_from(&self, answer_time: Duration, longest: Duration) -> Instant {
        let doubled = answer_time.saturating_mul(1 << self.naks.min(MOST_DOUBLED));
        self.went_back + doubled.min(longest)
    }

    /// Returns a time that doubles with each further sign of a loss at the same PSN, six times at
    /// most.
    pub(crate) fn doubled(&self, time: Duration) -> Duration {
        time * (1 << self.naks.min(6))
    }

    /// Whether packets were sent again since something was last answered.
    pub(crate) fn has_gone_back(&self) -> bool {
        self.went_back > self.answered_at
    }

    /// Returns since when there was no progress.
    pub(crate) fn no_progress_since(&self) -> Instant {
        self.progress_at
    }

    /// Records that packets are sent while nothing was outstanding.
    #[inline]
    pub(crate) fn start(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// Begins to wait for an answer to what is sent now. Nothing was waited for before.
    ///
    /// `at` then leaves out what makes the first interval longer only at times.
    pub(crate) fn begin(&mut self, now: Instant, timeout: Duration, waiting: usize, longest: Duration) {
        let spaced = Duration::from_nanos((SPACING.as_nanos() as u64).saturating_mul(waiting as u64));
        self.at = now + timeout.max(spaced).min(longest);
        self.tried_at = now;
        if !self.is_asked {
            self.answered_at = now;
        }
    }

    /// Whether probes were tried since a round-trip time was measured.
    #[inline]
    pub(crate) fn has_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Records that the peer sends something, though not the oldest answer.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.tried_at = now;
    }

    /// Records that a probe could not be sent.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.due = Due::Nothing;
        self.tried_at = now;
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Records that a probe was sent. `next` is the next PSN to be sent.
    pub(crate) fn sent(&mut self, now: Instant, next: Psn) {
        self.due = Due::Nothing;
        self.tried_at = now;
        // An earlier probe may be answered before this one comes.
        self.end.get_or_insert(next);
        self.is_asked = true;
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Records that the oldest packet was sent again alone, because it is lost.
    pub(crate) fn repeated(&mut self, now: Instant) {
        self.due = Due::Nothing;
        (self.tried_at, self.went_back) = (now, now);
    }

    /// Records that all PSNs before `una`, and no more, are answered now.
    ///
    /// `is_measured` tells that this was a round-trip time. Returns whether the next silence may
    /// count earlier than before.
    #[inline]
    pub(crate) fn answered(&mut self, now: Instant, una: Psn, is_measured: bool) -> bool {
        let is_probed = self.is_asked || self.end.is_some();
        let is_usual = !is_probed && (self.backoff == 0 || !is_measured) && self.at != NEVER;
        if self.is_asked {
            let pause = Duration::from_nanos(now.0.saturating_sub(self.answered_at.0));
            self.pause = self.pause.max(pause);
            self.is_asked = false;
        }
        if is_measured {
            self.backoff = 0;
        }
        (self.answered_at, self.progress_at) = (now, now);
        self.naks = 0;
        self.due = Due::Nothing;
        // At most `HALF` PSNs are outstanding.
        if self.end.is_some_and(|end| ahead(una, end) < HALF) {
            (self.end, self.pause) = (None, Duration::ZERO);
        }
        !is_usual
    }

    /// Whether something was answered after a probe, but not all that had been sent before it.
    ///
    /// If no more answers come, packets between them were lost. What was sent after the probe does
    /// not count: the peer may not have got that when it answered.
    pub(crate) fn shows_loss(&self) -> bool {
        !self.is_asked && self.end.is_some()
    }

    /// Returns until when the next answer is expected.
    ///
    /// If the last ones show a loss, this is longer than the peer has paused before: it may be
    /// slow. Else a probe follows.
    pub(crate) fn silence_end(&self, patience: Patience, shows_loss: bool) -> Instant {
        match shows_loss {
            true => {
                let end = self.answered_at + (self.pause + self.pause / 4).min(patience.longest);
                match self.has_gone_back() {
                    true => end.max(self.obeys_from(patience.answer_time, patience.longest)),
                    false => end,
                }
            }
            false => {
                let since = self.answered_at.max(self.tried_at);
                since + self.interval(Patience { seed: patience.seed ^ since.0, ..patience })
            }
        }
    }

    /// Returns how long to wait before the next probe.
    ///
    /// All QPs of a device that wait together get one packet in each [`SPACING`] at most, as a
    /// probe or an answer to one. The result is no longer than the local ACK timeout.
    fn interval(&self, patience: Patience) -> Duration {
        let Patience { timeout, waiting, answers, longest, seed, .. } = patience;
        let nanos = |time: Duration| time.as_nanos() as u64;
        let doubled = nanos(timeout).saturating_mul(1 << self.backoff.min(MOST_DOUBLED));
        let spaced = nanos(SPACING).saturating_mul(waiting as u64).saturating_mul(answers.max(1).into());
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

    fn micros(micros: u64) -> Instant {
        Instant(1000 * micros)
    }

    /// The patience of a QP with a probe timeout of 100 us and a local ACK timeout of 67 ms.
    fn patience(waiting: usize, answers: u32, seed: u64) -> Patience {
        let [timeout, longest] = [100, 67_000].map(Duration::from_micros);
        Patience { timeout, answer_time: timeout / 2, waiting, answers, longest, seed }
    }

    #[test]
    fn an_answer_shows_a_loss_only_before_the_end_that_the_first_probe_had() {
        let mut probes = Probes::new();
        let now = Instant(1);
        probes.answered(now, psn(1), true);
        assert!(!probes.shows_loss(), "there was no probe");
        probes.sent(now, psn(2));
        probes.sent(now, psn(9));
        assert!(!probes.shows_loss(), "there was no answer");
        probes.answered(now, psn(0xff_fffe), false);
        assert!(probes.shows_loss());
        probes.answered(now, psn(1), false);
        assert!(probes.shows_loss());
        probes.answered(now, psn(2), false);
        assert!(!probes.shows_loss(), "all that was sent before the first probe is there");
        probes.sent(now, psn(2).add(HALF));
        probes.answered(now, psn(2), false);
        assert!(probes.shows_loss(), "as much may be outstanding");
        probes.rest();
        assert!(!probes.shows_loss());
    }

    #[test]
    fn a_loss_counts_when_the_peer_is_silent_for_longer_than_before() {
        let mut probes = Probes::new();
        let Patience { timeout, longest, .. } = patience(1, 1, 0);
        probes.begin(micros(1000), timeout, 1, longest);
        assert_eq!(probes.at, micros(1100));
        probes.sent(micros(1100), psn(10));
        probes.sent(micros(1300), psn(10));
        probes.answered(micros(1400), psn(1), false);
        probes.answered(micros(1410), psn(4), false);
        assert_eq!(probes.silence_end(patience(1, 1, 0), true), micros(1410 + 500));
        probes.sent(micros(1600), psn(10));
        probes.answered(micros(1700), psn(5), false);
        assert_eq!(probes.silence_end(patience(1, 1, 0), true), micros(1700 + 500), "the longest pause");
        probes.answered(micros(1700), psn(10), false);
        probes.sent(micros(2000), psn(20));
        probes.answered(micros(2100), psn(11), false);
        assert_eq!(probes.silence_end(patience(1, 1, 0), true), micros(2100 + 500), "it was forgotten");
        probes.sent(micros(2200), psn(20));
        probes.answered(micros(900_000), psn(12), false);
        assert_eq!(probes.silence_end(patience(1, 1, 0), true), micros(900_000 + 67_000));
    }

    #[test]
    fn intervals_double_up_to_the_timeout_and_differ_a_little() {
        let mut probes = Probes::new();
        let Patience { timeout, longest, .. } = patience(1, 1, 0);
        for doubled in 0..300 {
            let least = timeout.saturating_mul(1 << doubled.min(20)).min(longest);
            let all: Vec<Duration> = (0..1000).map(|seed| probes.interval(patience(1, 1, seed))).collect();
            let (first, last) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
            assert!(first >= least && last <= (least + least / 10).min(longest), "{doubled}: {first:?}");
            assert!(least == longest || last - first > least / 20, "{doubled}: {first:?} to {last:?}");
            probes.sent(Instant(0), psn(1));
        }
        probes.answered(Instant(0), psn(0), false);
        assert_eq!(probes.interval(patience(1, 1, 0)), longest, "only a measured time ends this");
        assert!(probes.answered(Instant(0), psn(0), true));
        assert!(probes.interval(patience(1, 1, 0)) < 2 * timeout);
    }

    #[test]
    fn many_queue_pairs_and_large_answers_leave_each_other_time() {
        let probes = Probes::new();
        let interval = |waiting, answers| probes.interval(patience(waiting, answers, 0));
        assert_eq!(interval(1, 1), interval(10, 1));
        let millis = Duration::from_millis;
        for (waiting, answers) in [(1000, 0), (1000, 1), (1, 1000), (10, 100)] {
            let interval = interval(waiting, answers);
            assert!(interval >= millis(10) && interval <= millis(11), "{waiting}, {answers}: {interval:?}");
        }
        let longest = patience(1, 1, 0).longest;
        assert_eq!(interval(10_000, 1), longest);
        assert_eq!(interval(usize::MAX, u32::MAX), longest);
    }

    #[test]
    fn each_further_nak_is_obeyed_after_twice_the_time() {
        let mut probes = Probes::new();
        let [answer_time, longest] = [100, 500].map(Duration::from_micros);
        let mut obeyed = Vec::new();
        for now in 0..2500 {
            if probes.obeys_nak(micros(now), answer_time, longest) {
                probes.went_back = micros(now);
                probes.rest();
                obeyed.push(now);
            }
        }
        assert_eq!(obeyed, [100, 300, 700, 1200, 1700, 2200]);
        probes.answered(micros(2500), psn(1), false);
        assert!(probes.obeys_nak(micros(2500), answer_time, longest));
    }
}
