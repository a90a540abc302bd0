//! XRC: initiators, targets, domains, and the SRQs that requests name.
//!
//! Tests run on one engine and with packets.
//!
//! Shows: xrc.

use super::operations::{Topology, Walk};
use super::wire::{A, B};
use super::*;
use crate::base::rng::Rng;
use QpState::{Err, Rts};
use vrdma_wire::num::{Imm, Srqn};
use vrdma_wire::roce::Body;

const OK: WcStatus = WcStatus::Success;
/// Bytes of a message that takes several rounds and many packets.
const LONG: u32 = 1 << 19;

/// An XRC SRQ of B, in a PD with memory of its own.
#[derive(Clone)]
struct Queue {
    srq: SrqId,
    cq: CqId,
    end: End,
}

impl Queue {
    fn srqn(&self) -> Srqn {
        Srqn::new(self.srq.0).unwrap()
    }
}

/// Connections from initiators of A to targets of B, in RTS, and SRQs of their domain.
struct Xrc {
    walk: Walk,
    xrcd: XrcdId,
    initiators: Vec<End>,
    targets: Vec<End>,
    queues: Vec<Queue>,
}

fn target(xrcd: XrcdId) -> QpInit {
    QpInit { qp_type: QpType::XrcRecv, pd: None, receives: Receives::Xrc(xrcd), ..qp_init(PdId(0)) }
}

fn initiator(end: &End) -> QpInit {
    QpInit { qp_type: QpType::XrcSend, ..qp_init(end.pd) }
}

fn both(test: impl Fn(bool)) {
    [false, true].into_iter().for_each(test);
}

impl Xrc {
    fn new(packets: bool, connections: usize, queues: usize) -> Xrc {
        let mut walk = Walk::new(QpType::Rc, packets);
        let device = walk.ends[B].device;
        let xrcd = walk.engine(B).0.alloc_xrcd(device).unwrap();
        let (initiators, targets) = (Vec::new(), Vec::new());
        let mut all = Xrc { walk, xrcd, initiators, targets, queues: Vec::new() };
        (0..connections).for_each(|_| all.connect());
        for n in 0..queues {
            let queue = all.queue(n as u32, xrcd);
            all.queues.push(queue);
        }
        all
    }

    fn connect(&mut self) {
        let [a, b] = self.walk.ends.clone();
        let own = self.walk.engine(A).0.create_qp(a.device, initiator(&a)).unwrap();
        let peer = self.walk.engine(B).0.create_qp(b.device, target(self.xrcd)).unwrap();
        (self.walk.ends[A].qpn, self.walk.ends[B].qpn) = (own, peer);
        (self.walk.attrs[A].dest_qpn, self.walk.attrs[B].dest_qpn) = (peer, own);
        self.walk.go(A, Rts);
        self.walk.go(B, Rts);
        self.initiators.push(self.walk.ends[A].clone());
        self.targets.push(self.walk.ends[B].clone());
    }

    fn queue(&mut self, n: u32, xrcd: XrcdId) -> Queue {
        let b = self.walk.ends[B].clone();
        let (engine, ..) = self.walk.engine(B);
        let pd = engine.alloc_pd(b.device, OWNER).unwrap();
        let memory = Mem::new(1 << 20);
        let key = engine.reg_mr(b.device, pd, OF_REGION, IOVA, 1 << 20, memory.clone()).unwrap();
        let cq = CqId(100 + n);
        let init = SrqInit { owner: OWNER, pd, max_wr: 8, max_sge: 2, xrc: Some(XrcSrq { xrcd, cq }) };
        let srq = engine.create_srq(b.device, init).unwrap();
        Queue { srq, cq, end: End { pd, memory, key, ..b } }
    }

    fn post(&mut self, at: usize, id: u32, srqn: Srqn, op: SendOp, payload: Payload<'_>) {
        let own = self.initiators[at].clone();
        let (engine, log, now) = self.walk.engine(A);
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_xrc(now, own.device, OWNER, own.qpn, &request, srqn, log).unwrap();
    }

    /// Sends the first bytes of A's memory to an SRQ.
    fn send(&mut self, at: usize, id: u32, queue: usize, length: u32) {
        let (srqn, sge) = (self.queues[queue].srqn(), [self.initiators[at].sge(0, length)]);
        self.post(at, id, srqn, SEND, Payload::Sges(&sge));
    }

