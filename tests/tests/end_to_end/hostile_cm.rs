//! A guest kernel that breaks the rules of the connection commands, one at a time.
//!
//! Meanwhile two other guests stay connected with each other.
//!
//! Shows: iwarp.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use vrdma_tests::abi::control::*;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::zerocopy::{FromZeros, Immutable, IntoBytes};
use vrdma_tests::cm::{connected, free_port, host_address, mapped};
use vrdma_tests::lab::over_tcp;
use vrdma_tests::pingpong::Canary;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Guest, Lab, LabOptions, QpOptions, wait};
use vrdma_transport::{Initiator, Wishes};

const LEN: u64 = 4096;

/// A lab in which guests 0 and 1 are connected, and guest 2 is the culprit.
struct Besieged {
    lab: Lab,
    sides: Option<[(Side, u32); 2]>,
    canaries: [Canary; 2],
    rounds: u32,
}

impl Besieged {
    fn new() -> Besieged {
        let lab = Lab::with(3, LabOptions { host_says: over_tcp, ..LabOptions::default() });
        let (a, b) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
        Besieged { lab, sides: Some([a, b]), canaries, rounds: 0 }
    }

    fn culprit(&self) -> &Guest {
        &self.lab.guests[2]
    }

    /// Asserts that the two other guests notice nothing.
    fn check(&mut self) {
        self.rounds += 1;
        let (id, rounds) = (self.rounds % 4, self.rounds);
        let [(a, _), (b, _)] = self.sides.as_mut().expect("until the end");
        exchange(a, b, id, rounds);
        exchange(b, a, id, rounds);
        for side in [a, b] {
            assert_eq!(side.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0);
        }
        self.canaries.iter().for_each(Canary::check);
    }

    fn numbers(&self) -> [u32; 2] {
        let [(_, a), (_, b)] = self.sides.as_ref().expect("until the end");
        [*a, *b]
    }
}

fn exchange(from: &mut Side, to: &mut Side, id: u32, rounds: u32) {
    to.recv_any(id);
    to.process.channel.drain();
    from.post(&Request::send(from.qp.tag(id), Data::Inline(&rounds.to_le_bytes())).signaled(true));
    from.cq.expect(from.qp.number, id, WcStatus::SUCCESS);
    assert_eq!(to.cq.expect(to.qp.number, id, WcStatus::SUCCESS).len(), 4);
}

/// Executes a command with these bytes, and returns its status.
fn say(guest: &Guest, opcode: Opcode, body: &[u8]) -> Status {
    let room = match opcode {
        Opcode::CM_LISTEN | Opcode::CM_CONNECT => size_of::<ObjectResp>(),
        _ => 0,
    };
    let reply = guest.control().command(opcode, body, &[], room).err();
    reply.unwrap_or(Status::OK)
}

