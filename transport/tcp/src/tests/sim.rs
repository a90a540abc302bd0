//! Two connections over a simulated network with losses, duplicates, delays and reordering from a
//! seed.
//!
//! Segments travel as bytes. Data is identified by its offset in the stream. Data that arrives for
//! an offset must have been sent from that offset.

use super::script::{Cuts, PORTS, check};
use crate::connection::Connection;
use crate::output::{Segment, Source};
use crate::reassembly::Arrival;
use crate::save::Saved;
use crate::seq::Range;
use crate::{Config, Event, Instant, Ports, Reason, State};
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{self, Flags, TcpHeader};

/// A generator of random numbers from a seed (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns true with this probability, in thousandths.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// The faults of a network, with probabilities in thousandths of all segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    /// Nanoseconds that a segment takes one way, and the maximum additional delay of a reordered
    /// one.
    pub delay: u64,
    pub late: u64,
    /// Nanoseconds that a byte takes to send; 0 for none. With a rate, a queue of `queue` bytes
    /// precedes the wire, and segments that find it full are lost.
    pub pace: u64,
    pub queue: u64,
    /// Maximum data of a segment that passes; 0 for any.
    pub longest: u64,
    /// The sender is told that a segment was too long.
    pub tells: bool,
}

/// One direction of the network.
struct Way {
    faults: Faults,
    /// When all queued segments have left.
    busy: Instant,
    flying: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    sent: u64,
}

impl Way {
    fn send(&mut self, bytes: Vec<u8>, now: Instant, rng: &mut Rng) {
        let faults = self.faults;
        let waiting = self.busy.since(now);
        if rng.chance(faults.loss) || faults.pace > 0 && waiting > faults.queue * faults.pace {
            return;
        }
        self.busy = Instant(self.busy.0.max(now.0) + (bytes.len() as u64 + 40) * faults.pace);
        let copies = 1 + u64::from(rng.chance(faults.duplication));
        for _ in 0..copies {
            let late = if rng.chance(faults.reordering) { rng.below(faults.late) } else { 0 };
            self.sent += 1;
            let at = Instant(self.busy.0 + faults.delay + late);
            self.flying.push(Reverse((at, self.sent, bytes.clone())));
        }
    }
}

/// A host with its connection and the data that it has to send.
pub struct Host {
    pub connection: Option<Connection>,
    config: Config,
    cuts: Cuts,
    /// How much of the stream the user still has to post, and whether to close afterwards.
    unsent: u64,
    closes: bool,
    /// The ranges of the peer's stream that were taken.
    got: Vec<Range>,
    pub events: Vec<Event>,
    /// What the peer has sacked beyond its cumulative ACKs.
    sacked: Vec<Range>,
    timeouts: u32,
    /// How many data parts beyond gaps are refused, in thousandths.
    refuses: u64,
}

impl Host {
    fn new(config: Config, unsent: u64, refuses: u64) -> Host {
        Host {
            connection: None,
            config,
            cuts: Cuts::default(),
            unsent,
            closes: true,
            got: Vec::new(),
            events: Vec::new(),
            sacked: Vec::new(),
            timeouts: 0,
            refuses,
        }
    }

    /// Adds a range that was not taken before, and joins neighbours.
    fn take(&mut self, part: Range) {
        let at = self.got.partition_point(|range| range.end < part.start);
        let mut joined = part;
        while let Some(range) = self.got.get(at).copied().filter(|range| range.start <= part.end) {
            assert!(range.end == part.start || range.start == part.end, "{part:?} came twice: {range:?}");
            joined = Range { start: joined.start.min(range.start), end: joined.end.max(range.end) };
            self.got.remove(at);
        }
        self.got.insert(at, joined);
    }

    fn complete(&self) -> u64 {
        self.got.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
    }
}

/// Two hosts and the network between them.
pub struct World {
    pub hosts: [Host; 2],
    ways: [Way; 2],
    pub now: Instant,
    pub rng: Rng,
    /// After how many events, in thousandths, a connection is saved, restored, and replaced by the
    /// result.
    pub replaces: u64,
    replacing: Rng,
    /// The states in which a connection was replaced: the name, whether there were gaps in received
    /// data, and whether the peer had sacked something.
    pub replaced: BTreeSet<(String, bool, bool)>,
    /// Segments have the length of the MSS, as for bulk data. Otherwise they have any length.
    pub bulk: bool,
    pub trace: Vec<String>,
    keeps_trace: bool,
}

const GIDS: [Gid; 2] = [Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2])];

