//! Every operation in every state of a QP, as a request and as a message, on each QP type.
//!
//! Tests run between QPs of one engine and with packets. They compare with a table of the
//! specification's rules, which is independent of the engine's own.

use super::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD, to};
use super::unreliable::CONNECT;
use super::wire::{A, B, Host, Net};
use super::*;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{Aeth, Body, Packet, Rc, ReadPart, Syndrome};

/// The specification's rules for an operation.
pub(super) struct Rule {
    pub(super) op: fn(Remote) -> SendOp,
    /// QP types that have the operation (table 38).
    pub(super) services: &'static [QpType],
    /// Opcode of the sender's completion. The next field is that of the receive it consumes.
    sent: WcOpcode,
    received: Option<WcOpcode>,
    /// Rights that the responder's QP and region have to give (9.7.4.1.4, 9.7.4.1.7; A19 for ATOMIC
    /// WRITE).
    remote: Access,
    /// Rights that the requester's elements need (10.6.3.1).
    local: Access,
    /// The answer on a reliable connection (9.7.5.1, A19).
    answer: Answer,
    /// Whether it accesses exactly the 8 bytes at a multiple of 8.
    pub(super) word: bool,
    /// Whether it has no payload (A19).
    pub(super) bare: bool,
    /// Contents of memory after its execution.
    effect: Contents,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Acknowledge,
    ReadResponse,
    AtomicAcknowledge,
    EmptyReadResponse,
}

/// The 8 bytes of each location that an operation may change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    /// At the requester, where returned data arrives.
    landing: [u8; 8],
    /// At the responder, the location that a request names.
    word: [u8; 8],
    /// At the responder, the receive's memory.
    receive: [u8; 8],
}

const OUT: [u8; 8] = *b"outbound";
const ORIGINAL: [u8; 8] = *b"original";
const SWAP: [u8; 8] = *b"swapped!";
/// The result of FETCH AND ADD of 1, in the guests' byte order.
const ADDED: [u8; 8] = (u64::from_ne_bytes(ORIGINAL) + 1).to_ne_bytes();
const UNTOUCHED: Contents = Contents { landing: [0; 8], word: ORIGINAL, receive: [0; 8] };
pub(super) const IMM: Option<Imm> = Some(Imm::from_bytes([9, 8, 7, 6]));

const RC: &[QpType] = &[QpType::Rc];
const CONNECTED: &[QpType] = &[QpType::Rc, QpType::Uc];
pub(super) const ALL: &[QpType] = &[QpType::Rc, QpType::Uc, QpType::Ud];

