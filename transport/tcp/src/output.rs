//! The segments that a connection sends.

use crate::connection::{Connection, State};
use crate::parts::{Recovery, Undo};
use crate::rack::{Probe, Rack};
use crate::scoreboard::Kind;
use crate::seq::{Range, SYN, offset};
use crate::time::{Instant, nanoseconds};
use crate::timers::Timer;
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// The stream of a connection, as TCP asks for it.
///
/// It is asked for bytes by their offset until they are [acknowledged](Connection::acknowledged).
pub trait Source {
    /// Returns the length of the segment that begins at this offset, at most `most`.
    ///
    /// Returns 0 if there is nothing to send yet. A segment is never made longer. It is cut again
    /// only if the path takes shorter segments by then.
    fn segment_at(&mut self, offset: u64, most: u32) -> u32;

    /// Returns whether a range of at most 65535 bytes is whole FPDUs, which the peer is then told.
    ///
    /// It is called only if both ends know the option.
    fn is_whole(&mut self, stretch: core::ops::Range<u64>) -> bool {
        let _ = stretch;
        false
    }
}

/// A segment to send: a header, and the range of the stream that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The header.
    pub header: TcpHeader,
    /// Its data, as offsets in the stream.
    pub data: core::ops::Range<u64>,
}

impl Connection {
    /// Takes the next segment to send, if there is one.
    ///
    /// It counts as sent. If the caller does not send it, it is lost, as on the wire.
    pub fn poll_transmit(&mut self, now: Instant, source: &mut impl Source) -> Option<Segment> {
        if let Some((number, acknowledges)) = self.due.reset.take() {
            let flags = if acknowledges { Flags::RST | Flags::ACK } else { Flags::RST };
            let mut segment = self.bare(now, number, flags);
            segment.header.window = 0;
            return Some(segment);
        }
        if self.state == State::Closed {
            return None;
        }
        // SACKs do not fit beside the data of a segment, and are more urgent.
        if self.due.ack && self.agreed.sack && self.received.has_news() {
            return Some(self.acknowledge(now));
        }
        let mut segment = self
            .send_syn(now)
            .or_else(|| self.send_tail_probe(now, source))
            .or_else(|| self.send_lost(now))
            .or_else(|| self.send_new(now, source))
            .or_else(|| self.send_window_probe(now, source))
            .or_else(|| self.send_keep_alive(now))
            .or_else(|| self.due.ack.then(|| self.acknowledge(now)))?;
        let length = segment.data.end - segment.data.start;
        if self.agreed.fpdus && length > 0 && source.is_whole(segment.data.clone()) {
            segment.header.options.fpdus = u16::try_from(length).ok();
        }
        Some(segment)
    }

    /// Sends the first SYN. Later ones are retransmissions.
    fn send_syn(&mut self, now: Instant) -> Option<Segment> {
        if self.board.nxt() != SYN {
            return None;
        }
        let range = self.board.push(1, Kind::Syn, now);
        Some(self.emit(now, range, Kind::Syn, false))
    }

    /// Retransmits the oldest segment that is marked lost, if the congestion window allows it.
    fn send_lost(&mut self, now: Instant) -> Option<Segment> {
        let index = self.board.first_lost()?;
        let length = self.board.get(index).range;
        let length = (length.end - length.start).min(self.mss);
        if !self.has_room(length) || !self.may_send_again(index) {
            return None;
        }
        if index == 0 && self.timers.runs(Timer::Retransmit) {
            // The timer waits for the answer to this retransmission.
            self.restart_timer(now);
        }
        Some(self.send_again(index, now))
    }

    /// Returns whether the congestion window has room for this many bytes.
    ///
    /// One segment may always be in flight.
    fn has_room(&self, length: u64) -> bool {
        let pipe = self.pipe();
        pipe == 0 || pipe + length <= self.congestion.window
    }

    /// Returns whether new data of this length waits for pacing although the window has room for
    /// it.
    ///
    /// An initial window may be a burst (RFC 6928). A sender that uses less than half of its window
    /// does not fill the path, and is not paced.
    fn waits_for_pace(&mut self, length: u64, now: Instant) -> bool {
        let Some(until) = self.pace.waits_until(now) else { return false };
        let waits = self.pipe() + length > self.initial_window().max(self.congestion.window / 2);
        if waits {
            self.timers.set(Timer::Pace, until);
        }
        waits
    }

