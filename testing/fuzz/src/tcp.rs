//! Fuzzes a TCP connection by segments of a hostile peer.
//!
//! The input first brings a connection into a state. Then it is a list of steps: segments with
//! nearly right numbers, raw segments, passing time, calls of the user. Invariants:
//!
//! - Nothing panics.
//! - A saved and restored connection is equal to the original.
//! - No byte is delivered twice.
//! - Only data of the user is sent.
//! - Sending ends.
//! - Outstanding data has a timer.

use crate::input::Input;
use std::ops::Range;
use std::time::Duration;
use vrdma_tcp::{Arrival, Config, Connection, Instant, KeepAlive, Ports, Segment, Source, State};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// A stream of the present length, in segments of 700 bytes.
struct Stream(u64);

impl Source for Stream {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        let end = self.0.min((offset / 700 + 1) * 700);
        end.saturating_sub(offset).min(u64::from(most)) as u32
    }

    fn is_whole(&mut self, stretch: Range<u64>) -> bool {
        stretch.start.is_multiple_of(700) && stretch.end == self.0.min(stretch.start + 700)
    }
}

struct Lab<'a> {
    input: Input<'a>,
    connection: Connection,
    now: Instant,
    stream: Stream,
    /// It offers the option that says which segments are whole FPDUs.
    has_fpdus: bool,
    /// The ranges of the peer's stream that were taken, in order.
    taken: Vec<(u64, u64)>,
    /// The last header that the connection sent.
    heard: TcpHeader,
    /// The end of the highest segment that it sent, and the number of the latest one.
    sent: (u32, u32),
}

const PORTS: Ports = Ports { local: 1, remote: 2 };
const THEIRS: u32 = 0xffff_f000;

/// Runs an input.
pub fn tcp(data: &[u8]) {
    let mut input = Input(data);
    let options = input.byte();
    let config = Config {
        window: [2000, 70_000][usize::from(options & 1)],
        sack: options & 2 != 0,
        timestamps: options & 4 != 0,
        fpdus: options & 32 != 0,
        max_kept: 3,
        initial_window: if options & 8 != 0 { 2 } else { 10 },
        keep_alive: (options & 16 != 0).then_some(KeepAlive {
            idle: Duration::from_secs(5),
            interval: Duration::from_secs(1),
            probes: 3,
        }),
        min_rto: Duration::from_millis(1),
        ..Config::default()
    };
    let state = input.byte();
    let is_passive = state & 1 != 0;
    let syn = header(Flags::SYN, THEIRS, 0, &config);
    let connection = if is_passive {
        Connection::accept(config, &syn, 0xffff_fe00, 7, Instant(0))
    } else {
        Connection::connect(config, PORTS, 0xffff_fe00, 7, Instant(0))
    };
    let mut lab = Lab {
        input,
        connection,
        now: Instant(0),
        stream: Stream(0),
        has_fpdus: config.fpdus,
        taken: Vec::new(),
        heard: syn,
        sent: (0xffff_fe00, 0xffff_fe00),
    };
    lab.drain();
    lab.begin(state >> 1, is_passive, &config);
    for _ in 0..200 {
        if lab.input.0.is_empty() || lab.connection.state() == State::Closed {
            break;
        }
        lab.step(&config);
        lab.check();
    }
}

fn header(flags: Flags, seq: u32, ack: u32, config: &Config) -> TcpHeader {
    let is_syn = flags.has(Flags::SYN);
    TcpHeader {
        src_port: PORTS.remote,
        dst_port: PORTS.local,
        seq,
        ack,
        flags,
        window: 0x4000,
        urgent: 0,
        options: Options {
            mss: is_syn.then_some(1460),
            window_scale: is_syn.then_some(2),
            sack_permitted: is_syn && config.sack,
            timestamps: config.timestamps.then_some((100, 7)),
            fpdus: (is_syn && config.fpdus).then_some(0),
            ..Options::default()
        },
    }
}

