//! Tests with guests of one worker, peers with sockets of their own, and a clock that the test
//! sets.

mod turns;
mod user_tcp;

use super::cm::{Accept, Connect, Depths, Failure, ListenerId};
use super::connection::{ANSWER_TIME, CLOSE_TIME, FINISH_TIME, SET_UP_TIME};
use super::watch::PAUSE;
use super::*;
use crate::config::Config;
use crate::device::{Device, DeviceLimits};
use crate::tcp::{self, Dial, KeepAlive, ListenAddrs, TrafficClass};
use crate::translate::limits;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use socket2::Socket;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use vrdma_transport::{
    Access, AttrMask, CqId, Initiator, OwnerId, PdId, QpAttr, QpInit, QpState, QpType, Receives, Wishes,
};
use vrdma_wire::num::{Mtu, Qpn};

const A: DeviceId = DeviceId(0);
const B: DeviceId = DeviceId(1);
/// The peer of A and B in tests of vrdma's own TCP.
const C: DeviceId = DeviceId(2);

struct Bench {
    streams: Streams,
    engine: Engine<MrMemory>,
    outputs: Outputs,
    now: Instant,
    pds: Vec<PdId>,
    /// Sockets that stay as they are until the end of the test.
    kept: Vec<Socket>,
    behind: Behind,
}

/// A connection that flushes the loopback device.
///
/// Packets of one processor over the loopback device are in one queue. So a byte that has passed
/// was behind everything that this thread's sockets had in flight.
struct Behind(TcpStream, TcpStream);

impl Behind {
    fn new() -> Behind {
        let cpu = sched_getcpu();
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        one.set_nodelay(true).unwrap();
        Behind(one, listener.accept().unwrap().0)
    }

    fn pass(&mut self) {
        self.0.write_all(&[0]).unwrap();
        self.1.read_exact(&mut [0]).unwrap();
    }
}

impl Bench {
    /// Returns a bench whose guests may have this many connections and listeners.
    fn new(connections: u32) -> Bench {
        let (mut engine, mut outputs, mut pds) = (Engine::new(1), Outputs::default(), Vec::new());
        engine.set_link(true);
        for n in 0..3 {
            let guest = format!("name=g{n},socket=/none,mac=52:54:00:00:00:0{n}").parse().unwrap();
            let mut limits = DeviceLimits::new(&Config::default());
            limits.guest.connections = connections;
            let id = engine.add_device(limits::of_engine(&limits.guest, Mtu::M1024));
            outputs.add(Device::new(id, guest, limits));
            pds.push(engine.alloc_pd(id, OwnerId::KERNEL).unwrap());
        }
        let streams = Streams::new().unwrap();
        Bench { streams, engine, outputs, now: Instant(0), pds, kept: Vec::new(), behind: Behind::new() }
    }

