//! Shared receive queues: who takes which receive, what happens without one, and how they end.

use super::datagrams::to;
use super::wire::{A, B, Host, Net, datagrams, unreliable};
use super::*;
use crate::flush::FLUSHED;

const OK: WcStatus = WcStatus::Success;
const FLUSH: WcStatus = WcStatus::Flush;

/// A shared queue of `end`'s device, in a PD of its own, and memory of that PD.
struct Shared {
    srq: SrqId,
    end: End,
}

fn init(pd: PdId) -> SrqInit {
    SrqInit { owner: OWNER, pd, max_wr: 8, max_sge: 2 }
}

impl Shared {
    fn new(engine: &mut Engine<Mem>, end: &End) -> Shared {
        let pd = engine.alloc_pd(end.device, OWNER).unwrap();
        let memory = Mem::new(1 << 20);
        let key = engine.reg_mr(end.device, pd, Access::ALL, IOVA, 1 << 20, memory.clone()).unwrap();
        let srq = engine.create_srq(end.device, init(pd)).unwrap();
        Shared { srq, end: End { pd, memory, key, ..end.clone() } }
    }

    /// What a QP is made with that uses it.
    fn init(&self, end: &End) -> QpInit {
        QpInit { srq: Some(self.srq), ..qp_init(end.pd) }
    }

    fn post(&self, engine: &mut Engine<Mem>, id: u32, length: u32, log: &mut Log) -> Result<(), PostError> {
        let sges = [self.end.sge(u64::from(id) << 16, length)];
        let request = RecvRequest { id, sges: &sges };
        engine.post_srq_recv(self.end.device, OWNER, self.srq, request, log)
    }
}

/// Reliable connections on one host, whose B ends use a shared queue.
struct Group {
    pair: Pair,
    shared: Shared,
    senders: Vec<End>,
    receivers: Vec<End>,
}

impl Group {
    fn new(count: usize) -> Group {
        let mut pair = Pair::new();
        let shared = Shared::new(&mut pair.engine, &pair.b);
        let mut group = Group { pair, shared, senders: Vec::new(), receivers: Vec::new() };
        (0..count).for_each(|_| group.connect());
        group
    }

    /// One more connection.
    fn connect(&mut self) {
        let Group { pair, shared, senders, receivers } = self;
        let make = |pair: &mut Pair, end: &End, init| {
            let qpn = pair.engine.create_qp(end.device, init).unwrap();
            End { qpn, ..end.clone() }
        };
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let a = make(pair, &a, qp_init(a.pd));
        let b = make(pair, &b, shared.init(&b));
        pair.connect(&a, attr_to(&b), QpState::Rts);
        pair.connect(&b, attr_to(&a), QpState::Rts);
        senders.push(a);
        receivers.push(b);
    }

    fn post_shared(&mut self, id: u32) {
        let Group { pair, shared, .. } = self;
        save::replace_at_times(&mut pair.engine);
        shared.post(&mut pair.engine, id, 1 << 16, &mut pair.log).unwrap();
    }

    /// Sends bytes on connection `at`.
    fn send(&mut self, at: usize, id: u32, bytes: &[u8]) {
        let sender = self.senders[at].clone();
        self.pair.post(&sender, id, SEND, Payload::Inline(bytes)).unwrap();
    }

    /// What receivers completed, as (connection, id, status).
    fn received(&mut self) -> Vec<(usize, u32, WcStatus)> {
        let b = self.pair.b.device;
        let completions = std::mem::take(&mut self.pair.log.completions);
        let ours = completions.into_iter().filter(|&(device, cq, _)| device == b && cq == RECV_CQ);
        let index = |qpn| self.receivers.iter().position(|end| end.qpn == qpn).unwrap();
        ours.map(|(_, _, c)| (index(c.qpn), c.id, c.status)).collect()
    }

    fn counters(&self) -> &Counters {
        self.pair.engine.counters(self.pair.b.device)
    }

