//! Conversations with another TCP, smoltcp, over the same bad network.

use super::script::{Cuts, check};
use super::sim::Rng;
use crate::connection::Connection;
use crate::output::Segment;
use crate::reassembly::Arrival;
use crate::{Config, Event, Instant, Ports, Reason};
use core::time::Duration;
use smoltcp::iface::{self, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Instant as Time;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{self, Flags, TcpHeader};

const OURS: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const THEIRS: Gid = Gid::from_ipv4([10, 0, 0, 2]);
const MTU: usize = 1500;
const PORT: u16 = 7000;

/// The peer's network card: packets in and out.
#[derive(Default)]
struct Card {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Receive(Vec<u8>);
struct Transmit<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Receive {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut packet = vec![0; length];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Card {
    type RxToken<'a> = Receive;
    type TxToken<'a> = Transmit<'a>;

    fn receive(&mut self, _: Time) -> Option<(Receive, Transmit<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Receive(packet), Transmit(&mut self.sent)))
    }

    fn transmit(&mut self, _: Time) -> Option<Transmit<'_>> {
        Some(Transmit(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

/// Returns the byte of a stream at an offset.
fn byte(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// A packet in flight: its arrival time, its number, whether it goes to us, and its bytes.
type Flight = (Instant, u64, bool, Vec<u8>);

struct World {
    now: Instant,
    rng: Rng,
    loss: u64,
    reordering: u64,
    duplication: u64,
    /// Packets in flight.
    flying: BinaryHeap<Reverse<Flight>>,
    sent: u64,

    connection: Option<Connection>,
    config: Config,
    cuts: Cuts,
    unsent: u64,
    held: Vec<Option<u8>>,
    events: Vec<Event>,

    card: Card,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    they_sent: u64,
    they_send: u64,
    they_got: u64,
}

impl World {
    fn new(seed: u64, config: Config, they_send: u64, unsent: u64) -> World {
        let mut card = Card::default();
        let mut settings = iface::Config::new(HardwareAddress::Ip);
        settings.random_seed = seed;
        let mut interface = Interface::new(settings, &mut card, Time::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24)).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; 100_000]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::None);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        World {
            now: Instant(0),
            rng: Rng(seed),
            loss: 0,
            reordering: 0,
            duplication: 0,
            flying: BinaryHeap::new(),
            sent: 0,
            connection: None,
            config,
            cuts: Cuts::default(),
            unsent,
            held: vec![None; they_send as usize],
            events: Vec::new(),
            card,
            interface,
            sockets,
            socket,
            they_sent: 0,
            they_send,
            they_got: 0,
        }
    }

    fn we_connect(&mut self) {
        self.sockets.get_mut::<Socket>(self.socket).listen(PORT).unwrap();
        let ports = Ports { local: 6000, remote: PORT };
        let initial = self.rng.next() as u32;
        self.connection = Some(Connection::connect(self.config, ports, initial, initial, self.now));
    }

    fn they_connect(&mut self) {
        let context = self.interface.context();
        let socket = self.sockets.get_mut::<Socket>(self.socket);
        socket.connect(context, (IpAddress::v4(10, 0, 0, 1), PORT), 6000).unwrap();
    }

    fn fly(&mut self, to_us: bool, packet: Vec<u8>) {
        if self.rng.chance(self.loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.duplication));
        for _ in 0..copies {
            let late = if self.rng.chance(self.reordering) { self.rng.below(3_000_000) } else { 0 };
            self.sent += 1;
            self.flying.push(Reverse((
                Instant(self.now.0 + 1_000_000 + late),
                self.sent,
                to_us,
                packet.clone(),
            )));
        }
    }

    fn time(&self) -> Time {
        Time::from_micros((self.now.0 / 1000) as i64)
    }

    /// Runs until both ends are done.
    fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.they();
            self.we();
            if self.is_done() {
                return;
            }
            let ours = self.connection.as_ref().and_then(Connection::poll_timeout);
            let theirs = self.interface.poll_at(self.time(), &self.sockets);
            let theirs = theirs.map(|at| Instant((at.total_micros().max(0) as u64 + 1) * 1000));
            let flying = self.flying.peek().map(|Reverse((at, ..))| *at);
            let next = [ours, theirs, flying].into_iter().flatten().min().expect("nobody waits for nothing");
            self.now = Instant(self.now.0.max(next.0) + 1000);
            while let Some(Reverse((at, ..))) = self.flying.peek()
                && *at <= self.now
            {
                let Reverse((_, _, to_us, packet)) = self.flying.pop().unwrap();
                if to_us { self.deliver(&packet) } else { self.card.received.push_back(packet) }
            }
        }
        panic!("it does not end");
    }

    fn is_done(&self) -> bool {
        let finished = |event: &Event| matches!(event, Event::Closed(_));
        self.events.iter().any(finished)
    }

    fn they(&mut self) {
        loop {
            self.interface.poll(self.time(), &mut self.card, &mut self.sockets);
            let socket = self.sockets.get_mut::<Socket>(self.socket);
            let mut moved = 0;
            if socket.can_recv() {
                let from = self.they_got;
                let look = |data: &mut [u8]| {
                    let is_ours = |(at, found): (usize, &u8)| *found == byte(from + at as u64);
                    assert!(data.iter().enumerate().all(is_ours), "bytes of ours");
                    (data.len(), data.len())
                };
                moved = socket.recv(look).unwrap();
                self.they_got += moved as u64;
            }
            while socket.can_send() && self.they_sent < self.they_send {
                let most = (self.they_send - self.they_sent).min(2000);
                let data: Vec<u8> = (0..most).map(|at| byte(self.they_sent + at)).collect();
                let length = socket.send_slice(&data).unwrap();
                self.they_sent += length as u64;
                moved += length;
            }
            // The peer closes after it has sent everything.
            if self.they_sent == self.they_send
                && matches!(socket.state(), State::Established | State::CloseWait)
            {
                socket.close();
            }
            let sent: Vec<_> = self.card.sent.drain(..).collect();
            let is_quiet = moved == 0 && sent.is_empty() && self.card.received.is_empty();
            sent.into_iter().for_each(|packet| self.fly(true, packet));
            if is_quiet {
                return;
            }
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        let segment = &packet[20..];
        assert!(tcp::is_sound(THEIRS, OURS, segment), "their checksum is right");
        let (header, data) = TcpHeader::parse(segment).unwrap();
        if self.connection.is_none() && header.flags == Flags::SYN {
            let initial = self.rng.next() as u32;
            self.connection = Some(Connection::accept(self.config, &header, initial, initial, self.now));
        }
        let Some(connection) = &mut self.connection else { return };
        let held = &mut self.held;
        let mut take = |arrival: Arrival| {
            for (at, found) in data[arrival.at.clone()].iter().enumerate() {
                let place = arrival.offset + at as u64;
                assert_eq!(*found, byte(place), "a byte of theirs");
                assert_eq!(held[place as usize].replace(*found), None, "byte {place} came twice");
            }
            arrival.at.len()
        };
        connection.handle_segment(self.now, &header, data.len(), &mut take);
        self.we();
    }

    fn we(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.handle_timeout(self.now);
        while self.unsent > 0 && self.cuts.end() < connection.sent() + 100_000 {
            let length = (1 + self.rng.below(u64::from(connection.mss()))).min(self.unsent);
            self.cuts.push(length);
            self.unsent -= length;
        }
        // In CLOSE-WAIT, smoltcp 0.12 stops its retransmission timer at each ACK, even a duplicate.
        // Then it never sends again. So this end closes only after all of the peer's data has
        // arrived.
        let is_all = connection.complete() == self.they_send;
        if self.unsent == 0 && is_all && connection.state() != crate::State::SynSent {
            connection.close();
        }
        while let Some(segment) = connection.poll_transmit(self.now, &mut self.cuts) {
            let packet = packet_of(&segment);
            self.fly(false, packet);
        }
        check(&connection);
        while let Some(event) = connection.poll_event() {
            self.events.push(event);
        }
        self.connection = Some(connection);
    }
}