impl World {
    pub fn new(seed: u64, config: Config, faults: Faults, bytes: [u64; 2]) -> World {
        let mut rng = Rng(seed);
        let way = || Way { faults, busy: Instant(0), flying: BinaryHeap::new(), sent: 0 };
        let mut hosts = bytes.map(|bytes| Host::new(config, bytes, 0));
        let (initial, clock) = (rng.next() as u32, rng.next() as u32);
        hosts[0].connection = Some(Connection::connect(config, PORTS, initial, clock, Instant(0)));
        World {
            hosts,
            ways: [way(), way()],
            now: Instant(0),
            rng,
            replaces: 0,
            replacing: Rng(!seed),
            replaced: BTreeSet::new(),
            bulk: false,
            trace: Vec::new(),
            keeps_trace: false,
        }
    }

    /// Returns the time of the next arrival or deadline.
    fn next(&self) -> Option<Instant> {
        let arrivals = self.ways.iter().filter_map(|way| way.flying.peek().map(|Reverse((at, ..))| *at));
        let deadlines = self.hosts.iter().filter_map(|host| host.connection.as_ref()?.poll_timeout());
        arrivals.chain(deadlines).min()
    }

    /// Runs until nothing is due any more, or until a time. Returns whether nothing is due.
    pub fn run(&mut self, until: Instant) -> bool {
        self.serve(0);
        self.serve(1);
        while let Some(next) = self.next() {
            if next > until {
                self.now = until;
                return false;
            }
            self.now = self.now.max(next);
            for host in 0..2 {
                self.step(host);
            }
        }
        true
    }

    /// Handles the arrivals and deadlines of a host that are due.
    fn step(&mut self, host: usize) {
        while let Some(Reverse((at, ..))) = self.ways[1 - host].flying.peek()
            && *at <= self.now
        {
            let Reverse((.., bytes)) = self.ways[1 - host].flying.pop().unwrap();
            self.deliver(host, &bytes);
            self.serve(host);
        }
        if let Some(connection) = &mut self.hosts[host].connection
            && connection.poll_timeout().is_some_and(|due| due <= self.now)
        {
            connection.handle_timeout(self.now);
            self.serve(host);
        }
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        assert!(tcp::is_sound(GIDS[1 - to], GIDS[to], &bytes[8..]));
        // The offset of the data travels before the segment.
        let place = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let (header, data) = TcpHeader::parse(&bytes[8..]).unwrap();
        let host = &mut self.hosts[to];
        if host.connection.is_none() {
            if header.flags != Flags::SYN {
                return;
            }
            let (initial, clock) = (self.rng.next() as u32, self.rng.next() as u32);
            host.connection = Some(Connection::accept(host.config, &header, initial, clock, self.now));
        }
        let mut connection = host.connection.take().unwrap();
        let (refuses, rng) = (host.refuses, &mut self.rng);
        let mut take = |arrival: Arrival| {
            assert_eq!(arrival.offset, place + arrival.at.start as u64, "the bytes of another place");
            assert_eq!(arrival.complete, host.complete(), "what is complete is known");
            if arrival.offset > arrival.complete && rng.chance(refuses) {
                return 0;
            }
            let range = Range { start: arrival.offset, end: arrival.offset + arrival.at.len() as u64 };
            host.take(range);
            arrival.at.len()
        };
        let dropped = |connection: &Connection| {
            let counters = connection.counters();
            counters.bad_timestamp + counters.outside_window + counters.bad_ack
        };
        let before = dropped(&connection);
        connection.handle_segment(self.now, &header, data.len(), &mut take);
        // A dropped segment has no effect. An example is one that newer timestamps have overtaken
        // (PAWS).
        if dropped(&connection) == before {
            self.note_sacks(to, &header, &connection);
        }
        self.hosts[to].connection = Some(connection);
    }

    /// Notes sacked ranges, which must not be sent again until a timeout.
    fn note_sacks(&mut self, to: usize, header: &TcpHeader, connection: &Connection) {
        let host = &mut self.hosts[to];
        let una = connection.board.una();
        for (left, right) in header.options.sacks.as_slice() {
            let number = |wire| connection.send_origin.number(wire, una);
            let range = Range { start: number(*left), end: number(*right) };
            if range.start >= una && range.end <= connection.board.nxt() {
                host.sacked.push(range);
            }
        }
        host.sacked.retain(|range| range.end > una);
    }

