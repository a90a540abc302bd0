//! XRC, on one host and on two: initiators name a process' SRQ, and targets belong to no process.
//!
//! Shows: xrc.

use vrdma_tests::abi::control::{CreateSrqReq, QpState, QpType, Status, limit};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{CableOptions, Context, Cq, Guest, Lab, LabOptions, Mr, Qp, QpOptions, Rng, connect};

use std::sync::Arc;

/// A process that receives: it has an XRC SRQ with CQ and memory.
struct Receiver {
    process: Context,
    cq: Cq,
    mr: Mr,
    srqn: u32,
}

fn request(process: &Context, cq: &Cq, xrcdn: u32) -> CreateSrqReq {
    CreateSrqReq {
        context: process.number.into(),
        pdn: process.pd.into(),
        max_wr: 64.into(),
        max_sge: 2.into(),
        xrcdn: xrcdn.into(),
        cqn: cq.number.into(),
    }
}

impl Receiver {
    fn new(guest: &Arc<Guest>, xrcdn: u32) -> Receiver {
        let process = Context::open(guest).expect("a context with a channel");
        let (cq, mr) = (process.cq(256), process.mr(1 << 20));
        let srqn = guest.create_srq(&request(&process, &cq, xrcdn)).unwrap();
        Receiver { process, cq, mr, srqn }
    }

    fn recv(&mut self, id: u32) {
        let sge = self.mr.sge(u64::from(id) << 13, 8192);
        self.process.post(&Request::srq_recv(self.srqn, id, &[sge]));
    }

    fn close(self) {
        self.process.guest.destroy_srq(self.srqn).unwrap();
        self.mr.deregister().unwrap();
        self.cq.destroy().unwrap();
        self.process.close().unwrap();
    }
}

/// A process that sends, with an XRC initiator.
struct Sender {
    process: Context,
    cq: Cq,
    mr: Mr,
    qp: Qp,
}

impl Sender {
    fn new(guest: &Arc<Guest>) -> Sender {
        let process = Context::open(guest).expect("a context with a channel");
        let (cq, mr) = (process.cq(256), process.mr(1 << 16));
        let options = QpOptions::of(QpType::XRC_SEND);
        let qp = Qp::create(guest, process.number, process.pd, cq.number, limit::NONE, &options).unwrap();
        Sender { process, cq, mr, qp }
    }

    fn send(&mut self, id: u32, srqn: u32, len: u32) {
        let sge = [self.mr.sge(0, len)];
        let request = Request::send(self.qp.tag(id), Data::Sges(&sge)).signaled(true).xrc(srqn);
        self.process.post(&request);
    }

    fn close(self) {
        self.qp.destroy().unwrap();
        self.mr.deregister().unwrap();
        self.cq.destroy().unwrap();
        self.process.close().unwrap();
    }
}

fn target_options(xrcdn: u32) -> QpOptions {
    QpOptions { xrcdn, ..QpOptions::of(QpType::XRC_RECV) }
}

/// Creates an XRC target in the kernel's context, because it belongs to no process.
fn target(guest: &Arc<Guest>, xrcdn: u32) -> Qp {
    let none = limit::NONE;
    Qp::create(guest, limit::KERNEL_CONTEXT, none, none, none, &target_options(xrcdn)).unwrap()
}

/// Returns a lab with two guests on one host, and one on two hosts.
///
/// The second guest has an XRC domain, whose number is returned.
fn labs() -> [(Lab, u32); 2] {
    [None, Some(CableOptions::default())].map(|cable| {
        let lab = Lab::with(2, LabOptions { cable, ..LabOptions::default() });
        let xrcdn = lab.guests[1].alloc_xrcd().unwrap();
        (lab, xrcdn)
    })
}