    /// Returns whether a segment is longer than the path takes.
    fn is_too_long(&self, index: usize) -> bool {
        let sent = self.board.get(index);
        sent.kind == Kind::Data && sent.range.end - sent.range.start > self.mss
    }

    /// Returns whether a segment may be retransmitted. A too long one needs room for more records.
    fn may_send_again(&self, index: usize) -> bool {
        !self.is_too_long(index) || self.board.may_split(index, self.config.max_outstanding)
    }

    fn send_again(&mut self, index: usize, now: Instant) -> Segment {
        if self.is_too_long(index) {
            self.board.split(index, self.mss);
            self.fail_size_probe(now);
        }
        let sent = self.board.sent_again(index, now);
        self.counters.retransmits += 1;
        let clock = self.clock(now);
        let undo = self.undo.get_or_insert(Undo { within: sent.range, unexplained: 0, first_sent: None });
        undo.within.start = undo.within.start.min(sent.range.start);
        undo.within.end = undo.within.end.max(sent.range.end);
        if undo.unexplained == 0 {
            undo.first_sent = Some(clock);
        }
        undo.unexplained += 1;
        self.emit(now, sent.range, sent.kind, true)
    }

    /// Sends a tail loss probe, which makes the peer report what it has (RFC 8985, 7.3).
    ///
    /// It is new data if the window allows it, and otherwise the last missing segment.
    fn send_tail_probe(&mut self, now: Instant, source: &mut impl Source) -> Option<Segment> {
        if !core::mem::take(&mut self.due.tail_probe) {
            return None;
        }
        let index = self.board.last_missing().filter(|index| self.may_send_again(*index))?;
        self.counters.tail_probes += 1;
        let new = self.new_data(source, self.mss).ok();
        let segment = match new {
            Some(length) => self.send_data(now, length, source),
            None => self.send_again(index, now),
        };
        self.rack.probe = Some(Probe { end: self.board.nxt(), is_retransmission: new.is_none() });
        self.restart_timer(now);
        self.timers.stop(Timer::TailProbe);
        Some(segment)
    }

    /// Sends new data, then the FIN.
    fn send_new(&mut self, now: Instant, source: &mut impl Source) -> Option<Segment> {
        if !matches!(self.state, State::Established | State::CloseWait) || self.fin.is_some() {
            return None;
        }
        if self.board.is_empty() {
            self.restart_after_idle(now);
        }
        match self.new_data(source, self.longest(now)) {
            Ok(length) if !self.has_room(length) || self.waits_for_pace(length, now) => {
                self.is_app_limited = false;
                None
            }
            Ok(length) => {
                self.is_app_limited = true;
                Some(self.send_data(now, length, source))
            }
            Err(Nothing::ToSend) if self.is_closing => Some(self.send_fin(now)),
            Err(Nothing::ToSend) => {
                // Lost segments still wait for the congestion window.
                self.is_app_limited = !self.board.any_lost();
                self.timers.stop(Timer::WindowProbe);
                None
            }
            Err(Nothing::Allowed) => {
                self.is_app_limited = true;
                // The answer to an outstanding segment will have the window.
                if self.board.is_empty() && !self.timers.runs(Timer::WindowProbe) && !self.due.window_probe {
                    self.await_window(now);
                }
                None
            }
        }
    }

    /// Restarts the congestion window after a long idle time, when it is out of date (RFC 5681,
    /// 4.1).
    fn restart_after_idle(&mut self, now: Instant) {
        let idle = now.since(self.sent_last) > self.rtt.timeout(&self.config);
        if self.config.restart_after_idle && idle {
            self.congestion.restart(self.initial_window());
        }
    }

    /// Returns the length of the next segment of new data.
    ///
    /// There is none if the peer's window does not have room for all of it, or too many segments
    /// are outstanding.
    fn new_data(&self, source: &mut impl Source, most: u64) -> Result<u64, Nothing> {
        if !matches!(self.state, State::Established | State::CloseWait) || self.fin.is_some() {
            return Err(Nothing::ToSend);
        }
        let nxt = self.board.nxt();
        let length = u64::from(source.segment_at(offset(nxt), most as u32)).min(most);
        match length {
            0 => Err(Nothing::ToSend),
            _ if self.board.is_full(self.config.max_outstanding) => Err(Nothing::Allowed),
            _ if nxt + length > self.board.una() + self.window.size => Err(Nothing::Allowed),
            _ => Ok(length),
        }
    }