    fn modify(&mut self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let Pair { engine, log, b, .. } = &mut self.pair;
        engine.modify_srq(b.device, self.shared.srq, (max_wr, limit), log)
    }

    fn query(&self) -> SrqAttr {
        self.pair.engine.query_srq(self.pair.b.device, self.shared.srq).unwrap()
    }
}

#[test]
fn connections_take_receives_in_the_order_of_posting() {
    let mut group = Group::new(3);
    (1..=4).for_each(|id| group.post_shared(id));
    for (at, id) in [(2, 10), (0, 11), (2, 12), (1, 13)] {
        group.send(at, id, format!("message {id}").as_bytes());
    }
    assert_eq!(group.received(), [(2, 1, OK), (0, 2, OK), (2, 3, OK), (1, 4, OK)]);
    // In memory of the shared queue's PD, which is none of the QPs'.
    for (id, message) in [(1, 10), (2, 11), (3, 12), (4, 13)] {
        assert_eq!(group.shared.end.memory.bytes(id << 16, 10), format!("message {message}").as_bytes());
    }
    assert_eq!(group.pair.engine.counts(group.pair.b.device).pending_receives, 0);
}

#[test]
fn a_long_message_keeps_its_receive_while_others_take_theirs() {
    let mut group = Group::new(2);
    let Group { pair, shared, senders, .. } = &mut group;
    let length = 1 << 19;
    let data: Vec<u8> = (0..length).map(|i| (i * 7 + (i >> 9)) as u8).collect();
    senders[0].memory.fill(0, &data);
    let sges = [shared.end.sge(1 << 19, length)];
    let request = RecvRequest { id: 1, sges: &sges };
    pair.engine.post_srq_recv(pair.b.device, OWNER, shared.srq, request, &mut pair.log).unwrap();
    let (now, log) = (pair.now, &mut pair.log);
    let payload = [senders[0].sge(0, length)];
    let request = SendRequest {
        id: 5,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Sges(&payload),
    };
    pair.engine.post_send(now, pair.a.device, OWNER, senders[0].qpn, &request, log).unwrap();
    // A first stretch.
    pair.engine.poll(pair.now, 1, &mut pair.log);
    group.post_shared(2);
    group.send(1, 6, b"short");
    group.pair.run();
    assert_eq!(group.received(), [(1, 2, OK), (0, 1, OK)]);
    assert_eq!(group.shared.end.memory.bytes(1 << 19, length as usize), data);
    assert_eq!(group.shared.end.memory.bytes(2 << 16, 5), b"short");
}

#[test]
fn who_waits_for_a_receive_is_woken_by_it_in_order() {
    let mut group = Group::new(3);
    for at in [1, 0, 2] {
        group.send(at, 10 + at as u32, b"x");
    }
    assert_eq!((group.received(), group.counters().rnr_naks_sent), (vec![], 3));
    for (id, at) in [(1, 1), (2, 0), (3, 2)] {
        group.post_shared(id);
        group.pair.run();
        assert_eq!(group.received(), [(at, id, OK)], "at once, not when its time has come");
    }
    assert_eq!(group.pair.engine.poll_timeout(), None);
}

#[test]
fn who_is_gone_takes_nobodys_wake_up() {
    for how in 0..3 {
        let mut group = Group::new(3);
        group.send(0, 10, b"x");
        group.send(1, 11, b"x");
        let first = group.receivers[0].clone();
        match how {
            0 => group.pair.engine.destroy_qp(first.device, first.qpn).map(|_| ()).unwrap(),
            1 => group.pair.go(&first, QpState::Reset),
            _ => group.pair.go(&first, QpState::Err),
        }
        group.received();
        group.post_shared(1);
        group.pair.run();
        assert_eq!(group.received(), [(1, 1, OK)], "{how}");
    }
}