    /// Lets a host post data and send, and checks its state.
    fn serve(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let Some(mut connection) = host.connection.take() else { return };
        if self.replacing.chance(self.replaces) {
            connection = replaced(&connection);
            let state = format!("{:?}", connection.state());
            let holes = (connection.received.has_holes(), connection.board.sacked_segments() > 0);
            self.replaced.insert((state, holes.0, holes.1));
        }
        self.hand_over(index, &mut connection);
        let host = &mut self.hosts[index];
        if connection.counters().timeouts != host.timeouts {
            host.timeouts = connection.counters().timeouts;
            host.sacked.clear();
        }
        while let Some(segment) = connection.poll_transmit(self.now, &mut host.cuts) {
            check_segment(host, &connection, &segment);
            if self.keeps_trace {
                self.trace.push(format!("{:?} {index} {segment:?}", self.now));
            }
            let longest = self.ways[index].faults.longest;
            if longest > 0 && segment.data.end - segment.data.start > longest {
                if self.ways[index].faults.tells {
                    connection.handle_too_long(segment.header.seq, longest as u16 + 12);
                }
                continue;
            }
            self.ways[index].send(bytes_of(&segment, index), self.now, &mut self.rng);
        }
        check(&connection);
        while let Some(event) = connection.poll_event() {
            host.events.push(event);
        }
        assert_eq!(connection.complete(), host.complete(), "what is taken in order is complete");
        host.connection = Some(connection);
    }

    /// Posts more data of the user, or closes.
    fn hand_over(&mut self, index: usize, connection: &mut Connection) {
        let host = &mut self.hosts[index];
        let most = u64::from(connection.mss());
        while host.unsent > 0 && host.cuts.end() < connection.sent() + 64 * most {
            let length = if self.bulk { most } else { 1 + self.rng.below(most) }.min(host.unsent);
            host.cuts.push(length);
            host.unsent -= length;
        }
        let is_due = host.unsent == 0 && host.closes && connection.state() != State::SynSent;
        if is_due {
            connection.close();
        }
    }
}

/// Checks that a sent segment is within the limits, and that the peer has not sacked it.
fn check_segment(host: &mut Host, connection: &Connection, segment: &Segment) {
    let (from, to) = (segment.data.start, segment.data.end);
    if from == to {
        return;
    }
    assert!(to <= host.cuts.end(), "nothing is sent that the user has not");
    assert!(to - from <= u64::from(connection.mss()));
    assert!(host.cuts.segment_at(from, u32::MAX) as u64 >= to - from, "segments are sent as they were cut");
    let una = connection.board.una();
    let start = connection.send_origin.number(segment.header.seq, una);
    let range = Range { start, end: start + (to - from) };
    assert!(!host.sacked.iter().any(|sacked| sacked.covers(range)), "{range:?} is at the peer");
}

fn bytes_of(segment: &Segment, from: usize) -> Vec<u8> {
    let data = vec![0x5a; (segment.data.end - segment.data.start) as usize];
    let mut bytes = segment.data.start.to_le_bytes().to_vec();
    bytes.resize(8 + tcp::MAX_LEN, 0);
    let length = segment.header.emit(GIDS[from], GIDS[1 - from], Sum::of(&data), &mut bytes[8..]);
    bytes.truncate(8 + length);
    bytes.extend_from_slice(&data);
    bytes
}

/// Returns a connection that was saved and restored.
pub fn replaced(connection: &Connection) -> Connection {
    let mut bytes = Vec::new();
    ciborium::into_writer(&connection.save(), &mut bytes).unwrap();
    let saved: Saved = ciborium::from_reader(&bytes[..]).unwrap();
    let read = saved.restore().unwrap();
    assert_eq!(read, *connection);
    read
}

/// Returns a configuration from the seed.
fn any_config(rng: &mut Rng) -> Config {
    let delays = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(40)];
    Config {
        mss: [536, 1000, 1460, 8960][rng.below(4) as usize],
        window: [4000, 65_535, 300_000, 4 << 20][rng.below(4) as usize],
        max_kept: [2, 16, 256][rng.below(3) as usize],
        sack: !rng.chance(150),
        timestamps: !rng.chance(250),
        min_rto: Duration::from_millis([1, 200][rng.below(2) as usize]),
        ack_delay: delays[rng.below(3) as usize],
        initial_rto: Duration::from_millis([10, 1000][rng.below(2) as usize]),
        timeout: Duration::from_secs(3600),
        connect_timeout: Duration::from_secs(3600),
        // Longer than all timeouts of a peer that has not got the last ACK.
        time_wait: Duration::from_secs(3600),
        fin_wait: Duration::from_secs(3600),
        ..Config::default()
    }
}

