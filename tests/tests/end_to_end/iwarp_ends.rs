//! How iWARP connections end, over the host's TCP and the daemon's own.
//!
//! Each phase of a connection is ended in each way by its peer, its driver or its QP. Peers are
//! another guest or a socket of the test. That socket uses the host's TCP, or is on a host on the
//! wire. Timeouts are tested beside the code, in `streams/tests.rs`, with a clock of their own.
//!
//! Shows: iwarp, tcp-in-daemon.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::Duration;
use vrdma_tests::abi::control::{CmConnectReq, CmEventKind, CmStatus, QpState, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::{connect_streams, connected, host_address, mapped, request};
use vrdma_tests::lab::Lab;
use vrdma_tests::remote_host::{self, Far};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{GuestTcp, QpOptions, wait};
use vrdma_transport::{Initiator, SetUpResponder, Wishes};

const LEN: u64 = 1 << 16;

/// A connected socket of the test.
trait Stream: Read + Write {
    /// Closes the sending direction.
    fn finish(&self);
    /// Ends the connection by a RST.
    fn reset(self: Box<Self>);
}

impl Stream for TcpStream {
    fn finish(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn reset(self: Box<Self>) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let (fd, length) = (std::os::fd::AsRawFd::as_raw_fd(&*self), size_of_val(&linger) as u32);
        // SAFETY: `linger` is valid and has this length.
        let result = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length)
        };
        assert_eq!(result, 0);
    }
}

impl Stream for remote_host::Socket {
    fn finish(&self) {
        remote_host::Socket::finish(self);
    }

    fn reset(self: Box<Self>) {
        remote_host::Socket::reset(*self);
    }
}

/// A daemon with two guests, and the host of the test's sockets: the same one, or a remote one.
struct Place {
    lab: Lab,
    far: Option<Far>,
}

/// Returns one place for each TCP.
fn places() -> impl Iterator<Item = Place> {
    [GuestTcp::Kernel, GuestTcp::Own].into_iter().map(|tcp| {
        let mut lab = Lab::of_tcp(tcp, 1);
        let far = (tcp == GuestTcp::Own).then(|| Far::new(lab.outside.take().unwrap()));
        Place { lab, far }
    })
}

impl Place {
    fn tcp(&self) -> GuestTcp {
        self.lab.guests[0].options.tcp
    }

    /// Returns an address and port on which a guest can listen.
    fn free(&self, guest: u8) -> (Ipv4Addr, u16) {
        (self.tcp().address(guest), self.tcp().free_port(guest))
    }

    fn connect(&self, to: (Ipv4Addr, u16)) -> Peer {
        match &self.far {
            Some(far) => Peer(Box::new(far.connect(to).unwrap())),
            None => Peer::of_kernel(TcpStream::connect(to).unwrap()),
        }
    }

    /// Connects and sends a connection request.
    fn ask(&self, to: (Ipv4Addr, u16)) -> Peer {
        let mut peer = self.connect(to);
        peer.0.write_all(&Initiator::new(WISHES, b"").1).unwrap();
        peer
    }

    /// Prepares a peer for guest 0 to connect to.
    ///
    /// Returns the request, and a function that gives the connected peer.
    fn expect(&self, side: &Side) -> (CmConnectReq, Box<dyn FnOnce() -> Peer>) {
        match &self.far {
            Some(far) => {
                let listener = far.listen();
                let right = request(&side.qp, 0, 1, listener.port, b"");
                let to = mapped(remote_host::ADDRESS);
                let req = CmConnectReq { remote_addr: to, next_hop: remote_host::MAC, ..right };
                (req, Box::new(|| Peer(Box::new(listener.accept()))))
            }
            None => {
                let listener = TcpListener::bind((host_address(1), 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                let peer = move || Peer::of_kernel(listener.accept().unwrap().0);
                (request(&side.qp, 0, 1, port, b""), Box::new(peer))
            }
        }
    }
}

/// A socket of the test, as one end of a connection.
struct Peer(Box<dyn Stream>);

/// How a peer's connection ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Fin,
    Rst,
}

const WISHES: Wishes =
    Wishes { markers: false, crc: true, enhanced: true, peer_to_peer: false, ird: 4, ord: 4 };

impl Peer {
    fn of_kernel(socket: TcpStream) -> Peer {
        socket.set_read_timeout(Some(wait::PATIENCE)).unwrap();
        Peer(Box::new(socket))
    }