#[test]
fn the_limit_is_told_once() {
    let mut group = Group::new(1);
    let reached = [('b', Event::SrqLimitReached(group.shared.srq))];
    (1..=4).for_each(|id| group.post_shared(id));
    group.modify(None, Some(3)).unwrap();
    group.send(0, 10, b"x");
    assert_eq!((group.pair.events(), group.query().limit), (vec![], 3));
    group.send(0, 11, b"x");
    assert_eq!((group.pair.events(), group.query().limit), (reached.to_vec(), 0));
    group.send(0, 12, b"x");
    assert_eq!(group.pair.events(), []);
    group.modify(None, Some(2)).unwrap();
    assert_eq!((group.pair.events(), group.query().limit), (reached.to_vec(), 0), "it was below already");
    group.modify(None, Some(1)).unwrap();
    group.modify(None, Some(0)).unwrap();
    group.send(0, 13, b"x");
    assert_eq!(group.pair.events(), [], "it was disarmed");
}

#[test]
fn a_queue_changes_its_size_within_bounds() {
    let mut group = Group::new(1);
    (1..=4).for_each(|id| group.post_shared(id));
    for (max_wr, limit) in
        [(Some(3), None), (Some(0), None), (Some(16385), None), (None, Some(9)), (Some(4), Some(5))]
    {
        assert_eq!(group.modify(max_wr, limit), Err(Error::Invalid), "{max_wr:?} {limit:?}");
    }
    assert_eq!(group.query(), SrqAttr { max_wr: 8, max_sge: 2, limit: 0 });
    let promised = |group: &Group| group.pair.engine.devices.promised();
    let before = promised(&group);
    group.modify(Some(16), None).unwrap();
    assert!(promised(&group) > before);
    group.modify(Some(4), Some(4)).unwrap();
    assert!(promised(&group) < before);
    assert_eq!(group.query(), SrqAttr { max_wr: 4, max_sge: 2, limit: 4 });
    assert_eq!(group.pair.events(), []);
}

#[test]
fn one_receive_too_many_or_a_wrong_one_ends_the_queue() {
    for wrong in [false, true] {
        let mut group = Group::new(1);
        let (device, srq) = (group.pair.b.device, group.shared.srq);
        (1..=8).for_each(|id| group.post_shared(id));
        group.modify(None, Some(2)).unwrap();
        let Group { pair, shared, .. } = &mut group;
        let sge = shared.end.sge(0, 1);
        let result = match wrong {
            true => {
                let request = RecvRequest { id: 9, sges: &[sge; 3] };
                pair.engine.post_srq_recv(device, OWNER, srq, request, &mut pair.log)
            }
            false => shared.post(&mut pair.engine, 9, 1, &mut pair.log),
        };
        assert_eq!(result, Err(if wrong { PostError::BadState } else { PostError::Overflow }));
        assert_eq!(pair.events(), [('b', Event::SrqError(srq))]);
        assert_eq!(shared.post(&mut pair.engine, 9, 1, &mut pair.log), Err(PostError::BadState));
        assert_eq!((pair.events(), pair.engine.counts(device).pending_receives), (vec![], 0));
        assert_eq!(pair.engine.modify_srq(device, srq, (None, Some(1)), &mut pair.log), Err(Error::Invalid));
        pair.engine = save::copied(&pair.engine);
        assert_eq!(group.query().limit, 0, "the queue of which it was told has no limit");
        assert_eq!(group.counters().post_overflow, u64::from(!wrong));
        group.send(0, 10, b"x");
        assert_eq!(group.counters().rnr_naks_sent, 1);
    }
}

#[test]
fn a_receive_that_cannot_be_understood_ends_the_queue() {
    let mut group = Group::new(1);
    group.post_shared(1);
    let Group { pair, shared, .. } = &mut group;
    let result = pair.engine.post_invalid_srq(pair.b.device, OWNER, shared.srq, &mut pair.log);
    assert_eq!((result, pair.events()), (Err(PostError::BadState), vec![('b', Event::SrqError(shared.srq))]));
}

