//! Shared receive queues: QPs that take receives from an SRQ, its events, its limits and its end.
//!
//! Tests run on one host and on two.
//!
//! Shows: shared-receives.

use vrdma_tests::abi::control::{CreateSrqReq, ModifySrqReq, QpState, QpType, Status, limit, srq_attr};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::events::Told;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{CableOptions, Context, Lab, LabOptions, Mr, Qp, QpOptions, connect};

/// A process' SRQ.
struct Srq {
    number: u32,
}

fn create(process: &Context, pd: u32, max_wr: u32, max_sge: u32) -> Result<Srq, Status> {
    let req = CreateSrqReq {
        context: process.number.into(),
        pdn: pd.into(),
        max_wr: max_wr.into(),
        max_sge: max_sge.into(),
        xrcdn: limit::NONE.into(),
        cqn: limit::NONE.into(),
    };
    process.guest.create_srq(&req).map(|number| Srq { number })
}

impl Srq {
    fn recv(&self, process: &mut Context, id: u32, mr: &Mr, offset: u64, len: u32) {
        process.post(&Request::srq_recv(self.number, id, &[mr.sge(offset, len)]));
    }

    fn modify(&self, process: &Context, mask: u32, max_wr: u32, limit: u32) -> Result<(), Status> {
        let (srqn, mask) = (self.number.into(), mask.into());
        process.guest.modify_srq(&ModifySrqReq { srqn, mask, max_wr: max_wr.into(), limit: limit.into() })
    }

    /// Returns the SRQ's size and limit.
    fn query(&self, process: &Context) -> (u32, u32) {
        let attr = process.guest.query_srq(self.number).unwrap();
        (attr.max_wr.get(), attr.limit.get())
    }

    fn told(&self, kind: EventKind) -> Told {
        Told { kind, object: self.number }
    }
}

/// A process with an SRQ, and QPs that use it.
struct Server {
    side: Side,
    srq: Srq,
    qps: Vec<Qp>,
}

impl Server {
    /// Creates a server with one connected QP for each client.
    fn new(lab: &Lab, clients: &[Side], qp_type: QpType) -> Server {
        let side = Side::new(&lab.guests[1], 1 << 20, &QpOptions::default());
        let srq = create(&side.process, side.process.pd, 64, 2).unwrap();
        let options = QpOptions { srqn: srq.number, ..QpOptions::of(qp_type) };
        let qps = clients.iter().map(|client| {
            let qp = side.process.qp(&side.cq, &side.cq, &options);
            connect(&client.qp, &qp);
            qp
        });
        let qps = qps.collect();
        Server { side, srq, qps }
    }

    fn recv(&mut self, id: u32) {
        let Side { process, mr, .. } = &mut self.side;
        self.srq.recv(process, id, mr, u64::from(id) << 12, 4096);
    }

    fn close(self) {
        self.qps.into_iter().for_each(|qp| qp.destroy().unwrap());
        self.side.guest().destroy_srq(self.srq.number).unwrap();
        self.side.close();
    }
}

/// Returns a lab with two guests on one host, and one on two hosts.
fn labs() -> [Lab; 2] {
    [None, Some(CableOptions::default())]
        .map(|cable| Lab::with(2, LabOptions { cable, ..LabOptions::default() }))
}

fn clients(lab: &Lab, count: usize, qp_type: QpType) -> Vec<Side> {
    (0..count).map(|_| Side::new(&lab.guests[0], 4096, &QpOptions::of(qp_type))).collect()
}

#[test]
fn connections_take_receives_in_the_order_of_their_messages() {
    for (lab, qp_type) in labs().iter().flat_map(|lab| [(lab, QpType::RC), (lab, QpType::UC)]) {
        let mut clients = clients(lab, 3, qp_type);
        let mut server = Server::new(lab, &clients, qp_type);
        (1..=6).for_each(|id| server.recv(id));
        for (id, from) in (1..=6).zip([2, 0, 1, 1, 0, 2]) {
            let client = &mut clients[from];
            let text = format!("message {id}");
            client.mr.put(0, text.as_bytes());
            client.post(&Request::send(client.qp.tag(id), Data::Sges(&[client.mr.sge(0, 9)])).signaled(true));
            client.cq.expect_success();
            let wc = server.side.cq.expect_success();
            assert_eq!((wc.id(), wc.qpn(), wc.len()), (id, server.qps[from].number, 9));
            assert_eq!(server.side.mr.get(u64::from(id) << 12, 9), text.as_bytes());
        }
        clients.into_iter().for_each(Side::close);
        server.close();
    }
}

