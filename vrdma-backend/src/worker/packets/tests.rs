use super::*;
use crate::memory::tests::memory;
use crate::memory::{Extent, GuestMemory};
use proptest::prelude::*;
use std::collections::VecDeque;
use vrdma_transport::{
    Access, AttrMask, Completion, CqId, Engine, Event, Instant, Limits, Outlet, OwnerId, PacketOutlet,
    Payload as Data, QpAttr, QpInit, QpState, QpType, Receives, Region, Remote, SendOp, SendRequest, Sge,
    StreamOutlet, WcStatus,
};
use vrdma_wire::num::{AethMsn, FlowLabel, Gid, Imm, Lkey, Psn, Qkey, Qpn, Rkey};
use vrdma_wire::roce::{
    Aeth, Body, Bth, Credits, Deth, Part, Path, Rc, ReadPart, Reth, SendTail, Syndrome, Uc, UcTail, WriteTail,
};

const OWNER: OwnerId = OwnerId(1);
const LEN: u64 = 0x40000;

/// Records how requests ended.
#[derive(Default)]
struct Ends(Vec<WcStatus>);

impl Sink for Ends {
    fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
        self.0.push(completion.status);
    }
    fn event(&mut self, _: DeviceId, _: Event) {}
}

struct Out<'a>(&'a mut PacketPort);

impl Outlet for Out<'_> {
    fn has_room(&mut self) -> bool {
        true
    }
}

impl PacketOutlet<MrMemory> for Out<'_> {
    fn way_to(&mut self, dst: Mac) -> Way {
        self.0.way_to(dst).expect("a guest of the other worker")
    }

    fn carries(&mut self, payload: &Pieces<'_, MrMemory>) -> bool {
        PacketPort::carries(payload)
    }

    fn send_inter_worker(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        self.0.send(device, packet, part, payload)
    }

    fn send(&mut self, _: &Packet, _: &Pieces<'_, MrMemory>) -> Result<(), Fault> {
        panic!("no frame")
    }
}

impl StreamOutlet<MrMemory> for Out<'_> {}

/// A worker with a guest.
struct Side {
    engine: Engine<MrMemory>,
    port: PacketPort,
    gate: Arc<PinGate>,
    device: DeviceId,
    qpn: Qpn,
    mac: Mac,
    gid: Gid,
    key: u32,
    ends: Ends,
    guest: Arc<GuestMemory>,
}

impl Side {
    fn turn(&mut self) -> bool {
        let Side { engine, port, ends, .. } = self;
        let came = port.receive(Instant(0), engine, ends);
        engine.transmit(Instant(0), 256, &mut Out(port), ends);
        port.publish();
        came
    }

    fn fill(&self, at: u64, bytes: &[u8]) {
        MrMemory::all(&self.guest).write(at, bytes).unwrap();
    }

    fn found(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        MrMemory::all(&self.guest).read(at, &mut bytes).unwrap();
        bytes
    }

    fn post(&mut self, op: SendOp, len: u32) {
        let sges = [Sge { addr: 0, length: len, lkey: Lkey(self.key) }];
        let payload = Data::Sges(&sges);
        let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op, payload };
        let Side { engine, device, qpn, ends, .. } = self;
        engine.post_send(Instant(0), *device, OWNER, *qpn, &request, ends).unwrap();
    }

    fn connect(&mut self, peer: (Qpn, Gid, Mac)) {
        let state = AttrMask::STATE;
        let init = state | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let rtr = state
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let rts = state
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::SQ_PSN
            | AttrMask::MAX_RD_ATOMIC;
        let attr = QpAttr {
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            port: 1,
            path_mtu: Mtu::M1024,
            dest_qpn: peer.0,
            dgid: peer.1,
            dmac: peer.2,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ..QpAttr::default()
        };
        for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            let Side { engine, device, qpn, ends, .. } = self;
            engine.modify_qp(Instant(0), *device, *qpn, mask, &QpAttr { state, ..attr }, ends).unwrap();
        }
    }
}