#[test]
fn posts_are_checked_and_counted() {
    let mut group = Group::new(1);
    let receiver = group.receivers[0].clone();
    assert_eq!(group.pair.post_recv(&receiver, 1, &[]), Err(PostError::BadState));
    let Group { pair, shared, .. } = &mut group;
    let Pair { engine, log, .. } = pair;
    let (device, srq) = (receiver.device, shared.srq);
    let request = RecvRequest { id: 1, sges: &[] };
    assert_eq!(engine.post_srq_recv(device, OwnerId(8), srq, request, log), Err(PostError::NotOwner));
    assert_eq!(
        engine.post_srq_recv(device, OWNER, SrqId(srq.0 + 1), request, log),
        Err(PostError::NoSuchSrq)
    );
    assert_eq!(engine.post_srq_recv(device, OwnerId::KERNEL, srq, request, log), Ok(()));
    let counters = group.counters();
    assert_eq!((counters.post_bad_state, counters.post_not_owner, counters.post_no_srq), (1, 1, 1));
}

#[test]
fn a_qp_that_fails_ends_what_it_has_taken_and_says_so_once() {
    let mut group = Group::new(2);
    let Group { pair, shared, senders, receivers } = &mut group;
    let b = receivers[0].clone();
    let sges = [shared.end.sge(0, 1 << 19)];
    for id in [1, 2] {
        let request = RecvRequest { id, sges: &sges };
        pair.engine.post_srq_recv(b.device, OWNER, shared.srq, request, &mut pair.log).unwrap();
    }
    let payload = [senders[0].sge(0, 1 << 19)];
    let request = SendRequest {
        id: 5,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Sges(&payload),
    };
    pair.engine.post_send(pair.now, pair.a.device, OWNER, senders[0].qpn, &request, &mut pair.log).unwrap();
    pair.engine.poll(pair.now, 1, &mut pair.log);
    pair.go(&b, QpState::Err);
    assert_eq!(pair.events(), [('b', Event::LastWqeReached(b.qpn))]);
    assert_eq!(group.received(), [(0, 1, FLUSH)]);
    group.pair.go(&b, QpState::Err);
    assert_eq!((group.pair.events(), group.received()), (vec![], vec![]));
    group.send(1, 6, b"x");
    assert_eq!(group.received(), [(1, 2, OK)], "what it had not taken is for others");
    // Its peer has receives of its own.
    let peer = group.senders[0].clone();
    group.pair.go(&peer, QpState::Err);
    assert_eq!(group.pair.events(), []);
}

#[test]
fn the_last_receive_is_told_of_once_all_is_flushed() {
    const SENDS: u32 = FLUSHED as u32 + 44;
    for again in [false, true] {
        let mut group = Group::new(1);
        let init = QpInit { max_send_wr: SENDS, ..group.shared.init(&group.pair.b) };
        let Group { pair, senders, .. } = &mut group;
        let qpn = pair.engine.create_qp(pair.b.device, init).unwrap();
        let end = End { qpn, ..pair.b.clone() };
        pair.connect(&end, attr_to(&senders[0]), QpState::Rts);
        pair.go(&end, QpState::Sqd);
        for id in 0..SENDS {
            pair.post(&end, id, SEND, Payload::Inline(b"x")).unwrap();
        }
        let to_error = |pair: &mut Pair| {
            let Pair { engine, now, log, .. } = pair;
            let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
            engine.modify_qp(*now, end.device, qpn, AttrMask::STATE, &attr, log).unwrap();
        };
        to_error(pair);
        assert!(pair.engine.is_flushing(end.device, qpn));
        assert_eq!((pair.events(), pair.statuses().len()), (vec![], FLUSHED));
        if again {
            // A copy may flush as much again before it polls.
            pair.engine = save::copied(&pair.engine);
            to_error(pair);
            assert!(!pair.engine.is_flushing(end.device, qpn));
        }
        pair.run();
        assert_eq!(pair.events(), [('b', Event::LastWqeReached(qpn))], "{again}");
        assert_eq!(pair.statuses().len(), 44);
    }
}