/// Returns an IPv4 packet with one of our segments.
fn packet_of(segment: &Segment) -> Vec<u8> {
    let data: Vec<u8> = segment.data.clone().map(byte).collect();
    let mut packet = vec![0; 20 + tcp::MAX_LEN];
    let length = segment.header.emit(OURS, THEIRS, Sum::of(&data), &mut packet[20..]);
    packet.truncate(20 + length);
    packet.extend_from_slice(&data);
    assert!(packet.len() <= MTU);
    let total = (packet.len() as u16).to_be_bytes();
    packet[..20].copy_from_slice(&[
        0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    let checksum = Sum::of(&packet[..20]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    packet
}

fn converse(seed: u64) {
    let mut rng = Rng(seed);
    let config = Config {
        window: [3000, 60_000, 1 << 20][rng.below(3) as usize],
        timestamps: rng.chance(500),
        min_rto: Duration::from_millis([1, 200][rng.below(2) as usize]),
        time_wait: Duration::from_secs(30),
        fin_wait: Duration::from_secs(3600),
        timeout: Duration::from_secs(3600),
        connect_timeout: Duration::from_secs(3600),
        ..Config::default()
    };
    let (theirs, ours) = (rng.below(100_000), rng.below(200_000));
    let mut world = World::new(rng.next(), config, theirs, ours);
    world.loss = [0, 10, 50, 150][rng.below(4) as usize];
    world.reordering = [0, 100][rng.below(2) as usize];
    world.duplication = [0, 50][rng.below(2) as usize];
    if rng.chance(500) {
        world.we_connect();
    } else {
        world.they_connect();
    }
    world.run();
    assert_eq!(world.they_got, ours, "seed {seed}: {:?}", world.events);
    assert!(world.held.iter().all(Option::is_some), "seed {seed}: {:?} {:?}", world.events, world.connection);
    let ended = [Event::Established, Event::EndOfStream, Event::Closed(Reason::Finished)];
    assert_eq!(world.events, ended, "seed {seed}");
}

#[test]
fn another_tcp_understands_ours() {
    for seed in 1..=100 {
        println!("seed {seed}");
        converse(seed);
    }
}

#[test]
#[ignore = "long"]
fn another_tcp_understands_ours_a_thousand_times() {
    for seed in 1000..2000 {
        println!("seed {seed}");
        converse(seed);
    }
}