pub(super) const RULES: [Rule; 10] = [
    Rule {
        op: |_| SendOp::Send { imm: None },
        services: ALL,
        sent: WcOpcode::Send,
        received: Some(WcOpcode::Recv),
        remote: Access::NONE,
        local: Access::NONE,
        answer: Answer::Acknowledge,
        word: false,
        bare: false,
        effect: Contents { receive: OUT, ..UNTOUCHED },
    },
    Rule {
        op: |_| SendOp::Send { imm: IMM },
        services: ALL,
        sent: WcOpcode::Send,
        received: Some(WcOpcode::Recv),
        remote: Access::NONE,
        local: Access::NONE,
        answer: Answer::Acknowledge,
        word: false,
        bare: false,
        effect: Contents { receive: OUT, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::Write { remote, imm: None },
        services: CONNECTED,
        sent: WcOpcode::Write,
        received: None,
        remote: Access::REMOTE_WRITE,
        local: Access::NONE,
        answer: Answer::Acknowledge,
        word: false,
        bare: false,
        effect: Contents { word: OUT, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::Write { remote, imm: IMM },
        services: CONNECTED,
        sent: WcOpcode::Write,
        received: Some(WcOpcode::RecvWriteImm),
        remote: Access::REMOTE_WRITE,
        local: Access::NONE,
        answer: Answer::Acknowledge,
        word: false,
        bare: false,
        effect: Contents { word: OUT, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::Read { remote },
        services: RC,
        sent: WcOpcode::Read,
        received: None,
        remote: Access::REMOTE_READ,
        local: Access::LOCAL_WRITE,
        answer: Answer::ReadResponse,
        word: false,
        bare: false,
        effect: Contents { landing: ORIGINAL, ..UNTOUCHED },
    },
    Rule {
        op: |remote| {
            SendOp::atomic(
                remote,
                Atomic::CompareSwap { compare: u64::from_ne_bytes(ORIGINAL), swap: u64::from_ne_bytes(SWAP) },
            )
        },
        services: RC,
        sent: WcOpcode::CompareSwap,
        received: None,
        remote: Access::REMOTE_ATOMIC,
        local: Access::LOCAL_WRITE,
        answer: Answer::AtomicAcknowledge,
        word: true,
        bare: false,
        effect: Contents { landing: ORIGINAL, word: SWAP, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }),
        services: RC,
        sent: WcOpcode::FetchAdd,
        received: None,
        remote: Access::REMOTE_ATOMIC,
        local: Access::LOCAL_WRITE,
        answer: Answer::AtomicAcknowledge,
        word: true,
        bare: false,
        effect: Contents { landing: ORIGINAL, word: ADDED, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::AtomicWrite { remote },
        services: RC,
        sent: WcOpcode::AtomicWrite,
        received: None,
        remote: Access::REMOTE_WRITE,
        local: Access::NONE,
        answer: Answer::EmptyReadResponse,
        word: true,
        bare: false,
        effect: Contents { word: OUT, ..UNTOUCHED },
    },
    Rule {
        op: |remote| SendOp::Flush { remote, scope: flush(false) },
        services: RC,
        sent: WcOpcode::Flush,
        received: None,
        remote: Access::FLUSH_GLOBAL,
        local: Access::NONE,
        answer: Answer::EmptyReadResponse,
        word: false,
        bare: true,
        effect: UNTOUCHED,
    },
    Rule {
        op: |remote| SendOp::Flush { remote, scope: flush(true) },
        services: RC,
        sent: WcOpcode::Flush,
        received: None,
        remote: Access::FLUSH_GLOBAL,
        local: Access::NONE,
        answer: Answer::EmptyReadResponse,
        word: false,
        bare: true,
        effect: UNTOUCHED,
    },
];

const fn flush(whole: bool) -> FlushScope {
    FlushScope { placement: Placement::Global, whole, length: 8 }
}

const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

/// Returns the states of QPs of a type. An RC QP is never in SQE (10.3.1).
pub(super) fn states(service: QpType) -> impl Iterator<Item = QpState> {
    STATES.into_iter().filter(move |&state| service != QpType::Rc || state != Sqe)
}

/// Offset of outgoing data at the requester.
///
/// The next constants are the offsets of returned data at the requester, and of the request's and
/// the receive's memory at the responder.
const SOURCE: u64 = 0;
const LANDING: u64 = 8192;
const WORD: u64 = 16_384;
const RECEIVE: u64 = 32_768;
/// Bytes of the receive.
const ROOM: u32 = 8192;
/// Bytes that precede a datagram in its receive: the GRH (9.8.3).
const GRH: u32 = 40;
const MTU: u32 = 1024;

/// The path between two QPs.
pub(super) enum Topology {
    OneEngine(Box<Pair>),
    Packets(Box<Net>),
}

/// Two QPs: the requester A and the responder B.
pub(super) struct Walk {
    pub(super) service: QpType,
    pub(super) topology: Topology,
    pub(super) ends: [End; 2],
    /// The attributes for each QP's state changes.
    pub(super) attrs: [QpAttr; 2],
    /// The owner that posts.
    pub(super) poster: OwnerId,
}

/// Returns each QP type, between QPs of one engine and with packets.
pub(super) fn all_walks() -> impl Iterator<Item = (QpType, bool)> {
    ALL.iter().flat_map(|&service| [(service, false), (service, true)])
}

impl Walk {
    /// Creates both QPs, in RESET.
    pub(super) fn new(service: QpType, packets: bool) -> Walk {
        let (topology, ends, attrs) = match packets {
            true => {
                let net = Net::new(service);
                let (ends, attrs) =
                    ([A, B].map(|at| net.hosts[at].end.clone()), [A, B].map(|at| net.attr(at)));
                (Topology::Packets(Box::new(net)), ends, attrs)
            }
            false => {
                let mut pair = Pair::new();
                for end in [&mut pair.a, &mut pair.b] {
                    let init = QpInit { qp_type: service, ..qp_init(end.pd) };
                    end.qpn = pair.engine.create_qp(end.device, init).unwrap();
                }
                let (ends, attrs) = ([pair.a.clone(), pair.b.clone()], [attr_to(&pair.b), attr_to(&pair.a)]);
                (Topology::OneEngine(Box::new(pair)), ends, attrs)
            }
        };
        ends[A].memory.fill(SOURCE as usize, &OUT);
        ends[B].memory.fill(WORD as usize, &ORIGINAL);
        let attrs = attrs.map(|attr| QpAttr { qkey: QKEY, ..attr });
        Walk { service, topology, ends, attrs, poster: OWNER }
    }

    /// Creates both QPs in RTS, with a receive posted.
    pub(super) fn ready(service: QpType, packets: bool) -> Walk {
        let mut walk = Walk::new(service, packets);
        walk.make_ready();
        walk
    }

    pub(super) fn make_ready(&mut self) {
        self.go(A, Rts);
        self.go(B, Rts);
        self.post_receive();
    }

    /// Returns an end's engine, its log, and the time.
    pub(super) fn engine(&mut self, at: usize) -> (&mut Engine<Mem>, &mut Log, Instant) {
        match &mut self.topology {
            Topology::OneEngine(pair) => (&mut pair.engine, &mut pair.log, pair.now),
            Topology::Packets(net) => {
                let Host { engine, log, .. } = &mut net.hosts[at];
                (engine, log, net.now)
            }
        }
    }

    pub(super) fn modify(&mut self, at: usize, mask: AttrMask, attr: QpAttr) {
        let End { device, qpn, .. } = self.ends[at];
        let (engine, log, now) = self.engine(at);
        engine.modify_qp(now, device, qpn, mask, &attr, log).unwrap();
    }

    pub(super) fn query(&mut self, at: usize) -> QpAttr {
        let End { device, qpn, .. } = self.ends[at];
        self.engine(at).0.query_qp(device, qpn).unwrap()
    }

    /// Changes the state of a QP from RESET to `to`.
    pub(super) fn go(&mut self, at: usize, to: QpState) {
        let masks = match self.service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => [TO_INIT, TO_RTR, TO_RTS],
            QpType::Uc => [TO_INIT, CONNECT, AttrMask::STATE | AttrMask::SQ_PSN],
            QpType::Ud | QpType::Gsi => [TO_INIT_UD, AttrMask::STATE, TO_RTS_UD],
        };
        let steps = [Init, Rtr, Rts].into_iter().zip(masks);
        let last = STATES.iter().position(|&state| state == to).unwrap();
        for (state, mask) in steps.take(last) {
            self.modify(at, mask, QpAttr { state, ..self.attrs[at] });
        }
        match to {
            Reset | Init | Rtr | Rts => {}
            Sqd | Err => self.modify(at, AttrMask::STATE, QpAttr { state: to, ..QpAttr::default() }),
            Sqe => {
                // A request that cannot be sent leads to SQE.
                let nowhere = Sge { addr: 0, length: 1, lkey: Lkey(0xdead) };
                self.post(at, SEND, Payload::Sges(&[nowhere])).unwrap();
                self.run();
                let statuses: Vec<_> = self.completions(at).iter().map(|c| c.status).collect();
                assert_eq!(statuses, [WcStatus::LocProt]);
            }
        }
        assert_eq!(self.query(at).state, to);
    }

    pub(super) fn post(&mut self, at: usize, op: SendOp, payload: Payload<'_>) -> Result<(), PostError> {
        let (own, peer) = (self.ends[at].clone(), &self.ends[1 - at]);
        let target = Destination { dmac: self.attrs[at].dmac, ..to(&own, peer) };
        let (datagram, poster) = (self.service == QpType::Ud, self.poster);
        let (engine, log, now) = self.engine(at);
        let request = SendRequest { id: 7, signaled: true, solicited: false, fence: false, op, payload };
        match datagram {
            true => engine.post_datagram(now, own.device, poster, own.qpn, &request, &target, log),
            false => engine.post_send(now, own.device, poster, own.qpn, &request, log),
        }
    }

    /// Posts the request of a rule, for 8 bytes of the responder's word.
    fn post_rule(&mut self, rule: &Rule) -> Result<(), PostError> {
        let remote = self.ends[B].remote(WORD);
        self.post_with(rule, remote, 8)
    }

    fn post_with(&mut self, rule: &Rule, remote: Remote, length: u32) -> Result<(), PostError> {
        let at = if rule.local == Access::NONE { SOURCE } else { LANDING };
        let sge = [self.ends[A].sge(at, length)];
        let payload = if rule.bare { Payload::Sges(&[]) } else { Payload::Sges(&sge) };
        self.post(A, (rule.op)(remote), payload)
    }

    pub(super) fn post_receive(&mut self) {
        let End { device, qpn, .. } = self.ends[B];
        let (sges, poster) = ([self.ends[B].sge(RECEIVE, ROOM)], self.poster);
        let (engine, log, now) = self.engine(B);
        engine.post_recv(now, device, poster, qpn, RecvRequest { id: 9, sges: &sges }, log).unwrap();
    }

    pub(super) fn run(&mut self) {
        match &mut self.topology {
            Topology::OneEngine(pair) => pair.run(),
            Topology::Packets(net) => net.run(),
        }
    }

    /// Lets time pass until nothing waits for a deadline.
    pub(super) fn settle(&mut self) {
        match &mut self.topology {
            Topology::OneEngine(pair) => while pair.sleep().is_some() {},
            Topology::Packets(net) => net.settle(),
        }
    }

    pub(super) fn completions(&mut self, at: usize) -> Vec<Completion> {
        let device = self.ends[at].device;
        let (_, log, _) = self.engine(at);
        let (own, others) = log.completions.drain(..).partition(|it| it.0 == device);
        log.completions = others;
        let own: Vec<(DeviceId, CqId, Completion)> = own;
        own.into_iter().map(|it| it.2).collect()
    }

    /// Returns status and opcode of A's only completion.
    pub(super) fn end(&mut self) -> (WcStatus, WcOpcode) {
        let all = self.completions(A);
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].status, all[0].opcode)
    }

    pub(super) fn pending_receives(&mut self) -> u64 {
        let device = self.ends[B].device;
        self.engine(B).0.counts(device).pending_receives
    }

    fn contents(&self) -> Contents {
        let word = |end: &End, at: u64| end.memory.bytes(at as usize, 8).try_into().unwrap();
        let skipped = if self.service == QpType::Ud { GRH } else { 0 };
        let [a, b] = &self.ends;
        Contents {
            landing: word(a, LANDING),
            word: word(b, WORD),
            receive: word(b, RECEIVE + u64::from(skipped)),
        }
    }

    /// Asserts that the request was executed once, and that both completions say so.
    fn assert_executed(&mut self, rule: &Rule, case: &str) {
        let sent = self.completions(A);
        assert_eq!(sent.len(), 1, "{case}: {sent:?}");
        assert_eq!((sent[0].status, sent[0].opcode), (WcStatus::Success, rule.sent), "{case}");
        let came_back = if rule.local == Access::NONE { 0 } else { 8 };
        assert_eq!(sent[0].byte_len, came_back, "{case}");
        let received = self.completions(B);
        let opcodes: Vec<_> = received.iter().map(|c| (c.status, c.opcode)).collect();
        let expected: Vec<_> = rule.received.map(|opcode| (WcStatus::Success, opcode)).into_iter().collect();
        assert_eq!(opcodes, expected, "{case}");
        if let Some(completion) = received.first() {
            let (SendOp::Send { imm } | SendOp::Write { imm, .. }) = (rule.op)(Remote::default()) else {
                panic!("{case}: nothing else consumes a receive");
            };
            let header = if self.service == QpType::Ud { GRH } else { 0 };
            assert_eq!((completion.imm, completion.byte_len), (imm, 8 + header), "{case}");
            assert_eq!(completion.src_qpn, self.ends[A].qpn, "{case}");
        }
        assert_eq!(self.pending_receives(), u64::from(rule.received.is_none()), "{case}");
        assert_eq!(self.contents(), rule.effect, "{case}");
    }

    /// Asserts that nothing happened at the responder.
    pub(super) fn assert_untouched(&mut self, case: &str) {
        assert_eq!((self.completions(B), self.contents()), (vec![], UNTOUCHED), "{case}");
    }
}

