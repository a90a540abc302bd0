//! iWARP: two engines whose QPs are connected by our own TCP, as the daemon's worker has it, and the ports between them, all in this thread. The switch, the bindings of
//! connections, set-up and rings of guests are no part of it.

use super::engines::DEPTH;
use super::memory::{MEMORY, Memory};
use crate::load::Load;
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as Clock};
use vmm_sys_util::epoll::EventSet;
use vrdma_backend::config::{GuestConfig, GuestLimits};
use vrdma_backend::own_tcp::{Handle, Output, Own, Socket};
use vrdma_backend::port::{Burst, Port};
use vrdma_tcp::NextHop;
use vrdma_transport::{
    Access, AttrMask, Completion, CqId, DeviceId, Engine, Event, Fault, Fpdu, Instant, Limits, Outlet,
    OwnerId, Payload, PdId, Pieces, QpAttr, QpInit, QpState, QpType, Receives, Remote, Role, SendOp,
    SendRequest, Sge, Sink, StreamAttr, StreamEnd, WcStatus, write_fpdu,
};
use vrdma_wire::iwarp::framing::Framing;
use vrdma_wire::num::{Lkey, Mac, Qpn, Rkey};
use vrdma_wire::roce::Packet;

const OWNER: OwnerId = OwnerId(1);
/// Packets, or segments, of a turn.
const BUDGET: usize = 256;
/// Where the peer listens.
const PORT: u16 = 4420;
/// What setting up all connections may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The listener, among those of connections.
const LISTENER: Handle = Handle { number: u32::MAX, generation: 0 };

/// A QP with its connection.
struct Stream {
    qpn: Qpn,
    socket: Socket,
    output: Output,
    /// The engine waits for room.
    is_blocked: bool,
    /// It has put something in since the last flush.
    is_touched: bool,
    /// Bytes that the engine took of the peer's.
    taken: u64,
}

/// Where the engine's FPDUs go.
#[derive(Default)]
struct Streams {
    all: Vec<Stream>,
    /// By QP.
    of: HashMap<Qpn, usize>,
    touched: Vec<usize>,
    ended: Option<StreamEnd>,
    mss: usize,
    own: Own,
}

impl Streams {
    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.all[index].is_touched, true) {
            self.touched.push(index);
        }
    }
}

impl Outlet<Memory> for Streams {
    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, packet: &Packet, _: &Pieces<'_, Memory>) -> Result<(), Fault> {
        panic!("all QPs are connected by streams: {packet:?}");
    }

    fn stream_has_room(&mut self, _: DeviceId, qpn: Qpn) -> bool {
        let index = self.of[&qpn];
        let has_room = self.all[index].output.has_room();
        if !has_room {
            self.all[index].is_blocked = true;
            self.touch(index);
        }
        has_room
    }

    fn send_fpdu(
        &mut self,
        _: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, Memory>,
    ) -> Result<(), Fault> {
        let index = self.of[&qpn];
        let Stream { output, socket, .. } = &mut self.all[index];
        if output.wants_buffer() {
            output.lend(self.own.buffer(socket));
        }
        let length = fpdu.len(payload.len());
        let write = |buf: &mut [u8]| write_fpdu(fpdu, payload, buf).map(|_| ());
        output.put(length, length == self.mss, write)?;
        self.touch(index);
        Ok(())
    }

    fn end_stream(&mut self, _: DeviceId, _: Qpn, end: StreamEnd) {
        self.ended = Some(end);
    }
}

/// Completions say when a WRITE was handed to TCP; what counts is that it has arrived.
#[derive(Default)]
struct Failure(Option<WcStatus>);

impl Sink for Failure {
    fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
        if completion.status != WcStatus::Success {
            self.0 = Some(completion.status);
        }
    }

    fn event(&mut self, _: DeviceId, _: Event) {}
}

struct Host {
    engine: Engine<Memory>,
    device: DeviceId,
    pd: PdId,
    key: u32,
    mac: Mac,
    address: Ipv4Addr,
    streams: Streams,
    failure: Failure,
    scratch: Vec<u8>,
}

impl Host {
    fn new(last: u8, mtu: u16) -> Result<Host> {
        let mut engine = Engine::new(last.into());
        let device = engine.add_device(Limits::default());
        engine.set_link(true);
        let pd = engine.alloc_pd(device, OWNER).context("a PD")?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = engine.reg_mr(device, pd, access, 0, MEMORY as u64, Memory::new()).context("an MR")?;
        let (mac, address) = (Mac([2, 0, 0, 0, 0x56, last]), Ipv4Addr::new(192, 0, 2, last));
        let guest: GuestConfig =
            format!("name=g{last},socket=/none,mac=02:00:00:00:56:{last:02x}").parse()?;
        let mut streams = Streams::default();
        streams.own.add(
            (device, 0),
            &guest,
            &GuestLimits { connections: 4096, ..GuestLimits::default() },
            mtu,
        );
        let failure = Failure::default();
        Ok(Host { engine, device, pd, key, mac, address, streams, failure, scratch: Vec::new() })
    }

