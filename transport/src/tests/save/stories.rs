//! Engines in the middle of many activities at once, and the expected ends of these stories.

use super::*;
use crate::tests::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD, to};
use crate::tests::unreliable::CONNECT;
use crate::tests::wire::{A, B, Host, Net};
use vrdma_wire::num::{Imm, Mac};

const WITH_IMM: SendOp = SendOp::Send { imm: Some(Imm::from_bytes([1, 2, 3, 4])) };
/// The request of [`on_the_wire`] that records of version 1 lack.
pub(super) const ATOMIC_WRITE: u32 = 11;
/// The request of [`on_the_wire`] that records of versions 1 and 2 lack.
pub(super) const FLUSH: u32 = 12;
/// Completed requests: the device's letter or host's number, id, status.
pub(super) type Ends<T> = Vec<(T, u32, WcStatus)>;

/// Builds two hosts in the middle of a transfer.
///
/// The second has lost a packet, owes responses to READs, and has queued a frame without a receive.
/// The first waits with requests of all kinds.
pub(super) fn on_the_wire() -> Net {
    let mut net = Net::connected();
    let first = net.second_pair();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let add = SendOp::atomic(b.remote(64), Atomic::FetchAdd { add: 3 });
    let read = SendOp::Read { remote: b.remote(4096) };
    let store = SendOp::AtomicWrite { remote: b.remote(128) };
    // Executed requests whose results the responder remembers.
    net.post(A, 1, read, Payload::Sges(&[a.sge(0, 5000)]));
    net.post(A, 2, add, Payload::Sges(&[a.sge(8, 8)]));
    net.post(A, 10, store, Payload::Inline(b"12345678"));
    net.run();
    assert_eq!(net.hosts[A].statuses().len(), 3);
    net.post_recv(B, 20, &[b.sge(0, 10), b.sge(16, 10), b.sge(32, 10), b.sge(48, 10)]);
    net.post_recv(B, 21, &[]);
    net.post(A, 3, write_to(b.remote(1000)), Payload::Sges(&[a.sge(0, 3000), a.sge(5000, 7000)]));
    net.post(A, 4, read, Payload::Sges(&[a.sge(0, 9000)]));
    net.post(A, 5, add, Payload::Sges(&[a.sge(8, 8)]));
    net.post_fenced(A, 6, WITH_IMM, Payload::Inline(&[7; 30]), true);
    let compare = SendOp::atomic(b.remote(64), Atomic::CompareSwap { compare: 6, swap: 9 });
    net.post(A, 7, compare, Payload::Sges(&[a.sge(8, 8)]));
    net.post(A, 8, WITH_IMM, Payload::Sges(&[]));
    net.post(A, ATOMIC_WRITE, store, Payload::Sges(&[a.sge(5, 3), a.sge(0, 5)]));
    let scope = FlushScope { placement: Placement::Global, whole: false, length: 512 };
    net.post(A, FLUSH, SendOp::Flush { remote: b.remote(256), scope }, Payload::Sges(&[]));
    net.hosts[A].cable.room = Some(16);
    net.work(A);
    net.hosts[B].cable.room = Some(3);
    // The eleventh packet is lost.
    net.carry(A, |index, _| index != 10);
    net.work(B);
    // A message of another QP finds no receive, and the question is unanswered.
    let [own, peer] = &first;
    let Host { engine, log, cable, .. } = &mut net.hosts[A];
    let payload = Payload::Inline(b"early");
    let request = SendRequest { id: 9, signaled: true, solicited: true, fence: false, op: SEND, payload };
    engine.post_send(net.now, own.device, OWNER, own.qpn, &request, log).unwrap();
    cable.room = Some(8);
    engine.transmit(net.now, 100, cable, log);
    let frames = std::mem::take(&mut cable.frames);
    let Host { engine, log, .. } = &mut net.hosts[B];
    frames.iter().for_each(|frame| engine.handle_frame(net.now, frame, log));
    assert!(engine.has_questions());
    let request = RecvRequest { id: 22, sges: &[peer.sge(0, 100)] };
    engine.post_recv(net.now, peer.device, OWNER, peer.qpn, request, log).unwrap();
    for host in &mut net.hosts {
        host.cable.frames.clear();
        host.cable.room = None;
        assert_eq!(host.statuses(), []);
    }
    net
}

