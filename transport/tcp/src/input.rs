//! How an arriving segment changes a connection (RFC 9293, 3.10.7).

use crate::acknowledge::Incoming;
use crate::config::Config;
use crate::congestion::Congestion;
use crate::connection::{Connection, Ports, Reason, State};
use crate::parts::SendWindow;
use crate::reassembly::Arrival;
use crate::seq::{FIRST, Origin, Range, SYN};
use crate::time::{Instant, nanoseconds};
use crate::timers::Timer;
use std::sync::Arc;
use vrdma_wire::tcp::{Flags, TcpHeader};

/// The MSS of a peer whose SYN has none (RFC 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// The least MSS that a peer may have: that of a link with an MTU of 256.
///
/// A smaller value counts as this one, because each segment costs a frame (docs/design/streams.md).
const LEAST_MSS: u16 = 216;
/// The number of segments that are acknowledged at once, beginning with one that is out of order.
///
/// So a recovering peer learns soon what it needs.
const AT_ONCE: u8 = 16;
/// Maximum delay of an ACK in nanoseconds: less than half a second (RFC 9293, MUST-40).
const LONGEST_DELAY: u64 = 499_000_000;
/// Maximum age of the last timestamp for comparisons, in nanoseconds: 24 days (RFC 7323, 5.5).
const STAMP_LIFE: u64 = 24 * 24 * 3600 * 1_000_000_000;

impl Connection {
    /// Begins a connection from a SYN of the peer that a listener got.
    ///
    /// `initial` and `clock` should be as hard to guess as those of
    /// [`connect`](Connection::connect).
    #[must_use]
    pub fn accept(
        config: impl Into<Arc<Config>>,
        syn: &TcpHeader,
        initial: u32,
        clock: u32,
        now: Instant,
    ) -> Connection {
        let ports = Ports { local: syn.dst_port, remote: syn.src_port };
        let mut connection = Connection::new(config.into(), ports, initial, clock, now);
        (connection.is_passive, connection.state) = (true, State::SynReceived);
        connection.handle_syn(syn, now);
        connection
    }

