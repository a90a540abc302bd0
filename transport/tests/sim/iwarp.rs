//! iWARP over vrdma's own TCP, as a deterministic simulation.
//!
//! Two engines communicate over a TCP connection whose segments are lost, duplicated and reordered
//! by a seed. MPA sets the connection up. Messages in both directions arrive once, in order, and
//! unchanged. Meanwhile engines are replaced by their copies.

mod host;
mod traffic;

use crate::memory::Mem;
use crate::rng::Rng;
use host::{Host, IOVA, PART, Packet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use traffic::{Lengths, Traffic};
use vrdma_transport::{Fpdu, Pieces, Region, Role, Wishes, write_fpdu};
use vrdma_wire::iwarp::num::Stag;
use vrdma_wire::iwarp::rdmap::Tagged;
use vrdma_wire::iwarp::{Framing, Segment, StreamOffset};
use vrdma_wire::tcp::{Flags, TcpHeader};

/// The faults of the network, in millionths of all segments.
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: u32,
    duplication: u32,
    reordering: u32,
    /// Segments are split on the way, or two are joined.
    resegmenting: bool,
}

/// A segment in flight: its arrival time, its number, its destination host, and the segment.
struct Flight(u64, u64, usize, Packet);

impl PartialEq for Flight {
    fn eq(&self, other: &Flight) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Flight {}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Flight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flight {
    fn cmp(&self, other: &Flight) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The delay of one direction, in nanoseconds.
const DELAY: u64 = 20_000;
/// The maximum additional delay of reordered segments.
const LATE: u64 = 200_000;

struct World {
    now: u64,
    rng: Rng,
    faults: Faults,
    hosts: [Host; 2],
    flying: BinaryHeap<Reverse<Flight>>,
    sent: u64,
}

impl World {
    /// Lets both hosts do everything that is possible at present.
    fn work(&mut self) {
        for at in 0..2 {
            for packet in self.hosts[at].work(self.now, &mut self.rng) {
                if self.faults.resegmenting {
                    let first = 4 * self.rng.range(0..=IMITATION as u64 / 4) as usize;
                    packet.cut(first, IMITATION).into_iter().for_each(|part| self.send(at, &part));
                } else {
                    self.send(at, &packet);
                }
            }
        }
    }

    fn send(&mut self, from: usize, packet: &Packet) {
        let Faults { loss, duplication, reordering, .. } = self.faults;
        if self.rng.ppm(loss) {
            return;
        }
        for _ in 0..1 + u32::from(self.rng.ppm(duplication)) {
            let late = if self.rng.ppm(reordering) { self.rng.range(0..=LATE) } else { 0 };
            self.sent += 1;
            let flight = Flight(self.now + DELAY + late, self.sent, 1 - from, packet.clone());
            self.flying.push(Reverse(flight));
        }
    }

    /// Advances to the next event. Returns false if there is none.
    fn step(&mut self) -> bool {
        self.work();
        let flight = self.flying.peek().map(|Reverse(flight)| flight.0);
        let deadlines = self.hosts.iter().filter_map(Host::deadline);
        let Some(next) = flight.into_iter().chain(deadlines).min() else { return false };
        self.now = self.now.max(next);
        while let Some(Reverse(flight)) = self.flying.peek()
            && flight.0 <= self.now
        {
            let Reverse(Flight(_, _, to, packet)) = self.flying.pop().expect("it was looked at");
            self.hosts[to].handle(self.now, &packet, &mut self.rng);
        }
        self.hosts.iter_mut().for_each(|host| host.handle_deadline(self.now));
        true
    }

    /// Sends messages in both directions until all have arrived. Returns their bytes.
    fn round(&mut self, seed: u64, load: Load) -> u64 {
        let mut traffic = Traffic::new(&self.hosts, load.messages, load.lengths, &mut self.rng);
        for step in 0.. {
            assert!(step < 3_000_000, "seed {seed} has no end: {traffic:?}");
            traffic.go_on(&mut self.hosts, &mut self.rng);
            // A WRITE completes when it leaves, and must still arrive.
            let is_over = traffic.is_over() && self.hosts.iter().all(Host::is_settled);
            // By chance nothing may have been posted, so that nothing is in flight.
            if is_over || !self.step() && traffic.is_posted() {
                break;
            }
        }
        traffic.check(&self.hosts, seed);
        traffic.bytes()
    }
}

/// The outcome of a seed.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    took: u64,
    bytes: u64,
    segments: u64,
    retransmits: u64,
    replaced: u64,
    placed: u64,
    sends_placed: u64,
    too_early: u64,
    imitated: u64,
}

/// What is sent over a connection.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The number of messages of each host in a round.
    messages: usize,
    rounds: u32,
    lengths: Lengths,
}