/// Finishes the story of [`on_the_wire`], whatever was on the wire.
pub(super) fn end_on_the_wire(net: &mut Net) -> Ends<usize> {
    net.settle();
    let ends =
        [A, B].map(|at| net.hosts[at].statuses().into_iter().map(move |(id, status)| (at, id, status)));
    let mut ends: Ends<usize> = ends.into_iter().flatten().collect();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

/// Returns the expected end of [`on_the_wire`].
pub(super) fn expected_on_the_wire() -> Ends<usize> {
    let ids = [(A, vec![3, 4, 5, 6, 7, 8, 9, ATOMIC_WRITE, FLUSH]), (B, vec![20, 21, 22])];
    let ok = |(at, ids): (usize, Vec<u32>)| ids.into_iter().map(move |id| (at, id, WcStatus::Success));
    ids.into_iter().flat_map(ok).collect()
}

/// Builds one host in the middle of many activities.
///
/// One RC QP is in the middle of a long message, and one waits for a receive. A UC QP and a
/// datagram wait for the answer to a question. One QP is in SQD. A third device is suspended with
/// requests, and a fourth continues after a suspension.
pub(super) fn on_one_host() -> Pair {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_mac(a.device, Mac([2, 0, 0, 0, 0, 9])).unwrap();
    let spare = pair.engine.alloc_pd(a.device, OWNER).unwrap();
    pair.engine.dealloc_pd(a.device, spare).unwrap();
    let make = |pair: &mut Pair, end: &End, qp_type| {
        let init = QpInit { qp_type, ..qp_init(end.pd) };
        End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() }
    };
    // On the first connection, B has no receive, so the sender waits.
    send(&mut pair, &a, 1, SEND, Payload::Sges(&[a.sge(0, 40), a.sge(64, 30)]), None);
    pair.look();
    // A long WRITE on a second connection is in progress. Its third request cannot be parsed.
    let [c, d] = [&a, &b].map(|end| make(&mut pair, end, QpType::Rc));
    for (own, peer) in [(&c, &d), (&d, &c)] {
        pair.connect(own, attr_to(peer), QpState::Rts);
    }
    let long = [c.sge(0, 300_000), c.sge(300_000, 400_000)];
    send(&mut pair, &c, 2, write_to(d.remote(0)), Payload::Sges(&long), None);
    send(&mut pair, &c, 3, SendOp::Read { remote: d.remote(0) }, Payload::Sges(&[c.sge(0, 100)]), None);
    let Pair { engine, now, log, .. } = &mut pair;
    engine.post_invalid(*now, c.device, OWNER, c.qpn, 4, Queue::Send, log).unwrap();
    engine.poll(*now, 1, log);
    // UC QPs and datagrams ask whether there is a receive. The question is taken.
    let [e, f] = [&a, &b].map(|end| make(&mut pair, end, QpType::Uc));
    for (own, peer) in [(&e, &f), (&f, &e)] {
        let steps = [(QpState::Init, TO_INIT), (QpState::Rtr, CONNECT)];
        let rts = (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN);
        for (state, mask) in steps.into_iter().chain([rts]) {
            pair.modify(own, mask, QpAttr { state, ..attr_to(peer) }).unwrap();
        }
    }
    let [g, h] = [&a, &b].map(|end| make(&mut pair, end, QpType::Ud));
    for end in [&g, &h] {
        for (state, mask) in
            [(QpState::Init, TO_INIT_UD), (QpState::Rtr, AttrMask::STATE), (QpState::Rts, TO_RTS_UD)]
        {
            pair.modify(end, mask, QpAttr { state, port: 1, qkey: QKEY, ..QpAttr::default() }).unwrap();
        }
    }
    send(&mut pair, &e, 5, WITH_IMM, Payload::Inline(&[5; 20]), None);
    send(&mut pair, &g, 6, SEND, Payload::Sges(&[g.sge(0, 100)]), Some(to(&g, &h)));
    send(&mut pair, &g, 7, SEND, Payload::Inline(b"behind"), Some(to(&g, &h)));
    assert!(pair.engine.poll_question().is_some());
    // The second connection drains.
    pair.go(&c, QpState::Sqd);
    // Two more devices.
    for number in [3, 4] {
        let device = pair.engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
        let gid = Gid::from_ipv4([10, 0, 0, number]);
        pair.engine.set_gid(device, 3, Some(gid.into())).unwrap();
        let pd = pair.engine.alloc_pd(device, OWNER).unwrap();
        let memory = Mem::new(4096);
        let key = pair.engine.reg_mr(device, pd, Access::ALL, IOVA, 4096, memory.clone()).unwrap();
        let qpn = pair.engine.create_qp(device, qp_init(pd)).unwrap();
        let end = End { device, pd, qpn, gid, memory, key };
        let attr = QpAttr { sgid_index: 3, dest_qpn: qpn, ..attr_to(&end) };
        pair.connect(&end, attr, QpState::Rts);
        pair.post_recv(&end, 30, &[end.sge(0, 64)]).unwrap();
        pair.engine.set_suspended(device, true);
        send(&mut pair, &end, 8, SEND, Payload::Sges(&[end.sge(0, 64)]), None);
        if number == 4 {
            pair.engine.set_suspended(device, false);
        }
    }
    assert_eq!(pair.statuses(), []);
    pair
}