    fn send_data(&mut self, now: Instant, length: u64, source: &mut impl Source) -> Segment {
        let range = self.board.push(length, Kind::Data, now);
        self.note_size(range);
        let is_last = source.segment_at(offset(range.end), self.mss as u32) == 0;
        let mut segment = self.emit(now, range, Kind::Data, false);
        if is_last {
            segment.header.flags |= Flags::PSH;
        }
        self.arm_tail_probe(now);
        segment
    }

    fn send_fin(&mut self, now: Instant) -> Segment {
        let range = self.board.push(1, Kind::Fin, now);
        self.fin = Some(range.start);
        self.state = if self.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
        self.timers.stop(Timer::WindowProbe);
        self.emit(now, range, Kind::Fin, false)
    }

    /// Arms the tail loss probe: after about two round trips without an ACK (RFC 8985, 7.2).
    pub(crate) fn arm_tail_probe(&mut self, now: Instant) {
        let is_quiet = self.recovery == Recovery::Open && self.board.sacked_segments() == 0;
        let is_due = self.agreed.sack && is_quiet && self.rack.probe.is_none() && self.is_synchronized();
        if !is_due || self.board.is_empty() {
            self.timers.stop(Timer::TailProbe);
            return;
        }
        let timeout = Rack::probe_timeout(&self.rtt, self.board.segments(), &self.config);
        let at = now.after(timeout).min(self.timers.at(Timer::Retransmit));
        self.timers.set(Timer::TailProbe, at);
    }

    /// Schedules a probe of a window that has no room for a segment.
    ///
    /// The first waits one retransmission timeout. Later ones wait longer and longer (RFC 9293,
    /// 3.8.6.1).
    pub(crate) fn await_window(&mut self, now: Instant) {
        let once = self.rtt.timeout(&self.config);
        let most = nanoseconds(self.config.max_rto);
        let wait = once.saturating_mul(1 << self.probes.min(16)).min(most.max(once));
        self.timers.set(Timer::WindowProbe, now.after(wait));
    }

    /// Probes a window that is closed or too small for the next segment.
    ///
    /// If it has room, part of a segment is sent (silly window avoidance of the sender, RFC 9293,
    /// 3.8.6.2.1). Otherwise an old number is sent, which the peer answers with its window. A byte
    /// of new data would split a segment.
    fn send_window_probe(&mut self, now: Instant, source: &mut impl Source) -> Option<Segment> {
        if !core::mem::take(&mut self.due.window_probe) {
            return None;
        }
        if !matches!(self.new_data(source, self.mss), Err(Nothing::Allowed)) || !self.board.is_empty() {
            return None;
        }
        let room = (self.board.una() + self.window.size).saturating_sub(self.board.nxt());
        if room > 0 {
            return Some(self.send_data(now, room, source));
        }
        self.counters.window_probes += 1;
        self.stuck_since.get_or_insert(now);
        self.await_window(now);
        Some(self.probe(now))
    }

    fn send_keep_alive(&mut self, now: Instant) -> Option<Segment> {
        if !core::mem::take(&mut self.due.keep_alive) {
            return None;
        }
        self.counters.keep_alives += 1;
        Some(self.probe(now))
    }

    /// Makes a segment without data and with an old number, which the peer acknowledges (RFC 9293,
    /// 3.8.4).
    fn probe(&mut self, now: Instant) -> Segment {
        let number = self.send_origin.wire(self.board.nxt() - 1);
        self.bare(now, number, Flags::ACK)
    }

    fn acknowledge(&mut self, now: Instant) -> Segment {
        let number = self.send_origin.wire(self.board.nxt());
        let most = if self.agreed.timestamps { 3 } else { 4 };
        let mut segment = self.bare(now, number, Flags::ACK);
        if self.agreed.sack {
            let origin = self.receive_origin;
            let blocks = self.received.sacks(most);
            segment.header.options.sacks =
                blocks.map(|range| (origin.wire(range.start), origin.wire(range.end))).collect();
        }
        segment
    }

