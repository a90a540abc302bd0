//! What time does to a connection.

use crate::connection::{Connection, Reason, State};
use crate::parts::{FullSize, Recovery};
use crate::seq::Range;
use crate::time::{Instant, nanoseconds};
use crate::timers::Timer;

/// After so many timeouts of a segment as long as the path was said to take, routers may be
/// dropping it in silence (RFC 4821, 7.7; RFC 8899, 4.3).
const BLACK_HOLE: u8 = 3;

/// After so long a path is asked again whether it takes what it did not (RFC 8899, 5.1.1:
/// PMTU_RAISE_TIMER; RFC 1191, 6.3).
const RAISE_AFTER: u64 = 600_000_000_000;

/// Probes of a silent peer are no closer, whatever the configuration says.
const SHORTEST_INTERVAL: u64 = 1_000_000;

impl Connection {
    /// Does what is due. Then [`poll_transmit`](Connection::poll_transmit) may have something.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.expired(now) {
            match timer {
                Timer::Retransmit => self.retransmit_timeout(now),
                Timer::TailProbe => self.due.tail_probe = true,
                Timer::Reordering => {
                    let lost = self.detect(now);
                    self.begin_recovery(lost);
                }
                Timer::WindowProbe if self.gives_up(now) => self.give_up(),
                Timer::WindowProbe => {
                    self.probes = self.probes.saturating_add(1);
                    self.due.window_probe = true;
                }
                Timer::DelayedAck => self.due.ack = true,
                Timer::KeepAlive => self.keep_alive(now),
                Timer::Wait => self.end(Reason::Finished),
                Timer::Pace => {}
                // In TIME-WAIT nothing is left to be sent.
                Timer::Linger if self.state == State::TimeWait => {}
                Timer::Linger => self.give_up(),
            }
        }
    }

    fn retransmit_timeout(&mut self, now: Instant) {
        if self.gives_up(now) {
            self.give_up();
            return;
        }
        // Round trips may have become longer since the timer was set: those of what was sent later
        // are known by SACKs.
        let due = self.board.first().map_or(now, |first| first.at.after(self.rtt.timeout(&self.config)));
        if due > now {
            self.timers.set(Timer::Retransmit, due);
            return;
        }
        self.begin_timeout(now);
        let is_long = self
            .board
            .first()
            .is_some_and(|first| first.range.end - first.range.start > u64::from(self.config.min_mss));
        if self.timeouts_in_a_row >= BLACK_HOLE && is_long && self.is_synchronized() {
            self.shrink(self.config.min_mss);
        }
    }

    /// Whether the peer has not answered for too long.
    fn gives_up(&self, now: Instant) -> bool {
        let limit = if self.is_synchronized() { self.config.timeout } else { self.config.connect_timeout };
        // A peer that answers probes lives, whatever its window.
        let since =
            self.stuck_since.map(|since| if self.board.is_empty() { since.max(self.heard) } else { since });
        since.is_some_and(|since| now.since(since) >= nanoseconds(limit))
    }

    fn give_up(&mut self) {
        if self.is_synchronized() {
            // It may be there, and hear us.
            self.due.reset = Some((self.send_origin.wire(self.board.nxt()), true));
        }
        self.end(Reason::TimedOut);
    }

    fn keep_alive(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        // Probes of a closed window are counted too, but are answered.
        let is_window_closed = self.timers.runs(Timer::WindowProbe) || self.due.window_probe;
        let asks = self.board.is_empty() && !is_window_closed;
        if self.probes >= keep_alive.probes && asks {
            self.give_up();
            return;
        }
        self.timers.set(Timer::KeepAlive, now.after(nanoseconds(keep_alive.interval).max(SHORTEST_INTERVAL)));
        // What is outstanding, or a closed window, asks by itself.
        if asks && self.state != State::SynReceived {
            self.probes = self.probes.saturating_add(1);
            self.due.keep_alive = true;
        }
    }

    /// A router said that a segment with this number was too long for it, and that it takes
    /// segments with at most `mss` bytes of data and options. Whoever says so has to name a number
    /// that is outstanding (RFC 5927, 4), or else it is as if nothing had been said: then false.
    /// What is too long and outstanding goes in parts.
    pub fn handle_too_long(&mut self, number: u32, mss: u16) -> bool {
        let number = self.send_origin.number(number, self.board.una());
        let is_outstanding = (self.board.una()..self.board.nxt()).contains(&number);
        let counts = self.is_synchronized() && is_outstanding;
        if counts {
            self.shrink(mss.max(self.config.min_mss));
        }
        counts
    }

    /// The path takes segments with so many bytes of options and data. What is longer is lost, but
    /// not to congestion.
    fn shrink(&mut self, mss: u16) {
        let mss = u64::from(mss).saturating_sub(self.options_len());
        if mss >= self.mss || mss == 0 {
            return;
        }
        let full = self.full.map_or(self.mss, |full| full.mss);
        self.full = Some(FullSize { mss: full, after: self.sent_last.after(RAISE_AFTER), probe: None });
        self.mss = mss;
        self.counters.mtu_reduced += 1;
        self.board.mark_lost(|sent| sent.range.end - sent.range.start > mss);
    }

    /// How long a segment of new data may be: one may be as long as all were, once the path has
    /// taken only shorter ones for long.
    pub(crate) fn longest(&self, now: Instant) -> u64 {
        let may_probe =
            |full: &FullSize| full.probe.is_none() && full.after <= now && self.recovery == Recovery::Open;
        self.full.filter(may_probe).map_or(self.mss, |full| full.mss)
    }

    /// A segment of new data was sent, which may be longer than the path is known to take.
    pub(crate) fn note_size(&mut self, range: Range) {
        if let Some(full) = &mut self.full
            && range.end - range.start > self.mss
        {
            full.probe = Some(range.end);
        }
    }

    /// The path does not take a long segment: what was in it goes in parts.
    pub(crate) fn fail_size_probe(&mut self, now: Instant) {
        if let Some(full) = &mut self.full {
            (full.probe, full.after) = (None, now.after(RAISE_AFTER));
        }
    }

    /// Something was acknowledged: if that is all of a long segment, and it had not to go in parts,
    /// the path takes these again.
    pub(crate) fn end_size_probe(&mut self) {
        if let Some(FullSize { mss, probe: Some(end), .. }) = self.full
            && end <= self.board.una()
        {
            (self.mss, self.full) = (mss, None);
            self.counters.mtu_raised += 1;
        }
    }
}
