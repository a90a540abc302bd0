//! Lists of requests, which a channel makes from requests that are pushed together.
//!
//! Tests cover one host and two, and lists that a process writes by hand.

use vrdma_tests::abi::control::{QpState, QpType, limit};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::wqe::{WrOpcode, flags};
use vrdma_tests::raw::RawPoster;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, Lab, LabOptions, Qp, QpOptions, connect};

/// Returns a lab with two guests on one host, and one on two hosts.
fn labs() -> [Lab; 2] {
    [None, Some(CableOptions::default())]
        .map(|cable| Lab::with(2, LabOptions { cable, ..LabOptions::default() }))
}

/// Connects QPs of two guests.
fn sides(lab: &Lab, qp_type: QpType) -> [Side; 2] {
    let sides = [0, 1].map(|at| Side::new(&lab.guests[at], 1 << 20, &QpOptions::of(qp_type)));
    connect(&sides[0].qp, &sides[1].qp);
    sides
}

/// Pushes requests, publishes all of them at once, and returns how many 64-byte units they take.
fn post_together<'a>(side: &mut Side, requests: impl IntoIterator<Item = Request<'a>>) -> u16 {
    let channel = &mut side.process.channel;
    let before = channel.ring.avail_idx();
    requests.into_iter().for_each(|request| channel.driver.push(&request).unwrap());
    channel.driver.ring();
    channel.ring.avail_idx().wrapping_sub(before)
}

#[test]
fn messages_of_lists_arrive_in_their_order() {
    for (lab, qp_type) in labs().iter().flat_map(|lab| [(lab, QpType::RC), (lab, QpType::UC)]) {
        let [mut a, mut b] = sides(lab, qp_type);
        for count in [1, 2, 5, 6, 16] {
            for id in 0..count {
                a.mr.put(u64::from(id) << 8, format!("message {id:02}").as_bytes());
            }
            let receives: Vec<_> = (0..count).map(|id| [b.mr.sge(u64::from(id) << 8, 256)]).collect();
            let sends: Vec<_> = (0..count).map(|id| [a.mr.sge(u64::from(id) << 8, 10)]).collect();
            let units = [0, 1, 1, 2, 2, 2, 3][count.min(6) as usize];
            let qp = b.qp.clone();
            let receives = (0..).zip(&receives).map(|(id, sges)| Request::recv(qp.tag(id), sges));
            let taken = post_together(&mut b, receives);
            let qp = a.qp.clone();
            let send = |id, sges| Request::send(qp.tag(id), Data::Sges(sges)).signaled(true);
            let sends = (0..).zip(&sends).map(|(id, sges)| send(id, sges));
            let sent = post_together(&mut a, sends);
            if count <= 6 {
                assert_eq!((taken, sent), (units, units), "{count} requests");
            }
            for id in 0..count {
                assert_eq!(a.cq.expect_success().id(), id);
                let wc = b.cq.expect_success();
                assert_eq!((wc.id(), wc.len()), (id, 10));
                assert_eq!(b.mr.get(u64::from(id) << 8, 10), format!("message {id:02}").as_bytes());
            }
        }
        a.close();
        b.close();
    }
}

#[test]
fn a_request_that_fails_ends_alone_and_the_rest_is_flushed() {
    for lab in &labs() {
        let [mut a, mut b] = sides(lab, QpType::RC);
        (0..5).for_each(|id| b.recv_any(id));
        let fine = [a.mr.sge(0, 8)];
        let mut wrong = fine;
        wrong[0].lkey ^= 1 << 20;
        let qp = a.qp.clone();
        let requests = [&fine, &fine, &wrong, &fine, &fine];
        let requests =
            (0..).zip(requests).map(|(id, sges)| Request::send(qp.tag(id), Data::Sges(sges)).signaled(true));
        assert_eq!(post_together(&mut a, requests), 2);
        let statuses: Vec<_> = (0..5).map(|_| a.cq.wait()).map(|wc| (wc.id(), wc.status())).collect();
        let [success, flushed] = [WcStatus::SUCCESS, WcStatus::WR_FLUSH_ERR];
        let expected = [success, success, WcStatus::LOC_PROT_ERR, flushed, flushed];
        assert_eq!(statuses, (0..).zip(expected).collect::<Vec<_>>());
        assert_eq!((b.cq.expect_success().id(), b.cq.expect_success().id()), (0, 1));
        a.close();
        b.close();
    }
}

