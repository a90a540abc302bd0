//! One direction of a connection, and what a plain model says must come of it.
//!
//! The model carries each request out at once when it is posted, on bytes of its own: RC promises that the result is the same. The one thing
//! that it does not promise is that a READ is over before requests that follow it begin; so what would overwrite the source of a READ
//! that may be under way is fenced.

use crate::memory::Mem;
use crate::rng::Rng;
use crate::world::{Host, OWNER, World};
use std::collections::VecDeque;
use std::ops::Range;
use vrdma_transport::*;
use vrdma_wire::num::{Imm, Lkey, Qpn, Rkey};

/// What memory that nothing was received into looks like.
const BLANK: u8 = 0xc5;

/// A region as its owner knows it.
#[derive(Clone)]
struct Area {
    memory: Mem,
    iova: u64,
    key: u32,
}

impl Area {
    fn new(host: &mut Host, rng: &mut Rng, access: Access, bytes: Vec<u8>) -> Area {
        let iova = rng.range(1..=1 << 40) << 6;
        let length = bytes.len() as u64;
        let memory = Mem::new(bytes);
        let key = host.engine.reg_mr(host.device, host.pd, access, iova, length, memory.clone()).unwrap();
        Area { memory, iova, key }
    }

    fn sge(&self, at: u64, length: u64) -> Sge {
        Sge { addr: self.iova + at, length: length as u32, lkey: Lkey(self.key) }
    }

    fn remote(&self, at: u64) -> Remote {
        Remote { addr: self.iova + at, rkey: Rkey(self.key) }
    }

    /// A range as up to four elements one after the other, some of them empty.
    fn elements(&self, rng: &mut Rng, at: u64, length: u64) -> Vec<Sge> {
        let mut sges = Vec::new();
        let mut done = 0;
        while done < length && sges.len() < 3 && rng.one_in(2) {
            let piece = rng.range(0..=length - done);
            if piece == 0 {
                sges.push(Sge { addr: rng.next(), length: 0, lkey: Lkey(rng.next() as u32) });
            } else {
                sges.push(self.sge(at + done, piece));
            }
            done += piece;
        }
        if done < length {
            sges.push(self.sge(at + done, length - done));
        }
        sges
    }
}

/// What a stream is like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Requests in all.
    pub requests: u32,
    /// Or bytes, whichever is more.
    pub bytes: u64,
    /// Longest message, and bytes of memory that the peer may write.
    pub longest: u64,
    pub window: u64,
    pub depth: u32,
    pub receives: u32,
    /// Longest pause between posts, in nanoseconds: of sends, of receives.
    pub send_pause: u64,
    pub recv_pause: u64,
    /// One in so many completes if it succeeds.
    pub signal_every: u64,
    /// The last request is one that must fail.
    pub poison: bool,
}

/// How a stream may come to an early end.
#[derive(Clone, Copy, Debug, Default)]
pub struct MayFail {
    /// Frames get lost, or the peer may fail and fall silent.
    pub retry: bool,
    pub rnr: bool,
    /// The own QP may fail for another reason: the peer's requests.
    pub flush: bool,
}

/// A request that was posted.
struct Posted {
    opcode: WcOpcode,
    signaled: bool,
    /// Where bytes come to, and which.
    lands: Option<(u64, Vec<u8>)>,
    /// Which bytes of the peer it may change.
    changes: Option<Range<u64>>,
    /// Consumes a receive: how many have been consumed then.
    receives: u64,
    /// How it has to fail.
    fails: Option<WcStatus>,
}

/// A message that the peer's receive has to show.
struct Expected {
    opcode: WcOpcode,
    bytes: Vec<u8>,
    length: u64,
    imm: Option<Imm>,
    solicited: bool,
    /// It fails in this way instead.
    fails: Option<WcStatus>,
}

/// Landing places in use: of which request, up to where, and until which request ends.
struct Landing {
    end: u64,
    start: u64,
    request: usize,
    last_user: usize,
}

pub struct Stream {
    pub name: String,
    from: usize,
    to: usize,
    qpn: Qpn,
    peer_qpn: Qpn,
    send_cq: CqId,
    recv_cq: CqId,
    shape: Shape,
    pub may_fail: MayFail,
    rng: Rng,

