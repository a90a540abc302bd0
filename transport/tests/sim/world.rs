//! Hosts on a link, each an engine with some devices, and the time that they share.

use crate::census::Census;
use crate::link::{Faults, Link};
use crate::memory::Mem;
use crate::reference::{Kind, Peer};
use crate::rng::Rng;
use crate::switch::{Queue, Switch};
use std::collections::VecDeque;
use vrdma_transport::*;
use vrdma_wire::num::{Gid, Mac, Qpn, Srqn};
use vrdma_wire::roce::Packet;

pub const OWNER: OwnerId = OwnerId(3);

/// An engine, and its output.
pub struct Host {
    pub engine: Engine<Mem>,
    pub log: Log,
    /// Questions that were taken from the engine and are not answered.
    questions: Vec<DrainRequest>,
}

/// The owner of a device of a host's engine.
#[derive(Clone, Copy)]
pub struct Guest {
    pub host: usize,
    pub device: DeviceId,
    pub pd: PdId,
    pub gid: Gid,
    pub mac: Mac,
}

impl Guest {
    fn new(engine: &mut Engine<Mem>, host: usize, n: u8, v4: bool) -> Guest {
        let device = engine.add_device(Limits { max_qp: 256, ..Limits::default() });
        let at = host as u8 + 1;
        let gid = match v4 {
            true => Gid::from_ipv4([10, 0, n, at]),
            false => Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n, at]),
        };
        let mac = Mac([2, 0, 0, 0, n, at]);
        engine.set_mac(device, mac).unwrap();
        engine.set_gid(device, 0, Some(gid.into())).unwrap();
        let pd = engine.alloc_pd(device, OWNER).unwrap();
        Guest { host, device, pd, gid, mac }
    }
}

/// The output of an engine that was not examined yet.
///
/// All tests of this program use this one sink, so that the engine is compiled once for each kind
/// of memory.
#[derive(Default)]
pub struct Log {
    pub completions: VecDeque<(DeviceId, CqId, Completion)>,
    pub events: VecDeque<Event>,
}

impl Sink for Log {
    fn complete(&mut self, device: DeviceId, cq: CqId, completion: &Completion) {
        self.completions.push_back((device, cq, *completion));
    }

    fn event(&mut self, _: DeviceId, event: Event) {
        self.events.push_back(event);
    }
}

pub struct World {
    pub now: Instant,
    pub hosts: Vec<Host>,
    pub guests: Vec<Guest>,
    /// Reference peers. Their numbers as guests follow those of `guests`.
    pub peers: Vec<Peer>,
    v4: bool,
    pub link: Link,
    /// Prints what happens, for a single seed.
    pub verbose: bool,
    /// A hash of everything that happens: equal runs have equal traces.
    pub trace: u64,
    pub frames: u64,
    pub census: Census,
    /// Decides when an engine is replaced by its copy, if that happens.
    pub replace: Option<Rng>,
    /// How often an engine was replaced.
    pub replaced: u64,
    congestion: Option<Dcqcn>,
}

/// The outlet of a host onto the link.
struct Port<'a> {
    host: usize,
    now: Instant,
    link: &'a mut Link,
    verbose: bool,
    sent: &'a mut u64,
    census: &'a mut Census,
    trace: &'a mut u64,
}

impl Outlet for Port<'_> {
    fn has_room(&mut self) -> bool {
        self.link.blocked(self.host, self.now).is_none()
    }
}

impl PacketOutlet<Mem> for Port<'_> {
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        let mut frame = self.link.buffer();
        frame.resize(packet.frame_len(payload.len()), 0);
        write_frame(packet, payload, &mut frame)?;
        *self.sent += 1;
        self.census.count(self.host, packet);
        // The ICRC covers everything in the frame.
        let icrc = frame.iter().rev().take(4).fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        for word in [self.now.0, self.host as u64, icrc, frame.len() as u64] {
            mix(self.trace, word);
        }
        let fate = self.link.send(self.now, self.host, frame);
        if self.verbose {
            let (qp, psn) = (packet.bth.dest.number(), packet.bth.psn.number());
            let ack = if packet.bth.ack_req { " AckReq" } else { "" };
            eprintln!(
                "{:>12} host {} to QP {qp:#x} PSN {psn:#x} {:?} {} bytes{ack}: {fate}",
                self.now.0,
                self.host,
                packet.body,
                payload.len()
            );
        }
        Ok(())
    }
}

impl StreamOutlet<Mem> for Port<'_> {}

