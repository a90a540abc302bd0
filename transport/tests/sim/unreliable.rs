//! Messages without acknowledgment, of unreliable connections and datagrams.
//!
//! Each message arrives whole or not at all. If nothing is lost and there is a receive for each,
//! all arrive once and in order. Each WRITE has a target range of its own, so that its result is
//! still there at the end.

use crate::area::Area;
use crate::flow::Flow;
use crate::link::is_forged;
use crate::rng::Rng;
use crate::stream::{BLANK, Shape, soon};
use crate::world::{Guest, OWNER, World};
use vrdma_transport::*;
use vrdma_wire::num::{Gid, Imm, Mac, Qkey, Qpn};

/// The length of the GRH, which precedes a datagram in its receive.
const GRH: u64 = 40;
/// The Q_Key of all datagram QPs.
pub const QKEY: Qkey = Qkey(0x1234_5678);

/// What may happen to messages on the way to the receiver.
#[derive(Clone, Copy)]
pub struct Passage {
    /// No message is lost, and none comes from a stranger.
    pub complete: bool,
    /// No message arrives twice, or after a later one.
    pub in_order: bool,
    /// A header may be corrupted where no check covers it.
    pub bent: bool,
}

/// What the receiver must see of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A receive that has it.
    Send,
    /// Bytes at this offset, and a receive if there is immediate data.
    Write(u64),
    /// Nothing: the message is longer than any receive.
    TooLong,
    /// Nothing: the target memory must not be written.
    Barred,
    /// Nothing: the service does not have the operation, and the request fails.
    Refused,
}

struct Message {
    kind: Kind,
    /// The offset of its bytes in the source.
    at: u64,
    length: u64,
    imm: Option<Imm>,
    solicited: bool,
    signaled: bool,
    /// How many receives had it.
    arrived: u32,
}

impl Message {
    /// Returns whether it consumes a receive.
    fn consumes(&self) -> bool {
        match self.kind {
            Kind::Send => true,
            Kind::Write(_) => self.imm.is_some(),
            Kind::TooLong | Kind::Barred | Kind::Refused => false,
        }
    }
}

/// An end of a flow: the guest, its QP and its CQ.
pub type End = (usize, Qpn, CqId);

pub struct Unreliable {
    name: String,
    datagrams: bool,
    from: End,
    to: End,
    srq: Option<SrqId>,
    shape: Shape,
    passage: Passage,
    /// Each message that needs a receive has one before it is sent.
    plenty: bool,
    rng: Rng,

    messages: Vec<Message>,
    source: Area,
    target: Area,
    barred: Area,
    slots: Area,
    slot: u64,
    /// The bytes that a receive has room for.
    room: u64,

    posted: usize,
    ended: usize,
    /// The request that failed.
    failed: Option<usize>,
    /// The number of receives that the messages posted so far consume.
    consuming: u64,
    receives_posted: u64,
    receives_ended: u64,
    flushed: bool,
    last_arrived: Option<usize>,

    next_send: Instant,
    next_recv: Instant,
}

impl Unreliable {
    /// Creates a flow of messages of at most `longest` bytes.
    #[allow(clippy::too_many_arguments, reason = "each end has as many")]
    pub fn new(
        world: &mut World,
        name: String,
        datagrams: bool,
        (from, to): (End, End),
        srq: Option<SrqId>,
        shape: Shape,
        passage: Passage,
        mut rng: Rng,
    ) -> Unreliable {
        let room = shape.longest;
        let messages = make_messages(&mut rng, datagrams, &shape);
        let bytes = messages.iter().map(|message| message.length).sum::<u64>();
        let mut source = vec![0; bytes.max(1) as usize];
        rng.fill(&mut source);
        for (number, message) in messages.iter().enumerate().filter(|(_, message)| message.imm.is_none()) {
            if message.length >= 4 {
                source[message.at as usize..][..4].copy_from_slice(&(number as u32).to_be_bytes());
            }
        }
        let slot = GRH + room + 64;
        let blank = |length: u64| vec![BLANK; length as usize];
        let local = Access::LOCAL_WRITE;
        let source = Area::new(world, from.0, &mut rng, Access::NONE, source);
        let target = Area::new(world, to.0, &mut rng, Access::ALL, blank(bytes.max(1)));
        let barred = Area::new(world, to.0, &mut rng, local, blank(bytes.max(1)));
        let slots = Area::new(world, to.0, &mut rng, local, blank(slot * u64::from(shape.receives)));
        let plenty = passage.complete && rng.one_in(2);
        let now = world.now;
        let (next_send, next_recv) =
            (soon(&mut rng, now, shape.send_pause), soon(&mut rng, now, shape.recv_pause));
        Unreliable {
            name,
            datagrams,
            from,
            to,
            srq,
            shape,
            passage,
            plenty,
            rng,
            messages,
            source,
            target,
            barred,
            slots,
            slot,
            room,
            posted: 0,
            ended: 0,
            failed: None,
            consuming: 0,
            receives_posted: 0,
            receives_ended: 0,
            flushed: false,
            last_arrived: None,
            next_send,
            next_recv,
        }
    }

