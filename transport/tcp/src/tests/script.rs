//! A conversation as a table, in virtual time. Numbers are relative: 0 is a SYN, 1 the first byte.
//!
//! | line | what it does |
//! |---|---|
//! | `at 12.5` | advances to this time in milliseconds; timers that are due before run at their time |
//! | `< FLAGS FROM:TO ...` | a segment arrives |
//! | `> FLAGS FROM:TO ...` | the next sent segment is this one; all sent segments are named before anything else happens |
//! | `send N`, `send N*K` | the user posts K segments of N bytes |
//! | `close`, `abort`, `leave`, `window N` | the user calls this function |
//! | `refuse`, `accept`, `take N` | what the user does with data from here on (N: so many bytes of each part) |
//! | `taken A-B,C-D` | ranges that were delivered since the last such line, in order; `!` after one: it is whole FPDUs |
//! | `state`, `event`, `acknowledged`, `complete`, `cwnd`, `mss`, `count NAME` | the expected value (`event -`: none) |
//! | `toolong N MSS` | a router reports that the segment with this number was too long |
//!
//! Flags are letters: `S`, `F`, `R`, `P`, and `.` for ACK. PSH is compared only if it is given.
//! Options are `ack N`, `win N`, `mss N`, `ws N`, `sackok`, `sack A-B,C-D`, `ts VALUE,ECHO` and
//! `fpdus N`. In a sent segment, SACKs and `fpdus` must be exactly those given. Of the other
//! options, only the given ones are compared. Each segment of the user is an FPDU.

use crate::connection::Connection;
use crate::output::{Segment, Source};
use crate::reassembly::Arrival;
use crate::seq::{SYN, offset};
use crate::{Config, Event, Instant, Ports};
use std::collections::VecDeque;
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// The initial sequence numbers of both ends, which wrap soon.
pub const OURS: u32 = 0xffff_ff00;
pub const THEIRS: u32 = 0xffff_fe00;
pub const PORTS: Ports = Ports { local: 1000, remote: 2000 };

/// A stream with the boundaries of its segments.
#[derive(Default, Clone)]
pub struct Cuts(Vec<u64>);

impl Cuts {
    pub fn push(&mut self, length: u64) {
        self.0.push(self.end() + length);
    }

    pub fn end(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl Source for Cuts {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        let next = self.0.partition_point(|end| *end <= offset);
        self.0.get(next).map_or(0, |end| (*end - offset).min(u64::from(most)) as u32)
    }

    fn is_whole(&mut self, stretch: core::ops::Range<u64>) -> bool {
        let is_cut = |at| at == 0 || self.0.contains(&at);
        is_cut(stretch.start) && is_cut(stretch.end)
    }
}

pub struct Script {
    pub connection: Connection,
    now: Instant,
    cuts: Cuts,
    sent: VecDeque<Segment>,
    most: usize,
    taken: Vec<(u64, u64, bool)>,
}

impl Script {
    /// A conversation that this end begins.
    pub fn connect(config: Config) -> Script {
        Script::of(Connection::connect(config, PORTS, OURS, 0, Instant(0)))
    }

    /// A conversation that the peer begins.
    pub fn listen(config: Config, syn: &str) -> Script {
        let (header, _) = parse(syn);
        let connection = Connection::accept(config, &header, OURS, 0, Instant(0));
        Script::of(connection)
    }

    fn of(connection: Connection) -> Script {
        let (sent, taken) = (VecDeque::new(), Vec::new());
        let mut script =
            Script { connection, now: Instant(0), cuts: Cuts::default(), sent, most: usize::MAX, taken };
        script.drain();
        script
    }

    /// Runs the lines of a table. `#` begins a comment.
    pub fn run(&mut self, table: &str) -> &mut Script {
        for line in table.lines() {
            let line = line.split('#').next().unwrap().trim();
            if !line.is_empty() {
                self.line(line);
            }
        }
        self
    }

    fn line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == ">" {
            let segment = self.sent.pop_front().unwrap_or_else(|| panic!("{line}: nothing was sent"));
            return compare(line, rest, &segment);
        }
        let is_action = ["at", "<", "send", "close", "abort", "window", "toolong"].contains(&word);
        if is_action && let Some(segment) = self.sent.front() {
            panic!("before `{line}` was sent: {}", describe(segment));
        }
        self.act(word, rest, line);
        if is_action {
            self.drain();
        }
    }