#[test]
fn one_connection_reaches_the_queues_of_several_processes() {
    for (lab, xrcdn) in labs() {
        let mut sender = Sender::new(&lab.guests[0]);
        let target = target(&lab.guests[1], xrcdn);
        connect(&sender.qp, &target);
        let mut receivers = [(); 3].map(|()| Receiver::new(&lab.guests[1], xrcdn));
        for receiver in &mut receivers {
            (1..=4).for_each(|id| receiver.recv(id));
        }
        let mut next = [1; 3];
        for (id, to) in (1..=9).zip([0, 2, 1, 1, 0, 2, 2, 0, 1]) {
            let receiver = &mut receivers[to];
            let (text, len) = (format!("message {id}"), if id == 5 { 8000 } else { 9 });
            sender.mr.put(0, text.as_bytes());
            sender.send(id, receiver.srqn, len);
            assert_eq!(sender.cq.expect_success().id(), id);
            let wc = receiver.cq.expect_success();
            assert_eq!((wc.id(), wc.qpn(), wc.len()), (next[to], target.number, len));
            assert_eq!((wc.xrc_srqn(), wc.is_recv()), (Some(receiver.srqn), true));
            assert_eq!(receiver.mr.get(u64::from(next[to]) << 13, 9), text.as_bytes());
            next[to] += 1;
        }
        target.destroy().unwrap();
        receivers.into_iter().for_each(Receiver::close);
        sender.close();
        lab.guests[1].dealloc_xrcd(xrcdn).unwrap();
    }
}

#[test]
fn rdma_reaches_memory_of_the_queue_that_it_names() {
    for (lab, xrcdn) in labs() {
        let mut sender = Sender::new(&lab.guests[0]);
        let target = target(&lab.guests[1], xrcdn);
        connect(&sender.qp, &target);
        let [mut one, other] = [(); 2].map(|()| Receiver::new(&lab.guests[1], xrcdn));
        let mut events = lab.guests[1].async_events();
        let remote = Remote { addr: one.mr.iova + 64, rkey: one.mr.key };
        let (tag, sge) = (sender.qp.tag(7), sender.mr.sge(512, 8));
        one.mr.put(64, &40u64.to_le_bytes());
        one.recv(1);
        let result = [sge];
        let requests = [
            Request::fetch_add(tag, remote, 2, &sge),
            Request::compare_swap(tag, remote, 42, 43, &sge),
            Request::read(tag, remote, &result),
            Request::write_imm(tag, remote, [1, 2, 3, 4], Data::Inline(b"imm data")),
            Request::write(tag, remote, Data::Inline(b"the last")),
        ];
        for (request, found) in requests.iter().zip([40u64, 42, 43, 43, 43]) {
            sender.process.post(&request.signaled(true).xrc(one.srqn));
            sender.cq.expect_success();
            assert_eq!(sender.mr.get(512, 8), found.to_le_bytes());
        }
        assert_eq!(one.cq.expect_success().imm(), Some([1, 2, 3, 4]));
        assert_eq!(one.mr.get(64, 8), b"the last");
        // The SRQ of the other process gives no access to that memory.
        sender.process.post(&requests[4].signaled(true).xrc(other.srqn));
        sender.cq.expect(sender.qp.number, 7, WcStatus::REM_ACCESS_ERR);
        let told = std::iter::from_fn(|| Some(events.recv())).find(|told| told.kind != EventKind::COMM_EST);
        assert_eq!(told, Some(Told { kind: EventKind::QP_ACCESS_ERR, object: target.number }));
        assert_eq!((target.state(), sender.qp.state()), (QpState::ERR, QpState::ERR));
    }
}