fn any_faults(rng: &mut Rng) -> Faults {
    let delay = [20_000, 500_000, 20_000_000][rng.below(3) as usize];
    Faults {
        loss: [0, 1, 10, 50, 200][rng.below(5) as usize],
        duplication: [0, 10, 100][rng.below(3) as usize],
        reordering: [0, 10, 300][rng.below(3) as usize],
        delay,
        late: delay * 2,
        pace: [0, 8, 80][rng.below(3) as usize],
        queue: 50_000,
        ..Faults::default()
    }
}

/// Runs the conversation of a seed: both streams arrive once, and both ends see the end.
fn converse(seed: u64, replaces: u64, keeps_trace: bool) -> World {
    let mut rng = Rng(seed);
    let config = any_config(&mut rng);
    let faults = any_faults(&mut rng);
    let most = [0, 1000, 200_000][rng.below(3) as usize];
    let bytes = [rng.below(200_000), rng.below(most + 1)];
    let mut world = World::new(rng.next(), config, faults, bytes);
    world.bulk = rng.chance(500);
    world.keeps_trace = keeps_trace;
    world.replaces = replaces;
    world.hosts[0].refuses = [0, 300][rng.below(2) as usize];
    world.hosts[1].refuses = world.hosts[0].refuses;
    assert!(world.run(Instant(36_000_000_000_000)), "seed {seed}: it does not end: {config:?} {faults:?}");
    for index in 0..2 {
        let host = &world.hosts[index];
        assert_eq!(host.complete(), bytes[1 - index], "seed {seed}: all arrived: {config:?} {faults:?}");
        let connection = host.connection.as_ref().unwrap();
        assert_eq!(connection.state(), State::Closed, "seed {seed}");
        assert_eq!(connection.acknowledged(), bytes[index], "seed {seed}");
        let ended = [Event::Established, Event::EndOfStream, Event::Closed(Reason::Finished)];
        assert_eq!(host.events, ended, "seed {seed}");
    }
    world
}

#[test]
fn streams_arrive_whole_and_once_over_bad_networks() {
    for seed in 1..=400 {
        println!("seed {seed}");
        converse(seed, 0, false);
    }
}

/// All states in which a connection may be replaced, and whether there may be gaps in each.
///
/// The first flag is for gaps in received data, which can exist until the peer's FIN has arrived.
/// The second is for sent data, from the first data until our FIN is acknowledged.
const STATES: [(State, bool, bool); 10] = [
    (State::SynSent, false, false),
    (State::SynReceived, false, false),
    (State::Established, true, true),
    (State::FinWait1, true, true),
    (State::FinWait2, true, false),
    (State::CloseWait, false, true),
    (State::Closing, false, true),
    (State::LastAck, false, true),
    (State::TimeWait, false, false),
    (State::Closed, false, false),
];

#[test]
fn connections_that_are_written_and_read_go_on_as_before() {
    let mut replaced = BTreeSet::new();
    for seed in 1..60 {
        println!("seed {seed}");
        let plain = converse(seed, 0, true);
        assert!(plain.trace.len() > 3);
        let world = converse(seed, 300, true);
        assert!(plain.trace == world.trace, "seed {seed}: the traces differ");
        replaced.extend(world.replaced);
    }
    for (state, comes, goes) in STATES {
        let name = format!("{state:?}");
        let mut of_state = replaced.iter().filter(|(state, ..)| *state == name);
        assert!(of_state.clone().next().is_some(), "none was replaced in {name}");
        assert!(
            !comes || of_state.clone().any(|(_, holes, _)| *holes),
            "none with holes in what came: {name}"
        );
        assert!(!goes || of_state.any(|(.., holes)| *holes), "none with holes in what was sent: {name}");
    }
}

/// Sends a stream over a network with faults. Returns the world, and the nanoseconds that it took.
fn bulk(config: Config, faults: Faults, bytes: u64, seed: u64) -> (World, u64) {
    let mut world = World::new(seed, config, faults, [bytes, 0]);
    world.bulk = true;
    world.hosts[1].closes = false;
    world.hosts[0].closes = false;
    let mut now = Instant(0);
    while world.hosts[1].complete() < bytes {
        now = now.after(100_000);
        world.run(now);
        assert!(now.0 < 3_600_000_000_000, "it goes on");
    }
    (world, now.0)
}

fn rack(delay: u64) -> (Config, Faults) {
    let config = Config {
        mss: 8960,
        window: 16 << 20,
        min_rto: Duration::from_millis(1),
        ack_delay: Duration::from_micros(500),
        peer_ack_delay: Duration::from_micros(500),
        probe_slack: Duration::from_micros(100),
        ..Config::default()
    };
    // 10 Gb/s is less than a nanosecond per byte, so this is 8 Gb/s.
    (config, Faults { delay, pace: 1, queue: 64 << 20, ..Faults::default() })
}