#[test]
fn a_receive_of_a_qp_that_goes_is_the_queues_again() {
    for destroyed in [false, true] {
        let mut group = Group::new(2);
        let Group { pair, shared, senders, receivers } = &mut group;
        let (a, b) = (senders[0].clone(), receivers[0].clone());
        for id in 1..=8 {
            shared.post(&mut pair.engine, id, 1 << 19, &mut pair.log).unwrap();
        }
        // Longer than a stretch: it is under way when its QP goes.
        let payload = [a.sge(0, 1 << 19)];
        let request = SendRequest {
            id: 5,
            signaled: true,
            solicited: false,
            fence: false,
            op: SEND,
            payload: Payload::Sges(&payload),
        };
        pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
        pair.engine.poll(pair.now, 1, &mut pair.log);
        let left = pair.engine.save().devices[b.device.0 as usize].as_ref().unwrap().srqs[0].receives.len();
        match destroyed {
            true => pair.engine.destroy_qp(b.device, b.qpn).map(|_| ()).unwrap(),
            false => pair.go(&b, QpState::Reset),
        }
        assert_eq!((left, group.received()), (7, vec![]));
        for id in 1..=8 {
            group.send(1, 10 + id, b"x");
            assert_eq!(group.received(), [(1, id, OK)], "in order");
        }
        assert_eq!(group.pair.engine.counts(b.device).pending_receives, 0);
    }
}

#[test]
fn a_queue_has_no_more_again_than_it_may_hold() {
    for failed in [false, true] {
        let mut group = Group::new(2);
        let (device, srq) = (group.pair.b.device, group.shared.srq);
        let Group { pair, shared, senders, receivers } = &mut group;
        let (a, b) = (senders[0].clone(), receivers[0].clone());
        for id in 1..=8 {
            shared.post(&mut pair.engine, id, 1 << 19, &mut pair.log).unwrap();
        }
        // A QP has taken one, and another has its place.
        let payload = [a.sge(0, 1 << 19)];
        let request = SendRequest {
            id: 5,
            signaled: true,
            solicited: false,
            fence: false,
            op: SEND,
            payload: Payload::Sges(&payload),
        };
        pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
        pair.engine.poll(pair.now, 1, &mut pair.log);
        shared.post(&mut pair.engine, 9, 1, &mut pair.log).unwrap();
        if failed {
            assert_eq!(shared.post(&mut pair.engine, 10, 1, &mut pair.log), Err(PostError::Overflow));
        }
        pair.go(&b, QpState::Reset);
        let left = if failed { 0 } else { 8 };
        assert_eq!(pair.engine.counts(device).pending_receives, left);
        assert_eq!(pair.events().contains(&('b', Event::SrqError(srq))), failed);
        for id in (2..).take(left as usize) {
            group.send(1, 10, b"x");
            assert_eq!(group.received(), [(1, id, OK)]);
        }
    }
}

#[test]
fn a_qp_that_was_reset_takes_receives_again() {
    let mut group = Group::new(1);
    let (a, b) = (group.senders[0].clone(), group.receivers[0].clone());
    // By this very engine: a copy looks up anew what PD the receives are of.
    let Group { pair, shared, .. } = &mut group;
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let reset = (QpState::Reset, AttrMask::STATE);
        let steps = [reset, (QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)];
        for (state, mask) in steps {
            let attr = QpAttr { state, ..attr_to(peer) };
            pair.engine.modify_qp(pair.now, own.device, own.qpn, mask, &attr, &mut pair.log).unwrap();
        }
    }
    shared.post(&mut pair.engine, 1, 1 << 16, &mut pair.log).unwrap();
    let request = SendRequest {
        id: 10,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"again"),
    };
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    assert_eq!(group.received(), [(0, 1, OK)]);
    assert_eq!(group.shared.end.memory.bytes(1 << 16, 5), b"again");
}

