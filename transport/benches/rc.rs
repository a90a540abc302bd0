//! RC between two engines, packet by packet and without a port.
//!
//! Each frame is written by one engine and read by the other. For comparison it measures the frames
//! alone: headers, one copy of the payload, making and checking the ICRC. It also measures the same
//! requests between two devices of one engine. Then it measures ATOMIC WRITEs, and SENDs with
//! posted receives: in a receive queue of the QP, or in a shared one.
//!
//! `cargo bench -p vrdma-transport`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use vrdma_transport::*;
use vrdma_wire::num::{Gid, Lkey, Mac, Mtu, Psn, Qpn, Rkey};
use vrdma_wire::roce::{self, Packet, Part, Path, Reth, WriteTail};

const OWNER: OwnerId = OwnerId(1);
const IOVA: u64 = 0x10_0000;
const MEMORY: usize = 4 << 20;
const SEND_CQ: CqId = CqId(0);

/// The operation of requests, and where their receives are posted.
#[derive(Copy, Clone, PartialEq)]
enum Kind {
    Write,
    AtomicWrite,
    Send,
    SendToShared,
}

impl Kind {
    fn sizes(self) -> &'static [u32] {
        match self {
            Kind::Write => &[8, 64, 4096, 65536],
            Kind::AtomicWrite => &[8],
            Kind::Send | Kind::SendToShared => &[64, 4096, 65536],
        }
    }

    fn takes_receives(self) -> bool {
        matches!(self, Kind::Send | Kind::SendToShared)
    }
}

/// The memory of a host.
#[derive(Clone)]
struct Mem(Rc<RefCell<Vec<u8>>>);

impl Region for Mem {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        dst.write(dst_offset, &self.0.borrow()[offset as usize..(offset + len) as usize])
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0.borrow()[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.0.borrow_mut()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        let bytes = &mut self.0.borrow_mut()[offset as usize..offset as usize + 8];
        let word = AtomicU64::new(u64::from_ne_bytes((&*bytes).try_into().map_err(|_| Fault)?));
        let result = operation(&word);
        bytes.copy_from_slice(&word.into_inner().to_ne_bytes());
        Ok(result)
    }
}

/// A sink that counts completions of sends.
#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn complete(&mut self, _: DeviceId, cq: CqId, completion: &Completion) {
        assert_eq!(completion.status, WcStatus::Success);
        self.0 += u64::from(cq == SEND_CQ);
    }

    fn event(&mut self, _: DeviceId, event: Event) {
        panic!("{event:?}");
    }
}

/// Frames in flight, in reused buffers.
#[derive(Default)]
struct Frames {
    buffers: Vec<Vec<u8>>,
    used: usize,
}

impl Outlet for Frames {
    fn has_room(&mut self) -> bool {
        self.used < 64
    }
}

impl PacketOutlet<Mem> for Frames {
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        if self.used == self.buffers.len() {
            self.buffers.push(Vec::with_capacity(roce::MAX_FRAME));
        }
        let buffer = &mut self.buffers[self.used];
        buffer.resize(packet.frame_len(payload.len()), 0);
        write_frame(packet, payload, buffer)?;
        self.used += 1;
        Ok(())
    }
}

impl StreamOutlet<Mem> for Frames {}

struct End {
    device: DeviceId,
    qpn: Qpn,
    srq: Option<SrqId>,
    key: u32,
    gid: Gid,
    mac: Mac,
}

fn end(engine: &mut Engine<Mem>, n: u8, kind: Kind) -> End {
    let device = engine.add_device(Limits::default());
    let (gid, mac) = (Gid::from_ipv4([10, 0, 0, n]), Mac([2, 0, 0, 0, 0, n]));
    engine.set_mac(device, mac).expect("it is there");
    engine.set_gid(device, 0, Some(gid.into())).expect("it is free");
    let pd = engine.alloc_pd(device, OWNER).expect("a PD");
    let memory = Mem(Rc::new(RefCell::new(vec![n; MEMORY])));
    let key = engine.reg_mr(device, pd, Access::ALL, IOVA, MEMORY as u64, memory).expect("a region");
    let shared = SrqInit { owner: OWNER, pd, max_wr: BATCH, max_sge: 1, xrc: None };
    let srq =
        (kind == Kind::SendToShared).then(|| engine.create_srq(device, shared).expect("a shared queue"));
    let init = QpInit {
        owner: OWNER,
        pd: Some(pd),
        qp_type: QpType::Rc,
        send_cq: SEND_CQ,
        recv_cq: CqId(1),
        receives: srq.into(),
        max_send_wr: 64,
        max_recv_wr: BATCH,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: 0,
    };
    let qpn = engine.create_qp(device, init).expect("a QP");
    End { device, qpn, srq, key, gid, mac }
}