/// Posts a request, without letting the engine work.
pub(super) fn send(
    pair: &mut Pair,
    end: &End,
    id: u32,
    op: SendOp,
    payload: Payload<'_>,
    to: Option<Destination>,
) {
    let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
    let Pair { engine, now, log, .. } = pair;
    match to {
        Some(to) => engine.post_datagram(*now, end.device, OWNER, end.qpn, &request, &to, log).unwrap(),
        None => engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap(),
    }
}

/// Finishes the story of [`on_one_host`], whose device numbers it uses.
///
/// Receives are posted to the QPs that lack them.
pub(super) fn end_on_one_host(pair: &mut Pair) -> Ends<u32> {
    let [a, b, c] = [0, 1, 2].map(DeviceId);
    let record = pair.engine.save();
    let qps = |device: DeviceId| record.devices[device.0 as usize].iter().flat_map(|device| &device.qps);
    let memory = record.devices[1].as_ref().unwrap().mrs[0].key;
    let sge = Sge { addr: IOVA, length: 200, lkey: Lkey(memory) };
    pair.run();
    pair.engine.answer(pair.now, DrainRequest { device: b, owner: OWNER }, &mut pair.log);
    for qp in qps(b) {
        let request = RecvRequest { id: 40, sges: &[sge] };
        let qpn = Qpn::new(qp.qpn).unwrap();
        pair.engine.post_recv(pair.now, b, OWNER, qpn, request, &mut pair.log).unwrap();
    }
    pair.run();
    pair.engine.set_suspended(c, false);
    for qp in qps(a).filter(|qp| qp.state == record::QpState::Sqd) {
        let attr = QpAttr { state: QpState::Rts, ..QpAttr::default() };
        let qpn = Qpn::new(qp.qpn).unwrap();
        pair.engine.modify_qp(pair.now, a, qpn, AttrMask::STATE, &attr, &mut pair.log).unwrap();
    }
    while pair.sleep().is_some() {}
    let mut ends: Ends<u32> =
        pair.log.completions.drain(..).map(|(id, _, c)| (id.0, c.id, c.status)).collect();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

/// Bytes of a message that takes several rounds.
const LONG: u32 = 900_000;

/// Builds one host (from version 3 on) with four RC connections whose receivers share an SRQ.
///
/// A long message of the first is in progress. The others wait for a receive: one of them was
/// woken, and there is a receive for another.
pub(super) fn shared_queue() -> Pair {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let init = SrqInit { owner: OWNER, pd: b.pd, max_wr: 8, max_sge: 1, xrc: None };
    let srq = pair.engine.create_srq(b.device, init).unwrap();
    let spare = pair.engine.create_srq(b.device, init).unwrap();
    pair.engine.destroy_srq(b.device, spare).unwrap();
    let senders = [1, 2, 3, 4].map(|_| {
        let inits = [(&a, None), (&b, Some(srq))]
            .map(|(end, srq)| (end, QpInit { receives: srq.into(), ..qp_init(end.pd) }));
        let [one, other] = inits
            .map(|(end, init)| End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() });
        pair.connect(&one, attr_to(&other), QpState::Rts);
        pair.connect(&other, attr_to(&one), QpState::Rts);
        one
    });
    let long = [a.sge(0, LONG)];
    shared_recv(&mut pair, srq, 40);
    send(&mut pair, &senders[0], 1, SEND, Payload::Sges(&long), None);
    pair.engine.poll(pair.now, 1, &mut pair.log);
    for (sender, id) in senders[1..].iter().zip([2, 3, 4]) {
        send(&mut pair, sender, id, SEND, Payload::Inline(b"waits"), None);
        answer_all(&mut pair.engine, pair.now, &mut pair.log);
    }
    // One turn of each.
    (0..4).for_each(|_| _ = pair.engine.poll(pair.now, 1, &mut pair.log));
    assert_eq!((pair.statuses(), pair.engine.counters(pair.b.device).rnr_naks_sent), (vec![], 3));
    shared_recv(&mut pair, srq, 41);
    pair.engine.poll(pair.now, 1, &mut pair.log);
    shared_recv(&mut pair, srq, 42);
    assert_eq!(pair.statuses(), []);
    pair
}

