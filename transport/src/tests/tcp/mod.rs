//! Tests of two engines over iWARP streams.
//!
//! The streams deliver bytes without loss, in pieces that a test chooses.
//!
//! Shows: iwarp.

mod basics;
mod endings;
mod hostile;
mod loopback;
mod placement;
mod set_up;

use super::*;
use vrdma_wire::iwarp::{Framing, Segment, StreamOffset};

/// The stream that leaves a host.
#[derive(Default)]
pub(super) struct Away {
    pub(super) bytes: Vec<u8>,
    /// Number of FPDUs that it still accepts, or `None` for any.
    pub(super) room: Option<usize>,
    pub(super) end: Option<StreamEnd>,
    /// Accepted FPDUs, without payload.
    pub(super) fpdus: Vec<Fpdu>,
    longest: usize,
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
        self.room != Some(0)
    }

    fn send_fpdu(
        &mut self,
        _: DeviceId,
        _: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        assert!(self.end.is_none() && self.room != Some(0), "nobody asked for {fpdu:?}");
        let mut buffer = vec![0xee; fpdu.len(payload.len())];
        let length = write_fpdu(fpdu, payload, &mut buffer)?;
        assert_eq!(length, buffer.len());
        self.longest = self.longest.max(length);
        self.bytes.extend_from_slice(&buffer);
        self.fpdus.push(*fpdu);
        self.room = self.room.map(|room| room - 1);
        Ok(())
    }

    fn end_stream(&mut self, _: DeviceId, _: Qpn, end: StreamEnd) {
        assert_eq!(self.end.replace(end), None, "a stream ends once");
    }
}

/// A host: an engine with one device, one QP, memory, and the stream that leaves it.
pub(super) struct Host {
    pub(super) engine: Engine<Mem>,
    pub(super) end: End,
    pub(super) log: Log,
    pub(super) away: Away,
    /// Received bytes that the engine has not taken.
    pub(super) offered: Vec<u8>,
}

/// Two hosts. Side 0 is `a`, the initiator; side 1 is `b`.
pub(super) struct Net {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    /// Bytes of the pieces in which data arrives.
    pub(super) piece: usize,
    /// Whether questions are answered.
    pub(super) looks: bool,
}

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const MEMORY: usize = 1 << 20;
pub(super) const MSS: u32 = 1448;
pub(super) const PLAIN: Framing = Framing { markers: false, crc: true };

pub(super) fn attr(role: Role) -> StreamAttr {
    StreamAttr { role, framing_out: PLAIN, framing_in: PLAIN, ready: None, ord: 4, ird: 4, mss: MSS }
}

impl Host {
    fn new(number: u8, access: Access) -> Host {
        let mut engine = Engine::new(number.into());
        engine.set_link(true);
        let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
        let gid = Gid::from_ipv4([10, 0, 0, number]);
        engine.set_gid(device, 0, Some(gid.into())).unwrap();
        let pd = engine.alloc_pd(device, OWNER).unwrap();
        let memory = Mem::new(MEMORY);
        let key = engine.reg_mr(device, pd, OF_REGION, IOVA, MEMORY as u64, memory.clone()).unwrap();
        let qpn = engine.create_qp(device, QpInit { max_send_wr: 64, ..qp_init(pd) }).unwrap();
        let end = End { device, pd, qpn, gid, memory, key };
        let mut log = Log::default();
        let init = QpAttr { state: QpState::Init, access, port: 1, ..QpAttr::default() };
        engine.modify_qp(Instant(0), device, qpn, TO_INIT, &init, &mut log).unwrap();
        Host { engine, end, log, away: Away::default(), offered: Vec::new() }
    }

    pub(super) fn state(&self) -> QpState {
        self.engine.query_qp(self.end.device, self.end.qpn).unwrap().state
    }

    pub(super) fn counters(&self) -> &Counters {
        self.engine.counters(self.end.device)
    }

