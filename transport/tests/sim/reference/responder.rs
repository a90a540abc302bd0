//! The responder of the reference peer (IBTA 9.7.4, 9.7.5): it executes requests in order only.

use super::packet::{Incoming, Kind, Outgoing, ack, packets};
use super::regions::{Regions, length};
use std::collections::VecDeque;
use vrdma_transport::{Access, Completion, Instant, QpAttr, Region, Sge, WcOpcode, WcStatus};
use vrdma_wire::num::{AethMsn, Imm, Psn, Qpn};
use vrdma_wire::roce::{
    Aeth, AtomicEth, AtomicKind, NakCode, Part, Rc, ReadPart, Reth, RnrTimer, SendTail, Syndrome, WriteTail,
};

/// The most packets that hardware acknowledges at once.
const ACK_EVERY: u32 = 64;
/// How long hardware waits for more packets to acknowledge, in nanoseconds.
const ACK_DELAY: u64 = 3000;

/// A receive that was posted.
struct Receive {
    id: u32,
    sges: Vec<Sge>,
}

/// The message of which some packets have come.
#[derive(Clone, Copy)]
enum Message {
    /// A SEND, with the bytes received.
    Send(u32),
    /// A WRITE, with the bytes written.
    Write(Reth, u32),
}

/// A READ or an atomic that may be repeated.
struct Resource {
    psn: Psn,
    psns: u32,
    msn: AethMsn,
    result: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    /// The bytes that may be asked for again: they begin where the last repetition began.
    Read(Reth),
    Atomic(u64),
}

/// A READ that is being answered.
struct Reading {
    psn: Psn,
    /// What is left.
    rest: Reth,
    msn: AethMsn,
    /// The next packet begins an answer.
    begins: bool,
}

/// Why the expected packet is not executed.
enum Refusal {
    NotReady,
    /// The receive in progress ends with the status, if there is one.
    Nak(NakCode, Option<WcStatus>),
}

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest, None);
const BARRED: Refusal = Refusal::Nak(NakCode::RemoteAccessError, None);

/// What was answered to the expected packet, or to packets ahead of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// To wait for a receive.
    Wait,
    /// The expected packet.
    Again,
}

pub struct Responder {
    kind: Kind,
    qpn: Qpn,
    attr: QpAttr,
    expected: Psn,
    msn: AethMsn,
    asked: Asked,
    message: Option<Message>,
    receives: VecDeque<Receive>,
    resources: VecDeque<Resource>,
    /// Requests behind a READ that is being answered.
    inbox: VecDeque<Incoming>,
    out: VecDeque<Outgoing>,
    reading: Option<Reading>,
    /// Packets that no acknowledge covers, and when one is due at the latest.
    unacknowledged: u32,
    ack_at: Option<Instant>,
    /// The ends of receives.
    pub done: Vec<Completion>,
    /// A request was refused for good.
    pub failed: bool,
}

impl Responder {
    pub fn new(kind: Kind, qpn: Qpn, attr: &QpAttr) -> Responder {
        Responder {
            kind,
            qpn,
            attr: *attr,
            expected: attr.rq_psn,
            msn: AethMsn::default(),
            asked: Asked::Nothing,
            message: None,
            receives: VecDeque::new(),
            resources: VecDeque::new(),
            inbox: VecDeque::new(),
            out: VecDeque::new(),
            reading: None,
            unacknowledged: 0,
            ack_at: None,
            done: Vec::new(),
            failed: false,
        }
    }

    pub fn post(&mut self, id: u32, sges: &[Sge]) {
        self.receives.push_back(Receive { id, sges: sges.to_vec() });
        if self.failed {
            self.flush();
        }
    }

    /// Ends all receives, and forgets all requests.
    pub fn flush(&mut self) {
        self.failed = true;
        self.inbox.clear();
        self.reading = None;
        self.ack_at = None;
        while !self.receives.is_empty() {
            self.end_receive(WcOpcode::Recv, WcStatus::Flush, 0, None, false);
        }
    }

    /// Returns when an acknowledge is due.
    pub fn next_time(&self) -> Option<Instant> {
        self.ack_at
    }

