//! Our end: a connection, and IP.

use crate::rng::Rng;
use crate::stream::{bytes, check};
use std::net::Ipv4Addr;
use std::time::Duration;
use vrdma_tcp::{Arrival, Config, Connection, Event, Instant, Ports, Reason, Segment, Source, State};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{self, Flags, TcpHeader};

pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const IP_HEADER: usize = 20;
/// Maximum number of segments that are sent in a turn.
const BURST: usize = 64;

/// Returns a configuration like Linux's, as far as both have the settings.
pub fn config(mtu: u16) -> Config {
    Config { mss: mtu - 40, window: 4 << 20, time_wait: Duration::from_millis(300), ..Config::default() }
}

/// The segment boundaries of the stream.
struct Cuts {
    end: u64,
    mss: u64,
}

impl Source for Cuts {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        self.end.saturating_sub(offset).min(self.mss).min(most.into()) as u32
    }
}

pub struct Ours {
    pub config: Config,
    pub connection: Option<Connection>,
    /// The length of the stream that it sends.
    pub end: u64,
    /// It closes the connection after it has sent everything.
    pub closes: bool,
    pub closed: Option<Reason>,
    /// The number of sent segments.
    pub segments: u64,
    peer: Ipv4Addr,
    ports: Ports,
    rng: Rng,
    packet: Vec<u8>,
}

impl Ours {
    /// Creates an end that waits for a connection.
    pub fn new(config: Config, peer: Ipv4Addr, ports: Ports) -> Ours {
        Ours {
            config,
            connection: None,
            end: 0,
            closes: false,
            closed: None,
            segments: 0,
            peer,
            ports,
            rng: Rng(u64::from(ports.local) << 16 | u64::from(ports.remote)),
            packet: Vec::new(),
        }
    }

    pub fn connect(&mut self, now: u64) {
        let (initial, clock) = (self.rng.next() as u32, self.rng.next() as u32);
        self.connection = Some(Connection::connect(self.config, self.ports, initial, clock, Instant(now)));
    }

    pub fn handle(&mut self, now: u64, packet: &[u8]) {
        if packet[12..16] != self.peer.octets() {
            return; // From the peer of an earlier conversation.
        }
        let segment = &packet[IP_HEADER..usize::from(u16::from_be_bytes([packet[2], packet[3]]))];
        assert!(tcp::is_sound(gid(self.peer), gid(OURS), segment), "Linux's checksum");
        let (header, data) = TcpHeader::parse(segment).expect("Linux's segment");
        if header.dst_port != self.ports.local {
            return; // Of an earlier conversation.
        }
        if self.connection.is_none() && header.flags.has(Flags::SYN) {
            let (initial, clock) = (self.rng.next() as u32, self.rng.next() as u32);
            self.connection = Some(Connection::accept(self.config, &header, initial, clock, Instant(now)));
        }
        let mut take = |arrival: Arrival| {
            check(arrival.offset, &data[arrival.at.clone()]);
            arrival.at.len()
        };
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(Instant(now), &header, data.len(), &mut take);
        }
    }

    /// Handles timers that are due, and sends.
    pub fn turn(&mut self, now: u64, mut send: impl FnMut(Ipv4Addr, &[u8])) {
        let Some(connection) = &mut self.connection else { return };
        if connection.poll_timeout().is_some_and(|due| due.0 <= now) {
            connection.handle_timeout(Instant(now));
        }
        if self.closes && connection.sent() == self.end && connection.state() != State::SynSent {
            connection.close();
        }
        let mut cuts = Cuts { end: self.end, mss: self.config.mss.into() };
        for _ in 0..BURST {
            let Some(segment) = connection.poll_transmit(Instant(now), &mut cuts) else { break };
            write(&segment, self.peer, &mut self.packet);
            send(self.peer, &self.packet);
            self.segments += 1;
        }
        while let Some(event) = connection.poll_event() {
            if let Event::Closed(reason) = event {
                self.closed = Some(reason);
            }
        }
    }

    /// Returns when a timer is due.
    pub fn next(&self) -> Option<u64> {
        self.connection.as_ref().and_then(Connection::poll_timeout).map(|due| due.0)
    }

    /// Returns a counter of the connection.
    pub fn count(&self, name: &str) -> u32 {
        let connection = self.connection.as_ref().expect("it is connected");
        connection.counters().iter().find(|(other, _)| *other == name).expect("there is such a counter").1
    }
}

fn gid(address: Ipv4Addr) -> Gid {
    Gid::from_ipv4(address.octets())
}

/// Makes the packet of a segment.
fn write(segment: &Segment, peer: Ipv4Addr, packet: &mut Vec<u8>) {
    let data = bytes(segment.data.start, (segment.data.end - segment.data.start) as usize);
    packet.clear();
    packet.resize(IP_HEADER + tcp::MAX_LEN, 0);
    let length = segment.header.emit(gid(OURS), gid(peer), Sum::of(data), &mut packet[IP_HEADER..]);
    packet.truncate(IP_HEADER + length);
    packet.extend_from_slice(data);
    let total = (packet.len() as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet[12..16].copy_from_slice(&OURS.octets());
    packet[16..20].copy_from_slice(&peer.octets());
    let checksum = Sum::of(&packet[..IP_HEADER]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
}
