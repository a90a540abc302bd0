//! SYN cookies (RFC 4987, 3.6).
//!
//! If the limit of half-open connections is reached, a SYN is answered and forgotten. The state
//! returns in the peer's ACK. So a flood of SYNs from unused addresses does not keep other peers
//! out.
//!
//! | bits of our initial number | what |
//! |---|---|
//! | 31 to 27 | the time interval, modulo 32 |
//! | 26 to 24 | the index in [`SIZES`] of the peer's MSS |
//! | 23 to 0 | a hash of these, of the tuple and of the peer's number, with the stack's secret |
//!
//! With timestamps (RFC 7323), the 6 lowest bits of ours hold the other options, and return as an
//! echo. They are the peer's window scale (15: none), whether SACKs are permitted, and whether
//! segments say that they are whole FPDUs. Without timestamps, none of these is used.

use super::state::{ANSWERS, Outgoing, Stack};
use crate::connection::{Connection, Ports};
use crate::output::{Segment, Source};
use crate::reassembly::Arrival;
use crate::table::ConnectionId;
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// A cookie is valid in the time interval in which it was made, and in the next. In nanoseconds.
const STRETCH: u64 = 64_000_000_000;
/// Segment sizes that a cookie can name. The largest one that the peer takes counts.
///
/// These are minima of RFCs, and the sizes of tunnels, of Ethernet, and of long frames.
const SIZES: [u16; 8] = [216, 536, 1220, 1380, 1440, 1460, 4036, 8940];
/// The bits of a timestamp that hold options.
const AGREED: u32 = 0x3f;
const SACK: u32 = 0x10;
const FPDUS: u32 = 0x20;
/// The value for no window scale.
const NO_SCALE: u32 = 0xf;

/// A source without data.
struct Nothing;

impl Source for Nothing {
    fn segment_at(&mut self, _: u64, _: u32) -> u32 {
        0
    }
}

/// Returns the bits of a timestamp that hold the negotiated options.
fn agreed(options: &Options) -> u32 {
    let scale = options.window_scale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let bit = |is_so: bool, bit| if is_so { bit } else { 0 };
    scale | bit(options.sack_permitted, SACK) | bit(options.fpdus.is_some(), FPDUS)
}

impl Stack {
    /// Answers a SYN with a cookie, and keeps nothing of it.
    pub(super) fn send_cookie(
        &mut self,
        now: Instant,
        (tuple, hop): (Tuple, NextHop),
        listener: ([u8; 16], u16),
        syn: &TcpHeader,
    ) {
        if self.answers.len() >= ANSWERS {
            self.counters.no_room += 1;
            return;
        }
        let config = &self.listeners[&listener].config;
        let stretch = now.0 / STRETCH;
        let mss = syn.options.mss.unwrap_or(config.min_mss).max(SIZES[0]);
        let size = SIZES.partition_point(|size| *size <= mss) as u8 - 1;
        let hash = self.secret.cookie(&tuple, syn.seq, stretch, size);
        let number = (stretch as u32) << 27 | u32::from(size) << 24 | hash;
        let mut options = Options { mss: Some(config.mss), ..Options::default() };
        if let Some((value, _)) = syn.options.timestamps.filter(|_| config.timestamps) {
            options.sack_permitted = config.sack && syn.options.sack_permitted;
            options.fpdus = syn.options.fpdus.filter(|_| config.fpdus).map(|_| 0);
            let known = Options { window_scale: syn.options.window_scale, ..options };
            // Not beyond our clock, because later segments use the clock.
            let clock = self.secret.clock(&tuple).wrapping_add((now.0 / 1_000_000) as u32);
            let stamp = clock.wrapping_sub(AGREED + 1) & !AGREED | agreed(&known);
            options.timestamps = Some((stamp, value));
            options.window_scale = syn.options.window_scale.map(|_| config.window_scale());
        }
        let Ports { local: src_port, remote: dst_port } = tuple.ports;
        let flags = Flags::SYN | Flags::ACK;
        let (ack, window) = (syn.seq.wrapping_add(1), config.receive_window().min(0xffff) as u16);
        let header = TcpHeader { src_port, dst_port, seq: number, ack, flags, window, urgent: 0, options };
        let segment = Segment { header, data: 0..0 };
        self.answers.push_back(Outgoing {
            id: None,
            tuple,
            hop,
            traffic_class: config.traffic_class,
            segment,
        });
        self.cookie_sent = Some(now);
        self.counters.cookies_sent += 1;
    }