#[test]
fn what_shared_queues_could_take_counts_with_all_other_queues() {
    let mut pair = Pair::new();
    let device = pair.b.device;
    let Pair { engine, log, .. } = &mut pair;
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let before = engine.devices.promised();
    let srq = engine.create_srq(device, init(pd)).unwrap();
    let cost = engine.devices.promised() - before;
    // There is room for one more.
    engine.set_request_memory(before + 2 * cost);
    let other = engine.create_srq(device, init(pd)).unwrap();
    assert_eq!(engine.create_srq(device, init(pd)), Err(Error::NoResources));
    assert_eq!(engine.modify_srq(device, srq, (Some(9), None), log), Err(Error::NoResources));
    for max_wr in [7, 8] {
        engine.modify_srq(device, srq, (Some(max_wr), None), log).unwrap();
    }
    engine.destroy_srq(device, other).unwrap();
    engine.set_request_memory(u64::MAX);
    // A QP that uses it takes one receive of it at a time.
    let mut cost_of = |srq, max_recv_wr, max_recv_sge| {
        let before = engine.devices.promised();
        let init = QpInit { srq, max_recv_wr, max_recv_sge, ..qp_init(pd) };
        let qpn = engine.create_qp(device, init).unwrap();
        let cost = engine.devices.promised() - before;
        engine.destroy_qp(device, qpn).unwrap();
        cost
    };
    assert_eq!(cost_of(Some(srq), 16, 8), cost_of(None, 1, 2));
    // A copy has promised as much, and knows what is in use.
    let qpn = engine.create_qp(device, QpInit { srq: Some(srq), ..qp_init(pd) }).unwrap();
    let mut copy = save::copied(engine);
    assert_eq!(copy.devices.promised(), engine.devices.promised());
    assert_eq!(copy.destroy_srq(device, srq), Err(Error::Busy));
    copy.destroy_qp(device, qpn).unwrap();
    assert_eq!(copy.dealloc_pd(device, pd), Err(Error::Busy));
    copy.destroy_srq(device, srq).unwrap();
    copy.dealloc_pd(device, pd).unwrap();
    assert_eq!(copy.devices.promised(), before);
}

#[test]
fn the_qp_of_the_kernels_mad_has_receives_of_its_own() {
    let mut pair = Pair::new();
    let (device, owner) = (pair.b.device, OwnerId::KERNEL);
    let pd = pair.engine.alloc_pd(device, owner).unwrap();
    let srq = pair.engine.create_srq(device, SrqInit { owner, ..init(pd) }).unwrap();
    let gsi = QpInit { owner, qp_type: QpType::Gsi, srq: Some(srq), ..qp_init(pd) };
    assert_eq!(pair.engine.create_qp(device, gsi), Err(Error::Denied));
    assert_eq!(pair.engine.create_qp(device, QpInit { srq: None, ..gsi }), Ok(Qpn::GSI));
}