/// Finishes the story of `shared_queue()`.
pub(super) fn end_of_shared_queue(pair: &mut Pair) -> (Ends<u32>, Vec<Event>) {
    let record = pair.engine.save();
    let srq = SrqId(record.devices[1].as_ref().unwrap().srqs[0].srq);
    pair.run();
    (43..45).for_each(|id| shared_recv(pair, srq, id));
    pair.run();
    pair.engine.modify_srq(pair.b.device, srq, (None, Some(2)), &mut pair.log).unwrap();
    while pair.sleep().is_some() {}
    let mut ends: Ends<u32> =
        pair.log.completions.drain(..).map(|(id, _, c)| (id.0, c.id, c.status)).collect();
    ends.sort_by_key(|end| (end.0, end.1));
    (ends, pair.log.events.drain(..).map(|event| event.1).collect())
}

/// Returns the expected end of `shared_queue()`.
pub(super) fn expected_of_shared_queue() -> (Ends<u32>, Vec<Event>) {
    let ids = [(0, vec![1, 2, 3, 4]), (1, vec![40, 41, 42, 43])];
    let ok = |(at, ids): (u32, Vec<u32>)| ids.into_iter().map(move |id| (at, id, WcStatus::Success));
    (ids.into_iter().flat_map(ok).collect(), vec![Event::SrqLimitReached(SrqId(1 << 16))])
}

fn shared_recv(pair: &mut Pair, srq: SrqId, id: u32) {
    let sges = [pair.b.sge(0, LONG)];
    let Pair { engine, b, log, .. } = pair;
    engine.post_srq_recv(b.device, OWNER, srq, RecvRequest { id, sges: &sges }, log).unwrap();
}