    /// Handles a segment of this connection with `length` bytes of data and a correct checksum.
    ///
    /// `take` is called for each new part of the data, and returns how many bytes, from its front,
    /// it took. Only these bytes are ever acknowledged. `take` may refuse data beyond a gap; it
    /// comes again.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        length: usize,
        take: &mut impl FnMut(Arrival) -> usize,
    ) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.handle_in_syn_sent(now, header, length, take),
            _ => {
                let start = self.receive_origin.number(header.seq, self.received.nxt());
                self.handle_synchronized(now, header, start, length, take);
            }
        }
    }

    fn handle_in_syn_sent(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        length: usize,
        take: &mut impl FnMut(Arrival) -> usize,
    ) {
        let (flags, ack) = (header.flags, self.send_origin.number(header.ack, self.board.una()));
        let acknowledges = flags.has(Flags::ACK) && ack > SYN && ack <= self.board.nxt();
        if flags.has(Flags::ACK) && !acknowledges {
            self.counters.bad_ack += 1;
            if !flags.has(Flags::RST) {
                self.due.reset = Some((header.ack, false));
            }
            return;
        }
        if flags.has(Flags::RST) {
            if acknowledges {
                self.end(Reason::Refused);
            }
            return;
        }
        if !flags.has(Flags::SYN) {
            return;
        }
        if !self.is_after_former(header) {
            self.counters.bad_timestamp += 1;
            return;
        }
        self.handle_syn(header, now);
        if acknowledges {
            self.heard = now;
            self.window.seq = SYN;
            let range = Range { start: SYN, end: FIRST };
            self.handle_ack(Incoming { header, range, has_length: true }, now);
            self.establish(now);
            self.due.ack = true;
            self.handle_text(header, FIRST, length, now, take);
        } else {
            // Simultaneous open: our SYN is sent again, as a SYN-ACK.
            self.state = State::SynReceived;
            self.board.mark_first_lost();
        }
    }

    /// Takes the sequence number and the options of the peer's SYN.
    pub(crate) fn handle_syn(&mut self, header: &TcpHeader, now: Instant) {
        let options = &header.options;
        self.receive_origin = Origin(header.seq);
        self.agreed.timestamps = self.config.timestamps && options.timestamps.is_some();
        self.agreed.sack = self.config.sack && options.sack_permitted;
        self.agreed.fpdus = self.config.fpdus && options.fpdus.is_some();
        self.agreed.scaled = options.window_scale.is_some();
        self.agreed.send_scale = options.window_scale.unwrap_or(0);
        self.agreed.receive_scale = if self.agreed.scaled { self.config.window_scale() } else { 0 };
        if let (true, Some((value, _))) = (self.agreed.timestamps, options.timestamps) {
            self.stamps.recent = value;
            self.stamps.recent_at = now;
        }
        self.stamps.last_ack = FIRST;
        let default = DEFAULT_MSS.max(self.config.min_mss);
        self.counters.small_mss += u32::from(options.mss.is_some_and(|mss| mss < LEAST_MSS));
        let theirs = options.mss.map_or(default, |mss| mss.max(LEAST_MSS));
        self.mss = u64::from(theirs.min(self.config.mss)).saturating_sub(self.options_len()).max(1);
        let size = header.window.into();
        self.window = SendWindow { size, largest: size, seq: SYN, ack: self.window.ack };
    }

    fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.established = true;
        // A lost SYN shows that the path is congested or bad (RFC 5681, 3.1; RFC 6298, 5.7).
        let is_smooth = self.counters.timeouts == 0;
        self.congestion = Congestion::new(if is_smooth { self.initial_window() } else { self.mss });
        (self.rtt.lost_syn, self.rtt.backoff) = (!is_smooth, 0);
        self.hear(now);
    }

    /// Notes a valid segment of the peer, and restarts the timers that wait for one.
    fn hear(&mut self, now: Instant) {
        self.heard = now;
        if !self.timers.runs(Timer::WindowProbe) {
            self.probes = 0;
        }
        if self.state == State::FinWait2 {
            self.timers.set(Timer::Wait, now + self.config.fin_wait);
        }
        if let Some(keep_alive) = self.config.keep_alive
            && self.state != State::TimeWait
        {
            self.timers.set(Timer::KeepAlive, now + keep_alive.idle);
        }
    }

    /// Handles a segment in any state except SYN-SENT. `start` is its first number.
    fn handle_synchronized(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        start: u64,
        length: usize,
        take: &mut impl FnMut(Arrival) -> usize,
    ) {
        let mut start = start;
        let mut flags = header.flags;
        if self.state == State::SynReceived && flags.has(Flags::SYN) && start == SYN {
            if !flags.has(Flags::ACK) {
                // The peer has not got our answer.
                self.board.mark_first_lost();
                return;
            }
            // This SYN-ACK answers our SYN, as our answer did the peer's SYN.
            flags.0 &= !Flags::SYN.0;
            start = FIRST;
            self.due.ack = true;
        }
        let ends = u64::from(flags.has(Flags::FIN));
        let range = Range { start, end: start + length as u64 };
        let has_length = length > 0 || ends > 0 || flags.has(Flags::SYN);
        if !self.is_timely(header, now) || !self.is_acceptable(range, has_length, flags, now) {
            return;
        }
        if flags.has(Flags::RST) {
            self.handle_rst(start, now);
            return;
        }
        if flags.has(Flags::SYN) {
            self.handle_syn_in_window(now);
            return;
        }
        if !flags.has(Flags::ACK) {
            return;
        }
        let segment = Incoming { header, range, has_length };
        let is_first = self.state == State::SynReceived;
        if is_first && !self.handle_first_ack(header, now) || !self.handle_ack(segment, now) {
            return;
        }
        // Timestamps count only after these checks. An attacker who guesses a number in the window,
        // but not an acknowledgment number, must not make genuine segments look old.
        self.note_stamp(header, start, now);
        self.hear(now);
        self.advance_close(now);
        if self.state != State::Closed {
            self.handle_text(header, start, length, now, take);
        }
    }

    /// Checks the timestamp (PAWS, RFC 7323, 5.3). A segment with an older timestamp than an
    /// earlier arrival comes from a previous wrap of the sequence numbers.
    fn is_timely(&mut self, header: &TcpHeader, now: Instant) -> bool {
        if !self.agreed.timestamps || header.flags.has(Flags::RST) {
            return true;
        }
        let Some((value, _)) = header.options.timestamps else {
            // RFC 7323, 3.2: every segment has a timestamp if both ends agreed on them.
            self.counters.bad_timestamp += 1;
            return false;
        };
        let is_old = (value.wrapping_sub(self.stamps.recent) as i32) < 0;
        if is_old && now.since(self.stamps.recent_at) < STAMP_LIFE {
            self.counters.bad_timestamp += 1;
            self.challenge(now);
            return false;
        }
        true
    }

    /// Notes the timestamp to echo: that of the first segment which the next ACK covers (RFC 7323,
    /// 4.3).
    fn note_stamp(&mut self, header: &TcpHeader, start: u64, now: Instant) {
        if let (true, Some((value, _))) = (self.agreed.timestamps, header.options.timestamps)
            && start <= self.stamps.last_ack
        {
            self.stamps.recent = value;
            self.stamps.recent_at = now;
        }
    }

    /// Returns whether part of a segment is in the window (RFC 9293, 3.10.7.4, first).
    ///
    /// If not, the peer is told which number is expected.
    fn is_acceptable(&mut self, range: Range, has_length: bool, flags: Flags, now: Instant) -> bool {
        let (nxt, edge) = (self.received.nxt(), self.received.edge());
        let end = range.end + u64::from(flags.has(Flags::FIN)) + u64::from(flags.has(Flags::SYN));
        let is_acceptable = if has_length {
            // Nothing is inside a closed window, but the ACK of such a segment is processed
            // (MUST-66).
            range.start < edge && end > nxt || edge == nxt && range.start == nxt
        } else {
            range.start == nxt || (nxt..edge).contains(&range.start)
        };
        if is_acceptable {
            return true;
        }
        self.counters.outside_window += 1;
        if flags.has(Flags::RST) {
            return false;
        }
        if self.state == State::TimeWait && flags.has(Flags::FIN) && end == nxt {
            // Our last ACK was lost.
            self.due.ack = true;
            self.wait(now);
        } else if end <= nxt && range.end > range.start && nxt - range.start <= self.receive_window {
            // Our ACK may have been lost. It is sent again at once, with a DSACK for the duplicate.
            self.counters.duplicates += 1;
            self.received.handle_data(range, 0, |_| 0);
            self.due.ack = true;
        } else {
            // Anybody can send segments far from the window, so the answers are limited in rate.
            self.challenge(now);
        }
        false
    }

    /// Handles a RST. Only one with exactly the expected number counts (RFC 5961, 3.2).
    ///
    /// Any other number in the window may be a guess.
    fn handle_rst(&mut self, start: u64, now: Instant) {
        if start != self.received.nxt() {
            self.counters.challenges += 1;
            self.challenge(now);
            return;
        }
        match self.state {
            State::SynReceived if !self.is_passive => self.end(Reason::Refused),
            State::LastAck | State::Closing | State::TimeWait => self.end(Reason::Finished),
            _ => self.end(Reason::Reset),
        }
    }

    /// Answers a SYN in the window with a challenge ACK (RFC 5961, 4.2).
    ///
    /// A peer that has begun anew resets this connection in reply.
    fn handle_syn_in_window(&mut self, now: Instant) {
        if self.state == State::SynReceived && self.is_passive {
            // Back to LISTEN (RFC 9293, 3.10.7.4, fourth).
            self.end(Reason::Reset);
            return;
        }
        self.counters.challenges += 1;
        self.challenge(now);
    }

    /// Handles the ACK of our SYN in SYN-RECEIVED. Any other number is answered with a RST.
    fn handle_first_ack(&mut self, header: &TcpHeader, now: Instant) -> bool {
        let ack = self.send_origin.number(header.ack, self.board.una());
        if ack <= SYN || ack > self.board.nxt() {
            self.counters.bad_ack += 1;
            self.due.reset = Some((header.ack, false));
            return false;
        }
        self.establish(now);
        true
    }

    /// Handles the data of a segment, then its FIN.
    fn handle_text(
        &mut self,
        header: &TcpHeader,
        start: u64,
        length: usize,
        now: Instant,
        take: &mut impl FnMut(Arrival) -> usize,
    ) {
        let range = Range { start, end: start + length as u64 };
        let is_open = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if length > 0 && is_open {
            let says_whole = header.options.fpdus.is_some_and(|whole| usize::from(whole) == length);
            let is_whole = self.agreed.fpdus && says_whole;
            self.handle_data(range, now, &mut |arrival| {
                let is_whole = is_whole && arrival.at == (0..length);
                take(Arrival { is_whole, ..arrival })
            });
        } else if length > 0 {
            self.due.ack = true;
        }
        if !header.flags.has(Flags::FIN) || range.end >= self.received.edge().max(self.received.nxt() + 1) {
            return;
        }
        self.due.ack = true;
        if is_open {
            self.received.handle_fin(range.end);
        }
        self.finish(now);
    }

    fn handle_data(&mut self, range: Range, now: Instant, take: &mut impl FnMut(Arrival) -> usize) {
        let had = self.received.nxt();
        let change = self.received.handle_data(range, self.config.max_kept, take);
        let counters = &mut self.counters;
        counters.beyond_gap += u32::from(change.is_new && self.received.nxt() == had);
        counters.duplicates += u32::from(range.end <= had);
        counters.not_taken += u32::from(!change.is_new && range.end > had);
        if change.is_new {
            self.unacknowledged = self.unacknowledged.saturating_add(1);
        }
        self.at_once = if change.is_urgent { AT_ONCE } else { self.at_once.saturating_sub(1) };
        let delay = nanoseconds(self.config.ack_delay).min(LONGEST_DELAY);
        if self.at_once > 0 || self.unacknowledged >= self.config.ack_every.max(1) || delay == 0 {
            self.due.ack = true;
        } else if !self.timers.runs(Timer::DelayedAck) {
            self.timers.set(Timer::DelayedAck, now.after(delay));
        }
        self.finish(now);
    }

    /// Changes the state if the peer's FIN is next in order.
    fn finish(&mut self, now: Instant) {
        if !self.received.is_finished() {
            return;
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => self.end_of_stream = true,
            State::TimeWait => {
                self.wait(now);
                return;
            }
            _ => return,
        }
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            _ => self.wait(now),
        }
    }
}