    fn act(&mut self, word: &str, rest: &str, line: &str) {
        let connection = &mut self.connection;
        match word {
            "at" => self.wait(Instant((rest.parse::<f64>().unwrap() * 1e6) as u64)),
            "<" => self.arrive(rest),
            "send" => {
                let (length, times) = rest.split_once('*').unwrap_or((rest, "1"));
                (0..number(times)).for_each(|_| self.cuts.push(number(length)));
            }
            "close" => connection.close(),
            "abort" => connection.abort(),
            "leave" => connection.leave(),
            "window" => connection.set_window(number(rest) as u32),
            "toolong" => {
                let (at, mss) = rest.split_once(' ').unwrap();
                connection.handle_too_long(OURS.wrapping_add(number(at) as u32), number(mss) as u16);
            }
            "refuse" => self.most = 0,
            "accept" => self.most = usize::MAX,
            "take" => self.most = number(rest) as usize,
            "taken" => {
                let taken: Vec<String> = self.taken.drain(..).map(stretch).collect();
                assert_eq!(taken.join(","), rest, "{line}");
            }
            "state" => assert_eq!(format!("{:?}", connection.state()), rest, "{line}"),
            "event" => {
                let event = connection.poll_event();
                assert_eq!(event.map_or("-".to_owned(), name), rest, "{line}");
            }
            "acknowledged" => assert_eq!(connection.acknowledged(), number(rest), "{line}"),
            "complete" => assert_eq!(connection.complete(), number(rest), "{line}"),
            "cwnd" => assert_eq!(connection.congestion_window(), number(rest), "{line}"),
            "mss" => assert_eq!(u64::from(connection.mss()), number(rest), "{line}"),
            "count" => {
                let (name, value) = rest.split_once(' ').unwrap();
                let found = connection.counters().iter().find(|(other, _)| *other == name);
                assert_eq!(found.map(|(_, count)| u64::from(count)), Some(number(value)), "{line}");
            }
            _ => panic!("what is `{line}`?"),
        }
    }

