//! Fuzzes an engine by packets of a hostile peer.
//!
//! The input is a list of steps: packets with fields and a valid ICRC, raw frames, passing time,
//! requests of own programs, changes of state. Important numbers (PSNs, QPNs, keys, addresses) are
//! close to right ones. Otherwise nothing would ever be reached.

#[path = "engine/edits.rs"]
mod edits;
#[path = "engine/packets.rs"]
mod packets;
#[path = "engine/peer.rs"]
mod peer;
#[path = "engine/reorder.rs"]
mod reorder;
#[path = "engine/restore.rs"]
mod restore;
#[path = "engine/stream.rs"]
mod stream;
#[path = "engine/world.rs"]
mod world;

pub use reorder::reorder;
pub use restore::restore;
pub use stream::stream;

use std::time::Duration;
use vrdma_transport::*;
use vrdma_wire::num::*;
use vrdma_wire::roce::{self, *};
use world::{Input, Log, Mem, Pending, Wire};

/// Fuzzes a responder: QPs that wait for requests.
pub fn responder(data: &[u8]) {
    run(data, false);
}

/// Fuzzes a requester: QPs whose programs have requests in progress too.
pub fn requester(data: &[u8]) {
    run(data, true);
}

const OWNER: OwnerId = OwnerId(1);
const IOVA: u64 = 0x10_0000;
const LENGTH: usize = 8192;
const PEER_QPN: u32 = 0x77;
const FIRST_PSN: u32 = 0xff_fff0;

struct Lab<'a> {
    input: Input<'a>,
    engine: Engine<Mem>,
    device: DeviceId,
    pd: PdId,
    now: Instant,
    qps: Vec<(Qpn, QpType, Pending)>,
    memory: Mem,
    key: u32,
    /// The key of a memory window, assuming that its binds succeeded.
    window: u32,
    log: Log,
    wire: Wire,
    next_id: u32,
    requests: bool,
}

const OWN_GID: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const PEER_GID: Gid = Gid::from_ipv4([10, 0, 0, 2]);
/// An address that is assigned to a device only at times.
const OTHER_GID: Gid = Gid::from_ipv4([10, 0, 0, 3]);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn run(data: &[u8], requests: bool) {
    let mut lab = Lab::new(data, requests);
    for index in 0..lab.qps.len() {
        lab.connect(index);
    }
    // More steps would only make an input slow.
    for _ in 0..400 {
        if lab.input.0.is_empty() {
            break;
        }
        lab.step();
        lab.check();
    }
    lab.end();
}