#[test]
fn queues_are_made_and_destroyed_within_limits() {
    let mut pair = Pair::new();
    let limits = Limits { max_srq: 2, max_request_memory: 10_000, ..Limits::default() };
    let device = pair.engine.add_device(limits);
    let engine = &mut pair.engine;
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let (fine, promised) = (init(pd), engine.devices.promised());
    for (init, error) in [
        (SrqInit { pd: PdId(99), ..fine }, Error::NotFound),
        (SrqInit { owner: OwnerId(8), ..fine }, Error::Denied),
        (SrqInit { max_wr: 0, ..fine }, Error::Invalid),
        (SrqInit { max_wr: 16385, ..fine }, Error::Invalid),
        (SrqInit { max_sge: 31, ..fine }, Error::Invalid),
        (SrqInit { max_wr: 1000, ..fine }, Error::NoResources),
    ] {
        assert_eq!(engine.create_srq(device, init), Err(error), "{init:?}");
    }
    let srqs = [(); 2].map(|()| engine.create_srq(device, fine).unwrap());
    assert_eq!(engine.create_srq(device, fine), Err(Error::NoResources));
    assert_eq!(
        engine.modify_srq(device, srqs[0], (Some(1000), None), &mut pair.log),
        Err(Error::NoResources)
    );
    let small = QpInit { max_send_wr: 1, srq: Some(srqs[0]), ..qp_init(pd) };
    let others = engine.alloc_pd(device, OwnerId(8)).unwrap();
    for (init, error) in [
        (QpInit { srq: Some(SrqId(77)), ..small }, Error::NotFound),
        (QpInit { owner: OwnerId::KERNEL, ..small }, Error::Denied),
        (QpInit { owner: OwnerId(8), pd: others, ..small }, Error::Denied),
    ] {
        assert_eq!(engine.create_qp(device, init), Err(error), "{init:?}");
    }
    let qpn = engine.create_qp(device, small).unwrap();
    assert_eq!(engine.qp_init(device, qpn).unwrap().max_recv_wr, 0);
    assert_eq!(engine.destroy_srq(device, srqs[0]), Err(Error::Busy));
    assert_eq!(engine.dealloc_pd(device, pd), Err(Error::Busy));
    engine.destroy_qp(device, qpn).unwrap();
    srqs.iter().for_each(|&srq| engine.destroy_srq(device, srq).unwrap());
    assert_eq!(engine.destroy_srq(device, srqs[0]), Err(Error::NotFound));
    assert_eq!(engine.query_srq(device, srqs[0]), Err(Error::NotFound));
    [pd, others].into_iter().for_each(|pd| engine.dealloc_pd(device, pd).unwrap());
    assert_eq!(engine.counts(device), ObjectCounts::default());
    assert_eq!(engine.devices.promised(), promised, "it has given back what it promised");
}

#[test]
fn a_destroyed_queue_drops_its_receives() {
    let mut pair = Pair::new();
    let shared = Shared::new(&mut pair.engine, &pair.b);
    for id in 1..=8 {
        shared.post(&mut pair.engine, id, 1, &mut pair.log).unwrap();
    }
    assert_eq!(pair.engine.counts(pair.b.device).pending_receives, 8);
    pair.engine.destroy_srq(pair.b.device, shared.srq).unwrap();
    assert_eq!((pair.engine.counts(pair.b.device).pending_receives, pair.statuses()), (0, vec![]));
}

/// Two hosts whose QPs are ready; B's takes its receives from a shared queue.
fn shared_net(qp_type: QpType) -> (Net, Shared) {
    let mut net = Net::new(qp_type);
    let Host { engine, end, .. } = &mut net.hosts[B];
    let shared = Shared::new(engine, end);
    end.qpn = engine.create_qp(end.device, QpInit { qp_type, ..shared.init(end) }).unwrap();
    let net = match qp_type {
        QpType::Uc => unreliable::connected(net),
        QpType::Ud => datagrams::ready(net),
        _ => {
            net.connect(net.attr(A), net.attr(B));
            net
        }
    };
    (net, shared)
}

#[test]
fn messages_in_packets_take_their_receives_from_it() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let (mut net, shared) = shared_net(qp_type);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let length = if qp_type == QpType::Ud { 1000 } else { 10_000 };
        let data: Vec<u8> = (0..length).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        a.memory.fill(0, &data);
        for id in 1..=3 {
            let Host { engine, log, .. } = &mut net.hosts[B];
            shared.post(engine, id, 1 << 16, log).unwrap();
        }
        for id in 11..=13 {
            let payload = [a.sge(0, length)];
            match qp_type {
                QpType::Ud => net.send(id, &net.way(), SEND, Payload::Sges(&payload)),
                _ => net.post(A, id, SEND, Payload::Sges(&payload)),
            }
            net.run();
        }
        assert_eq!(net.hosts[A].statuses(), [(11, OK), (12, OK), (13, OK)]);
        assert_eq!(net.hosts[B].statuses(), [(1, OK), (2, OK), (3, OK)], "{qp_type:?}");
        for id in 1..=3u64 {
            let at = ((id << 16) + if qp_type == QpType::Ud { 40 } else { 0 }) as usize;
            assert!(shared.end.memory.bytes(at, length as usize) == data, "{qp_type:?} {id}");
        }
        assert_eq!(b.memory.bytes(0, 100), [0; 100]);
    }
}

