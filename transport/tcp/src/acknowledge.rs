//! What ACKs of the peer say: which data arrived, when, and how much more the peer takes.

use crate::connection::{Connection, State};
use crate::recovery::News;
use crate::scoreboard::Sent;
use crate::seq::Range;
use crate::time::Instant;
use crate::timers::Timer;
use vrdma_wire::tcp::{Flags, TcpHeader};

/// What an arriving segment says besides its data, in numbers that do not wrap.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub header: &'a TcpHeader,
    /// Its first number, and the one after its last, without FIN.
    pub range: Range,
    /// Whether it has data, a SYN or a FIN.
    pub has_length: bool,
}

impl Connection {
    /// Takes the acknowledgment number, SACKs and window of an acceptable segment.
    ///
    /// Returns false if the acknowledgment number is invalid. The segment is then dropped.
    pub(crate) fn handle_ack(&mut self, segment: Incoming<'_>, now: Instant) -> bool {
        let header = segment.header;
        let una = self.board.una();
        let ack = self.send_origin.number(header.ack, una);
        // RFC 5961, 5.2: the number was never sent, or acknowledged so long ago that no such
        // segment can still be in the network.
        if ack > self.board.nxt() || ack.saturating_add(self.window.largest) < una {
            self.counters.bad_ack += 1;
            self.challenge(now);
            return false;
        }
        let window_before = self.window;
        self.update_window(segment, ack);
        let outstanding = self.board.segments();
        let mut news = News { echo: header.options.timestamps.map(|(_, echo)| echo), ..News::default() };
        let mut newest: Option<Sent> = None;
        news.is_bare = ack == una && !segment.has_length && header.options.sacks.as_slice().is_empty();
        if ack > una {
            news.acknowledged = ack - una;
            news.delivered += self.take_cumulative(ack, news.echo, &mut newest, now);
        }
        if self.agreed.sack {
            let (delivered, twice) = self.take_sacks(segment, ack, news.echo, &mut newest, now);
            news.delivered += delivered;
            news.twice = twice;
        }
        news.is_duplicate = ack == una
            && outstanding > 0
            && !segment.has_length
            && header.flags.0 & (Flags::SYN.0 | Flags::FIN.0) == 0
            && window_before.size == self.window.size;
        self.measure(newest, &news, outstanding, now);
        if news.acknowledged > 0 {
            self.timeouts_in_a_row = 0;
            self.end_size_probe();
            self.stuck_since = (!self.board.is_empty()).then_some(now);
            self.restart_timer(now);
        }
        self.recover(news, now);
        if news.acknowledged > 0 || news.delivered > 0 {
            self.arm_tail_probe(now);
        }
        if self.board.is_empty() {
            self.timers.stop(Timer::Reordering);
            self.timers.stop(Timer::TailProbe);
        }
        true
    }

    /// Measures a round trip, by a segment that was sent once or by the echo of a timestamp.
    ///
    /// Only a measurement ends the back-off. An ACK of a retransmitted segment does not tell the
    /// round-trip time (RFC 6298, 5.7; Karn's algorithm).
    fn measure(&mut self, newest: Option<Sent>, news: &News, outstanding: u64, now: Instant) {
        if let Some(sent) = newest {
            self.rtt.measured(now.since(sent.at), outstanding, now);
        } else if let Some(echo) = news.echo.filter(|_| self.agreed.timestamps && news.acknowledged > 0) {
            let milliseconds = self.clock(now).wrapping_sub(echo);
            // Less than one tick says nothing new. A larger value is no echo of ours.
            if (1..1 << 31).contains(&milliseconds) {
                self.rtt.measured(u64::from(milliseconds) * 1_000_000, outstanding, now);
            }
        } else {
            return;
        }
        self.rtt.backoff = 0;
    }