#[test]
fn a_good_network_is_filled() {
    let (config, faults) = rack(50_000);
    let (world, took) = bulk(config, faults, 64 << 20, 1);
    let counters = world.hosts[0].connection.as_ref().unwrap().counters();
    assert_eq!((counters.retransmits, counters.timeouts), (0, 0), "{counters:?}");
    // At one nanosecond per byte.
    assert!(took < (64 << 20) * 5 / 4, "{took}");
}

#[test]
fn a_short_queue_is_used_and_costs_no_timeout() {
    // 1 Gb/s, round trips of 10 ms, and a queue of half the data in flight, which slow start
    // overruns.
    let faults = Faults { delay: 5_000_000, pace: 8, queue: 600_000, ..Faults::default() };
    let min_rto = Duration::from_millis(200);
    let config = Config { window: 16 << 20, max_outstanding: 2000, min_rto, ..Config::default() };
    let (world, took) = bulk(config, faults, 64 << 20, 1);
    let counters = world.hosts[0].connection.as_ref().unwrap().counters();
    assert!(counters.retransmits > 0 && counters.timeouts == 0, "{counters:?}");
    // Three quarters of 8 ns per byte, including slow start, its overrun and headers.
    assert!(took * 3 < (64 << 20) * 8 * 4, "{took}: {counters:?}");
}

#[test]
fn few_losses_cost_no_timeout() {
    let (config, faults) = rack(50_000);
    for seed in 1..=5 {
        let (world, _) = bulk(config, Faults { loss: 1, ..faults }, 64 << 20, seed);
        let counters = world.hosts[0].connection.as_ref().unwrap().counters();
        assert!(counters.retransmits > 0, "{counters:?}");
        assert_eq!(counters.timeouts, 0, "seed {seed}: {counters:?}");
    }
}

#[test]
fn reordering_is_not_taken_for_loss() {
    let (config, faults) = rack(50_000);
    for seed in 1..=5 {
        let faults = Faults { reordering: 10, late: 25_000, ..faults };
        let (world, _) = bulk(config, faults, 64 << 20, seed);
        let counters = world.hosts[0].connection.as_ref().unwrap().counters();
        let sent = (64 << 20) / 8948;
        assert!(u64::from(counters.retransmits) * 100 <= sent, "seed {seed}: {counters:?}");
        assert_eq!(counters.timeouts, 0, "seed {seed}: {counters:?}");
    }
}

#[test]
fn a_path_that_takes_less_is_found_out() {
    for (seed, tells) in [(1, true), (2, true), (3, false), (4, false)] {
        let faults = Faults { delay: 1_000_000, loss: 10, longest: 900, tells, ..Faults::default() };
        let config = Config { min_rto: Duration::from_millis(10), ..Config::default() };
        let (world, _) = bulk(config, faults, 500_000, seed);
        let connection = world.hosts[0].connection.as_ref().unwrap();
        assert_eq!(connection.mss(), if tells { 900 } else { 524 }, "seed {seed}");
    }
}

#[test]
fn both_ends_may_begin_at_a_time() {
    for seed in 1..50 {
        let mut rng = Rng(seed);
        let (config, faults) = (any_config(&mut rng), any_faults(&mut rng));
        let mut world = World::new(seed, config, faults, [5000, 7000]);
        let ports = Ports { local: PORTS.remote, remote: PORTS.local };
        world.hosts[1].connection = Some(Connection::connect(config, ports, seed as u32, 0, Instant(0)));
        assert!(world.run(Instant(36_000_000_000_000)), "seed {seed}");
        assert_eq!((world.hosts[0].complete(), world.hosts[1].complete()), (7000, 5000), "seed {seed}");
    }
}

#[test]
fn an_idle_connection_is_small_and_costs_no_time() {
    assert!(size_of::<Connection>() <= 1024, "{}", size_of::<Connection>());
    let (config, faults) = rack(50_000);
    let mut world = World::new(1, config, Faults { loss: 10, ..faults }, [1 << 20, 1 << 20]);
    world.bulk = true;
    world.hosts.iter_mut().for_each(|host| host.closes = false);
    assert!(world.run(Instant(60_000_000_000)), "no deadline is left");
    for host in &world.hosts {
        let connection = host.connection.as_ref().unwrap();
        assert_eq!((connection.poll_timeout(), connection.state()), (None, State::Established));
        assert!(connection.board.is_empty());
    }
}