    /// Has a socket as the stream of a new QP.
    fn connect(&mut self, role: Role, socket: Socket) -> Result<()> {
        let init = QpInit {
            owner: OWNER,
            pd: Some(self.pd),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(0),
            receives: Receives::Own,
            max_send_wr: DEPTH,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = self.engine.create_qp(self.device, init).context("a QP")?;
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let access = Access::REMOTE_WRITE;
        let attr = QpAttr { state: QpState::Init, access, port: 1, ..QpAttr::default() };
        self.engine
            .modify_qp(Instant(0), self.device, qpn, mask, &attr, &mut self.failure)
            .context("a QP in INIT")?;
        let framing = Framing { markers: false, crc: true };
        let mss = self.streams.own.mss(&socket).context("a connection")?;
        let (framing_out, framing_in) = (framing, framing);
        let stream = StreamAttr { role, framing_out, framing_in, ready: None, ord: 0, ird: 0, mss };
        self.engine.connect_stream(self.device, qpn, &stream).context("a stream")?;
        self.streams.mss = mss as usize;
        let index = self.streams.all.len();
        self.streams.of.insert(qpn, index);
        self.streams.all.push(Stream {
            qpn,
            socket,
            output: Output::default(),
            is_blocked: false,
            is_touched: false,
            taken: 0,
        });
        self.flush(index);
        Ok(())
    }

    fn post(&mut self, now: Instant, index: usize, rkey: u32, length: u32) -> Result<()> {
        let sge = [Sge { addr: 0, length, lkey: Lkey(self.key) }];
        let op = SendOp::Write { remote: Remote { addr: 0, rkey: Rkey(rkey) }, imm: None };
        let payload = Payload::Sges(&sge);
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        let qpn = self.streams.all[index].qpn;
        self.engine.post_send(now, self.device, OWNER, qpn, &request, &mut self.failure).context("room")
    }

    /// Hands what a stream has over to TCP, as the daemon does.
    fn flush(&mut self, index: usize) {
        let Streams { all, mss, own, .. } = &mut self.streams;
        let stream = &mut all[index];
        stream.is_touched = false;
        if !stream.output.is_empty() && own.has_room(&stream.socket).unwrap_or(false) {
            own.send(&stream.socket, stream.output.take(), *mss);
        }
        if stream.is_blocked && stream.output.has_room() {
            stream.is_blocked = false;
            self.engine.stream_has_room(self.device, stream.qpn).expect("its QP is there");
        }
        let mut wants = EventSet::IN;
        if !stream.output.is_empty() {
            wants |= EventSet::OUT;
        }
        own.watch(&stream.socket, Handle { number: index as u32, generation: 0 }, Some(wants));
    }

    /// Lets the engine send, and then TCP.
    fn transmit(&mut self, now: Instant, port: &mut Port) {
        self.streams.own.expire(now);
        self.engine.transmit(now, BUDGET, &mut self.streams, &mut self.failure);
        while let Some(index) = self.streams.touched.pop() {
            self.flush(index);
        }
        for _ in 0..BUDGET {
            if !port.has_room() {
                break;
            }
            let Some(segment) = self.streams.own.poll_transmit(now) else { break };
            let length = self.streams.own.len(&segment);
            if let Some(mut frame) = port.transmit(length) {
                self.streams.own.write(&segment, frame.buf());
                frame.commit(length);
            }
        }
        port.flush();
        self.engine.poll(now, 1 << 20, &mut self.failure);
    }

    /// Takes what TCP has for streams.
    fn serve(&mut self) -> Result<()> {
        for _ in 0..self.streams.own.ready() {
            let Some(handle) = self.streams.own.next_ready() else { break };
            let index = handle.number as usize;
            let Streams { all, own, .. } = &mut self.streams;
            let Some(stream) = all.get_mut(index) else { continue };
            if own.events(&stream.socket).contains(EventSet::IN) {
                let length = own.read(&stream.socket, &mut self.scratch)?;
                let mut taken = 0;
                while taken < length {
                    let bytes = &self.scratch[taken..length];
                    let some = self.engine.handle_stream(self.device, stream.qpn, bytes, &mut self.failure);
                    taken += some.context("its QP")?;
                }
                stream.taken += length as u64;
            }
            self.flush(index);
        }
        Ok(())
    }
}

/// WRITEs from one engine to the other, over some connections by turns.
pub struct Iwarp<'p> {
    a: Host,
    b: Host,
    ports: &'p RefCell<Vec<Port>>,
    length: u32,
    depth: u32,
    burst: Burst,
    start: Clock,
    now: Instant,
    /// Bytes of a stream that a WRITE is.
    each: u64,
    /// Of each connection.
    posted: Vec<u64>,
    next: usize,
    /// WRITEs posted in all, and of those that have arrived as was told.
    counts: (u64, u64),
}

