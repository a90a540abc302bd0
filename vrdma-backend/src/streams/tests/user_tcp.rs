//! Tests with vrdma's own TCP. A third guest is the peer of both, and its frames arrive at once.

use super::turns::{TOGETHER, is_fair, writes};
use super::*;
use crate::port::Checksums;
use crate::tcp::Path;
use vrdma_tcp::NextHop;
use vrdma_wire::head::Head;
use vrdma_wire::num::Mac;

const MTU: u16 = 1500;

/// Returns the address of a guest. Its last byte is the guest's number plus 1.
fn at(device: DeviceId, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, device.0 as u8 + 1), port).into()
}

impl Bench {
    fn with_own_tcp(connections: u32) -> Bench {
        Bench::with_stream_memory(connections, [1 << 29; 3], 1 << 32)
    }

    /// Returns a bench with memory limits: those of A, B and C, and that of all together.
    fn with_stream_memory(connections: u32, of_one: [u64; 3], all: u64) -> Bench {
        let mut bench = Bench::new(connections);
        for (device, memory) in [A, B, C].into_iter().zip(of_one) {
            let mut limits = bench.outputs.device(device).limits().clone();
            (limits.guest.stream_memory, limits.guest.all_stream_memory) = (memory, all);
            let guest = bench.outputs.device(device).guest.clone();
            bench.streams.user_tcp.add(
                (device, device.0 as usize),
                &guest,
                &limits.guest,
                limits.tcp_keepalive,
                MTU,
            );
        }
        bench.streams.has_local_way = false;
        bench
    }

    /// Delivers everything that is sent, until there is no work left.
    fn exchange(&mut self) {
        while self.deliver() || self.turn() {}
    }

    /// Delivers everything that is sent, and the answers to it. Returns whether there was anything.
    fn deliver(&mut self) -> bool {
        self.deliver_but(|_| false)
    }

    /// Delivers like [`Bench::deliver`], except for frames that are lost.
    fn deliver_but(&mut self, mut is_lost: impl FnMut(&[u8]) -> bool) -> bool {
        let mut any = false;
        while let Some(segment) = self.streams.user_tcp.poll_transmit(self.now) {
            let mut frame = vec![0; self.streams.user_tcp.len(&segment)];
            self.streams.user_tcp.write(&segment, &mut frame, Checksums::default());
            // The last byte of the MAC address.
            let to = usize::from(frame[5]);
            if !is_lost(&frame) {
                self.with(|streams, host| {
                    streams.handle_frame(to, (&Head::parse(&frame).unwrap(), &frame), host)
                });
            }
            any = true;
        }
        any
    }

    /// Queues output of a guest. None of it is sent yet.
    fn put(&mut self, handle: Handle, bytes: &[u8]) {
        self.streams.table.connection(handle).unwrap().output.push(bytes);
        self.with(|streams, host| streams.work_on(handle, EventSet::empty(), host));
    }

    /// Sends `bytes` from C on each connection again and again, if there is room.
    ///
    /// After that, congestion windows are large. Returns how often there was room.
    fn warm(&mut self, handles: &[Handle], bytes: &[u8]) -> usize {
        let mut sent = 0;
        for _ in 0..20 {
            for &handle in handles {
                sent += usize::from(self.put_if_room(handle, bytes));
            }
            self.now = self.now + Duration::from_millis(100);
            self.exchange();
        }
        sent
    }

    /// Queues output of C, if there is room.
    fn put_if_room(&mut self, handle: Handle, bytes: &[u8]) -> bool {
        let qpn = self.streams.table.connection(handle).unwrap().bound.qpn().unwrap();
        let has_room = self.streams.has_room(C, qpn);
        if has_room {
            self.put(handle, bytes);
        }
        has_room
    }

    fn stat(&self, device: DeviceId, name: &str) -> u64 {
        self.streams.user_tcp.stats(device)[name]
    }

