//! iWARP between two guests, on one daemon and on two, over the host's TCP and the daemon's own.
//!
//! Shows: iwarp, local-streams.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use vrdma_tests::abi::config::{device, transport};
use vrdma_tests::abi::control::{CmEventKind, CmStatus, Opcode, QpState, QpType, Status};
use vrdma_tests::abi::cqe::{WcOpcode, WcStatus};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::cm::{connect_streams, connected, data_of, free_port, host_address, request};
use vrdma_tests::lab::over_tcp;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{GuestTcp, Lab, LabOptions, QpOptions, wait};

const LEN: u64 = 2 << 20;
const TCPS: [GuestTcp; 2] = [GuestTcp::Kernel, GuestTcp::Own];

/// Returns labs with two guests over each TCP, on `hosts` hosts.
///
/// On one host there is also a lab that connects without TCP.
fn labs(hosts: u8) -> impl Iterator<Item = Lab> {
    let local = (hosts == 1).then(Lab::of_local_way);
    TCPS.into_iter().map(move |tcp| Lab::of_tcp(tcp, hosts)).chain(local)
}

fn pattern(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + seed * 31 + (i >> 8)) as u8).collect()
}

#[test]
fn every_operation_arrives_whatever_its_length() {
    for lab in labs(1).chain(labs(2)) {
        let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        for (round, length) in [0u32, 1, 7, 1460, 70_000, LEN as u32].into_iter().enumerate() {
            let round = round as u32;
            let data = pattern(round.into(), length.into());
            // SEND
            a.mr.put(0, &data);
            b.mr.fill(0);
            b.recv_any(round);
            b.process.channel.drain();
            let own = [a.mr.sge(0, length)];
            a.post(&Request::send(a.qp.tag(round), Data::Sges(&own)).signaled(true));
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
            let wc = b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            assert_eq!((wc.len(), wc.opcode()), (length, WcOpcode::RECV));
            assert!(b.mr.get(0, length.into()) == data, "SEND of {length}");
            // WRITE with immediate data
            b.mr.fill(0);
            b.recv(round, &[]);
            b.process.channel.drain();
            let tag = a.qp.tag(round);
            a.post(&Request::write_imm(tag, b.mr.remote(0), [5; 4], Data::Sges(&own)).signaled(true));
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
            let wc = b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            assert_eq!((wc.imm(), wc.opcode()), (Some([5; 4]), WcOpcode::RECV_RDMA_WITH_IMM));
            assert!(b.mr.get(0, length.into()) == data, "WRITE of {length}");
            // READ by the responder of the connection.
            b.mr.fill(0);
            let own = [b.mr.sge(0, length)];
            b.post(&Request::read(b.qp.tag(round), a.mr.remote(0), &own).signaled(true));
            b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            assert!(b.mr.get(0, length.into()) == data, "READ of {length}");
        }
        let (own, tag) = (a.mr.sge(64, 8), a.qp.tag(20));
        b.mr.put(128, &40u64.to_le_bytes());
        a.post(&Request::fetch_add(tag, b.mr.remote(128), 2, &own).signaled(true));
        a.cq.expect(a.qp.number, 20, WcStatus::SUCCESS);
        assert_eq!(
            (a.mr.get(64, 8), b.mr.get(128, 8)),
            (40u64.to_le_bytes().into(), 42u64.to_le_bytes().into())
        );
        let tag = a.qp.tag(21);
        a.post(&Request::compare_swap(tag, b.mr.remote(128), 42, 7, &own).signaled(true));
        a.cq.expect(a.qp.number, 21, WcStatus::SUCCESS);
        assert_eq!(
            (a.mr.get(64, 8), b.mr.get(128, 8)),
            (42u64.to_le_bytes().into(), 7u64.to_le_bytes().into())
        );
        a.close();
        b.close();
    }
}