#[test]
fn datagrams_take_receives_from_it() {
    for (index, lab) in labs().iter().enumerate() {
        let mut client = Side::new(&lab.guests[0], 4096, &QpOptions::of(QpType::UD));
        client.qp.start().unwrap();
        let mut server = Server::new(lab, &[], QpType::UD);
        let Side { process, cq, .. } = &server.side;
        let options = QpOptions { srqn: server.srq.number, ..QpOptions::of(QpType::UD) };
        let qp = process.qp(cq, cq, &options);
        qp.start().unwrap();
        let handles = AhTable::new(&lab.guests[0], 64).unwrap();
        handles.put(3, &entry(client.process.pd, lab.guests[1].gid()));
        let to = UdTarget { ah: 3, qpn: qp.number, qkey: qp.options.qkey };
        server.recv(1);
        server.recv(2);
        for id in [1, 2] {
            client.post(&Request::ud_send(client.qp.tag(id), to, Data::Inline(b"datagram")).signaled(true));
            client.cq.expect_success();
            let wc = server.side.cq.expect_success();
            assert_eq!((wc.id(), wc.len(), wc.has_grh()), (id, 48, true), "{index}");
            assert_eq!(server.side.mr.get((u64::from(id) << 12) + 40, 8), b"datagram");
        }
        qp.destroy().unwrap();
        server.close();
        client.close();
    }
}

#[test]
fn a_message_waits_for_a_receive_that_is_posted_late() {
    for lab in labs() {
        let mut clients = clients(&lab, 2, QpType::RC);
        let mut server = Server::new(&lab, &clients, QpType::RC);
        for client in &mut clients {
            client.post(&Request::send(client.qp.tag(1), Data::Inline(b"early")).signaled(true));
        }
        server.recv(1);
        server.recv(2);
        let mut ids = [(); 2].map(|()| server.side.cq.expect_success().id());
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        clients.iter_mut().for_each(|client| assert_eq!(client.cq.expect_success().id(), 1));
    }
}

#[test]
fn the_limit_and_the_last_receive_are_told() {
    for lab in labs() {
        let mut clients = clients(&lab, 1, QpType::RC);
        let mut server = Server::new(&lab, &clients, QpType::RC);
        let mut events = lab.guests[1].async_events();
        (1..=4).for_each(|id| server.recv(id));
        server.srq.modify(&server.side.process, srq_attr::LIMIT, 0, 3).unwrap();
        assert_eq!(server.srq.query(&server.side.process), (64, 3), "all four were there when it was armed");
        for id in [1, 2] {
            let client = &mut clients[0];
            client.post(&Request::send(client.qp.tag(id), Data::Inline(b"x")).signaled(true));
            client.cq.expect_success();
            server.side.cq.expect_success();
        }
        // An event may report the first message of a QP in RTR or RTS, too.
        let told = events.recv();
        assert_eq!(told, server.srq.told(EventKind::SRQ_LIMIT_REACHED));
        assert_eq!(server.srq.query(&server.side.process), (64, 0));
        server.qps[0].to_state(QpState::ERR).unwrap();
        let last = Told { kind: EventKind::QP_LAST_WQE_REACHED, object: server.qps[0].number };
        assert_eq!(events.recv(), last);
        assert_eq!(server.side.cq.poll(), None, "it had taken none that is left");
    }
}