    /// Takes a request.
    pub fn handle(&mut self, now: Instant, regions: &Regions, request: Incoming) {
        self.inbox.push_back(request);
        self.go_on(now, regions);
    }

    /// Returns the next packet to send.
    pub fn next(&mut self, now: Instant, regions: &Regions) -> Option<Outgoing> {
        if let Some(answer) = self.out.pop_front() {
            return Some(answer);
        }
        if let Some(reading) = self.reading.take() {
            let answer = self.read_on(reading, regions);
            self.go_on(now, regions);
            return answer;
        }
        self.ack_at.filter(|at| *at <= now)?;
        self.acknowledge();
        self.out.pop_front()
    }

    /// Handles requests until one of them is a READ.
    fn go_on(&mut self, now: Instant, regions: &Regions) {
        while self.reading.is_none()
            && !self.failed
            && let Some(request) = self.inbox.pop_front()
        {
            let psn = request.bth.psn;
            match psn.distance(self.expected) {
                0 => match self.execute(now, regions, &request) {
                    Ok(()) => self.asked = Asked::Nothing,
                    Err(refusal) => self.refuse(refusal),
                },
                1.. => self.receive_early(),
                _ => self.repeat(&request),
            }
        }
    }

    /// Handles a packet ahead of the expected one.
    fn receive_early(&mut self) {
        let again = match self.kind {
            Kind::Soft => self.asked != Asked::Again,
            Kind::Hard => self.asked != Asked::Wait,
        };
        if again {
            self.nak(Syndrome::Nak(NakCode::PsnSequenceError));
            self.asked = Asked::Again;
        }
    }

    fn nak(&mut self, syndrome: Syndrome) {
        (self.unacknowledged, self.ack_at) = (0, None);
        let aeth = Aeth { syndrome, msn: self.msn };
        self.out.push_back(Outgoing::answer(self.expected, Rc::Ack(aeth)));
    }

    fn acknowledge(&mut self) {
        (self.unacknowledged, self.ack_at) = (0, None);
        let before = self.expected.add(u32::MAX);
        self.out.push_back(Outgoing::answer(before, Rc::Ack(ack(self.msn))));
    }