    fn wait(&mut self, until: Instant) {
        assert!(until >= self.now, "time goes on");
        while let Some(due) = self.connection.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.connection.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn arrive(&mut self, text: &str) {
        let (header, length) = parse(text);
        let (most, taken) = (self.most, &mut self.taken);
        let mut take = |arrival: Arrival| {
            let length = arrival.at.len().min(most);
            taken.push((arrival.offset, arrival.offset + length as u64, arrival.is_whole));
            length
        };
        self.connection.handle_segment(self.now, &header, length, &mut take);
    }

    fn drain(&mut self) {
        while let Some(segment) = self.connection.poll_transmit(self.now, &mut self.cuts) {
            self.sent.push_back(segment);
        }
        check(&self.connection);
    }

    /// Returns the sent segments that were not named yet, of which there must be some.
    pub fn sent(&self) -> &VecDeque<Segment> {
        assert!(!self.sent.is_empty());
        &self.sent
    }

    /// Drops all segments that are sent now, and returns their number.
    pub fn drop_sent(&mut self) -> usize {
        self.drain();
        self.sent.drain(..).count()
    }

    /// Returns the header of an ACK of the peer without data and SACKs.
    pub fn bare_acknowledge(&self, ack: u64) -> TcpHeader {
        parse(&format!(". 1:1 ack {ack}")).0
    }

    /// Checks that nothing more was sent.
    pub fn end(&mut self) {
        if let Some(segment) = self.sent.front() {
            panic!("at the end was sent: {}", describe(segment));
        }
    }
}

/// Checks what must hold for each connection between two calls.
pub fn check(connection: &Connection) {
    assert_eq!(connection.fault(), None, "{connection:#?}");
}

fn stretch((a, b, is_whole): (u64, u64, bool)) -> String {
    format!("{a}-{b}{}", if is_whole { "!" } else { "" })
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn pair(text: &str, by: char) -> (u32, u32) {
    let (a, b) = text.split_once(by).unwrap_or_else(|| panic!("`{text}` is no pair"));
    (number(a) as u32, number(b) as u32)
}

fn name(event: Event) -> String {
    match event {
        Event::Closed(reason) => format!("{reason:?}"),
        event => format!("{event:?}"),
    }
}

fn flags(text: &str) -> Flags {
    let bit = |letter| match letter {
        'S' => Flags::SYN,
        'F' => Flags::FIN,
        'R' => Flags::RST,
        'P' => Flags::PSH,
        '.' => Flags::ACK,
        '-' => Flags(0),
        _ => panic!("`{letter}` is no flag"),
    };
    text.chars().map(bit).fold(Flags(0), |all, bit| all | bit)
}

/// Parses a segment of the peer: its header, and the length of its data.
fn parse(text: &str) -> (TcpHeader, usize) {
    let mut words = text.split_whitespace();
    let flags = flags(words.next().unwrap());
    let (from, to) = pair(words.next().unwrap(), ':');
    let mut header = TcpHeader {
        src_port: PORTS.remote,
        dst_port: PORTS.local,
        seq: THEIRS.wrapping_add(from),
        ack: 0,
        flags,
        window: 0xffff,
        urgent: 0,
        options: Options::default(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        match word {
            "ack" => header.ack = OURS.wrapping_add(number(value()) as u32),
            "win" => header.window = number(value()) as u16,
            "mss" => header.options.mss = Some(number(value()) as u16),
            "ws" => header.options.window_scale = Some(number(value()) as u8),
            "sackok" => header.options.sack_permitted = true,
            "ts" => header.options.timestamps = Some(pair(value(), ',')),
            "fpdus" => header.options.fpdus = Some(number(value()) as u16),
            "sack" => header.options.sacks = blocks(value(), OURS).into_iter().collect(),
            _ => panic!("what is `{word}` in `{text}`?"),
        }
    }
    (header, to.wrapping_sub(from) as usize)
}

fn blocks(text: &str, origin: u32) -> Vec<(u32, u32)> {
    let block = |text| {
        let (a, b) = pair(text, '-');
        (origin.wrapping_add(a), origin.wrapping_add(b))
    };
    text.split(',').map(block).collect()
}

/// Compares a sent segment with a line.
fn compare(line: &str, text: &str, segment: &Segment) {
    let header = &segment.header;
    let mut words = text.split_whitespace();
    let expected = flags(words.next().unwrap());
    let (from, to) = pair(words.next().unwrap(), ':');
    let mut is_same = header.flags.0 | Flags::PSH.0 == expected.0 | Flags::PSH.0;
    is_same &= !expected.has(Flags::PSH) || header.flags.has(Flags::PSH);
    let length = (segment.data.end - segment.data.start) as u32;
    is_same &= header.seq.wrapping_sub(OURS) == from && length == to - from;
    // The offset of the data must fit the sequence number.
    is_same &= length == 0 || segment.data.start as u32 == from - 1;
    let (mut sacks, mut fpdus) = (Vec::new(), None);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        is_same &= match word {
            "ack" => header.ack.wrapping_sub(THEIRS) == number(value()) as u32,
            "win" => u64::from(header.window) == number(value()),
            "mss" => header.options.mss.map(u64::from) == Some(number(value())),
            "ws" => header.options.window_scale.map(u64::from) == Some(number(value())),
            "sackok" => header.options.sack_permitted,
            "ts" => header.options.timestamps == Some(pair(value(), ',')),
            "fpdus" => {
                fpdus = Some(number(value()) as u16);
                true
            }
            "sack" => {
                sacks = blocks(value(), THEIRS);
                true
            }
            _ => panic!("what is `{word}` in `{line}`?"),
        };
    }
    is_same &= header.options.sacks.as_slice() == sacks && header.options.fpdus == fpdus;
    assert!(is_same, "expected `{line}`, was sent: {}", describe(segment));
}

fn describe(segment: &Segment) -> String {
    let header = &segment.header;
    let letters =
        [(Flags::SYN, 'S'), (Flags::FIN, 'F'), (Flags::RST, 'R'), (Flags::PSH, 'P'), (Flags::ACK, '.')];
    let flags: String =
        letters.iter().filter(|(bit, _)| header.flags.has(*bit)).map(|(_, letter)| letter).collect();
    let from = header.seq.wrapping_sub(OURS);
    let to = from.wrapping_add((segment.data.end - segment.data.start) as u32);
    let relative = |(a, b): &(u32, u32)| format!("{}-{}", a.wrapping_sub(THEIRS), b.wrapping_sub(THEIRS));
    let sacks: Vec<String> = header.options.sacks.as_slice().iter().map(relative).collect();
    let options = header.options;
    format!(
        "{flags} {from}:{to} ack {} win {} sack {} (mss {:?}, ws {:?}, sackok {}, ts {:?}, fpdus {:?})",
        header.ack.wrapping_sub(THEIRS),
        header.window,
        sacks.join(","),
        options.mss,
        options.window_scale,
        options.sack_permitted,
        options.timestamps,
        options.fpdus
    )
}

#[test]
fn places_in_the_stream_begin_behind_the_syn() {
    assert_eq!(offset(SYN), 0);
    let mut cuts = Cuts::default();
    cuts.push(100);
    cuts.push(50);
    assert_eq!(
        (cuts.segment_at(0, 1000), cuts.segment_at(100, 1000), cuts.segment_at(150, 1000)),
        (100, 50, 0)
    );
    assert_eq!((cuts.segment_at(30, 1000), cuts.segment_at(0, 60)), (70, 60));
}
