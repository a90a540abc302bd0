//! Fuzzes an engine by an iWARP stream of a hostile peer.
//!
//! The input says how the stream was set up. Then it is a list of steps: FPDUs with nearly right
//! segments, raw bytes, requests and receives of the own program, a stream without room, ends of
//! each kind. Data is delivered in arbitrary pieces. At times the engine is replaced by its copy.

use super::world::{Input, Log, Mem, Pending};
use super::{IOVA, LENGTH, OWN_GID, OWNER};
use std::collections::VecDeque;
use vrdma_transport::*;
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{SendPart, Tagged};
use vrdma_wire::iwarp::request::{AtomicOp, AtomicRequest, AtomicResponse, ReadRequest};
use vrdma_wire::iwarp::{Cause, Deframer, Encoder, Framing, Segment, StreamOffset, rdmap};
use vrdma_wire::num::*;
use vrdma_wire::roce::Packet;

const MSS: u32 = 1000;
const NOW: Instant = Instant(1 << 40);

/// Fuzzes [`Engine::handle_stream`].
pub fn stream(data: &[u8]) {
    let mut lab = Lab::new(data);
    // More steps would only make an input slow.
    for _ in 0..200 {
        if lab.input.0.is_empty() {
            break;
        }
        lab.step();
        lab.check();
    }
    lab.end();
}

/// An outlet that takes the stream of the engine, and checks that it consists of FPDUs.
struct Stream {
    room: usize,
    framing: Framing,
    place: StreamOffset,
    deframer: Deframer,
    buffer: Vec<u8>,
    /// READs and atomics that were sent and not answered.
    asked: VecDeque<Segment>,
    /// The last message was a TERMINATE.
    terminated: bool,
    end: Option<StreamEnd>,
}

impl Outlet for Stream {
    fn has_room(&mut self) -> bool {
        true
    }
}

impl PacketOutlet<Mem> for Stream {
    fn send(&mut self, packet: &Packet, _: &Pieces<'_, Mem>) -> Result<(), Fault> {
        panic!("a packet: {packet:?}");
    }
}

impl StreamOutlet<Mem> for Stream {
    fn stream_has_room(&mut self, _: DeviceId, _: Qpn) -> bool {
        self.room > 0
    }

    fn send_fpdu(
        &mut self,
        _: DeviceId,
        _: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        assert!(self.room > 0, "nobody sends without room");
        assert_eq!((self.end, self.terminated), (None, false), "nothing comes behind the end");
        assert_eq!((fpdu.framing, fpdu.place), (self.framing, self.place));
        let mut bytes = vec![0; fpdu.len(payload.len())];
        write_fpdu(fpdu, payload, &mut bytes)?;
        assert!(bytes.len() <= MSS as usize, "an FPDU of more than a segment: {}", bytes.len());
        self.room -= 1;
        self.place = self.place.after(bytes.len());
        let mut rest = bytes.as_slice();
        let ulpdu = self.deframer.next(&mut rest, &mut self.buffer).expect("what is sent can be read");
        let ulpdu = ulpdu.expect("it is whole");
        assert!(rest.is_empty());
        let Some(segment) = fpdu.segment else {
            assert!(ulpdu.is_empty());
            return Ok(());
        };
        let parsed = Segment::parse(ulpdu).expect("what is sent can be read");
        assert_eq!((parsed.segment, parsed.payload.len()), (segment, payload.len()));
        match segment {
            Segment::ReadRequest(..) | Segment::AtomicRequest(..) => self.asked.push_back(segment),
            Segment::Terminate(..) => self.terminated = true,
            _ => {}
        }
        Ok(())
    }

    fn end_stream(&mut self, _: DeviceId, _: Qpn, end: StreamEnd) {
        assert_eq!(self.end.replace(end), None, "a stream ends once");
    }
}

/// A part of the peer's stream.
enum Came {
    Bytes(Vec<u8>),
    /// An FPDU beyond a gap whose payload was placed out of order.
    Placed(PlacedFpdu),
}