impl Rule {
    pub(super) fn name(&self) -> String {
        format!("{:?}", (self.op)(Remote::default()))
    }

    fn is_of(&self, service: QpType) -> bool {
        self.services.contains(&service)
    }
}

/// With a ready responder, the requester's state and QP type decide about a request (10.3.1,
/// 11.4.1.1).
#[test]
fn requests_are_refused_sent_held_or_flushed_as_the_state_says() {
    for (service, packets) in all_walks() {
        for (rule, state) in RULES.iter().flat_map(|rule| states(service).map(move |state| (rule, state))) {
            let case = format!("{} on {service:?}, packets: {packets}, in {state:?}", rule.name());
            let mut walk = Walk::new(service, packets);
            walk.go(B, Rts);
            walk.post_receive();
            walk.go(A, state);
            let posted = walk.post_rule(rule);
            walk.run();
            if matches!(state, Reset | Init | Rtr) {
                assert_eq!(
                    (posted, walk.completions(A)),
                    (Result::Err(PostError::BadState), vec![]),
                    "{case}"
                );
                walk.assert_untouched(&case);
                continue;
            }
            assert_eq!(posted, Ok(()), "{case}");
            if state == Sqd {
                assert_eq!(walk.completions(A), vec![], "{case}");
                walk.assert_untouched(&case);
                walk.modify(A, AttrMask::STATE, QpAttr { state: Rts, ..QpAttr::default() });
                walk.run();
            }
            match state {
                Sqe | Err => {
                    assert_eq!(walk.end(), (WcStatus::Flush, rule.sent), "{case}");
                    walk.assert_untouched(&case);
                    assert_eq!(walk.query(A).state, state, "{case}");
                }
                _ if rule.is_of(service) => {
                    walk.assert_executed(rule, &case);
                    assert_eq!(walk.query(A).state, Rts, "{case}");
                }
                _ => {
                    assert_eq!(walk.end(), (WcStatus::LocQpOp, rule.sent), "{case}");
                    walk.assert_untouched(&case);
                    assert_eq!(walk.query(A).state, Sqe, "{case}");
                }
            }
        }
    }
}