#[test]
fn without_a_receive_packets_are_answered_by_rnr_or_dropped() {
    let (mut net, shared) = shared_net(QpType::Rc);
    net.post(A, 1, SEND, Payload::Inline(b"x"));
    net.run();
    assert_eq!(net.hosts[B].counters().rnr_naks_sent, 1);
    let Host { engine, log, .. } = &mut net.hosts[B];
    shared.post(engine, 2, 1, log).unwrap();
    assert_eq!(net.sleep(), Some(RNR));
    assert_eq!((net.hosts[A].statuses(), net.hosts[B].statuses()), (vec![(1, OK)], vec![(2, OK)]));
    for qp_type in [QpType::Uc, QpType::Ud] {
        let (mut net, _) = shared_net(qp_type);
        match qp_type {
            QpType::Ud => net.send(1, &net.way(), SEND, Payload::Inline(b"x")),
            _ => net.post(A, 1, SEND, Payload::Inline(b"x")),
        }
        net.run();
        assert_eq!(net.hosts[B].counters().drop_no_receive, 1);
    }
}

#[test]
fn unreliable_messages_on_one_host_take_their_receives_from_it() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut pair = Pair::new();
        let shared = Shared::new(&mut pair.engine, &pair.b);
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let inits = [QpInit { qp_type, ..qp_init(a.pd) }, QpInit { qp_type, ..shared.init(&b) }];
        for (end, init) in [&mut pair.a, &mut pair.b].into_iter().zip(inits) {
            end.qpn = pair.engine.create_qp(end.device, init).unwrap();
        }
        let pair = match qp_type {
            QpType::Ud => super::datagrams::ready(pair),
            _ => super::unreliable::connected(pair),
        };
        take_one_of_two(pair, &shared);
    }
}

/// A message is lost, and two come, of which the second finds no receive.
fn take_one_of_two(mut pair: Pair, shared: &Shared) {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let request = SendRequest {
        id: 1,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"hi"),
    };
    let send = |pair: &mut Pair| {
        let Pair { engine, now, log, .. } = pair;
        match engine.is_datagram(a.device, a.qpn) {
            true => engine.post_datagram(*now, a.device, OWNER, a.qpn, &request, &to(&a, &b), log).unwrap(),
            false => engine.post_send(*now, a.device, OWNER, a.qpn, &request, log).unwrap(),
        }
        pair.look();
        pair.run();
    };
    send(&mut pair);
    shared.post(&mut pair.engine, 7, 100, &mut pair.log).unwrap();
    send(&mut pair);
    send(&mut pair);
    assert_eq!(pair.statuses(), [('a', 1, OK), ('b', 7, OK), ('a', 1, OK), ('a', 1, OK)]);
    assert_eq!(pair.engine.counters(b.device).drop_no_receive, 2);
}

#[test]
fn the_owner_of_the_queue_is_asked_for_receives() {
    let mut group = Group::new(1);
    let sender = group.senders[0].clone();
    let request = SendRequest {
        id: 1,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"x"),
    };
    let Pair { engine, now, log, .. } = &mut group.pair;
    engine.post_send(*now, sender.device, OWNER, sender.qpn, &request, log).unwrap();
    let question = engine.poll_question().expect("a question");
    assert_eq!((question.device, question.owner), (group.shared.end.device, OWNER));
    group.shared.post(engine, 3, 10, log).unwrap();
    engine.answer(*now, question, log);
    group.pair.run();
    assert_eq!((group.received(), group.counters().rnr_naks_sent), (vec![(0, 3, OK)], 0));
}
