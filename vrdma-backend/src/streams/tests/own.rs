//! The same of our own TCP: a third guest is the peer of both, and its frames go to them at once.

use super::turns::{TOGETHER, is_fair, writes};
use super::*;
use crate::port::Checksums;
use vrdma_tcp::NextHop;
use vrdma_wire::num::Mac;

const MTU: u16 = 1500;

/// The address of a guest, with its number at the end as in its MAC address.
fn at(device: DeviceId, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, device.0 as u8 + 1), port).into()
}

impl Bench {
    fn with_own_tcp(connections: u32) -> Bench {
        let mut bench = Bench::new(connections);
        for device in [A, B, C] {
            let limits = bench.outputs.device(device).limits().clone();
            let guest = bench.outputs.device(device).guest.clone();
            bench.streams.own.add(
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

    /// Has what is sent arrive, until nobody has anything to do.
    fn exchange(&mut self) {
        while self.deliver() || self.turn() {}
    }

    /// Has what is sent arrive, and what is sent by that; whether there was any.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some(segment) = self.streams.own.poll_transmit(self.now) {
            let mut frame = vec![0; self.streams.own.len(&segment)];
            self.streams.own.write(&segment, &mut frame, Checksums::default());
            // The last byte of the MAC address.
            let to = usize::from(frame[5]);
            self.with(|streams, host| streams.handle_frame(to, &frame, host));
            any = true;
        }
        any
    }

    /// Connections of this guest to C, by C's handles.
    fn many_own(&mut self, device: DeviceId, count: usize) -> Vec<Handle> {
        let doors = Doors::Own(at(device, 4000));
        let listener = self.with(|streams, host| streams.listen(device, doors, count, host)).unwrap();
        let mac = Mac([0x52, 0x54, 0, 0, 0, device.0 as u8]);
        let mut handles = Vec::new();
        for n in 0..count {
            let way = Way::Own { hop: NextHop { mac, vlan: None }, mtu: MTU };
            let (qpn, depths) = (self.qp(C), Depths { ird: 1, ord: 1 });
            let ends = (at(C, 10_000 + n as u16), at(device, 4000));
            let (local, remote, private_data) = (ends.0, ends.1, Vec::new());
            let connect = Connect { qpn, peer_to_peer: false, local, remote, depths, private_data };
            let number = self.with(|streams, host| streams.connect(C, way, &connect, host)).unwrap();
            handles.push(self.streams.table.find(number).unwrap());
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

    /// How many segments are sent, which are lost: of those with about so much data.
    fn sent(&mut self, data: usize) -> usize {
        let Bench { streams, now, .. } = self;
        let mut count = 0;
        while let Some(segment) = streams.own.poll_transmit(*now) {
            count += usize::from(streams.own.len(&segment) >= data);
        }
        count
    }

    /// C sends, as far as the window goes; nothing is read meanwhile.
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
        // Little of each in a turn, so that others have theirs.
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
    // From now on all frames are lost. A minute of silence, and one of questions; time goes in steps here.
    for _ in 0..20 {
        bench.later(Duration::from_secs(10));
        bench.sent(0);
    }
    bench.turns();
    assert_eq!(bench.state(C, qpn), QpState::Err);
    assert!(bench.told(A).contains(&What::Close), "A's driver knows too");
}

#[test]
fn what_comes_in_frames_is_charged_to_its_guest() {
    let mut bench = Bench::with_own_tcp(8);
    let of_a = bench.many_own(A, 1);
    let before = bench.moved();
    let bytes = writes(100 << 10);
    bench.send(of_a[0], &bytes);
    // By the frames alone.
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