    /// Posts a receive at `id` times 64 KiB of the SRQ's memory.
    fn receive(&mut self, queue: usize, id: u32, length: u32) {
        let Queue { srq, end, .. } = self.queues[queue].clone();
        let sges = [end.sge(u64::from(id) << 16, length)];
        let (engine, log, _) = self.walk.engine(B);
        engine.post_srq_recv(end.device, OWNER, srq, RecvRequest { id, sges: &sges }, log).unwrap();
    }

    fn run(&mut self) {
        self.walk.run();
    }

    /// Takes the initiators' completed requests: id and status.
    fn sent(&mut self) -> Vec<(u32, WcStatus)> {
        self.take(A).into_iter().filter(|(cq, _)| *cq == SEND_CQ).map(|(_, c)| (c.id, c.status)).collect()
    }

    /// Takes the completed receives: index of the SRQ, id and status.
    fn received(&mut self) -> Vec<(usize, u32, WcStatus)> {
        let all = self.take(B);
        let index = |cq, c: &Completion| {
            let found = self.queues.iter().position(|queue| queue.cq == cq).expect("its CQ");
            assert_eq!(c.srq, Some(self.queues[found].srq));
            assert!(self.targets.iter().any(|target| target.qpn == c.qpn));
            found
        };
        all.iter().filter(|(cq, _)| *cq != SEND_CQ).map(|(cq, c)| (index(*cq, c), c.id, c.status)).collect()
    }

    fn take(&mut self, at: usize) -> Vec<(CqId, Completion)> {
        let device = self.walk.ends[at].device;
        let (_, log, _) = self.walk.engine(at);
        let (own, others): (Vec<_>, Vec<_>) = log.completions.drain(..).partition(|it| it.0 == device);
        log.completions = others;
        own.into_iter().map(|(_, cq, completion)| (cq, completion)).collect()
    }

    fn events(&mut self, at: usize) -> Vec<Event> {
        let device = self.walk.ends[at].device;
        let (_, log, _) = self.walk.engine(at);
        log.events.drain(..).filter(|(of, _)| *of == device).map(|(_, event)| event).collect()
    }

    fn state(&mut self, at: usize, end: &End) -> QpState {
        self.walk.engine(at).0.query_qp(end.device, end.qpn).unwrap().state
    }

    /// Asserts that the first target has refused a request, and that both QPs are in ERR.
    fn expect_refused(&mut self, status: WcStatus, event: fn(Qpn) -> Event) {
        let (own, peer) = (self.initiators[0].clone(), self.targets[0].clone());
        assert_eq!(self.sent().last().map(|sent| sent.1), Some(status));
        assert_eq!(self.events(B).last(), Some(&event(peer.qpn)));
        assert_eq!((self.state(A, &own), self.state(B, &peer)), (Err, Err));
    }
}

#[test]
fn a_message_takes_a_receive_of_the_queue_that_it_names() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 1, 2);
        let data: Vec<u8> = (0..50_000).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        xrc.initiators[0].memory.fill(0, &data);
        (0..4).for_each(|id| xrc.receive(id as usize % 2, id, 1 << 16));
        for (id, queue, length) in [(10, 1, 100), (11, 0, 50_000), (12, 0, 0), (13, 1, 5000)] {
            xrc.send(0, id, queue, length);
        }
        xrc.run();
        assert_eq!(xrc.received(), [(1, 1, OK), (0, 0, OK), (0, 2, OK), (1, 3, OK)]);
        assert_eq!(xrc.sent(), [(10, OK), (11, OK), (12, OK), (13, OK)]);
        let at = |queue: usize, id: usize, length| xrc.queues[queue].end.memory.bytes(id << 16, length);
        assert_eq!(at(1, 1, 100), data[..100]);
        assert!(at(0, 0, 50_000) == data);
        assert!(at(1, 3, 5000) == data[..5000]);
    });
}