impl Load {
    fn of(messages: usize) -> Load {
        Load { messages, rounds: 1, lengths: Lengths::Any }
    }
}

fn run(seed: u64, faults: Faults, load: Load) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut wishes = || Wishes {
        markers: rng.one_in(2),
        crc: rng.one_in(2),
        enhanced: rng.one_in(2),
        peer_to_peer: true,
        ird: rng.range(1..=16) as u8,
        ord: rng.range(1..=16) as u8,
    };
    let (a, b) = (wishes(), wishes());
    let mtu = rng.pick(&[600, 1500, 9000]);
    let hosts =
        [Host::new(Role::Initiator, a, mtu, 1, &mut rng), Host::new(Role::Responder, b, mtu, 2, &mut rng)];
    let mut hosts = hosts;
    if faults.resegmenting {
        imitate(&mut hosts);
    }
    let sources = hosts.each_ref().map(|host| host.memory.bytes(0, PART));
    let mut world = World { now: 1_000_000_000, rng, faults, hosts, flying: BinaryHeap::new(), sent: 0 };
    let (begin, mut bytes) = (world.now, 0);
    for _ in 0..load.rounds {
        bytes += world.round(seed, load);
    }
    for (host, source) in world.hosts.iter().zip(sources) {
        assert!(host.memory.bytes(0, PART) == source, "seed {seed}: nobody writes there");
    }
    let took = world.now - begin;
    // One host finishes its stream. Then both TCP connections must end.
    world.hosts[0].finish();
    while !world.hosts.iter().all(Host::is_over) && world.step() {}
    assert!(world.hosts.iter().all(Host::is_over), "seed {seed}: both connections end");
    let retransmits = world.hosts.iter().map(Host::retransmits).sum();
    let replaced = world.hosts.iter().map(|host| host.replaced).sum();
    let placed = world.hosts.iter().map(|host| host.placed).sum();
    let sends_placed = world.hosts.iter().map(|host| host.sends_placed).sum();
    let too_early = world.hosts.iter().map(|host| host.too_early).sum();
    // Only hosts without markers count. No limit on the number of searched READs and receives
    // applies here.
    let held: u64 = world.hosts.iter().map(|host| host.payload_held).sum();
    assert_eq!(held, 0, "seed {seed}: payload was held behind a gap");
    let imitated = world.hosts.iter().map(|host| host.imitated).sum();
    let segments = world.sent;
    Outcome { took, bytes, segments, retransmits, replaced, placed, sends_placed, too_early, imitated }
}

fn seeds(range: std::ops::Range<u64>) {
    let (mut bytes, mut segments, mut retransmits, mut replaced) = (0, 0, 0, 0);
    let (mut placed, mut sends_placed, mut too_early) = (0, 0, 0);
    for seed in range {
        let mut rng = Rng::new(!seed);
        let mut rate = || if rng.one_in(3) { 0 } else { rng.range(0..=20_000) as u32 };
        let faults = Faults { loss: rate(), duplication: rate(), reordering: rate(), resegmenting: false };
        let outcome = run(seed, faults, Load::of(40));
        bytes += outcome.bytes;
        segments += outcome.segments;
        retransmits += outcome.retransmits;
        replaced += outcome.replaced;
        placed += outcome.placed;
        sends_placed += outcome.sends_placed;
        too_early += outcome.too_early;
    }
    println!(
        "{bytes} bytes in {segments} segments arrived, {retransmits} were sent again; {replaced} engines replaced; {placed} FPDUs placed beyond a gap, {sends_placed} of SENDs; {too_early} too early"
    );
    assert!(retransmits > 0 && replaced > 0 && placed > 100, "there is something to it");
    assert!(sends_placed > 100 && too_early > 10, "there is something to it");
}

#[test]
fn messages_arrive_over_a_bad_network_seeds_0_to_99() {
    seeds(0..100);
}

#[test]
fn messages_arrive_over_a_bad_network_seeds_100_to_199() {
    seeds(100..200);
}