/// Creates two workers with a guest each. The guests' QPs are connected.
///
/// Each region consists of two adjacent extents.
fn sides() -> [Side; 2] {
    let macs = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
    let endpoints = [(); 2].map(|()| Arc::new(Endpoint::new().unwrap()));
    let ports = packet_ports(&endpoints, macs.into_iter().zip([0, 1]).collect());
    let mut sides: Vec<Side> = ports
        .into_iter()
        .zip(macs)
        .map(|(mut port, mac)| {
            let mut engine = Engine::new(1);
            engine.set_link(true);
            let device = engine.add_device(Limits::default());
            let gid = Gid::from_ipv4([10, 0, 0, mac.0[5]]);
            engine.set_gid(device, 0, Some(gid.into())).unwrap();
            engine.set_mac(device, mac).unwrap();
            let gate = Arc::<PinGate>::default();
            port.add(device, gate.clone());
            let pd = engine.alloc_pd(device, OWNER).unwrap();
            let guest = memory(&[(0, 2 * LEN)]);
            let runs = [Extent { gpa: 0, len: 0x1000 }, Extent { gpa: 0x1000, len: LEN - 0x1000 }];
            let region = MrMemory::new(&guest, &runs).unwrap();
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
            let key = engine.reg_mr(device, pd, access, 0, LEN, region).unwrap();
            let init = QpInit {
                owner: OWNER,
                pd: Some(pd),
                qp_type: QpType::Rc,
                send_cq: CqId(0),
                recv_cq: CqId(0),
                receives: Receives::Own,
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline: 0,
            };
            let qpn = engine.create_qp(device, init).unwrap();
            Side { engine, port, gate, device, qpn, mac, gid, key, ends: Ends::default(), guest }
        })
        .collect();
    let names = [0, 1].map(|at: usize| (sides[at].qpn, sides[at].gid, sides[at].mac));
    sides[0].connect(names[1]);
    sides[1].connect(names[0]);
    sides.try_into().ok().unwrap()
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn run(sides: &mut [Side; 2]) {
    while sides[0].turn() | sides[1].turn() {}
}

#[test]
fn short_payloads_are_copied_and_long_ones_lent() {
    for (len, pinned) in [(8, 0), (64, 0), (1000, 0), (1024, 1), (0x20000, 2)] {
        let mut sides = sides();
        sides[0].fill(0, &data(len));
        let remote = Remote { addr: 0, rkey: Rkey(sides[1].key) };
        sides[0].post(SendOp::Write { remote, imm: None }, len as u32);
        run(&mut sides);
        assert_eq!(sides[0].ends.0, [WcStatus::Success]);
        assert_eq!(sides[1].found(0, len), data(len));
        assert_eq!(sides[0].port.counters.pinned, pinned, "{len} bytes");
        sides[1].fill(0, &data(len));
        sides[0].fill(0, &vec![0; len]);
        sides[0].post(SendOp::Read { remote }, len as u32);
        run(&mut sides);
        assert_eq!((sides[0].ends.0.len(), sides[0].found(0, len)), (2, data(len)));
        assert_eq!(sides[1].port.counters.pinned, pinned, "{len} bytes");
    }
}

#[test]
fn what_is_taken_back_on_its_way_is_lent_again() {
    let mut sides = sides();
    let len = 0x20000;
    sides[0].fill(0, &data(len));
    let remote = Remote { addr: 0, rkey: Rkey(sides[1].key) };
    sides[0].post(SendOp::Write { remote, imm: None }, len as u32);
    for _ in 0..5 {
        sides[0].turn();
        assert!(sides[0].gate.revoke());
        sides[1].turn();
        assert_eq!((sides[0].ends.0.len(), sides[1].found(0, 8)), (0, vec![0; 8]));
    }
    run(&mut sides);
    assert_eq!((&sides[0].ends.0[..], sides[1].found(0, len)), (&[WcStatus::Success][..], data(len)));
}

#[test]
fn a_ring_that_is_full_holds_its_sender_back() {
    let mut sides = sides();
    let remote = Remote { addr: 0, rkey: Rkey(sides[1].key) };
    let dst = sides[1].mac;
    assert_eq!(sides[0].port.way_to(dst), Some(Way { has_room: true, stays_here: true, is_near: true }));
    let own = sides[0].mac;
    assert_eq!(sides[0].port.way_to(own), None);
    sides[0].post(SendOp::Write { remote, imm: None }, 8);
    let Side { engine, port, ends, .. } = &mut sides[0];
    engine.transmit(Instant(0), 256, &mut Out(port), ends);
    let path = Path {
        src_mac: own,
        dst_mac: dst,
        vlan: None,
        src: Gid::from_ipv4([10, 0, 0, 9]),
        dst: Gid::from_ipv4([10, 0, 0, 9]),
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc000,
    };
    // A packet for no QP.
    let packet = Packet { path, bth: Bth::default(), body: Body::Cnp };
    let channel = port.channel(dst).unwrap();
    while channel.has_room(TURN) {
        let part = InterWorkerPart { psns: 1, path_mtu: Mtu::M256, may_pin: false };
        assert!(channel.push(&packet, part, Short::default(), None));
    }
    assert!(!port.way_to(dst).unwrap().has_room);
    run(&mut sides);
    assert_eq!(sides[0].ends.0, [WcStatus::Success]);
    assert!(sides[0].port.way_to(dst).unwrap().has_room);
}

/// Returns a packet of this kind to one of four QPs, by one of three paths.
///
/// Two of the QPs share a slot among the remembered paths.
fn packet((kind, dest, way, number): (u8, usize, u8, u32)) -> Packet {
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, way]),
        dst_mac: Mac([2, 0, 0, 0, 0, 9]),
        vlan: None,
        src: Gid::from_ipv4([10, 0, 0, way]),
        dst: Gid::from_ipv4([10, 0, 0, 9]),
        traffic_class: way,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc000,
    };
    let reth = Reth { va: u64::from(number) << 32, rkey: Rkey(number), length: number };
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: AethMsn::truncate(number) };
    let body = match kind {
        0 => Body::Cnp,
        1 => Body::Rc(Rc::AtomicWrite(reth)),
        2 => Body::Rc(Rc::Send(Part::Only((), SendTail::Invalidate(Rkey(number))))),
        3 => Body::Rc(Rc::Write(Part::First(reth))),
        4 => Body::Rc(Rc::ReadRequest(reth)),
        5 => Body::Rc(Rc::ReadResponse(ReadPart::Only(aeth))),
        6 => Body::Uc(Uc::Send(Part::Last(UcTail::Imm(Imm::from_bytes(number.to_be_bytes()))))),
        7 => Body::Uc(Uc::Write(Part::Only(reth, WriteTail::Plain))),
        8 => Body::Ud { deth: Deth { qkey: Qkey(number), src: Qpn::truncate(number) }, imm: None },
        _ => Body::Rc(Rc::Ack(aeth)),
    };
    let dest = Qpn::new([5, 6, 5 + 256, 7][dest]).unwrap();
    Packet { path, bth: Bth { dest, psn: Psn::new(number).unwrap(), ..Bth::default() }, body }
}