/// With a ready requester, the responder's state decides whether a message is executed (10.3.1).
///
/// If it is not executed, a reliable requester gets no answer, and any other requester learns
/// nothing.
#[test]
fn messages_are_executed_or_ignored_as_the_receivers_state_says() {
    for (service, packets) in all_walks() {
        let rules = RULES.iter().filter(|rule| rule.is_of(service));
        for (rule, state) in rules.flat_map(|rule| states(service).map(move |state| (rule, state))) {
            let case = format!("{} to {service:?}, packets: {packets}, in {state:?}", rule.name());
            let mut walk = Walk::new(service, packets);
            walk.go(A, Rts);
            walk.go(B, state);
            if !matches!(state, Reset | Err) {
                walk.post_receive();
            }
            walk.post_rule(rule).unwrap();
            walk.run();
            if matches!(state, Rtr | Rts | Sqd | Sqe) {
                walk.assert_executed(rule, &case);
                let established = Event::CommEstablished(walk.ends[B].qpn);
                let told = walk.engine(B).1.events.iter().any(|(_, event)| *event == established);
                assert_eq!(told, state == Rtr && service != QpType::Ud, "{case}");
            } else {
                if service == QpType::Rc {
                    assert_eq!(walk.completions(A), vec![], "{case}");
                    walk.settle();
                }
                let status = if service == QpType::Rc { WcStatus::RetryExc } else { WcStatus::Success };
                assert_eq!(walk.end(), (status, rule.sent), "{case}");
                walk.assert_untouched(&case);
            }
            assert_eq!(walk.query(B).state, state, "{case}");
        }
    }
}

