//! The requester of the reference peer (IBTA 9.7.3, 9.7.5.1, 9.7.7): go-back-N.

use super::packet::{Kind, Outgoing, packets};
use super::regions::{Regions, length};
use std::collections::VecDeque;
use vrdma_transport::{
    Atomic, Completion, Instant, Payload, QpAttr, Remote, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use vrdma_wire::num::{Psn, Qpn};
use vrdma_wire::roce::{
    Aeth, AtomicEth, AtomicKind, NakCode, Part, Rc, ReadPart, Reth, RnrTimer, SendTail, Syndrome, WriteTail,
};

/// The most PSNs that are outstanding when a packet is sent.
const WINDOW: i32 = 128;
/// The packets after which one asks for an acknowledge.
const ACK_REQ_EVERY: u32 = 32;

/// A request that has not ended.
struct Request {
    id: u32,
    signaled: bool,
    solicited: bool,
    fence: bool,
    op: SendOp,
    opcode: WcOpcode,
    /// Data that were posted with the request.
    inline: Option<Vec<u8>>,
    sges: Vec<Sge>,
    length: u32,
    first: Psn,
    psns: u32,
    /// The first PSN for which a READ was asked last.
    asked: Psn,
}

impl Request {
    fn has_response(&self) -> bool {
        matches!(self.op, SendOp::Read { .. } | SendOp::Atomic { .. })
    }

    /// Returns the PSN behind it.
    fn end(&self) -> Psn {
        self.first.add(self.psns)
    }
}

pub struct Requester {
    kind: Kind,
    qpn: Qpn,
    attr: QpAttr,
    queue: VecDeque<Request>,
    /// The PSN of the next request that is posted.
    posted: Psn,
    /// The first PSN that is not answered.
    una: Psn,
    /// The next PSN to send.
    cursor: Psn,
    /// The PSN behind all that were ever sent.
    sent: Psn,
    since_ack_req: u32,
    /// The requests from `una` on were sent again, and nothing was answered since.
    retrying: bool,
    retries: u8,
    rnr_retries: u8,
    timer: Option<Instant>,
    /// The peer has no receive before this time.
    pause: Option<Instant>,
    /// The ends of requests.
    pub done: Vec<Completion>,
    pub failed: bool,
}

impl Requester {
    pub fn new(kind: Kind, qpn: Qpn, attr: &QpAttr) -> Requester {
        let psn = attr.sq_psn;
        Requester {
            kind,
            qpn,
            attr: *attr,
            queue: VecDeque::new(),
            posted: psn,
            una: psn,
            cursor: psn,
            sent: psn,
            since_ack_req: 0,
            retrying: false,
            retries: attr.retry_cnt,
            rnr_retries: attr.rnr_retry,
            timer: None,
            pause: None,
            done: Vec::new(),
            failed: false,
        }
    }

    pub fn post(&mut self, request: &SendRequest<'_>) {
        let SendRequest { id, signaled, solicited, fence, op, payload } = *request;
        let (inline, sges) = match payload {
            Payload::Inline(bytes) => (Some(bytes.to_vec()), Vec::new()),
            Payload::Sges(sges) => (None, sges.to_vec()),
        };
        let length = inline.as_ref().map_or_else(|| length(&sges), |bytes| bytes.len() as u32);
        let opcode = match op {
            SendOp::Send { .. } => WcOpcode::Send,
            SendOp::Write { .. } => WcOpcode::Write,
            SendOp::Read { .. } => WcOpcode::Read,
            SendOp::Atomic { op: Atomic::FetchAdd { .. }, .. } => WcOpcode::FetchAdd,
            SendOp::Atomic { op: Atomic::CompareSwap { .. }, .. } => WcOpcode::CompareSwap,
            other => panic!("a reference peer has no {other:?}"),
        };
        let psns = packets(length, self.attr.path_mtu.bytes());
        let first = self.posted;
        self.posted = first.add(psns);
        self.queue.push_back(Request {
            id,
            signaled,
            solicited,
            fence,
            op,
            opcode,
            inline,
            sges,
            length,
            first,
            psns,
            asked: first,
        });
        if self.failed {
            self.flush();
        }
    }

    /// Ends all requests.
    pub fn flush(&mut self) {
        self.failed = true;
        (self.timer, self.pause) = (None, None);
        while !self.queue.is_empty() {
            self.end_first(WcStatus::Flush);
        }
    }

    /// Returns when it acts next by itself.
    pub fn next_time(&self) -> Option<Instant> {
        self.timer.into_iter().chain(self.pause).min()
    }

    /// Lets timers expire.
    pub fn tick(&mut self, now: Instant) {
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.go_back(now, true);
        }
    }

    /// Returns the next packet to send.
    pub fn next(&mut self, now: Instant, regions: &Regions) -> Option<Outgoing> {
        if self.pause.is_some() || self.cursor.distance(self.una) >= WINDOW {
            return None;
        }
        let at = self.queue.iter().position(|it| self.cursor.distance(it.end()) < 0)?;
        let request = &self.queue[at];
        // All READs and atomics before the cursor are outstanding.
        let reads = self.queue.iter().take(at).filter(|it| it.has_response()).count();
        let is_new = self.cursor == request.first;
        let too_many = request.has_response() && reads >= self.attr.max_rd_atomic.max(1).into();
        if too_many || is_new && request.fence && reads > 0 {
            return None;
        }
        let Some((body, payload)) = self.packet(request, regions) else {
            // A request fails when all before it have ended.
            if at == 0 {
                self.fail(WcStatus::LocProt);
            }
            return None;
        };
        let psn = self.cursor;
        let ends = request.has_response() || psn.add(1) == request.end();
        let takes_receive = matches!(request.op, SendOp::Send { .. } | SendOp::Write { imm: Some(_), .. });
        let solicited = ends && takes_receive && request.solicited;
        self.cursor = if request.has_response() { request.end() } else { psn.add(1) };
        self.queue[at].asked = psn;
        let full = self.cursor.distance(self.una) >= WINDOW;
        let ack_req = ends || full || self.since_ack_req + 1 >= ACK_REQ_EVERY;
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        if self.cursor.distance(self.sent) > 0 {
            self.sent = self.cursor;
        }
        if self.timer.is_none() {
            self.timer = self.deadline(now);
        }
        Some(Outgoing { psn, ack_req, solicited, body, payload })
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let code = self.attr.timeout;
        (code > 0).then(|| Instant(now.0 + (4096 << code)))
    }

    /// Returns the packet of a request at the cursor, or `None` if its own memory may not be read.
    fn packet(&self, request: &Request, regions: &Regions) -> Option<(Rc, Vec<u8>)> {
        let mtu = self.attr.path_mtu.bytes();
        let skipped = self.cursor.distance(request.first) as u32 * mtu;
        let rest = request.length - skipped;
        let reth = |Remote { addr, rkey }| Reth { va: addr, rkey, length: request.length };
        let begins = skipped == 0;
        Some(match request.op {
            SendOp::Send { imm } => {
                let part = part(begins, rest <= mtu, (), imm.map_or(SendTail::Plain, SendTail::Imm));
                (Rc::Send(part), self.data(request, regions, skipped)?)
            }
            SendOp::Write { remote, imm } => {
                let tail = imm.map_or(WriteTail::Plain, WriteTail::Imm);
                let part = part(begins, rest <= mtu, reth(remote), tail);
                (Rc::Write(part), self.data(request, regions, skipped)?)
            }
            SendOp::Read { remote: Remote { addr, rkey } } => {
                let reth = Reth { va: addr + u64::from(skipped), rkey, length: rest };
                (Rc::ReadRequest(reth), Vec::new())
            }
            SendOp::Atomic { addr: va, rkey, op } => {
                let (kind, swap_or_add, compare) = match op {
                    Atomic::FetchAdd { add } => (AtomicKind::FetchAdd, add, 0),
                    Atomic::CompareSwap { compare, swap } => (AtomicKind::CompareSwap, swap, compare),
                };
                (Rc::Atomic(kind, AtomicEth { va, rkey, swap_or_add, compare }), Vec::new())
            }
            _ => unreachable!("it was not posted"),
        })
    }

    /// Returns the payload of a packet.
    fn data(&self, request: &Request, regions: &Regions, skipped: u32) -> Option<Vec<u8>> {
        let taken = (request.length - skipped).min(self.attr.path_mtu.bytes()) as usize;
        match &request.inline {
            Some(bytes) => Some(bytes[skipped as usize..][..taken].to_vec()),
            None => regions.gather(&request.sges, skipped, taken),
        }
    }

    /// Handles an answer.
    pub fn handle(&mut self, now: Instant, regions: &Regions, psn: Psn, body: &Rc, payload: &[u8]) {
        let (at, outstanding) = (psn.distance(self.una), self.sent.distance(self.una));
        let gap = Syndrome::Nak(NakCode::PsnSequenceError);
        let is_gap = matches!(body, Rc::Ack(aeth) if aeth.syndrome == gap);
        // The peer may expect the next PSN that is sent.
        if at < 0 || at > outstanding || at == outstanding && !is_gap {
            return;
        }
        match body {
            Rc::Ack(Aeth { syndrome, .. }) => match *syndrome {
                Syndrome::Ack(_) => {
                    self.acknowledge(now, psn.add(1));
                }
                _ if !self.acknowledge(now, psn) => {}
                Syndrome::Rnr(timer) => self.wait(now, timer),
                Syndrome::Nak(NakCode::PsnSequenceError) => self.go_back(now, false),
                Syndrome::Nak(NakCode::RemoteAccessError) => self.fail(WcStatus::RemAccess),
                Syndrome::Nak(NakCode::RemoteOperationalError) => self.fail(WcStatus::RemOp),
                Syndrome::Nak(_) => self.fail(WcStatus::RemInvReq),
            },
            Rc::ReadResponse(part) => {
                if self.acknowledge(now, psn) {
                    self.take_data(now, regions, part, payload);
                }
            }
            Rc::AtomicAck(_, before) => {
                if self.acknowledge(now, psn) {
                    self.take_value(now, regions, *before);
                }
            }
            _ => unreachable!("requests go to the responder"),
        }
    }

    /// Notes that everything before a PSN was acknowledged. Returns false if an answer is missing.
    fn acknowledge(&mut self, now: Instant, end: Psn) -> bool {
        let mut is_progress = false;
        let mut missing = false;
        while let Some(first) = self.queue.front() {
            let more = end.distance(self.una);
            if more <= 0 {
                break;
            }
            if first.has_response() {
                missing = true;
                break;
            }
            is_progress = true;
            let left = first.end().distance(self.una);
            self.una = self.una.add(more.min(left) as u32);
            if more >= left {
                self.end_first(WcStatus::Success);
            }
        }
        if is_progress {
            self.progress(now);
        }
        if missing {
            let within = self.queue.front().is_some_and(|first| end.distance(first.end()) < 0);
            if self.kind == Kind::Hard || !within {
                self.go_back(now, false);
            }
        }
        !missing
    }

    fn progress(&mut self, now: Instant) {
        if self.cursor.distance(self.una) < 0 {
            self.cursor = self.una;
        }
        (self.retries, self.rnr_retries) = (self.attr.retry_cnt, self.attr.rnr_retry);
        (self.retrying, self.pause) = (false, None);
        self.timer = if self.sent == self.una { None } else { self.deadline(now) };
    }

    fn take_data(&mut self, now: Instant, regions: &Regions, part: &ReadPart, payload: &[u8]) {
        let Some(first) = self.queue.front() else { return };
        let mtu = self.attr.path_mtu.bytes();
        let skipped = self.una.distance(first.first) as u32 * mtu;
        let rest = first.length.saturating_sub(skipped);
        let (begins, last) = match part {
            ReadPart::First(_) => (true, false),
            ReadPart::Middle => (false, false),
            ReadPart::Last(_) => (false, true),
            ReadPart::Only(_) => (true, true),
        };
        // An answer begins where one was asked for, and does not begin with its middle.
        let placed = if begins { self.una == first.asked } else { self.una != first.first };
        let right = payload.len() as u32 == rest.min(mtu) && last == (rest <= mtu);
        if !matches!(first.op, SendOp::Read { .. }) || !placed || !right {
            return self.fail(WcStatus::BadResp);
        }
        if regions.scatter(&first.sges, skipped, payload).is_none() {
            return self.fail(WcStatus::LocProt);
        }
        self.una = self.una.add(1);
        if last {
            self.end_first(WcStatus::Success);
        }
        self.progress(now);
    }

    fn take_value(&mut self, now: Instant, regions: &Regions, before: u64) {
        let Some(first) = self.queue.front() else { return };
        if !matches!(first.op, SendOp::Atomic { .. }) {
            return self.fail(WcStatus::BadResp);
        }
        if regions.scatter(&first.sges, 0, &before.to_ne_bytes()).is_none() {
            return self.fail(WcStatus::LocProt);
        }
        self.una = self.una.add(1);
        self.end_first(WcStatus::Success);
        self.progress(now);
    }

    /// Sends everything outstanding again.
    fn go_back(&mut self, now: Instant, timed_out: bool) {
        if self.cursor == self.una || self.retrying && !timed_out {
            return;
        }
        if self.retries == 0 {
            return self.fail(WcStatus::RetryExc);
        }
        self.retries -= 1;
        self.retrying = true;
        self.cursor = self.una;
        self.since_ack_req = 0;
        if timed_out {
            self.timer = self.deadline(now);
        }
    }

    /// Waits for a receive of the peer.
    fn wait(&mut self, now: Instant, timer: RnrTimer) {
        if self.pause.is_some() {
            return;
        }
        if self.rnr_retries == 0 {
            return self.fail(WcStatus::RnrRetryExc);
        }
        if self.rnr_retries < 7 {
            self.rnr_retries -= 1;
        }
        self.pause = Some(Instant(now.0 + rnr_delay(timer.code())));
        (self.cursor, self.retrying, self.timer) = (self.una, false, None);
    }

    /// Ends the first request with an error, and flushes all others.
    fn fail(&mut self, status: WcStatus) {
        self.end_first(status);
        self.flush();
    }

    fn end_first(&mut self, status: WcStatus) {
        let request = self.queue.pop_front().expect("something is outstanding");
        if status == WcStatus::Success && !request.signaled {
            return;
        }
        let has_data = status == WcStatus::Success && request.has_response();
        self.done.push(Completion {
            id: request.id,
            byte_len: if has_data { request.length } else { 0 },
            qpn: self.qpn,
            imm: None,
            opcode: request.opcode,
            status,
            invalidated: None,
            src_qpn: Qpn::default(),
            solicited: false,
            srq: None,
            arrival: None,
        });
    }
}

/// Returns the position of a packet, with its headers.
fn part<F, L>(begins: bool, ends: bool, head: F, tail: L) -> Part<F, L> {
    match (begins, ends) {
        (true, true) => Part::Only(head, tail),
        (true, false) => Part::First(head),
        (false, true) => Part::Last(tail),
        (false, false) => Part::Middle,
    }
}

/// Returns the nanoseconds of an RNR timer (IBTA table 45).
fn rnr_delay(code: u8) -> u64 {
    let tens = match code {
        0 => 65_536,
        1 => 1,
        _ => (2 + u64::from(code & 1)) << (code / 2 - 1),
    };
    tens * 10_000
}