    /// Reads the initiator's request, and returns the reply that accepts it.
    fn reply(&mut self) -> Vec<u8> {
        let mut responder = SetUpResponder::default();
        loop {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            if let (_, Some(request)) = responder.handle(&byte).unwrap() {
                return request.accept(&WISHES, b"").unwrap().1;
            }
        }
    }

    /// Reads until the connection ends, and returns the bytes and how it ended.
    fn end(&mut self) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        let end = match self.0.read_to_end(&mut bytes) {
            Ok(_) => End::Fin,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Rst,
            Err(error) => panic!("the connection does not end: {error}"),
        };
        (bytes, end)
    }

    fn send_fin(&mut self) {
        self.0.finish();
    }

    fn send_rst(self) {
        self.0.reset();
    }
}

/// Connects a peer to a guest. Returns the guest's side and the number of its connection.
fn accepted(place: &Place, guest: u8) -> (Side, u32, Peer) {
    let side = Side::new(&place.lab.guests[usize::from(guest)], LEN, &QpOptions::default());
    let at = place.free(guest);
    let listener = side.guest().cm_listen(at.0, at.1, 1).unwrap();
    let mut peer = place.ask(at);
    let of = side.guest().cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
    side.qp.to_init().unwrap();
    side.guest().cm_accept(of, side.qp.number, b"").unwrap();
    side.guest().cm_event(CmEventKind::ESTABLISHED);
    side.guest().cm_close_listener(listener).unwrap();
    peer.0.read_exact(&mut [0; 24]).unwrap();
    (side, of, peer)
}

/// Has guest 0 connect to a peer, and reads the request.
///
/// The last value is the reply that accepts it.
fn asking(place: &Place) -> (Side, u32, Peer, Vec<u8>) {
    let side = Side::new(&place.lab.guests[0], LEN, &QpOptions::default());
    side.qp.to_init().unwrap();
    let (req, peer) = place.expect(&side);
    let of = side.guest().cm_connect(&req).unwrap();
    let mut peer = peer();
    let reply = peer.reply();
    (side, of, peer, reply)
}

fn expect_none(side: &Side) {
    assert_eq!(side.guest().cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0);
}

/// Waits until a guest has no connection left.
fn expect_no_connections(lab: &Lab, guest: usize) {
    let none = || (lab.stats().objects(guest, "connections") == 0).then_some(());
    wait::until("all connections to be gone", none);
}

#[test]
fn who_connects_is_told_whatever_comes_instead_of_a_reply() {
    type Answer = fn(Peer, &[u8]);
    let rows: [(&str, Answer, CmStatus); 6] = [
        ("FIN", |mut peer, _| peer.send_fin(), CmStatus::RESET),
        ("RST", |peer, _| peer.send_rst(), CmStatus::RESET),
        (
            "half a reply",
            |mut peer, reply| drop(peer.0.write_all(&reply[..reply.len() / 2])),
            CmStatus::RESET,
        ),
        ("another protocol", |mut peer, _| peer.0.write_all(&[b'x'; 30]).unwrap(), CmStatus::PROTOCOL),
        (
            "its own request",
            |mut peer, _| peer.0.write_all(&Initiator::new(WISHES, b"").1).unwrap(),
            CmStatus::PROTOCOL,
        ),
        (
            "more depth than it has",
            |mut peer, reply| {
                let mut reply = reply.to_vec();
                // The ORD of the enhanced data.
                reply[22..24].copy_from_slice(&0x3ff0u16.to_be_bytes());
                peer.0.write_all(&reply).unwrap();
            },
            CmStatus::PROTOCOL,
        ),
    ];
    for place in places() {
        let lab = &place.lab;
        for (name, answer, status) in rows {
            let (side, of, peer, reply) = asking(&place);
            answer(peer, &reply);
            let event = side.guest().cm_event(CmEventKind::CONNECT_REPLY);
            assert_eq!((event.connection.get(), event.status.get()), (of, status.0), "{name}");
            // The QP is unchanged and free.
            assert_eq!(side.qp.state(), QpState::INIT, "{name}");
            assert_eq!(side.guest().cm_disconnect(side.qp.number), Err(Status::INVALID), "{name}");
            assert_eq!(side.guest().cm_reject(of, b""), Err(Status::INVALID), "{name}");
            assert_eq!(side.guest().cm_accept(of, side.qp.number, b""), Err(Status::INVALID), "{name}");
            side.guest().cm_release(of).unwrap();
            expect_none(&side);
            side.close();
        }
        expect_no_connections(lab, 0);
    }
}