#[test]
fn packets_of_other_services_are_dropped_in_every_state() {
    for (from, at) in
        ALL.iter().flat_map(|&from| ALL.iter().map(move |&at| (from, at))).filter(|it| it.0 != it.1)
    {
        for (rule, state) in RULES.iter().flat_map(|rule| states(at).map(move |state| (rule, state))) {
            if !rule.is_of(from) {
                continue;
            }
            let case = format!("{} of {from:?} to {at:?} in {state:?}", rule.name());
            let mut sender = Walk::ready(from, true);
            sender.post_rule(rule).unwrap();
            let Topology::Packets(net) = &mut sender.topology else { unreachable!() };
            net.work(A);
            let frames = std::mem::take(&mut net.hosts[A].cable.frames);
            assert!(!frames.is_empty(), "{case}");
            let mut walk = Walk::new(at, true);
            assert_eq!(walk.ends[B].qpn, sender.ends[B].qpn);
            walk.go(B, state);
            if !matches!(state, Reset | Err) {
                walk.post_receive();
            }
            let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
            frames.iter().for_each(|frame| net.deliver(A, frame));
            assert_eq!(net.hosts[B].counters().drop_service, frames.len() as u64, "{case}");
            assert_eq!(net.answers(B), [], "{case}");
            walk.assert_untouched(&case);
            assert_eq!(walk.query(B).state, state, "{case}");
        }
    }
}

