//! Fuzzes all TCP connections of a host, with hostile peers.
//!
//! The input is a list of steps: SYNs of any host, nearly right answers to what the host sent (also
//! to its cookies), calls of the user, and passing time. Invariants:
//!
//! - Nothing panics.
//! - The number of connections stays within its limit.
//! - Sending ends, and only data of the user is sent.
//! - The user is told once that a connection is set up, and once that it has ended. It is told
//!   nothing of one that was never set up.
//! - In the end the user aborts all connections and time passes. Then no connection is left.

use crate::input::Input;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vrdma_tcp::{
    Arrival, Config, ConnectionId, Event, Instant, NextHop, Outgoing, Ports, SegmentSource, Sources, Stack,
    StackCounters, StackLimits, Tuple,
};
use vrdma_wire::num::{Gid, Mac, VlanId};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// Small limits, so that inputs reach them often.
const LIMITS: StackLimits = StackLimits { connections: 6, half_open: 3, time_wait: 2 };
const LOCAL: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const HOP: NextHop = NextHop { mac: Mac([2, 0, 0, 0, 0, 9]), vlan: None };

/// The data that the user has to send on each connection.
#[derive(Default)]
struct Streams(BTreeMap<ConnectionId, u64>);

impl Sources for Streams {
    fn segment_at(&mut self, id: ConnectionId, offset: u64, most: u32) -> u32 {
        let end = self.0.get(&id).copied().unwrap_or(0);
        end.saturating_sub(offset).min(u64::from(most)) as u32
    }
}

struct Lab<'a> {
    input: Input<'a>,
    stack: Stack,
    now: Instant,
    streams: Streams,
    /// The last sent segments, the latest first.
    heard: Vec<Outgoing>,
    /// Connections that the user began or was told of, and whose end it must be told.
    open: Vec<ConnectionId>,
    /// Those of them that are set up, as the user was told.
    set_up: BTreeSet<ConnectionId>,
}

/// Runs an input. Returns the counters of the stack.
pub fn stack(data: &[u8]) -> StackCounters {
    let mut lab = Lab {
        input: Input(data),
        stack: Stack::new([1, 2], LIMITS),
        now: Instant(1 << 40),
        streams: Streams::default(),
        heard: Vec::new(),
        open: Vec::new(),
        set_up: BTreeSet::new(),
    };
    for _ in 0..100 {
        if lab.input.0.is_empty() {
            break;
        }
        lab.step();
        assert!(lab.stack.connections() <= LIMITS.connections);
    }
    lab.end();
    lab.stack.counters()
}