#[test]
fn the_verbs_refuse_what_they_cannot_do() {
    let lab = Lab::new(1);
    let side = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let other = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let (process, pd) = (&side.process, side.process.pd);
    let max_wr = lab.guests[0].query_device().unwrap().max_qp_wr.get();
    for (pd, wr, sge, status) in [
        (pd, 0, 1, Status::INVALID),
        (pd, max_wr + 1, 1, Status::INVALID),
        (pd, 1, 33, Status::INVALID),
        (other.process.pd, 1, 1, Status::DENIED),
        (0xfffff, 1, 1, Status::NOT_FOUND),
    ] {
        assert_eq!(create(process, pd, wr, sge).map(|srq| srq.number), Err(status), "{pd} {wr} {sge}");
    }
    let guest = &lab.guests[0];
    let fine = CreateSrqReq {
        context: process.number.into(),
        pdn: pd.into(),
        max_wr: 4.into(),
        max_sge: 1.into(),
        xrcdn: limit::NONE.into(),
        cqn: limit::NONE.into(),
    };
    // An XRC domain without a CQ, and a CQ without an XRC domain.
    assert_eq!(guest.create_srq(&CreateSrqReq { xrcdn: 0.into(), ..fine }), Err(Status::INVALID));
    let cqn = side.cq.number.into();
    assert_eq!(guest.create_srq(&CreateSrqReq { cqn, ..fine }), Err(Status::INVALID));
    assert_eq!(guest.create_srq(&CreateSrqReq { context: 77.into(), ..fine }), Err(Status::NOT_FOUND));
    let srq = Srq { number: guest.create_srq(&fine).unwrap() };
    for (mask, wr, limit, status) in [
        (4, 0, 0, Status::INVALID),
        (srq_attr::MAX_WR, 0, 0, Status::INVALID),
        (srq_attr::MAX_WR, max_wr + 1, 0, Status::INVALID),
        (srq_attr::LIMIT, 0, 5, Status::INVALID),
    ] {
        assert_eq!(srq.modify(process, mask, wr, limit), Err(status), "{mask} {wr} {limit}");
    }
    srq.modify(process, srq_attr::MAX_WR | srq_attr::LIMIT, 8, 0).unwrap();
    assert_eq!(srq.query(process), (8, 0));
    let options = QpOptions { srqn: srq.number, ..QpOptions::default() };
    let foreign =
        Qp::create(guest, other.process.number, other.process.pd, other.cq.number, other.cq.number, &options);
    assert_eq!(foreign.map(|qp| qp.number), Err(Status::DENIED));
    let qp = process.qp(&side.cq, &side.cq, &options);
    assert_eq!(guest.destroy_srq(srq.number), Err(Status::BUSY));
    qp.destroy().unwrap();
    guest.destroy_srq(srq.number).unwrap();
    for status in [guest.destroy_srq(srq.number), guest.query_srq(srq.number).map(|_| ())] {
        assert_eq!(status, Err(Status::NOT_FOUND));
    }
    side.close();
    other.close();
}

#[test]
fn requests_of_a_hostile_process_end_its_own_queue_and_nobody_elses() {
    let lab = Lab::new(2);
    let mut clients = clients(&lab, 1, QpType::RC);
    let mut server = Server::new(&lab, &clients, QpType::RC);
    let mut hostile = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    let mut events = lab.guests[1].async_events();
    // The SRQ of another context, and numbers of no SRQ.
    for number in [server.srq.number, 0x00ff_ffff, u32::MAX] {
        Srq { number }.recv(&mut hostile.process, 1, &hostile.mr, 0, 1);
    }
    let own = create(&hostile.process, hostile.process.pd, 4, 1).unwrap();
    let wait_for = |events: &mut vrdma_tests::events::EventReceiver, srq: &Srq| {
        assert_eq!(events.recv(), srq.told(EventKind::SRQ_ERR));
    };
    (0..5).for_each(|id| own.recv(&mut hostile.process, id, &hostile.mr, 0, 1));
    wait_for(&mut events, &own);
    let too_long = create(&hostile.process, hostile.process.pd, 4, 1).unwrap();
    let sge = hostile.mr.sge(0, 1);
    hostile.post(&Request::srq_recv(too_long.number, 1, &[sge, sge]));
    wait_for(&mut events, &too_long);
    // A receive for a QP that has no receive queue of its own.
    let options = QpOptions { srqn: own.number, ..QpOptions::default() };
    let qp = hostile.process.qp(&hostile.cq, &hostile.cq, &options);
    qp.to_init().unwrap();
    hostile.post(&Request::recv(qp.tag(1), &[]));
    server.recv(1);
    let client = &mut clients[0];
    client.post(&Request::send(client.qp.tag(1), Data::Inline(b"x")).signaled(true));
    client.cq.expect_success();
    assert_eq!(server.side.cq.expect_success().id(), 1);
    assert_eq!(qp.state(), QpState::INIT);
}

#[test]
fn receives_that_were_taken_are_flushed_with_their_qp() {
    let lab = Lab::new(2);
    let clients = clients(&lab, 1, QpType::RC);
    let mut server = Server::new(&lab, &clients, QpType::RC);
    let mut client = clients.into_iter().next().unwrap();
    server.recv(1);
    // The message is too long for the receive, which completes with an error.
    let sges = [client.mr.sge(0, 4096); 2];
    client.post(&Request::send(client.qp.tag(1), Data::Sges(&sges)).signaled(true));
    server.side.cq.expect(server.qps[0].number, 1, WcStatus::LOC_LEN_ERR);
    client.cq.expect(client.qp.number, 1, WcStatus::REM_INV_REQ_ERR);
    server.close();
    client.close();
}
