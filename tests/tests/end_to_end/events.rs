//! Completion events and asynchronous events: each due event comes, and no other.

use std::time::Duration;
use vrdma_tests::abi::control::{CreateSrqReq, QpState, limit, qp_attr};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Arm, Data, Remote, Request};
use vrdma_tests::{Context, Cq, Lab, LabOptions, QpOptions, connect, wait};

/// Long enough for any error to show.
const QUIET: Duration = Duration::from_millis(20);

fn completion(cq: &Cq) -> Option<Told> {
    Some(Told { kind: EventKind::COMPLETION, object: cq.number })
}

fn send(side: &mut Side, id: u32, solicited: bool) {
    let request = Request::send(side.qp.tag(id), Data::EMPTY);
    side.post(&request.signaled(true).solicited(solicited));
    side.cq.expect_success();
}

fn labs() -> impl Iterator<Item = Lab> {
    [true, false].into_iter().map(|event_idx| {
        let mut options = LabOptions::default();
        options.guest.event_idx = event_idx;
        Lab::with(2, options)
    })
}

#[test]
fn an_armed_cq_tells_of_the_next_completion_once() {
    for lab in labs() {
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        let guest = b.guest().clone();
        (0..10).for_each(|id| b.recv_any(id));
        send(&mut a, 0, false);
        b.cq.expect_success();
        let event = |time| guest.comp_events(0).recv_within(time);
        assert_eq!(event(QUIET), None, "it was not armed");
        for _ in 0..3 {
            assert_eq!(b.cq.arm(Arm::Next), None);
            send(&mut a, 1, false);
            assert_eq!(event(wait::PATIENCE), completion(&b.cq));
            send(&mut a, 2, true);
            assert_eq!(event(QUIET), None, "one event answers one request");
            b.cq.expect_success();
            b.cq.expect_success();
        }
    }
}

#[test]
fn solicited_means_solicited_or_failed() {
    for lab in labs() {
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        let guest = b.guest().clone();
        (0..10).for_each(|id| b.recv_any(id));
        let event = |time| guest.comp_events(0).recv_within(time);
        assert_eq!(b.cq.arm(Arm::Solicited), None);
        send(&mut a, 0, false);
        assert_eq!(event(QUIET), None);
        send(&mut a, 1, true);
        assert_eq!(event(wait::PATIENCE), completion(&b.cq));
        // Arming for solicited completions does not revoke arming for all completions.
        while b.cq.poll().is_some() {}
        assert_eq!((b.cq.arm(Arm::Next), b.cq.arm(Arm::Solicited)), (None, None));
        send(&mut a, 2, false);
        assert_eq!(event(wait::PATIENCE), completion(&b.cq));
        while b.cq.poll().is_some() {}
        assert_eq!(b.cq.arm(Arm::Solicited), None);
        b.qp.to_state(QpState::ERR).unwrap();
        assert_eq!(event(wait::PATIENCE), completion(&b.cq), "flushed receives are failures");
    }
}

