//! A host: an engine with one QP, and one TCP connection.

use crate::memory::Mem;
use crate::rng::Rng;
use crate::world::Log;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use vrdma_tcp::{Arrival, Config, Connection, Event as TcpEvent, Ports, Source};
use vrdma_transport::*;
use vrdma_wire::iwarp::Segment;
use vrdma_wire::num::{Gid, Qpn};
use vrdma_wire::tcp::{Flags, TcpHeader};

pub const OWNER: OwnerId = OwnerId(3);
pub const IOVA: u64 = 0x10_0000;
/// The length of each of four parts of a memory: for sent data, and for the peer's WRITEs, the
/// peer's SENDs and own READs.
pub const PART: usize = 1 << 20;

/// A segment in flight.
#[derive(Clone)]
pub struct Packet(pub TcpHeader, pub Vec<u8>);

/// The stream to the peer: unacknowledged data, with its segment boundaries.
#[derive(Default)]
struct Away {
    /// The segments, with their offsets in the stream.
    pieces: VecDeque<(u64, Vec<u8>)>,
    end: u64,
    finished: Option<StreamEnd>,
}

/// Maximum unacknowledged bytes, at which the engine waits.
const BUFFER: u64 = 64 << 10;

impl Away {
    fn push(&mut self, piece: Vec<u8>) {
        let length = piece.len() as u64;
        self.pieces.push_back((self.end, piece));
        self.end += length;
    }

    fn pending(&self) -> u64 {
        self.pieces.front().map_or(0, |(begin, _)| self.end - begin)
    }

    fn acknowledged(&mut self, up_to: u64) {
        while let Some((begin, piece)) = self.pieces.front()
            && begin + piece.len() as u64 <= up_to
        {
            self.pieces.pop_front();
        }
    }

    fn bytes(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (begin, piece) in &self.pieces {
            let end = begin + piece.len() as u64;
            let (from, to) = (range.start.max(*begin), range.end.min(end));
            if from < to {
                bytes.extend_from_slice(&piece[(from - begin) as usize..(to - begin) as usize]);
            }
        }
        assert_eq!(bytes.len() as u64, range.end - range.start, "what is not acknowledged is there");
        bytes
    }
}

impl Source for Away {
    fn is_whole(&mut self, stretch: std::ops::Range<u64>) -> bool {
        self.pieces
            .iter()
            .any(|(begin, piece)| *begin == stretch.start && begin + piece.len() as u64 == stretch.end)
    }

    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        let piece = self.pieces.iter().find(|(begin, piece)| offset < begin + piece.len() as u64);
        piece.map_or(0, |(begin, piece)| ((begin + piece.len() as u64 - offset) as u32).min(most))
    }
}

impl Outlet for Away {
    fn has_room(&mut self) -> bool {
        true
    }
}

impl PacketOutlet<Mem> for Away {
    fn send(&mut self, packet: &vrdma_wire::roce::Packet, _: &Pieces<'_, Mem>) -> Result<(), Fault> {
        panic!("a packet: {packet:?}");
    }
}

impl StreamOutlet<Mem> for Away {
    fn stream_has_room(&mut self, _: DeviceId, _: Qpn) -> bool {
        self.pending() < BUFFER
    }

    fn send_fpdu(
        &mut self,
        _: DeviceId,
        _: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        let is_terminate = matches!(fpdu.segment, Some(Segment::Terminate(..)));
        assert!(!is_terminate, "nobody does anything wrong: {fpdu:?}");
        let mut piece = vec![0; fpdu.len(payload.len())];
        write_fpdu(fpdu, payload, &mut piece)?;
        self.push(piece);
        Ok(())
    }

    fn end_stream(&mut self, _: DeviceId, _: Qpn, end: StreamEnd) {
        assert_eq!(self.finished.replace(end), None, "a stream ends once");
    }
}

/// Data that has arrived.
enum Kept {
    Bytes(Vec<u8>),
    /// An FPDU whose payload was placed out of order.
    Placed(PlacedFpdu),
}

/// The state of the set-up.
enum SetUp {
    Initiator(Box<Initiator>),
    Responder(SetUpResponder),
    Done,
}