/// Returns all sets of rights.
fn sets_of_rights() -> impl Iterator<Item = Access> {
    (0..=Access::ALL.0).flat_map(|rights| [Access(rights), Access(rights) | Access::FLUSH_GLOBAL])
}

#[test]
fn the_responder_has_to_give_exactly_the_rights_that_an_operation_needs() {
    let remote = |rule: &&Rule| rule.remote != Access::NONE;
    for (service, packets) in all_walks().filter(|it| it.0 != QpType::Ud) {
        for rule in RULES.iter().filter(remote).filter(|rule| rule.is_of(service)) {
            for (rights, of_qp) in sets_of_rights().flat_map(|rights| [(rights, true), (rights, false)]) {
                let case = format!("{} on {service:?}, packets: {packets}, {rights:?} {of_qp}", rule.name());
                let mut walk = Walk::new(service, packets);
                let End { device, pd, ref memory, key, .. } = walk.ends[B].clone();
                let mut rkey = Rkey(key);
                if of_qp {
                    walk.attrs[B].access = rights;
                } else {
                    let (engine, ..) = walk.engine(B);
                    // A set with a remote right to write needs the local one. Other sets are
                    // rejected.
                    match engine.reg_mr(device, pd, rights, IOVA, 1 << 20, memory.clone()) {
                        Ok(key) => rkey = Rkey(key),
                        Result::Err(_) => continue,
                    }
                }
                walk.make_ready();
                let place = Remote { rkey, ..walk.ends[B].remote(WORD) };
                walk.post_with(rule, place, 8).unwrap();
                walk.run();
                if rights.contains(rule.remote) {
                    walk.assert_executed(rule, &case);
                    continue;
                }
                let status = match (service, of_qp) {
                    (QpType::Rc, true) => WcStatus::RemInvReq,
                    (QpType::Rc, false) => WcStatus::RemAccess,
                    _ => WcStatus::Success,
                };
                assert_eq!(walk.end(), (status, rule.sent), "{case}");
                assert_eq!(walk.contents(), UNTOUCHED, "{case}");
            }
        }
    }
}

