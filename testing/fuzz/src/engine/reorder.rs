//! Fuzzes the responder by a sequence of messages whose packets come in any order.
//!
//! Packets come late, twice or again, receives are posted late, and the engine is replaced by its
//! copy. In the end, everything has been executed once and in order.

use super::world::{Input, Log, Mem, Wire};
use super::{IOVA, OWN_GID, OWN_MAC, OWNER, PEER_GID, PEER_MAC, PEER_QPN};
use std::time::Duration;
use vrdma_transport::*;
use vrdma_wire::num::*;
use vrdma_wire::roce::*;

const LENGTH: usize = 1 << 15;
const MTU: usize = 256;
/// Messages of the sequence, and bytes of memory for each.
const MESSAGES: usize = 32;
const SLOT: usize = 1000;
/// Address of the word that atomics change.
const WORD: u64 = IOVA + 32_500 / 8 * 8;
const FIRST_PSN: u32 = 0xff_fff0;

struct Lab<'a> {
    input: Input<'a>,
    engine: Engine<Mem>,
    device: DeviceId,
    qpn: Qpn,
    now: Instant,
    memory: Mem,
    log: Log,
    wire: Wire,
    /// All packets of the sequence, in order.
    frames: Vec<Vec<u8>>,
    /// The first frame that has not been delivered.
    next: usize,
    /// Receives that were posted, and receives that ended.
    posted: u32,
    ended: u32,
}

/// Fuzzes the responder by packets in any order.
pub fn reorder(data: &[u8]) {
    let mut lab = Lab::new(data);
    for _ in 0..600 {
        if lab.input.0.is_empty() {
            break;
        }
        lab.step();
        lab.look();
    }
    lab.end();
}

/// Returns the bytes of a message.
fn content(message: usize) -> Vec<u8> {
    (0..message * 97 % 900).map(|at| (at + message) as u8).collect()
}

/// What a message is, in turns.
enum Kind {
    Write,
    Send,
    Add,
    WriteImm,
}

fn kind(message: usize) -> Kind {
    match message % 4 {
        0 => Kind::Write,
        1 => Kind::Send,
        2 => Kind::Add,
        _ => Kind::WriteImm,
    }
}

/// Returns the parts of a message: each is the first and the last one or not, with its bytes.
fn parts(content: &[u8]) -> Vec<(bool, bool, &[u8])> {
    let mut parts: Vec<_> = content.chunks(MTU).map(|bytes| (false, false, bytes)).collect();
    if parts.is_empty() {
        parts.push((false, false, &[]));
    }
    parts.first_mut().expect("one at least").0 = true;
    parts.last_mut().expect("one at least").1 = true;
    parts
}

fn part<F, L>(first: bool, last: bool, head: F, tail: L) -> Part<F, L> {
    match (first, last) {
        (true, true) => Part::Only(head, tail),
        (true, false) => Part::First(head),
        (false, false) => Part::Middle,
        (false, true) => Part::Last(tail),
    }
}