    /// Takes the ids and statuses of all completions so far.
    pub(super) fn statuses(&mut self) -> Vec<(u32, WcStatus)> {
        self.log.completions.drain(..).map(|(_, _, c)| (c.id, c.status)).collect()
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        self.log.events.drain(..).map(|(_, event)| event).collect()
    }

    /// Takes the segments that were sent so far.
    pub(super) fn segments(&mut self) -> Vec<Segment> {
        self.away.fpdus.drain(..).filter_map(|fpdu| fpdu.segment).collect()
    }
}

impl Net {
    /// Creates two QPs in INIT.
    pub(super) fn new(access: Access) -> Net {
        let hosts = [Host::new(1, access), Host::new(2, access)];
        Net { hosts, now: Instant(1_000_000), piece: usize::MAX, looks: true }
    }

    pub(super) fn connected() -> Net {
        Net::connected_with(|_| {}, |_| {})
    }

    /// Creates two connected QPs in RTS, with changed attributes.
    pub(super) fn connected_with(a: impl FnOnce(&mut StreamAttr), b: impl FnOnce(&mut StreamAttr)) -> Net {
        let mut net = Net::new(Access::QP);
        let (mut attr_a, mut attr_b) = (attr(Role::Initiator), attr(Role::Responder));
        a(&mut attr_a);
        b(&mut attr_b);
        net.connect(&attr_a, &attr_b);
        net
    }

    pub(super) fn connect(&mut self, a: &StreamAttr, b: &StreamAttr) {
        for (host, attr) in self.hosts.iter_mut().zip([a, b]) {
            host.engine.connect_stream(host.end.device, host.end.qpn, attr).unwrap();
        }
    }

    /// Creates two connected QPs that may both send.
    pub(super) fn greeted() -> Net {
        let mut net = Net::connected();
        let empty = net.hosts[B].end.remote(0);
        net.post(A, 999, write_to(empty), Payload::Sges(&[]));
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(999, WcStatus::Success)]);
        net.hosts[A].segments();
        net
    }

    pub(super) fn post(&mut self, from: usize, id: u32, op: SendOp, payload: Payload<'_>) {
        let Host { engine, end, log, .. } = &mut self.hosts[from];
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_send(self.now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }

    pub(super) fn post_recv(&mut self, at: usize, id: u32, sges: &[Sge]) {
        let Host { engine, end, log, .. } = &mut self.hosts[at];
        engine.post_recv(self.now, end.device, OWNER, end.qpn, RecvRequest { id, sges }, log).unwrap();
    }

    /// Lets a host do all work that is ready.
    pub(super) fn work(&mut self, at: usize) {
        let Host { engine, log, away, .. } = &mut self.hosts[at];
        save::replace_at_times(engine);
        loop {
            let mut more = engine.poll(self.now, u64::MAX, log);
            if self.looks {
                more |= answer_all(engine, self.now, log);
            }
            if !engine.transmit(self.now, 7, away, log) && !more {
                break;
            }
        }
    }

    /// Offers bytes to a host in pieces. Bytes that it does not take stay offered.
    pub(super) fn offer(&mut self, to: usize, bytes: &[u8]) {
        let Net { hosts, now, piece, looks } = self;
        let Host { engine, end, log, offered, .. } = &mut hosts[to];
        offered.extend_from_slice(bytes);
        while !offered.is_empty() {
            save::replace_at_times(engine);
            let now_offered = (*piece).min(offered.len());
            let taken = engine.handle_stream(end.device, end.qpn, &offered[..now_offered], log).unwrap();
            offered.drain(..taken);
            let looked = *looks && answer_all(engine, *now, log);
            if taken == 0 && !looked {
                break;
            }
        }
    }

    /// Lets both hosts work until nothing is left to do.
    pub(super) fn run(&mut self) {
        loop {
            for (from, to) in [(A, B), (B, A)] {
                self.work(from);
                let bytes = std::mem::take(&mut self.hosts[from].away.bytes);
                self.offer(to, &bytes);
            }
            if self.hosts.iter().all(|host| host.away.bytes.is_empty()) {
                self.work(A);
                self.work(B);
                if self.hosts.iter().all(|host| host.away.bytes.is_empty()) {
                    return;
                }
            }
        }
    }

    /// Delivers a segment that a peer might send, in an FPDU of its own.
    pub(super) fn inject(&mut self, to: usize, place: &mut StreamOffset, segment: &Segment, payload: &[u8]) {
        let fpdu = Fpdu { framing: PLAIN, place: *place, segment: Some(*segment) };
        let mut buffer = vec![0; fpdu.len(payload.len())];
        let length = write_fpdu(&fpdu, &Pieces::<Mem>::bytes(payload), &mut buffer).unwrap();
        *place = place.after(length);
        self.offer(to, &buffer);
    }
}