    /// Lets time pass until A and B have moved at least these bytes, and little is buffered.
    ///
    /// Some bytes may be moved twice. No guest has more than 64 KiB buffered then.
    fn until_moved(&mut self, bytes: [usize; 2]) {
        for _ in 0..2000 {
            self.exchange();
            let had = self.moved();
            let is_left = |device| self.stat(device, "memory_bytes") > 64 << 10;
            if had[0] >= bytes[0] && had[1] >= bytes[1] && ![A, B, C].into_iter().any(is_left) {
                return;
            }
            self.now = self.now + Duration::from_millis(100);
        }
        panic!("{:?} of {bytes:?} arrived", self.moved());
    }

    /// Connects C to this guest `count` times. Returns C's handles.
    fn many_own(&mut self, device: DeviceId, count: usize) -> Vec<Handle> {
        let addrs = ListenAddrs::Own { at: at(device, 4000), traffic_class: TrafficClass::default() };
        let listener = self.with(|streams, host| streams.listen(device, addrs, count, host)).unwrap();
        let mac = Mac([0x52, 0x54, 0, 0, 0, device.0 as u8]);
        let mut handles = Vec::new();
        for n in 0..count {
            let dial = Dial::Own(Path { hop: NextHop { mac, vlan: None }, mtu: MTU, ..Path::default() });
            let (qpn, depths) = (self.qp(C), Depths { ird: 1, ord: 1 });
            let ends = (at(C, 10_000 + n as u16), at(device, 4000));
            let (local, remote, private_data) = (ends.0, ends.1, Vec::new());
            let connect = Connect { qpn, peer_to_peer: false, local, remote, depths, private_data };
            let number = self.with(|streams, host| streams.connect(C, dial, &connect, host)).unwrap();
            handles.push(self.streams.table.find(number.0).unwrap());
            self.exchange();
            let asked = self.event(device);
            let qpn = self.qp(device);
            self.accept(device, asked.connection, qpn).unwrap();
            self.exchange();
            self.expect(device, &[What::Established]);
            self.expect(C, &[What::ConnectReply(Ok(()))]);
        }
        self.with(|streams, host| streams.close_listener(device, listener, host)).unwrap();
        handles
    }

    /// Drops all segments to be sent. Returns how many have at least about this much data.
    fn sent(&mut self, data: usize) -> usize {
        let Bench { streams, now, .. } = self;
        let mut count = 0;
        while let Some(segment) = streams.user_tcp.poll_transmit(*now) {
            count += usize::from(streams.user_tcp.len(&segment) >= data);
        }
        count
    }

    /// Sends from C, as far as the window allows. Nothing is read meanwhile.
    fn send(&mut self, handle: Handle, bytes: &[u8]) {
        for piece in bytes.chunks(64 << 10) {
            let connection = self.streams.table.connection(handle).unwrap();
            connection.output.push(piece);
            self.with(|streams, host| streams.work_on(handle, EventSet::empty(), host));
            self.deliver();
        }
    }
}

#[test]
fn guests_that_go_on_with_full_buffers_have_the_same_bytes_whatever_their_connections_are() {
    let mut bench = Bench::with_own_tcp(1100);
    let (of_a, of_b) = (bench.many_own(A, 1024), bench.many_own(B, 1));
    [A, B].into_iter().for_each(|device| bench.suspend(device, true));
    let (few, much) = (writes(8 << 10), writes(512 << 10));
    of_a.iter().for_each(|&handle| bench.send(handle, &few));
    bench.send(of_b[0], &much);
    bench.exchange();
    let before = bench.moved();
    [A, B].into_iter().for_each(|device| bench.suspend(device, false));
    let had = |bench: &Bench| [0, 1].map(|guest| bench.moved()[guest] - before[guest]);
    let mut turns = 0;
    while had(&bench)[1] < much.len() {
        let [a, b] = had(&bench);
        assert!(bench.turn(), "{a} and {b} of {turns} turns");
        turns += 1;
        // Each round moves little of each guest, so that others get their turns.
        let now = had(&bench);
        assert!(now[0] - a <= 128 << 10 && now[1] - b <= 128 << 10, "{:?}", (a, b, now));
    }
    let all = had(&bench);
    assert!(turns >= 8 && is_fair(all), "{all:?} in {turns} turns");
    bench.exchange();
    assert_eq!(had(&bench), [1024 * few.len(), much.len()]);
}