#[test]
fn queues_that_are_none_of_the_domain_are_refused() {
    for (lab, xrcdn) in labs() {
        let guest = &lab.guests[1];
        let elsewhere = guest.alloc_xrcd().unwrap();
        let (receiver, foreign) = (Receiver::new(guest, xrcdn), Receiver::new(guest, elsewhere));
        let gone = Receiver::new(guest, xrcdn);
        let srqns = [0x00ab_cdef, foreign.srqn, gone.srqn];
        gone.close();
        for srqn in srqns {
            let mut sender = Sender::new(&lab.guests[0]);
            let target = target(guest, xrcdn);
            connect(&sender.qp, &target);
            sender.send(1, srqn, 4);
            sender.cq.expect(sender.qp.number, 1, WcStatus::REM_ACCESS_ERR);
            assert_eq!(target.state(), QpState::ERR);
            target.destroy().unwrap();
            sender.close();
        }
        // An XRC request that names no SRQ, and a request of another QP type that names one.
        let mut sender = Sender::new(&lab.guests[0]);
        let target = target(guest, xrcdn);
        connect(&sender.qp, &target);
        let request = Request::send(sender.qp.tag(1), Data::Inline(b"x"));
        sender.process.post(&request);
        sender.cq.expect(sender.qp.number, 1, WcStatus::LOC_QP_OP_ERR);
        let (mut a, b) = vrdma_tests::side::pair(&lab, 1, 4096, &QpOptions::default());
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"x")).xrc(receiver.srqn));
        a.cq.expect(a.qp.number, 1, WcStatus::LOC_QP_OP_ERR);
        drop(b);
    }
}

#[test]
fn a_message_waits_for_a_receive_that_its_process_posts_late() {
    for (lab, xrcdn) in labs() {
        let mut sender = Sender::new(&lab.guests[0]);
        let target = target(&lab.guests[1], xrcdn);
        connect(&sender.qp, &target);
        let mut receivers = [(); 2].map(|()| Receiver::new(&lab.guests[1], xrcdn));
        for round in 1..=20 {
            let to = round as usize % 2;
            sender.send(round, receivers[to].srqn, 100);
            receivers[to].recv(round);
            assert_eq!(receivers[to].cq.expect_success().id(), round);
            assert_eq!(sender.cq.expect_success().id(), round);
        }
    }
}

#[test]
fn domains_stay_while_they_are_used_and_queues_go_at_once() {
    let lab = Lab::new(2);
    let guest = &lab.guests[1];
    let xrcdn = guest.alloc_xrcd().unwrap();
    let receiver = Receiver::new(guest, xrcdn);
    assert_eq!(guest.dealloc_xrcd(xrcdn), Err(Status::BUSY));
    let mut sender = Sender::new(&lab.guests[0]);
    let target = target(guest, xrcdn);
    connect(&sender.qp, &target);
    // The message waits for a receive of an SRQ that is destroyed.
    sender.send(1, receiver.srqn, 4);
    assert_eq!(guest.destroy_cq(receiver.cq.number), Err(Status::BUSY));
    receiver.close();
    sender.cq.expect(sender.qp.number, 1, WcStatus::REM_ACCESS_ERR);
    assert_eq!(guest.dealloc_xrcd(xrcdn), Err(Status::BUSY));
    target.destroy().unwrap();
    guest.dealloc_xrcd(xrcdn).unwrap();
    assert_eq!(guest.dealloc_xrcd(xrcdn), Err(Status::NOT_FOUND));
    sender.close();
    guest.del_gid(0).unwrap();
    lab.expect_nothing_left(1);
}

