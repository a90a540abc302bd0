//! An iWARP host: an engine whose QPs are connected by vrdma's own TCP, as in the daemon's worker.

use super::memory::{MEMORY, Memory};
use super::peer::DEPTH;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use vmm_sys_util::epoll::EventSet;
use vrdma_backend::config::{GuestConfig, GuestLimits};
use vrdma_backend::port::Port;
use vrdma_backend::user_tcp::{
    Came, Handle, Output, SEGMENTS, SegmentReceiver, TURN_BYTES, UserSocket, UserTcp, fetch_ahead,
};
use vrdma_transport::{
    Access, AttrMask, Completion, CqId, DeviceId, EarlyFpdu, Engine, Event, Fault, Fpdu, Instant, Limits,
    Outlet, OwnerId, PacketOutlet, Payload, PdId, Pieces, PlacedFpdu, QpAttr, QpInit, QpState, QpType,
    Receives, Remote, Role, SendOp, SendRequest, Sge, Sink, StreamAttr, StreamEnd, StreamOutlet, WcStatus,
    WholeQpLines, write_fpdu,
};
use vrdma_wire::head::Head;
use vrdma_wire::iwarp::framing::Framing;
use vrdma_wire::num::{Lkey, Mac, Qpn, Rkey};
use vrdma_wire::roce::Packet;

const OWNER: OwnerId = OwnerId(1);

/// A QP with its connection.
pub struct Stream {
    qpn: Qpn,
    socket: UserSocket,
    output: Output,
    /// The engine waits for room in the output.
    is_blocked: bool,
    /// The engine has added output since the last flush.
    is_touched: bool,
    /// Number of the peer's bytes that the engine has taken.
    pub taken: u64,
}

/// The peer's WRITEs that have arrived.
pub struct Arrivals {
    /// Number of stream bytes of each WRITE.
    pub each: u64,
    /// The connection of each arrival that is not counted yet.
    pub new: Vec<u32>,
}

impl Default for Arrivals {
    /// Returns arrivals before the length of WRITEs is known.
    fn default() -> Self {
        Arrivals { each: u64::MAX, new: Vec::new() }
    }
}

impl Arrivals {
    /// Records that the engine took `length` more bytes of a connection.
    fn take(&mut self, number: u32, stream: &mut Stream, length: u64) {
        let before = stream.taken / self.each;
        stream.taken += length;
        let new = stream.taken / self.each - before;
        self.new.extend((0..new).map(|_| number));
    }
}

/// All streams of a host, as the outlet of the engine's FPDUs.
#[derive(Default)]
pub struct Streams {
    /// The streams, in the order in which they were connected.
    pub all: Vec<Stream>,
    /// Indices of streams by QP.
    of: HashMap<Qpn, usize>,
    touched: Vec<usize>,
    /// Bytes that the engine has added since TCP last sent.
    put: usize,
    /// Set if the engine has ended a stream.
    pub ended: Option<StreamEnd>,
    mss: usize,
    /// The WRITEs that have arrived.
    pub arrivals: Arrivals,
    /// The TCP of the streams.
    pub user_tcp: UserTcp,
}

impl Streams {
    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.all[index].is_touched, true) {
            self.touched.push(index);
        }
    }
}

impl Outlet for Streams {
    fn has_room(&mut self) -> bool {
        self.put < TURN_BYTES
    }

    fn expect(&mut self, _: DeviceId, qpn: Qpn, lines: WholeQpLines) {
        fetch_ahead(lines);
        if let Some(&index) = self.of.get(&qpn) {
            self.user_tcp.fetch(&self.all[index].socket);
        }
    }
}

impl PacketOutlet<Memory> for Streams {
    fn send(&mut self, packet: &Packet, _: &Pieces<'_, Memory>) -> Result<(), Fault> {
        panic!("all QPs are connected by streams: {packet:?}");
    }
}

impl StreamOutlet<Memory> for Streams {
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
            output.provide_buffer(self.user_tcp.buffer(socket));
        }
        let length = fpdu.len(payload.len());
        let write = |buf: &mut [u8]| write_fpdu(fpdu, payload, buf).map(|_| ());
        output.put(length, length == self.mss, write)?;
        self.put += length;
        self.touch(index);
        Ok(())
    }

    fn end_stream(&mut self, _: DeviceId, _: Qpn, end: StreamEnd) {
        self.ended = Some(end);
    }
}