fn connect(engine: &mut Engine<Mem>, own: &End, peer: &End) {
    let attr = QpAttr {
        access: Access::ALL,
        port: 1,
        path_mtu: Mtu::M4096,
        rq_psn: Psn::truncate(7),
        sq_psn: Psn::truncate(7),
        dest_qpn: peer.qpn,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        dgid: peer.gid,
        dmac: peer.mac,
        hop_limit: 1,
        ..QpAttr::default()
    };
    use AttrMask as M;
    let init = M::STATE.with(M::PKEY_INDEX).with(M::PORT).with(M::ACCESS_FLAGS);
    let rtr = M::STATE.with(M::AV).with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
    let rtr = rtr.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER);
    let rts = M::STATE
        .with(M::SQ_PSN)
        .with(M::TIMEOUT)
        .with(M::RETRY_CNT)
        .with(M::RNR_RETRY)
        .with(M::MAX_RD_ATOMIC);
    for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
        let attr = QpAttr { state, ..attr };
        let done = engine.modify_qp(Instant(1), own.device, own.qpn, mask, &attr, &mut Count::default());
        done.expect("each step is allowed");
    }
}

/// The number of requests that are posted together. Only the last one is signaled.
const BATCH: u32 = 32;

/// Posts a batch of requests of `size` bytes.
fn post(engine: &mut Engine<Mem>, (own, peer): (&End, &End), kind: Kind, size: u32, sink: &mut Count) {
    let payload = [Sge { addr: IOVA, length: size, lkey: Lkey(own.key) }];
    let remote = Remote { addr: IOVA, rkey: Rkey(peer.key) };
    for n in 1..=BATCH {
        let request = SendRequest {
            id: 0,
            signaled: n == BATCH,
            solicited: false,
            fence: false,
            op: match kind {
                Kind::Write => SendOp::Write { remote, imm: None },
                Kind::AtomicWrite => SendOp::AtomicWrite { remote },
                Kind::Send | Kind::SendToShared => SendOp::Send { imm: None },
            },
            payload: Payload::Sges(&payload),
        };
        engine.post_send(Instant(1), own.device, OWNER, own.qpn, &request, sink).expect("there is room");
    }
}

/// Posts the receives of a batch.
fn post_receives(engine: &mut Engine<Mem>, own: &End, kind: Kind, size: u32, sink: &mut Count) {
    if !kind.takes_receives() {
        return;
    }
    let sges = [Sge { addr: IOVA, length: size, lkey: Lkey(own.key) }];
    for id in 0..BATCH {
        let request = RecvRequest { id, sges: &sges };
        let posted = match own.srq {
            Some(srq) => engine.post_srq_recv(own.device, OWNER, srq, request, sink),
            None => engine.post_recv(Instant(1), own.device, OWNER, own.qpn, request, sink),
        };
        posted.expect("there is room");
    }
}

/// Two engines, and frames between them.
struct Wire {
    engines: [Engine<Mem>; 2],
    ends: [End; 2],
    frames: [Frames; 2],
}

impl Wire {
    fn new(kind: Kind) -> Wire {
        let mut engines = [Engine::new(1), Engine::new(2)];
        let [first, second] = &mut engines;
        first.set_link(true);
        second.set_link(true);
        let ends = [end(first, 1, kind), end(second, 2, kind)];
        connect(first, &ends[0], &ends[1]);
        connect(second, &ends[1], &ends[0]);
        Wire { engines, ends, frames: [Frames::default(), Frames::default()] }
    }