/// Adds an event to a trace.
pub fn mix(trace: &mut u64, word: u64) {
    *trace = (*trace ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
}

/// An engine is replaced before, and after, one in this number of turns of a host, on average.
const REPLACE_ONE_IN: u64 = 100;

/// Returns a saved and restored copy of an engine, with the same memory.
fn copied(engine: &Engine<Mem>) -> Engine<Mem> {
    let record = engine.save();
    let mut bytes = Vec::new();
    ciborium::into_writer(&record, &mut bytes).expect("a record can be written");
    let read: Record = ciborium::from_reader(bytes.as_slice()).expect("what was written can be read");
    let lend = |device, key, _: &_| engine.region(device, key).ok().cloned();
    let copy = Engine::restore(&read, lend).expect("what an engine wrote can be restored");
    assert_eq!(copy.save(), record);
    copy
}

impl World {
    /// Creates hosts with these numbers of guests, whose addresses are IPv4 or IPv6.
    pub fn new(seed: u64, guests_of: &[usize], v4: bool, faults: Faults, verbose: bool) -> World {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let (mut hosts, mut guests) = (Vec::new(), Vec::new());
        for (host, &count) in guests_of.iter().enumerate() {
            let mut engine = Engine::new(rng.next());
            engine.set_link(true);
            guests.extend((0..count).map(|n| Guest::new(&mut engine, host, n as u8, v4)));
            hosts.push(Host { engine, log: Log::default(), questions: Vec::new() });
        }
        let link = Link::new(hosts.len(), faults, rng);
        World {
            now: Instant(1_000_000_000),
            hosts,
            guests,
            peers: Vec::new(),
            v4,
            link,
            verbose,
            trace: seed,
            frames: 0,
            census: Census::default(),
            replace: None,
            replaced: 0,
            congestion: None,
        }
    }

    /// Sets congestion control of all engines.
    pub fn set_congestion(&mut self, congestion: Option<Dcqcn>) {
        self.congestion = congestion;
        self.hosts.iter_mut().for_each(|host| host.engine.set_congestion(congestion).unwrap());
    }

    /// Adds a host that is a reference peer.
    pub fn add_peer(&mut self, kind: Kind) {
        let (host, n) = (self.link.add_host(), self.peers.len() as u8 + 1);
        self.peers.push(Peer::new(kind, host, n, self.v4));
    }

    /// Puts a switch between the hosts, with a queue before each.
    pub fn add_switch(&mut self, seed: u64, queue: Queue) {
        let guests = self.guests.iter().map(|guest| (guest.mac, guest.host));
        let ports = guests.chain(self.peers.iter().map(|peer| (peer.mac, peer.host))).collect();
        self.link.switch = Some(Switch::new(queue, ports, Rng::new(seed ^ 0x5717c4)));
    }

    /// Returns the engine of a guest, and its output.
    pub fn engine(&mut self, guest: usize) -> (&mut Engine<Mem>, &mut Log) {
        let Host { engine, log, .. } = &mut self.hosts[self.guests[guest].host];
        (engine, log)
    }

    /// Returns the reference peer that is this guest, if it is one.
    pub fn peer(&mut self, guest: usize) -> Option<&mut Peer> {
        self.peers.get_mut(guest.checked_sub(self.guests.len())?)
    }

    /// Returns the host and the addresses of a guest or reference peer.
    pub fn place(&self, guest: usize) -> (usize, Gid, Mac) {
        match self.guests.get(guest) {
            Some(guest) => (guest.host, guest.gid, guest.mac),
            None => {
                let peer = &self.peers[guest - self.guests.len()];
                (peer.host, peer.gid, peer.mac)
            }
        }
    }

    /// Registers memory of a guest or reference peer. Returns its key.
    pub fn register(&mut self, guest: usize, access: Access, iova: u64, memory: Mem) -> u32 {
        if let Some(peer) = self.peer(guest) {
            return peer.register(access, iova, memory);
        }
        let Guest { device, pd, .. } = self.guests[guest];
        let length = memory.len() as u64;
        self.engine(guest).0.reg_mr(device, pd, access, iova, length, memory).unwrap()
    }

    /// Posts a request. One of XRC names a shared queue.
    pub fn post_send(
        &mut self,
        guest: usize,
        qpn: Qpn,
        srqn: Option<Srqn>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if let Some(peer) = self.peer(guest) {
            peer.post_send(qpn, request);
            return Ok(());
        }
        let (now, Guest { device, .. }) = (self.now, self.guests[guest]);
        let (engine, log) = self.engine(guest);
        match srqn {
            Some(srqn) => engine.post_xrc(now, device, OWNER, qpn, request, srqn, log),
            None => engine.post_send(now, device, OWNER, qpn, request, log),
        }
    }

    /// Posts a receive, to the QP or to a shared queue.
    pub fn post_recv(
        &mut self,
        guest: usize,
        qpn: Qpn,
        srq: Option<SrqId>,
        request: RecvRequest<'_>,
    ) -> Result<(), PostError> {
        if let Some(peer) = self.peer(guest) {
            peer.post_recv(qpn, request);
            return Ok(());
        }
        let (now, Guest { device, .. }) = (self.now, self.guests[guest]);
        let (engine, log) = self.engine(guest);
        match srq {
            Some(srq) => engine.post_srq_recv(device, OWNER, srq, request, log),
            None => engine.post_recv(now, device, OWNER, qpn, request, log),
        }
    }

    /// Describes the state of a QP.
    pub fn describe(&self, guest: usize, qpn: Qpn) -> String {
        let Some(Guest { host, device, .. }) = self.guests.get(guest) else {
            return format!("reference peer {}", guest - self.guests.len());
        };
        let attr = self.hosts[*host].engine.query_qp(*device, qpn);
        format!("{:?}", attr.map(|attr| (attr.state, attr.sq_psn, attr.rq_psn)))
    }

    /// Returns the counters of a guest's device.
    pub fn counters(&self, guest: usize) -> &Counters {
        let Guest { host, device, .. } = self.guests[guest];
        self.hosts[host].engine.counters(device)
    }

    /// Returns the object counts of a guest's device.
    pub fn counts(&self, guest: usize) -> ObjectCounts {
        let Guest { host, device, .. } = self.guests[guest];
        self.hosts[host].engine.counts(device)
    }

    /// Does everything that can happen without time passing.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000_000, "the engines never come to rest");
            let before = self.frames;
            self.deliver();
            let mut busy = self.frames != before;
            for n in 0..self.hosts.len() {
                busy |= self.let_work(n);
            }
            for n in 0..self.peers.len() {
                busy |= self.let_peer_work(n);
            }
            if !busy && self.link.next().is_none_or(|at| at > self.now) {
                break;
            }
        }
    }

    /// Delivers the frames that have arrived.
    fn deliver(&mut self) {
        while let Some((from, mac, frame)) = self.link.arrived(self.now) {
            self.frames += 1;
            let mut guests = self.guests.iter();
            if let Some(guest) = guests.find(|guest| guest.host != from && guest.mac == mac) {
                let host = &mut self.hosts[guest.host];
                host.engine.handle_frame(self.now, &frame, &mut host.log);
            } else if let Some(peer) = self.peers.iter_mut().find(|it| it.host != from && it.mac == mac) {
                peer.handle_frame(self.now, &frame);
            }
            self.link.recycle(frame);
        }
    }

    /// Replaces a host's engine by its copy at times.
    fn maybe_replace(&mut self, n: usize) {
        if self.replace.as_mut().is_some_and(|rng| rng.one_in(REPLACE_ONE_IN)) {
            let engine = &mut self.hosts[n].engine;
            *engine = copied(engine);
            engine.set_congestion(self.congestion).unwrap();
            self.replaced += 1;
        }
    }

    /// Runs a turn of a host. Returns whether it sent something or has questions.
    fn let_work(&mut self, n: usize) -> bool {
        self.maybe_replace(n);
        let Host { engine, log, questions, .. } = &mut self.hosts[n];
        // The answer comes a turn later. Meanwhile frames are queued.
        for question in questions.drain(..) {
            engine.answer(self.now, question, log);
        }
        while engine.poll(self.now, 1 << 20, log) {}
        questions.extend(std::iter::from_fn(|| engine.poll_question()));
        let looks = !questions.is_empty();
        let mut sent = 0;
        let mut port = Port {
            host: n,
            now: self.now,
            link: &mut self.link,
            verbose: self.verbose,
            sent: &mut sent,
            census: &mut self.census,
            trace: &mut self.trace,
        };
        engine.transmit(self.now, 32, &mut port, log);
        // At this point packets are left, questions are open, and frames are queued.
        self.maybe_replace(n);
        sent > 0 || looks
    }

    /// Runs a turn of a reference peer. Returns whether it sent something.
    fn let_peer_work(&mut self, n: usize) -> bool {
        let (peer, now) = (&mut self.peers[n], self.now);
        peer.tick(now);
        let mut sent = 0;
        let mut port = Port {
            host: peer.host,
            now,
            link: &mut self.link,
            verbose: self.verbose,
            sent: &mut sent,
            census: &mut self.census,
            trace: &mut self.trace,
        };
        for _ in 0..32 {
            peer.is_blocked = !port.has_room();
            let next = if peer.is_blocked { None } else { peer.next(now) };
            let Some((packet, payload)) = next else { break };
            port.send(&packet, &Pieces::bytes(&payload)).expect("bytes are there");
        }
        sent > 0
    }

    /// Returns when something happens next by itself.
    pub fn next(&self) -> Option<Instant> {
        let engines = self.hosts.iter().enumerate().filter_map(|(n, host)| {
            let at = host.engine.poll_timeout()?;
            // A host that has something to send but no room waits for room.
            Some(at.max(self.link.blocked(n, self.now).unwrap_or(Instant(0))))
        });
        let peers = self.peers.iter().flat_map(|peer| {
            let room = if peer.is_blocked { self.link.blocked(peer.host, self.now) } else { None };
            let timer = peer.next_time().map(|at| at.max(room.unwrap_or(Instant(0))));
            room.into_iter().chain(timer)
        });
        self.link.next().into_iter().chain(engines).chain(peers).min()
    }
}