impl Lab<'_> {
    fn step(&mut self) {
        match self.input.byte() % 16 {
            0 => {
                let nanoseconds = u64::from(self.input.word()) << (self.input.byte() % 12);
                self.pass(Instant(self.now.0.saturating_add(nanoseconds).min(1 << 60)));
            }
            1 => self.pass_to_deadline(),
            2 => {
                let local = if self.input.byte() & 1 == 0 { LOCAL } else { Gid([0; 16]) };
                let (port, backlog, config) = (self.port(), self.input.byte() % 4, self.config());
                let _ = self.stack.listen(local, port, usize::from(backlog), config);
            }
            3 => self.user(),
            4 => {
                let (tuple, config) = (self.tuple(), self.config());
                if let Ok(id) = self.stack.connect(tuple, HOP, config, self.now) {
                    self.open.push(id);
                }
            }
            5 => {
                let (tuple, number, mss) = (self.tuple(), self.input.word(), self.input.short());
                self.stack.handle_too_long(&tuple, VlanId::of(None), number, mss);
            }
            6..9 => {
                let (tuple, options) = (self.tuple(), self.input.byte());
                let (seq, ack) = (self.input.word(), self.input.word());
                let flags = if options & 0xc0 == 0xc0 { Flags(options) } else { Flags::SYN };
                let header = header(&tuple, (flags, seq, ack), options);
                self.arrive(&tuple, &header, 0);
            }
            _ => self.answer(),
        }
        self.drain();
        self.events();
    }

    fn port(&mut self) -> u16 {
        u16::from(self.input.byte() % 3)
    }

    fn tuple(&mut self) -> Tuple {
        let host = self.input.byte();
        // Some of these are no unicast addresses.
        let remote = if host < 250 { [10, 0, 0, 2 + host % 3] } else { [224, 0, 0, host] };
        let ports = Ports { local: self.port(), remote: 100 + self.port() };
        Tuple { local: LOCAL, remote: Gid::from_ipv4(remote), ports }
    }

    fn config(&mut self) -> Config {
        let bits = self.input.byte();
        Config {
            window: [2000, 70_000][usize::from(bits & 1)],
            sack: bits & 2 != 0,
            timestamps: bits & 4 != 0,
            fpdus: bits & 8 != 0,
            max_kept: 3,
            min_rto: Duration::from_millis(1),
            ..Config::default()
        }
    }

    /// Calls a function of the user on a connection, or on a listener.
    fn user(&mut self) {
        let (what, which) = (self.input.byte(), self.input.byte());
        let id = self.open.get(usize::from(which) % self.open.len().max(1)).copied();
        match (what % 4, id) {
            (0, Some(id)) => {
                self.stack.change(id, |connection| connection.close());
            }
            (1, Some(id)) => {
                self.stack.change(id, |connection| connection.abort());
            }
            (2, Some(id)) => {
                *self.streams.0.entry(id).or_default() += u64::from(self.input.short());
                self.stack.post(id);
            }
            _ => {
                let local = if which & 1 == 0 { LOCAL } else { Gid([0; 16]) };
                let port = self.port();
                self.stack.unlisten(local, port);
            }
        }
    }

    /// Delivers a segment that is nearly what the peer would answer to an earlier one.
    fn answer(&mut self) {
        if self.heard.is_empty() {
            return;
        }
        let which = usize::from(self.input.byte()) % self.heard.len();
        let Outgoing { tuple, segment, .. } = self.heard[which].clone();
        let sent = segment.header;
        let numbers = (segment.data.end - segment.data.start) as u32
            + u32::from(sent.flags.has(Flags::SYN))
            + u32::from(sent.flags.has(Flags::FIN));
        let flags = match self.input.byte() {
            0..180 => Flags::ACK,
            180..210 => Flags::ACK | Flags::FIN,
            210..230 => Flags::ACK | Flags::SYN,
            230..240 => Flags::RST,
            other => Flags(other.wrapping_mul(37)),
        };
        let seq = self.input.near(&[sent.ack, sent.ack, sent.ack.wrapping_sub(1)]);
        let ack = self.input.near(&[sent.seq.wrapping_add(numbers), sent.seq]);
        let options = self.input.byte();
        let mut header = header(&tuple, (flags, seq, ack), options);
        if let Some((value, _)) = sent.options.timestamps {
            let echo = self.input.near(&[value, value ^ 0x20, value ^ 0xf]);
            header.options.timestamps = (options & 4 != 0).then_some((1000, echo));
        }
        let length = if options & 32 == 0 { 0 } else { usize::from(self.input.short()) % 3000 };
        self.arrive(&tuple, &header, length);
    }

    fn arrive(&mut self, tuple: &Tuple, header: &TcpHeader, length: usize) {
        let origin = SegmentSource { remote: tuple.remote, local: tuple.local, hop: HOP };
        let mut take = |_, arrival: Arrival| {
            assert!(arrival.at.end <= length && !arrival.at.is_empty());
            arrival.at.len()
        };
        self.stack.handle_segment(self.now, origin, header, length, &mut take);
    }

    fn pass(&mut self, to: Instant) {
        self.now = to;
        self.stack.handle_timeout(to);
    }

    fn pass_to_deadline(&mut self) {
        if let Some(due) = self.stack.poll_timeout() {
            self.pass(Instant(self.now.0.max(due.0)));
        }
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            let Some(sent) = self.stack.poll_transmit(self.now, &mut self.streams) else { return };
            let has = sent.id.and_then(|id| self.streams.0.get(&id)).copied().unwrap_or(0);
            assert!(
                sent.segment.data.is_empty() || sent.segment.data.end <= has,
                "it sends what the user has"
            );
            self.heard.insert(0, sent);
            self.heard.truncate(8);
        }
        panic!("it does not stop sending");
    }

    fn events(&mut self) {
        while let Some((id, event)) = self.stack.poll_event() {
            let known = self.open.iter().position(|open| *open == id);
            match (event, known) {
                (Event::Established, _) => {
                    assert!(self.set_up.insert(id), "it is set up twice");
                    // The user's own connections were there before.
                    if known.is_none() {
                        self.open.push(id);
                    }
                }
                (event, None) => panic!("{event:?} of a connection that the user does not have"),
                (Event::EndOfStream, Some(_)) => {
                    assert!(self.set_up.contains(&id), "the end of a stream that never began");
                }
                (Event::Closed(_), Some(at)) => {
                    self.set_up.remove(&id);
                    self.open.swap_remove(at);
                }
            }
        }
    }

    /// The user aborts everything, and no peer answers any more.
    fn end(&mut self) {
        for (local, port) in
            [LOCAL, Gid([0; 16])].into_iter().flat_map(|local| (0..3).map(move |port| (local, port)))
        {
            self.stack.unlisten(local, port);
        }
        for id in self.open.clone() {
            self.stack.change(id, |connection| connection.abort());
        }
        for _ in 0..10_000 {
            self.drain();
            self.events();
            if self.stack.connections() == 0 {
                assert!(self.open.is_empty(), "the user was not told of the end of {:?}", self.open);
                return;
            }
            assert!(self.stack.poll_timeout().is_some(), "a connection is left that waits for nothing");
            self.pass_to_deadline();
        }
        panic!("connections are left");
    }
}

/// Returns a header of a peer's segment, whose options are chosen by these bits.
fn header(tuple: &Tuple, (flags, seq, ack): (Flags, u32, u32), options: u8) -> TcpHeader {
    let is_syn = flags.has(Flags::SYN);
    TcpHeader {
        src_port: tuple.ports.remote,
        dst_port: tuple.ports.local,
        seq,
        ack,
        flags,
        window: 0x4000,
        urgent: 0,
        options: Options {
            mss: is_syn.then_some([0, 64, 536, 1460][usize::from(options & 3)]),
            window_scale: (is_syn && options & 8 != 0).then_some(options >> 4),
            sack_permitted: is_syn && options & 16 != 0,
            timestamps: (options & 4 != 0).then_some((999, 7)),
            fpdus: (is_syn && options & 32 != 0).then_some(0),
            ..Options::default()
        },
    }
}