    fn wants_to_post(&self) -> bool {
        let Some(message) = self.messages.get(self.posted) else { return false };
        let room = self.posted - self.ended < self.shape.depth as usize;
        let awaits_receive = self.plenty && message.consumes() && self.consuming >= self.receives_posted;
        room && self.failed.is_none() && !awaits_receive
    }

    fn wants_receives(&self) -> bool {
        let open = self.receives_posted - self.receives_ended < u64::from(self.shape.receives);
        let all = self.messages.iter().filter(|message| message.consumes()).count() as u64;
        open && !self.flushed && self.receives_posted < all + 4
    }

    fn post_receive(&mut self, world: &mut World) {
        let at = self.receives_posted % u64::from(self.shape.receives) * self.slot;
        self.slots.memory.fill(at as usize..(at + self.slot) as usize, BLANK);
        let length = if self.datagrams { GRH + self.room } else { self.room };
        let sges = self.slots.elements(&mut self.rng, at, length);
        let request = RecvRequest { id: self.receives_posted as u32, sges: &sges };
        let (now, Guest { device, .. }) = (world.now, world.guests[self.to.0]);
        let (engine, log) = world.engine(self.to.0);
        let result = match self.srq {
            Some(srq) => engine.post_srq_recv(device, OWNER, srq, request, log),
            None => engine.post_recv(now, device, OWNER, self.to.1, request, log),
        };
        assert_eq!(result, Ok(()), "{}: receive {}", self.name, self.receives_posted);
        self.receives_posted += 1;
    }

    fn post(&mut self, world: &mut World) {
        let id = self.posted;
        let Message { kind, at, length, imm, solicited, signaled, .. } = self.messages[id];
        let op = match kind {
            Kind::Send | Kind::TooLong => SendOp::Send { imm },
            Kind::Write(to) => SendOp::Write { remote: self.target.remote(to), imm },
            Kind::Barred => SendOp::Write { remote: self.barred.remote(0), imm },
            Kind::Refused => SendOp::Read { remote: self.target.remote(0) },
        };
        let sges = self.source.elements(&mut self.rng, at, length);
        let bytes = self.source.memory.bytes(at as usize, length as usize);
        let inline = length <= 64 && kind != Kind::Refused && self.rng.one_in(3);
        let payload = if inline { Payload::Inline(&bytes) } else { Payload::Sges(&sges) };
        if world.verbose {
            eprintln!("{:>12} {}: {id} {op:?} of {length} bytes", world.now.0, self.name);
        }
        let fence = self.rng.one_in(8);
        let request = SendRequest { id: id as u32, signaled, solicited, fence, op, payload };
        let (now, own, peer) = (world.now, world.guests[self.from.0], world.guests[self.to.0]);
        let destination = to(&own, &peer, self.to.1);
        let (engine, log) = world.engine(self.from.0);
        let result = match self.datagrams {
            true => engine.post_datagram(now, own.device, OWNER, self.from.1, &request, &destination, log),
            false => engine.post_send(now, own.device, OWNER, self.from.1, &request, log),
        };
        assert_eq!(result, Ok(()), "{}: {id}", self.name);
        self.consuming += u64::from(self.messages[id].consumes());
        self.posted += 1;
    }

    fn sent(&mut self, c: &Completion) {
        let what = format!("{}: {c:?}", self.name);
        let id = c.id as usize;
        assert!((self.ended..self.posted).contains(&id), "ended before, or never posted: {what}");
        for between in self.ended..id {
            let silent = !self.messages[between].signaled && self.failed.is_none();
            assert!(silent, "{between} was overtaken: {what}");
        }
        self.ended = id + 1;
        let message = &self.messages[id];
        let expected = match message.kind {
            _ if self.failed.is_some() => WcStatus::Flush,
            Kind::Refused => WcStatus::LocQpOp,
            _ => WcStatus::Success,
        };
        assert_eq!(c.status, expected, "{what}");
        assert!(message.signaled || c.status != WcStatus::Success, "{what}");
        if c.status != WcStatus::Success {
            self.failed.get_or_insert(id);
        }
    }