#[test]
fn the_verbs_refuse_what_they_cannot_do() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let xrcdn = guest.alloc_xrcd().unwrap();
    let (receiver, other) = (Receiver::new(guest, xrcdn), Receiver::new(guest, xrcdn));
    let (process, cq, none) = (&receiver.process, &receiver.cq, limit::NONE);
    let fine = request(process, cq, xrcdn);
    assert_eq!(guest.create_srq(&CreateSrqReq { xrcdn: 0xffff.into(), ..fine }), Err(Status::NOT_FOUND));
    assert_eq!(guest.create_srq(&CreateSrqReq { cqn: 0xffff.into(), ..fine }), Err(Status::NOT_FOUND));
    assert_eq!(guest.create_srq(&CreateSrqReq { cqn: other.cq.number.into(), ..fine }), Err(Status::DENIED));
    let (initiator, target) = (QpOptions::of(QpType::XRC_SEND), target_options(xrcdn));
    let on = |srqn, options: &QpOptions| QpOptions { srqn, ..options.clone() };
    let rc = QpOptions::default();
    for (pd, send, recv, options, status) in [
        (none, none, none, target_options(0xffff), Status::NOT_FOUND),
        (process.pd, none, none, target.clone(), Status::INVALID),
        (none, cq.number, none, target.clone(), Status::INVALID),
        (none, none, cq.number, target.clone(), Status::INVALID),
        (none, none, none, on(receiver.srqn, &target), Status::INVALID),
        (process.pd, cq.number, cq.number, initiator.clone(), Status::INVALID),
        (process.pd, cq.number, none, on(receiver.srqn, &initiator), Status::INVALID),
        (process.pd, cq.number, none, QpOptions { xrcdn, ..initiator.clone() }, Status::INVALID),
        (process.pd, none, none, initiator, Status::NOT_FOUND),
        (process.pd, cq.number, cq.number, on(receiver.srqn, &rc), Status::INVALID),
        (process.pd, cq.number, cq.number, QpOptions { xrcdn, ..rc }, Status::INVALID),
    ] {
        let made = Qp::create(guest, process.number, pd, send, recv, &options);
        assert_eq!(made.map(|qp| qp.number), Err(status), "{options:?}");
    }
}

/// Uses several connections and SRQs at random.
///
/// Each message completes a receive of its SRQ. Messages of one connection to one SRQ complete in
/// order.
#[test]
fn at_random_each_process_gets_its_messages() {
    for (lab, xrcdn) in labs() {
        let mut rng = Rng::new(11);
        let mut senders = [(); 3].map(|()| Sender::new(&lab.guests[0]));
        let targets = [(); 3].map(|()| target(&lab.guests[1], xrcdn));
        senders.iter().zip(&targets).for_each(|(sender, target)| connect(&sender.qp, target));
        let mut receivers = [(); 3].map(|()| Receiver::new(&lab.guests[1], xrcdn));
        for round in 0..30u32 {
            let mut sent = Vec::new();
            for n in 0..8 {
                let (from, to) = (rng.below(3) as usize, rng.below(3) as usize);
                let (number, text) = (round * 8 + n, [round as u8, n as u8]);
                let len = [2, 3000, 8000][rng.below(3) as usize];
                senders[from].mr.put(u64::from(n) << 13, &text);
                sent.push((from, to, number, text, len));
            }
            for (id, &(from, to, number, _, len)) in (0..).zip(&sent) {
                let (receiver, sender) = (&mut receivers[to], &mut senders[from]);
                let sge = [sender.mr.sge(u64::from(number % 8) << 13, len)];
                let request = Request::send(sender.qp.tag(number), Data::Sges(&sge)).signaled(true);
                if rng.one_in(2) {
                    receiver.recv(id);
                    sender.process.post(&request.xrc(receiver.srqn));
                } else {
                    sender.process.post(&request.xrc(receiver.srqn));
                    receiver.recv(id);
                }
            }
            let mut got = Vec::new();
            for (to, receiver) in receivers.iter_mut().enumerate() {
                for _ in sent.iter().filter(|message| message.1 == to) {
                    let wc = receiver.cq.expect_success();
                    let from = targets.iter().position(|target| target.number == wc.qpn()).unwrap();
                    let text = receiver.mr.get(u64::from(wc.id()) << 13, 2);
                    got.push((from, to, [text[0], text[1]], wc.len()));
                }
            }
            for (from, sender) in senders.iter_mut().enumerate() {
                for message in sent.iter().filter(|message| message.0 == from) {
                    assert_eq!(sender.cq.expect_success().id(), message.2);
                }
            }
            for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
                let of_pair = |it: &&(usize, usize, [u8; 2], u32)| (it.0, it.1) == (from, to);
                let got: Vec<_> = got.iter().filter(of_pair).map(|it| (it.2, it.3)).collect();
                let sent = sent.iter().filter(|it| (it.0, it.1) == (from, to));
                assert_eq!(got, sent.map(|it| (it.3, it.4)).collect::<Vec<_>>(), "round {round}");
            }
        }
    }
}