#[test]
fn the_requester_has_to_give_the_right_to_write_what_comes_back() {
    for (service, packets) in all_walks() {
        for rule in RULES.iter().filter(|rule| rule.is_of(service)) {
            for rights in [Access::NONE, Access::LOCAL_WRITE] {
                let case = format!("{} on {service:?}, packets: {packets}, {rights:?}", rule.name());
                let mut walk = Walk::ready(service, packets);
                let End { device, pd, ref memory, .. } = walk.ends[A].clone();
                let key = walk.engine(A).0.reg_mr(device, pd, rights, IOVA, 1 << 20, memory.clone()).unwrap();
                walk.ends[A].key = key;
                walk.post_rule(rule).unwrap();
                walk.run();
                if rights.contains(rule.local) {
                    walk.assert_executed(rule, &case);
                } else {
                    assert_eq!(walk.end(), (WcStatus::LocProt, rule.sent), "{case}");
                    walk.assert_untouched(&case);
                }
            }
        }
    }
}

#[test]
fn a_receive_has_to_be_writable_where_a_message_goes_into_it() {
    for (service, packets) in all_walks() {
        for rule in RULES.iter().filter(|rule| rule.is_of(service)) {
            let case = format!("{} on {service:?}, packets: {packets}", rule.name());
            let mut walk = Walk::new(service, packets);
            let End { device, pd, ref memory, key: whole, .. } = walk.ends[B].clone();
            let rights = Access::REMOTE_READ;
            let key = walk.engine(B).0.reg_mr(device, pd, rights, IOVA, 1 << 20, memory.clone()).unwrap();
            walk.ends[B].key = key;
            walk.make_ready();
            walk.ends[B].key = whole;
            walk.post_rule(rule).unwrap();
            walk.run();
            if rule.effect.receive == UNTOUCHED.receive {
                walk.assert_executed(rule, &case);
                continue;
            }
            let status = if service == QpType::Rc { WcStatus::RemOp } else { WcStatus::Success };
            assert_eq!(walk.end(), (status, rule.sent), "{case}");
            let received: Vec<_> = walk.completions(B).iter().map(|c| c.status).collect();
            assert_eq!((received, walk.query(B).state), (vec![WcStatus::LocProt], Err), "{case}");
            assert_eq!(walk.contents(), UNTOUCHED, "{case}");
        }
    }
}

/// Atomics have 8 bytes at a multiple of 8 (9.4.5, A19). Other operations have no such rule.
#[test]
fn words_are_of_8_bytes_at_a_multiple_of_8() {
    for (service, packets) in all_walks() {
        for rule in RULES.iter().filter(|rule| rule.is_of(service)) {
            for (length, offset) in [(0, 0), (1, 0), (7, 0), (9, 0), (16, 0), (8, 1), (8, 4), (8, 8)] {
                let case = format!("{} on {service:?}, packets: {packets}, {length} {offset}", rule.name());
                let mut walk = Walk::ready(service, packets);
                let place = walk.ends[B].remote(WORD + offset);
                walk.post_with(rule, place, length).unwrap();
                walk.run();
                let status = match rule.word {
                    true if length != 8 => WcStatus::LocLen,
                    true if offset % 8 != 0 => WcStatus::RemInvReq,
                    _ => WcStatus::Success,
                };
                assert_eq!(walk.end(), (status, rule.sent), "{case}");
            }
        }
    }
}