#[test]
fn receives_of_a_list_are_flushed_each() {
    let lab = Lab::new(2);
    let [a, mut b] = sides(&lab, QpType::RC);
    b.qp.to_state(QpState::ERR).unwrap();
    let qp = b.qp.clone();
    let sges = [b.mr.sge(0, 64)];
    assert_eq!(post_together(&mut b, (10..15).map(|id| Request::recv(qp.tag(id), &sges))), 2);
    for id in 10..15 {
        b.cq.expect(b.qp.number, id, WcStatus::WR_FLUSH_ERR);
    }
    a.close();
    b.close();
}

/// A process writes lists as no driver does: its own QP fails, and no other.
#[test]
fn a_list_that_cannot_be_understood_is_one_bad_request() {
    let lab = Lab::new(2);
    for (opcode, bits, count, qp_type) in [
        (WrOpcode::SEND, 0, 0, QpType::RC),
        (WrOpcode::SEND, 0, 1, QpType::RC),
        (WrOpcode::SEND, 0, 6, QpType::RC),
        (WrOpcode::SEND, 0, 255, QpType::RC),
        (WrOpcode::SEND, flags::INLINE, 2, QpType::RC),
        (WrOpcode::SEND, flags::XRC, 2, QpType::RC),
        (WrOpcode::SEND, 0, 2, QpType::UD),
        (WrOpcode::SEND_WITH_IMM, 0, 2, QpType::RC),
        (WrOpcode::RDMA_WRITE, 0, 2, QpType::RC),
        (WrOpcode::RECV, 0, 1, QpType::RC),
        (WrOpcode::RECV, 0, 6, QpType::UC),
        (WrOpcode::RECV, flags::SIGNALED, 2, QpType::RC),
    ] {
        let [mut hostile, peer] = sides(&lab, qp_type);
        let [mut a, mut b] = sides(&lab, QpType::RC);
        let mut words = [0u64; 16];
        let bits = u64::from(bits | flags::LIST);
        words[0] = u64::from(opcode.0) | 2 << 8 | bits << 16 | u64::from(hostile.qp.number) << 32;
        words[1] = 77 | u64::from(count as u8) << 32;
        RawPoster::default().post(&mut hostile.process.channel, &words);
        hostile.cq.expect(hostile.qp.number, 77, WcStatus::LOC_QP_OP_ERR);
        hostile.cq.expect_nothing(std::time::Duration::from_millis(1));
        b.recv_any(1);
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&[a.mr.sge(0, 8)])).signaled(true));
        a.cq.expect_success();
        b.cq.expect_success();
        [hostile, peer, a, b].into_iter().for_each(Side::close);
    }
}

/// A list of SENDs through an XRC initiator is one bad request.
///
/// Such requests each name their SRQ, so they cannot form a list.
#[test]
fn an_xrc_initiator_has_no_lists() {
    let lab = Lab::new(2);
    let [own, remote] = [0, 1].map(|at| Side::new(&lab.guests[at], 4096, &QpOptions::default()));
    let xrcdn = remote.guest().alloc_xrcd().unwrap();
    let (process, none) = (&own.process, limit::NONE);
    let options = QpOptions::of(QpType::XRC_SEND);
    let send = Qp::create(own.guest(), process.number, process.pd, own.cq.number, none, &options).unwrap();
    let options = QpOptions { xrcdn, ..QpOptions::of(QpType::XRC_RECV) };
    let recv = Qp::create(remote.guest(), limit::KERNEL_CONTEXT, none, none, none, &options).unwrap();
    connect(&send, &recv);
    let mut side = own;
    let mut words = [0u64; 16];
    let bits = u64::from(flags::LIST | flags::SIGNALED);
    words[0] = u64::from(WrOpcode::SEND.0) | 2 << 8 | bits << 16 | u64::from(send.number) << 32;
    words[1] = 77 | 3 << 32;
    RawPoster::default().post(&mut side.process.channel, &words);
    side.cq.expect(send.number, 77, WcStatus::LOC_QP_OP_ERR);
    side.cq.expect_nothing(std::time::Duration::from_millis(1));
    [send, recv].iter().for_each(|qp| qp.destroy().unwrap());
    remote.guest().dealloc_xrcd(xrcdn).unwrap();
    [side, remote].into_iter().for_each(Side::close);
}