#[test]
fn a_peer_of_own_tcp_that_vanishes_is_noticed_and_one_that_is_silent_is_not_taken_for_it() {
    let mut bench = Bench::with_own_tcp(8);
    let of_a = bench.many_own(A, 1);
    let qpn = bench.streams.table.connection(of_a[0]).unwrap().bound.qpn().unwrap();
    for _ in 0..100 {
        bench.later(Duration::from_secs(10));
        bench.exchange();
    }
    assert_eq!(bench.state(C, qpn), QpState::Rts);
    // All frames are lost from here on. A minute of silence is followed by one of probes. Time
    // advances in steps here.
    for _ in 0..20 {
        bench.later(Duration::from_secs(10));
        bench.sent(0);
    }
    bench.turns();
    assert_eq!(bench.state(C, qpn), QpState::Err);
    assert!(bench.told(A).contains(&What::Close), "A's driver knows too");
}

#[test]
fn a_port_whose_connection_is_in_time_wait_connects_again_with_tcp_and_without() {
    for has_local_way in [false, true] {
        let mut bench = Bench::with_own_tcp(8);
        let handle = bench.many_own(A, 1)[0];
        let qpn = bench.streams.table.connection(handle).unwrap().bound.qpn().unwrap();
        bench.with(|streams, _| streams.end(C, qpn, vrdma_transport::StreamEnd::Close));
        bench.exchange();
        bench.later(Duration::from_secs(1));
        bench.exchange();
        assert_eq!((bench.told(A), bench.told(C)), (GONE.to_vec(), GONE.to_vec()));
        assert_eq!((bench.stat(A, "connections"), bench.stat(C, "connections")), (0, 1), "C's waits");
        // From the same port to the same port, once the clock of timestamps has ticked.
        bench.now = bench.now + Duration::from_millis(1);
        bench.streams.has_local_way = has_local_way;
        bench.many_own(A, 1);
        assert_eq!(bench.stat(C, "local"), u64::from(has_local_way));
    }
}

#[test]
fn what_comes_in_frames_is_charged_to_its_guest() {
    let mut bench = Bench::with_own_tcp(8);
    let of_a = bench.many_own(A, 1);
    let before = bench.moved();
    let bytes = writes(100 << 10);
    bench.send(of_a[0], &bytes);
    // By the received frames alone.
    assert_eq!(bench.moved(), [before[0] + bytes.len(), before[1]]);
}

#[test]
fn timers_that_are_due_together_have_their_turns() {
    let mut bench = Bench::with_own_tcp(1100);
    let of_a = bench.many_own(A, 1000);
    let bytes = writes(500);
    for &handle in &of_a {
        let connection = bench.streams.table.connection(handle).unwrap();
        connection.output.push(&bytes);
        bench.with(|streams, host| streams.work_on(handle, EventSet::empty(), host));
    }
    // All of it is lost.
    assert_eq!(bench.sent(500), 1000);
    bench.now = bench.now + Duration::from_secs(3);
    let mut again = 0;
    for _ in 0..1000 / TOGETHER + 1 {
        assert!(bench.streams.next_deadline().is_some_and(|at| at <= bench.now));
        bench.turn();
        let sent = bench.sent(500);
        assert!(sent <= TOGETHER, "{sent}");
        again += sent;
    }
    assert_eq!(again, 1000);
}

/// Connections that a peer fills, and the bytes that it sends on each.
///
/// Together they are many times what the guest may use.
const FILLED: usize = 64;
const MUCH: usize = 256 << 10;
/// Bytes that the guest may use.
const MEMORY: u64 = 1 << 20;
/// The most bytes that each connection has in addition.
///
/// That is its guaranteed amount, and what its buffers grow by at once.
const BESIDE: u64 = 48 << 10;