#[test]
fn a_request_reaches_memory_of_the_pd_of_the_queue_that_it_names() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 1, 2);
        let own = xrc.initiators[0].clone();
        let [one, other] = [0, 1].map(|n| xrc.queues[n].clone());
        one.end.memory.fill(0, b"one's...");
        other.end.memory.fill(0, b"other's.");
        // All are outstanding at once. Each reads memory of the SRQ that its request named, not of
        // the last one.
        for (id, queue) in [(1, &one), (2, &other), (3, &one)] {
            let landing = [own.sge(u64::from(id) * 8, 8)];
            let op = SendOp::Read { remote: queue.end.remote(0) };
            xrc.post(0, id, queue.srqn(), op, Payload::Sges(&landing));
        }
        let word = [own.sge(64, 8)];
        let add = SendOp::atomic(other.end.remote(8), Atomic::FetchAdd { add: 5 });
        xrc.post(0, 4, other.srqn(), add, Payload::Sges(&word));
        xrc.receive(0, 9, 0);
        let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
        let write = SendOp::Write { remote: one.end.remote(16), imm };
        xrc.post(0, 5, one.srqn(), write, Payload::Inline(b"written"));
        xrc.run();
        assert_eq!(xrc.sent(), [1, 2, 3, 4, 5].map(|id| (id, OK)));
        assert_eq!(own.memory.bytes(8, 24), *b"one's...other's.one's...");
        assert_eq!(other.end.memory.bytes(8, 8), 5u64.to_ne_bytes());
        assert_eq!((one.end.memory.bytes(16, 7), xrc.received()), (b"written".to_vec(), vec![(0, 9, OK)]));
        // A key of the other SRQ's PD.
        let write = write_to(one.end.remote(0));
        xrc.post(0, 6, other.srqn(), write, Payload::Inline(b"no"));
        xrc.run();
        xrc.expect_refused(WcStatus::RemAccess, Event::QpAccessError);
        assert_eq!(one.end.memory.bytes(0, 8), *b"one's...");
    });
}

#[test]
fn a_queue_that_is_none_of_the_domain_is_no_queue() {
    both(|packets| {
        for case in 0..4 {
            let mut xrc = Xrc::new(packets, 1, 1);
            let b = xrc.walk.ends[B].clone();
            let srqn = match case {
                0 => Srqn::new(0xabcdef).unwrap(),
                1 => {
                    let elsewhere = xrc.walk.engine(B).0.alloc_xrcd(b.device).unwrap();
                    xrc.queue(7, elsewhere).srqn()
                }
                2 => {
                    let init = SrqInit { owner: OWNER, pd: b.pd, max_wr: 8, max_sge: 2, xrc: None };
                    let srq = xrc.walk.engine(B).0.create_srq(b.device, init).unwrap();
                    Srqn::new(srq.0).unwrap()
                }
                _ => {
                    let Queue { srq, end, .. } = xrc.queues[0].clone();
                    xrc.walk.engine(B).0.destroy_srq(end.device, srq).unwrap();
                    xrc.queues[0].srqn()
                }
            };
            xrc.post(0, 1, srqn, SEND, Payload::Inline(b"x"));
            xrc.run();
            xrc.expect_refused(WcStatus::RemAccess, Event::QpAccessError);
            assert_eq!(xrc.received(), [], "{case}");
        }
    });
}

/// Delivers a part of a long message.
fn begin(xrc: &mut Xrc, id: u32, queue: usize) {
    xrc.send(0, id, queue, LONG);
    match &mut xrc.walk.topology {
        Topology::OneEngine(pair) => {
            pair.engine.poll(pair.now, 1, &mut pair.log);
        }
        Topology::Packets(net) => {
            net.work(A);
            net.carry(A, |index, _| index < 5);
        }
    }
    assert_eq!((xrc.sent(), xrc.received()), (vec![], vec![]));
}

/// Returns records of engines with XRC.
///
/// They have a message in progress and one after it, a READ to be answered, and unused domains,
/// SRQs and QPs.
pub(super) fn records() -> Vec<crate::Record> {
    let mut records = Vec::new();
    for packets in [false, true] {
        let mut xrc = Xrc::new(packets, 2, 2);
        xrc.receive(0, 1, LONG);
        begin(&mut xrc, 10, 0);
        xrc.send(0, 11, 1, 8);
        let device = xrc.walk.ends[B].device;
        let (engine, ..) = xrc.walk.engine(B);
        let [_, gone] = [(); 2].map(|()| engine.alloc_xrcd(device).unwrap());
        engine.dealloc_xrcd(device, gone).unwrap();
        records.push(engine.save());
    }
    let mut xrc = Xrc::new(true, 1, 2);
    let (own, queue) = (xrc.initiators[0].clone(), xrc.queues[0].clone());
    let read = SendOp::Read { remote: queue.end.remote(0) };
    xrc.post(0, 10, queue.srqn(), read, Payload::Sges(&[own.sge(0, 9000)]));
    let Topology::Packets(net) = &mut xrc.walk.topology else { unreachable!("as it was made") };
    net.work(A);
    net.carry(A, |_, _| true);
    records.push(xrc.walk.engine(B).0.save());
    records
}