#[test]
fn who_connects_may_leave_before_the_reply() {
    type Leave = fn(&Side, u32);
    let rows: [(&str, Leave, bool); 4] = [
        ("ERR", |side, _| side.qp.to_state(QpState::ERR).unwrap(), true),
        ("RESET", |side, _| side.qp.to_state(QpState::RESET).unwrap(), true),
        ("destroyed", |side, _| side.qp.destroy().unwrap(), true),
        ("released", |side, of| side.guest().cm_release(of).unwrap(), false),
    ];
    for place in places() {
        let lab = &place.lab;
        for (name, leave, is_told) in rows {
            let (side, of, mut peer, _) = asking(&place);
            leave(&side, of);
            assert_eq!(peer.end(), (Vec::new(), End::Rst), "{name}");
            if is_told {
                let event = side.guest().cm_event(CmEventKind::CONNECT_REPLY);
                assert_eq!((event.connection.get(), event.status.get()), (of, CmStatus::RESET.0), "{name}");
                side.guest().cm_release(of).unwrap();
            }
            expect_none(&side);
        }
        expect_no_connections(lab, 0);
    }
}

#[test]
fn a_reply_and_an_end_in_one_breath_are_both_told() {
    for place in places() {
        let (side, of, mut peer, reply) = asking(&place);
        peer.0.write_all(&reply).unwrap();
        peer.send_fin();
        let event = side.guest().cm_event(CmEventKind::CONNECT_REPLY);
        assert_eq!((event.connection.get(), event.status.get()), (of, CmStatus::OK.0));
        assert_eq!(peer.end().1, End::Fin);
        side.guest().cm_expect_end(of);
        assert_eq!(side.qp.state(), QpState::ERR);
    }
}

#[test]
fn a_peer_that_leaves_before_the_driver_answers_needs_no_answer() {
    for place in places() {
        let lab = &place.lab;
        let side = Side::new(&lab.guests[1], LEN, &QpOptions::default());
        side.qp.to_init().unwrap();
        let at = place.free(1);
        let listener = side.guest().cm_listen(at.0, at.1, 8).unwrap();
        let leaves: [fn(Peer); 2] = [
            |mut peer| {
                peer.send_fin();
                assert_eq!(peer.end(), (Vec::new(), End::Rst));
            },
            Peer::send_rst,
        ];
        for leave in leaves {
            // Once without a request, and twice with it.
            leave(place.connect(at));
            for answers in [true, false] {
                let peer = place.ask(at);
                let of = side.guest().cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
                leave(peer);
                // Wait until the worker has seen the peer leave, which it does before it sends a
                // RST.
                let gone = || match side.guest().cm_accept(of, 0x7777, b"") {
                    Err(Status::INVALID) => Some(()),
                    Err(Status::NOT_FOUND) => None,
                    other => panic!("{other:?}"),
                };
                wait::until("the peer's end to be seen", gone);
                assert_eq!(side.guest().cm_accept(of, side.qp.number, b""), Err(Status::INVALID));
                match answers {
                    true => side.guest().cm_reject(of, b"too late").unwrap(),
                    false => side.guest().cm_release(of).unwrap(),
                }
                assert_eq!(side.guest().cm_release(of), Err(Status::NOT_FOUND));
            }
        }
        expect_none(&side);
        side.guest().cm_close_listener(listener).unwrap();
        expect_no_connections(lab, 1);
        assert_eq!(side.qp.state(), QpState::INIT);
    }
}