#[test]
fn events_go_to_the_vector_of_their_cq() {
    let lab = Lab::with(1, LabOptions { comp_vectors: 3, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let mut process = Context::open(guest).unwrap();
    for vector in [2, 0, 1] {
        let mut cq = Cq::create(guest, process.number, 8, vector).unwrap();
        let qp = process.qp(&cq, &cq, &QpOptions::default());
        qp.to_init().unwrap();
        qp.to_state(QpState::ERR).unwrap();
        assert_eq!(cq.arm(Arm::Next), None);
        process.post(&Request::recv(qp.tag(1), &[]));
        assert_eq!(guest.comp_events(vector).recv_within(wait::PATIENCE), completion(&cq));
        for other in (0..3).filter(|v| *v != vector) {
            assert_eq!(guest.comp_events(other).recv_within(Duration::ZERO), None);
        }
    }
}

#[test]
fn events_wait_for_buffers() {
    for busy_poll in [false, true] {
        events_wait_with(LabOptions { busy_poll, ..LabOptions::default() });
    }
}

fn events_wait_with(mut options: LabOptions) {
    options.guest.event_size = 2;
    let lab = Lab::with(1, options);
    let guest = &lab.guests[0];
    let mut process = Context::open(guest).unwrap();
    let mut cqs = Vec::new();
    for _ in 0..20 {
        let mut cq = process.cq(4);
        let qp = process.qp(&cq, &cq, &QpOptions::default());
        qp.to_init().unwrap();
        qp.to_state(QpState::ERR).unwrap();
        assert_eq!(cq.arm(Arm::Next), None);
        process.post(&Request::recv(qp.tag(1), &[]));
        cqs.push(cq);
    }
    for cq in &mut cqs {
        cq.expect(cq.poll_qpn(), 1, WcStatus::WR_FLUSH_ERR);
    }
    let mut told: Vec<u32> = cqs.iter().map(|_| guest.comp_events(0).recv().object).collect();
    told.sort_unstable();
    assert_eq!(told, cqs.iter().map(|cq| cq.number).collect::<Vec<_>>());
}

/// Reads the QPN of the next completion without consuming it.
trait PollQpn {
    fn poll_qpn(&self) -> u32;
}

impl PollQpn for Cq {
    fn poll_qpn(&self) -> u32 {
        vrdma_tests::wait::until("a completion", || self.driver.is_ready().then_some(()));
        u32::from_le_bytes(self.memory().bytes(self.gpa + 4, 4).try_into().unwrap())
    }
}

#[test]
fn a_cq_that_overruns_says_so_and_takes_its_qps_with_it() {
    let lab = Lab::new(2);
    let mut a = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let b = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    let mut small = a.process.cq(4);
    let qp = a.process.qp(&small, &a.cq, &QpOptions::default());
    connect(&qp, &b.qp);
    for id in 0..6 {
        a.post(&Request::write(qp.tag(id), b.mr.remote(0), Data::EMPTY).signaled(true));
    }
    let told = lab.guests[0].async_events().recv();
    assert_eq!(told, Told { kind: EventKind::CQ_ERR, object: small.number });
    assert_eq!(qp.state(), QpState::ERR);
    for id in 0..4 {
        small.expect(qp.number, id, WcStatus::SUCCESS);
    }
    assert_eq!(small.poll(), None);
    assert_eq!(lab.stats().device(0, "cq_overruns"), 1);
    qp.destroy().unwrap();
    small.destroy().unwrap();
}

#[test]
fn a_queue_that_overflows_is_fatal_to_its_qp() {
    let lab = Lab::new(2);
    let options = QpOptions { recv_wr: 4, ..QpOptions::default() };
    let (mut a, _b) = pair(&lab, 1, 4096, &options);
    (0..5).for_each(|id| a.recv_any(id));
    let told = lab.guests[0].async_events().recv();
    assert_eq!(told, Told { kind: EventKind::QP_FATAL, object: a.qp.number });
    assert_eq!(a.qp.state(), QpState::ERR);
    for id in 0..4 {
        a.cq.expect(a.qp.number, id, WcStatus::WR_FLUSH_ERR);
    }
}

#[test]
fn the_first_message_in_rtr_establishes_communication() {
    let lab = Lab::new(2);
    let (mut a, mut b) = (
        Side::new(&lab.guests[0], 4096, &QpOptions::default()),
        Side::new(&lab.guests[1], 4096, &QpOptions::default()),
    );
    for (own, peer) in [(&a, &b), (&b, &a)] {
        own.qp.to_init().unwrap();
        own.qp.to_rtr(peer.guest().gid(), peer.qp.number, peer.qp.options.sq_psn).unwrap();
    }
    a.qp.to_rts().unwrap();
    b.recv_any(1);
    a.post(&Request::send(a.qp.tag(1), Data::Inline(b"hi")).signaled(true));
    a.cq.expect_success();
    b.cq.expect_success();
    let told = lab.guests[1].async_events().recv();
    assert_eq!(told, Told { kind: EventKind::COMM_EST, object: b.qp.number });
}

#[test]
fn a_drained_send_queue_is_told_and_goes_on() {
    let lab = Lab::new(2);
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    // The first message is started and cannot complete: it finds no receive.
    for id in 0..20 {
        a.post(&Request::send(a.qp.tag(id), Data::Inline(b"hi")).signaled(true));
    }
    vrdma_tests::wait::until("an RNR", || (lab.transport(1, "rnr_naks_sent") > 0).then_some(()));
    let attr = vrdma_tests::abi::control::QpAttr {
        state: QpState::SQD.0 as u8,
        en_sqd_async_notify: 1,
        ..Default::default()
    };
    a.guest().modify_qp(a.qp.number, qp_attr::STATE | qp_attr::EN_SQD_ASYNC_NOTIFY, attr).unwrap();
    let mut events = lab.guests[0].async_events();
    assert_eq!(events.recv_within(QUIET), None, "the first message is not finished");
    (0..20).for_each(|id| b.recv_any(id));
    assert_eq!(events.recv(), Told { kind: EventKind::SQ_DRAINED, object: a.qp.number });
    // Messages already started complete, and no others. On a wire, further messages were sent
    // before the peer could report that it has no receive.
    let begun = if lab.are_apart(0, 1) { 20 } else { 1 };
    for id in 0..begun {
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
    }
    a.cq.expect_nothing(QUIET);
    a.qp.to_state(QpState::RTS).unwrap();
    for id in begun..20 {
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
    }
}

#[test]
fn a_channel_that_breaks_the_rules_is_told_and_can_be_bound_again() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let process = Context::open(guest).unwrap();
    let (queue, ring) = (process.channel.queue, process.channel.ring.clone());
    ring.set_avail_idx(ring.size + 1);
    guest.queues[usize::from(queue)].kick.write(1).unwrap();
    let told = guest.async_events().recv();
    assert_eq!(told, Told { kind: EventKind::CHANNEL_ERR, object: queue.into() });
    assert_eq!(lab.stats().device(0, "broken_channels"), 1);
    guest.unbind_channel(queue).unwrap();
    let mut again =
        vrdma_tests::context::BoundChannel::bind(guest, process.number, queue).expect("it is free again");
    let cq = process.cq(4);
    let qp = process.qp(&cq, &cq, &QpOptions::default());
    qp.to_init().unwrap();
    again.post(&Request::recv(qp.tag(1), &[]));
    again.drain();
    assert_eq!(lab.stats().objects(0, "pending_requests"), 1);
}

#[test]
fn events_of_a_shared_queue_that_is_destroyed_are_forgotten() {
    let mut options = LabOptions::default();
    options.guest.event_size = 1;
    let lab = Lab::with(1, options);
    let guest = &lab.guests[0];
    let mut side = Side::new(guest, 4096, &QpOptions::default());
    let mut events = guest.async_events();
    // Both SRQs raise an event, but there is a buffer for one only. The other SRQ is destroyed
    // while its event is queued.
    let srqs = [(); 2].map(|()| {
        let Side { process, .. } = &mut side;
        let none = limit::NONE.into();
        let srqn = guest.create_srq(&CreateSrqReq {
            context: process.number.into(),
            pdn: process.pd.into(),
            max_wr: 1.into(),
            max_sge: 0.into(),
            xrcdn: none,
            cqn: none,
        });
        let srqn = srqn.unwrap();
        (0..2).for_each(|id| process.post(&Request::srq_recv(srqn, id, &[])));
        process.channel.drain();
        srqn
    });
    guest.destroy_srq(srqs[1]).unwrap();
    assert_eq!(events.recv(), Told { kind: EventKind::SRQ_ERR, object: srqs[0] });
    assert_eq!(events.recv_within(QUIET * 3), None);
}

#[test]
fn events_of_what_is_destroyed_are_forgotten() {
    let mut options = LabOptions::default();
    options.guest.event_size = 1;
    let lab = Lab::with(2, options);
    // Two QPs fail, but there is a buffer for one event only. The other QP is destroyed while its
    // event is queued.
    let sides: Vec<_> = (0..2).map(|_| pair(&lab, 1, 4096, &QpOptions::default())).collect();
    let guest = &lab.guests[1];
    let mut events = guest.async_events();
    let mut qpns = Vec::new();
    for (mut a, b) in sides {
        a.post(&Request::write(a.qp.tag(1), Remote { rkey: 0, ..b.mr.remote(0) }, Data::Inline(b"x")));
        a.cq.expect(a.qp.number, 1, WcStatus::REM_ACCESS_ERR);
        qpns.push(b.qp.number);
    }
    guest.destroy_qp(qpns[1]).unwrap();
    assert_eq!(events.recv(), Told { kind: EventKind::QP_ACCESS_ERR, object: qpns[0] });
    assert_eq!(events.recv_within(QUIET * 3), None);
}