#[test]
fn a_queue_can_be_destroyed_while_a_message_is_under_way() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 1, 2);
        xrc.receive(0, 1, LONG);
        begin(&mut xrc, 10, 0);
        let Queue { srq, end, .. } = xrc.queues[0].clone();
        let (engine, ..) = xrc.walk.engine(B);
        assert_eq!(engine.dealloc_pd(end.device, end.pd), Result::Err(Error::Busy));
        engine.destroy_srq(end.device, srq).unwrap();
        xrc.walk.settle();
        xrc.expect_refused(WcStatus::RemAccess, Event::QpAccessError);
        assert_eq!(xrc.received(), []);
        let (engine, ..) = xrc.walk.engine(B);
        assert_eq!(engine.counts(end.device).pending_receives, 0);
    });
}

#[test]
fn what_a_target_has_taken_is_flushed_or_its_queues_again() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 1, 1);
        xrc.receive(0, 1, LONG);
        begin(&mut xrc, 10, 0);
        xrc.walk.modify(B, AttrMask::STATE, QpAttr { state: Err, ..QpAttr::default() });
        assert_eq!(xrc.received(), [(0, 1, WcStatus::Flush)]);
        // A target has no permanent SRQ, so it raises no event that it takes no more receives from
        // one.
        assert_eq!(xrc.events(B).iter().filter(|event| matches!(event, Event::LastWqeReached(_))).count(), 0);
        let mut xrc = Xrc::new(packets, 1, 1);
        xrc.receive(0, 1, LONG);
        begin(&mut xrc, 10, 0);
        xrc.walk.modify(B, AttrMask::STATE, QpAttr::default());
        assert_eq!(xrc.received(), []);
        let (device, srq) = (xrc.walk.ends[B].device, xrc.queues[0].srq);
        let (engine, log, _) = xrc.walk.engine(B);
        engine.modify_srq(device, srq, (None, Some(1)), log).unwrap();
        assert!(log.events.iter().all(|(_, event)| !matches!(event, Event::SrqLimitReached(_))));
    });
}

#[test]
fn a_sender_waits_for_the_queue_that_it_names() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 2, 2);
        xrc.send(0, 10, 1, 8);
        xrc.send(1, 11, 0, 8);
        xrc.run();
        assert_eq!((xrc.sent(), xrc.received()), (vec![], vec![]));
        xrc.receive(0, 1, 8);
        xrc.walk.settle();
        assert_eq!(xrc.received(), [(0, 1, OK)]);
        let sent = xrc.sent();
        assert!(sent.contains(&(11, OK)), "{sent:?}");
        // The other sender has waited as long as it may.
        assert!(sent.contains(&(10, WcStatus::RnrRetryExc)), "{sent:?}");
    });
}

/// A new initiator replaces one whose message waited for an SRQ, and names another SRQ.
#[test]
fn who_waits_and_then_wants_another_queue_waits_in_vain_no_longer() {
    let mut xrc = Xrc::new(false, 1, 2);
    xrc.send(0, 10, 0, 8);
    xrc.run();
    let reset = QpAttr::default();
    xrc.walk.modify(A, AttrMask::STATE, reset);
    xrc.walk.attrs[A].sq_psn = xrc.walk.query(B).rq_psn;
    xrc.walk.go(A, Rts);
    xrc.receive(1, 2, 8);
    xrc.send(0, 11, 1, 8);
    xrc.run();
    assert_eq!((xrc.sent(), xrc.received()), (vec![(11, OK)], vec![(1, 2, OK)]));
    // Nothing waits at the first SRQ.
    xrc.receive(0, 1, 8);
    xrc.run();
    assert_eq!(xrc.received(), []);
    xrc.send(0, 12, 0, 8);
    xrc.run();
    assert_eq!((xrc.sent(), xrc.received()), (vec![(12, OK)], vec![(0, 1, OK)]));
}