#[test]
fn a_listener_that_is_closed_leaves_nobody_waiting() {
    for place in places() {
        let lab = &place.lab;
        let [a, b] = [0, 1].map(|guest| Side::new(&lab.guests[guest], LEN, &QpOptions::default()));
        a.qp.to_init().unwrap();
        b.qp.to_init().unwrap();
        let at = place.free(1);
        for heard in [true, false] {
            let listener = b.guest().cm_listen(at.0, at.1, 8).unwrap();
            let mut silent = place.connect(at);
            let of_a = a.guest().cm_connect(&request(&a.qp, 0, 1, at.1, b"")).unwrap();
            let of_b = heard.then(|| b.guest().cm_event(CmEventKind::CONNECT_REQUEST).connection.get());
            let all_are_there = || (lab.stats().objects(1, "connections") == 3).then_some(());
            wait::until("both to be accepted", all_are_there);
            b.guest().cm_close_listener(listener).unwrap();
            assert_eq!(silent.end(), (Vec::new(), End::Rst));
            let event = a.guest().cm_event(CmEventKind::CONNECT_REPLY);
            assert_eq!((event.connection.get(), event.status.get()), (of_a, CmStatus::RESET.0));
            a.guest().cm_release(of_a).unwrap();
            if let Some(of_b) = of_b {
                assert_eq!(b.guest().cm_accept(of_b, b.qp.number, b""), Err(Status::INVALID));
                b.guest().cm_reject(of_b, b"").unwrap();
            }
            // No request comes from a closed listener.
            assert!(b.guest().cm_event_within(Duration::from_millis(20)).is_none());
            expect_no_connections(lab, 1);
        }
        connect_streams(&a.qp, &b.qp);
    }
}

#[test]
fn an_open_connection_ends_as_its_peer_ends_it() {
    type Leave = fn(&mut Peer);
    // The last column is how the daemon closes its end of the connection.
    let rows: [(&str, Leave, End); 3] = [
        ("FIN", Peer::send_fin, End::Fin),
        (
            "a part of an FPDU",
            |peer| {
                peer.0.write_all(&[0, 60, 1]).unwrap();
                peer.send_fin();
            },
            End::Fin,
        ),
        ("no FPDU", |peer| peer.0.write_all(&[0; 4096]).unwrap(), End::Fin),
    ];
    for place in places() {
        for (name, leave, end) in rows {
            let (mut side, of, mut peer) = accepted(&place, 1);
            side.recv_any(1);
            side.process.channel.drain();
            leave(&mut peer);
            let (bytes, ended) = peer.end();
            // If data arrives late and is not read, the end is a RST.
            assert!(ended == end || name == "no FPDU", "{name}: {ended:?}");
            assert!(name == "no FPDU" || bytes.is_empty(), "{name}: {bytes:?}");
            drop(peer);
            side.cq.expect(side.qp.number, 1, WcStatus::WR_FLUSH_ERR);
            side.guest().cm_expect_end(of);
            assert_eq!(side.qp.state(), QpState::ERR, "{name}");
            side.guest().cm_release(of).unwrap();
            expect_none(&side);
            side.close();
        }
        let (side, of, peer) = accepted(&place, 1);
        peer.send_rst();
        side.guest().cm_expect_end(of);
        assert_eq!(side.qp.state(), QpState::ERR);
    }
}

#[test]
fn a_qp_is_free_as_soon_as_its_connection_begins_to_end() {
    for place in places() {
        let lab = &place.lab;
        let (side, of, mut peer) = accepted(&place, 1);
        side.guest().cm_disconnect(side.qp.number).unwrap();
        assert_eq!(peer.end().1, End::Fin);
        assert_eq!(side.guest().cm_event(CmEventKind::DISCONNECT).connection.get(), of);
        // The peer's half is still open.
        side.qp.to_state(QpState::RESET).unwrap();
        let other = Side::new(&lab.guests[0], LEN, &QpOptions::default());
        connect_streams(&other.qp, &side.qp);
        // Data that the peer sends from here on is discarded.
        peer.0.write_all(&[7; 1000]).unwrap();
        peer.send_fin();
        assert_eq!(side.guest().cm_event(CmEventKind::CLOSE).connection.get(), of);
        side.guest().cm_release(of).unwrap();
        expect_none(&side);
        assert_eq!((side.qp.state(), other.qp.state()), (QpState::RTS, QpState::RTS));
    }
}