#[test]
#[ignore = "long"]
fn messages_arrive_over_a_bad_network_seeds_200_to_1999() {
    seeds(200..2000);
}

#[test]
fn two_hundred_megabytes_arrive_over_a_bad_network() {
    much_arrives(0..3, 200 << 20);
}

#[test]
#[ignore = "long"]
fn a_gigabyte_arrives_over_a_bad_network() {
    much_arrives(0..16, 1 << 30);
}

/// Runs seeds that send at least this many bytes in long messages.
fn much_arrives(seeds: std::ops::Range<u64>, at_least: u64) {
    let faults = Faults { loss: 10_000, duplication: 10_000, reordering: 10_000, resegmenting: false };
    let (mut bytes, mut replaced, mut placed, runs) = (0, 0, 0, seeds.end - seeds.start);
    // The seed decides about markers, CRCs and the MTU.
    for seed in seeds {
        let outcome = run(seed, faults, Load { messages: 60, rounds: 42, lengths: Lengths::Long });
        bytes += outcome.bytes;
        replaced += outcome.replaced;
        placed += outcome.placed;
    }
    println!("{bytes} bytes; {replaced} engines replaced; {placed} FPDUs placed beyond a gap");
    assert!(bytes >= at_least, "{bytes}");
    // 16 runs have more than 100, and more than 1,000.
    assert!(16 * replaced > 100 * runs && 16 * placed > 1000 * runs, "there is something to it");
}

#[test]
fn a_seed_happens_again_exactly() {
    let faults = Faults { loss: 10_000, duplication: 10_000, reordering: 10_000, resegmenting: false };
    for seed in 0..5 {
        assert_eq!(run(seed, faults, Load::of(20)), run(seed, faults, Load::of(20)), "{seed}");
    }
}

#[test]
fn what_looks_like_an_fpdu_in_a_segment_that_was_cut_on_the_way_is_not_placed() {
    let (mut placed, mut imitated) = (0, 0);
    for seed in 0..20 {
        let faults = Faults { loss: 20_000, duplication: 10_000, reordering: 20_000, resegmenting: true };
        let outcome = run(seed, faults, Load::of(20));
        placed += outcome.placed;
        imitated += outcome.imitated;
    }
    println!("{imitated} imitations of FPDUs came beyond gaps; {placed} FPDUs were placed");
    assert!(imitated > 100, "there is something to it");
}

/// The bytes of an imitation of an FPDU.
const IMITATION: usize = 64;

/// Fills all data that both hosts send with imitations of FPDUs.
///
/// Each is a WRITE to memory that nobody writes: the data that the peer itself sends.
fn imitate(hosts: &mut [Host; 2]) {
    for at in 0..2 {
        let stag = Stag(hosts[1 - at].key);
        let segment = Some(Segment::Write(Tagged { stag, offset: IOVA, last: true }));
        let framing = Framing { markers: false, crc: true };
        let fpdu = Fpdu { framing, place: StreamOffset::START, segment };
        let mut bytes = [0; IMITATION];
        let length = write_fpdu(&fpdu, &Pieces::<Mem>::bytes(&[0xbb; 44]), &mut bytes).unwrap();
        assert_eq!(length, IMITATION);
        hosts[at].memory.write(0, &bytes.repeat(PART / IMITATION)).unwrap();
        hosts[1 - at].imitation = bytes.to_vec();
    }
}

/// A header, and the data after it.
impl Packet {
    /// Splits it into segments of `each` bytes, except for the first and the last one.
    ///
    /// Each has the options of the whole.
    fn cut(&self, first: usize, each: usize) -> Vec<Packet> {
        let Packet(header, data) = self;
        let (head, rest) = data.split_at(first.min(data.len()));
        let parts = [head].into_iter().chain(rest.chunks(each)).filter(|part| !part.is_empty());
        let mut seq = header.seq;
        let mut all: Vec<Packet> = parts
            .map(|part| {
                let packet = Packet(TcpHeader { seq, ..*header }, part.to_vec());
                seq = seq.wrapping_add(part.len() as u32);
                packet
            })
            .collect();
        if data.is_empty() || header.flags.has(Flags::SYN) || header.flags.has(Flags::FIN) {
            all = vec![self.clone()];
        }
        all
    }

    fn header(&self) -> &TcpHeader {
        &self.0
    }
}