    /// Calls a function with the streams.
    fn with<R>(&mut self, f: impl FnOnce(&mut Streams, &mut Host<'_>) -> R) -> R {
        let Bench { streams, engine, outputs, now, .. } = self;
        f(streams, &mut Host { engine, outputs, now: *now })
    }

    /// Runs many rounds.
    ///
    /// Everything in flight in the kernel arrives, and so do the answers to it.
    fn turns(&mut self) {
        for _ in 0..40 {
            self.with(|streams, host| {
                streams.woken();
                streams.turn(host);
                streams.flush(host);
            });
            self.behind.pass();
        }
    }

    fn later(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turns();
    }

    /// Creates a QP in INIT.
    fn qp(&mut self, device: DeviceId) -> Qpn {
        let init = QpInit {
            owner: OwnerId::KERNEL,
            pd: Some(self.pds[device.0 as usize]),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(0),
            receives: Receives::Own,
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qpn = self.engine.create_qp(device, init).unwrap();
        self.modify(device, qpn, QpState::Init);
        qpn
    }

    fn modify(&mut self, device: DeviceId, qpn: Qpn, state: QpState) {
        let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let mask = if state == QpState::Init { AttrMask::STATE | init } else { AttrMask::STATE };
        let attr = QpAttr { state, port: 1, access: Access::REMOTE_WRITE, ..QpAttr::default() };
        self.engine.modify_qp(self.now, device, qpn, mask, &attr, &mut self.outputs).unwrap();
        self.with(|streams, host| streams.qp_changed(device, qpn, host));
    }

    fn state(&self, device: DeviceId, qpn: Qpn) -> QpState {
        self.engine.query_qp(device, qpn).unwrap().state
    }

    /// Creates a listener. Returns it and its address.
    fn listen(&mut self, device: DeviceId, backlog: usize) -> (ListenerId, SocketAddr) {
        let socket =
            tcp::listen((Ipv4Addr::LOCALHOST, 0).into(), &KeepAlive::after(0), TrafficClass::default())
                .unwrap();
        let at = socket.local_addr().unwrap().as_socket().unwrap();
        (
            self.with(|streams, host| {
                streams.listen(device, ListenAddrs::Kernel(vec![socket]), backlog, host)
            })
            .unwrap(),
            at,
        )
    }

    /// Requests a connection as a peer. Returns its number and the peer's socket.
    fn requested(&mut self, device: DeviceId, at: SocketAddr) -> (ConnectionId, TcpStream) {
        let peer = ask(at);
        self.turns();
        let event = self.event(device);
        assert!(matches!(event.what, What::ConnectRequest { .. }), "{event:?}");
        (event.connection, peer)
    }

    fn accept(&mut self, device: DeviceId, connection: ConnectionId, qpn: Qpn) -> Result<()> {
        let depths = Depths { ird: 1, ord: 1 };
        let accept = Accept { connection, qpn, depths, private_data: Vec::new() };
        self.with(|streams, host| streams.accept(device, &accept, host))
    }

    fn reject(&mut self, device: DeviceId, connection: ConnectionId) -> Result<()> {
        self.with(|streams, host| streams.reject(device, connection, b"", host))
    }

    fn release(&mut self, device: DeviceId, connection: ConnectionId) {
        self.with(|streams, host| streams.release(device, connection, host)).unwrap();
    }

    /// Opens a connection of a new QP of this guest that a peer requested.
    fn open(&mut self, device: DeviceId) -> (ConnectionId, Qpn, TcpStream) {
        let (listener, at) = self.listen(device, 1);
        let (connection, mut peer) = self.requested(device, at);
        let qpn = self.qp(device);
        self.accept(device, connection, qpn).unwrap();
        self.expect(device, &[What::Established]);
        self.with(|streams, host| streams.close_listener(device, listener, host)).unwrap();
        peer.read_exact(&mut [0; 24]).unwrap();
        (connection, qpn, peer)
    }

    fn connect(&mut self, device: DeviceId, qpn: Qpn, remote: SocketAddr) -> Result<ConnectionId> {
        let socket =
            tcp::bind((Ipv4Addr::LOCALHOST, 0).into(), &KeepAlive::after(0), TrafficClass::default())
                .unwrap();
        self.connect_by(device, socket, qpn, remote)
    }

    fn connect_by(
        &mut self,
        device: DeviceId,
        socket: Socket,
        qpn: Qpn,
        remote: SocketAddr,
    ) -> Result<ConnectionId> {
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        let depths = Depths { ird: 1, ord: 1 };
        let connect = Connect { qpn, peer_to_peer: false, local, remote, depths, private_data: Vec::new() };
        self.with(|streams, host| streams.connect(device, Dial::Kernel(socket), &connect, host))
    }

    /// Connects a new QP to a listening peer.
    fn connect_to(&mut self, device: DeviceId, listener: &TcpListener) -> (ConnectionId, Qpn, TcpStream) {
        let (qpn, at) = (self.qp(device), listener.local_addr().unwrap());
        let number = self.connect(device, qpn, at).unwrap();
        self.turns();
        let mut peer = listener.accept().unwrap().0;
        peer.read_exact(&mut [0; 24]).unwrap();
        (number, qpn, peer)
    }

    /// Connects a new QP to a peer that does not answer: a listener whose backlog is full.
    fn connecting(&mut self, device: DeviceId) -> ConnectionId {
        let full = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        full.listen(0).unwrap();
        let at = full.local_addr().unwrap().as_socket().unwrap();
        self.kept.push(TcpStream::connect(at).unwrap().into());
        self.kept.push(full);
        let qpn = self.qp(device);
        self.connect(device, qpn, at).unwrap()
    }

    fn event(&mut self, device: DeviceId) -> CmEvent {
        self.streams.next_event(device).expect("an event")
    }

    /// Returns all events that the driver has not fetched.
    fn told(&mut self, device: DeviceId) -> Vec<What> {
        std::iter::from_fn(|| self.streams.next_event(device)).map(|event| event.what).collect()
    }

    fn expect(&mut self, device: DeviceId, told: &[What]) {
        assert_eq!(self.told(device), told);
    }

    fn failed_accepts(&mut self, device: DeviceId) -> u64 {
        self.outputs.device(device).counters.failed_accepts
    }
}

/// Connects as a peer, and requests a connection.
fn ask(at: SocketAddr) -> TcpStream {
    let wishes = Wishes { markers: false, crc: true, enhanced: true, peer_to_peer: false, ird: 1, ord: 1 };
    let mut peer = TcpStream::connect(at).unwrap();
    peer.write_all(&Initiator::new(wishes, b"").1).unwrap();
    peer
}

/// Returns how a connection ended for its peer, or `None` if it has not.
fn end_of(peer: &mut TcpStream) -> Option<std::result::Result<(), io::ErrorKind>> {
    peer.set_nonblocking(true).unwrap();
    let mut rest = [0; 4096];
    loop {
        match peer.read(&mut rest) {
            Ok(0) => return Some(Ok(())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(error.kind())),
        }
    }
}

const RST: Option<std::result::Result<(), io::ErrorKind>> = Some(Err(io::ErrorKind::ConnectionReset));
const GONE: [What; 2] = [What::Disconnect, What::Close];

#[test]
fn who_accepts_twice_keeps_its_connection_and_gets_no_strangers() {
    let mut bench = Bench::new(8);
    let (number, qpn, mut peer) = bench.open(A);
    assert!(bench.streams.has_room(A, qpn));
    let another = bench.qp(A);
    for qp in [qpn, another] {
        assert_eq!(bench.accept(A, number, qp), Err(Error::Invalid));
    }
    assert_eq!(bench.accept(B, number, qpn), Err(Error::NotFound));
    assert!(bench.streams.has_room(A, qpn) && end_of(&mut peer).is_none());
    bench.release(A, number);
    assert_eq!((end_of(&mut peer), bench.state(A, qpn)), (RST, QpState::Err));
    // Other connections have the number now.
    let (_, of_b, _peer) = bench.open(B);
    let (_, of_b_too, _peer) = bench.open(B);
    assert!(!bench.streams.has_room(A, qpn));
    assert!(bench.streams.has_room(B, of_b) && bench.streams.has_room(B, of_b_too));
}

#[test]
fn an_accept_that_is_refused_changes_nothing() {
    let mut bench = Bench::new(8);
    let (number, open, _peer) = bench.open(A);
    let (_, at) = bench.listen(A, 1);
    let (asked, mut peer) = bench.requested(A, at);
    let (good, reset) = (bench.qp(A), bench.qp(A));
    bench.modify(A, reset, QpState::Reset);
    assert_eq!(bench.accept(A, asked, open), Err(Error::Busy));
    assert_eq!(bench.accept(A, asked, reset), Err(Error::Invalid));
    assert_eq!(bench.accept(A, asked, Qpn::new(0x7777).unwrap()), Err(Error::NotFound));
    assert_eq!(bench.reject(A, number), Err(Error::Invalid));
    bench.accept(A, asked, good).unwrap();
    assert!(end_of(&mut peer).is_none() && bench.streams.has_room(A, open));
}

#[test]
fn what_was_told_of_one_that_has_gone_is_about_nobody() {
    let mut bench = Bench::new(8);
    let (number, _, mut old) = bench.open(A);
    old.write_all(&[0; 100]).unwrap();
    // The handle is still in lists: events of epoll, and connections touched by the engine.
    let handle = bench.streams.table.find(number.0).unwrap();
    bench.release(A, number);
    bench.streams.touched.push(handle);
    bench.streams.ready.push(A, handle);
    bench.streams.list(handle, EventSet::IN);
    let (_, at) = bench.listen(B, 4);
    let asked: Vec<_> = (0..2).map(|_| bench.requested(B, at)).collect();
    assert!(asked.iter().any(|&(other, _)| other == number), "the number is another's");
    bench.with(|streams, host| {
        streams.work_on(handle, EventSet::HANG_UP | EventSet::ERROR, host);
        streams.accept_some(handle, host);
        streams.flush(host);
        streams.turn(host);
    });
    for (asked, _peer) in asked {
        let qpn = bench.qp(B);
        bench.accept(B, asked, qpn).unwrap();
    }
}

#[test]
fn a_driver_has_no_say_in_a_request_that_it_was_not_told_of() {
    let mut bench = Bench::new(8);
    let (listener, at) = bench.listen(A, 1);
    let qpn = bench.qp(A);
    let mut peer = ask(at);
    bench.turns();
    let mut entries = bench.streams.guest(A).entries.iter().map(|handle| handle.number);
    let asked = ConnectionId(entries.find(|&number| number != listener.0).expect("a connection"));
    assert_eq!(bench.accept(A, asked, qpn), Err(Error::NotFound));
    assert_eq!(bench.reject(A, asked), Err(Error::NotFound));
    let release = bench.with(|streams, host| streams.release(A, asked, host));
    assert_eq!((release, end_of(&mut peer)), (Err(Error::NotFound), None));
    bench.expect(A, &[What::ConnectRequest { listener }]);
    bench.accept(A, asked, qpn).unwrap();
    bench.expect(A, &[What::Established]);
    // A driver that releases a connection gets no more events of it.
    drop(peer);
    bench.turns();
    bench.release(A, asked);
    bench.expect(A, &[]);
}

#[test]
fn a_listener_that_is_closed_takes_its_connections_with_it() {
    let mut bench = Bench::new(8);
    let (listener, at) = bench.listen(A, 4);
    let mut silent = TcpStream::connect(at).unwrap();
    let (asked, mut peer) = bench.requested(A, at);
    let mut unheard = ask(at);
    bench.turns();
    assert_eq!((bench.streams.count(A), bench.streams.listening(A)), (4, vec![at.port()]));
    assert!(bench.streams.listening(B).is_empty());
    bench.with(|streams, host| streams.close_listener(A, listener, host)).unwrap();
    assert!(bench.streams.listening(A).is_empty());
    assert_eq!([&mut silent, &mut peer, &mut unheard].map(end_of), [RST; 3]);
    // The driver never gets the events that it had not fetched. The other connection is over.
    bench.expect(A, &[]);
    assert_eq!(bench.streams.count(A), 1);
    let qpn = bench.qp(A);
    assert_eq!(bench.accept(A, asked, qpn), Err(Error::Invalid));
    bench.reject(A, asked).unwrap();
    assert_eq!(bench.streams.count(A), 0);
    assert_eq!(bench.reject(A, asked), Err(Error::NotFound));
    // A new listener has the number, and all of its backlog.
    let (_, at) = bench.listen(A, 1);
    bench.requested(A, at);
}

#[test]
fn one_that_cannot_be_watched_ends_and_all_are_told() {
    let mut bench = Bench::new(8);
    let qpn = bench.qp(A);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut connect = || {
        let socket =
            tcp::bind((Ipv4Addr::LOCALHOST, 0).into(), &KeepAlive::after(0), TrafficClass::default())
                .unwrap();
        // The socket is in the epoll set already, so adding it fails.
        let Streams { guests, epoll, .. } = &mut bench.streams;
        let epoll = guests.entry(A).or_default().epoll(A, epoll).unwrap();
        epoll.ctl(ControlOperation::Add, socket.as_raw_fd(), EpollEvent::default()).unwrap();
        bench.connect_by(A, socket, qpn, listener.local_addr().unwrap()).unwrap()
    };
    let number = connect();
    // Its QP is free, and nothing is left when it is released.
    let again = connect();
    bench.expect(A, &[What::ConnectReply(Err(Failure::Reset)); 2]);
    for number in [number, again] {
        bench.release(A, number);
    }
    assert_eq!(bench.streams.count(A), 0);
    bench.expect(A, &[]);
}

#[test]
fn each_phase_ends_in_its_time() {
    let mut bench = Bench::new(16);
    let (_, at) = bench.listen(A, 2);
    let mut silent = TcpStream::connect(at).unwrap();
    let (asked, mut peer) = bench.requested(A, at);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (of_a, qpn, mut dumb) = bench.connect_to(A, &listener);
    let unreached = bench.connecting(A);
    bench.later(SET_UP_TIME - Duration::from_millis(1));
    bench.expect(A, &[]);
    assert_eq!(end_of(&mut silent), None);
    bench.later(Duration::from_millis(1));
    let event = bench.event(A);
    assert_eq!((event.connection, event.what), (unreached, What::ConnectReply(Err(Failure::TimedOut))));
    bench.release(A, unreached);
    assert_eq!([&mut silent, &mut dumb, &mut peer].map(end_of), [RST, None, None]);
    // The side that has to answer has more time, at either end.
    bench.later(ANSWER_TIME - SET_UP_TIME - Duration::from_millis(1));
    bench.expect(A, &[]);
    assert_eq!([&mut dumb, &mut peer].map(end_of), [None; 2]);
    bench.later(Duration::from_millis(1));
    bench.expect(A, &[What::ConnectReply(Err(Failure::TimedOut))]);
    assert_eq!([&mut dumb, &mut peer].map(end_of), [RST; 2]);
    assert_eq!(bench.state(A, qpn), QpState::Init);
    bench.release(A, of_a);
    assert_eq!(bench.accept(A, asked, qpn), Err(Error::Invalid));
    bench.release(A, asked);
    // If its driver has not fetched the request, it vanishes.
    let mut peer = ask(at);
    bench.turns();
    assert_eq!(bench.streams.count(A), 2);
    bench.later(ANSWER_TIME);
    assert_eq!((end_of(&mut peer), bench.streams.count(A)), (RST, 1));
    bench.expect(A, &[]);
    assert_eq!(bench.streams.next_deadline(), None);
}

#[test]
fn an_end_in_order_is_waited_for_so_long_and_no_longer() {
    let mut bench = Bench::new(8);
    let (of_a, qpn, mut peer) = bench.open(A);
    // The peer has not sent its first message, so this end must not start. The engine is not
    // involved here.
    bench.with(|streams, host| streams.disconnect(A, qpn, host)).unwrap();
    bench.later(FINISH_TIME / 2);
    bench.with(|streams, host| streams.disconnect(A, qpn, host)).unwrap();
    assert!(end_of(&mut peer).is_none());
    bench.later(FINISH_TIME / 2);
    assert_eq!((end_of(&mut peer), bench.state(A, qpn)), (RST, QpState::Err));
    bench.expect(A, &GONE);
    bench.with(|streams, host| streams.disconnect(A, qpn, host)).unwrap();
    bench.release(A, of_a);
    // The peer has ended its stream, and so does this end. But the peer's socket stays open until
    // the time limit.
    let (_, qpn, mut peer) = bench.open(A);
    bench.with(|streams, _| streams.end(A, qpn, vrdma_transport::StreamEnd::Close));
    bench.turns();
    bench.expect(A, &[What::Disconnect]);
    assert_eq!(end_of(&mut peer), Some(Ok(())));
    // Meanwhile its QP is free.
    bench.modify(A, qpn, QpState::Reset);
    bench.modify(A, qpn, QpState::Init);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    bench.connect(A, qpn, listener.local_addr().unwrap()).unwrap();
    bench.later(CLOSE_TIME);
    bench.expect(A, &[What::Close]);
    assert_eq!(end_of(&mut peer), Some(Ok(())));
}

#[test]
fn a_listener_that_cannot_accept_is_left_alone_for_a_while() {
    let mut bench = Bench::new(8);
    // A socket that does not listen. The kernel reports events all the time, and accept fails.
    let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    bench.with(|streams, host| streams.listen(A, ListenAddrs::Kernel(vec![socket]), 4, host)).unwrap();
    bench.turns();
    assert_eq!(bench.failed_accepts(A), 1);
    assert_eq!(bench.streams.next_deadline(), Some(bench.now + PAUSE));
    bench.later(PAUSE);
    assert_eq!(bench.failed_accepts(A), 2);
    bench.streams.forget(A);
    assert_eq!(bench.streams.next_deadline(), None);
}

#[test]
fn sockets_of_a_listener_have_their_turns_and_who_is_too_much_is_reset() {
    let mut bench = Bench::new(5);
    let sockets: Vec<_> = (0..2)
        .map(|_| {
            tcp::listen((Ipv4Addr::LOCALHOST, 0).into(), &KeepAlive::after(0), TrafficClass::default())
                .unwrap()
        })
        .collect();
    let at: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap().as_socket().unwrap()).collect();
    bench.with(|streams, host| streams.listen(A, ListenAddrs::Kernel(sockets), 2, host)).unwrap();
    // Several connections to the first socket, then one to the second. That one is among the next
    // two.
    let mut first: Vec<_> = (0..4).map(|_| ask(at[0])).collect();
    let _second = ask(at[1]);
    bench.turns();
    let mut told: Vec<_> = (0..2).map(|_| bench.event(A)).collect();
    bench.expect(A, &[]);
    told.retain(|event| event.local == at[1]);
    assert_eq!(told.len(), 1);
    // With another listener, and two connections of this one, there is room for one.
    let (_, other) = bench.listen(A, 8);
    let mut peers: Vec<_> = (0..3).map(|_| ask(other)).collect();
    bench.turns();
    assert_eq!(bench.failed_accepts(A), 3);
    assert_eq!(peers.iter_mut().map(end_of).collect::<Vec<_>>(), [RST; 3]);
    assert!(first.iter_mut().all(|peer| end_of(peer).is_none()));
}

#[test]
fn a_peer_that_leaves_while_the_driver_decides_leaves_no_more_than_the_backlog() {
    let mut bench = Bench::new(64);
    let (_, at) = bench.listen(A, 2);
    // Its requests were not fetched, so they are forgotten.
    for _ in 0..8 {
        drop(ask(at));
        bench.turns();
    }
    bench.expect(A, &[]);
    assert_eq!(bench.streams.count(A), 1);
    // Requests that were fetched are known until the driver answers.
    for _ in 0..2 {
        let (_, peer) = bench.requested(A, at);
        drop(peer);
        bench.turns();
    }
    let mut late = ask(at);
    bench.turns();
    bench.expect(A, &[]);
    assert_eq!((bench.streams.count(A), end_of(&mut late)), (3, None));
}

#[test]
fn a_guest_that_is_reset_leaves_nothing_in_any_phase() {
    let mut bench = Bench::new(64);
    let bystander = bench.open(B);
    let (_, at) = bench.listen(A, 8);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = TcpStream::connect(at).unwrap();
    let (_, requested) = bench.requested(A, at);
    let (_, _, awaited) = bench.connect_to(A, &listener);
    let (_, _, open) = bench.open(A);
    let (_, closing, closes) = bench.open(A);
    bench.with(|streams, _| streams.end(A, closing, vrdma_transport::StreamEnd::Close));
    bench.turns();
    let connecting = bench.qp(A);
    bench.connect(A, connecting, listener.local_addr().unwrap()).unwrap();
    let unheard = ask(at);
    bench.turns();
    assert_eq!(bench.streams.count(A), 8);
    bench.streams.forget(A);
    assert_eq!((bench.streams.count(A), bench.streams.count(B)), (0, 1));
    assert_eq!(bench.streams.next_deadline(), None);
    assert_eq!(bench.streams.next_event(A).map(|event| event.what), None);
    assert!(bench.streams.bindings.find(A, connecting).is_none());
    // No descriptor is left. All peers see the end, and nobody listens.
    for mut peer in [silent, requested, unheard, awaited, open] {
        assert_eq!(end_of(&mut peer), RST);
    }
    drop(closes);
    assert!(TcpStream::connect(at).is_err());
    bench.turns();
    assert!(bench.streams.has_room(B, bystander.1));
    bench.expect(B, &[]);
}

#[test]
fn what_ends_while_a_guest_is_paused_ends_when_it_goes_on() {
    let mut bench = Bench::new(8);
    let (_, qpn, peer) = bench.open(A);
    let (_, orderly, leaves) = bench.open(A);
    bench.engine.set_suspended(A, true);
    bench.streams.set_suspended(A, true);
    tcp::reset(Socket::from(peer));
    drop(leaves);
    bench.later(Duration::from_secs(1000));
    bench.expect(A, &[]);
    assert_eq!([qpn, orderly].map(|qpn| bench.state(A, qpn)), [QpState::Rts; 2]);
    bench.engine.set_suspended(A, false);
    bench.streams.set_suspended(A, false);
    bench.turns();
    assert_eq!([qpn, orderly].map(|qpn| bench.state(A, qpn)), [QpState::Err; 2]);
    let told = bench.told(A);
    assert_eq!(told.iter().filter(|&&what| what == What::Close).count(), 2, "{told:?}");
}

#[test]
fn an_end_whose_time_is_over_while_a_guest_is_paused_waits_for_it() {
    let mut bench = Bench::new(8);
    let (_, qpn, mut peer) = bench.open(A);
    bench.with(|streams, host| streams.disconnect(A, qpn, host)).unwrap();
    bench.engine.set_suspended(A, true);
    bench.streams.set_suspended(A, true);
    bench.later(FINISH_TIME);
    bench.expect(A, &[]);
    assert_eq!((bench.state(A, qpn), end_of(&mut peer)), (QpState::Rts, None));
    bench.engine.set_suspended(A, false);
    bench.streams.set_suspended(A, false);
    bench.turns();
    bench.expect(A, &GONE);
    assert_eq!((bench.state(A, qpn), end_of(&mut peer)), (QpState::Err, RST));
}

#[test]
fn a_peer_that_takes_nothing_keeps_a_qp_that_works_and_none_that_failed() {
    let mut bench = Bench::new(8);
    let (_, qpn, mut peer) = bench.open(A);
    // More than the sockets buffer.
    let handle = bench.streams.bindings.find(A, qpn).unwrap();
    bench.streams.table.connection(handle).unwrap().output.push(&vec![0; 64 << 20]);
    bench.turns();
    assert!(!bench.streams.has_room(A, qpn));
    bench.turns();
    for _ in 0..5 {
        bench.later(FINISH_TIME);
    }
    bench.expect(A, &[]);
    // The deadline was set again each time. A QP in ERR is not waited for.
    bench.modify(A, qpn, QpState::Err);
    bench.later(FINISH_TIME);
    bench.expect(A, &GONE);
    assert_eq!(end_of(&mut peer), RST);
}

#[test]
fn what_the_engine_does_not_take_is_offered_once_a_turn() {
    let mut bench = Bench::new(8);
    let (_, qpn, mut peer) = bench.open(A);
    // The engine takes nothing.
    bench.engine.set_suspended(A, true);
    peer.write_all(&[0; 100]).unwrap();
    bench.turns();
    let handle = bench.streams.bindings.find(A, qpn).unwrap();
    for _ in 0..10 {
        bench.with(|streams, host| streams.work_on(handle, EventSet::OUT, host));
    }
    assert_eq!(bench.streams.ready.len_of(A), 1);
    bench.turns();
    assert_eq!(bench.streams.ready.len_of(A), 1);
    // While its guest is paused, the engine is not offered anything.
    bench.streams.set_suspended(A, true);
    bench.turns();
    assert!(!bench.streams.has_waiting());
    bench.engine.set_suspended(A, false);
    bench.streams.set_suspended(A, false);
    bench.turns();
    assert!(!bench.streams.has_waiting());
    assert_eq!(bench.state(A, qpn), QpState::Err, "zeros are no FPDU");
}

#[test]
fn times_are_those_that_drivers_are_told() {
    let chapter = include_str!("../../../docs/device.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let [set_up, answer, finish, close] =
        [SET_UP_TIME, ANSWER_TIME, FINISH_TIME, CLOSE_TIME].map(|time| time.as_secs());
    let stuck = 2 * finish;
    let said = format!(
        "from CM_CONNECT to TCP's connection, and from a peer's TCP connection to its request, {set_up} s; \
         from a request to the answer, the driver's or the peer's, {answer} s; \
         from CM_DISCONNECT to DISCONNECT, {finish} s, after which it is ended at once; \
         from DISCONNECT to CLOSE, {close} s. \
         A QP in ERR whose peer takes none of what is to be sent to it first has {stuck} s."
    );
    assert!(chapter.contains(&said), "docs/device.md does not say: {said}");
}

#[test]
fn a_place_of_a_listener_is_free_as_soon_as_the_driver_has_answered() {
    type Answer = fn(&mut Bench, ConnectionId);
    let answers: [Answer; 3] = [
        |bench, asked| bench.reject(A, asked).unwrap(),
        |bench, asked| bench.release(A, asked),
        |bench, asked| {
            let qpn = bench.qp(A);
            bench.accept(A, asked, qpn).unwrap();
            bench.expect(A, &[What::Established]);
        },
    ];
    let mut bench = Bench::new(16);
    let (_, at) = bench.listen(A, 1);
    // Peers that keep their sockets, whatever they are told.
    let mut peers = Vec::new();
    for answer in answers {
        let (asked, peer) = bench.requested(A, at);
        answer(&mut bench, asked);
        // The driver does not get the event that the rejected connection has ended.
        bench.turns();
        bench.expect(A, &[]);
        peers.push(peer);
    }
    bench.requested(A, at);
}

#[test]
fn a_listener_counts_each_socket_that_it_has() {
    let mut bench = Bench::new(4);
    let listen = |bench: &mut Bench, count| {
        let socket = || {
            tcp::listen((Ipv4Addr::LOCALHOST, 0).into(), &KeepAlive::after(0), TrafficClass::default())
                .unwrap()
        };
        let addrs = ListenAddrs::Kernel((0..count).map(|_| socket()).collect());
        bench.with(|streams, host| streams.listen(A, addrs, 1, host))
    };
    let first = listen(&mut bench, 3).unwrap();
    assert_eq!(bench.streams.count(A), 3);
    assert_eq!(listen(&mut bench, 2), Err(Error::NoResources));
    listen(&mut bench, 1).unwrap();
    assert_eq!((bench.streams.count(A), listen(&mut bench, 1)), (4, Err(Error::NoResources)));
    bench.with(|streams, host| streams.close_listener(A, first, host)).unwrap();
    assert_eq!(bench.streams.count(A), 1);
    listen(&mut bench, 3).unwrap();
    bench.streams.forget(A);
    assert_eq!((bench.streams.count(A), bench.streams.count(B)), (0, 0));
    listen(&mut bench, 4).unwrap();
}