/// Builds one host (from version 3 on) with memory windows.
///
/// Windows of both types are bound, one is unbound, and one is freed. Binds and invalidations wait
/// behind a SEND without a receive.
pub(super) fn windows() -> Pair {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let [c, d] = [&a, &b].map(|end| {
        let qpn = pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap();
        End { qpn, ..end.clone() }
    });
    for (own, peer) in [(&c, &d), (&d, &c)] {
        pair.connect(own, attr_to(peer), QpState::Rts);
    }
    let [of_a, of_b, other] = [&a, &b, &b].map(|end| {
        let End { device, pd, ref memory, .. } = *end;
        Lkey(pair.engine.reg_mr(device, pd, Access::REGION, IOVA, 4096, memory.clone()).unwrap())
    });
    let spare = pair.engine.alloc_pd(b.device, OWNER).unwrap();
    pair.engine.alloc_mw(b.device, spare, MwType::Type2B).unwrap();
    let mut bound = |end: &End, mw_type, lkey, access| {
        let rkey = pair.engine.alloc_mw(end.device, end.pd, mw_type).unwrap();
        let bind = Bind { rkey, new_rkey: rkey, lkey, access, addr: IOVA + 64, length: 128 };
        send(&mut pair, end, 0, SendOp::BindMw(bind), Payload::Sges(&[]), None);
        rkey
    };
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let key_of_a = bound(&a, MwType::Type2B, of_a, rights);
    bound(&b, MwType::Type1, other, rights);
    let zero_based = bound(&b, MwType::Type2B, of_b, rights | Access::ZERO_BASED);
    bound(&d, MwType::Type2B, of_b, rights);
    let gone = bound(&b, MwType::Type1, of_b, rights);
    pair.engine.dealloc_mw(b.device, gone).unwrap();
    assert_eq!(pair.statuses().len(), 5);
    send(&mut pair, &b, 1, SEND, Payload::Inline(b"waits"), None);
    pair.look();
    send(&mut pair, &b, 2, SendOp::LocalInvalidate { key: zero_based }, Payload::Sges(&[]), None);
    let new_rkey = Rkey(zero_based.0 ^ 0x55);
    let again = Bind { rkey: zero_based, new_rkey, lkey: of_b, access: rights, addr: IOVA, length: 8 };
    send(&mut pair, &b, 3, SendOp::BindMw(again), Payload::Sges(&[]), None);
    send(&mut pair, &b, 4, SendOp::SendInvalidate { key: key_of_a }, Payload::Inline(b"free"), None);
    assert_eq!(pair.statuses(), []);
    pair
}