/// A message takes the PSNs of its packets. One answered with data takes those of its responses.
///
/// Sources: 9.7.3.2, 9.7.4.1.6, 9.7.5.1.5.
#[test]
fn messages_take_the_psns_of_their_packets_or_responses() {
    for (service, packets) in all_walks() {
        for rule in RULES.iter().filter(|rule| rule.is_of(service)) {
            for length in [0, 1, 8, MTU, MTU + 1, 3 * MTU] {
                if rule.word && length != 8 || service == QpType::Ud && length > MTU {
                    continue;
                }
                let case = format!("{} of {length} bytes on {service:?}, packets: {packets}", rule.name());
                let mut walk = Walk::ready(service, packets);
                let before = [walk.query(A).sq_psn, walk.query(B).rq_psn];
                let place = walk.ends[B].remote(WORD);
                walk.post_with(rule, place, length).unwrap();
                walk.run();
                assert_eq!(walk.end(), (WcStatus::Success, rule.sent), "{case}");
                let psns = if rule.bare { 1 } else { length.div_ceil(MTU).max(1) };
                let after = [walk.query(A).sq_psn, walk.query(B).rq_psn];
                // The receiver of a datagram counts no PSNs.
                let expected = [psns, if service == QpType::Ud { 0 } else { psns }];
                assert_eq!(after, [0, 1].map(|at| before[at].add(expected[at])), "{case}");
                let Topology::Packets(net) = &mut walk.topology else { continue };
                let requests = if rule.answer == Answer::ReadResponse { 1 } else { psns };
                let responses = net.hosts[B].counters().packets_out;
                assert_eq!(net.hosts[B].counters().packets_in, u64::from(requests), "{case}");
                match (service, rule.answer) {
                    (QpType::Rc, Answer::ReadResponse) => assert_eq!(responses, u64::from(psns), "{case}"),
                    (QpType::Rc, _) => assert_eq!(responses, 1, "{case}"),
                    _ => assert_eq!(responses, 0, "{case}"),
                }
            }
        }
    }
}

#[test]
fn reliable_responders_answer_as_the_operation_says() {
    for rule in &RULES {
        let mut walk = Walk::ready(QpType::Rc, true);
        walk.post_rule(rule).unwrap();
        let Topology::Packets(net) = &mut walk.topology else { unreachable!() };
        net.work(A);
        net.carry(A, |_, _| true);
        net.work(B);
        let frames = std::mem::take(&mut net.hosts[B].cable.frames);
        assert_eq!(frames.len(), 1, "{}", rule.name());
        let parsed = Packet::parse(&frames[0]).unwrap();
        let is_ack = |aeth: Aeth| matches!(aeth.syndrome, Syndrome::Ack(_));
        let answer = match parsed.packet.body {
            Body::Rc(Rc::Ack(aeth)) if is_ack(aeth) => Answer::Acknowledge,
            Body::Rc(Rc::AtomicAck(aeth, before)) if is_ack(aeth) => {
                assert_eq!(before.to_ne_bytes(), ORIGINAL);
                Answer::AtomicAcknowledge
            }
            Body::Rc(Rc::ReadResponse(ReadPart::Only(aeth))) if is_ack(aeth) && parsed.payload.is_empty() => {
                Answer::EmptyReadResponse
            }
            Body::Rc(Rc::ReadResponse(ReadPart::Only(aeth))) if is_ack(aeth) => {
                assert_eq!(parsed.payload, ORIGINAL);
                Answer::ReadResponse
            }
            body => panic!("{}: {body:?}", rule.name()),
        };
        assert_eq!(answer, rule.answer, "{}", rule.name());
        net.deliver(B, &frames[0]);
        net.run();
        walk.assert_executed(rule, &rule.name());
    }
}

/// Operations with more than an ACK as answer need READ and atomic resources at both ends.
///
/// Sources: 9.7.4.1.5, 11.2.5.2.
#[test]
fn who_has_nothing_for_reads_and_atomics_sends_and_takes_none() {
    for (rule, packets) in RULES.iter().flat_map(|rule| [(rule, false), (rule, true)]) {
        for (requester, responder) in [(0, 4), (4, 0), (1, 1)] {
            let case = format!("{}, packets: {packets}, {requester} {responder}", rule.name());
            let mut walk = Walk::new(QpType::Rc, packets);
            walk.attrs[A].max_rd_atomic = requester;
            walk.attrs[B].max_dest_rd_atomic = responder;
            walk.make_ready();
            walk.post_rule(rule).unwrap();
            walk.run();
            let status = match (rule.answer, requester, responder) {
                (Answer::Acknowledge, ..) | (_, 1, 1) => WcStatus::Success,
                (_, 0, _) => WcStatus::LocQpOp,
                _ => WcStatus::RemInvReq,
            };
            assert_eq!(walk.end(), (status, rule.sent), "{case}");
        }
    }
}
