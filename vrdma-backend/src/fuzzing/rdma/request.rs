//! Work requests that a process may write into its channel.

use crate::command::{
    AddGid, AllocContext, AllocPd, Command, CreateCq, CreateQp, ModifyQp, RegMr, SetAhTable,
};
use crate::device::ah::AhTable;
use crate::device::{NewMemory, NewRegion};
use crate::fuzzing::guest::{Image, Ram};
use crate::fuzzing::input::Input;
use crate::fuzzing::lab::{GIDS, Lab, MACS, MTU, with};
use crate::memory::{Extent, MrMemory};
use crate::port::{self, Burst, Port};
use crate::queue::channel::{NO_WORDS, RequestWords};
use crate::queue::cq::{CqRing, CqeKind};
use crate::worker::Worker;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use vrdma_abi::ah::AhEntry;
use vrdma_abi::cqe::{self, Cqe, WcStatus};
use vrdma_abi::wqe::{
    AtomicOperands, BindMwBody, BindMwRange, RdmaBody, RegMrBody, RegMrMemory, Sge, UdBody, WqeHeader,
    WrOpcode, flags,
};
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};
use vrdma_transport::{
    Access, AttrMask, CqId, DeviceId, GidEntry, OwnerId, PdId, QpAttr, QpInit, QpState, QpType, Receives,
};
use vrdma_wire::num::{Gid, Mac, Mtu, Psn, Qkey, Qpn, VlanId};
use vrdma_wire::roce::Packet;

/// Objects that exist, and that requests may name.
pub struct Objects<'a> {
    pub qpns: &'a [u32],
    pub srqns: &'a [u32],
    pub keys: &'a [u32],
    /// The IOVA of each region.
    pub iova: u64,
    pub length: u32,
    /// QPs and keys of the peer.
    pub peer: &'a [u32],
    pub peer_keys: &'a [u32],
}

