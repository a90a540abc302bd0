//! Loss detection by RACK-TLP (RFC 8985).
//!
//! A segment is lost if a later one has arrived and some time has passed. Tail loss probes find
//! losses that no later segment reveals.

use crate::config::Config;
use crate::rtt::Rtt;
use crate::scoreboard::{Scoreboard, Sent};
use crate::time::{Instant, nanoseconds};
use serde::{Deserialize, Serialize};

/// The number of recoveries after a DSACK until the reordering window is minimal again (RFC 8985,
/// 6.2, step 4).
const PERSIST: u8 = 16;
/// The number of sacked segments after a gap that mean a loss, if no reordering was seen.
const DUP_THRESH: u32 = 3;

/// A tail loss probe that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// SND.NXT when it was sent.
    pub end: u64,
    /// The probe was a retransmission.
    pub is_retransmission: bool,
}

/// What RACK knows of the segments that arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rack {
    /// When the arrived segment was sent that was sent last, where it ends, and its round-trip
    /// time.
    sent_at: Instant,
    end: u64,
    rtt: u64,
    /// The highest number that arrived.
    highest: u64,
    reordering_seen: bool,
    /// The reordering window in quarters of the minimum round trip.
    multiplier: u8,
    persist: u8,
    /// DSACKs count again when this number is acknowledged.
    dsack_until: Option<u64>,
    pub probe: Option<Probe>,
}

impl Rack {
    pub fn new(first: u64) -> Rack {
        Rack {
            sent_at: Instant(0),
            end: first,
            rtt: 0,
            highest: first,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            dsack_until: None,
            probe: None,
        }
    }

    /// Notes that a segment arrived (steps 1 to 3).
    ///
    /// For a retransmitted segment, `is_original` says whether the first transmission arrived
    /// first.
    pub fn arrived(
        &mut self,
        sent: &Sent,
        is_original: impl FnOnce() -> bool,
        least: Option<u64>,
        now: Instant,
    ) {
        let end = sent.range.end;
        if end > self.highest {
            self.highest = end;
        } else if !sent.again {
            // An earlier segment arrived after a later one.
            self.reordering_seen |= end < self.highest;
        }
        let rtt = now.since(sent.at);
        if sent.again && (is_original() || least.is_some_and(|least| rtt < least)) {
            return;
        }
        self.rtt = rtt;
        if sent.is_after(self.sent_at, self.end) {
            (self.sent_at, self.end) = (sent.at, end);
        }
    }

    /// Widens the reordering window on a DSACK (step 4): a segment had been reordered, not lost.
    pub fn duplicated(&mut self, nxt: u64) {
        if self.dsack_until.is_none() {
            self.dsack_until = Some(nxt);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// Notes that all numbers before `una` are acknowledged.
    pub fn acknowledged(&mut self, una: u64) {
        if self.dsack_until.is_some_and(|until| una >= until) {
            self.dsack_until = None;
        }
    }

    /// Notes the end of a recovery.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    fn reordering_window(&self, rtt: &Rtt, in_recovery: bool, sacked: u32) -> u64 {
        if !self.reordering_seen && (in_recovery || sacked >= DUP_THRESH) {
            return 0;
        }
        let least = rtt.least().unwrap_or(0);
        (least / 4).saturating_mul(self.multiplier.into()).min(rtt.smoothed().unwrap_or(least))
    }

    /// Marks the segments that are lost (step 5).
    ///
    /// Returns how many numbers were marked, and when to detect again if more segments may become
    /// lost.
    pub fn detect(
        &self,
        board: &mut Scoreboard,
        rtt: &Rtt,
        in_recovery: bool,
        now: Instant,
    ) -> (u64, Option<Instant>) {
        let wait = self.rtt + self.reordering_window(rtt, in_recovery, board.sacked_segments());
        let mut again: Option<Instant> = None;
        let (sent_at, end) = (self.sent_at, self.end);
        let marked = board.mark_lost(|sent| {
            if (sent.at, sent.range.end) >= (sent_at, end) {
                return false;
            }
            let until = sent.at.after(wait);
            if until <= now {
                return true;
            }
            again = Some(again.map_or(until, |again| again.max(until)));
            false
        });
        (marked, again)
    }

    /// Returns whether times are small enough for sums not to overflow.
    pub fn is_sane(&self) -> bool {
        self.rtt < 1 << 62
    }

    /// Returns whether a segment should have arrived by `now` (6.3: on a retransmission timeout).
    pub fn is_overdue(&self, sent: &Sent, rtt: &Rtt, now: Instant) -> bool {
        sent.at.after(self.rtt + self.reordering_window(rtt, true, 0)) <= now
    }

    /// Returns how long after the last segment the tail is probed (7.2).
    ///
    /// The ACK of a lone segment may be delayed.
    pub fn probe_timeout(rtt: &Rtt, segments: u64, config: &Config) -> u64 {
        let Some(smoothed) = rtt.smoothed() else { return nanoseconds(config.initial_rto) };
        let slack = nanoseconds(config.probe_slack);
        let delay = if segments == 1 { nanoseconds(config.peer_ack_delay).max(slack) } else { slack };
        smoothed.saturating_mul(2).saturating_add(delay)
    }
}
