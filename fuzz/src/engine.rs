//! An engine whose peer says anything.
//!
//! The input is a list of steps: packets with fields and a valid ICRC, raw frames, time that passes, requests of the own programs, changes of
//! state. Numbers that matter (PSNs, QPNs, keys, addresses) come near those that are right, or nothing would ever be reached.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use vrdma_transport::*;
use vrdma_wire::num::*;
use vrdma_wire::roce::{self, *};

/// Feeds a responder: QPs that wait for requests.
pub fn responder(data: &[u8]) {
    run(data, false);
}

/// Feeds a requester: QPs whose programs have requests under way too.
pub fn requester(data: &[u8]) {
    run(data, true);
}

const OWNER: OwnerId = OwnerId(1);
const IOVA: u64 = 0x10_0000;
const LENGTH: usize = 8192;
/// On both sides of the memory that was registered.
const GUARD: usize = 64;
const PEER_QPN: u32 = 0x77;
const FIRST_PSN: u32 = 0xff_fff0;

/// The input, from front to back; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u32 {
        (u32::from(self.word()) << 16) | u32::from(self.word())
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// `right` most times, else near it.
    fn near(&mut self, right: u32) -> u32 {
        match self.byte() {
            0..=127 => right,
            b @ 128..=223 => right.wrapping_add(u32::from(b)).wrapping_sub(176),
            _ => self.long(),
        }
    }
}

/// Memory of which only the middle may be touched.
#[derive(Clone)]
struct Mem(Rc<RefCell<Vec<u8>>>);

impl Mem {
    fn new() -> Mem {
        Mem(Rc::new(RefCell::new(vec![0x33; LENGTH + 2 * GUARD])))
    }

    fn at(offset: u64, len: usize) -> std::ops::Range<usize> {
        let offset = usize::try_from(offset).expect("within the region");
        assert!(offset.checked_add(len).is_some_and(|end| end <= LENGTH), "{offset} + {len} is outside");
        offset + GUARD..offset + GUARD + len
    }

    fn update(&self, offset: u64, change: impl FnOnce(u64) -> u64) -> Result<u64, Fault> {
        let mut bytes = self.0.borrow_mut();
        let word: &mut [u8] = &mut bytes[Mem::at(offset, 8)];
        let before = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
        word.copy_from_slice(&change(before).to_ne_bytes());
        Ok(before)
    }
}

impl Region for Mem {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        let mut buf = vec![0; len as usize];
        self.read(offset, &mut buf)?;
        dst.write(dst_offset, &buf)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0.borrow()[Mem::at(offset, buf.len())]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.0.borrow_mut()[Mem::at(offset, data.len())].copy_from_slice(data);
        Ok(())
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        self.update(offset, |before| before.wrapping_add(add))
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.update(offset, |before| if before == compare { swap } else { before })
    }
}

/// Requests that have not ended, per QP and queue: their numbers, and whether they are signaled.
#[derive(Default)]
struct Pending {
    sends: VecDeque<(u32, bool)>,
    receives: VecDeque<(u32, bool)>,
}

#[derive(Default)]
struct Log(Vec<Completion>);

impl Sink for Log {
    fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
        self.0.push(*completion);
    }

    fn event(&mut self, _: DeviceId, _: Event) {}
}

/// Keeps the last packets, so that answers can be made up.
#[derive(Default)]
struct Wire {
    room: usize,
    sent: VecDeque<Packet>,
}

impl Outlet<Mem> for Wire {
    fn has_room(&mut self) -> bool {
        self.room > 0
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        assert!(self.room > 0, "nobody sends without room");
        self.room -= 1;
        let mut frame = vec![0; packet.frame_len(payload.len())];
        let length = write_frame(packet, payload, &mut frame)?;
        let parsed = Packet::parse(&frame[..length]).expect("what is sent can be read");
        assert_eq!(parsed.packet, *packet);
        assert_eq!(parsed.check_icrc(), Ok(()));
        // Datagrams have the port's MTU, not a path's.
        let most = if matches!(packet.body, Body::Ud { .. }) { MAX_PAYLOAD } else { 1024 };
        assert!(payload.len() <= most, "more than the path MTU");
        self.sent.push_back(*packet);
        if self.sent.len() > 16 {
            self.sent.pop_front();
        }
        Ok(())
    }
}