/// Returns a request of up to `units` units, mostly a plausible one.
pub fn request(input: &mut Input<'_>, objects: &Objects<'_>, units: u8) -> RequestWords {
    let mut words = NO_WORDS;
    let bytes = words.as_mut_bytes();
    let one_of = |input: &mut Input<'_>, numbers: &[u32]| {
        let number = if numbers.is_empty() { 0 } else { numbers[input.below(numbers.len())] };
        input.near(number)
    };
    let shared = !objects.srqns.is_empty() && input.once_in(3);
    let opcode = WrOpcode(if shared {
        129
    } else {
        input.pick(&[128, 2, 3, 0, 1, 4, 5, 6, 77, 200, 15, 7, 8, 9, 14])
    });
    let opcode = if opcode == WrOpcode(77) && input.once_in(2) { WrOpcode::REG_MR } else { opcode };
    let atomic = opcode.is_atomic();
    let word = opcode == WrOpcode::ATOMIC_WRITE;
    let mut bits = u16::from(input.byte() & 7);
    let receive = matches!(opcode, WrOpcode::RECV | WrOpcode::SRQ_RECV);
    let inline = !atomic && !receive && opcode != WrOpcode::REG_MR && input.once_in(4);
    if receive {
        bits = 0;
    }
    if inline {
        bits |= flags::INLINE;
    }
    if input.once_in(64) {
        bits = input.word();
    }
    let count = if inline { 0 } else { input.pick(&[1, 2, 0, 6]) };
    let header = WqeHeader {
        opcode: opcode.0,
        units: if units == 1 { 1 } else { input.near(units.into()) as u8 },
        flags: bits.into(),
        object: one_of(input, if shared { objects.srqns } else { objects.qpns }).into(),
        wqe_id: input.long().into(),
        sge_count: match opcode {
            WrOpcode::REG_MR => 0,
            _ if atomic => input.near(1) as u8,
            _ => input.near(count) as u8,
        },
        reserved: 0,
        inline_len: if inline { input.near(if word { 8 } else { 16 }) as u16 } else { 0 }.into(),
    };
    bytes[..16].copy_from_slice(header.as_bytes());
    let datagram = input.once_in(3);
    if datagram {
        let (ah, qpn) = (input.near(0), one_of(input, objects.peer));
        let body = UdBody { ah: ah.into(), remote_qpn: qpn.into(), qkey: 0.into(), imm: 7.into() };
        bytes[16..32].copy_from_slice(body.as_bytes());
    } else {
        let addr = objects.iova + 8 * u64::from(input.byte());
        let rkey = one_of(input, objects.peer_keys);
        let body = RdmaBody { remote_addr: addr.into(), rkey: rkey.into(), imm: 7.into() };
        bytes[16..32].copy_from_slice(body.as_bytes());
    }
    let mut at = 32;
    if opcode == WrOpcode::BIND_MW {
        let (rkey, lkey) = (one_of(input, objects.keys), one_of(input, objects.keys));
        let (new_rkey, access) = ((rkey ^ u32::from(input.byte())).into(), input.near(6).into());
        let body = BindMwBody { rkey: rkey.into(), new_rkey, lkey: lkey.into(), access };
        let addr = objects.iova + u64::from(input.byte());
        let range = BindMwRange { addr: addr.into(), length: u64::from(input.byte()).into() };
        bytes[16..32].copy_from_slice(body.as_bytes());
        bytes[32..48].copy_from_slice(range.as_bytes());
        at = 48;
    }
    if opcode == WrOpcode::REG_MR {
        let key = one_of(input, objects.keys) ^ u32::from(input.byte() & 1);
        let (access, page_shift) = (input.near(7).into(), input.near(12) as u8);
        let body = RegMrBody { key: key.into(), access, page_shift, reserved: [0; 7] };
        let iova = objects.iova + u64::from(input.byte());
        let (length, page_list) = (64 * u64::from(input.byte()), u64::from(input.word()));
        let memory = RegMrMemory { iova: iova.into(), length: length.into(), page_list: page_list.into() };
        bytes[16..32].copy_from_slice(body.as_bytes());
        bytes[32..56].copy_from_slice(memory.as_bytes());
        return words;
    }
    if opcode == WrOpcode::FLUSH {
        // The placement type, whether the whole region is flushed, and the length.
        bytes[28..30].copy_from_slice(&[input.near(1) as u8, u8::from(input.once_in(4))]);
        bytes[32..36].copy_from_slice(&input.near(8).to_le_bytes());
        at = 48;
    }
    if atomic {
        let operands = AtomicOperands { compare_add: 0.into(), swap: u64::from(input.byte()).into() };
        bytes[32..48].copy_from_slice(operands.as_bytes());
        at = 48;
    }
    for _ in 0..count.min(2) {
        let length = match input.byte() % 8 {
            _ if atomic || word => input.near(8),
            0 => input.long(),
            1 => objects.length,
            n => 200 * u32::from(n),
        };
        let addr = objects.iova + 8 * u64::from(input.word() % 1024);
        let sge = Sge { addr: addr.into(), length: length.into(), lkey: one_of(input, objects.keys).into() };
        if at + Sge::SIZE <= 64 * usize::from(units) {
            bytes[at..at + Sge::SIZE].copy_from_slice(sge.as_bytes());
            at += Sge::SIZE;
        }
    }
    if input.once_in(16) {
        let (at, raw) = (input.below(64), input.bytes(32));
        let end = (at + raw.len()).min(512);
        bytes[at..end].copy_from_slice(&raw[..end - at]);
    }
    words
}

const IOVA: u64 = 0x10_0000;
const AHS: u64 = 0x100;
const CQ: u64 = 0x1000;
const CQ_ENTRIES: u32 = 128;
/// Registered memory begins and ends within other memory.
const DATA: u64 = 0x3800;
const LENGTH: u32 = 0x2000;
const OWNER: OwnerId = OwnerId(1);
/// A host beyond the uplink that never answers.
const FAR_GID: Gid = Gid::from_ipv4([10, 0, 0, 9]);
const FAR_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// Two processes in two guests post arbitrary requests to QPs of each type, to each other and to
/// another host.
///
/// Completions come once and in order. Only registered memory and CQs are written. Each sent packet
/// is one that the guest may send.
pub fn wqe(data: &[u8]) {
    let mut posters = Posters::new(Input::new(data));
    // More steps would only make an input slow.
    for _ in 0..300 {
        if posters.input.is_empty() {
            break;
        }
        posters.act();
    }
    posters.end();
}

