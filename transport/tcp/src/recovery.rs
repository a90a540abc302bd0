//! How a connection handles losses: when a recovery begins, how it goes on, and how it ends.

use crate::connection::Connection;
use crate::parts::Recovery;
use crate::prr::Prr;
use crate::seq::Range;
use crate::time::Instant;
use crate::timers::Timer;

/// The number of duplicate ACKs that mean a loss, if there are no SACKs (RFC 5681, 3.2).
const DUP_THRESH: u32 = 3;

/// What an ACK reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Bytes that it reports as arrived for the first time.
    pub delivered: u64,
    /// By how much SND.UNA advanced.
    pub acknowledged: u64,
    /// It is a duplicate ACK as RFC 5681 defines it.
    pub is_duplicate: bool,
    /// It acknowledges the same number again, and says nothing else.
    pub is_bare: bool,
    /// A range that the peer got twice.
    pub twice: Option<Range>,
    /// TSecr: the echoed timestamp.
    pub echo: Option<u32>,
}

impl Connection {
    /// Updates losses and the congestion window after an ACK.
    pub(crate) fn recover(&mut self, mut news: News, now: Instant) {
        let una = self.board.una();
        news.is_duplicate &= self.agreed.sack || self.duplicate_acks < self.duplicates();
        if let Some(twice) = news.twice {
            // The duplicate of a tail loss probe is no sign of reordering.
            if self.rack.probe.is_none_or(|probe| probe.end != twice.end) {
                self.rack.duplicated(self.board.nxt());
            }
            self.explain(twice);
        }
        self.rack.acknowledged(una);
        if news.acknowledged > 0 {
            self.undo_by_echo(news.echo);
        }
        self.end_tail_probe(news);
        let is_recovered = self.end_recovery(una);
        let lost = self.find_losses(news, now);
        self.begin_recovery(lost);
        if !is_recovered || lost {
            self.adjust_window(news, lost, now);
        }
    }

    /// Marks what is lost, and returns whether something was.
    fn find_losses(&mut self, news: News, now: Instant) -> bool {
        if !self.agreed.sack {
            return self.count_duplicates(news);
        }
        if news.delivered == 0 {
            // Losses by the passage of time are left to the reordering timer.
            return false;
        }
        if self.board.sacked_segments() == 0
            && self.recovery == Recovery::Open
            && !self.timers.runs(Timer::Reordering)
        {
            // There is no gap: all that was sent before the arrived segments has arrived too.
            return false;
        }
        self.detect(now)
    }

    /// Detects losses by RACK, and sets the reordering timer.
    pub(crate) fn detect(&mut self, now: Instant) -> bool {
        let in_recovery = self.recovery != Recovery::Open;
        let (marked, again) = self.rack.detect(&mut self.board, &self.rtt, in_recovery, now);
        match again {
            Some(again) => self.timers.set(Timer::Reordering, again),
            None => self.timers.stop(Timer::Reordering),
        }
        marked > 0
    }

    /// Detects losses without SACKs (RFC 6582).
    ///
    /// The third duplicate ACK means that the oldest segment is lost. Within a recovery, each
    /// partial acknowledgment means that the next segment is lost.
    fn count_duplicates(&mut self, news: News) -> bool {
        if news.acknowledged > 0 {
            self.duplicate_acks = 0;
            let is_partial = matches!(self.recovery, Recovery::Fast { .. });
            return is_partial && self.board.mark_first_lost() > 0;
        }
        self.duplicate_acks += u32::from(news.is_duplicate);
        let is_loss = self.duplicate_acks >= DUP_THRESH && self.recovery == Recovery::Open;
        is_loss && self.board.mark_first_lost() > 0
    }

    /// Returns the maximum number of duplicate ACKs that count without SACKs.
    ///
    /// Each means that a segment has left the network, and no more were there when the recovery
    /// began. A peer that makes up more would have us send without end (RFC 5681, 3.2, step 4).
    fn duplicates(&self) -> u32 {
        if self.recovery == Recovery::Open { self.board.segments() as u32 } else { self.most_duplicates }
    }

    /// Begins a recovery after a loss: the window shrinks once for everything that is outstanding.
    pub(crate) fn begin_recovery(&mut self, lost: bool) {
        if !lost || self.recovery != Recovery::Open {
            return;
        }
        self.counters.recoveries += 1;
        if self.rack.probe.is_none() {
            self.undo = None;
        }
        self.congestion.lost(self.mss);
        let flight = self.board.outstanding() - self.board.sacked();
        let prr = Prr::new(flight);
        self.most_duplicates = self.board.segments() as u32;
        self.recovery = Recovery::Fast { until: self.board.nxt(), prr };
        self.timers.stop(Timer::TailProbe);
        self.rack.probe = None;
        // The window for the first retransmission. ACKs adjust it further.
        self.congestion.window = self.pipe() + self.mss;
    }

    /// Returns the bytes considered in flight. Without SACKs, each duplicate ACK removes a segment.
    pub(crate) fn pipe(&self) -> u64 {
        let gone = if self.agreed.sack { 0 } else { u64::from(self.duplicate_acks) * self.mss };
        self.board.pipe().saturating_sub(gone)
    }