impl<'p> Iwarp<'p> {
    /// On each connection `depth` WRITEs of `length` bytes at a time. Addresses of the hosts end with `first` and the number after it: others on these ports have others.
    ///
    /// # Errors
    /// They cannot be set up.
    pub fn new(
        ports: &'p RefCell<Vec<Port>>,
        (length, depth): (u32, u32),
        connections: u32,
        mtu: u16,
        first: u8,
    ) -> Result<Iwarp<'p>> {
        let mut iwarp = Iwarp {
            a: Host::new(first, mtu)?,
            b: Host::new(first + 1, mtu)?,
            ports,
            length,
            depth,
            burst: Burst::default(),
            start: Clock::now(),
            now: Instant(0),
            each: u64::MAX,
            posted: vec![0; connections as usize],
            next: 0,
            counts: (0, 0),
        };
        let Host { streams, device, address, .. } = &mut iwarp.b;
        streams.own.listen(*device, LISTENER, SocketAddr::from((*address, PORT))).context("a listener")?;
        for number in 0..connections {
            iwarp.connect(number)?;
        }
        iwarp.a.post(iwarp.now, 0, iwarp.b.key, length)?;
        iwarp.wait("a WRITE", |iwarp| iwarp.a.streams.own.ready() == 0 && iwarp.is_settled())?;
        iwarp.each = iwarp.b.streams.all[0].taken;
        iwarp.posted[0] = 1;
        iwarp.counts = (1, 1);
        Ok(iwarp)
    }

    fn connect(&mut self, number: u32) -> Result<()> {
        let handle = Handle { number, generation: 0 };
        let ends = ((self.a.address, 0).into(), (self.b.address, PORT).into());
        let way = (NextHop { mac: self.b.mac, vlan: None }, 0);
        let (near, _) =
            self.a.streams.own.connect(self.now, self.a.device, ends, way, handle).context("a socket")?;
        let mut far = None;
        self.wait("a connection", |iwarp| {
            let Host { streams, device, .. } = &mut iwarp.b;
            far = far.take().or_else(|| streams.own.accept(*device, LISTENER));
            far.is_some()
        })?;
        let (far, ..) = far.context("it was accepted")?;
        self.b.connect(Role::Responder, far)?;
        self.a.connect(Role::Initiator, near)
    }

    /// Whether the first WRITE, which is alone, has arrived.
    fn is_settled(&self) -> bool {
        self.b.streams.all[0].taken > u64::from(self.length)
    }

    fn wait(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let start = Clock::now();
        while !is_done(self) {
            self.turn()?;
            ensure!(start.elapsed() < PATIENCE, "{what} takes too long");
        }
        Ok(())
    }

    /// Segments that were sent a second time.
    pub fn retries(&self) -> u64 {
        self.a.streams.own.stats(self.a.device).get("retransmits").copied().unwrap_or_default()
    }

    fn turn(&mut self) -> Result<()> {
        let ports = &mut *self.ports.borrow_mut();
        let last = ports.len() - 1;
        // TCP measures round trips by it.
        self.now = Instant(self.start.elapsed().as_nanos() as u64 + 1_000_000_000);
        self.a.transmit(self.now, &mut ports[0]);
        self.b.transmit(self.now, &mut ports[last]);
        for port in ports.iter_mut() {
            port.receive(&mut self.burst);
            for frame in self.burst.frames() {
                for host in [&mut self.a, &mut self.b] {
                    if frame[..6] == host.mac.0 {
                        host.streams.own.handle_frame(self.now, 0, frame);
                    }
                }
            }
            self.burst.clear();
        }
        for host in [&mut self.a, &mut self.b] {
            host.serve()?;
            ensure!(host.failure.0.is_none(), "a WRITE failed: {:?}", host.failure.0);
            ensure!(host.streams.ended.is_none(), "a stream ended");
        }
        Ok(())
    }

    /// WRITEs of a connection that have arrived.
    fn arrived(&self, index: usize) -> u64 {
        self.b.streams.all[index].taken / self.each
    }
}

impl Load for Iwarp<'_> {
    fn post(&mut self) -> bool {
        for _ in 0..self.posted.len() {
            let index = self.next;
            self.next = (index + 1) % self.posted.len();
            if self.posted[index] - self.arrived(index) < self.depth.into() {
                self.a.post(self.now, index, self.b.key, self.length).expect("there is room");
                self.posted[index] += 1;
                self.counts.0 += 1;
                return true;
            }
        }
        false
    }

    fn ring(&mut self) {}

    fn poll(&mut self) -> Result<u32> {
        self.turn()?;
        let arrived: u64 = (0..self.posted.len()).map(|index| self.arrived(index)).sum();
        let new = arrived - self.counts.1;
        self.counts.1 = arrived;
        Ok(new as u32)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        (self.counts.0 - self.counts.1) as u32
    }
}