struct Posters<'a> {
    input: Input<'a>,
    lab: Lab,
    sides: [Side; 2],
    far: Port,
    next_id: u32,
}

/// A process in a guest.
struct Side {
    ram: Ram,
    begun: Image,
    qps: Vec<(Qpn, QpType)>,
    qpns: Vec<u32>,
    key: u32,
    consumer: u32,
    /// Pending requests by QP and queue: their ids, and whether they are signaled.
    pending: HashMap<(u32, bool), VecDeque<(u32, bool)>>,
}

const TYPES: [QpType; 6] = [QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud, QpType::Rc];
/// The index of the QP whose peer is beyond the uplink.
const OUTSIDE: usize = 5;
/// The index of the QP that is connected to itself.
const LOOP: usize = 1;

impl<'a> Posters<'a> {
    fn new(input: Input<'a>) -> Posters<'a> {
        let lab = Lab::new();
        let (near, far, _) = port::pair(MTU).expect("descriptors are left");
        with(|worker| worker.set_uplink(Port::new(Box::new(near))));
        let sides = [0, 1].map(|n| Side::new(&lab, n));
        let mut posters = Posters { input, lab, sides, far: Port::new(Box::new(far)), next_id: 0 };
        for side in 0..2 {
            for qp in 0..TYPES.len() {
                posters.connect(side, qp);
            }
        }
        posters
    }

    fn act(&mut self) {
        let side = self.input.below(2);
        match self.input.byte() % 16 {
            0..=9 => self.post(side),
            10 | 11 => self.turn(),
            12 => {
                let time = Duration::from_nanos(1 << (self.input.byte() % 40));
                with(|worker| worker.pass(time));
                self.turn();
            }
            13 => {
                let at = AHS + 64 * self.input.below(4) as u64 + self.input.below(48) as u64;
                self.sides[side].ram.write(at, self.input.bytes(8));
            }
            14 => {
                let ram = &self.sides[side].ram;
                let less = self.input.byte() & 1 == 0;
                self.lab.remap(side, if less { &ram.less } else { &ram.memory });
            }
            _ => {
                let qp = self.input.below(TYPES.len());
                match self.input.byte() % 4 {
                    0 => self.modify(side, qp, QpState::Err),
                    1 => self.modify(side, qp, QpState::Sqd),
                    2 => self.modify(side, qp, QpState::Rts),
                    _ => self.connect(side, qp),
                }
            }
        }
        self.poll();
    }

    fn turn(&mut self) {
        with(Worker::take_turn);
        // Each sent packet names its guest as the source.
        let mut burst = Burst::default();
        while self.far.receive(&mut burst) != 0 {
            for frame in burst.frames() {
                let packet = Packet::parse(frame).expect("what is sent can be read");
                assert_eq!(packet.check_icrc(), Ok(()));
                let path = packet.packet.path;
                let from = GIDS.iter().position(|gid| *gid == path.src).expect("of a guest");
                assert_eq!(path.src_mac, MACS[from]);
            }
        }
    }

    fn post(&mut self, side: usize) {
        let peer = &self.sides[1 - side];
        let own = &self.sides[side];
        let objects = Objects {
            qpns: &own.qpns,
            srqns: &[],
            keys: &[own.key],
            iova: IOVA,
            length: LENGTH,
            peer: &peer.qpns,
            peer_keys: &[peer.key],
        };
        let units = 1 + self.input.below(8);
        let mut words = request(&mut self.input, &objects, units as u8);
        let id = self.next_id;
        self.next_id += 1;
        words.as_mut_bytes()[8..12].copy_from_slice(&id.to_le_bytes());
        let header = WqeHeader::read_from_prefix(words.as_bytes()).expect("a header").0;
        let receive = header.opcode >= WrOpcode::RECV.0;
        let signaled = receive || header.flags.get() & flags::SIGNALED != 0;
        let pending = self.sides[side].pending.entry((header.object.get(), receive)).or_default();
        pending.push_back((id, signaled));
        let device = self.lab.guests[side].id;
        let refused = with(|worker| {
            let refused = |worker: &mut Worker| {
                let counters = &worker.outputs.device(device).counters;
                counters.stray_requests + counters.untimely_requests + counters.overflows
            };
            let before = refused(worker);
            worker.post_words(device, OWNER, &words, units);
            refused(worker) != before
        });
        if refused {
            pending.retain(|&(pending, _)| pending != id);
        }
    }

    /// Takes completions. Each must be of the next request of its queue.
    fn poll(&mut self) {
        for side in &mut self.sides {
            loop {
                let slot = u64::from(side.consumer % CQ_ENTRIES);
                let bytes = side.ram.read::<{ Cqe::SIZE }>(CQ + slot * Cqe::SIZE as u64);
                let cqe = Cqe::read_from_bytes(&bytes).expect("its size");
                if (cqe.phase & 1 != 0) == (side.consumer & CQ_ENTRIES != 0) {
                    break;
                }
                side.consumer = side.consumer.wrapping_add(1);
                side.take(&cqe);
            }
            let record = CQ + CqRing::bytes(CqeKind::Plain, CQ_ENTRIES) - 64;
            side.ram.write(record, &side.consumer.to_le_bytes());
        }
    }

    fn modify(&mut self, side: usize, qp: usize, state: QpState) {
        let attr = QpAttr { state, ..QpAttr::default() };
        let (id, (qpn, _)) = (self.lab.guests[side].id, self.sides[side].qps[qp]);
        let command = ModifyQp { qpn, mask: AttrMask::STATE, attr };
        let _ = with(|worker| worker.execute(id, command.job()));
    }

    /// Takes a QP to RTS again.
    fn connect(&mut self, side: usize, qp: usize) {
        self.poll();
        let (qpn, qp_type) = self.sides[side].qps[qp];
        for receive in [false, true] {
            self.sides[side].pending.remove(&(qpn.number(), receive));
        }
        let (dest_qpn, dgid, dmac) = match qp {
            OUTSIDE => (Qpn::truncate(0x77), FAR_GID, FAR_MAC),
            LOOP => (qpn, GIDS[side], MACS[side]),
            _ => (self.sides[1 - side].qps[qp].0, GIDS[1 - side], MACS[1 - side]),
        };
        let attr = QpAttr {
            access: Access::QP,
            port: 1,
            path_mtu: Mtu::M1024,
            rq_psn: Psn::truncate(5),
            sq_psn: Psn::truncate(5),
            dest_qpn,
            max_rd_atomic: 2,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 1,
            timeout: 4,
            retry_cnt: 2,
            rnr_retry: 2,
            qkey: Qkey(0),
            dgid,
            dmac,
            hop_limit: 9,
            ..QpAttr::default()
        };
        use AttrMask as M;
        let (rc, ud) = (qp_type == QpType::Rc, qp_type == QpType::Ud);
        let init = M::STATE.with(M::PKEY_INDEX).with(M::PORT);
        let init = if ud { init.with(M::QKEY) } else { init.with(M::ACCESS_FLAGS) };
        let rtr = M::STATE.with(M::AV).with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
        let rtr = if rc { rtr.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER) } else { rtr };
        let rtr = if ud { M::STATE } else { rtr };
        let rts = M::STATE.with(M::SQ_PSN);
        let more = M::TIMEOUT.with(M::RETRY_CNT).with(M::RNR_RETRY).with(M::MAX_RD_ATOMIC);
        let rts = if rc { rts.with(more) } else { rts };
        let id = self.lab.guests[side].id;
        let steps =
            [(QpState::Reset, M::STATE), (QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)];
        for (state, mask) in steps {
            let attr = QpAttr { state, ..attr };
            let result = with(|worker| worker.execute(id, ModifyQp { qpn, mask, attr }.job()));
            result.expect("each step is allowed");
        }
    }

