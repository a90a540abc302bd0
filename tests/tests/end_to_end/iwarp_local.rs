//! iWARP between guests of one worker, without TCP: when it is used and when not.
//!
//! `iwarp.rs` tests its operations, together with those over each TCP.
//!
//! Shows: local-streams.

use std::time::Duration;
use vrdma_tests::abi::control::{CmEventKind, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::{connect_streams, connected, request};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{GuestTcp, Lab, LabOptions, QpOptions, Rng, wait};

const LEN: u64 = 1 << 20;
const OWN: GuestTcp = GuestTcp::Own;

fn lab(workers: u16) -> Lab {
    let options = LabOptions { tcp_between_guests: false, workers, ..LabOptions::default() };
    Lab::of_tcp_with(OWN, 1, options)
}

/// Exchanges some of each operation, long and short.
fn exchange(a: &mut Side, b: &mut Side) {
    let (half, mut rng) = (LEN / 2, Rng::new(3));
    for (round, length) in [half as u32, 1, 40_000, 0].into_iter().enumerate() {
        let (round, data) = (round as u32, rng.bytes(length as usize));
        a.mr.put(0, &data);
        b.recv(round, &[b.mr.sge(half, half as u32)]);
        b.process.channel.drain();
        let (own, back) = ([a.mr.sge(0, length)], [a.mr.sge(half, length)]);
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&own)).signaled(true));
        a.post(&Request::read(a.qp.tag(3), b.mr.remote(0), &back).signaled(true));
        for tag in 1..=3 {
            a.cq.expect(a.qp.number, tag, WcStatus::SUCCESS);
        }
        assert_eq!(b.cq.expect(b.qp.number, round, WcStatus::SUCCESS).len(), length);
        let length = u64::from(length);
        assert!(
            [b.mr.get(half, length), b.mr.get(0, length), a.mr.get(half, length)]
                .iter()
                .all(|got| *got == data)
        );
    }
}

#[test]
fn guests_of_one_worker_need_no_tcp() {
    let lab = lab(1);
    for _ in 0..3 {
        let ((mut a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        exchange(&mut a, &mut b);
        exchange(&mut b, &mut a);
        a.guest().cm_disconnect(a.qp.number).unwrap();
        a.guest().cm_expect_end(of_a);
        b.guest().cm_expect_end(of_b);
        for (side, of) in [(a, of_a), (b, of_b)] {
            side.guest().cm_release(of).unwrap();
            side.close();
        }
    }
    let stats = lab.stats();
    assert_eq!((stats.tcp(0, "local"), stats.tcp(1, "local")), (3, 0));
    for guest in [0, 1] {
        assert_eq!((stats.tcp(guest, "segments_out"), stats.tcp(guest, "connections")), (0, 0));
    }
    for guest in [0, 1] {
        wait::until("nothing to be left", || (lab.stats().objects(guest, "connections") == 0).then_some(()));
    }
}

#[test]
fn guests_of_two_workers_are_connected_by_tcp() {
    let lab = lab(2);
    let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    exchange(&mut a, &mut b);
    let stats = lab.stats();
    assert!(stats.tcp(0, "local") == 0 && stats.tcp(0, "segments_out") > 0);
}

#[test]
fn a_listener_without_room_is_reached_by_tcp() {
    let lab = lab(1);
    let [mut a, mut b, mut c, mut d] =
        [0, 1, 0, 1].map(|guest| Side::new(&lab.guests[guest], LEN, &QpOptions::default()));
    for side in [&a, &b, &c, &d] {
        side.qp.to_init().unwrap();
    }
    let port = OWN.free_port(1);
    let listener = b.guest().cm_listen(OWN.address(1), port, 1).unwrap();
    let first = a.guest().cm_connect(&request(&a.qp, 0, 1, port, b"first")).unwrap();
    let asked = b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
    let second = a.guest().cm_connect(&request(&c.qp, 0, 1, port, b"second")).unwrap();
    // The second request waits until the first was answered.
    assert!(b.guest().cm_event_within(Duration::from_millis(20)).is_none());
    assert_eq!(lab.stats().tcp(0, "local"), 1);
    b.guest().cm_accept(asked.connection.get(), b.qp.number, b"").unwrap();
    let asked = [asked, cm_request(&b)];
    b.guest().cm_accept(asked[1].connection.get(), d.qp.number, b"").unwrap();
    b.guest().cm_event(CmEventKind::ESTABLISHED);
    for _ in 0..2 {
        let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
        assert!(event.status.get() == 0 && [first, second].contains(&event.connection.get()));
    }
    exchange(&mut a, &mut b);
    exchange(&mut d, &mut c);
    let stats = lab.stats();
    assert!(stats.tcp(0, "local") == 1 && stats.tcp(0, "segments_out") > 0);
    b.guest().cm_close_listener(listener).unwrap();
}

/// Waits for the next request, which follows the `ESTABLISHED` event of the connection before it.
fn cm_request(side: &Side) -> vrdma_tests::abi::control::CmEventResp {
    side.guest().cm_event(CmEventKind::ESTABLISHED);
    side.guest().cm_event(CmEventKind::CONNECT_REQUEST)
}

#[test]
fn two_connections_have_not_the_same_addresses() {
    let lab = lab(1);
    let [a, b, c] = [0, 1, 0].map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::default()));
    for side in [&a, &b, &c] {
        side.qp.to_init().unwrap();
    }
    let port = OWN.free_port(1);
    b.guest().cm_listen(OWN.address(1), port, 4).unwrap();
    let mut fixed = request(&a.qp, 0, 1, port, b"");
    fixed.local_port = 50_000.into();
    let of_a = a.guest().cm_connect(&fixed).unwrap();
    fixed.qpn = c.qp.number.into();
    assert_eq!(c.guest().cm_connect(&fixed), Err(Status::BUSY));
    // Other connections get free ports. A port is free again once its connection has ended.
    let of_c = c.guest().cm_connect(&request(&c.qp, 0, 1, port, b"")).unwrap();
    let ports = [(), ()].map(|()| b.guest().cm_event(CmEventKind::CONNECT_REQUEST).remote_port.get());
    assert!(ports[0] == 50_000 && ports[1] != 50_000, "{ports:?}");
    a.guest().cm_release(of_a).unwrap();
    c.guest().cm_release(of_c).unwrap();
    c.guest().cm_connect(&fixed).unwrap();
    assert_eq!(lab.stats().tcp(0, "local"), 3);
}

#[test]
fn where_nobody_listens_nobody_is_reached() {
    let lab = lab(1);
    let [a, b] = [0, 1].map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::default()));
    a.qp.to_init().unwrap();
    let of_a = a.guest().cm_connect(&request(&a.qp, 0, 1, OWN.free_port(1), b"")).unwrap();
    let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
    assert_eq!(event.connection.get(), of_a);
    assert_ne!(event.status.get(), 0);
    a.guest().cm_release(of_a).unwrap();
    b.qp.to_init().unwrap();
    connect_streams(&a.qp, &b.qp);
}