struct Lab<'a> {
    input: Input<'a>,
    engine: Engine<Mem>,
    device: DeviceId,
    pd: PdId,
    now: Instant,
    qps: Vec<(Qpn, QpType, Pending)>,
    memory: Mem,
    key: u32,
    log: Log,
    wire: Wire,
    next_id: u32,
    requests: bool,
}

const OWN_GID: Gid = Gid::from_ipv4([10, 0, 0, 1]);
const PEER_GID: Gid = Gid::from_ipv4([10, 0, 0, 2]);
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
        let memory = Mem::new();
        let key =
            engine.reg_mr(device, pd, Access::ALL, IOVA, LENGTH as u64, memory.clone()).expect("a region");
        let mut qps = Vec::new();
        for qp_type in [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud] {
            let init = QpInit {
                owner: OWNER,
                pd,
                qp_type,
                send_cq: CqId(1),
                recv_cq: CqId(2),
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
        Lab { input: Input(data), engine, device, pd, now, qps, memory, key, log, wire, next_id: 0, requests }
    }

    /// Takes a QP to RTS anew.
    fn connect(&mut self, index: usize) {
        let (qpn, qp_type, ref mut pending) = self.qps[index];
        *pending = Pending::default();
        let attr = QpAttr {
            access: Access::ALL,
            port: 1,
            path_mtu: Mtu::M1024,
            rq_psn: Psn::truncate(FIRST_PSN),
            sq_psn: Psn::truncate(FIRST_PSN),
            dest_qpn: Qpn::truncate(PEER_QPN),
            max_rd_atomic: 2,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 3,
            timeout: 6,
            retry_cnt: 2,
            rnr_retry: 2,
            dgid: PEER_GID,
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
            self.log.0.clear();
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

    /// Time passes, up to the next deadline or so.
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

    /// Answers all questions: what the engine has not been told was not posted.
    fn look(&mut self) {
        while let Some(question) = self.engine.poll_question() {
            self.engine.answer(self.now, question, &mut self.log);
        }
    }

    fn path(&mut self) -> Path {
        let odd = self.input.byte();
        Path {
            src_mac: PEER_MAC,
            dst_mac: if odd == 1 { PEER_MAC } else { OWN_MAC },
            vlan: (odd == 2).then_some(VlanTag(5)),
            src: match odd {
                3 => OWN_GID,
                4 => Gid::from_ipv4([10, 0, 0, 3]),
                _ => PEER_GID,
            },
            dst: match odd {
                5 => Gid::from_ipv4([10, 0, 0, 9]),
                6 => Gid::from_ipv4([224, 0, 0, 9]),
                _ => OWN_GID,
            },
            traffic_class: odd,
            flow_label: FlowLabel::default(),
            hop_limit: 3,
            src_port: 0xc123,
        }
    }

    /// A packet of any kind.
    fn packet(&mut self) {
        let index = self.qp();
        let (qpn, ..) = self.qps[index];
        let known = self.engine.query_qp(self.device, qpn).unwrap_or_default();
        let path = self.path();
        let body = self.body(index);
        // Responses go by the requester's numbers, requests by the responder's.
        let response =
            matches!(body, Body::Rc(roce::Rc::Ack(_) | roce::Rc::AtomicAck(..) | roce::Rc::ReadResponse(_)));
        let expected = if response { known.sq_psn.number().wrapping_sub(1) } else { known.rq_psn.number() };
        let flags = self.input.byte();
        let bth = Bth {
            solicited: flags & 1 != 0,
            mig: flags & 2 != 0,
            pkey: if flags & 0xf0 == 0x30 { Pkey(0x7fff) } else { Pkey::DEFAULT },
            fecn: flags & 4 != 0,
            becn: false,
            dest: if flags & 0xf0 == 0x50 { Qpn::truncate(self.input.long()) } else { qpn },
            ack_req: flags & 8 != 0,
            psn: Psn::truncate(self.input.near(expected)),
        };
        let length = match self.input.byte() {
            0..=63 => 1024,
            b @ 64..=127 => usize::from(b - 64),
            b @ 128..=191 => usize::from(b) * 8,
            b => 1024 - usize::from(b - 192),
        };
        let carries = match body {
            Body::Rc(roce::Rc::Send(_) | roce::Rc::Write(_) | roce::Rc::ReadResponse(_)) => length,
            Body::Uc(_) | Body::Ud { .. } => length,
            Body::Rc(roce::Rc::AtomicWrite(_)) => 8,
            _ => 0,
        };
        self.deliver(&Packet { path, bth, body }, carries);
    }

    fn deliver(&mut self, packet: &Packet, length: usize) {
        let payload = vec![0xab; length];
        let mut frame = vec![0; packet.frame_len(length)];
        write_frame::<Mem>(packet, &Pieces::bytes(&payload), &mut frame).expect("bytes are there");
        self.engine.handle_frame(self.now, &frame, &mut self.log);
    }

    fn body(&mut self, index: usize) -> Body {
        let kind = self.input.byte();
        let part = self.input.byte() % 4;
        let imm = Imm::from_bytes([1, 2, 3, 4]);
        let write_tail = if kind & 0x40 != 0 { WriteTail::Imm(imm) } else { WriteTail::Plain };
        match (self.qps[index].1, kind % 16) {
            (QpType::Rc, 0..=3) => {
                let tail = match kind >> 6 {
                    0 | 1 => SendTail::Plain,
                    2 => SendTail::Imm(imm),
                    _ => SendTail::Invalidate(Rkey(self.key)),
                };
                Body::Rc(roce::Rc::Send(parts(part, (), tail)))
            }
            (QpType::Rc, 4..=6) => Body::Rc(roce::Rc::Write(parts(part, self.reth(), write_tail))),
            (QpType::Rc, 7 | 8) => Body::Rc(roce::Rc::ReadRequest(self.reth())),
            (QpType::Rc, 9) => {
                let aeth = self.aeth();
                Body::Rc(roce::Rc::ReadResponse(match part {
                    0 => ReadPart::First(aeth),
                    1 => ReadPart::Middle,
                    2 => ReadPart::Last(aeth),
                    _ => ReadPart::Only(aeth),
                }))
            }
            (QpType::Rc, 10) => Body::Rc(roce::Rc::Ack(self.aeth())),
            (QpType::Rc, 11) => Body::Rc(roce::Rc::AtomicAck(self.aeth(), 77)),
            (QpType::Rc, 12 | 13) => {
                let Reth { va, rkey, .. } = self.reth();
                let atomic = AtomicEth { va, rkey, swap_or_add: 3, compare: 0x3333_3333_3333_3333 };
                Body::Rc(if part & 1 == 0 {
                    roce::Rc::CompareSwap(atomic)
                } else {
                    roce::Rc::FetchAdd(atomic)
                })
            }
            (QpType::Rc, 14) => Body::Rc(roce::Rc::AtomicWrite(self.reth())),
            (QpType::Rc, _) => Body::Rc(roce::Rc::Flush(Feth::from_bits(kind), self.reth())),
            (QpType::Uc, 0..=6) => Body::Uc(Uc::Send(parts(part, (), write_tail))),
            (QpType::Uc, 7..=12) => Body::Uc(Uc::Write(parts(part, self.reth(), write_tail))),
            (_, 13) => Body::Cnp,
            _ => Body::Ud {
                deth: Deth { qkey: Qkey(u32::from(part & 1)), src: Qpn::truncate(9) },
                imm: (kind & 0x40 != 0).then_some(imm),
            },
        }
    }

    fn reth(&mut self) -> Reth {
        let va = IOVA + u64::from(self.input.near(0)) * if self.input.byte() & 1 == 0 { 8 } else { 1 };
        let rkey = Rkey(self.input.near(self.key));
        let length = match self.input.byte() {
            0..=63 => 1024,
            b @ 64..=127 => u32::from(b - 64),
            b @ 128..=191 => u32::from(b) * 32,
            _ => self.input.long(),
        };
        Reth { va, rkey, length }
    }

    fn aeth(&mut self) -> Aeth {
        let kind = self.input.byte();
        let syndrome = match kind {
            0..=127 => Syndrome::Ack(Credits::new(kind & 31).expect("5 bits")),
            128..=159 => Syndrome::Rnr(RnrTimer::new(kind & 31).expect("5 bits")),
            160..=199 => Syndrome::Nak(NakCode::PsnSequenceError),
            200..=214 => Syndrome::Nak(NakCode::InvalidRequest),
            215..=229 => Syndrome::Nak(NakCode::RemoteAccessError),
            230..=244 => Syndrome::Nak(NakCode::RemoteOperationalError),
            _ => Syndrome::Nak(NakCode::InvalidRdRequest),
        };
        Aeth { syndrome, msn: Msn::truncate(u32::from(kind)) }
    }

    /// An answer to one of the last packets, right or nearly so.
    fn answer(&mut self) {
        let at = usize::from(self.input.byte()) % self.wire.sent.len().max(1);
        let Some(&request) = self.wire.sent.get(at) else { return };
        let aeth = self.aeth();
        let length = usize::from(self.input.byte()) * 5 % 1025;
        let (body, length) = match request.body {
            Body::Rc(roce::Rc::ReadRequest(reth)) => {
                let whole = (reth.length as usize).min(1024);
                let part = match self.input.byte() % 8 {
                    0 => ReadPart::First(aeth),
                    1 => ReadPart::Middle,
                    2 => ReadPart::Last(aeth),
                    _ => ReadPart::Only(aeth),
                };
                let right = self.input.byte() < 200;
                (roce::Rc::ReadResponse(part), if right { whole } else { length })
            }
            Body::Rc(roce::Rc::CompareSwap(_) | roce::Rc::FetchAdd(_)) => (roce::Rc::AtomicAck(aeth, 5), 0),
            Body::Rc(roce::Rc::Send(_) | roce::Rc::Write(_)) => (roce::Rc::Ack(aeth), 0),
            _ => return,
        };
        let index = self.qp();
        let path = self.path();
        let bth = Bth {
            dest: self.qps[index].0,
            psn: Psn::truncate(self.input.near(request.bth.psn.number())),
            ..Bth::default()
        };
        self.deliver(&Packet { path, bth, body: Body::Rc(body) }, length);
    }

    fn sge(&mut self) -> Sge {
        let length = u32::from(self.input.word()) % 5000;
        let room = LENGTH as u32 - length;
        let addr = IOVA + u64::from((u32::from(self.input.word()) % (room + 1)) & !7);
        Sge { addr, length, lkey: Lkey(self.input.near(self.key)) }
    }

    fn post_send(&mut self) {
        let index = self.qp();
        let mut sge = self.sge();
        let remote = Remote { addr: 0x5000, rkey: Rkey(0x99) };
        let imm = Some(Imm::from_bytes([9; 4]));
        let op = match self.input.byte() % 8 {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Send { imm },
            2 => SendOp::Write { remote, imm: None },
            3 => SendOp::Write { remote, imm },
            4 | 5 => SendOp::Read { remote },
            6 => SendOp::CompareSwap { remote, compare: 1, swap: 2 },
            _ => SendOp::FetchAdd { remote, add: 3 },
        };
        if matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }) {
            sge.length = 8;
        }
        let flags = self.input.byte();
        let id = self.next_id;
        self.next_id += 1;
        let (signaled, solicited, fence) = (flags & 1 == 0, flags & 2 != 0, flags & 4 != 0);
        let sges = [sge, sge];
        let payload = Payload::Sges(&sges[..1 + usize::from(flags & 8 != 0)]);
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
            _ => {
                self.check();
                self.connect(index);
            }
        }
    }

    /// What completed was pending, and the first of its queue.
    fn check(&mut self) {
        for completion in self.log.0.drain(..) {
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
        let bytes = self.memory.0.borrow();
        let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + LENGTH..]);
        assert!(guards.copied().all(|b| b == 0x33), "bytes beside the region changed");
    }
}

/// Which packet of a message.
fn parts<F, L>(part: u8, head: F, tail: L) -> Part<F, L> {
    match part {
        0 => Part::First(head),
        1 => Part::Middle,
        2 => Part::Last(tail),
        _ => Part::Only(head, tail),
    }
}