    fn received(&mut self, c: &Completion, world: &World) {
        let what = format!("{}: {c:?}", self.name);
        assert_eq!(u64::from(c.id), self.receives_ended, "receives end in order: {what}");
        assert!(self.receives_ended < self.receives_posted, "nobody posted this: {what}");
        let at = self.receives_ended % u64::from(self.shape.receives) * self.slot;
        self.receives_ended += 1;
        if c.status == WcStatus::Flush {
            self.flushed = true;
            return;
        }
        assert!(!self.flushed, "after a flush: {what}");
        assert_eq!(c.status, WcStatus::Success, "{what}");
        let slot = self.slots.memory.bytes(at as usize, self.slot as usize);
        let (header, slot) = slot.split_at(if self.datagrams { GRH as usize } else { 0 });
        if self.datagrams && self.is_of_somebody_else(header, world) {
            return;
        }
        let number = match c.imm {
            Some(imm) => u32::from_be_bytes(imm.to_bytes()),
            None => u32::from_be_bytes(slot[..4].try_into().expect("four bytes")),
        } as usize;
        assert!(number < self.posted, "no such message was sent: {what}");
        let message = &mut self.messages[number];
        let (opcode, bytes) = match message.kind {
            Kind::Send => {
                (WcOpcode::Recv, self.source.memory.bytes(message.at as usize, message.length as usize))
            }
            Kind::Write(_) => (WcOpcode::RecvWriteImm, Vec::new()),
            kind => panic!("{kind:?} does not arrive: {what}"),
        };
        assert!(slot[..bytes.len()] == bytes, "other bytes than were sent: {what}");
        if self.is_complete(world) && !self.messages.iter().any(|message| message.kind == Kind::TooLong) {
            assert!(slot[bytes.len()..].iter().all(|&b| b == BLANK), "more bytes than were sent: {what}");
        }
        let message = &mut self.messages[number];
        message.arrived += 1;
        let header = if self.datagrams { GRH } else { 0 };
        assert_eq!((c.opcode, u64::from(c.byte_len)), (opcode, header + message.length), "{what}");
        assert_eq!((c.imm, c.solicited, c.src_qpn), (message.imm, message.solicited, self.from.1), "{what}");
        let arrival = self.datagrams.then(|| Arrival { smac: world.guests[self.from.0].mac, vlan: None });
        assert!(c.arrival == arrival || self.passage.bent, "{what}");
        if self.passage.in_order {
            assert!(self.last_arrived.is_none_or(|last| last < number), "out of order, or twice: {what}");
        }
        self.last_arrived = Some(number);
    }

    /// Returns whether no packet was lost by the link or by the receiving device.
    ///
    /// The device queues only a limited number of packets while it looks for a receive.
    fn is_complete(&self, world: &World) -> bool {
        self.passage.complete && world.counters(self.to.0).drop_held == 0
    }

    /// Returns whether a datagram comes from a stranger. Anyone who knows QPN and Q_Key may send
    /// one.
    fn is_of_somebody_else(&self, header: &[u8], world: &World) -> bool {
        let words = |at: usize| -> [u8; 16] { header[at..at + 16].try_into().expect("within the header") };
        let v4 = |at: usize| Gid::from_ipv4(header[at..at + 4].try_into().expect("within the header"));
        let own = world.guests[self.to.0].gid;
        let (src, dst) = match own.ipv4() {
            Some(_) => (v4(32), v4(36)),
            None => (Gid(words(8)), Gid(words(24))),
        };
        assert_eq!(dst, own, "{}: a datagram for somebody else", self.name);
        if src == world.guests[self.from.0].gid {
            return false;
        }
        assert!(is_forged(src) && !self.passage.complete, "{}: from {src:?}", self.name);
        true
    }
}

/// Makes all messages of a flow.
fn make_messages(rng: &mut Rng, datagrams: bool, shape: &Shape) -> Vec<Message> {
    let (mut messages, mut at, mut silent) = (Vec::new(), 0, 0);
    // Requests after a refused one are flushed.
    let refused = shape.poison.then(|| shape.requests.saturating_sub(1 + rng.range(0..=3) as u32));
    for number in 0..shape.requests {
        let last = number + 1 == shape.requests;
        let mut length = rng.length(shape.longest);
        let mut imm = rng.one_in(2).then(|| Imm::from_bytes(number.to_be_bytes()));
        let kind = match rng.range(0..=19) {
            _ if refused == Some(number) => Kind::Refused,
            0 if !datagrams => Kind::TooLong,
            1 if !datagrams => Kind::Barred,
            2..=9 if !datagrams => Kind::Write(at),
            _ => Kind::Send,
        };
        match kind {
            Kind::TooLong => length = shape.longest + 1 + rng.range(0..=200),
            // The number of the message must be somewhere.
            Kind::Send if imm.is_none() && length < 4 => imm = Some(Imm::from_bytes(number.to_be_bytes())),
            Kind::Barred => length = length.max(1),
            _ => {}
        }
        let signaled = last || silent + 1 >= shape.depth.div_ceil(2) || rng.one_in(shape.signal_every);
        silent = if signaled { 0 } else { silent + 1 };
        let solicited = rng.one_in(4) && (matches!(kind, Kind::Send) || imm.is_some());
        messages.push(Message { kind, at, length, imm, solicited, signaled, arrived: 0 });
        at += length;
    }
    messages
}

