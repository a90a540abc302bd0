//! How the passage of time changes a connection.

use crate::connection::{Connection, Reason, State};
use crate::parts::{FullSize, Recovery};
use crate::seq::Range;
use crate::time::{Instant, nanoseconds};
use crate::timers::Timer;

/// The number of timeouts in a row that suggest a black hole.
///
/// A router may silently drop segments of the length that the path was said to take (RFC 4821, 7.7;
/// RFC 8899, 4.3).
const BLACK_HOLE: u8 = 3;

/// After this many nanoseconds a path is probed again with longer segments (RFC 8899, 5.1.1:
/// PMTU_RAISE_TIMER; RFC 1191, 6.3).
const RAISE_AFTER: u64 = 600_000_000_000;

/// Minimum interval of keep-alive probes in nanoseconds, whatever the configuration says.
const SHORTEST_INTERVAL: u64 = 1_000_000;

impl Connection {
    /// Handles all timers that are due. Then [`poll_transmit`](Connection::poll_transmit) may have
    /// a segment.
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
        // Round trips may have become longer since the timer was set. SACKs measure those of later
        // segments.
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

    /// Returns whether the peer has not answered for too long.
    fn gives_up(&self, now: Instant) -> bool {
        let limit = if self.is_synchronized() { self.config.timeout } else { self.config.connect_timeout };
        // A peer that answers probes is alive, whatever its window.
        let since =
            self.stuck_since.map(|since| if self.board.is_empty() { since.max(self.heard) } else { since });
        since.is_some_and(|since| now.since(since) >= nanoseconds(limit))
    }

    fn give_up(&mut self) {
        if self.is_synchronized() {
            // The peer may be there, and receive our RST.
            self.due.reset = Some((self.send_origin.wire(self.board.nxt()), true));
        }
        self.end(Reason::TimedOut);
    }

    fn keep_alive(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        // Probes of a closed window use the same counter, but the peer answers them.
        let is_window_closed = self.timers.runs(Timer::WindowProbe) || self.due.window_probe;
        let asks = self.board.is_empty() && !is_window_closed;
        if self.probes >= keep_alive.probes && asks {
            self.give_up();
            return;
        }
        self.timers.set(Timer::KeepAlive, now.after(nanoseconds(keep_alive.interval).max(SHORTEST_INTERVAL)));
        // Outstanding data, or probes of a closed window, already ask the peer.
        if asks && self.state != State::SynReceived {
            self.probes = self.probes.saturating_add(1);
            self.due.keep_alive = true;
        }
    }

    /// Handles a router's report that a segment with this number was too long.
    ///
    /// The router takes segments with at most `mss` bytes of data and options. Returns false, and
    /// does nothing, unless the number is outstanding (RFC 5927, 4). Outstanding segments that are
    /// too long are sent in parts.
    pub fn handle_too_long(&mut self, number: u32, mss: u16) -> bool {
        let number = self.send_origin.number(number, self.board.una());
        let is_outstanding = (self.board.una()..self.board.nxt()).contains(&number);
        let counts = self.is_synchronized() && is_outstanding;
        if counts {
            self.shrink(mss.max(self.config.min_mss));
        }
        counts
    }

    /// Reduces the segment size to this many bytes of options and data.
    ///
    /// Longer segments count as lost, but not because of congestion.
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

    /// Returns the maximum length of a segment of new data.
    ///
    /// If the path has taken only shorter segments for long, one may have the former length, as a
    /// probe.
    pub(crate) fn longest(&self, now: Instant) -> u64 {
        let may_probe =
            |full: &FullSize| full.probe.is_none() && full.after <= now && self.recovery == Recovery::Open;
        self.full.filter(may_probe).map_or(self.mss, |full| full.mss)
    }

    /// Notes a segment of new data, which may be a probe of the former length.
    pub(crate) fn note_size(&mut self, range: Range) {
        if let Some(full) = &mut self.full
            && range.end - range.start > self.mss
        {
            full.probe = Some(range.end);
        }
    }

    /// Notes that the path does not take a long segment, whose data is sent in parts.
    pub(crate) fn fail_size_probe(&mut self, now: Instant) {
        if let Some(full) = &mut self.full {
            (full.probe, full.after) = (None, now.after(RAISE_AFTER));
        }
    }

    /// Ends a size probe if all of its segment is acknowledged, without having been split.
    ///
    /// Then the path takes segments of the former length again.
    pub(crate) fn end_size_probe(&mut self) {
        if let Some(FullSize { mss, probe: Some(end), .. }) = self.full
            && end <= self.board.una()
        {
            (self.mss, self.full) = (mss, None);
            self.counters.mtu_raised += 1;
        }
    }
}