proptest! {
    /// Packets arrive unchanged, whatever their first line leaves out, and whichever packets found
    /// no room.
    #[test]
    fn packets_come_as_they_were_sent(
        sent in prop::collection::vec(((0..11_u8, 0..4_usize, 0..3_u8, 0..1000_u32), 0..40_usize), 1..200),
        takes in 1..300_usize,
    ) {
        let endpoint = || Arc::new(Endpoint::new().unwrap());
        let (mut outward, mut inward) = channel(&endpoint(), &endpoint());
        let mut model = VecDeque::new();
        let take = |inward: &mut PacketReceiver, model: &mut VecDeque<(Packet, u32, Vec<u8>)>| {
            while let Some(message) = inward.pop() {
                let bytes = match &message.payload {
                    None => message.short.bytes().to_vec(),
                    Some(Payload::Buffer(bytes, len)) => bytes[..*len as usize].to_vec(),
                    Some(Payload::Pinned(_)) => unreachable!("nothing is pinned"),
                };
                assert_eq!(model.pop_front(), Some((*message.packet, message.part.psns, bytes)));
                let payload = message.payload;
                inward.give_back(payload);
            }
            inward.release();
        };
        // The ring laps at least six times, so that it is full at times.
        for (count, &(of, len)) in sent.iter().cycle().take(7000).enumerate() {
            let (packet, psns) = (packet(of), 1 + count as u32 % 256);
            let mut short = Short::default();
            let payload = if len <= SHORT {
                short.len = len as u8;
                short.bytes[..len].copy_from_slice(&data(len));
                None
            } else {
                Some(Payload::Buffer(data(len).into(), len as u32))
            };
            let part = InterWorkerPart { psns, path_mtu: Mtu::M1024, may_pin: false };
            let has_room = model.len() < channel::DEPTH;
            prop_assert_eq!(outward.push(&packet, part, short, payload), has_room);
            if has_room {
                model.push_back((packet, psns, data(len)));
            }
            if count % (10 * takes) == 0 {
                take(&mut inward, &mut model);
            }
        }
        take(&mut inward, &mut model);
        prop_assert!(model.is_empty());
    }
}