#[test]
fn a_connection_that_ends_may_still_be_released_or_reset() {
    for place in places() {
        let lab = &place.lab;
        for released in [true, false] {
            let (side, of, mut peer) = accepted(&place, 1);
            side.guest().cm_disconnect(side.qp.number).unwrap();
            assert_eq!(peer.end().1, End::Fin);
            side.guest().cm_event(CmEventKind::DISCONNECT);
            // The connection can no longer be accepted or rejected.
            assert_eq!(side.guest().cm_reject(of, b""), Err(Status::INVALID));
            assert_eq!(side.guest().cm_accept(of, side.qp.number, b""), Err(Status::INVALID));
            side.guest().cm_disconnect(side.qp.number).unwrap();
            match released {
                true => {
                    side.guest().cm_release(of).unwrap();
                    // The peer's half is reset.
                    let reset = || peer.0.write(&[1]).err();
                    wait::until("the RST", reset);
                }
                false => {
                    peer.send_rst();
                    side.guest().cm_event(CmEventKind::CLOSE);
                    side.guest().cm_release(of).unwrap();
                }
            }
            expect_none(&side);
            side.close();
            expect_no_connections(lab, 1);
        }
    }
}

#[test]
fn both_may_end_at_once() {
    for place in places() {
        let lab = &place.lab;
        for _ in 0..8 {
            let ((a, of_a), (b, of_b)) =
                connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
            let both = Barrier::new(2);
            std::thread::scope(|scope| {
                for side in [&a, &b] {
                    let (both, guest, qpn) = (&both, side.guest(), side.qp.number);
                    scope.spawn(move || {
                        both.wait();
                        guest.cm_disconnect(qpn).unwrap();
                    });
                }
            });
            for (side, of) in [(&a, of_a), (&b, of_b)] {
                side.guest().cm_expect_end(of);
                assert_eq!(side.qp.state(), QpState::ERR);
                side.guest().cm_release(of).unwrap();
                expect_none(side);
            }
            a.close();
            b.close();
        }
    }
}