/// Updates the most memory that a guest used at a time.
fn most(bench: &Bench, device: DeviceId, most: &mut u64) {
    *most = (*most).max(bench.stat(device, "memory_bytes"));
}

#[test]
fn a_peer_that_sends_out_of_order_fills_no_more_than_its_guest_may_use_and_all_arrives() {
    let mut bench = Bench::with_stream_memory(100, [MEMORY, 1 << 29, 1 << 29], 1 << 32);
    let (of_a, of_b) = (bench.many_own(A, FILLED), bench.many_own(B, 1));
    bench.warm(&of_a, &writes(32 << 10));
    let (before, bytes) = (bench.moved(), writes(MUCH));
    let mut used = 0;
    for &handle in &of_a {
        // The first data segment to A is lost, with its retransmissions.
        let mut first = None;
        for piece in bytes.chunks(32 << 10) {
            bench.put(handle, piece);
            bench.deliver_but(|frame| {
                let header = 14 + 20;
                let number = frame[header + 4..header + 8].to_vec();
                frame[5] == 0 && frame.len() > 100 && *first.get_or_insert(number.clone()) == number
            });
            most(&bench, A, &mut used);
        }
    }
    assert!(used > MEMORY / 8 && used <= MEMORY / 2 + BESIDE, "{used}");
    // The other guest does not wait for that.
    bench.send(of_b[0], &bytes);
    bench.exchange();
    assert_eq!((bench.moved()[1] - before[1], bench.stat(B, "short_of_memory")), (bytes.len(), 0));
    bench.until_moved([before[0] + FILLED * bytes.len(), before[1] + bytes.len()]);
    assert_eq!(bench.stat(A, "held_bytes"), 0);
}

#[test]
fn peers_of_a_guest_that_is_paused_fill_no_more_than_it_may_use_and_all_arrives() {
    let mut bench = Bench::with_stream_memory(100, [MEMORY, 1 << 29, 1 << 29], 1 << 32);
    let (of_a, of_b) = (bench.many_own(A, FILLED), bench.many_own(B, 1));
    bench.warm(&of_a, &writes(32 << 10));
    let (before, bytes) = (bench.moved(), writes(MUCH));
    bench.suspend(A, true);
    let mut used = 0;
    for &handle in &of_a {
        bench.put(handle, &bytes);
        bench.deliver();
        bench.turn();
        most(&bench, A, &mut used);
    }
    for _ in 0..50 {
        bench.now = bench.now + Duration::from_millis(100);
        bench.exchange();
        most(&bench, A, &mut used);
    }
    assert!(used > MEMORY / 2 && used <= MEMORY + FILLED as u64 * BESIDE, "{used}");
    bench.send(of_b[0], &bytes);
    bench.exchange();
    assert_eq!(bench.moved()[1] - before[1], bytes.len());
    bench.suspend(A, false);
    bench.until_moved([before[0] + FILLED * bytes.len(), before[1] + bytes.len()]);
}

#[test]
fn peers_that_acknowledge_nothing_leave_a_guest_no_more_than_it_may_use_and_all_arrives() {
    let mut bench = Bench::with_stream_memory(200, [1 << 29, 1 << 29, MEMORY], 1 << 32);
    let of_a = bench.many_own(A, FILLED);
    let (before, bytes) = (bench.moved(), writes(32 << 10));
    let (mut used, mut sent) = (0, bench.warm(&of_a, &bytes));
    for &handle in of_a.iter().cycle().take(8 * FILLED) {
        sent += usize::from(bench.put_if_room(handle, &bytes));
        bench.deliver_but(|_| true);
        most(&bench, C, &mut used);
    }
    assert!(used > MEMORY / 2 && used <= MEMORY + FILLED as u64 * 3 * BESIDE, "{used}");
    assert!(sent >= 16 * FILLED, "each goes on, {sent}");
    bench.until_moved([before[0] + sent * bytes.len(), before[1]]);
}