impl Lab<'_> {
    /// Takes the connection to a state by right segments.
    fn begin(&mut self, state: u8, is_passive: bool, config: &Config) {
        let state = state % 8;
        if state == 0 {
            return;
        }
        let flags = if is_passive { Flags::ACK } else { Flags::SYN | Flags::ACK };
        let seq = if is_passive { THEIRS.wrapping_add(1) } else { THEIRS };
        self.arrive(header(flags, seq, self.sent.0, config), 0);
        self.stream.0 = 3000;
        self.drain();
        let next = THEIRS.wrapping_add(1);
        let fin = Flags::FIN | Flags::ACK;
        // In some of these states this end has closed, in others the peer.
        if [2, 3, 6].contains(&state) {
            self.arrive(header(fin, next, self.sent.0, config), 0);
        }
        if state >= 3 {
            self.arrive(header(Flags::ACK, next, self.sent.0, config), 0);
            self.connection.close();
            self.drain();
        }
        match state {
            4 => self.arrive(header(Flags::ACK, next, self.sent.0, config), 0),
            5 => self.arrive(header(fin, next, self.sent.0.wrapping_sub(1), config), 0),
            7 => self.arrive(header(fin, next, self.sent.0, config), 0),
            _ => {}
        }
    }

    fn step(&mut self, config: &Config) {
        match self.input.byte() % 16 {
            0 => {
                let nanoseconds = u64::from(self.input.word()) << (self.input.byte() % 16);
                self.now = Instant(self.now.0.saturating_add(nanoseconds).min(1 << 60));
                self.connection.handle_timeout(self.now);
            }
            1 => {
                if let Some(due) = self.connection.poll_timeout() {
                    self.now = Instant(self.now.0.max(due.0));
                    self.connection.handle_timeout(self.now);
                }
            }
            2 => self.stream.0 += u64::from(self.input.short()),
            3 => match self.input.byte() {
                0..10 => self.connection.close(),
                10 => self.connection.abort(),
                11..60 => self.connection.set_window(self.input.word() >> (self.input.byte() % 32)),
                60..90 => {
                    let number = self.input.near(&[self.sent.0, self.sent.1, self.sent.0.wrapping_sub(1)]);
                    self.connection.handle_too_long(number, self.input.short());
                }
                _ => while self.connection.poll_event().is_some() {},
            },
            4 => {
                let length = usize::from(self.input.byte()).min(self.input.0.len());
                let (bytes, rest) = self.input.0.split_at(length);
                self.input.0 = rest;
                if let Ok((header, data)) = TcpHeader::parse(bytes) {
                    self.arrive(header, data.len());
                }
            }
            _ => {
                let (header, length) = self.segment(config);
                self.arrive(header, length);
            }
        }
        self.drain();
    }

    /// Returns a nearly right segment.
    fn segment(&mut self, config: &Config) -> (TcpHeader, usize) {
        let edge = self.heard.ack.wrapping_add(u32::from(self.heard.window));
        let flags = match self.input.byte() {
            0..200 => Flags::ACK,
            200..230 => Flags::ACK | Flags::FIN,
            other => Flags(other.wrapping_mul(37)),
        };
        let seq = self.input.near(&[self.heard.ack, self.heard.ack, edge, THEIRS]);
        let ack = self.input.near(&[self.sent.0, self.sent.1, self.heard.seq]);
        let mut header = header(flags, seq, ack, config);
        header.window = self.input.short();
        let options = self.input.byte();
        if options & 3 == 0 {
            let value = self.input.near(&[100, self.heard.options.timestamps.map_or(0, |(value, _)| value)]);
            header.options.timestamps = Some((value, self.input.near(&[7, 8])));
        }
        if options & 12 == 0 {
            let number = |lab: &mut Self| lab.input.near(&[ack, lab.sent.0, lab.sent.1]);
            let blocks: Vec<(u32, u32)> = (0..options >> 6).map(|_| (number(self), number(self))).collect();
            header.options.sacks = blocks.into_iter().collect();
        }
        let length = if options & 16 == 0 { 0 } else { usize::from(self.input.short()) % 3000 };
        if options & 32 == 0 {
            header.options.fpdus = Some(self.input.near(&[length as u32]) as u16);
        }
        (header, length)
    }

    fn arrive(&mut self, header: TcpHeader, length: usize) {
        let has_fpdus = self.has_fpdus;
        let (taken, refused) = (&mut self.taken, self.input.0.len().is_multiple_of(5));
        let mut take = |arrival: Arrival| {
            assert!(arrival.at.end <= length && !arrival.at.is_empty());
            let is_said = header.options.fpdus.is_some_and(|whole| usize::from(whole) == length);
            assert!(!arrival.is_whole || has_fpdus && is_said && arrival.at == (0..length));
            let length = if refused { arrival.at.len() / 2 } else { arrival.at.len() };
            let (from, to) = (arrival.offset, arrival.offset + length as u64);
            assert!(taken.iter().all(|(a, b)| to <= *a || from >= *b), "{from}..{to} came twice");
            if length > 0 {
                taken.push((from, to));
            }
            length
        };
        self.connection.handle_segment(self.now, &header, length, &mut take);
        self.drain();
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            let Some(segment) = self.connection.poll_transmit(self.now, &mut self.stream) else { return };
            self.look(&segment);
        }
        panic!("it does not stop sending");
    }

    fn look(&mut self, segment: &Segment) {
        let Segment { header, data } = segment;
        assert!(data.end <= self.stream.0.max(data.start), "it sends what the user has");
        assert!(data.end - data.start <= 1460);
        assert!(header.len() <= 60);
        if let Some(whole) = header.options.fpdus {
            let is_whole = !data.is_empty() && self.stream.is_whole(data.clone());
            let is_right = u64::from(whole) == data.end - data.start;
            assert!(self.has_fpdus && is_right && (is_whole || header.flags.has(Flags::SYN)), "{segment:?}");
        }
        if header.flags.has(Flags::RST) {
            return;
        }
        let numbers = (data.end - data.start) as u32
            + u32::from(header.flags.has(Flags::SYN))
            + u32::from(header.flags.has(Flags::FIN));
        let end = header.seq.wrapping_add(numbers);
        if end.wrapping_sub(self.sent.0) as i32 > 0 {
            self.sent.0 = end;
        }
        self.sent.1 = header.seq;
        self.heard = *header;
    }

    fn check(&mut self) {
        let saved = self.connection.save();
        assert_eq!(saved.restore().as_ref(), Ok(&self.connection));
        let complete = self.connection.complete();
        // Complete data was taken.
        let mut sorted = self.taken.clone();
        sorted.sort_unstable();
        let end = sorted.iter().fold(0, |end, (from, to)| if *from <= end { end.max(*to) } else { end });
        assert_eq!(end, complete);
        assert!(self.connection.acknowledged() <= self.connection.sent());
        assert!(self.connection.sent() <= self.stream.0);
    }
}