    /// Makes a segment that needs an acknowledgment, and starts its timers.
    fn emit(&mut self, now: Instant, range: Range, kind: Kind, again: bool) -> Segment {
        let flags = match (kind, self.state) {
            (Kind::Syn, State::SynSent) => Flags::SYN,
            (Kind::Syn, _) => Flags::SYN | Flags::ACK,
            (Kind::Fin, _) => Flags::FIN | Flags::ACK,
            (Kind::Data, _) if again => Flags::ACK | Flags::PSH,
            (Kind::Data, _) => Flags::ACK,
        };
        let mut segment = self.bare(now, self.send_origin.wire(range.start), flags);
        if kind == Kind::Data {
            segment.data = offset(range.start)..offset(range.end);
        }
        if let Recovery::Fast { prr, .. } = &mut self.recovery {
            prr.sent(range.end - range.start);
        }
        self.sent_last = now;
        self.pace.sent(range.end - range.start, &self.congestion, self.rtt.smoothed(), now);
        if self.board.segments() == 1 && !again {
            self.stuck_since = Some(now);
        }
        if !self.timers.runs(Timer::Retransmit) {
            self.restart_timer(now);
        }
        segment
    }

    /// Makes a segment without data. With the ACK flag it acknowledges all data that is complete.
    fn bare(&mut self, now: Instant, number: u32, flags: Flags) -> Segment {
        let is_syn = flags.has(Flags::SYN);
        let mut header = TcpHeader {
            src_port: self.ports.local,
            dst_port: self.ports.remote,
            seq: number,
            ack: 0,
            flags,
            window: self.announce(is_syn),
            urgent: 0,
            options: Options::default(),
        };
        if flags.has(Flags::ACK) {
            header.ack = self.receive_origin.wire(self.received.nxt());
            self.stamps.last_ack = self.received.nxt();
            self.due.ack = false;
            self.unacknowledged = 0;
            self.timers.stop(Timer::DelayedAck);
        }
        if self.agreed.timestamps {
            let echo = if flags.has(Flags::ACK) { self.stamps.recent } else { 0 };
            header.options.timestamps = Some((self.clock(now), echo));
        }
        if is_syn {
            header.options.mss = Some(self.config.mss);
            header.options.sack_permitted = self.agreed.sack;
            header.options.fpdus = self.offers_fpdus().then_some(0);
            // A shift of 0 is an offer too: it allows the peer to scale its own window.
            header.options.window_scale = self.offers_scale().then_some(self.agreed.receive_scale);
        }
        let at = offset(self.board.una());
        Segment { header, data: at..at }
    }

    /// Returns whether a SYN has a window scale. An answer has one only if the peer's SYN had one.
    fn offers_scale(&self) -> bool {
        self.state == State::SynSent || self.agreed.scaled
    }

    /// Returns whether a SYN has the option for FPDUs.
    ///
    /// Some networks drop SYNs with unknown options. So a retransmitted SYN leaves this option out,
    /// since the connection works without it.
    fn offers_fpdus(&self) -> bool {
        self.agreed.fpdus && (self.state != State::SynSent || self.counters.timeouts == 0)
    }

    /// Sets the number of bytes that may arrive beyond the complete part of the stream.
    ///
    /// A smaller value cannot take back what the peer was told (RFC 9293, 3.8.6).
    pub fn set_window(&mut self, bytes: u32) {
        let before = self.receive_window;
        self.receive_window = u64::from(bytes.min(1 << 30));
        // A larger window is announced at once: the peer may be waiting for it.
        self.due.ack |= self.receive_window > before && self.is_synchronized();
    }

    /// Returns the window field of a header. The right edge never moves back (RFC 9293, 3.8.6).
    fn announce(&mut self, is_syn: bool) -> u16 {
        let nxt = self.received.nxt();
        let size = (nxt + self.receive_window).max(self.received.edge()) - nxt;
        let scale = if is_syn { 0 } else { self.agreed.receive_scale };
        // Rounded up, because rounding down would move the edge back.
        let written = size.div_ceil(1 << scale).min(0xffff);
        self.received.open(nxt + (written << scale));
        written as u16
    }
}

/// Why no new data is sent.
enum Nothing {
    /// There is no data.
    ToSend,
    /// The peer's window is too small for the next segment, or too many segments are outstanding.
    Allowed,
}