    /// Takes the cumulative acknowledgment of all numbers before `ack`.
    ///
    /// `newest` becomes the latest of the segments that were sent once; its round trip is measured.
    fn take_cumulative(
        &mut self,
        ack: u64,
        echo: Option<u32>,
        newest: &mut Option<Sent>,
        now: Instant,
    ) -> u64 {
        let (least, stamps, sack) = (self.rtt.least(), self.stamps, self.agreed.sack);
        let rack = &mut self.rack;
        self.board.acknowledge(ack, |sent| {
            keep_newest(newest, sent);
            if sack {
                rack.arrived(sent, || is_older(echo, stamps.offset, sent.at), least, now);
            }
        })
    }

    /// Takes the SACK blocks. Returns how many numbers they newly report, and a range that arrived
    /// twice.
    fn take_sacks(
        &mut self,
        segment: Incoming<'_>,
        ack: u64,
        echo: Option<u32>,
        newest: &mut Option<Sent>,
        now: Instant,
    ) -> (u64, Option<Range>) {
        let (mut delivered, mut twice) = (0, None);
        let blocks = segment.header.options.sacks;
        let mut second = None;
        for (index, (left, right)) in blocks.as_slice().iter().enumerate().rev() {
            let range = Range {
                start: self.send_origin.number(*left, ack),
                end: self.send_origin.number(*right, ack),
            };
            // A first block before the acknowledgment number, or within the next block, reports a
            // duplicate (RFC 2883, 4).
            let is_twice = index == 0
                && range.start < range.end
                && (range.end <= ack || second.is_some_and(|second: Range| second.covers(range)));
            if is_twice {
                twice = Some(range);
            } else if range.start < range.end && range.end <= self.board.nxt() {
                let (least, stamps) = (self.rtt.least(), self.stamps);
                let rack = &mut self.rack;
                delivered += self.board.sack(range, |sent| {
                    keep_newest(newest, sent);
                    rack.arrived(sent, || is_older(echo, stamps.offset, sent.at), least, now);
                });
            } else {
                self.counters.bad_sack += 1;
            }
            second = Some(range);
        }
        // It is not checked that the range was sent twice. A peer may make such reports up.
        self.counters.duplicates_reported += u32::from(twice.is_some());
        (delivered, twice)
    }

    /// Takes the window of the latest segment (RFC 9293, 3.10.7.4).
    fn update_window(&mut self, segment: Incoming<'_>, ack: u64) {
        let (seq, window) = (segment.range.start, &mut self.window);
        if ack < self.board.una() || (seq, ack) < (window.seq, window.ack) {
            return;
        }
        let scale = if segment.header.flags.has(Flags::SYN) { 0 } else { self.agreed.send_scale };
        let size = u64::from(segment.header.window) << scale;
        let edge_before = window.ack + window.size;
        (window.size, window.seq, window.ack) = (size, seq, ack);
        window.largest = window.largest.max(size);
        if ack + size > edge_before && self.timers.runs(Timer::WindowProbe) {
            self.probes = 0;
            self.timers.stop(Timer::WindowProbe);
        }
    }

    /// Changes the state if our FIN is acknowledged.
    pub(crate) fn advance_close(&mut self, now: Instant) {
        if !self.is_fin_acknowledged() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.timers.set(Timer::Wait, now + self.config.fin_wait);
            }
            State::Closing => self.wait(now),
            State::LastAck => self.end(crate::connection::Reason::Finished),
            _ => {}
        }
    }
}

/// Keeps the segment that was sent last, of those that were sent once.
fn keep_newest(newest: &mut Option<Sent>, sent: &Sent) {
    if !sent.again && newest.is_none_or(|newest| newest.at <= sent.at) {
        *newest = Some(*sent);
    }
}

/// Returns whether an echo is older than a segment that was sent at `at`.
fn is_older(echo: Option<u32>, clock: u32, at: Instant) -> bool {
    let stamp = clock.wrapping_add((at.0 / 1_000_000) as u32);
    echo.is_some_and(|echo| (echo.wrapping_sub(stamp) as i32) < 0)
}