#[test]
fn an_end_in_order_waits_for_what_has_begun() {
    for place in places() {
        let lab = &place.lab;
        let ((mut a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        a.mr.fill(9);
        let own = [a.mr.sge(0, LEN as u32)];
        for id in 0..16 {
            b.recv_any(id);
        }
        b.process.channel.drain();
        for id in 0..16 {
            a.post(&Request::send(a.qp.tag(id), Data::Sges(&own)).signaled(true));
        }
        a.cq.expect(a.qp.number, 0, WcStatus::SUCCESS);
        a.guest().cm_disconnect(a.qp.number).unwrap();
        // Every request that was started is complete at the peer, and no other is.
        a.guest().cm_expect_end(of_a);
        b.guest().cm_expect_end(of_b);
        let mut sent = 1;
        while let Some(wc) = a.cq.poll() {
            sent += u32::from(wc.status() == WcStatus::SUCCESS);
        }
        for id in 0..16 {
            let status = if id < sent { WcStatus::SUCCESS } else { WcStatus::WR_FLUSH_ERR };
            b.cq.expect(b.qp.number, id, status);
        }
    }
}

#[test]
fn nothing_is_told_to_a_guest_that_is_paused() {
    for place in places() {
        let lab = &place.lab;
        let (mut side, of, peer) = accepted(&place, 1);
        side.recv_any(1);
        side.process.channel.drain();
        let bases = lab.guests[1].pause().unwrap();
        peer.send_rst();
        // The guest's memory does not change.
        side.cq.expect_nothing(Duration::from_millis(200));
        lab.guests[1].resume(&bases).unwrap();
        side.cq.expect(side.qp.number, 1, WcStatus::WR_FLUSH_ERR);
        side.guest().cm_expect_end(of);
        assert_eq!(side.qp.state(), QpState::ERR);
    }
}

#[test]
fn a_guest_has_no_say_in_connections_of_another() {
    for place in places() {
        let lab = &place.lab;
        let ((a, of_a), (b, of_b)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let spare = Side::new(&lab.guests[0], LEN, &QpOptions::default());
        spare.qp.to_init().unwrap();
        let at = place.free(1);
        let listener = b.guest().cm_listen(at.0, at.1, 4).unwrap();
        let _peer = place.ask(at);
        let asked = b.guest().cm_event(CmEventKind::CONNECT_REQUEST).connection.get();
        for number in (0..32).filter(|&number| number != of_a) {
            assert_eq!(a.guest().cm_accept(number, spare.qp.number, b""), Err(Status::NOT_FOUND));
            assert_eq!(a.guest().cm_reject(number, b""), Err(Status::NOT_FOUND));
            assert_eq!(a.guest().cm_release(number), Err(Status::NOT_FOUND));
            assert_eq!(a.guest().cm_close_listener(number), Err(Status::NOT_FOUND));
        }
        // Numbers of another kind of object are not accepted either.
        assert_eq!(b.guest().cm_release(listener), Err(Status::NOT_FOUND));
        for connection in [of_b, asked] {
            assert_eq!(b.guest().cm_close_listener(connection), Err(Status::NOT_FOUND));
        }
        b.guest().cm_reject(asked, b"").unwrap();
        assert_eq!((a.qp.state(), b.qp.state()), (QpState::RTS, QpState::RTS));
    }
}

#[test]
fn a_connection_is_set_up_while_its_guest_is_paused() {
    for place in places() {
        let lab = &place.lab;
        let (mut side, of, mut peer, reply) = asking(&place);
        let bases = lab.guests[0].pause().unwrap();
        peer.0.write_all(&reply).unwrap();
        wait::pause(
            Duration::from_millis(50),
            "it mostly comes meanwhile; if it comes later, it is taken later",
        );
        lab.guests[0].resume(&bases).unwrap();
        let event = side.guest().cm_event(CmEventKind::CONNECT_REPLY);
        assert_eq!((event.connection.get(), event.status.get()), (of, CmStatus::OK.0));
        side.post(&Request::send(side.qp.tag(1), Data::Inline(b"good morning")).signaled(true));
        side.cq.expect(side.qp.number, 1, WcStatus::SUCCESS);
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"good morning") {
            // Read up to the message's end, which padding and CRC follow.
            let mut byte = [0];
            peer.0.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
    }
}

#[test]
fn who_comes_after_a_guest_that_left_has_nothing_of_it() {
    for mut place in places() {
        let ((a, of_a), (b, of_b)) =
            connected(&place.lab.guests[0], &place.lab.guests[1], LEN, &QpOptions::default());
        let at = place.free(1);
        let listener = b.guest().cm_listen(at.0, at.1, 4).unwrap();
        let mut peers = [place.connect(at), place.ask(at), place.ask(at)];
        b.guest().cm_event(CmEventKind::CONNECT_REQUEST);
        let qpn = b.qp.number;
        drop((b, place.lab.guests.pop()));
        a.guest().cm_expect_end(of_a);
        for peer in &mut peers {
            assert_eq!(peer.end(), (Vec::new(), End::Rst));
        }
        place.lab.expect_nothing_left(1);
        place.lab.guests.push(place.lab.connect(1));
        let b = Side::new(&place.lab.guests[1], LEN, &QpOptions::default());
        expect_none(&b);
        b.qp.to_init().unwrap();
        for number in (0..16).chain([of_b, listener]) {
            assert_eq!(b.guest().cm_accept(number, b.qp.number, b""), Err(Status::NOT_FOUND));
            assert_eq!(b.guest().cm_release(number), Err(Status::NOT_FOUND));
            assert_eq!(b.guest().cm_close_listener(number), Err(Status::NOT_FOUND));
        }
        // The new guest's first QP may have the number of one that was connected.
        assert!(b.guest().cm_disconnect(qpn).is_err());
        let listener = b.guest().cm_listen(at.0, at.1, 4).unwrap();
        b.guest().cm_close_listener(listener).unwrap();
        b.qp.to_state(QpState::RESET).unwrap();
        a.qp.to_state(QpState::RESET).unwrap();
        connect_streams(&a.qp, &b.qp);
    }
}