    /// Adjusts the congestion window after an ACK.
    fn adjust_window(&mut self, news: News, lost: bool, now: Instant) {
        let (mss, rtt) = (self.mss, self.rtt.smoothed().unwrap_or(0));
        let is_open = self.recovery == Recovery::Open;
        let pipe = self.pipe();
        match &mut self.recovery {
            Recovery::Fast { prr, .. } => {
                let delivered = news.delivered + if news.is_duplicate && !self.agreed.sack { mss } else { 0 };
                let is_good = news.acknowledged > 0 && !lost;
                let window = prr.window(delivered, pipe, self.congestion.threshold, mss, is_good);
                // Without SACKs, a partial acknowledgment retransmits the next segment at once (RFC
                // 6582, 3.2).
                let is_partial = lost && !self.agreed.sack;
                self.congestion.window = window.max(if is_partial { pipe + mss } else { mss });
            }
            // Limited transmit before a loss is certain does not open the window (RFC 3042).
            _ if news.acknowledged == 0 => {}
            _ if self.is_app_limited && is_open => self.congestion.not_used(),
            _ => self.congestion.acknowledged(news.acknowledged, mss, rtt, now),
        }
    }

    /// Ends a recovery if all that was outstanding at its beginning is acknowledged.
    ///
    /// Returns true if a fast recovery ended. Then the window is what it left.
    fn end_recovery(&mut self, una: u64) -> bool {
        let until = match self.recovery {
            Recovery::Open => return false,
            Recovery::Fast { until, .. } | Recovery::Timeout { until } => until,
        };
        if una < until {
            return false;
        }
        let is_fast = matches!(self.recovery, Recovery::Fast { .. });
        if is_fast {
            self.congestion.recovered(self.mss);
            self.rack.recovered();
        }
        self.recovery = Recovery::Open;
        self.duplicate_acks = 0;
        is_fast
    }

    /// Ends a tail loss probe that has its answer (RFC 8985, 7.4).
    fn end_tail_probe(&mut self, news: News) {
        let Some(probe) = self.rack.probe else { return };
        let una = self.board.una();
        // If nothing was lost, the probed segment and the probe are acknowledged once each. The
        // second of these ACKs is a DSACK, or a bare duplicate.
        let is_twice = news.twice.is_some() || news.is_bare;
        if una < probe.end || probe.is_retransmission && una == probe.end && !is_twice {
            return;
        }
        self.rack.probe = None;
        // An ACK beyond the probe without a duplicate: the probe repaired a loss, which counts like
        // any other.
        let is_mended = probe.is_retransmission && !is_twice;
        if self.recovery == Recovery::Open {
            if !self.congestion.may_undo() {
                self.undo = None;
            }
            if is_mended {
                self.congestion.lost(self.mss);
                self.congestion.recovered(self.mss);
            }
        }
    }

    /// Notes a range that the peer got twice. If all retransmissions arrived twice, nothing had
    /// been lost.
    fn explain(&mut self, twice: Range) {
        let Some(undo) = &mut self.undo else { return };
        if undo.within.covers(twice) {
            undo.unexplained = undo.unexplained.saturating_sub(1);
            if undo.unexplained == 0 {
                self.undo_recovery();
            }
        }
    }

    /// Undoes a recovery if the first ACK echoes a timestamp older than the first retransmission.
    ///
    /// Then the original segment had only been late (RFC 3522).
    fn undo_by_echo(&mut self, echo: Option<u32>) {
        let Some(undo) = &mut self.undo else { return };
        let Some(first_sent) = undo.first_sent.take() else { return };
        let is_older = echo.is_some_and(|echo| (echo.wrapping_sub(first_sent) as i32) < 0);
        if is_older && self.board.una() > undo.within.start {
            self.undo_recovery();
        }
    }

    fn undo_recovery(&mut self) {
        self.undo = None;
        // A duplicate may be reported when the recovery is over.
        if !self.congestion.may_undo() {
            return;
        }
        self.counters.undone += 1;
        self.recovery = Recovery::Open;
        self.board.unmark_lost();
        self.congestion.undo();
        self.rtt.backoff = 0;
        self.timers.stop(Timer::Reordering);
    }

    /// Handles an expired retransmission timeout (RFC 6298, 5.4 to 5.6; RFC 8985, 6.3).
    pub(crate) fn begin_timeout(&mut self, now: Instant) {
        self.counters.timeouts += 1;
        let Some(first) = self.board.first() else { return };
        let una = first.range.start;
        if first.sacked {
            // The peer sacked this segment but does not acknowledge it. It has discarded it (RFC
            // 2018, 8).
            self.board.forget_sacks();
        }
        // One window is reduced once. A repeated loss of its segments counts as a new one.
        if self.recovery == Recovery::Open {
            self.congestion.lost(self.mss);
            self.undo = None;
        }
        let (rack, rtt) = (&self.rack, &self.rtt);
        self.board.mark_lost(|sent| sent.range.start == una || rack.is_overdue(sent, rtt, now));
        self.congestion.timed_out(self.mss);
        self.recovery = Recovery::Timeout { until: self.board.nxt() };
        self.most_duplicates = self.board.segments() as u32;
        self.timeouts_in_a_row = self.timeouts_in_a_row.saturating_add(1);
        self.rack.probe = None;
        self.duplicate_acks = 0;
        self.timers.stop(Timer::TailProbe);
        self.timers.stop(Timer::Reordering);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.restart_timer(now);
    }
}