/// Returns the destination of a guest's datagrams to a QP of another guest.
fn to(own: &Guest, peer: &Guest, qpn: Qpn) -> Destination {
    Destination {
        pd: own.pd,
        qpn,
        qkey: QKEY,
        dgid: peer.gid,
        dmac: Mac(peer.mac.0),
        sgid_index: 0,
        sl: 0,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        udp_sport: 0,
        vlan: None,
    }
}

impl Flow for Unreliable {
    fn act(&mut self, world: &mut World) {
        let now = world.now;
        if self.wants_receives() && self.next_recv <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_receives() {
                    self.post_receive(world);
                }
            }
            self.next_recv = soon(&mut self.rng, now, self.shape.recv_pause);
        }
        if self.wants_to_post() && self.next_send <= now {
            for _ in 0..self.rng.range(1..=8) {
                if self.wants_to_post() {
                    self.post(world);
                }
            }
            self.next_send = soon(&mut self.rng, now, self.shape.send_pause);
        }
    }

    fn next(&self) -> Option<Instant> {
        let send = Some(self.next_send).filter(|_| self.wants_to_post());
        let recv = Some(self.next_recv).filter(|_| self.wants_receives());
        send.into_iter().chain(recv).min()
    }

    fn is_over(&self) -> bool {
        self.ended == self.posted && (self.failed.is_some() || self.posted == self.messages.len())
    }

    fn take(&mut self, world: &World, guest: usize, cq: CqId, completion: &Completion) -> bool {
        if (guest, completion.qpn, cq) == self.to {
            self.received(completion, world);
        } else if (guest, completion.qpn, cq) == self.from {
            self.sent(completion);
        } else {
            return false;
        }
        true
    }

    fn check_end(&mut self, world: &World) {
        assert!(self.is_over(), "{}", self.status(world));
        let complete = self.is_complete(world);
        let (sent, unsent) = self.messages.split_at(self.failed.unwrap_or(self.posted));
        for (number, message) in sent.iter().enumerate() {
            let Message { kind, at, length, arrived, .. } = *message;
            let what = format!("{}: message {number}, {kind:?}, arrived {arrived} times", self.name);
            if complete && self.plenty {
                assert_eq!(arrived, u32::from(message.consumes()), "{what}");
            }
            let Kind::Write(to) = kind else { continue };
            let sent = self.source.memory.bytes(at as usize, length as usize);
            let there = self.target.memory.bytes(to as usize, length as usize);
            // A WRITE whose immediate data has no receive is not written to its end.
            let whole = arrived > 0 || complete && (self.plenty || !message.consumes());
            let right = |(there, sent): (&u8, &u8)| there == sent || !whole && *there == BLANK;
            assert!(there.iter().zip(&sent).all(right), "{what}: the peer's memory is wrong");
        }
        assert!(unsent.iter().all(|message| message.arrived == 0), "{}", self.status(world));
        let others = sent.iter().filter(|message| !matches!(message.kind, Kind::Write(_)));
        for Message { at, length, kind, .. } in others.chain(unsent) {
            let there = self.target.memory.bytes(*at as usize, *length as usize);
            assert!(there.iter().all(|&b| b == BLANK), "{}: {kind:?} wrote to {at}", self.name);
        }
        self.barred.memory.with(|barred| assert!(barred.iter().all(|b| *b == BLANK), "{}", self.name));
    }

    fn receives_left(&self, guest: usize) -> u64 {
        let left = self.receives_posted - self.receives_ended;
        assert!(left == 0 || self.srq.is_some(), "{}", self.name);
        if guest == self.to.0 { left } else { 0 }
    }

    fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.length).sum()
    }

    fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn status(&self, _: &World) -> String {
        let arrived: u32 = self.messages.iter().map(|message| message.arrived).sum();
        format!(
            "{}: {} of {} requests posted, {} ended, {arrived} arrived, {} receives posted, {} ended; plenty: {}",
            self.name,
            self.posted,
            self.messages.len(),
            self.ended,
            self.receives_posted,
            self.receives_ended,
            self.plenty
        )
    }
}
