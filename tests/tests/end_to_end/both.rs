//! Guests with both a RoCE and an iWARP function (`transport = "both"`), with one MAC address.
//!
//! Shows: both-transports.

use std::sync::Arc;
use vrdma_tests::abi::config::transport;
use vrdma_tests::abi::control::{CmEventKind, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::connected;
use vrdma_tests::lab::{over_own_tcp, over_tcp, with_both};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Remote, Request};
use vrdma_tests::{CableOptions, Guest, GuestOptions, GuestTcp, Lab, LabOptions, QpOptions};

const LEN: u64 = 1 << 20;

/// Returns labs with two guests on `hosts` hosts, and the guests' iWARP functions.
fn labs(hosts: u8) -> impl Iterator<Item = (Lab, [Arc<Guest>; 2])> {
    [GuestTcp::Kernel, GuestTcp::Own].into_iter().map(move |tcp| {
        let cable = CableOptions { held: hosts == 1, ..CableOptions::default() };
        let host_says = match tcp {
            GuestTcp::Kernel => |index, guest| with_both(over_tcp(index, guest)),
            GuestTcp::Own => |index, guest| with_both(over_own_tcp(index, guest)),
        };
        let guest = GuestOptions { tcp, ..GuestOptions::default() };
        let lab = Lab::with(2, LabOptions { cable: Some(cable), guest, host_says, ..LabOptions::default() });
        let second = [0, 1].map(|index| lab.connect_iwarp(index));
        (lab, second)
    })
}

/// Writes all of one region into the peer's region, and reads it back.
fn exchange((a, b): &mut (Side, Side), seed: u64) {
    let data: Vec<u8> = (0..LEN).map(|i| (i * 7 + seed * 31 + (i >> 8)) as u8).collect();
    a.mr.put(0, &data);
    let own = [a.mr.sge(0, LEN as u32)];
    a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)).signaled(true));
    a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
    a.mr.fill(0);
    let own = [a.mr.sge(0, LEN as u32)];
    a.post(&Request::read(a.qp.tag(2), b.mr.remote(0), &own).signaled(true));
    a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
    assert!(a.mr.get(0, LEN) == data && b.mr.get(0, LEN) == data);
}

#[test]
fn both_functions_of_a_guest_work_side_by_side() {
    for hosts in [1, 2] {
        for (lab, second) in labs(hosts) {
            for (first, second) in lab.guests.iter().zip(&second) {
                assert_eq!(first.config.transport, transport::ROCE);
                assert_eq!(second.config.transport, transport::IWARP);
                assert_eq!(first.config.mac, second.config.mac);
            }
            let options = QpOptions::default();
            let mut roce = pair_between(&lab.guests[0], &lab.guests[1], LEN, &options);
            let ((a, _), (b, _)) = connected(&second[0], &second[1], LEN, &options);
            let mut iwarp = (a, b);
            for round in 0..4 {
                exchange(&mut roce, 2 * round);
                exchange(&mut iwarp, 2 * round + 1);
            }
            // Each function has counters of its own: two entries for each guest.
            let stats = lab.stats();
            assert_eq!((stats.objects(0, "connections"), stats.objects(1, "connections")), (0, 1));
            assert_eq!((stats.objects(0, "qps"), stats.objects(1, "qps")), (1, 1));
            assert_eq!(stats.transport(0, "fpdus_out"), 0);
            assert!(stats.transport(1, "fpdus_out") > 0);
        }
    }
}

#[test]
fn a_function_has_nothing_of_the_other() {
    for (lab, second) in labs(1) {
        let roce = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let ((mut a, _), (b, _)) = connected(&second[0], &second[1], LEN, &QpOptions::default());
        // Each function supports commands that the other rejects.
        let tcp = second[0].options.tcp;
        let listen = |guest: &Guest| guest.cm_listen(tcp.address(0), tcp.free_port(0), 1);
        assert_eq!(listen(&lab.guests[0]), Err(Status::UNSUPPORTED));
        listen(&second[0]).expect("a function of iWARP listens");
        assert_eq!(second[0].add_gid(0, lab.guests[0].gid()), Err(Status::UNSUPPORTED));
        // The key is of the peer's first function. The peer's second function does not know it: it
        // has one region.
        let other = roce.1.process.mr(64);
        other.fill(7);
        b.mr.fill(7);
        a.mr.fill(9);
        let own = [a.mr.sge(0, 64)];
        let remote = Remote { rkey: other.key, ..other.remote(0) };
        a.post(&Request::write(a.qp.tag(1), remote, Data::Sges(&own)));
        a.post(&Request::read(a.qp.tag(2), b.mr.remote(0), &own).signaled(true));
        // The WRITE completed when TCP had taken it. The READ after it fails because the WRITE was
        // refused.
        assert_ne!(a.cq.wait().status(), WcStatus::SUCCESS);
        assert_eq!((other.get(0, 64), b.mr.get(0, 64)), (vec![7; 64], vec![7; 64]));
    }
}

#[test]
fn one_function_goes_and_comes_back_beside_the_other() {
    for (mut lab, [first, peer]) in labs(2) {
        let options = QpOptions::default();
        let mut roce = pair_between(&lab.guests[0], &lab.guests[1], LEN, &options);
        drop(connected(&first, &peer, LEN, &options));
        drop(first);
        lab.expect_nothing_left(1);
        peer.cm_event(CmEventKind::DISCONNECT);
        peer.cm_event(CmEventKind::CLOSE);
        exchange(&mut roce, 1);
        let again = lab.connect_iwarp(0);
        let ((a, _), (b, _)) = connected(&again, &peer, LEN, &options);
        let mut iwarp = (a, b);
        exchange(&mut iwarp, 2);
        exchange(&mut roce, 3);
        // Repeat with the roles of the functions exchanged.
        drop(roce);
        lab.guests.remove(0);
        lab.expect_nothing_left(0);
        exchange(&mut iwarp, 4);
        let guest = lab.connect(0);
        lab.guests.insert(0, guest);
        exchange(&mut pair_between(&lab.guests[0], &lab.guests[1], LEN, &options), 5);
        exchange(&mut iwarp, 6);
    }
}
