//! What a connection sends.

use crate::connection::{Connection, State};
use crate::parts::{Recovery, Undo};
use crate::rack::{Probe, Rack};
use crate::scoreboard::Kind;
use crate::seq::{Range, SYN, offset};
use crate::time::{Instant, nanoseconds};
use crate::timers::Timer;
use vrdma_wire::tcp::{Flags, Header, Options};

/// Where a connection's stream comes from. It is asked for bytes by their place in the stream until
/// they are [acknowledged](Connection::acknowledged).
pub trait Source {
    /// How long the segment is that begins at this place, at most `most`; 0 if there is nothing to
    /// send yet. A segment is never made longer, and cut again only where the path takes less by
    /// now.
    fn segment_at(&mut self, offset: u64, most: u32) -> u32;

    /// Whether a stretch of at most 65535 bytes is whole FPDUs: the peer is told so. Not asked
    /// unless both ends know of it.
    fn is_whole(&mut self, stretch: core::ops::Range<u64>) -> bool {
        let _ = stretch;
        false
    }
}

/// A segment to send: a header, and which bytes of the stream follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The header.
    pub header: Header,
    /// Its data, as places in the stream.
    pub data: core::ops::Range<u64>,
}

impl Connection {
    /// The next segment to send, if there is one. It counts as sent: one that is not is lost, as on
    /// the wire.
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
        // SACKs have no room beside a segment's data, and are worth more than that.
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

    /// The first SYN. Others are retransmissions.
    fn send_syn(&mut self, now: Instant) -> Option<Segment> {
        if self.board.nxt() != SYN {
            return None;
        }
        let range = self.board.push(1, Kind::Syn, now);
        Some(self.emit(now, range, Kind::Syn, false))
    }

    /// What was taken for lost, oldest first, as the congestion window allows.
    fn send_lost(&mut self, now: Instant) -> Option<Segment> {
        let index = self.board.first_lost()?;
        let length = self.board.get(index).range;
        let length = (length.end - length.start).min(self.mss);
        if !self.has_room(length) || !self.may_send_again(index) {
            return None;
        }
        if index == 0 && self.timers.runs(Timer::Retransmit) {
            // What is waited for is the answer to this one.
            self.restart_timer(now);
        }
        Some(self.send_again(index, now))
    }

    /// Whether the congestion window has room for so many bytes. One segment may always be on its
    /// way.
    fn has_room(&self, length: u64) -> bool {
        let pipe = self.pipe();
        pipe == 0 || pipe + length <= self.congestion.window
    }

    /// Whether so many bytes of new data are to go later, though the window has room for them. An
    /// initial window may be a burst anyway (RFC 6928), and who uses less than half of the window
    /// is not who fills the path.
    fn waits_for_pace(&mut self, length: u64, now: Instant) -> bool {
        let Some(until) = self.pace.waits_until(now) else { return false };
        let waits = self.pipe() + length > self.initial_window().max(self.congestion.window / 2);
        if waits {
            self.timers.set(Timer::Pace, until);
        }
        waits
    }

    /// Whether a segment is too long for the path by now.
    fn is_too_long(&self, index: usize) -> bool {
        let sent = self.board.get(index);
        sent.kind == Kind::Data && sent.range.end - sent.range.start > self.mss
    }

    /// One that is too long goes in parts, as far as there may be more records.
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

    /// A segment that makes the peer tell what it has of the tail (RFC 8985, 7.3): new data if the
    /// window allows, else the last segment once more.
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

    /// New data, then the FIN.
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
                // What is lost waits for the window still.
                self.is_app_limited = !self.board.any_lost();
                self.timers.stop(Timer::WindowProbe);
                None
            }
            Err(Nothing::Allowed) => {
                self.is_app_limited = true;
                // Something outstanding will have an answer, which tells the window.
                if self.board.is_empty() && !self.timers.runs(Timer::WindowProbe) && !self.due.window_probe {
                    self.await_window(now);
                }
                None
            }
        }
    }

    /// The congestion window says nothing of a network that was not used for long (RFC 5681, 4.1).
    fn restart_after_idle(&mut self, now: Instant) {
        let idle = now.since(self.sent_last) > self.rtt.timeout(&self.config);
        if self.config.restart_after_idle && idle {
            self.congestion.restart(self.initial_window());
        }
    }

    /// How long the next segment of new data is, if there is one, the peer's window has room for
    /// all of it, and not too many are outstanding.
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

    /// The tail is probed if nothing is heard of it for about two round trips (RFC 8985, 7.2).
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

    /// A window that has no room for a segment is probed, at first after a retransmission timeout,
    /// then less and less often (RFC 9293, 3.8.6.1).
    pub(crate) fn await_window(&mut self, now: Instant) {
        let once = self.rtt.timeout(&self.config);
        let most = nanoseconds(self.config.max_rto);
        let wait = once.saturating_mul(1 << self.probes.min(16)).min(most.max(once));
        self.timers.set(Timer::WindowProbe, now.after(wait));
    }

    /// A part of a segment if there is room for it (the sender's side of avoiding silly windows,
    /// RFC 9293, 3.8.6.2.1), else something old, which the peer answers with its window: a byte of
    /// new data would cut a segment in two.
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

    /// A segment without data and with an old number, which is answered by an acknowledge (RFC
    /// 9293, 3.8.4).
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

    /// A segment with something that is to be acknowledged.
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

    /// A segment without data. What acknowledges acknowledges all by now.
    fn bare(&mut self, now: Instant, number: u32, flags: Flags) -> Segment {
        let is_syn = flags.has(Flags::SYN);
        let mut header = Header {
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
            // A shift of 0 is one too: it says that ours may be used.
            header.options.window_scale = self.offers_scale().then_some(self.agreed.receive_scale);
        }
        let at = offset(self.board.una());
        Segment { header, data: at..at }
    }

    /// A SYN offers a scale; its answer has one if the SYN had.
    fn offers_scale(&self) -> bool {
        self.state == State::SynSent || self.agreed.scaled
    }

    /// Some networks lose SYNs with options that they do not know: what is sent again has none that
    /// can be missed.
    fn offers_fpdus(&self) -> bool {
        self.agreed.fpdus && (self.state != State::SynSent || self.counters.timeouts == 0)
    }

    /// Sets the bytes that may arrive beyond what is complete. Less counts only as far as the peer
    /// was not told of more (RFC 9293, 3.8.6).
    pub fn set_window(&mut self, bytes: u32) {
        let before = self.receive_window;
        self.receive_window = u64::from(bytes.min(1 << 30));
        // A window that opens is told at once: the peer may be waiting for it.
        self.due.ack |= self.receive_window > before && self.is_synchronized();
    }

    /// The window as it is written. Its right edge never goes back (RFC 9293, 3.8.6).
    fn announce(&mut self, is_syn: bool) -> u16 {
        let nxt = self.received.nxt();
        let size = (nxt + self.receive_window).max(self.received.edge()) - nxt;
        let scale = if is_syn { 0 } else { self.agreed.receive_scale };
        // Rounded up, since the edge would go back by rounding down.
        let written = size.div_ceil(1 << scale).min(0xffff);
        self.received.open(nxt + (written << scale));
        written as u16
    }
}

/// Why there is no new data.
enum Nothing {
    /// There is none.
    ToSend,
    /// The peer's window has no room for the next segment, or as many are outstanding as may be.
    Allowed,
}
