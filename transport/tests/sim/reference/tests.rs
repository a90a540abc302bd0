//! The habits of reference peers, packet by packet.

use super::packet::{Incoming, Kind, Outgoing, ack};
use super::regions::Regions;
use super::requester::Requester;
use super::responder::Responder;
use crate::memory::Mem;
use vrdma_transport::{
    Access, Instant, Payload, QpAttr, Remote, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use vrdma_wire::num::{AethMsn, Lkey, Mtu, Psn, Qpn, Rkey};
use vrdma_wire::roce::{
    Aeth, AtomicEth, AtomicKind, Bth, NakCode, Part, Rc, ReadPart, Reth, RnrTimer, SendTail, Syndrome,
};

const NOW: Instant = Instant(1_000_000);
const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

fn attr() -> QpAttr {
    QpAttr {
        path_mtu: Mtu::M256,
        rq_psn: Psn::truncate(0xff_fffe),
        sq_psn: Psn::truncate(0xff_fffe),
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        min_rnr_timer: 3,
        timeout: 1,
        retry_cnt: 1,
        rnr_retry: 1,
        ..QpAttr::default()
    }
}

/// Returns 4096 bytes of memory at 0x1000, and the key.
fn memory() -> (Regions, u32) {
    let mut regions = Regions::default();
    let bytes = (0..4096).map(|n| (n / 16) as u8).collect();
    let key = regions.add(Access::ALL, 0x1000, Mem::new(bytes));
    (regions, key)
}

/// The PSNs of the tests begin with 0, near the end of their range.
fn psn(number: u32) -> Psn {
    Psn::truncate(0xff_fffe).add(number)
}

fn number(of: Psn) -> u32 {
    of.add(2).number()
}

fn number_of(packet: &Outgoing) -> u32 {
    number(packet.psn)
}

/// A responder and its memory.
struct Answers {
    responder: Responder,
    regions: Regions,
    key: u32,
}

impl Answers {
    fn new(kind: Kind) -> Answers {
        let (regions, key) = memory();
        Answers { responder: Responder::new(kind, Qpn::truncate(7), &attr()), regions, key }
    }

    /// Handles a request. Returns the packets that answer it at once.
    fn to(&mut self, number: u32, body: Rc, payload: &[u8]) -> Vec<Outgoing> {
        let bth = Bth { psn: psn(number), ack_req: true, ..Bth::default() };
        self.responder.handle(NOW, &self.regions, Incoming { bth, body, payload: payload.to_vec() });
        std::iter::from_fn(|| self.responder.next(NOW, &self.regions)).collect()
    }

    /// Handles a SEND of one packet. Returns number and syndrome of the answers.
    fn send(&mut self, number: u32) -> Vec<(u32, Syndrome)> {
        let body = Rc::Send(Part::Only((), SendTail::Plain));
        acks(&self.to(number, body, &[1; 10]))
    }

    /// Handles a READ of these bytes. Returns number, kind and first byte of the answers.
    fn read(&mut self, number: u32, va: u64, length: u32) -> Vec<(u32, ReadPart, u8)> {
        let reth = Reth { va, rkey: Rkey(self.key), length };
        let answers = self.to(number, Rc::ReadRequest(reth), &[]);
        let look = |it: &Outgoing| match it.body {
            Rc::ReadResponse(part) => (number_of(it), part, it.payload[0]),
            other => panic!("{other:?}"),
        };
        answers.iter().map(look).collect()
    }

    fn post(&mut self, receives: u32) {
        let sge = Sge { addr: 0x1000, length: 64, lkey: Lkey(self.key) };
        (0..receives).for_each(|id| self.responder.post(id, &[sge]));
    }
}

fn acks(answers: &[Outgoing]) -> Vec<(u32, Syndrome)> {
    let look = |it: &Outgoing| match it.body {
        Rc::Ack(aeth) => (number(it.psn), aeth.syndrome),
        other => panic!("{other:?}"),
    };
    answers.iter().map(look).collect()
}

const OK: Syndrome = ack(AethMsn::truncate(0)).syndrome;

#[test]
fn a_soft_peer_asks_once_and_a_hard_one_for_each_packet_behind_a_gap() {
    for (kind, again) in [(Kind::Soft, vec![]), (Kind::Hard, vec![(0, GAP)])] {
        let mut peer = Answers::new(kind);
        peer.post(3);
        assert_eq!(peer.send(1), [(0, GAP)]);
        assert_eq!((peer.send(2), peer.send(1)), (again.clone(), again));
        peer.send(0);
        assert_eq!(peer.send(3), [(1, GAP)], "the next gap");
        assert_eq!(peer.send(0), [(0, OK)], "a duplicate is acknowledged up to what is expected");
    }
}

#[test]
fn a_peer_without_a_receive_says_so() {
    let wait = Syndrome::Rnr(RnrTimer::new(3).unwrap());
    for (kind, later) in [(Kind::Soft, vec![(0, GAP)]), (Kind::Hard, vec![])] {
        let mut peer = Answers::new(kind);
        assert_eq!((peer.send(0), peer.send(1)), (vec![(0, wait)], later));
        assert_eq!(peer.send(0), [(0, wait)]);
        peer.post(1);
        peer.send(0);
        let done: Vec<_> = peer.responder.done.iter().map(|it| (it.opcode, it.status, it.byte_len)).collect();
        assert_eq!(done, [(WcOpcode::Recv, WcStatus::Success, 10)]);
    }
}

#[test]
fn a_hard_peer_acknowledges_sixty_four_packets_at_once_or_after_a_while() {
    let mut peer = Answers::new(Kind::Hard);
    peer.post(65);
    let acks: Vec<_> = (0..65).flat_map(|number| peer.send(number)).collect();
    assert_eq!(acks, [(63, OK)]);
    let due = peer.responder.next_time().expect("the last packet is not acknowledged");
    let ack = peer.responder.next(due, &peer.regions).map(|it| number(it.psn));
    assert_eq!((ack, peer.responder.next_time()), (Some(64), None));
    let mut peer = Answers::new(Kind::Soft);
    peer.post(2);
    assert_eq!((peer.send(0), peer.send(1)), (vec![(0, OK)], vec![(1, OK)]));
}

#[test]
fn a_read_is_executed_again_from_any_place_but_not_from_an_earlier_one_later() {
    use ReadPart::{First, Last, Middle, Only};
    let aeth = ack(AethMsn::truncate(1));
    for kind in Kind::ALL {
        let mut peer = Answers::new(kind);
        let all = [(0, First(aeth), 0), (1, Middle, 16), (2, Last(aeth), 32)];
        assert_eq!(peer.read(0, 0x1000, 600), all);
        assert_eq!(peer.read(0, 0x1000, 600), all);
        let soft = kind == Kind::Soft;
        let rest = [(1, if soft { Middle } else { First(aeth) }, 16), (2, Last(aeth), 32)];
        assert_eq!(peer.read(1, 0x1100, 344), rest);
        let part = [(1, if soft { Last(aeth) } else { Only(aeth) }, 16)];
        assert_eq!(peer.read(1, 0x1100, 100), part);
        assert!(peer.read(0, 0x1000, 600).is_empty(), "that place is forgotten");
    }
}

#[test]
fn an_atomic_is_executed_once_and_only_the_last_ones_are_remembered() {
    let mut peer = Answers::new(Kind::Soft);
    let eth = AtomicEth { va: 0x1000, rkey: Rkey(peer.key), swap_or_add: 1, compare: 0 };
    let mut add = |number| match peer.to(number, Rc::Atomic(AtomicKind::FetchAdd, eth), &[]).pop() {
        Some(Outgoing { body: Rc::AtomicAck(_, before), .. }) => Some(before),
        _ => None,
    };
    assert_eq!([0, 1, 1, 0].map(&mut add), [Some(0), Some(1), Some(1), Some(0)]);
    assert_eq!([2, 2, 1, 0].map(&mut add), [Some(2), Some(2), Some(1), None]);
}

/// A requester and its memory.
struct Asks {
    requester: Requester,
    regions: Regions,
    key: u32,
}

impl Asks {
    fn new(kind: Kind) -> Asks {
        let (regions, key) = memory();
        Asks { requester: Requester::new(kind, Qpn::truncate(7), &attr()), regions, key }
    }

    fn post(&mut self, op: SendOp, length: u32) {
        let sges = [Sge { addr: 0x1000, length, lkey: Lkey(self.key) }];
        let payload = Payload::Sges(&sges);
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        self.requester.post(&request);
    }

    /// Returns the numbers of the packets that are sent now.
    fn sends(&mut self) -> Vec<u32> {
        let next = || self.requester.next(NOW, &self.regions).map(|it| number(it.psn));
        std::iter::from_fn(next).collect()
    }

    fn takes(&mut self, number: u32, body: Rc, payload: &[u8]) {
        self.requester.handle(NOW, &self.regions, psn(number), &body, payload);
    }

    fn takes_ack(&mut self, number: u32, syndrome: Syndrome) {
        self.takes(number, Rc::Ack(Aeth { syndrome, msn: AethMsn::default() }), &[]);
    }

    /// Returns how requests ended.
    fn ends(&mut self) -> Vec<WcStatus> {
        self.requester.done.drain(..).map(|it| it.status).collect()
    }
}

#[test]
fn a_requester_goes_back_once_for_a_gap_and_fails_after_its_retries() {
    let mut peer = Asks::new(Kind::Soft);
    peer.post(SendOp::Send { imm: None }, 1000);
    assert_eq!(peer.sends(), [0, 1, 2, 3]);
    peer.takes_ack(1, GAP);
    assert_eq!(peer.sends(), [1, 2, 3]);
    peer.takes_ack(1, GAP);
    assert!(peer.sends().is_empty(), "a retry is under way");
    let later = peer.requester.next_time().expect("something is outstanding");
    peer.requester.tick(later);
    assert_eq!((peer.sends(), peer.ends()), (vec![], vec![WcStatus::RetryExc]));
}

#[test]
fn a_requester_waits_for_receives_and_not_for_ever() {
    let mut peer = Asks::new(Kind::Hard);
    peer.post(SendOp::Send { imm: None }, 10);
    let wait = Syndrome::Rnr(RnrTimer::new(3).unwrap());
    assert_eq!(peer.sends(), [0]);
    peer.takes_ack(0, wait);
    assert_eq!((peer.sends(), peer.requester.next_time()), (vec![], Some(Instant(NOW.0 + 30_000))));
    peer.requester.tick(Instant(NOW.0 + 30_000));
    assert_eq!(peer.sends(), [0]);
    peer.takes_ack(0, wait);
    assert_eq!(peer.ends(), [WcStatus::RnrRetryExc]);
}

#[test]
fn an_answer_that_is_ahead_is_an_implied_nak() {
    let aeth = ack(AethMsn::truncate(1));
    for (kind, again) in [(Kind::Soft, vec![]), (Kind::Hard, vec![1, 3])] {
        let mut peer = Asks::new(kind);
        let remote = Remote { addr: 0x1000, rkey: Rkey(1) };
        peer.post(SendOp::Read { remote }, 600);
        peer.post(SendOp::Send { imm: None }, 10);
        assert_eq!(peer.sends(), [0, 3]);
        peer.takes(0, Rc::ReadResponse(ReadPart::First(aeth)), &[1; 256]);
        peer.takes(2, Rc::ReadResponse(ReadPart::Last(aeth)), &[1; 88]);
        assert_eq!(peer.sends(), again, "within the answer");
        let mut peer = Asks::new(kind);
        peer.post(SendOp::Read { remote }, 600);
        peer.post(SendOp::Send { imm: None }, 10);
        assert_eq!(peer.sends(), [0, 3]);
        peer.takes_ack(3, OK);
        assert_eq!(peer.sends(), [0, 3], "behind it");
        for (number, part, length) in
            [(0, ReadPart::First(aeth), 256), (1, ReadPart::Middle, 256), (2, ReadPart::Last(aeth), 88)]
        {
            peer.takes(number, Rc::ReadResponse(part), &vec![1; length]);
        }
        peer.takes_ack(3, OK);
        assert_eq!(peer.ends(), [WcStatus::Success; 2]);
    }
}

#[test]
fn reads_are_outstanding_up_to_a_number() {
    let mut peer = Asks::new(Kind::Hard);
    let remote = Remote { addr: 0x1000, rkey: Rkey(1) };
    (0..4).for_each(|_| peer.post(SendOp::Read { remote }, 10));
    assert_eq!(peer.sends(), [0, 1]);
    peer.takes(0, Rc::ReadResponse(ReadPart::Only(ack(AethMsn::truncate(1)))), &[1; 10]);
    assert_eq!(peer.sends(), [2]);
}