#[test]
fn many_connections_and_requests_at_once_lose_nothing() {
    for lab in labs(2) {
        let options = QpOptions::default();
        let mut sides: Vec<_> =
            (0..8).map(|_| connected(&lab.guests[0], &lab.guests[1], 1 << 16, &options)).collect();
        for round in 0..20u32 {
            for ((a, _), (b, _)) in &mut sides {
                b.recv_any(round);
                b.process.channel.drain();
                a.mr.put(0, &pattern(round.into(), 1 << 16));
                let own = [a.mr.sge(0, 1 << 16)];
                for id in 0..4 {
                    a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)));
                }
                a.post(&Request::send(a.qp.tag(round), Data::Sges(&own)).signaled(true));
            }
            for ((a, _), (b, _)) in &mut sides {
                b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
                assert!(b.mr.get(0, 1 << 16) == pattern(round.into(), 1 << 16));
                a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
            }
        }
    }
}

#[test]
fn a_peer_that_stands_still_gets_all_later() {
    for lab in labs(1) {
        let ((mut a, _), (b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let bases = lab.guests[1].pause().unwrap();
        let data = pattern(3, LEN);
        a.mr.put(0, &data);
        let own = [a.mr.sge(0, LEN as u32)];
        // More data than sockets buffer.
        for id in 0..40 {
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(id == 39));
        }
        a.cq.expect_nothing(Duration::from_millis(300));
        lab.guests[1].resume(&bases).unwrap();
        a.cq.expect(a.qp.number, 39, WcStatus::SUCCESS);
        wait::until("the last byte", || (b.mr.get(0, LEN) == data).then_some(()));
    }
}

#[test]
fn who_ends_in_order_loses_nothing_and_both_are_told() {
    for lab in labs(1) {
        let ((mut a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        b.recv_any(1);
        b.recv_any(2);
        b.process.channel.drain();
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"last words")).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        a.guest().cm_disconnect(a.qp.number).unwrap();
        assert_eq!(b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS).len(), 10);
        b.cq.expect(b.qp.number, 2, WcStatus::WR_FLUSH_ERR);
        for (side, of) in [(&a, of_a), (&b, of_b)] {
            side.guest().cm_expect_end(of);
            assert_eq!(side.qp.state(), QpState::ERR);
            side.guest().cm_release(of).unwrap();
            assert_eq!(side.guest().cm_release(of), Err(Status::NOT_FOUND));
        }
        for index in [0, 1] {
            assert_eq!(lab.stats().objects(index, "connections"), 0);
        }
        // The QP may be connected again.
        a.qp.to_state(QpState::RESET).unwrap();
        b.qp.to_state(QpState::RESET).unwrap();
        connect_streams(&a.qp, &b.qp);
        b.recv_any(3);
        b.process.channel.drain();
        a.post(&Request::send(a.qp.tag(3), Data::Inline(b"again")));
        assert_eq!(b.cq.expect(b.qp.number, 3, WcStatus::SUCCESS).len(), 5);
    }
}

