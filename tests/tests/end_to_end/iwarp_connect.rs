//! Errors of a connect command are found before the peer sees a SYN.
//!
//! Shows: iwarp.

use std::io::ErrorKind;
use std::net::TcpListener;
use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{CmConnectReq, CmEventKind, QpState, Status};
use vrdma_tests::cm::{connected, free_port, host_address, mapped, request};
use vrdma_tests::lab::over_tcp;
use vrdma_tests::side::Side;
use vrdma_tests::{Lab, LabOptions, QpOptions, wait};

const LEN: u64 = 4096;

/// A peer that would see a SYN. The host's TCP establishes the connection by itself, before
/// `connect` returns.
struct Peer(TcpListener);

impl Peer {
    fn new() -> Peer {
        let listener = TcpListener::bind((host_address(1), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Peer(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn heard(&self) -> bool {
        match self.0.accept() {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that the command is refused with `status`, and that the peer saw nothing.
    fn expect_refused(&self, side: &Side, req: &CmConnectReq, status: Status, why: &str) {
        assert_eq!(side.guest().cm_connect(req), Err(status), "{why}");
        assert!(!self.heard(), "{why}");
        assert_eq!(side.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0, "{why}");
    }
}

#[test]
fn a_peer_hears_nothing_of_a_qp_that_cannot_be_connected() {
    let lab = Lab::of_iwarp(1);
    let ((a, of_a), (_b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    let [side, gone] = [(); 2].map(|()| Side::new(&lab.guests[0], LEN, &QpOptions::default()));
    let gone_qpn = gone.qp.number;
    gone.close();
    let peer = Peer::new();
    let of = |qpn: u32| CmConnectReq { qpn: qpn.into(), ..request(&side.qp, 0, 1, peer.port(), b"") };
    let own = of(side.qp.number);
    for (qpn, what) in
        [(gone_qpn, "destroyed"), (0x7777, "never there"), (0, "of the kernel"), (1 << 24, "none")]
    {
        peer.expect_refused(&side, &of(qpn), Status::NOT_FOUND, what);
    }
    peer.expect_refused(&side, &own, Status::INVALID, "RESET");
    peer.expect_refused(&side, &of(a.qp.number), Status::BUSY, "connected");
    side.qp.to_init().unwrap();
    side.qp.to_state(QpState::ERR).unwrap();
    peer.expect_refused(&side, &own, Status::INVALID, "ERR");
    side.qp.to_state(QpState::RESET).unwrap();
    side.qp.to_init().unwrap();
    // Afterwards the QP connects, once.
    let number = side.guest().cm_connect(&own).unwrap();
    assert!(peer.heard());
    // The peer has gone again, which disconnects the QP.
    side.guest().cm_event(CmEventKind::CONNECT_REPLY);
    side.guest().cm_release(number).unwrap();
    let listener = Peer::new();
    let own = request(&side.qp, 0, 1, listener.port(), b"");
    let number = side.guest().cm_connect(&own).unwrap();
    let _kept = listener.0.accept().unwrap();
    listener.expect_refused(&side, &own, Status::BUSY, "about to be connected");
    for number in [number, of_a] {
        side.guest().cm_release(number).unwrap();
    }
}

#[test]
fn a_peer_hears_nothing_of_addresses_that_cannot_be_had() {
    let lab = Lab::of_iwarp(1);
    let side = Side::new(&lab.guests[0], LEN, &QpOptions::default());
    side.qp.to_init().unwrap();
    let peer = Peer::new();
    let own = || request(&side.qp, 0, 1, peer.port(), b"");
    let foreign = CmConnectReq { local_addr: mapped(host_address(1)), ..own() };
    peer.expect_refused(&side, &foreign, Status::DENIED, "another's address");
    let port = free_port(host_address(0));
    side.guest().cm_listen(host_address(0), port, 1).unwrap();
    let taken = CmConnectReq { local_port: port.into(), ..own() };
    peer.expect_refused(&side, &taken, Status::BUSY, "a listener has the port");
    // From the loopback device, only local addresses are reachable.
    let far = CmConnectReq { remote_addr: mapped([192, 0, 2, 1]), ..own() };
    peer.expect_refused(&side, &far, Status::NOT_FOUND, "no way there");
    assert_eq!(lab.stats().objects(0, "connections"), 1);
    side.guest().cm_connect(&own()).unwrap();
    assert!(peer.heard());
}

#[test]
fn a_peer_hears_nothing_of_one_connection_too_many() {
    let limits = GuestLimits { connections: 2, ..GuestLimits::default() };
    let lab = Lab::with(2, LabOptions { limits, host_says: over_tcp, ..LabOptions::default() });
    let side = Side::new(&lab.guests[0], LEN, &QpOptions::default());
    side.qp.to_init().unwrap();
    let peer = Peer::new();
    let listen = || side.guest().cm_listen(host_address(0), free_port(host_address(0)), 1).unwrap();
    let (first, _second) = (listen(), listen());
    let own = request(&side.qp, 0, 1, peer.port(), b"");
    for _ in 0..3 {
        peer.expect_refused(&side, &own, Status::NO_RESOURCES, "as many as it may");
    }
    side.guest().cm_close_listener(first).unwrap();
    let number = side.guest().cm_connect(&own).unwrap();
    assert!(peer.heard());
    side.guest().cm_event(CmEventKind::CONNECT_REPLY);
    side.guest().cm_release(number).unwrap();
    wait::until("the listener alone to be left", || {
        (lab.stats().objects(0, "connections") == 1).then_some(())
    });
}