    /// Makes the connection that an ACK with a cookie completes, in its state after our SYN-ACK.
    pub(super) fn take_cookie(
        &mut self,
        now: Instant,
        (tuple, hop): (Tuple, NextHop),
        header: &TcpHeader,
    ) -> Option<ConnectionId> {
        let is_first =
            header.flags.has(Flags::ACK) && !header.flags.has(Flags::SYN) && !header.flags.has(Flags::RST);
        let may_be = self.cookie_sent.is_some_and(|sent| now.since(sent) < 2 * STRETCH);
        if !is_first || !may_be {
            return None;
        }
        let listener = self.listener_of(&tuple)?;
        let (number, theirs) = (header.ack.wrapping_sub(1), header.seq.wrapping_sub(1));
        let Some(size) = self.size_of_cookie(now, &tuple, number, theirs) else {
            self.counters.cookies_refused += 1;
            return None;
        };
        if self.table.len() >= self.limits.connections {
            self.counters.no_room += 1;
            return None;
        }
        let config = self.listeners[&listener].config.clone();
        let mut options = Options { mss: Some(size), ..Options::default() };
        if let Some((value, echo)) = header.options.timestamps.filter(|_| config.timestamps) {
            options.timestamps = Some((value, 0));
            options.sack_permitted = echo & SACK != 0;
            options.fpdus = (echo & FPDUS != 0).then_some(0);
            options.window_scale =
                Some(echo & NO_SCALE).filter(|scale| *scale != NO_SCALE).map(|scale| scale as u8);
        }
        let syn = TcpHeader { seq: theirs, ack: 0, flags: Flags::SYN, options, ..*header };
        let mut connection = Connection::accept(config, &syn, number, self.secret.clock(&tuple), now);
        // The SYN-ACK was sent earlier, at an unknown time. So it must not measure a round trip.
        connection.poll_transmit(now, &mut Nothing);
        connection.board.sent_again(0, now);
        Some(self.table.insert((tuple, hop), connection, true))
    }

    /// Returns the MSS that a cookie names, if the cookie is valid and not too old.
    fn size_of_cookie(&self, now: Instant, tuple: &Tuple, number: u32, theirs: u32) -> Option<u16> {
        let (made, size) = (number >> 27, (number >> 24) as u8 & 7);
        let stretch = now.0 / STRETCH;
        let made = [Some(stretch), stretch.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|at| *at as u32 & 0x1f == made)?;
        let is_ours = self.secret.cookie(tuple, theirs, made, size) == number & 0xff_ffff;
        is_ours.then(|| SIZES[usize::from(size)])
    }

    /// Handles the ACK that set up a connection as its first segment.
    pub(super) fn handle_first(
        &mut self,
        now: Instant,
        id: ConnectionId,
        header: &TcpHeader,
        length: usize,
        take: &mut impl FnMut(ConnectionId, Arrival) -> usize,
    ) {
        let entry = self.table.get_mut(id).expect("it was inserted just now");
        let mut header = *header;
        if let Some((_, echo)) = &mut header.options.timestamps {
            // The echo holds the negotiated options, not a time.
            *echo = entry.connection.clock(now);
        }
        entry.connection.handle_segment(now, &header, length, &mut |arrival| take(id, arrival));
        self.settle(id);
        match self.table.get(id).is_some_and(|entry| entry.half_open) {
            true => self.table.remove(id),
            false => self.counters.cookies_taken += 1,
        }
    }
}