pub struct Host {
    pub engine: Engine<Mem>,
    pub log: Log,
    pub device: DeviceId,
    pub qpn: Qpn,
    pub key: u32,
    pub memory: Mem,
    pub replaced: u64,
    config: Config,
    wishes: Wishes,
    set_up: SetUp,
    request: Option<Vec<u8>>,
    tcp: Option<Connection>,
    away: Away,
    closed: bool,
    /// Data that has arrived and was not offered to the engine, by its offset in the stream.
    kept: BTreeMap<u64, Kept>,
    /// The number of FPDUs that were placed beyond a gap, and how many of them are SENDs.
    pub placed: u64,
    pub sends_placed: u64,
    /// The number of FPDUs with payload that were queued behind a gap.
    pub payload_held: u64,
    /// The number of FPDUs that were not taken, because their receive was not there.
    pub too_early: u64,
    /// Receives that are posted when the engine asks for them.
    pub later: VecDeque<(u32, Vec<Sge>)>,
    /// The shared queue of its receives, if it has one.
    srq: Option<SrqId>,
    /// An imitation of an FPDU, and how often it arrived as such beyond a gap.
    pub imitation: Vec<u8>,
    pub imitated: u64,
    /// Data that has arrived in order, up to an offset, and was not taken.
    offered: Vec<u8>,
    received: u64,
    ended: bool,
    /// When the host answers the engine's questions for receives.
    look_at: Option<u64>,
}

/// The nanoseconds from an arrival until the search for its receive.
const LOOK: u64 = 5_000;

const CLIENT: Ports = Ports { local: 40_000, remote: 4_420 };