/// Finishes the story of `windows()`.
///
/// Queued requests complete when A has receives. Then WRITEs try each bound key of B.
pub(super) fn end_of_windows(pair: &mut Pair) -> Ends<u32> {
    let a = pair.a.clone();
    for id in [40, 41] {
        pair.post_recv(&a, id, &[a.sge(0, 64)]).unwrap();
    }
    while pair.sleep().is_some() {}
    let record = pair.engine.save();
    for (id, window) in (50..).zip(&record.devices[1].as_ref().unwrap().windows) {
        let Some(bound) = &window.bound else { continue };
        let remote = Remote { addr: bound.addr, rkey: Rkey(window.key) };
        send(pair, &a, id, write_to(remote), Payload::Inline(b"peer"), None);
    }
    let mut ends: Ends<u32> =
        pair.log.completions.drain(..).map(|(id, _, c)| (id.0, c.id, c.status)).collect();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

/// Returns the expected end of `windows()`. The last window belongs to another QP.
pub(super) fn expected_of_windows() -> Ends<u32> {
    let ok = [(0, 40), (0, 41), (0, 51), (0, 52)].map(|(device, id)| (device, id, WcStatus::Success));
    let sends = [1, 2, 3, 4].map(|id| (1, id, WcStatus::Success));
    ok.into_iter().chain([(0, 53, WcStatus::RemAccess)]).chain(sends).collect()
}

/// Builds one host (from version 3 on) with the kernel's regions for fast registration.
///
/// One region is free, and one is not. Registrations and invalidations wait behind a SEND without a
/// receive.
pub(super) fn fast() -> Pair {
    let mut pair = Pair::new();
    let Pair { engine, a, b, .. } = &mut pair;
    for end in [&mut *a, &mut *b] {
        end.pd = engine.alloc_pd(end.device, OwnerId::KERNEL).unwrap();
        end.key = engine.reg_mr(end.device, end.pd, Access::ALL, IOVA, 1 << 20, end.memory.clone()).unwrap();
        end.qpn = engine.create_qp(end.device, QpInit { owner: OwnerId::KERNEL, ..qp_init(end.pd) }).unwrap();
    }
    let (a, b) = (a.clone(), b.clone());
    let [free, used] =
        [8, 3].map(|pages| Rkey(pair.engine.alloc_fast_mr(b.device, b.pd, pages, b.memory.clone()).unwrap()));
    pair.connect(&a, attr_to(&b), QpState::Rts);
    pair.connect(&b, attr_to(&a), QpState::Rts);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let register = |key, iova| SendOp::RegMr { key, access, iova, length: 5000, list: 64, page_shift: 12 };
    kernel_send(&mut pair, &b, 0, register(used, 0x9000_0008), Payload::Sges(&[]));
    kernel_send(&mut pair, &b, 1, SEND, Payload::Inline(b"waits"));
    pair.look();
    kernel_send(&mut pair, &b, 2, SendOp::LocalInvalidate { key: used }, Payload::Sges(&[]));
    kernel_send(&mut pair, &b, 3, register(Rkey(free.0 ^ 0x33), 0x7000_0000), Payload::Sges(&[]));
    assert_eq!(pair.statuses(), [('b', 0, WcStatus::Success)]);
    pair
}

fn kernel_send(pair: &mut Pair, end: &End, id: u32, op: SendOp, payload: Payload<'_>) {
    let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
    let Pair { engine, now, log, .. } = pair;
    engine.post_send(*now, end.device, OwnerId::KERNEL, end.qpn, &request, log).unwrap();
}

/// Finishes the story of `fast()`.
///
/// A WRITE tries the first registration. Then A gets a receive, and WRITEs try both registrations.
pub(super) fn end_of_fast(pair: &mut Pair) -> Ends<u32> {
    let a = pair.a.clone();
    let [used, free] = [0x9000_0008, 0x7000_0000].map(|iova| (iova, fast_keys(pair, iova)));
    let write = |pair: &mut Pair, id, (addr, rkey)| {
        kernel_send(pair, &a, id, write_to(Remote { addr, rkey }), Payload::Inline(b"peer"));
    };
    write(pair, 50, used);
    let sges = [Sge { addr: IOVA, length: 64, lkey: Lkey(pair.a.key) }];
    let Pair { engine, log, .. } = &mut *pair;
    engine
        .post_recv(Instant(0), a.device, OwnerId::KERNEL, a.qpn, RecvRequest { id: 40, sges: &sges }, log)
        .unwrap();
    while pair.sleep().is_some() {}
    write(pair, 51, free);
    write(pair, 52, used);
    while pair.sleep().is_some() {}
    let mut ends: Ends<u32> =
        pair.log.completions.drain(..).map(|(id, _, c)| (id.0, c.id, c.status)).collect();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

/// Returns the key of B that names these addresses, or that will name them.
fn fast_keys(pair: &Pair, iova: u64) -> Rkey {
    let record = pair.engine.save();
    let device = record.devices[1].as_ref().unwrap();
    let mut fast = device.mrs.iter().filter(|mr| mr.fast.is_some());
    if let Some(mr) = fast.find(|mr| mr.iova == iova) {
        return Rkey(mr.key);
    }
    let sends = device.qps.iter().flat_map(|qp| &qp.requester.queue);
    let mut keys = sends.filter_map(|send| match send.operation {
        record::Operation::RegMr { key, .. } => Some(Rkey(key)),
        _ => None,
    });
    keys.next_back().expect("a registration waits")
}

/// Returns the expected end of `fast()`.
pub(super) fn expected_of_fast() -> Ends<u32> {
    let ok = [(0, 40), (0, 50), (0, 51), (1, 1), (1, 2), (1, 3)];
    let mut ends: Ends<u32> = ok.into_iter().map(|(device, id)| (device, id, WcStatus::Success)).collect();
    ends.insert(3, (0, 52, WcStatus::RemAccess));
    ends
}

/// Copies both hosts.
fn copies(net: Net) -> Net {
    let Net { hosts, now } = net;
    Net { hosts: hosts.map(|host| Host { engine: copied(&host.engine), ..host }), now }
}

#[test]
fn on_the_wire_copies_end_the_story() {
    let ends = end_on_the_wire(&mut on_the_wire());
    assert_eq!(ends, expected_on_the_wire());
    assert_eq!(end_on_the_wire(&mut copies(on_the_wire())), ends);
}

#[test]
fn on_one_host_a_copy_ends_the_story() {
    let ends = end_on_one_host(&mut on_one_host());
    assert_eq!(ends, expected_on_one_host());
    let pair = on_one_host();
    let mut copy = Pair { engine: copied(&pair.engine), ..pair };
    assert_eq!(end_on_one_host(&mut copy), ends);
}

/// Returns the expected end of [`on_one_host`].
pub(super) fn expected_on_one_host() -> Ends<u32> {
    let ok = |(device, id)| (device, id, WcStatus::Success);
    let wrong = (0, 4, WcStatus::LocQpOp);
    let receives = [(1, 40); 3];
    let ends = [(0, 1), (0, 2), (0, 3), (0, 5), (0, 6), (0, 7), (2, 8), (2, 30), (3, 8), (3, 30)];
    let mut ends: Ends<u32> = ends.into_iter().chain(receives).map(ok).chain([wrong]).collect();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

#[test]
fn numbers_that_were_used_are_not_used_again_by_a_copy() {
    let mut pair = Pair::connected();
    let End { device, pd, qpn, .. } = pair.a.clone();
    pair.engine.destroy_qp(device, qpn).unwrap();
    let key = pair.engine.reg_mr(device, pd, Access::ALL, IOVA, 8, Mem::new(8)).unwrap();
    pair.engine.dereg_mr(device, key).unwrap();
    let mut copy = copied(&pair.engine);
    for _ in 0..200 {
        let [own, copied] = [&mut pair.engine, &mut copy].map(|engine| {
            let qpn = engine.create_qp(device, qp_init(pd)).unwrap();
            let key = engine.reg_mr(device, pd, Access::ALL, IOVA, 8, Mem::new(8)).unwrap();
            let spare = engine.alloc_pd(device, OWNER).unwrap();
            engine.destroy_qp(device, qpn).unwrap();
            engine.dereg_mr(device, key).unwrap();
            engine.dealloc_pd(device, spare).unwrap();
            (qpn, key, spare)
        });
        assert_eq!(own, copied);
        assert!(own.0 != qpn && own.1 != key);
    }
    let devices = [&mut pair.engine, &mut copy].map(|engine| {
        let device = engine.add_device(Limits::default());
        let pd = engine.alloc_pd(device, OWNER).unwrap();
        engine.create_qp(device, qp_init(pd)).unwrap()
    });
    assert_eq!(devices[0], devices[1], "the generator goes on");
}

#[test]
fn copies_of_a_shared_queue_end_the_story() {
    let mut pair = shared_queue();
    let mut copy = Pair { engine: copied(&pair.engine), ..Pair::new() };
    let ends = end_of_shared_queue(&mut pair);
    assert_eq!(ends, expected_of_shared_queue());
    assert_eq!(end_of_shared_queue(&mut copy), ends);
}

#[test]
fn a_copy_of_windows_ends_the_story() {
    let mut pair = windows();
    let mut copy = Pair { engine: copied(&pair.engine), ..windows() };
    let ends = end_of_windows(&mut pair);
    assert_eq!(ends, expected_of_windows());
    assert_eq!(end_of_windows(&mut copy), ends);
}

#[test]
fn a_copy_of_fast_registrations_ends_the_story() {
    let mut pair = fast();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let mut copy = Pair { engine: copied(&pair.engine), now: pair.now, log: Log::default(), a, b };
    let ends = end_of_fast(&mut pair);
    assert_eq!(ends, expected_of_fast());
    assert_eq!(end_of_fast(&mut copy), ends);
}

#[test]
fn a_window_of_a_qp_that_is_gone_is_not_bound_in_a_copy() {
    let mut pair = windows();
    let b = pair.b.clone();
    pair.go(&b, QpState::Reset);
    let bound = |engine: &Engine<Mem>| {
        let record = engine.save();
        let windows = record.devices[1].as_ref().unwrap().windows.iter();
        windows.map(|window| window.bound.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(bound(&pair.engine), [false, true, false, true]);
    let copy = copied(&pair.engine);
    assert!(!copy.is_unbinding(b.device));
    while pair.engine.is_unbinding(b.device) {
        pair.engine.poll(pair.now, 1, &mut pair.log);
    }
    assert_eq!(copy.save().devices, pair.engine.save().devices);
}

#[test]
fn a_link_that_is_back_is_nothing_to_a_device_that_was_removed() {
    let mut pair = Pair::connected();
    pair.engine.remove_device(pair.a.device);
    for up in [true, false, true] {
        pair.engine.set_link(up);
    }
    let mut copy = copied(&pair.engine);
    for engine in [&mut pair.engine, &mut copy] {
        while engine.poll(pair.now, u64::MAX, &mut pair.log) {}
    }
    assert_eq!(copy.save(), pair.engine.save());
}