    source: Area,
    landing: Area,
    target: Area,
    /// The peer's regions, for requests that must fail: one without remote rights.
    barred: Area,
    slots: Area,
    slot: u64,
    /// What `target` has to hold in the end, and ranges of which nothing is known.
    shadow: Vec<u8>,
    unknown: Vec<Range<u64>>,

    posted: Vec<Posted>,
    /// Requests that have ended.
    ended: usize,
    pub bytes: u64,
    unfenced: Vec<Range<u64>>,
    places: VecDeque<Landing>,
    land_at: u64,
    /// The request that failed.
    pub failed: Option<(usize, WcStatus)>,
    consuming: u64,

    receives_posted: u64,
    receives_ended: u64,
    messages: u64,
    expected: VecDeque<Expected>,
    recv_failed: bool,

    next_send: Instant,
    next_recv: Instant,
}

impl Stream {
    /// Requests of QP `qpn` of host `from` to QP `peer_qpn` of host `to`. The receives are those of the latter.
    #[allow(clippy::too_many_arguments, reason = "each end has as many")]
    pub fn new(
        world: &mut World,
        name: String,
        (from, qpn, send_cq): (usize, Qpn, CqId),
        (to, peer_qpn, recv_cq): (usize, Qpn, CqId),
        shape: Shape,
        may_fail: MayFail,
        mut rng: Rng,
    ) -> Stream {
        let mut random = |length: u64| {
            let mut bytes = vec![0; length as usize];
            rng.fill(&mut bytes);
            bytes
        };
        let (source, shadow) = (random(shape.longest * 2), random(shape.window));
        let blank = |length: u64| vec![BLANK; length as usize];
        let host = &mut world.hosts[from];
        let local = Access::LOCAL_WRITE;
        let source = Area::new(host, &mut rng, Access::NONE, source);
        let landing = Area::new(host, &mut rng, local, blank((shape.longest * 4).max(1024)));
        let host = &mut world.hosts[to];
        let target = Area::new(host, &mut rng, Access::ALL, shadow.clone());
        let barred = Area::new(host, &mut rng, local, blank(64));
        let slot = shape.longest + 64;
        let slots = Area::new(host, &mut rng, local, blank(slot * u64::from(shape.receives)));
        let now = world.now;
        let (next_send, next_recv) =
            (soon(&mut rng, now, shape.send_pause), soon(&mut rng, now, shape.recv_pause));
        Stream {
            name,
            from,
            to,
            qpn,
            peer_qpn,
            send_cq,
            recv_cq,
            shape,
            may_fail,
            rng,
            source,
            landing,
            target,
            barred,
            slots,
            slot,
            shadow,
            unknown: Vec::new(),
            posted: Vec::new(),
            ended: 0,
            bytes: 0,
            unfenced: Vec::new(),
            places: VecDeque::new(),
            land_at: 0,
            failed: None,
            consuming: 0,
            receives_posted: 0,
            receives_ended: 0,
            messages: 0,
            expected: VecDeque::new(),
            recv_failed: false,
            next_send,
            next_recv,
        }
    }

    /// When it does something next by itself; `None` if it only waits.
    pub fn next(&self) -> Option<Instant> {
        let send = Some(self.next_send).filter(|_| self.wants_to_post() && self.has_room());
        let recv = Some(self.next_recv).filter(|_| self.wants_receives());
        send.into_iter().chain(recv).min()
    }

    /// Whether every request has been posted and has ended.
    pub fn is_over(&self) -> bool {
        self.ended == self.posted.len() && (self.failed.is_some() || !self.wants_to_post())
    }

    fn all_posted(&self) -> bool {
        self.posted.len() as u64 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes
    }

    fn wants_to_post(&self) -> bool {
        !self.all_posted() && self.failed.is_none()
    }

    fn has_room(&self) -> bool {
        self.posted.len() - self.ended < self.shape.depth as usize
    }

    fn wants_receives(&self) -> bool {
        let open = self.receives_posted - self.receives_ended < u64::from(self.shape.receives);
        open && !self.recv_failed && !(self.all_posted() && self.receives_posted >= self.consuming)
    }