/// Returns bytes of which neighbours differ.
pub(super) fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31 + i / 251 + salt) % 253) as u8).collect()
}

/// Returns records of engines in the middle of transfers.
///
/// They have partial requests, responses and FPDUs, data to send first, a waiting message, and a
/// waiting TERMINATE.
pub(super) fn records() -> Vec<Record> {
    let mut records = Vec::new();
    let mut net = Net::connected();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.hosts[A].away.room = Some(4);
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 20_000)]));
    let add = SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 1 });
    net.post(A, 2, add, Payload::Sges(&[a.sge(0, 8)]));
    let imm = Some(vrdma_wire::num::Imm::from_bytes([1, 2, 3, 4]));
    net.post(A, 3, SendOp::Write { remote: b.remote(0), imm }, Payload::Sges(&[a.sge(0, 20_000)]));
    net.work(A);
    let bytes = std::mem::take(&mut net.hosts[A].away.bytes);
    net.offer(B, &bytes);
    let Host { engine, log, away, .. } = &mut net.hosts[B];
    engine.transmit(net.now, 3, away, log);
    let bytes = std::mem::take(&mut away.bytes);
    net.offer(A, &bytes[..bytes.len() - 100]);
    records.extend(net.hosts.iter().map(|host| host.engine.save()));

    // The same requests, before the WRITE has started.
    let mut net = Net::connected();
    net.hosts[A].away.room = Some(2);
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 20_000)]));
    net.post(A, 2, add, Payload::Sges(&[a.sge(0, 8)]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 20_000)]));
    net.work(A);
    records.push(net.hosts[A].engine.save());

    let with = |stream: &mut StreamAttr| {
        stream.ready = Some(ReadyToReceive::Write);
        stream.framing_in.markers = true;
    };
    records.extend(Net::connected_with(with, with).hosts.iter().map(|host| host.engine.save()));

    let mut net = Net::greeted();
    net.looks = false;
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5)]));
    net.work(A);
    let bytes = std::mem::take(&mut net.hosts[A].away.bytes);
    let Host { engine, log, .. } = &mut net.hosts[B];
    // Another QP asks, and is reset before it gets an answer.
    let qpn = engine.create_qp(b.device, qp_init(b.pd)).unwrap();
    let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
    engine.modify_qp(net.now, b.device, qpn, TO_INIT, &init, log).unwrap();
    engine.connect_stream(b.device, qpn, &attr(Role::Responder)).unwrap();
    engine.handle_stream(b.device, qpn, &bytes, log).unwrap();
    let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
    engine.modify_qp(net.now, b.device, qpn, AttrMask::STATE, &reset, log).unwrap();
    net.offer(B, &bytes);
    records.push(net.hosts[B].engine.save());

    let mut net = Net::greeted();
    net.hosts[B].away.room = Some(0);
    let nowhere = Remote { rkey: Rkey(0), ..b.remote(0) };
    net.post(A, 1, write_to(nowhere), Payload::Sges(&[a.sge(0, 5)]));
    net.run();
    records.push(net.hosts[B].engine.save());
    records
}