#[test]
fn whatever_becomes_of_a_qp_the_peer_notices() {
    type End = fn(&Side, u32);
    let ends: [(&str, End); 4] = [
        ("ERR", |side, _| side.qp.to_state(QpState::ERR).unwrap()),
        ("RESET", |side, _| side.qp.to_state(QpState::RESET).unwrap()),
        ("destroyed", |side, _| side.qp.destroy().unwrap()),
        ("released", |side, of| side.guest().cm_release(of).unwrap()),
    ];
    for ((name, end), lab) in ends.into_iter().flat_map(|row| labs(1).map(move |lab| (row, lab))) {
        let ((a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
        b.recv_any(1);
        b.process.channel.drain();
        end(&a, of_a);
        b.cq.expect(b.qp.number, 1, WcStatus::WR_FLUSH_ERR);
        b.guest().cm_expect_end(of_b);
        assert_eq!(b.qp.state(), QpState::ERR, "{name}");
        if name != "released" {
            a.guest().cm_expect_end(of_a);
        }
        assert_eq!(a.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0, "{name}");
    }
}

#[test]
fn a_guest_that_is_killed_leaves_nothing_and_its_peer_is_told() {
    for hosts in [1, 2] {
        let mut lab = Lab::of_iwarp(hosts);
        let ((a, of_a), (b, _)) = connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
        let port = free_port(host_address(1));
        b.guest().cm_listen(host_address(1), port, 1).unwrap();
        drop((b, lab.guests.pop()));
        a.guest().cm_expect_end(of_a);
        assert_eq!(a.qp.state(), QpState::ERR);
        if hosts == 1 {
            lab.expect_nothing_left(1);
        }
        let gone = || TcpStream::connect((host_address(1), port)).err();
        wait::until("the listener to go", gone);
    }
}

#[test]
fn what_a_peer_may_not_ends_the_connection_with_a_terminate() {
    for lab in labs(2) {
        let ((mut a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
        a.recv_any(1);
        a.process.channel.drain();
        b.mr.fill(7);
        let (tag, mut remote) = (a.qp.tag(2), b.mr.remote(0));
        remote.rkey ^= 0x5500;
        a.post(&Request::write(tag, remote, Data::Inline(b"forged")).signaled(true));
        // The WRITE completes when it has been sent. The peer's error comes later.
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        a.cq.expect(a.qp.number, 1, WcStatus::WR_FLUSH_ERR);
        for (side, of) in [(&a, of_a), (&b, of_b)] {
            side.guest().cm_expect_end(of);
            assert_eq!(side.qp.state(), QpState::ERR);
        }
        assert_eq!(b.mr.get(0, 16), [7; 16]);
        assert_eq!((lab.transport(0, "terminates_in"), lab.transport(1, "terminates_out")), (1, 1));
        b.cq.expect_nothing(Duration::from_millis(20));
    }
}

#[test]
fn a_send_without_a_receive_ends_the_connection() {
    for lab in labs(1) {
        let ((mut a, _), (b, _)) = connected(&lab.guests[0], &lab.guests[1], 4096, &QpOptions::default());
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"to nobody")).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        a.guest().cm_event(CmEventKind::DISCONNECT);
        assert_eq!((a.qp.state(), b.qp.state()), (QpState::ERR, QpState::ERR));
        assert_eq!(lab.transport(1, "no_receive_ends"), 1);
    }
}

#[test]
fn who_is_not_there_or_says_no_ends_the_attempt() {
    let lab = Lab::of_iwarp(1);
    let [a, b] = [&lab.guests[0], &lab.guests[1]].map(|guest| Side::new(guest, 4096, &QpOptions::default()));
    a.qp.to_init().unwrap();
    let port = free_port(host_address(1));
    let of_a = a.guest().cm_connect(&request(&a.qp, 0, 1, port, b"")).unwrap();
    let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
    assert_eq!((event.connection.get(), event.status.get()), (of_a, CmStatus::REFUSED.0));
    a.guest().cm_release(of_a).unwrap();

    let listener = b.guest().cm_listen(host_address(1), port, 2).unwrap();
    let of_a = a.guest().cm_connect(&request(&a.qp, 0, 1, port, &[3; 508])).unwrap();
    let event = b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
    assert_eq!(data_of(&event), [3; 508]);
    b.guest().cm_reject(event.connection.get(), &[4; 508]).unwrap();
    assert_eq!(b.guest().cm_release(event.connection.get()), Err(Status::NOT_FOUND));
    let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
    assert_eq!((event.connection.get(), event.status.get()), (of_a, CmStatus::REFUSED.0));
    assert_eq!(data_of(&event), [4; 508]);
    a.guest().cm_release(of_a).unwrap();

    // The initiator gives up before there is an answer.
    let of_a = a.guest().cm_connect(&request(&a.qp, 0, 1, port, b"")).unwrap();
    let event = b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
    a.guest().cm_release(of_a).unwrap();
    b.qp.to_init().unwrap();
    let accept = || b.guest().cm_accept(event.connection.get(), b.qp.number, b"").err();
    let refused = wait::within(Duration::from_millis(1), accept);
    if refused.is_none() {
        // The RST had not arrived yet. It ends the accepted connection.
        b.guest().cm_event(CmEventKind::ESTABLISHED);
        b.guest().cm_event(CmEventKind::DISCONNECT);
        b.guest().cm_event(CmEventKind::CLOSE);
    }
    b.guest().cm_release(event.connection.get()).unwrap();
    b.guest().cm_close_listener(listener).unwrap();
    for index in [0, 1] {
        wait::until("nothing to be left", || (lab.stats().objects(index, "connections") == 0).then_some(()));
    }
    assert_eq!(a.qp.state(), QpState::INIT);
}

#[test]
fn whoever_says_something_else_to_a_listener_harms_nobody() {
    let lab = Lab::of_iwarp(1);
    let b = Side::new(&lab.guests[1], 4096, &QpOptions::default());
    let port = free_port(host_address(1));
    b.guest().cm_listen(host_address(1), port, 3).unwrap();
    let connect = || TcpStream::connect((host_address(1), port)).unwrap();
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([0x40, 1, 0, 4]);
    request.extend(b"data");
    // Another protocol, a reply, an impossible length, an end in the middle, and data after the
    // request.
    let mut reply = request.clone();
    reply[7..10].copy_from_slice(b"Rep");
    let mut long = request.clone();
    long[18..20].copy_from_slice(&[0xff, 0xff]);
    let more = [&request[..], b"too early"].concat();
    let sent: [&[u8]; 5] = [b"GET / HTTP/1.1\r\n\r\n", &reply, &long, &request[..10], &more];
    for bytes in sent {
        let mut peer = connect();
        peer.write_all(bytes).unwrap();
        // The answer may have been a RST by now. Then there is nothing left to shut down.
        let _ = peer.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        // The connection ends with a FIN or a RST.
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    // Silent peers occupy places, but no more than the listener has.
    let silent: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
    assert_eq!(b.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0);
    drop(silent);
    let mut peer = connect();
    peer.write_all(&request).unwrap();
    let event = b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
    assert_eq!(data_of(&event), b"data");
    b.qp.to_init().unwrap();
    b.guest().cm_accept(event.connection.get(), b.qp.number, b"fine").unwrap();
    let mut reply = [0; 24];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!((&reply[..16], &reply[20..]), (&b"MPA ID Rep Frame"[..], &b"fine"[..]));
    // After the reply comes garbage instead of an FPDU.
    b.guest().cm_event(CmEventKind::ESTABLISHED);
    // It is as long as its length field says, so the CRC is checked. The connection may end before
    // all is written.
    let _ = peer.write_all(&[0xff; 70_000]);
    b.guest().cm_event(CmEventKind::DISCONNECT);
    assert_eq!(lab.stats().transport(1, "stream_faults"), 1);
    assert_eq!(b.qp.state(), QpState::ERR);
}

#[test]
fn a_guest_has_its_own_addresses_and_no_others() {
    let lab = Lab::of_iwarp(1);
    let (guest, side) = (&lab.guests[0], Side::new(&lab.guests[0], 4096, &QpOptions::default()));
    side.qp.to_init().unwrap();
    let port = free_port(host_address(0));
    assert_eq!(guest.cm_listen(host_address(1), port, 1), Err(Status::DENIED));
    assert_eq!(guest.cm_listen([127, 0, 0, 1], port, 1), Err(Status::DENIED));
    assert_eq!(guest.cm_listen(host_address(0), 0, 1), Err(Status::INVALID));
    // A wildcard address means the guest's own address.
    let listener = guest.cm_listen([0, 0, 0, 0], port, 1).unwrap();
    assert_eq!(guest.cm_listen(host_address(0), port, 1), Err(Status::BUSY));
    TcpStream::connect((host_address(0), port)).unwrap();
    assert!(TcpStream::connect((host_address(1), port)).is_err());
    guest.cm_close_listener(listener).unwrap();
    assert_eq!(guest.cm_close_listener(listener), Err(Status::NOT_FOUND));
    assert_eq!(guest.cm_connect(&request(&side.qp, 1, 0, port, b"")), Err(Status::DENIED));
    let mut to_all = request(&side.qp, 0, 1, port, b"");
    to_all.remote_addr = vrdma_tests::cm::mapped([224, 0, 0, 1]);
    assert_eq!(guest.cm_connect(&to_all), Err(Status::DENIED));
    let mut too_long = request(&side.qp, 0, 1, port, b"");
    too_long.private_data_len = 509.into();
    assert_eq!(guest.cm_connect(&too_long), Err(Status::INVALID));
    assert_eq!(guest.cm_release(7), Err(Status::NOT_FOUND));
}

#[test]
fn a_function_of_iwarp_says_so_and_has_nothing_of_packets() {
    for lab in labs(1) {
        let guest = &lab.guests[0];
        assert_eq!(
            (guest.config.magic.get(), guest.config.transport),
            (device::MAGIC_TRANSPORT, transport::IWARP)
        );
        assert_eq!(guest.add_gid(0, guest.gid()), Err(Status::UNSUPPORTED));
        assert_eq!(guest.attach_mcast(5, [0xff; 16]), Err(Status::UNSUPPORTED));
        assert_eq!(guest.alloc_xrcd(), Err(Status::UNSUPPORTED));
        assert_eq!(guest.query_device_ex().unwrap().max_mcast_grp.get(), 0);
        let side = Side::new(guest, 4096, &QpOptions::default());
        let create = |qp_type| {
            let process = &side.process;
            let options = QpOptions::of(qp_type);
            vrdma_tests::Qp::create(
                guest,
                process.number,
                process.pd,
                side.cq.number,
                side.cq.number,
                &options,
            )
            .map(|_| ())
        };
        for qp_type in [QpType::UD, QpType::UC] {
            assert_eq!(create(qp_type), Err(Status::UNSUPPORTED));
        }
        side.qp.to_init().unwrap();
        assert_eq!(side.qp.to_rtr(guest.gid(), 5, 0), Err(Status::INVALID));
        assert_eq!(guest.cm_disconnect(side.qp.number), Err(Status::INVALID));
        // RoCE functions have no connection commands.
        let other = Lab::new(1);
        assert_eq!(other.guests[0].config.magic.get(), device::MAGIC);
        assert_eq!(other.guests[0].cm_get_event().unwrap_err(), Status::UNSUPPORTED);
        for opcode in [Opcode::CM_ACCEPT, Opcode::CM_REJECT, Opcode::CM_RELEASE] {
            assert_eq!(
                other.guests[0].command::<[u8; 0]>(opcode, &[0u8; 600], &[]),
                Err(Status::UNSUPPORTED)
            );
        }
    }
}

#[test]
fn a_driver_is_told_that_there_are_events() {
    let lab = Lab::of_iwarp(1);
    let a = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    a.qp.to_init().unwrap();
    let port = free_port(host_address(1));
    a.guest().cm_connect(&request(&a.qp, 0, 1, port, b"")).unwrap();
    let told = a.guest().async_events().recv();
    assert_eq!((told.kind, told.object), (EventKind::CM, 0));
    assert_eq!(a.guest().cm_get_event().unwrap().kind.get(), CmEventKind::CONNECT_REPLY.0);
    assert_eq!(a.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0);
}

#[test]
fn a_guest_has_no_more_connections_than_it_may() {
    let limits = vrdma_backend::config::GuestLimits { connections: 2, ..Default::default() };
    let lab = Lab::with(2, LabOptions { limits, host_says: over_tcp, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let listen = || guest.cm_listen(host_address(0), free_port(host_address(0)), 1);
    let first = listen().unwrap();
    let port = free_port(host_address(0));
    guest.cm_listen(host_address(0), port, 4).unwrap();
    assert_eq!(listen(), Err(Status::NO_RESOURCES));
    // A connection from a peer is dropped.
    let mut peer = TcpStream::connect((host_address(0), port)).unwrap();
    assert!(matches!(peer.read(&mut [0; 8]), Ok(0) | Err(_)));
    wait::until("it to be counted", || (lab.stats().device(0, "failed_accepts") == 1).then_some(()));
    guest.cm_close_listener(first).unwrap();
    listen().unwrap();
}
