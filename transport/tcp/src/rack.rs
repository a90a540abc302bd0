//! RACK-TLP (RFC 8985): a segment is lost if one that was sent later has arrived, and some time has
//! passed; a probe of the tail finds losses that nothing comes after.

use crate::config::Config;
use crate::rtt::Rtt;
use crate::scoreboard::{Scoreboard, Sent};
use crate::time::{Instant, nanoseconds};
use serde::{Deserialize, Serialize};

/// So many recoveries after a DSACK the reordering window is the smallest again (RFC 8985, 6.2,
/// step 4).
const PERSIST: u8 = 16;
/// So many sacked segments after a hole mean a loss, where no reordering was seen.
const DUP_THRESH: u32 = 3;

/// A probe of the tail that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// SND.NXT when it was sent.
    pub end: u64,
    /// It was a segment once more.
    pub is_retransmission: bool,
}

/// What is known of what arrived last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rack {
    /// Of the segments that arrived, when the one that was sent last was sent, where it ends, and
    /// how long it took.
    sent_at: Instant,
    end: u64,
    rtt: u64,
    /// The highest number that arrived.
    highest: u64,
    reordering_seen: bool,
    /// The reordering window in quarters of the least round trip.
    multiplier: u8,
    persist: u8,
    /// A DSACK counts again when this is acknowledged.
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

    /// A segment arrived (steps 1 to 3). `is_original` says of one that was sent again that it was
    /// the first that arrived.
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
            // What was sent before something else arrived after it.
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

    /// The peer got something twice (step 4): what was taken for lost was reordered.
    pub fn duplicated(&mut self, nxt: u64) {
        if self.dsack_until.is_none() {
            self.dsack_until = Some(nxt);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// All before `una` is acknowledged.
    pub fn acknowledged(&mut self, una: u64) {
        if self.dsack_until.is_some_and(|until| una >= until) {
            self.dsack_until = None;
        }
    }

    /// A recovery is over.
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

    /// Marks what is lost by now (step 5): how many numbers, and when to look again, if it may
    /// become more.
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

    /// Times are such that sums do not overflow.
    pub fn is_sane(&self) -> bool {
        self.rtt < 1 << 62
    }

    /// Whether a segment was sent so long ago that it should have arrived (6.3: on a retransmission
    /// timeout).
    pub fn is_overdue(&self, sent: &Sent, rtt: &Rtt, now: Instant) -> bool {
        sent.at.after(self.rtt + self.reordering_window(rtt, true, 0)) <= now
    }

    /// How long after the last segment the tail is probed (7.2). A lone segment's acknowledge may
    /// be delayed.
    pub fn probe_timeout(rtt: &Rtt, segments: u64, config: &Config) -> u64 {
        let Some(smoothed) = rtt.smoothed() else { return nanoseconds(config.initial_rto) };
        let slack = nanoseconds(config.probe_slack);
        let delay = if segments == 1 { nanoseconds(config.peer_ack_delay).max(slack) } else { slack };
        smoothed.saturating_mul(2).saturating_add(delay)
    }
}
