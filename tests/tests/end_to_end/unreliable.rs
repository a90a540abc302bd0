//! UC connections between guests, on one worker, on two, and with a cable between them.
//!
//! Shows: verbs.

use vrdma_tests::abi::control::{QpState, QpType};
use vrdma_tests::abi::cqe::{WcOpcode, WcStatus};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, QpOptions, Setting, wait};

const LEN: u64 = 1 << 20;

/// The location of the guests, and the number of the peer.
const PLACES: [(Setting, usize); 4] =
    [(Setting::OneWorker, 0), (Setting::OneWorker, 1), (Setting::TwoWorkers, 1), (Setting::TwoHosts, 1)];

fn lab((setting, peer): (Setting, usize)) -> (Lab, Side, Side) {
    let lab = Lab::with(2, setting.options());
    let (a, b) = pair(&lab, peer, LEN, &QpOptions { path_mtu: 3, ..QpOptions::of(QpType::UC) });
    (lab, a, b)
}

#[test]
fn messages_of_all_lengths_arrive() {
    for place in PLACES {
        let (lab, mut a, mut b) = lab(place);
        let data: Vec<u8> = (0..LEN).map(|i| (i * 13 + (i >> 9)) as u8).collect();
        a.mr.put(0, &data);
        for (round, length) in [0u32, 1, 1024, 1025, 70_000, LEN as u32].into_iter().enumerate() {
            let round = round as u32;
            b.mr.fill(0);
            b.recv_any(round);
            b.process.channel.drain();
            let own = [a.mr.sge(0, length)];
            a.post(&Request::send_imm(a.qp.tag(round), [1, 2, 3, 4], Data::Sges(&own)).signaled(true));
            let wc = b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            assert_eq!((wc.len(), wc.imm(), wc.opcode()), (length, Some([1, 2, 3, 4]), WcOpcode::RECV));
            assert!(!wc.has_grh() && wc.src_qpn() == a.qp.number);
            assert!(b.mr.get(0, length.into()) == data[..length as usize], "{length}");
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
            b.mr.fill(0);
            b.recv(round, &[]);
            b.process.channel.drain();
            let tag = a.qp.tag(round);
            a.post(&Request::write_imm(tag, b.mr.remote(0), [5; 4], Data::Sges(&own)).signaled(true));
            let wc = b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            assert_eq!((wc.len(), wc.opcode()), (length, WcOpcode::RECV_RDMA_WITH_IMM));
            assert!(b.mr.get(0, length.into()) == data[..length as usize], "{length}");
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
        }
        assert_eq!(lab.transport(place.1, "uc_gaps"), 0);
        a.close();
        b.close();
    }
}

#[test]
fn what_the_peer_cannot_take_is_lost_and_counted() {
    for place in &PLACES[1..] {
        lost_and_counted(lab(*place));
    }
}

fn lost_and_counted((lab, mut a, mut b): (Lab, Side, Side)) {
    let mut expect = Vec::new();
    let mut post = |a: &mut Side, id: u32, counter: &'static str, request: Request<'_>| {
        a.post(&request.signaled(true));
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        expect.push(counter);
        let count = expect.iter().filter(|seen| **seen == counter).count() as u64;
        wait::until(counter, || (lab.transport(1, counter) == count).then_some(()));
    };
    let tag = |a: &Side, id| a.qp.tag(id);
    let t = tag(&a, 1);
    post(&mut a, 1, "drop_no_receive", Request::send(t, Data::Inline(b"lost")));
    let (t, beyond) = (tag(&a, 2), b.mr.remote(LEN - 3));
    post(&mut a, 2, "drop_access", Request::write(t, beyond, Data::Inline(b"lost")));
    b.recv(8, &[b.mr.sge(0, 3)]);
    b.process.channel.drain();
    let t = tag(&a, 3);
    post(&mut a, 3, "drop_length", Request::send(t, Data::Inline(b"lost")));
    assert_eq!((b.cq.poll(), b.qp.state()), (None, QpState::RTS));
    let t = tag(&a, 4);
    a.post(&Request::send(t, Data::Inline(b"fit")));
    assert_eq!(b.cq.expect(b.qp.number, 8, WcStatus::SUCCESS).len(), 3);
    b.qp.to_state(QpState::ERR).unwrap();
    let t = tag(&a, 5);
    post(&mut a, 5, "drop_state", Request::send(t, Data::Inline(b"lost")));
    assert_eq!(a.qp.state(), QpState::RTS);
}

#[test]
fn what_the_service_does_not_have_stops_the_send_queue() {
    for (place, atomic) in
        [PLACES[1], PLACES[2]].into_iter().flat_map(|place| [(place, false), (place, true)])
    {
        let (_lab, mut a, mut b) = lab(place);
        let (tag, own) = (a.qp.tag(1), a.mr.sge(0, 8));
        match atomic {
            false => a.post(&Request::read(tag, b.mr.remote(0), &[own])),
            true => a.post(&Request::fetch_add(tag, b.mr.remote(0), 1, &own)),
        }
        a.cq.expect(a.qp.number, 1, WcStatus::LOC_QP_OP_ERR);
        assert_eq!(a.qp.state(), QpState::SQE);
        a.post(&Request::send(a.qp.tag(2), Data::EMPTY));
        a.cq.expect(a.qp.number, 2, WcStatus::WR_FLUSH_ERR);
        // The QP still receives meanwhile.
        a.recv(3, &[]);
        a.process.channel.drain();
        b.post(&Request::send(b.qp.tag(4), Data::EMPTY));
        a.cq.expect(a.qp.number, 3, WcStatus::SUCCESS);
        a.qp.to_state(QpState::RTS).unwrap();
    }
}