    fn refuse(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::NotReady => {
                let timer = RnrTimer::new(self.attr.min_rnr_timer).expect("five bits");
                self.nak(Syndrome::Rnr(timer));
                self.asked = Asked::Wait;
            }
            Refusal::Nak(code, status) => {
                self.nak(Syndrome::Nak(code));
                if let Some(status) = status {
                    self.end_receive(WcOpcode::Recv, status, 0, None, false);
                }
                self.flush();
            }
        }
    }

    /// Handles a packet that was executed before.
    fn repeat(&mut self, request: &Incoming) {
        let psn = request.bth.psn;
        let within = |it: &&mut Resource| (0..it.psns as i32).contains(&psn.distance(it.psn));
        let found = self.resources.iter_mut().find(within);
        match (&request.body, found) {
            (Rc::Send(_) | Rc::Write(_), _) => self.acknowledge(),
            (Rc::ReadRequest(asked), Some(Resource { psn: first, msn, result: Answer::Read(known), .. })) => {
                let inside = asked.va >= known.va
                    && asked.length <= known.length
                    && asked.va + u64::from(asked.length) <= known.va + u64::from(known.length);
                if !inside || asked.rkey != known.rkey {
                    return;
                }
                let begins = self.kind == Kind::Hard || psn == *first;
                // What is before is forgotten. The length stays as it is.
                known.va = asked.va;
                self.reading = Some(Reading { psn, rest: *asked, msn: *msn, begins });
            }
            (Rc::Atomic(..), Some(Resource { msn, result: Answer::Atomic(before), .. })) => {
                let body = Rc::AtomicAck(ack(*msn), *before);
                self.out.push_back(Outgoing::answer(psn, body));
            }
            _ => {}
        }
    }

    /// Executes the expected packet.
    fn execute(&mut self, now: Instant, regions: &Regions, request: &Incoming) -> Result<(), Refusal> {
        let Incoming { bth, body, payload } = request;
        match body {
            Rc::Send(part) => {
                self.check_shape(part, payload.len(), matches!(self.message, Some(Message::Send(_))))?;
                self.execute_send(regions, part, payload, bth.solicited)?;
                self.accepted(now, bth.ack_req, part.tail().is_some());
            }
            Rc::Write(part) => {
                self.check_shape(part, payload.len(), matches!(self.message, Some(Message::Write(..))))?;
                self.execute_write(regions, part, payload, bth.solicited)?;
                self.accepted(now, bth.ack_req, part.tail().is_some());
            }
            Rc::ReadRequest(reth) if self.message.is_none() => {
                let Reth { va, rkey, length } = *reth;
                if length > 0 && regions.find(rkey.0, va, length.into(), Access::REMOTE_READ).is_none() {
                    return Err(BARRED);
                }
                let (psn, psns) = (self.expected, packets(length, self.attr.path_mtu.bytes()));
                let msn = self.remember(psns, Answer::Read(*reth))?;
                self.reading = Some(Reading { psn, rest: *reth, msn, begins: true });
            }
            Rc::Atomic(kind, eth) if self.message.is_none() => {
                let (psn, before) = (self.expected, execute_atomic(regions, *kind, eth)?);
                let msn = self.remember(1, Answer::Atomic(before))?;
                self.out.push_back(Outgoing::answer(psn, Rc::AtomicAck(ack(msn), before)));
            }
            _ => return Err(INVALID),
        }
        Ok(())
    }

    /// Checks that a packet may come here, and has the right length.
    fn check_shape<F, L>(&self, part: &Part<F, L>, length: usize, continues: bool) -> Result<(), Refusal> {
        let mtu = self.attr.path_mtu.bytes() as usize;
        let right = match part {
            Part::Only(..) => self.message.is_none() && length <= mtu,
            Part::First(_) => self.message.is_none() && length == mtu,
            Part::Middle => continues && length == mtu,
            Part::Last(_) => continues && (1..=mtu).contains(&length),
        };
        if right { Ok(()) } else { Err(INVALID) }
    }

    fn execute_send(
        &mut self,
        regions: &Regions,
        part: &Part<(), SendTail>,
        payload: &[u8],
        solicited: bool,
    ) -> Result<(), Refusal> {
        let filled = if let Some(Message::Send(filled)) = self.message { filled } else { 0 };
        let receive = self.receives.front().ok_or(Refusal::NotReady)?;
        let all = filled + payload.len() as u32;
        if all > length(&receive.sges) {
            return Err(Refusal::Nak(NakCode::InvalidRequest, Some(WcStatus::LocLen)));
        }
        regions.scatter(&receive.sges, filled, payload).expect("receives name memory");
        self.message = Some(Message::Send(all));
        if let Some(tail) = part.tail() {
            let imm = match tail {
                SendTail::Plain => None,
                SendTail::Imm(imm) => Some(*imm),
                SendTail::Invalidate(_) => return Err(INVALID),
            };
            self.end_receive(WcOpcode::Recv, WcStatus::Success, all, imm, solicited);
        }
        Ok(())
    }

    fn execute_write(
        &mut self,
        regions: &Regions,
        part: &Part<Reth, WriteTail>,
        payload: &[u8],
        solicited: bool,
    ) -> Result<(), Refusal> {
        let (reth, done) = match (part.head(), self.message) {
            (Some(reth), _) => (*reth, 0),
            (None, Some(Message::Write(reth, done))) => (reth, done),
            _ => return Err(INVALID),
        };
        let Reth { va, rkey, length } = reth;
        if length > 0 && regions.find(rkey.0, va, length.into(), Access::REMOTE_WRITE).is_none() {
            return Err(BARRED);
        }
        let all = done + payload.len() as u32;
        if all > length || part.tail().is_some() != (all == length) {
            return Err(INVALID);
        }
        let imm = part.tail().and_then(|tail| if let WriteTail::Imm(imm) = tail { Some(*imm) } else { None });
        if imm.is_some() && self.receives.is_empty() {
            return Err(Refusal::NotReady);
        }
        regions.write(rkey.0, va + u64::from(done), payload, Access::REMOTE_WRITE).ok_or(BARRED)?;
        self.message = Some(Message::Write(reth, all));
        if imm.is_some() {
            self.end_receive(WcOpcode::RecvWriteImm, WcStatus::Success, length, imm, solicited);
        }
        Ok(())
    }

    /// Notes that a packet of a SEND or WRITE was executed.
    fn accepted(&mut self, now: Instant, ack_req: bool, ends: bool) {
        self.expected = self.expected.add(1);
        if ends {
            self.message = None;
            self.msn = self.msn.next();
        }
        self.unacknowledged += 1;
        match self.kind {
            Kind::Soft if ack_req => self.acknowledge(),
            Kind::Soft => {}
            Kind::Hard if self.unacknowledged >= ACK_EVERY => self.acknowledge(),
            Kind::Hard if ack_req || ends => {
                self.ack_at.get_or_insert(Instant(now.0 + ACK_DELAY));
            }
            Kind::Hard => {}
        }
    }

    /// Remembers a READ or atomic, whose answer acknowledges everything before. Returns its MSN.
    fn remember(&mut self, psns: u32, result: Answer) -> Result<AethMsn, Refusal> {
        if self.attr.max_dest_rd_atomic == 0 {
            return Err(INVALID);
        }
        if self.resources.len() >= self.attr.max_dest_rd_atomic.into() {
            self.resources.pop_front();
        }
        self.msn = self.msn.next();
        self.resources.push_back(Resource { psn: self.expected, psns, msn: self.msn, result });
        self.expected = self.expected.add(psns);
        (self.unacknowledged, self.ack_at) = (0, None);
        Ok(self.msn)
    }

    /// Answers the next packet of a READ.
    fn read_on(&mut self, reading: Reading, regions: &Regions) -> Option<Outgoing> {
        let Reading { psn, rest: Reth { va, rkey, length }, msn, begins } = reading;
        let taken = length.min(self.attr.path_mtu.bytes());
        let payload = regions.read(rkey.0, va, taken as usize, Access::REMOTE_READ)?;
        let part = match (begins, taken == length) {
            (true, true) => ReadPart::Only(ack(msn)),
            (true, false) => ReadPart::First(ack(msn)),
            (false, true) => ReadPart::Last(ack(msn)),
            (false, false) => ReadPart::Middle,
        };
        if taken < length {
            let rest = Reth { va: va + u64::from(taken), rkey, length: length - taken };
            self.reading = Some(Reading { psn: psn.add(1), rest, msn, begins: false });
        }
        Some(Outgoing { payload, ..Outgoing::answer(psn, Rc::ReadResponse(part)) })
    }

    /// Ends the first receive.
    fn end_receive(
        &mut self,
        opcode: WcOpcode,
        status: WcStatus,
        byte_len: u32,
        imm: Option<Imm>,
        solicited: bool,
    ) {
        let receive = self.receives.pop_front().expect("it was looked at");
        self.done.push(Completion {
            id: receive.id,
            byte_len,
            qpn: self.qpn,
            imm,
            opcode,
            status,
            invalidated: None,
            src_qpn: self.attr.dest_qpn,
            solicited,
            srq: None,
            arrival: None,
        });
    }
}

/// Executes an atomic. Returns the value before it.
fn execute_atomic(regions: &Regions, kind: AtomicKind, eth: &AtomicEth) -> Result<u64, Refusal> {
    let AtomicEth { va, rkey, swap_or_add, compare } = *eth;
    let (memory, offset) = regions.find(rkey.0, va, 8, Access::REMOTE_ATOMIC).ok_or(BARRED)?;
    if va % 8 != 0 {
        return Err(INVALID);
    }
    let before = memory.bytes(offset as usize, 8).try_into().map(u64::from_ne_bytes).expect("8 bytes");
    let after = match kind {
        AtomicKind::FetchAdd => before.wrapping_add(swap_or_add),
        AtomicKind::CompareSwap if before == compare => swap_or_add,
        AtomicKind::CompareSwap => before,
    };
    memory.write(offset, &after.to_ne_bytes()).map_err(|_| BARRED)?;
    Ok(before)
}