struct Lab<'a> {
    input: Input<'a>,
    engine: Engine<Mem>,
    device: DeviceId,
    qpn: Qpn,
    pending: Pending,
    memory: Mem,
    key: u32,
    log: Log,
    next_id: u32,
    stream: Stream,
    /// The peer's framing, and the position of its next FPDU.
    framing: Framing,
    place: StreamOffset,
    /// What the peer has sent and the engine has not taken, in order. Adjacent bytes are joined.
    offered: VecDeque<Came>,
    send_msn: Msn,
    request_msn: Msn,
    response_msn: Msn,
    /// The offset within the message in progress.
    offset: u32,
}

impl<'a> Lab<'a> {
    fn new(data: &'a [u8]) -> Lab<'a> {
        let mut input = Input(data);
        let mut engine = Engine::new(7);
        let device = engine.add_device(Limits { max_qp: 8, max_mr: 8, max_pd: 4, ..Limits::default() });
        engine.set_link(true);
        engine.set_gid(device, 0, Some(OWN_GID.into())).expect("a GID for it");
        let pd = engine.alloc_pd(device, OWNER).expect("a PD");
        let memory = Mem::filled(LENGTH);
        let key =
            engine.reg_mr(device, pd, Access::REGION, IOVA, LENGTH as u64, memory.clone()).expect("a region");
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(1),
            recv_cq: CqId(2),
            receives: Receives::Own,
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline: 32,
        };
        let qpn = engine.create_qp(device, init).expect("a QP");
        let how = input.byte();
        let framing = |markers: u8, crc: u8| Framing { markers: how & markers != 0, crc: how & crc != 0 };
        let (framing_out, framing_in) = (framing(1, 4), framing(2, 4));
        let ready =
            [None, Some(ReadyToReceive::Fpdu), Some(ReadyToReceive::Write), Some(ReadyToReceive::Read)];
        let attr = StreamAttr {
            role: if how & 8 == 0 { Role::Initiator } else { Role::Responder },
            framing_out,
            framing_in,
            ready: ready[usize::from(how >> 4) % 4],
            ord: how >> 6,
            ird: how >> 6,
            mss: MSS,
        };
        let stream = Stream {
            room: 0,
            framing: framing_out,
            place: StreamOffset::START,
            deframer: Deframer::new(framing_out),
            buffer: vec![0; MAX_FPDU],
            asked: VecDeque::new(),
            terminated: false,
            end: None,
        };
        let mut lab = Lab {
            input,
            engine,
            device,
            qpn,
            pending: Pending::default(),
            memory,
            key,
            log: Log::default(),
            next_id: 0,
            stream,
            framing: framing_in,
            place: StreamOffset::START,
            offered: VecDeque::new(),
            send_msn: Msn::FIRST,
            request_msn: Msn::FIRST,
            response_msn: Msn::FIRST,
            offset: 0,
        };
        let mask = AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT);
        lab.modify(mask.with(AttrMask::ACCESS_FLAGS), QpState::Init).expect("from RESET");
        lab.engine.connect_stream(device, qpn, &attr).expect("from INIT");
        lab
    }

    fn step(&mut self) {
        match self.input.byte() % 16 {
            0..=3 => {
                let (segment, length) = self.segment();
                self.send(&segment, length);
                self.offer();
            }
            4 => {
                let (segment, length) = self.segment();
                self.send_beyond_gap(&segment, length);
            }
            5 => {
                let bytes = self.input.bytes(128).to_vec();
                self.arrive(bytes);
                self.offer();
            }
            6 => self.offer(),
            7 | 8 => {
                let known = self.engine.query_qp(self.device, self.qpn).expect("it is there").state;
                self.stream.room = usize::from(self.input.byte() % 8);
                if known != QpState::Reset {
                    self.engine.stream_has_room(self.device, self.qpn).expect("it has a stream");
                }
                self.engine.transmit(NOW, 8, &mut self.stream, &mut self.log);
            }
            9 => self.answer(),
            10 => {
                while let Some(question) = self.engine.poll_question() {
                    self.engine.answer(NOW, question, &mut self.log);
                }
            }
            11 => self.post_send(),
            12 | 13 => self.post_recv(),
            14 => self.change(),
            _ => self.replace(),
        }
    }

    /// Returns a segment of any kind, right or nearly right, and the length of its payload.
    fn segment(&mut self) -> (Segment, usize) {
        let (kind, flags) = (self.input.byte(), self.input.byte());
        let length = match self.input.byte() {
            0..=63 => 900,
            byte @ 64..=191 => usize::from(byte) - 64,
            byte => usize::from(byte - 191) * 1000,
        };
        let last = flags & 1 == 0;
        let stag = Stag(self.input.near(self.key));
        let offset = IOVA + u64::from(self.input.near(0));
        let send_msn = Msn(self.input.near(self.send_msn.0));
        match kind % 10 {
            0..=2 => {
                let part = SendPart { msn: send_msn, offset: self.input.near(self.offset), last };
                if last {
                    (self.send_msn, self.offset) = (self.send_msn.add(1), 0);
                } else {
                    self.offset += length as u32;
                }
                let invalidate = (flags & 12 == 12).then_some(stag);
                (Segment::Send { part, solicited: flags & 2 != 0, invalidate }, length)
            }
            3 | 4 => (Segment::Write(Tagged { stag, offset, last }), length),
            5 => {
                self.send_msn = self.send_msn.add(1);
                (Segment::Immediate { msn: send_msn, solicited: flags & 2 != 0, data: [flags; 8] }, 0)
            }
            6 => {
                let request = ReadRequest {
                    sink: Stag(9),
                    sink_offset: u64::from(flags),
                    length: length as u32,
                    source: stag,
                    source_offset: offset,
                };
                let msn = Msn(self.input.near(self.request_msn.0));
                self.request_msn = self.request_msn.add(1);
                (Segment::ReadRequest(msn, request), 0)
            }
            7 => {
                let op = match flags % 4 {
                    0 => AtomicOp::FetchAdd { add: 3, mask: 0 },
                    1 => AtomicOp::Swap { swap: 3, mask: !0 },
                    2 => AtomicOp::CompareSwap { swap: 3, mask: !0, compare: 1, compare_mask: !0 },
                    _ => AtomicOp::FetchAdd { add: 3, mask: 1 << 31 },
                };
                let msn = Msn(self.input.near(self.request_msn.0));
                self.request_msn = self.request_msn.add(1);
                (Segment::AtomicRequest(msn, AtomicRequest { id: 1, stag, offset, op }), 0)
            }
            8 => {
                let cause = Cause::ALL[usize::from(flags) % Cause::ALL.len()];
                let headers = self.input.bytes(50);
                (rdmap::terminate_for(cause, headers), 0)
            }
            _ => (Segment::ReadResponse(Tagged { stag: Stag(self.input.near(1)), offset, last }), length),
        }
    }

    /// Sends an answer to the oldest request, right or nearly right.
    fn answer(&mut self) {
        let right = self.input.byte() < 200;
        let (segment, length) = match self.stream.asked.front() {
            Some(&Segment::ReadRequest(_, request)) => {
                let length = if right { request.length } else { u32::from(self.input.word()) };
                let stag = Stag(self.input.near(request.sink.0));
                (Segment::ReadResponse(Tagged { stag, offset: request.sink_offset, last: right }), length)
            }
            Some(&Segment::AtomicRequest(_, request)) => {
                let id = self.input.near(request.id);
                let msn = Msn(self.input.near(self.response_msn.0));
                self.response_msn = self.response_msn.add(1);
                (Segment::AtomicResponse(msn, AtomicResponse { id, original: 5 }), 0)
            }
            _ => return,
        };
        self.stream.asked.pop_front();
        let length = (length as usize).min(60_000);
        if self.input.byte() & 1 == 0 {
            self.send(&segment, length);
            self.offer();
        } else {
            self.send_beyond_gap(&segment, length);
        }
    }

    /// Sends an FPDU of the peer.
    fn send(&mut self, segment: &Segment, length: usize) {
        let fpdu = self.fpdu(segment, length);
        self.arrive(fpdu);
    }

    /// Sends an FPDU of the peer that arrives before earlier data. It is placed, or kept as bytes.
    fn send_beyond_gap(&mut self, segment: &Segment, length: usize) {
        let fpdu = self.fpdu(segment, length);
        let before = self.memory.bytes();
        match self.engine.place_fpdu(self.device, self.qpn, &fpdu, &mut self.log) {
            EarlyFpdu::Placed(placed) => {
                assert!(!self.framing.markers, "with markers nothing is placed");
                assert_eq!(placed.len(), fpdu.len());
                self.offered.push_back(Came::Placed(placed));
            }
            // An FPDU that counts as lost comes again in order.
            EarlyFpdu::Keep | EarlyFpdu::NoReceive => {
                assert!(self.memory.bytes() == before, "what is not placed leaves memory as it is");
                self.arrive(fpdu);
            }
        }
    }

    /// Returns an FPDU of the peer, at times with a wrong bit.
    fn fpdu(&mut self, segment: &Segment, length: usize) -> Vec<u8> {
        let mut ulpdu = vec![0xab; segment.header_len()];
        segment.emit(&mut ulpdu);
        ulpdu.resize(ulpdu.len() + length, 0xab);
        let mut fpdu = vec![0; self.framing.fpdu_len(self.place, ulpdu.len())];
        let mut encoder = Encoder::new(self.framing, self.place, ulpdu.len(), &mut fpdu);
        encoder.put(&ulpdu);
        encoder.finish();
        self.place = self.place.after(fpdu.len());
        if self.input.byte() == 255 {
            let at = usize::from(self.input.word()) % fpdu.len();
            fpdu[at] ^= 1 << (self.input.byte() % 8);
        }
        fpdu
    }

    fn arrive(&mut self, bytes: Vec<u8>) {
        match self.offered.back_mut() {
            Some(Came::Bytes(before)) => before.extend_from_slice(&bytes),
            _ if bytes.is_empty() => {}
            _ => self.offered.push_back(Came::Bytes(bytes)),
        }
    }

    /// Delivers what was sent, or some of it, in pieces.
    fn offer(&mut self) {
        let (mut left, piece) = match self.input.byte() {
            0..=127 => (usize::MAX, usize::MAX),
            byte @ 128..=191 => (usize::MAX, usize::from(byte - 127)),
            byte => (usize::from(byte - 191) * 16, 100),
        };
        while left > 0
            && let Some(came) = self.offered.front_mut()
        {
            let taken = match came {
                Came::Bytes(bytes) => {
                    let offered = &bytes[..piece.min(left).min(bytes.len())];
                    let taken = self.engine.handle_stream(self.device, self.qpn, offered, &mut self.log);
                    let Ok(taken @ 1..) = taken else { break };
                    assert!(taken <= offered.len());
                    bytes.drain(..taken);
                    if !bytes.is_empty() {
                        left -= taken;
                        continue;
                    }
                    taken
                }
                Came::Placed(placed) => {
                    let before = self.memory.bytes();
                    let taken = self.engine.handle_placed(self.device, self.qpn, placed, &mut self.log);
                    assert!(self.memory.bytes() == before, "it was placed before its turn");
                    if taken != Ok(true) {
                        break;
                    }
                    placed.len()
                }
            };
            left = left.saturating_sub(taken);
            self.offered.pop_front();
        }
    }

    fn sge(&mut self, length: u32) -> Sge {
        let addr = IOVA + u64::from(self.input.byte()) * 8;
        Sge { addr, length, lkey: Lkey(self.input.near(self.key)) }
    }

    fn post_send(&mut self) {
        let remote = Remote { addr: 0x5000, rkey: Rkey(0x99) };
        let imm = Some(Imm::from_bytes([9; 4]));
        let mut length = u32::from(self.input.word()) % 5000;
        let op = match self.input.byte() % 9 {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Send { imm },
            2 => SendOp::Write { remote, imm: None },
            3 => SendOp::Write { remote, imm },
            4 => SendOp::Read { remote },
            5 => SendOp::atomic(remote, Atomic::CompareSwap { compare: 1, swap: 2 }),
            6 => SendOp::atomic(remote, Atomic::FetchAdd { add: 3 }),
            7 => SendOp::SendInvalidate { key: remote.rkey },
            _ => SendOp::LocalInvalidate { key: Rkey(self.input.near(self.key)) },
        };
        if matches!(op, SendOp::Atomic { .. }) {
            length = 8;
        }
        let flags = self.input.byte();
        let sges = [self.sge(length)];
        let payload = if flags & 24 == 24 { Payload::Inline(b"inline") } else { Payload::Sges(&sges) };
        let id = self.next_id;
        self.next_id += 1;
        let (signaled, solicited, fence) = (flags & 1 == 0, flags & 2 != 0, flags & 4 != 0);
        let request = SendRequest { id, signaled, solicited, fence, op, payload };
        self.pending.sends.push_back((id, signaled));
        if self.engine.post_send(NOW, self.device, OWNER, self.qpn, &request, &mut self.log).is_err() {
            self.pending.sends.pop_back();
        }
    }

    fn post_recv(&mut self) {
        let length = u32::from(self.input.word()) % 5000;
        let sges = [self.sge(length)];
        let id = self.next_id;
        self.next_id += 1;
        self.pending.receives.push_back((id, true));
        let request = RecvRequest { id, sges: &sges };
        if self.engine.post_recv(NOW, self.device, OWNER, self.qpn, request, &mut self.log).is_err() {
            self.pending.receives.pop_back();
        }
    }

    fn modify(&mut self, mask: AttrMask, state: QpState) -> Result<(), Error> {
        let attr = QpAttr { state, access: Access::QP, port: 1, ..QpAttr::default() };
        self.engine.modify_qp(NOW, self.device, self.qpn, mask, &attr, &mut self.log)
    }

    fn change(&mut self) {
        let (device, qpn) = (self.device, self.qpn);
        // Each may be refused, depending on the state of the QP.
        match self.input.byte() % 12 {
            0 => drop(self.modify(AttrMask::STATE, QpState::Err)),
            1..=3 => drop(self.modify(AttrMask::STATE, QpState::Sqd)),
            4..=6 => drop(self.modify(AttrMask::STATE, QpState::Rts)),
            7 => drop(self.engine.finish_stream(device, qpn)),
            8 => drop(self.engine.lose_stream(device, qpn, true, &mut self.log)),
            9 => drop(self.engine.lose_stream(device, qpn, false, &mut self.log)),
            _ => {
                let suspended = self.input.byte() & 1 == 0;
                self.engine.set_suspended(device, suspended);
            }
        }
    }

    fn replace(&mut self) {
        let record = self.engine.save();
        let memory = self.memory.clone();
        self.engine = Engine::restore(&record, |_, _, _| Some(memory.clone()))
            .expect("what an engine wrote is not refused");
        assert_eq!(self.engine.save(), record);
    }

    /// Checks that each completion is of the first pending request of its queue.
    fn check(&mut self) {
        while self.engine.poll(NOW, 1 << 20, &mut self.log) {}
        self.log.events.clear();
        for (_, _, completion) in self.log.completions.drain(..) {
            let receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
            let queue = if receive { &mut self.pending.receives } else { &mut self.pending.sends };
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
        self.engine.set_suspended(self.device, false);
        // Losing the stream ends everything that was in progress.
        let _ = self.engine.lose_stream(self.device, self.qpn, false, &mut self.log);
        self.check();
        let state = self.engine.query_qp(self.device, self.qpn).expect("it is there").state;
        if state == QpState::Err {
            assert!(self.pending.receives.is_empty(), "receives are left: {:?}", self.pending.receives);
            let left = self.pending.sends.iter().filter(|(_, signaled)| *signaled).count();
            assert_eq!(left, 0, "requests are left");
        }
        self.engine.reset_device(self.device);
        let counts = self.engine.counts(self.device);
        assert_eq!((counts.qps, counts.mrs, counts.pending_sends, counts.pending_receives), (0, 0, 0, 0));
        while self.engine.poll(NOW, 1 << 20, &mut self.log) {}
        assert_eq!(self.engine.poll_timeout(), None, "a timer of nothing");
        self.memory.check();
    }
}