/// Passes received bytes directly to the engine, as the daemon does.
struct ToEngine<'a> {
    engine: &'a mut Engine<Memory>,
    device: DeviceId,
    all: &'a mut Vec<Stream>,
    failure: &'a mut Failure,
    arrivals: &'a mut Arrivals,
    readers: usize,
    places: bool,
}

impl ToEngine<'_> {
    fn took(&mut self, user: Handle, length: u64) {
        self.arrivals.take(user.number, &mut self.all[user.number as usize], length);
    }

    fn stream(&mut self, user: Handle) -> Option<&mut Stream> {
        let index = user.number as usize;
        self.all.get_mut(index).filter(|_| index < self.readers)
    }
}

impl SegmentReceiver for ToEngine<'_> {
    fn fetch(&mut self, user: Handle) {
        if let Some(qpn) = self.stream(user).map(|stream| stream.qpn) {
            self.engine.whole_qp_lines(self.device, qpn).into_iter().for_each(fetch_ahead);
        }
    }

    fn take(&mut self, user: Handle, bytes: &[u8]) -> usize {
        let Some(qpn) = self.stream(user).map(|stream| stream.qpn) else { return 0 };
        let taken = self.engine.handle_stream(self.device, qpn, bytes, self.failure).unwrap_or(0);
        self.took(user, taken as u64);
        taken
    }

    fn place(&mut self, user: Handle, fpdu: &[u8]) -> EarlyFpdu {
        let qpn = self.stream(user).map(|stream| stream.qpn);
        let Some(qpn) = qpn.filter(|_| self.places) else { return EarlyFpdu::Keep };
        self.engine.place_fpdu(self.device, qpn, fpdu, self.failure)
    }

    fn take_placed(&mut self, user: Handle, placed: &PlacedFpdu) -> bool {
        let Some(qpn) = self.stream(user).map(|stream| stream.qpn) else { return false };
        let is_taken = self.engine.handle_placed(self.device, qpn, placed, self.failure) == Ok(true);
        self.took(user, if is_taken { placed.len() as u64 } else { 0 });
        is_taken
    }
}

/// Records failures. Completions report only that TCP has taken a WRITE, so arrivals are counted
/// instead.
#[derive(Default)]
pub struct Failure(pub Option<WcStatus>);

impl Sink for Failure {
    fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
        if completion.status != WcStatus::Success {
            self.0 = Some(completion.status);
        }
    }

    fn event(&mut self, _: DeviceId, _: Event) {}
}

/// An iWARP host, with an engine and vrdma's own TCP.
pub struct IwarpHost {
    engine: Engine<Memory>,
    /// The device.
    pub device: DeviceId,
    pd: PdId,
    /// The key of its memory.
    pub key: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IP address.
    pub address: Ipv4Addr,
    /// Its connections.
    pub streams: Streams,
    /// The status of a failed WRITE.
    pub failure: Failure,
    /// Number of connections that are read: the first ones. The others are not read.
    pub readers: usize,
    /// Whether FPDUs beyond a gap are placed out of order, as for a peer that declared FPDU
    /// alignment. Otherwise their bytes wait.
    pub places: bool,
    scratch: Vec<u8>,
}

impl IwarpHost {
    /// Creates a host whose addresses end with this number.
    ///
    /// # Errors
    /// The device, a PD or an MR cannot be created.
    pub fn new(last: u8, mtu: u16) -> Result<IwarpHost> {
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
        streams.user_tcp.add(
            (device, 0),
            &guest,
            &GuestLimits { connections: 4096, ..GuestLimits::default() },
            0,
            mtu,
        );
        let failure = Failure::default();
        Ok(IwarpHost {
            engine,
            device,
            pd,
            key,
            mac,
            address,
            streams,
            failure,
            readers: usize::MAX,
            places: true,
            scratch: Vec::new(),
        })
    }