#[test]
fn requests_name_a_queue_where_there_is_one_to_name() {
    both(|packets| {
        let mut xrc = Xrc::new(packets, 1, 1);
        let own = xrc.initiators[0].clone();
        let payload = Payload::Inline(b"x");
        let request = |op| SendRequest { id: 1, signaled: true, solicited: false, fence: false, op, payload };
        let (engine, log, now) = xrc.walk.engine(A);
        engine.post_send(now, own.device, OWNER, own.qpn, &request(SEND), log).unwrap();
        xrc.run();
        assert_eq!((xrc.sent(), xrc.state(A, &own)), (vec![(1, WcStatus::LocQpOp)], Err));
        let mut walk = Walk::ready(QpType::Rc, packets);
        let own = walk.ends[A].clone();
        let (engine, log, now) = walk.engine(A);
        let srqn = Srqn::new(1).unwrap();
        engine.post_xrc(now, own.device, OWNER, own.qpn, &request(SEND), srqn, log).unwrap();
        walk.run();
        assert_eq!(walk.end(), (WcStatus::LocQpOp, WcOpcode::Send));
        // Requests for own keys name no SRQ.
        let mut xrc = Xrc::new(packets, 1, 1);
        let own = xrc.initiators[0].clone();
        let (engine, log, now) = xrc.walk.engine(A);
        let (rights, memory) = (OF_REGION | Access::MW_BIND, own.memory.clone());
        let region = engine.reg_mr(own.device, own.pd, rights, IOVA, 1 << 20, memory).unwrap();
        let key = engine.alloc_mw(own.device, own.pd, MwType::Type2B).unwrap();
        let (rkey, new_rkey) = (key, Rkey(key.0 ^ 1));
        let access = Access::REMOTE_READ;
        let bind = Bind { rkey, new_rkey, lkey: Lkey(region), access, addr: IOVA, length: 8 };
        let payload = Payload::Sges(&[]);
        let bind = SendRequest { payload, ..request(SendOp::BindMw(bind)) };
        engine.post_send(now, own.device, OWNER, own.qpn, &bind, log).unwrap();
        xrc.run();
        assert_eq!(xrc.sent(), [(1, OK)]);
    });
}

#[test]
fn each_has_what_belongs_to_it_and_domains_stay_while_they_are_used() {
    let mut xrc = Xrc::new(false, 1, 1);
    let (xrcd, b, queue) = (xrc.xrcd, xrc.targets[0].clone(), xrc.queues[0].clone());
    let (engine, log, now) = xrc.walk.engine(B);
    let shared = Receives::Shared(queue.srq);
    let other = engine.alloc_xrcd(b.device).unwrap();
    for (init, error) in [
        (QpInit { pd: Some(b.pd), ..target(xrcd) }, Error::Invalid),
        (QpInit { receives: Receives::Own, ..target(xrcd) }, Error::Invalid),
        (QpInit { receives: shared, ..target(xrcd) }, Error::Invalid),
        (target(XrcdId(77)), Error::NotFound),
        (QpInit { receives: shared, ..initiator(&b) }, Error::Invalid),
        (QpInit { receives: Receives::Xrc(xrcd), ..initiator(&b) }, Error::Invalid),
        (QpInit { pd: None, ..initiator(&b) }, Error::Invalid),
        (QpInit { receives: Receives::Xrc(xrcd), ..qp_init(b.pd) }, Error::Invalid),
        // An XRC SRQ is for targets alone.
        (QpInit { receives: shared, ..qp_init(b.pd) }, Error::Invalid),
    ] {
        assert_eq!(engine.create_qp(b.device, init), Result::Err(error), "{init:?}");
    }
    let init = engine.srq_init(b.device, queue.srq).unwrap();
    let lost = SrqInit { xrc: Some(XrcSrq { xrcd: XrcdId(77), cq: queue.cq }), ..init };
    assert_eq!(engine.create_srq(b.device, lost), Result::Err(Error::NotFound));
    // Neither QP accepts requests for a queue that it does not have.
    let recv = RecvRequest { id: 1, sges: &[] };
    assert_eq!(engine.post_recv(now, b.device, OWNER, b.qpn, recv, log), Result::Err(PostError::BadState));
    assert_eq!(engine.dealloc_xrcd(b.device, other), Ok(()));
    assert_eq!(engine.dealloc_xrcd(b.device, other), Result::Err(Error::NotFound));
    assert_eq!(engine.dealloc_xrcd(b.device, xrcd), Result::Err(Error::Busy));
    engine.destroy_srq(b.device, queue.srq).unwrap();
    assert_eq!(engine.dealloc_xrcd(b.device, xrcd), Result::Err(Error::Busy));
    engine.destroy_qp(b.device, b.qpn).unwrap();
    assert_eq!(engine.counts(b.device).xrcds, 1);
    assert_eq!(engine.dealloc_xrcd(b.device, xrcd), Ok(()));
    assert_eq!(engine.dealloc_pd(b.device, queue.end.pd), Result::Err(Error::Busy), "its region");
}