impl<'a> Lab<'a> {
    fn new(data: &'a [u8], requests: bool) -> Lab<'a> {
        let mut engine = Engine::new(7);
        let device = engine.add_device(Limits { max_qp: 64, max_mr: 16, max_pd: 4, ..Limits::default() });
        engine.set_link(true);
        engine.set_mac(device, OWN_MAC).expect("the device is there");
        engine.set_gid(device, 0, Some(OWN_GID.into())).expect("a GID for it");
        let pd = engine.alloc_pd(device, OWNER).expect("a PD");
        let memory = Mem::filled(LENGTH);
        let key =
            engine.reg_mr(device, pd, Access::REGION, IOVA, LENGTH as u64, memory.clone()).expect("a region");
        let window = engine.alloc_mw(device, pd, MwType::Type2B).expect("a window").0;
        let mut qps = Vec::new();
        for qp_type in [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud] {
            let init = QpInit {
                owner: OWNER,
                pd: Some(pd),
                qp_type,
                send_cq: CqId(1),
                recv_cq: CqId(2),
                receives: Receives::Own,
                max_send_wr: 8,
                max_recv_wr: 8,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline: 32,
            };
            if let Ok(qpn) = engine.create_qp(device, init) {
                qps.push((qpn, qp_type, Pending::default()));
            }
        }
        let (log, wire) = (Log::default(), Wire::default());
        let now = Instant(1 << 40);
        let (input, next_id) = (Input(data), 0);
        Lab { input, engine, device, pd, now, qps, memory, key, window, log, wire, next_id, requests }
    }

    /// Takes a QP to RTS again, with a peer on the wire.
    fn connect(&mut self, index: usize) {
        self.connect_to(index, Qpn::truncate(PEER_QPN), PEER_GID);
    }

    fn connect_to(&mut self, index: usize, dest_qpn: Qpn, dgid: Gid) {
        let (qpn, qp_type, ref mut pending) = self.qps[index];
        *pending = Pending::default();
        let attr = QpAttr {
            access: Access::QP,
            port: 1,
            path_mtu: Mtu::M1024,
            rq_psn: Psn::truncate(FIRST_PSN),
            sq_psn: Psn::truncate(FIRST_PSN),
            dest_qpn,
            max_rd_atomic: 2,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 3,
            timeout: 6,
            retry_cnt: 2,
            rnr_retry: 2,
            dgid,
            dmac: PEER_MAC,
            hop_limit: 9,
            ..QpAttr::default()
        };
        use AttrMask as M;
        let connected = matches!(qp_type, QpType::Rc | QpType::Uc);
        let rc = qp_type == QpType::Rc;
        let with =
            |mask: AttrMask, condition: bool, more: AttrMask| if condition { mask.with(more) } else { mask };
        let to_init = M::STATE.with(M::PKEY_INDEX).with(M::PORT);
        let to_init = with(with(to_init, connected, M::ACCESS_FLAGS), !connected, M::QKEY);
        let av = M::AV.with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
        let to_rtr = with(M::STATE, connected, av);
        let to_rtr = with(to_rtr, rc, M::MAX_DEST_RD_ATOMIC.with(M::MIN_RNR_TIMER));
        let to_rts = with(
            M::STATE.with(M::SQ_PSN),
            rc,
            M::TIMEOUT.with(M::RETRY_CNT).with(M::RNR_RETRY).with(M::MAX_RD_ATOMIC),
        );
        let steps = [
            (QpState::Reset, M::STATE),
            (QpState::Init, to_init),
            (QpState::Rtr, to_rtr),
            (QpState::Rts, to_rts),
        ];
        for (state, mask) in steps {
            let attr = QpAttr { state, ..attr };
            self.engine
                .modify_qp(self.now, self.device, qpn, mask, &attr, &mut self.log)
                .expect("each step is allowed");
            self.log = Log::default();
        }
    }

    fn step(&mut self) {
        match self.input.byte() % 16 {
            0..=5 => self.packet(),
            6 => self.answer(),
            7 => {
                let frame = self.input.bytes(128);
                self.engine.handle_frame(self.now, frame, &mut self.log);
            }
            8 | 9 => {
                self.wire.room = usize::from(self.input.byte() % 8);
                let budget = self.wire.room.max(1);
                self.engine.transmit(self.now, budget, &mut self.wire, &mut self.log);
                self.look();
            }
            10 => self.sleep(),
            11 | 12 if self.requests => self.post_send(),
            11..=13 => self.post_recv(),
            14 => self.change(),
            _ => {
                let up = !self.input.byte().is_multiple_of(4);
                self.engine.set_link(up);
            }
        }
    }

    fn qp(&mut self) -> usize {
        usize::from(self.input.byte() % 8) % self.qps.len().max(1)
    }

    /// Lets time pass, up to about the next deadline.
    fn sleep(&mut self) {
        let deadline = self.engine.poll_timeout().unwrap_or(self.now);
        let pause = match self.input.byte() {
            0..=127 => deadline.0.saturating_sub(self.now.0),
            b => u64::from(b) << (b % 32),
        };
        self.now = self.now + Duration::from_nanos(pause.min(1 << 50));
        for _ in 0..64 {
            if !self.engine.poll(self.now, 1 << 20, &mut self.log) {
                break;
            }
        }
        self.look();
    }

    /// Answers all questions of the engine: no further request was posted.
    fn look(&mut self) {
        while let Some(question) = self.engine.poll_question() {
            self.engine.answer(self.now, question, &mut self.log);
        }
    }

    fn sge(&mut self) -> Sge {
        let length = u32::from(self.input.word()) % 5000;
        let room = LENGTH as u32 - length;
        let addr = IOVA + u64::from((u32::from(self.input.word()) % (room + 1)) & !7);
        Sge { addr, length, lkey: Lkey(self.input.near(self.key)) }
    }

    /// Returns a bind of the window, mostly a plausible one.
    fn bind(&mut self) -> SendOp {
        let rkey = Rkey(self.input.near(self.window));
        let new_rkey = Rkey(rkey.0 ^ u32::from(self.input.byte()));
        self.window = new_rkey.0;
        SendOp::BindMw(Bind {
            rkey,
            new_rkey,
            lkey: Lkey(self.input.near(self.key)),
            access: Access(self.input.near(6)),
            addr: IOVA + 8 * u64::from(self.input.byte()),
            length: u64::from(self.input.word()),
        })
    }

    fn post_send(&mut self) {
        let index = self.qp();
        let mut sge = self.sge();
        let remote = Remote { addr: 0x5000, rkey: Rkey(0x99) };
        let imm = Some(Imm::from_bytes([9; 4]));
        let scope = FlushScope { placement: Placement::Global, whole: false, length: 8 };
        let op = match self.input.byte() % 12 {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Send { imm },
            2 => SendOp::Write { remote, imm: None },
            3 => SendOp::Write { remote, imm },
            4 => SendOp::Read { remote },
            5 => SendOp::AtomicWrite { remote },
            6 => SendOp::atomic(remote, Atomic::CompareSwap { compare: 1, swap: 2 }),
            7 => SendOp::atomic(remote, Atomic::FetchAdd { add: 3 }),
            8 => SendOp::SendInvalidate { key: remote.rkey },
            9 => SendOp::LocalInvalidate { key: Rkey(self.input.near(self.window)) },
            10 => SendOp::Flush { remote, scope },
            _ => self.bind(),
        };
        if matches!(op, SendOp::Atomic { .. } | SendOp::AtomicWrite { .. }) {
            sge.length = 8;
        }
        let flags = self.input.byte();
        let id = self.next_id;
        self.next_id += 1;
        let (signaled, solicited, fence) = (flags & 1 == 0, flags & 2 != 0, flags & 4 != 0);
        let sges = [sge, sge];
        let count = if matches!(op, SendOp::Flush { .. }) { 0 } else { 1 + usize::from(flags & 8 != 0) };
        let payload = Payload::Sges(&sges[..count]);
        let request = SendRequest { id, signaled, solicited, fence, op, payload };
        let (qpn, qp_type, ref mut pending) = self.qps[index];
        pending.sends.push_back((id, signaled));
        let (now, device, log) = (self.now, self.device, &mut self.log);
        let result = match qp_type {
            QpType::Ud => {
                let to = Destination {
                    pd: self.pd,
                    qpn: Qpn::truncate(PEER_QPN),
                    qkey: Qkey(u32::from(flags & 16) << 27),
                    dgid: if flags & 32 == 0 { PEER_GID } else { OWN_GID },
                    dmac: PEER_MAC,
                    sgid_index: flags >> 6,
                    sl: 0,
                    hop_limit: 1,
                    traffic_class: 0,
                    flow_label: 0,
                    udp_sport: 0,
                    vlan: None,
                };
                self.engine.post_datagram(now, device, OWNER, qpn, &request, &to, log)
            }
            _ => self.engine.post_send(now, device, OWNER, qpn, &request, log),
        };
        if result.is_err() {
            pending.sends.pop_back();
        }
    }

    fn post_recv(&mut self) {
        let index = self.qp();
        let sges = [self.sge(), self.sge()];
        let count = usize::from(self.input.byte() % 3);
        let id = self.next_id;
        self.next_id += 1;
        let request = RecvRequest { id, sges: &sges[..count] };
        let (qpn, _, pending) = &mut self.qps[index];
        pending.receives.push_back((id, true));
        let result = self.engine.post_recv(self.now, self.device, OWNER, *qpn, request, &mut self.log);
        if result.is_err() {
            pending.receives.pop_back();
        }
    }

    fn change(&mut self) {
        let index = self.qp();
        match self.input.byte() % 8 {
            0 => {
                let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
                let qpn = self.qps[index].0;
                let _ =
                    self.engine.modify_qp(self.now, self.device, qpn, AttrMask::STATE, &attr, &mut self.log);
            }
            1 => {
                let attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
                let qpn = self.qps[index].0;
                let _ =
                    self.engine.modify_qp(self.now, self.device, qpn, AttrMask::STATE, &attr, &mut self.log);
            }
            2 => {
                let suspended = self.input.byte() & 1 == 0;
                self.engine.set_suspended(self.device, suspended);
            }
            3 => {
                let mut state = self.engine.query_qp(self.device, self.qps[index].0).unwrap_or_default();
                state.state = QpState::Rts;
                let qpn = self.qps[index].0;
                let _ =
                    self.engine.modify_qp(self.now, self.device, qpn, AttrMask::STATE, &state, &mut self.log);
            }
            4 => {
                // The address vector changes, if the state of the QP permits it.
                let dgid = self.gid();
                let qpn = self.qps[index].0;
                let attr =
                    QpAttr { dgid, sgid_index: self.input.byte() & 1, dmac: PEER_MAC, ..QpAttr::default() };
                let _ = self.engine.modify_qp(self.now, self.device, qpn, AttrMask::AV, &attr, &mut self.log);
            }
            5 => {
                let entry = (self.input.byte() & 1 == 0).then_some(OTHER_GID.into());
                let _ = self.engine.set_gid(self.device, 1, entry);
            }
            6 => {
                // The peer is a QP of the same guest, or the QP itself.
                let (peer, dgid) = (self.qp(), self.gid());
                self.check();
                self.connect_to(index, self.qps[peer].0, dgid);
            }
            _ => {
                self.check();
                self.connect(index);
            }
        }
    }

    /// Returns an own address, one that may be assigned, or that of the peer on the wire.
    fn gid(&mut self) -> Gid {
        [OWN_GID, OTHER_GID, PEER_GID][usize::from(self.input.byte() % 3)]
    }

    /// Checks that each completion is of the first pending request of its queue.
    fn check(&mut self) {
        self.log.events.clear();
        for (_, _, completion) in self.log.completions.drain(..) {
            let Some((_, _, pending)) = self.qps.iter_mut().find(|(qpn, ..)| *qpn == completion.qpn) else {
                panic!("of no QP: {completion:?}");
            };
            let receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
            let queue = if receive { &mut pending.receives } else { &mut pending.sends };
            loop {
                let Some((id, signaled)) = queue.pop_front() else { panic!("never posted: {completion:?}") };
                if id == completion.id {
                    assert!(signaled || completion.status != WcStatus::Success, "unsignaled: {completion:?}");
                    break;
                }
                assert!(!signaled, "{id} was overtaken by {completion:?}");
            }
        }
    }

    fn end(mut self) {
        self.engine.reset_device(self.device);
        let counts = self.engine.counts(self.device);
        assert_eq!((counts.qps, counts.mrs, counts.pending_sends, counts.pending_receives), (0, 0, 0, 0));
        self.wire.room = 100;
        self.engine.set_link(true);
        self.engine.transmit(self.now, 100, &mut self.wire, &mut self.log);
        while self.engine.poll(self.now, 1 << 20, &mut self.log) {}
        assert_eq!(self.engine.poll_timeout(), None, "a timer of nothing");
        self.memory.check();
    }
}