impl<'a> Lab<'a> {
    fn new(data: &'a [u8]) -> Lab<'a> {
        let mut engine = Engine::new(9);
        let device = engine.add_device(Limits { max_qp: 16, max_mr: 16, max_pd: 4, ..Limits::default() });
        engine.set_link(true);
        engine.set_mac(device, OWN_MAC).expect("the device is there");
        engine.set_gid(device, 0, Some(OWN_GID.into())).expect("a GID for it");
        let pd = engine.alloc_pd(device, OWNER).expect("a PD");
        let memory = Mem::zeroed(LENGTH);
        let key =
            engine.reg_mr(device, pd, Access::REGION, IOVA, LENGTH as u64, memory.clone()).expect("a region");
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(1),
            recv_cq: CqId(2),
            receives: Receives::Own,
            max_send_wr: 1,
            max_recv_wr: MESSAGES as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = engine.create_qp(device, init).expect("a QP");
        let now = Instant(1 << 40);
        connect(&mut engine, now, device, qpn);
        let frames = frames(qpn, key);
        let (log, wire, input) = (Log::default(), Wire::default(), Input(data));
        Lab { input, engine, device, qpn, now, memory, log, wire, frames, next: 0, posted: 0, ended: 0 }
    }

    fn step(&mut self) {
        let byte = usize::from(self.input.byte());
        match byte {
            0..200 => self.deliver((self.next + byte % 40).min(self.frames.len() - 1)),
            200..220 => self.transmit(byte % 4 + 1),
            220..226 => {
                self.now = self.engine.poll_timeout().unwrap_or(self.now).max(self.now);
                self.poll();
            }
            226..230 => self.now = self.now + Duration::from_micros(1 << (byte % 32)),
            230..240 => self.replace(),
            240..250 => self.post(),
            _ => {
                let suspended = byte % 2 == 0;
                self.engine.set_suspended(self.device, suspended);
                self.poll();
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        self.engine.handle_frame(self.now, &self.frames[at], &mut self.log);
        self.next = self.next.max(usize::from(at == self.next) + self.next).min(self.frames.len() - 1);
    }

    fn transmit(&mut self, room: usize) {
        self.wire.room = room;
        self.engine.transmit(self.now, room, &mut self.wire, &mut self.log);
    }

    fn poll(&mut self) {
        while self.engine.poll(self.now, 1 << 20, &mut self.log) {}
    }

    fn replace(&mut self) {
        let record = self.engine.save();
        let memory = &self.memory;
        let copy = Engine::restore(&record, |_, _, _| Some(memory.clone()));
        self.engine = copy.expect("what an engine wrote is accepted");
        assert!(self.engine.save() == record, "what is read is written");
    }

    /// Posts the next receive, if there is one for each message already.
    fn post(&mut self) {
        let region = self.engine.region_views(self.device, 0..16).next().expect("there is one");
        let addr = IOVA + u64::from(self.posted) * SLOT as u64;
        let sge = Sge { addr, length: SLOT as u32, lkey: Lkey(region.key) };
        let request = RecvRequest { id: self.posted, sges: &[sge] };
        let posted = (MESSAGES as u32) > self.posted
            && self.engine.post_recv(self.now, self.device, OWNER, self.qpn, request, &mut self.log).is_ok();
        self.posted += u32::from(posted);
    }

    /// Answers all questions, and checks that receives end in order.
    fn look(&mut self) {
        while let Some(question) = self.engine.poll_question() {
            self.engine.answer(self.now, question, &mut self.log);
        }
        for (_, _, completion) in self.log.completions.drain(..) {
            assert_eq!((completion.id, completion.status), (self.ended, WcStatus::Success));
            self.ended += 1;
        }
        let (packets, bytes) = self.engine.held_early(self.device);
        assert!(packets < 512 && bytes <= 1 << 20, "{packets} packets held, {bytes} bytes");
    }

    /// Returns how many frames have been executed.
    fn executed(&self) -> usize {
        let expected = self.engine.query_qp(self.device, self.qpn).expect("there is the QP").rq_psn;
        Psn::truncate(expected.number().wrapping_sub(FIRST_PSN)).number() as usize
    }

    /// Lets the peer send everything again until all is executed, and compares all with the model.
    fn end(mut self) {
        self.engine.set_suspended(self.device, false);
        while self.posted < MESSAGES as u32 {
            self.post();
        }
        for _ in 0..8 {
            self.poll();
            self.transmit(100);
            for at in self.executed()..self.frames.len() {
                self.deliver(at);
                self.look();
            }
            self.transmit(100);
            self.look();
        }
        assert_eq!(self.executed(), self.frames.len(), "the peer sent all again, several times");
        assert_eq!(self.engine.held_early(self.device), (0, 0));
        let memory = self.memory.bytes();
        let (mut receives, mut adds) = (0, 0u64);
        for message in 0..MESSAGES {
            let content = content(message);
            let at = match kind(message) {
                Kind::Write => LENGTH / 2 + message / 4 * SLOT,
                Kind::Send => receives * SLOT,
                Kind::Add => {
                    adds += 1;
                    continue;
                }
                Kind::WriteImm => LENGTH / 2 + (MESSAGES / 4 + message / 4) * SLOT,
            };
            receives += usize::from(matches!(kind(message), Kind::Send | Kind::WriteImm));
            assert!(memory[at..][..content.len()] == content, "message {message}");
        }
        assert_eq!(memory[(WORD - IOVA) as usize..][..8], adds.to_ne_bytes(), "each atomic once");
        assert_eq!(self.ended as usize, receives);
        self.now = self.now + Duration::from_secs(1);
        self.poll();
        self.transmit(100);
        assert_eq!(self.engine.poll_timeout(), None, "a timer of nothing");
        self.memory.check();
    }
}

fn connect(engine: &mut Engine<Mem>, now: Instant, device: DeviceId, qpn: Qpn) {
    use AttrMask as M;
    let attr = QpAttr {
        access: Access::QP,
        port: 1,
        path_mtu: Mtu::M256,
        rq_psn: Psn::truncate(FIRST_PSN),
        dest_qpn: Qpn::truncate(PEER_QPN),
        max_dest_rd_atomic: 16,
        min_rnr_timer: 3,
        dgid: PEER_GID,
        dmac: PEER_MAC,
        hop_limit: 9,
        ..QpAttr::default()
    };
    let to_rtr = M::STATE.with(M::AV).with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
    let to_rtr = to_rtr.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER);
    let to_init = M::STATE.with(M::PKEY_INDEX).with(M::PORT).with(M::ACCESS_FLAGS);
    for (state, mask) in [(QpState::Init, to_init), (QpState::Rtr, to_rtr)] {
        let attr = QpAttr { state, ..attr };
        engine.modify_qp(now, device, qpn, mask, &attr, &mut Log::default()).expect("it is allowed");
    }
}

/// Returns the packets of all messages, in order.
fn frames(qpn: Qpn, key: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let path = Path {
        src_mac: PEER_MAC,
        dst_mac: OWN_MAC,
        vlan: None,
        src: PEER_GID,
        dst: OWN_GID,
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc000,
    };
    let mut add = |body: Rc, last: bool, payload: &[u8]| {
        let psn = Psn::truncate(FIRST_PSN).add(frames.len() as u32);
        let bth = Bth { mig: true, ack_req: last, dest: qpn, psn, ..Bth::default() };
        let packet = Packet { path, bth, body: Body::Rc(body) };
        let mut frame = vec![0; packet.frame_len(payload.len())];
        write_frame(&packet, &Pieces::<Mem>::bytes(payload), &mut frame).expect("bytes are there");
        frames.push(frame);
    };
    for message in 0..MESSAGES {
        let content = content(message);
        let write = |slot: usize| {
            let va = IOVA + (LENGTH / 2 + slot * SLOT) as u64;
            Reth { va, rkey: Rkey(key), length: content.len() as u32 }
        };
        if let Kind::Add = kind(message) {
            let eth = AtomicEth { va: WORD, rkey: Rkey(key), swap_or_add: 1, compare: 0 };
            add(Rc::Atomic(AtomicKind::FetchAdd, eth), true, &[]);
            continue;
        }
        for (first, last, bytes) in parts(&content) {
            let body = match kind(message) {
                Kind::Write => Rc::Write(part(first, last, write(message / 4), WriteTail::Plain)),
                Kind::WriteImm => {
                    let imm = WriteTail::Imm(Imm::from_bytes([message as u8; 4]));
                    Rc::Write(part(first, last, write(MESSAGES / 4 + message / 4), imm))
                }
                _ => Rc::Send(part(first, last, (), SendTail::Plain)),
            };
            add(body, last, bytes);
        }
    }
    frames
}