#[test]
fn a_queue_whose_cq_failed_fails() {
    let mut xrc = Xrc::new(false, 1, 1);
    let (device, srq) = (xrc.targets[0].device, xrc.queues[0].srq);
    xrc.receive(0, 1, 8);
    let (engine, log, _) = xrc.walk.engine(B);
    engine.srq_cq_failed(device, srq, log);
    engine.srq_cq_failed(device, srq, log);
    assert_eq!(xrc.events(B).iter().filter(|&&event| event == Event::SrqError(srq)).count(), 1);
    xrc.send(0, 10, 0, 8);
    xrc.walk.settle();
    assert_eq!((xrc.sent(), xrc.received()), (vec![(10, WcStatus::RemOp)], vec![]));
}

/// Uses connections and SRQs at random.
///
/// Each message completes a receive of the SRQ that it named, with its bytes.
#[test]
fn at_random_each_queue_gets_its_messages() {
    both(|packets| {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut pick = |below: u64| (rng.next() % below) as usize;
            let mut xrc = Xrc::new(packets, 3, 3);
            let mut named = [const { Vec::new() }; 3];
            let mut got = [const { Vec::new() }; 3];
            let mut posted = [0u32; 3];
            for id in 0..60u32 {
                let (at, queue) = (pick(3), pick(3));
                xrc.initiators[at].memory.fill(0, &id.to_le_bytes());
                let length = [4, 1000, 3000, 70_000][pick(4)];
                let receive = posted[queue] % 8;
                posted[queue] += 1;
                if pick(2) == 0 {
                    xrc.receive(queue, receive, 1 << 17);
                    xrc.send(at, id, queue, length);
                } else {
                    xrc.send(at, id, queue, length);
                    xrc.receive(queue, receive, 1 << 17);
                }
                xrc.run();
                xrc.walk.settle();
                named[queue].push(id);
                for (found, id, status) in xrc.received() {
                    let word = xrc.queues[found].end.memory.bytes((id as usize) << 16, 4);
                    assert_eq!(status, OK);
                    got[found].push(u32::from_le_bytes(word.try_into().unwrap()));
                }
                assert_eq!(xrc.sent(), [(id, OK)], "seed {seed}");
            }
            assert_eq!(got, named, "seed {seed}, packets: {packets}");
        }
    });
}

#[test]
fn messages_are_shown_as_the_packets_of_two_engines() {
    let [here, apart] = [false, true].map(|has_packets| {
        let mut xrc = Xrc::new(has_packets, 1, 1);
        if let Topology::OneEngine(pair) = &mut xrc.walk.topology {
            pair.log.mirror = Some(mirror::Kept::default());
        }
        xrc.receive(0, 1, 4096);
        xrc.send(0, 2, 0, 3000);
        let (srqn, remote) = (xrc.queues[0].srqn(), xrc.queues[0].end.remote(0));
        let sge = [xrc.initiators[0].sge(0, 2000)];
        xrc.post(0, 3, srqn, SendOp::Read { remote }, Payload::Sges(&sge));
        let packets = mirror::packets(&mut xrc.walk);
        assert_eq!(xrc.sent(), [(2, OK), (3, OK)]);
        packets
    });
    assert!(here.iter().flatten().all(|shown| matches!(shown.body, Body::Xrc(_))));
    assert_eq!((here[A].len(), here[B].len()), (4, 3));
    assert!(here[A] == apart[A]);
    // Between two engines, the response to the READ acknowledges the SEND, too.
    assert!(here[B][1..] == apart[B]);
}

#[test]
fn a_target_holds_packets_that_come_ahead_of_a_gap() {
    let mut xrc = Xrc::new(true, 1, 2);
    (0..3).for_each(|id| xrc.receive(id as usize % 2, id, 1 << 16));
    for (id, queue) in [(10, 0), (11, 1), (12, 0)] {
        xrc.send(0, id, queue, 100);
    }
    let Topology::Packets(net) = &mut xrc.walk.topology else { unreachable!("as it was made") };
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    let device = net.hosts[B].end.device;
    [1, 2].iter().for_each(|&at| net.deliver(A, &frames[at]));
    assert_eq!((frames.len(), net.hosts[B].engine.held_early(device).0), (3, 2));
    net.deliver(A, &frames[0]);
    net.work(B);
    assert_eq!(net.hosts[B].engine.held_early(device), (0, 0));
    xrc.run();
    assert_eq!(xrc.received(), [(0, 0, OK), (1, 1, OK), (0, 2, OK)]);
    assert_eq!(xrc.sent(), [(10, OK), (11, OK), (12, OK)]);
}