    /// Posts what is due.
    pub fn act(&mut self, world: &mut World) {
        let now = world.now;
        if self.wants_receives() && self.next_recv <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_receives() {
                    self.post_receive(world);
                }
            }
            self.next_recv = soon(&mut self.rng, now, self.shape.recv_pause);
        }
        if self.wants_to_post() && self.has_room() && self.next_send <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_to_post() && self.has_room() && !self.post(world) {
                    break;
                }
            }
            self.next_send = soon(&mut self.rng, now, self.shape.send_pause);
        }
    }

    fn post_receive(&mut self, world: &mut World) {
        let at = self.receives_posted % u64::from(self.shape.receives) * self.slot;
        self.slots.memory.fill(at as usize..(at + self.slot) as usize, BLANK);
        let sges = self.slots.elements(&mut self.rng, at, self.shape.longest);
        let request = RecvRequest { id: self.receives_posted as u32, sges: &sges };
        let host = &mut world.hosts[self.to];
        let (now, device) = (world.now, host.device);
        let result = host.engine.post_recv(now, device, OWNER, self.peer_qpn, request, &mut host.log);
        assert_eq!(result, Ok(()), "{}: receive {}", self.name, self.receives_posted);
        self.receives_posted += 1;
    }

    /// Room for `length` bytes to land in, multiple of 8 for atomics, used by the request that comes next.
    fn land(&mut self, length: u64) -> Option<u64> {
        let size = self.landing.memory.len() as u64;
        while self.places.front().is_some_and(|p| p.last_user < self.ended) {
            self.places.pop_front();
        }
        let rounded = (length.max(1) + 7) & !7;
        let mut start = self.land_at;
        if start + rounded > size {
            start = 0;
        }
        let free = |p: &Landing| p.end <= start || start + rounded <= p.start;
        if !self.places.iter().all(free) {
            return None;
        }
        self.land_at = start + rounded;
        let request = self.posted.len();
        self.places.push_back(Landing { start, end: start + rounded, request, last_user: request });
        Some(start)
    }

    /// Pieces of the source, and the bytes that they are.
    fn gather(&mut self, length: u64) -> (Vec<Sge>, Vec<u8>) {
        let (mut sges, mut bytes, mut left) = (Vec::new(), Vec::with_capacity(length as usize), length);
        let size = self.source.memory.len() as u64;
        while left > 0 {
            let piece = if sges.len() < 3 && self.rng.one_in(2) { self.rng.range(1..=left) } else { left };
            let at = self.rng.range(0..=size - piece);
            sges.push(self.source.sge(at, piece));
            self.source.memory.with(|s| bytes.extend_from_slice(&s[at as usize..(at + piece) as usize]));
            left -= piece;
        }
        if sges.is_empty() && self.rng.one_in(2) {
            sges.push(Sge { addr: 0, length: 0, lkey: Lkey(1) });
        }
        (sges, bytes)
    }

    /// A range of the peer's memory.
    fn range(&mut self, length: u64) -> Range<u64> {
        let at = self.rng.range(0..=self.shape.window - length);
        at..at + length
    }

    /// Posts one request and carries it out in the model; false if there is no room for its results now.
    fn post(&mut self, world: &mut World) -> bool {
        let last =
            self.posted.len() as u64 + 1 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes;
        if last && self.shape.poison {
            self.post_poison(world);
            return true;
        }
        let length = self.rng.length(self.shape.longest);
        let imm = self.rng.one_in(2).then(|| Imm::from_bytes((self.rng.next() as u32).to_be_bytes()));
        let solicited = self.rng.one_in(4);
        let mut fence = self.rng.one_in(8);
        let mut expected = None;
        let mut lands = None;
        let mut changes = None;
        let (op, opcode, sges, bytes);
        match self.rng.range(0..=9) {
            0..=2 => {
                (sges, bytes) = self.gather(length);
                (op, opcode) = (SendOp::Send { imm }, WcOpcode::Send);
                expected = Some((WcOpcode::Recv, bytes.clone()));
            }
            3..=5 => {
                (sges, bytes) = self.gather(length);
                let range = self.range(length);
                (op, opcode) =
                    (SendOp::Write { remote: self.target.remote(range.start), imm }, WcOpcode::Write);
                self.shadow[range.start as usize..range.end as usize].copy_from_slice(&bytes);
                expected = imm.map(|_| (WcOpcode::RecvWriteImm, Vec::new()));
                changes = Some(range);
            }
            6..=7 => {
                let Some(at) = self.land(length) else { return false };
                let range = self.range(length);
                (op, opcode) = (SendOp::Read { remote: self.target.remote(range.start) }, WcOpcode::Read);
                sges = self.landing.elements(&mut self.rng, at, length);
                bytes = Vec::new();
                let data = self.shadow[range.start as usize..range.end as usize].to_vec();
                lands = Some((at, data));
                if fence {
                    self.unfenced.clear();
                }
                self.unfenced.push(range);
            }
            8 => {
                let Some(at) = self.land(8) else { return false };
                let word = self.rng.range(0..=self.shape.window / 8 - 1) * 8;
                let here = word as usize..word as usize + 8;
                let before = self.shadow[here.clone()].to_vec();
                let value = u64::from_ne_bytes(before.clone().try_into().unwrap());
                let remote = self.target.remote(word);
                let after = if self.rng.one_in(2) {
                    let add = self.rng.next();
                    (op, opcode) = (SendOp::FetchAdd { remote, add }, WcOpcode::FetchAdd);
                    value.wrapping_add(add)
                } else {
                    let swap = self.rng.next();
                    let compare = if self.rng.one_in(2) { value } else { self.rng.next() };
                    (op, opcode) = (SendOp::CompareSwap { remote, compare, swap }, WcOpcode::CompareSwap);
                    if compare == value { swap } else { value }
                };
                self.shadow[here].copy_from_slice(&after.to_ne_bytes());
                sges = vec![self.landing.sge(at, 8)];
                bytes = Vec::new();
                lands = Some((at, before));
                changes = Some(word..word + 8);
            }
            _ => {
                // What a READ before it brought, sent back at once: a fence is what makes this right.
                let last = self.posted.len().checked_sub(1);
                let found = last.and_then(|request| {
                    let place = self.places.iter_mut().find(|p| p.request == request)?;
                    let (at, data) = self.posted[request].lands.clone()?;
                    place.last_user = request + 1;
                    Some((at, data))
                });
                let Some((at, data)) = found else { return true };
                fence = true;
                sges = self.landing.elements(&mut self.rng, at, data.len() as u64);
                (op, opcode) = (SendOp::Send { imm }, WcOpcode::Send);
                bytes = data.clone();
                expected = Some((WcOpcode::Recv, data));
            }
        }
        if let Some(range) = &changes
            && self.unfenced.iter().any(|r| r.start < range.end && range.start < r.end)
        {
            fence = true;
        }
        if fence && !matches!(op, SendOp::Read { .. }) {
            self.unfenced.clear();
        }
        let length =
            if lands.is_some() { lands.as_ref().map_or(0, |l| l.1.len()) } else { bytes.len() } as u64;
        self.bytes += length.max(1);
        if let Some((opcode, bytes)) = expected {
            self.consuming += 1;
            let solicited = solicited && (opcode == WcOpcode::Recv || imm.is_some());
            self.expected.push_back(Expected { opcode, bytes, length, imm, solicited, fails: None });
        }
        let payload = match lands.is_none() && opcode != WcOpcode::Send && length <= 64 && self.rng.one_in(3)
        {
            true => Payload::Inline(&bytes),
            false => Payload::Sges(&sges),
        };
        let signaled = self.must_signal() || self.rng.one_in(self.shape.signal_every);
        let receives = self.consuming;
        self.posted.push(Posted { opcode, signaled, lands, changes, receives, fails: None });
        self.post_request(world, op, payload, (signaled, solicited, fence));
        true
    }

    /// Whether the next request must be signaled lest the queue fill with what does not show its end.
    fn must_signal(&self) -> bool {
        let silent = self.posted.iter().rev().take_while(|p| !p.signaled).count();
        let last =
            self.posted.len() as u64 + 1 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes;
        last || silent + 1 >= (self.shape.depth as usize).div_ceil(2)
    }

    fn post_request(
        &mut self,
        world: &mut World,
        op: SendOp,
        payload: Payload<'_>,
        (signaled, solicited, fence): (bool, bool, bool),
    ) {
        let id = self.posted.len() as u32 - 1;
        if world.verbose {
            eprintln!("{:>12} {}: {id} {op:?} signaled {signaled} fence {fence}", world.now.0, self.name);
        }
        let request = SendRequest { id, signaled, solicited, fence, op, payload };
        let host = &mut world.hosts[self.from];
        let (now, device) = (world.now, host.device);
        let result = host.engine.post_send(now, device, OWNER, self.qpn, &request, &mut host.log);
        assert_eq!(result, Ok(()), "{}: {id}", self.name);
    }

    /// Posts a request that must fail.
    fn post_poison(&mut self, world: &mut World) {
        let window = self.shape.window;
        let (op, opcode, status);
        let mut sges = vec![self.source.sge(0, 8)];
        let land = |stream: &Stream| vec![stream.landing.sge(0, 8)];
        match self.rng.range(0..=7) {
            0 => {
                (op, opcode) = (SendOp::Write { remote: self.barred.remote(0), imm: None }, WcOpcode::Write);
                status = WcStatus::RemAccess;
            }
            1 => {
                (op, opcode) =
                    (SendOp::Write { remote: self.target.remote(window - 4), imm: None }, WcOpcode::Write);
                status = WcStatus::RemAccess;
            }
            2 => {
                (op, opcode) = (SendOp::Read { remote: self.barred.remote(0) }, WcOpcode::Read);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            3 => {
                let remote = Remote { rkey: Rkey(self.target.key ^ 0x5500), ..self.target.remote(0) };
                (op, opcode) = (SendOp::Read { remote }, WcOpcode::Read);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            4 => {
                (op, opcode) =
                    (SendOp::FetchAdd { remote: self.target.remote(4), add: 1 }, WcOpcode::FetchAdd);
                (sges, status) = (land(self), WcStatus::RemInvReq);
            }
            5 => {
                let (compare, swap) = (0, 1);
                let remote = self.barred.remote(0);
                (op, opcode) = (SendOp::CompareSwap { remote, compare, swap }, WcOpcode::CompareSwap);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            6 => {
                (op, opcode) = (SendOp::Send { imm: None }, WcOpcode::Send);
                sges[0].lkey = Lkey(self.source.key ^ 0x5500);
                status = WcStatus::LocProt;
            }
            _ => {
                // More than the receive holds.
                (op, opcode) = (SendOp::Send { imm: None }, WcOpcode::Send);
                sges = vec![self.source.sge(0, self.shape.longest), self.source.sge(0, 8)];
                status = WcStatus::RemInvReq;
                self.consuming += 1;
                self.expected.push_back(Expected {
                    opcode: WcOpcode::Recv,
                    bytes: Vec::new(),
                    length: 0,
                    imm: None,
                    solicited: false,
                    fails: Some(WcStatus::LocLen),
                });
            }
        }
        self.bytes += 1;
        let receives = self.consuming;
        let fails = Some(status);
        self.posted.push(Posted { opcode, signaled: false, lands: None, changes: None, receives, fails });
        self.post_request(world, op, Payload::Sges(&sges), (false, false, false));
    }

    /// Takes this completion if it is of the stream.
    pub fn take(&mut self, host: usize, cq: CqId, completion: &Completion) -> bool {
        if (host, cq) == (self.to, self.recv_cq) && completion.qpn == self.peer_qpn {
            self.received(completion);
        } else if (host, cq) == (self.from, self.send_cq) && completion.qpn == self.qpn {
            self.sent(completion);
        } else {
            return false;
        }
        true
    }

    fn received(&mut self, c: &Completion) {
        let what = format!("{}: {c:?}", self.name);
        assert_eq!(u64::from(c.id), self.receives_ended, "receives end in order: {what}");
        assert!(self.receives_ended < self.receives_posted, "nobody posted this: {what}");
        let at = (self.receives_ended % u64::from(self.shape.receives) * self.slot) as usize;
        self.receives_ended += 1;
        if c.status == WcStatus::Flush {
            self.recv_failed = true;
            return;
        }
        assert!(!self.recv_failed, "after a failure: {what}");
        let expected = self.expected.pop_front().unwrap_or_else(|| panic!("no message was sent: {what}"));
        self.messages += 1;
        if let Some(status) = expected.fails {
            assert_eq!(c.status, status, "{what}");
            self.recv_failed = true;
            return;
        }
        assert_eq!(c.status, WcStatus::Success, "{what}");
        assert_eq!(c.opcode, expected.opcode, "{what}");
        assert_eq!(u64::from(c.byte_len), expected.length, "{what}");
        assert_eq!(c.imm, expected.imm, "{what}");
        assert_eq!(c.solicited, expected.solicited, "{what}");
        assert_eq!(c.src_qpn, self.qpn, "{what}");
        self.slots.memory.with(|slots| {
            let slot = &slots[at..at + self.slot as usize];
            let (message, rest) = slot.split_at(expected.bytes.len());
            assert!(message == expected.bytes, "other bytes than were sent: {what}");
            assert!(rest.iter().all(|b| *b == BLANK), "more bytes than were sent: {what}");
        });
    }

    fn sent(&mut self, c: &Completion) {
        let what = format!("{}: {c:?}", self.name);
        let id = c.id as usize;
        assert!((self.ended..self.posted.len()).contains(&id), "ended before, or never posted: {what}");
        let posted = &self.posted[id];
        assert_eq!(c.opcode, posted.opcode, "{what}");
        for between in self.ended..id {
            assert!(
                !self.posted[between].signaled && self.failed.is_none(),
                "{between} was overtaken: {what}"
            );
        }
        if self.failed.is_some() {
            assert_eq!(c.status, WcStatus::Flush, "{what}");
            self.ended = id + 1;
            return;
        }
        for done in self.ended..id {
            self.verify(done);
        }
        let posted = &self.posted[id];
        if c.status == WcStatus::Success {
            assert!(posted.signaled, "{what}");
            assert_eq!(posted.fails, None, "{what}");
            let length = posted.lands.as_ref().map_or(0, |(_, data)| data.len());
            assert_eq!(c.byte_len as usize, length, "{what}");
            assert!(self.messages >= posted.receives, "the receiver has not seen it: {what}");
            self.verify(id);
        } else {
            let may = match c.status {
                WcStatus::RetryExc => self.may_fail.retry,
                WcStatus::RnrRetryExc => self.may_fail.rnr,
                WcStatus::Flush => self.may_fail.flush,
                _ => false,
            };
            assert!(may || posted.fails == Some(c.status), "why? {what}");
            self.failed = Some((id, c.status));
        }
        self.ended = id + 1;
    }

    /// What a request that succeeded brought; then it is forgotten.
    fn verify(&mut self, request: usize) {
        let Some((at, data)) = &self.posted[request].lands.take() else { return };
        self.landing.memory.with(|landing| {
            let found = &landing[*at as usize..*at as usize + data.len()];
            if found != data {
                let from = found.iter().zip(data).position(|(a, b)| a != b);
                panic!("{}: {request} brought other bytes from {from:?} on, of {}", self.name, data.len());
            }
        });
    }

    /// The stream is over: everything has to be as the model says.
    pub fn check_end(&mut self, world: &World) {
        assert!(self.is_over(), "{}", self.status(world));
        // What was posted from the failed request on may have been carried out, or a part of it.
        let certain = self.failed.map_or(self.posted.len(), |(at, _)| at);
        self.unknown.extend(self.posted[certain..].iter().filter_map(|p| p.changes.clone()));
        let messages = certain.checked_sub(1).map_or(0, |last| self.posted[last].receives);
        assert!(self.messages >= messages, "{}: {} of {messages} messages came", self.name, self.messages);
        self.target.memory.with(|target| {
            let differs = |at: &usize| target[*at] != self.shadow[*at];
            let known = |at: &usize| !self.unknown.iter().any(|r| r.contains(&(*at as u64)));
            if let Some(at) = (0..target.len()).filter(differs).find(known) {
                panic!("{}: the peer's memory is wrong from {at:#x} on", self.name);
            }
        });
        self.barred.memory.with(|barred| assert!(barred.iter().all(|b| *b == BLANK), "{}", self.name));
    }

    /// Both QPs went to ERR: every receive has ended by now.
    pub fn check_flushed(&self) {
        assert_eq!(self.receives_ended, self.receives_posted, "{}", self.name);
    }

    /// How far it is, in words.
    pub fn status(&self, world: &World) -> String {
        let [from, to] = [(self.from, self.qpn), (self.to, self.peer_qpn)].map(|(host, qpn)| {
            let host = &world.hosts[host];
            host.engine.query_qp(host.device, qpn).map(|attr| (attr.state, attr.sq_psn, attr.rq_psn))
        });
        format!(
            "{}: {} of {} requests posted, {} ended ({:?}), {} receives posted, {} ended; requester {from:?}, responder {to:?}; {:?}",
            self.name,
            self.posted.len(),
            self.shape.requests,
            self.ended,
            self.failed,
            self.receives_posted,
            self.receives_ended,
            self.shape
        )
    }
}

/// Some time after `now`, at most `pause`.
fn soon(rng: &mut Rng, now: Instant, pause: u64) -> Instant {
    Instant(now.0 + rng.range(0..=pause))
}