    fn end(mut self) {
        for side in 0..2 {
            let ram = self.sides[side].ram.clone();
            self.lab.remap(side, &ram.memory);
            for qp in 0..TYPES.len() {
                self.modify(side, qp, QpState::Err);
                self.poll();
            }
        }
        self.turn();
        self.poll();
        for side in &self.sides {
            for ((qpn, receive), pending) in &side.pending {
                let left = pending.iter().find(|(_, signaled)| *signaled);
                assert_eq!(left, None, "never ended: QP {qpn}, receive {receive}");
            }
            let allowed =
                [(DATA, LENGTH.into()), (CQ, CqRing::bytes(CqeKind::Plain, CQ_ENTRIES)), (AHS, 0x400)];
            side.ram.assert_same_but(&side.begun, &allowed, "requests");
        }
        self.lab.end();
    }
}

/// Lets the worker execute a valid command.
fn run<C: Command>(id: DeviceId, command: C) -> C::Reply {
    with(|worker| worker.execute(id, command.job())).expect("a command that is right")
}

impl Side {
    fn new(lab: &Lab, n: usize) -> Side {
        let (id, ram) = (lab.guests[n].id, lab.guests[n].ram.clone());
        run(id, AddGid { index: 0, entry: GidEntry { gid: GIDS[n], vlan: VlanId::UNTAGGED } });
        let context = OwnerId(run(id, AllocContext).object.get());
        assert_eq!(OWNER, context);
        let pd = PdId(run(id, AllocPd { context }).object.get());
        let extents = [Extent { gpa: CQ, len: CqRing::bytes(CqeKind::Plain, CQ_ENTRIES) }];
        let ring = CqRing::new(&ram.memory, &extents, CqeKind::Plain, CQ_ENTRIES).expect("memory for it");
        let cq = CqId(run(id, CreateCq { context, vector: 0, ring }).cqn.get());
        // The region crosses the boundary between two extents of guest memory.
        let run_of = Extent { gpa: DATA, len: LENGTH.into() };
        let memory = MrMemory::new(&ram.memory, &[run_of]).expect("memory for it");
        let (access, length) = (Access::ALL | Access::FLUSH_GLOBAL, LENGTH.into());
        let memory = NewMemory { iova: IOVA, length, memory, extents: 1 };
        let key = run(id, RegMr { region: NewRegion { pd, access, memory } }).lkey.get();
        let qps: Vec<(Qpn, QpType)> = TYPES
            .iter()
            .map(|&qp_type| {
                let init = QpInit {
                    owner: OWNER,
                    pd: Some(pd),
                    qp_type,
                    send_cq: cq,
                    recv_cq: cq,
                    receives: Receives::Own,
                    max_send_wr: 8,
                    max_recv_wr: 8,
                    max_send_sge: 2,
                    max_recv_sge: 2,
                    max_inline: 64,
                };
                (Qpn::truncate(run(id, CreateQp { init }).qpn.get()), qp_type)
            })
            .collect();
        for (index, (dgid, dmac)) in [(GIDS[1 - n], MACS[1 - n]), (FAR_GID, FAR_MAC)].into_iter().enumerate()
        {
            let entry = AhEntry {
                valid: 1.into(),
                pdn: pd.0.into(),
                dgid: dgid.0,
                dmac: dmac.0,
                vlan: 0xffff.into(),
                hop_limit: 1,
                ..AhEntry::default()
            };
            ram.write(AHS + 64 * index as u64, entry.as_bytes());
        }
        let table =
            AhTable::new(&ram.memory, Extent { gpa: AHS, len: AhTable::bytes(4) }, 4).expect("memory");
        run(id, SetAhTable { table });
        let qpns = qps.iter().map(|(qpn, _)| qpn.number()).collect();
        let begun = ram.image();
        Side { ram, begun, qps, qpns, key, consumer: 0, pending: HashMap::new() }
    }

    fn take(&mut self, cqe: &Cqe) {
        let receive = cqe.flags & cqe::flags::RECV != 0;
        let failed = WcStatus(cqe.status) != WcStatus::SUCCESS;
        let pending = self.pending.get_mut(&(cqe.qpn.get(), receive));
        let pending = pending.unwrap_or_else(|| panic!("of no request: {cqe:?}"));
        loop {
            let Some((id, signaled)) = pending.pop_front() else { panic!("never posted: {cqe:?}") };
            if id == cqe.wqe_id.get() {
                assert!(signaled || failed, "unsignaled: {cqe:?}");
                return;
            }
            assert!(!signaled, "{id} was overtaken by {cqe:?}");
        }
    }
}