    /// Connects a new QP with a socket as its stream.
    pub fn connect(&mut self, role: Role, socket: UserSocket) -> Result<()> {
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
        let mss = self.streams.user_tcp.mss(&socket).context("a connection")?;
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

    /// Posts a WRITE.
    ///
    /// # Errors
    /// The send queue is full.
    pub fn post(&mut self, now: Instant, index: usize, rkey: u32, length: u32) -> Result<()> {
        let sge = [Sge { addr: 0, length, lkey: Lkey(self.key) }];
        let op = SendOp::Write { remote: Remote { addr: 0, rkey: Rkey(rkey) }, imm: None };
        let payload = Payload::Sges(&sge);
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        let qpn = self.streams.all[index].qpn;
        self.engine.post_send(now, self.device, OWNER, qpn, &request, &mut self.failure).context("room")
    }

    /// Passes a stream's output to TCP, as the daemon does.
    fn flush(&mut self, index: usize) {
        let Streams { all, mss, user_tcp, .. } = &mut self.streams;
        let stream = &mut all[index];
        stream.is_touched = false;
        if !stream.output.is_empty() && user_tcp.has_room(&stream.socket).unwrap_or(false) {
            user_tcp.send(&stream.socket, stream.output.take(), *mss);
        }
        if stream.is_blocked && stream.output.has_room() {
            stream.is_blocked = false;
            self.engine.stream_has_room(self.device, stream.qpn).expect("its QP is there");
        }
        let mut wants = EventSet::IN;
        if !stream.output.is_empty() {
            wants |= EventSet::OUT;
        }
        user_tcp.watch(&stream.socket, Handle { number: index as u32, generation: 0 }, Some(wants));
    }

    /// Lets the engine send, and then TCP.
    pub fn transmit(&mut self, now: Instant, port: &mut Port) {
        self.streams.user_tcp.expire(now);
        self.engine.transmit(now, SEGMENTS, &mut self.streams, &mut self.failure);
        while let Some(index) = self.streams.touched.pop() {
            self.flush(index);
        }
        self.streams.put = 0;
        let can = port.capabilities().checksums;
        for _ in 0..SEGMENTS {
            if !port.has_room() {
                break;
            }
            let Some(segment) = self.streams.user_tcp.poll_transmit(now) else { break };
            let length = self.streams.user_tcp.len(&segment);
            if let Some(mut frame) = port.transmit(length) {
                if let (_, Some(left)) = self.streams.user_tcp.write(&segment, frame.buf(), can) {
                    frame.offload(left);
                }
                frame.commit(length);
            }
        }
        port.flush();
        self.engine.poll(now, 1 << 20, &mut self.failure);
    }

    /// Handles a received frame.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        let IwarpHost { engine, device, streams, failure, readers, places, .. } = self;
        let Streams { all, user_tcp, arrivals, .. } = streams;
        let (device, readers, places) = (*device, *readers, *places);
        let to_engine = &mut ToEngine { engine, device, all, failure, arrivals, readers, places };
        let headers = Head::parse(frame).expect("what is sent has an Ethernet header");
        user_tcp.handle_frame(now, 0, (&headers, frame), to_engine);
    }

    /// Takes the bytes that TCP has for streams.
    pub fn serve(&mut self) -> Result<()> {
        for _ in 0..self.streams.user_tcp.ready() {
            let Some(handle) = self.streams.user_tcp.next_ready() else { break };
            let index = handle.number as usize;
            let Streams { all, user_tcp, arrivals, .. } = &mut self.streams;
            let Some(stream) = all.get_mut(index).filter(|_| index < self.readers) else { continue };
            if user_tcp.events(&stream.socket).contains(EventSet::IN) {
                let length = match user_tcp.read(&stream.socket, &mut self.scratch)? {
                    Came::Bytes(length) => length,
                    Came::Placed(_) => unreachable!("nothing in the streams waits"),
                };
                let mut taken = 0;
                while taken < length {
                    let bytes = &self.scratch[taken..length];
                    let some = self.engine.handle_stream(self.device, stream.qpn, bytes, &mut self.failure);
                    taken += some.context("its QP")?;
                }
                arrivals.take(handle.number, stream, length as u64);
            }
            self.flush(index);
        }
        Ok(())
    }
}