impl Host {
    pub fn new(role: Role, wishes: Wishes, mtu: u16, number: u8, rng: &mut Rng) -> Host {
        let mut engine = Engine::new(rng.next());
        engine.set_link(true);
        let device = engine.add_device(Limits { max_qp: 64, ..Limits::default() });
        engine.set_gid(device, 0, Some(Gid::from_ipv4([10, 0, 0, number]).into())).unwrap();
        let pd = engine.alloc_pd(device, OWNER).unwrap();
        let mut bytes = vec![0; 4 * PART];
        rng.fill(&mut bytes[..PART]);
        let memory = Mem::new(bytes);
        let key = engine.reg_mr(device, pd, Access::ALL, IOVA, memory.len() as u64, memory.clone()).unwrap();
        let shared = SrqInit { owner: OWNER, pd, max_wr: 128, max_sge: 4, xrc: None };
        let srq = rng.one_in(3).then(|| engine.create_srq(device, shared).unwrap());
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(1),
            recv_cq: CqId(2),
            receives: srq.map_or(Receives::Own, Receives::Shared),
            max_send_wr: 32,
            max_recv_wr: if srq.is_some() { 0 } else { 128 },
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
        };
        let qpn = engine.create_qp(device, init).unwrap();
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let attr = QpAttr { state: QpState::Init, access: Access::ALL, port: 1, ..QpAttr::default() };
        let mut log = Log::default();
        engine.modify_qp(Instant(0), device, qpn, mask, &attr, &mut log).unwrap();
        let config = Config {
            mss: mtu - 40,
            min_rto: Duration::from_millis(1),
            initial_rto: Duration::from_millis(20),
            peer_ack_delay: Duration::from_millis(1),
            probe_slack: Duration::ZERO,
            ack_delay: Duration::from_micros(500),
            time_wait: Duration::from_millis(5),
            fpdus: true,
            ..Config::default()
        };
        let (set_up, request, tcp) = match role {
            Role::Initiator => {
                let (initiator, request) = Initiator::new(wishes, b"hello");
                let (initial, clock) = (rng.next() as u32, rng.next() as u32);
                let tcp =
                    Connection::connect(config, CLIENT, initial, clock, vrdma_tcp::Instant(1_000_000_000));
                (SetUp::Initiator(Box::new(initiator)), Some(request), Some(tcp))
            }
            Role::Responder => (SetUp::Responder(SetUpResponder::default()), None, None),
        };
        Host {
            engine,
            log,
            device,
            qpn,
            key,
            memory,
            replaced: 0,
            config,
            wishes,
            set_up,
            request,
            tcp,
            away: Away::default(),
            closed: false,
            kept: BTreeMap::new(),
            placed: 0,
            sends_placed: 0,
            payload_held: 0,
            too_early: 0,
            later: VecDeque::new(),
            srq,
            imitation: Vec::new(),
            imitated: 0,
            offered: Vec::new(),
            received: 0,
            ended: false,
            look_at: None,
        }
    }

    /// Returns whether both ends know what they have negotiated.
    pub fn is_connected(&self) -> bool {
        matches!(self.set_up, SetUp::Done)
    }

    pub fn is_over(&self) -> bool {
        self.closed
    }

    /// Returns whether the peer has all of its stream, and it has taken all of the peer's.
    pub fn is_settled(&self) -> bool {
        self.away.pending() == 0 && self.kept.is_empty() && self.offered.is_empty()
    }

    pub fn retransmits(&self) -> u64 {
        self.tcp.as_ref().map_or(0, |tcp| tcp.counters().retransmits.into())
    }

    pub fn finish(&mut self) {
        self.engine.finish_stream(self.device, self.qpn).unwrap();
    }

    /// Returns when something happens by itself, in TCP or in the engine.
    ///
    /// The engine has already done what is possible at once.
    pub fn deadline(&self) -> Option<u64> {
        let engine = self.engine.poll_timeout().map(|at| at.0).filter(|at| *at != 0);
        self.deadline_of_tcp().into_iter().chain(engine).chain(self.look_at).min()
    }

    fn deadline_of_tcp(&self) -> Option<u64> {
        self.tcp.as_ref()?.poll_timeout().map(|at| at.0)
    }

    pub fn handle_deadline(&mut self, now: u64) {
        if self.deadline_of_tcp().is_some_and(|at| at <= now)
            && let Some(tcp) = &mut self.tcp
        {
            tcp.handle_timeout(vrdma_tcp::Instant(now));
        }
    }

    /// Handles an arriving segment.
    pub fn handle(&mut self, now: u64, packet: &Packet, rng: &mut Rng) {
        let now = vrdma_tcp::Instant(now);
        let (header, data) = (packet.header(), &packet.1);
        if self.tcp.is_none() {
            if header.flags.has(Flags::SYN) {
                let (initial, clock) = (rng.next() as u32, rng.next() as u32);
                self.tcp = Some(Connection::accept(self.config, header, initial, clock, now));
            }
            return;
        }
        let (is_done, markers) = (self.is_connected(), self.wishes.markers);
        let Host { tcp, kept, engine, log, device, qpn, imitation, imitated, .. } = self;
        let Host { placed, sends_placed, payload_held, too_early, .. } = self;
        let mut take = |arrival: Arrival| {
            let bytes = &data[arrival.at.clone()];
            *imitated += u64::from(arrival.offset > arrival.complete && bytes == imitation.as_slice());
            if arrival.is_whole && arrival.offset > arrival.complete && is_done {
                // Without markers, the bytes after the length tell the type of an FPDU. The length
                // tells whether it has payload.
                let is_send = !markers && bytes[2] & 0x80 == 0 && matches!(bytes[3] & 0xf, 3..=6);
                let is_tagged = !markers && bytes[2] & 0x80 != 0;
                match engine.place_fpdu(*device, *qpn, bytes, log) {
                    EarlyFpdu::Placed(fpdu) => {
                        *placed += 1;
                        *sends_placed += u64::from(is_send);
                        kept.insert(arrival.offset, Kept::Placed(fpdu));
                        return bytes.len();
                    }
                    EarlyFpdu::NoReceive => {
                        *too_early += 1;
                        return 0;
                    }
                    EarlyFpdu::Keep => {}
                }
                *payload_held += u64::from(is_tagged && bytes.len() > 20 || is_send && bytes.len() > 24);
            }
            kept.insert(arrival.offset, Kept::Bytes(bytes.to_vec()));
            bytes.len()
        };
        if let Some(tcp) = tcp {
            tcp.handle_segment(now, header, data.len(), &mut take);
        }
    }

    /// Does everything that is possible at present. Returns the segments that it sends.
    pub fn work(&mut self, now: u64, rng: &mut Rng) -> Vec<Packet> {
        if rng.one_in(100) {
            self.replace();
        }
        self.take_events();
        if !self.kept.is_empty() || !self.offered.is_empty() {
            // The search comes later.
            self.look_at.get_or_insert(now + LOOK);
        }
        self.offer();
        while self.offered.is_empty() && self.take_kept() {
            self.offer();
        }
        let (qpn, device) = (self.qpn, self.device);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = self.look(now).then_some(now + LOOK);
        }
        let Host { engine, log, away, tcp, .. } = self;
        while engine.poll(Instant(now), 1 << 20, log) {}
        let Some(tcp) = tcp else { return Vec::new() };
        away.acknowledged(tcp.acknowledged());
        if matches!(self.set_up, SetUp::Done) {
            engine.stream_has_room(device, qpn).unwrap();
            engine.transmit(Instant(now), 32, away, log);
        }
        match away.finished {
            Some(StreamEnd::Close) => tcp.close(),
            Some(StreamEnd::Abort) => tcp.abort(),
            None => {}
        }
        let mut packets = Vec::new();
        while let Some(segment) = tcp.poll_transmit(vrdma_tcp::Instant(now), away) {
            packets.push(Packet(segment.header, away.bytes(segment.data)));
        }
        packets
    }

    /// Answers the engine's questions. Returns whether there were any.
    fn look(&mut self, now: u64) -> bool {
        let mut asked = false;
        while let Some(question) = self.engine.poll_question() {
            // Each search finds some of the receives.
            for _ in 0..3 {
                let Some((id, sges)) = self.later.pop_front() else { break };
                self.post_recv(now, id, &sges);
            }
            self.engine.answer(Instant(now), question, &mut self.log);
            asked = true;
        }
        asked
    }

    pub fn post_recv(&mut self, now: u64, id: u32, sges: &[Sge]) {
        let Host { engine, log, device, qpn, srq, .. } = self;
        let request = RecvRequest { id, sges };
        match *srq {
            Some(srq) => engine.post_srq_recv(*device, OWNER, srq, request, log),
            None => engine.post_recv(Instant(now), *device, OWNER, *qpn, request, log),
        }
        .unwrap();
    }

    /// Continues with the next data in order. Returns false if there is none, or it is not taken.
    fn take_kept(&mut self) -> bool {
        let Some(kept) = self.kept.remove(&self.received) else { return false };
        match kept {
            Kept::Bytes(piece) => {
                self.received += piece.len() as u64;
                self.offered.extend_from_slice(&piece);
            }
            Kept::Placed(fpdu) => {
                let Host { engine, log, device, qpn, .. } = self;
                if !engine.handle_placed(*device, *qpn, &fpdu, log).unwrap() {
                    self.kept.insert(self.received, Kept::Placed(fpdu));
                    return false;
                }
                self.received += fpdu.len() as u64;
            }
        }
        true
    }

    fn take_events(&mut self) {
        while let Some(event) = self.tcp.as_mut().and_then(Connection::poll_event) {
            match event {
                TcpEvent::Established => {
                    if let Some(request) = self.request.take() {
                        self.away.push(request);
                    }
                }
                TcpEvent::EndOfStream => self.ended = true,
                TcpEvent::Closed(_) => self.closed = true,
            }
        }
        if self.ended && self.offered.is_empty() && self.kept.is_empty() {
            self.ended = false;
            let Host { engine, log, device, qpn, tcp, .. } = self;
            engine.lose_stream(*device, *qpn, true, log).unwrap();
            if let Some(tcp) = tcp {
                tcp.close();
            }
        }
    }

    /// Offers data to the set-up first, then to the engine.
    fn offer(&mut self) {
        let mss = self.tcp.as_ref().map_or(0, Connection::mss);
        match &mut self.set_up {
            SetUp::Initiator(initiator) => {
                let (taken, reply) = initiator.handle(&self.offered).unwrap();
                self.offered.drain(..taken);
                if let Some((agreed, private_data)) = reply {
                    assert_eq!(private_data, b"welcome");
                    self.connect(&agreed, mss);
                }
            }
            SetUp::Responder(responder) => {
                let (taken, request) = responder.handle(&self.offered).unwrap();
                self.offered.drain(..taken);
                if let Some(request) = request {
                    assert_eq!(request.private_data, b"hello");
                    let (agreed, reply) = request.accept(&self.wishes, b"welcome").unwrap();
                    self.away.push(reply);
                    self.connect(&agreed, mss);
                }
            }
            SetUp::Done => {}
        }
        if matches!(self.set_up, SetUp::Done) {
            let Host { engine, log, device, qpn, offered, .. } = self;
            while !offered.is_empty() {
                let taken = engine.handle_stream(*device, *qpn, offered, log).unwrap();
                offered.drain(..taken);
                if taken == 0 {
                    break;
                }
            }
        }
    }

    fn connect(&mut self, agreed: &Agreed, mss: u32) {
        self.engine.connect_stream(self.device, self.qpn, &agreed.stream(mss)).unwrap();
        self.set_up = SetUp::Done;
    }

    /// Replaces the engine by its copy.
    fn replace(&mut self) {
        let record = self.engine.save();
        let mut bytes = Vec::new();
        ciborium::into_writer(&record, &mut bytes).unwrap();
        let read: Record = ciborium::from_reader(bytes.as_slice()).unwrap();
        let copy = Engine::restore(&read, |_, _, _| Some(self.memory.clone())).unwrap();
        assert_eq!(copy.save(), record);
        self.engine = copy;
        self.replaced += 1;
    }
}