    /// Runs a batch until its last request completes.
    fn batch(&mut self, kind: Kind, size: u32) {
        let now = Instant(1);
        let mut sink = Count::default();
        let Wire { engines: [first, second], ends: [own, peer], .. } = self;
        post_receives(second, peer, kind, size, &mut sink);
        post(first, (own, peer), kind, size, &mut sink);
        while sink.0 == 0 {
            for (from, to) in [(0, 1), (1, 0)] {
                let frames = &mut self.frames[from];
                self.engines[from].transmit(now, 64, frames, &mut sink);
                for frame in &frames.buffers[..frames.used] {
                    self.engines[to].handle_frame(now, frame, &mut sink);
                }
                frames.used = 0;
            }
        }
    }
}

/// Writes and reads the frames of a WRITE of `size` bytes, and does nothing else.
fn frames_alone(memory: &Mem, into: &Mem, buffer: &mut [u8], size: usize) {
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: Gid::from_ipv4([10, 0, 0, 1]),
        dst: Gid::from_ipv4([10, 0, 0, 2]),
        traffic_class: 0,
        flow_label: Default::default(),
        hop_limit: 1,
        src_port: 0xc000,
    };
    let memory = memory.0.borrow();
    for at in (0..size).step_by(4096) {
        let reth = Reth { va: IOVA, rkey: Rkey(1), length: size as u32 };
        let body = roce::Body::Rc(roce::Rc::Write(Part::Only(reth, WriteTail::Plain)));
        let packet = Packet { path, bth: Default::default(), body };
        let payload = &memory[at..size.min(at + 4096)];
        let length = write_frame::<Mem>(black_box(&packet), &Pieces::bytes(payload), buffer).expect("bytes");
        let parsed = Packet::parse(&buffer[..length]).expect("a packet");
        parsed.check_icrc().expect("its ICRC");
        into.0.borrow_mut()[at..at + parsed.payload.len()].copy_from_slice(parsed.payload);
    }
}

/// Two devices of one engine.
struct Host {
    engine: Engine<Mem>,
    ends: [End; 2],
}

impl Host {
    fn new(kind: Kind) -> Host {
        let mut engine = Engine::new(1);
        let ends = [end(&mut engine, 1, kind), end(&mut engine, 2, kind)];
        connect(&mut engine, &ends[0], &ends[1]);
        connect(&mut engine, &ends[1], &ends[0]);
        Host { engine, ends }
    }

    /// Runs a batch until its last request completes.
    fn batch(&mut self, kind: Kind, size: u32) {
        let Host { engine, ends: [own, peer] } = self;
        let mut sink = Count::default();
        post_receives(engine, peer, kind, size, &mut sink);
        post(engine, (own, peer), kind, size, &mut sink);
        while sink.0 == 0 {
            engine.poll(Instant(1), 1 << 20, &mut sink);
        }
        engine.poll(Instant(1), 1 << 20, &mut sink);
    }
}

fn requests(c: &mut Criterion) {
    for (name, kind) in [
        ("write", Kind::Write),
        ("atomic write", Kind::AtomicWrite),
        ("send", Kind::Send),
        ("send to a shared queue", Kind::SendToShared),
    ] {
        let mut group = c.benchmark_group(name);
        for &size in kind.sizes() {
            group.throughput(Throughput::Bytes(u64::from(size) * u64::from(BATCH)));
            let mut wire = Wire::new(kind);
            group
                .bench_function(BenchmarkId::new("two engines", size), |b| b.iter(|| wire.batch(kind, size)));
            if kind == Kind::Write {
                let [from, into] = [1, 2].map(|n| Mem(Rc::new(RefCell::new(vec![n; MEMORY]))));
                let mut buffer = vec![0; roce::MAX_FRAME];
                group.bench_function(BenchmarkId::new("frames alone", size), |b| {
                    b.iter(|| {
                        (0..BATCH).for_each(|_| frames_alone(&from, &into, &mut buffer, size as usize))
                    });
                });
            }
            let mut host = Host::new(kind);
            group.bench_function(BenchmarkId::new("one engine", size), |b| b.iter(|| host.batch(kind, size)));
        }
        group.finish();
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