/// A wrong request: what is wrong, the function that makes it wrong, and the expected status.
type Wrong<T> = (&'static str, fn(&mut T), Status);

/// Executes the request with each fault, and asserts the status.
fn expect<T: IntoBytes + Immutable + Clone>(guest: &Guest, opcode: Opcode, good: &T, wrong: &[Wrong<T>]) {
    for (what, spoil, status) in wrong {
        let mut req = good.clone();
        spoil(&mut req);
        assert_eq!(say(guest, opcode, req.as_bytes()), *status, "{opcode:?}: {what}");
    }
    let bytes = good.as_bytes();
    for length in [0, 1, bytes.len() - 1] {
        assert_eq!(say(guest, opcode, &bytes[..length]), Status::INVALID, "{opcode:?}: {length} bytes");
    }
}

/// Sends a connection request. The caller has to keep the socket.
fn ask(at: (Ipv4Addr, u16)) -> TcpStream {
    let wishes = Wishes { markers: false, crc: true, enhanced: true, peer_to_peer: false, ird: 1, ord: 1 };
    let mut peer = TcpStream::connect(at).unwrap();
    peer.write_all(&Initiator::new(wishes, b"").1).unwrap();
    peer
}

#[test]
fn fields_that_cannot_be_are_refused() {
    let mut besieged = Besieged::new();
    let guest = besieged.culprit();
    let side = Side::new(&besieged.lab.guests[2], LEN, &QpOptions::default());
    side.qp.to_init().unwrap();
    let port = free_port(host_address(2));
    let listen = CmListenReq {
        addr: mapped(host_address(2)),
        port: port.into(),
        traffic_class: 0,
        reserved: 0,
        backlog: 2.into(),
    };
    expect(
        guest,
        Opcode::CM_LISTEN,
        &listen,
        &[
            ("no port", |req| req.port = 0.into(), Status::INVALID),
            ("reserved", |req| req.reserved = 1, Status::INVALID),
            ("another's address", |req| req.addr = mapped(host_address(0)), Status::DENIED),
            ("the host's address", |req| req.addr = mapped(Ipv4Addr::LOCALHOST), Status::DENIED),
            ("no address of anybody", |req| req.addr = [0xff; 16], Status::DENIED),
        ],
    );
    let listener = guest.cm_listen(host_address(2), port, u32::MAX).unwrap();
    assert_eq!(say(guest, Opcode::CM_LISTEN, listen.as_bytes()), Status::BUSY);
    let connect = CmConnectReq {
        qpn: side.qp.number.into(),
        local_addr: mapped(host_address(2)),
        remote_addr: mapped(host_address(2)),
        remote_port: port.into(),
        ..CmConnectReq::new_zeroed()
    };
    expect(
        guest,
        Opcode::CM_CONNECT,
        &connect,
        &[
            ("no QP of anybody", |req| req.qpn = u32::MAX.into(), Status::NOT_FOUND),
            ("a flag without a meaning", |req| req.flags = 0x8000_0000.into(), Status::UNSUPPORTED),
            ("another's address", |req| req.local_addr = mapped(host_address(1)), Status::DENIED),
            ("the host itself", |req| req.remote_addr = mapped([0, 0, 0, 0]), Status::DENIED),
            ("everybody", |req| req.remote_addr = mapped([255; 4]), Status::DENIED),
            ("two families", |req| req.remote_addr = [0x20; 16], Status::INVALID),
            ("no port", |req| req.remote_port = 0.into(), Status::INVALID),
            ("more IRD than there is", |req| req.ird = 129.into(), Status::INVALID),
            ("more ORD than there is", |req| req.ord = u16::MAX.into(), Status::INVALID),
            ("a byte more than fits", |req| req.private_data_len = 509.into(), Status::INVALID),
            ("far more than fits", |req| req.private_data_len = u16::MAX.into(), Status::INVALID),
            ("reserved", |req| req.reserved[0] = 1, Status::INVALID),
        ],
    );
    let _peer = ask((host_address(2), port));
    let asked = guest.cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
    let accept =
        CmAcceptReq { connection: asked.into(), qpn: side.qp.number.into(), ..CmAcceptReq::new_zeroed() };
    expect(
        guest,
        Opcode::CM_ACCEPT,
        &accept,
        &[
            ("no connection of anybody", |req| req.connection = u32::MAX.into(), Status::NOT_FOUND),
            ("no QP of anybody", |req| req.qpn = (1 << 24).into(), Status::NOT_FOUND),
            ("more IRD than there is", |req| req.ird = 256.into(), Status::INVALID),
            ("more ORD than there is", |req| req.ord = 129.into(), Status::INVALID),
            ("a byte more than fits", |req| req.private_data_len = 509.into(), Status::INVALID),
            ("reserved", |req| req.reserved = 1.into(), Status::INVALID),
        ],
    );
    let reject = CmRejectReq { connection: asked.into(), ..CmRejectReq::new_zeroed() };
    expect(
        guest,
        Opcode::CM_REJECT,
        &reject,
        &[
            ("no connection of anybody", |req| req.connection = u32::MAX.into(), Status::NOT_FOUND),
            ("a byte more than fits", |req| req.private_data_len = 509.into(), Status::INVALID),
            ("far more than fits", |req| req.private_data_len = u16::MAX.into(), Status::INVALID),
            ("reserved", |req| req.reserved = 1.into(), Status::INVALID),
        ],
    );
    for opcode in [Opcode::CM_CLOSE_LISTENER, Opcode::CM_DISCONNECT, Opcode::CM_RELEASE] {
        let req = ObjectReq { object: listener.into(), reserved: 0.into() };
        expect(
            guest,
            opcode,
            &req,
            &[
                ("nobody's", |req| req.object = u32::MAX.into(), Status::NOT_FOUND),
                ("reserved", |req| req.reserved = 1.into(), Status::INVALID),
            ],
        );
    }
    // All objects still exist, unchanged.
    guest.cm_accept(asked, side.qp.number, b"").unwrap();
    guest.cm_event(CmEventKind::ESTABLISHED);
    guest.cm_close_listener(listener).unwrap();
    besieged.check();
}

#[test]
fn commands_again_and_out_of_order_are_refused() {
    let mut besieged = Besieged::new();
    let others = besieged.numbers();
    let guest = besieged.culprit();
    let [side, spare] = [(); 2].map(|()| Side::new(&besieged.lab.guests[2], LEN, &QpOptions::default()));
    let qpn = side.qp.number;
    side.qp.to_init().unwrap();
    spare.qp.to_init().unwrap();
    // At first nothing exists: numbers of the other guests' connections mean nothing either.
    for number in (0..8).chain(others) {
        assert_eq!(guest.cm_accept(number, qpn, b""), Err(Status::NOT_FOUND));
        assert_eq!(guest.cm_reject(number, b""), Err(Status::NOT_FOUND));
        assert_eq!(guest.cm_release(number), Err(Status::NOT_FOUND));
        assert_eq!(guest.cm_close_listener(number), Err(Status::NOT_FOUND));
    }
    assert_eq!(guest.cm_disconnect(qpn), Err(Status::INVALID));
    let at = (host_address(2), free_port(host_address(2)));
    let listener = guest.cm_listen(at.0, at.1, 8).unwrap();
    for result in
        [guest.cm_accept(listener, qpn, b""), guest.cm_reject(listener, b""), guest.cm_release(listener)]
    {
        assert_eq!(result, Err(Status::NOT_FOUND), "a listener is no connection");
    }
    // Accept twice, then reject the accepted connection.
    let _peer = ask(at);
    let asked = guest.cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
    assert_eq!(guest.cm_close_listener(asked), Err(Status::NOT_FOUND));
    guest.cm_accept(asked, qpn, b"").unwrap();
    assert_eq!(guest.cm_accept(asked, qpn, b""), Err(Status::INVALID));
    assert_eq!(guest.cm_accept(asked, spare.qp.number, b""), Err(Status::INVALID));
    assert_eq!(guest.cm_reject(asked, b""), Err(Status::INVALID));
    // Accept a second connection with a QP that already has one.
    let second = ask(at);
    guest.cm_event(CmEventKind::ESTABLISHED);
    let next = guest.cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
    assert_eq!(guest.cm_accept(next, qpn, b""), Err(Status::BUSY));
    guest.cm_reject(next, b"no").unwrap();
    assert_eq!(guest.cm_reject(next, b"no"), Err(Status::NOT_FOUND));
    assert_eq!(guest.cm_accept(next, spare.qp.number, b""), Err(Status::NOT_FOUND));
    // Disconnect again and again, and release twice.
    guest.cm_disconnect(qpn).unwrap();
    guest.cm_disconnect(qpn).unwrap();
    guest.cm_release(asked).unwrap();
    assert_eq!(guest.cm_release(asked), Err(Status::NOT_FOUND));
    guest.cm_close_listener(listener).unwrap();
    assert_eq!(guest.cm_close_listener(listener), Err(Status::NOT_FOUND));
    // Destroy a QP while it connects to a listener that never existed.
    let mut req = CmConnectReq {
        qpn: spare.qp.number.into(),
        local_addr: mapped(at.0),
        remote_addr: mapped(at.0),
        remote_port: at.1.into(),
        ..CmConnectReq::new_zeroed()
    };
    let number = guest.cm_connect(&req).unwrap();
    spare.qp.destroy().unwrap();
    guest.cm_event(CmEventKind::CONNECT_REPLY);
    req.private_data_len = 1.into();
    assert_eq!(guest.cm_connect(&req), Err(Status::NOT_FOUND));
    guest.cm_release(number).unwrap();
    // The rejected peer has got its answer by now.
    drop(second);
    let none = || (besieged.lab.stats().objects(2, "connections") == 0).then_some(());
    wait::until("all connections to be gone", none);
    besieged.check();
}

#[test]
fn a_guest_that_takes_all_it_may_takes_nothing_from_others() {
    let mut besieged = Besieged::new();
    let guest = besieged.culprit();
    let mut made = Vec::new();
    let status = loop {
        match guest.cm_listen(host_address(2), free_port(host_address(2)), u32::MAX) {
            Ok(listener) => made.push(listener),
            Err(status) => break status,
        }
    };
    assert_eq!((status, made.len()), (Status::NO_RESOURCES, 1024));
    besieged.check();
    let guest = besieged.culprit();
    for listener in made {
        guest.cm_close_listener(listener).unwrap();
    }
    assert_eq!(besieged.lab.stats().objects(2, "connections"), 0);
    besieged.check();
}
