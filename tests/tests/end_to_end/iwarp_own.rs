//! iWARP over the daemon's own TCP, below the operations that `iwarp.rs` tests over each TCP.
//!
//! Tests cover losses, ends of connections, and segments that belong to others.
//!
//! Shows: placed, tcp-in-daemon.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;
use vrdma_backend::config::{GuestConfig, GuestLimits, Transport};
use vrdma_backend::port::{Burst, FaultsConfig};
use vrdma_tests::abi::control::{CmConnectReq, CmEventKind, CmListenReq, QpState, Status, cm_flags};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::zerocopy::FromZeros;
use vrdma_tests::cm::{connect_streams, connect_to, connected, mapped, request};
use vrdma_tests::lab::over_own_tcp;
use vrdma_tests::net::{NetGuest, NetOptions};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, GuestOptions, GuestTcp, Lab, LabOptions, QpOptions, Rng, wait};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::{Gid, Mac, VlanId, VlanTag};
use vrdma_wire::tcp::{Flags, Options, TcpHeader, TcpPacket};

const LEN: u64 = 1 << 20;
const OWN: GuestTcp = GuestTcp::Own;

#[test]
fn a_write_arrives() {
    for hosts in [1, 2] {
        let lab = Lab::of_tcp(OWN, hosts);
        let ((mut a, _), (b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let data = Rng::new(1).bytes(LEN as usize);
        a.mr.put(0, &data);
        let own = [a.mr.sge(0, LEN as u32)];
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        wait::until("the last byte", || (b.mr.get(0, LEN) == data).then_some(()));
    }
}

/// Exchanges SENDs, WRITEs and READs of random bytes, and asserts that each arrives.
fn exchange(a: &mut Side, b: &mut Side, rounds: u32) {
    let (half, mut rng) = (LEN / 2, Rng::new(2));
    for round in 0..rounds {
        let data = rng.bytes(half as usize);
        a.mr.put(0, &data);
        b.recv(round, &[b.mr.sge(half, half as u32)]);
        b.process.channel.drain();
        let (own, back) = ([a.mr.sge(0, half as u32)], [a.mr.sge(half, half as u32)]);
        a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
        a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.post(&Request::read(a.qp.tag(3), b.mr.remote(0), &back).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        assert_eq!(b.cq.expect(b.qp.number, round, WcStatus::SUCCESS).len(), half as u32);
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        a.cq.expect(a.qp.number, 3, WcStatus::SUCCESS);
        assert!(b.mr.get(half, half) == data && b.mr.get(0, half) == data && a.mr.get(half, half) == data);
    }
}

/// Returns the IPv4 and IPv6 addresses of the first and second guest of a pair.
fn addresses() -> [[IpAddr; 2]; 2] {
    let v6 = |host| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host));
    [[0, 1].map(|guest| OWN.address(guest).into()), [v6(1), v6(2)]]
}

/// Connects guest `from` to the next guest by these addresses, in a VLAN (0: untagged), at a port.
fn connected_by(lab: &Lab, from: u8, [local, remote]: [IpAddr; 2], vlan: u16, port: u16) -> (Side, Side) {
    let side = |guest: u8| Side::new(&lab.guests[usize::from(guest)], LEN, &QpOptions::default());
    let (a, b) = (side(from), side(from + 1));
    let listener = b.guest().cm_listen(remote, port, 1).unwrap();
    let (local_addr, remote_addr) = (mapped(local), mapped(remote));
    let req = request(&a.qp, from, from + 1, port, b"hello");
    let req = CmConnectReq { local_addr, remote_addr, vlan: vlan.into(), ..req };
    connect_to(listener, &req, &a.qp, &b.qp);
    (a, b)
}

#[test]
fn addresses_of_both_kinds_reach_the_other_host_in_any_vlan() {
    let lab = Lab::of_tcp(OWN, 2);
    let mut sides = Vec::new();
    for addresses in addresses() {
        for vlan in [0, 5, 4094] {
            let port = 700 + sides.len() as u16;
            sides.push(connected_by(&lab, 0, addresses, vlan, port));
        }
    }
    for (a, b) in &mut sides {
        exchange(a, b, 2);
    }
}

/// Creates a network namespace with a veth for this thread and threads that it starts later.
///
/// Those include the daemons' threads. Returns false without root.
fn veth() -> bool {
    // SAFETY: a plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("not tried: there is no network of its own without root");
        return false;
    }
    for command in ["link add va type veth peer name vb", "link set va up", "link set vb up"] {
        let status = Command::new("ip").args(command.split(' ')).status();
        assert!(status.is_ok_and(|status| status.success()), "ip {command}");
    }
    true
}

/// Tests segments over `net_packet`, which sends and receives several segments as one.
///
/// With a single worker, `net_packet` computes the checksums. With several workers, each computes
/// its own.
fn over_packet_sockets(workers: u16) {
    if !veth() {
        return;
    }
    let uplinks = ["net_packet0,iface=va", "net_packet1,iface=vb"].map(|device| device.parse().unwrap());
    let guest = GuestOptions { tcp: OWN, ..GuestOptions::default() };
    let (uplinks, host_says) = (Some(uplinks), over_own_tcp as _);
    let lab = Lab::with(4, LabOptions { workers, uplinks, guest, host_says, ..LabOptions::default() });
    let mut sides = Vec::new();
    for (addresses, vlan) in addresses().into_iter().flat_map(|addresses| [(addresses, 0), (addresses, 5)]) {
        sides.push(connected_by(&lab, 0, addresses, vlan, 700 + sides.len() as u16));
    }
    for (a, b) in &mut sides {
        let counts = || {
            [lab.stats(), lab.remote_stats()].map(|stats| (stats.uplink("tx_joined"), stats.uplink("rx_cut")))
        };
        let before = counts();
        exchange(a, b, 1);
        for (before, after) in before.into_iter().zip(counts()) {
            assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
        }
    }
    // Segments that stay in the daemon have a checksum, too.
    let ((mut a, _), (mut c, _)) = connected(&lab.guests[0], &lab.guests[2], LEN, &QpOptions::default());
    exchange(&mut a, &mut c, 1);
    for stats in [lab.stats(), lab.remote_stats()] {
        let wrong = (0..2).map(|guest| stats.tcp(guest, "bad_checksum")).sum::<u64>();
        let refused =
            stats.uplink("tx_refused") + stats.uplink("rx_unfinished") + stats.uplink("rx_too_long");
        assert_eq!((wrong, refused), (0, 0));
    }
}

#[test]
fn segments_pass_packet_sockets_together() {
    over_packet_sockets(1);
}

#[test]
fn segments_of_two_workers_pass_packet_sockets_together() {
    over_packet_sockets(2);
}

/// Returns the VLAN of a guest. Two guests share each VLAN.
fn vlan(guest: u8) -> u16 {
    5 + u16::from(guest / 2)
}

#[test]
fn guests_with_the_same_addresses_reach_those_of_their_vlan() {
    let host_says = |index, guest| GuestConfig {
        vlans: vec![vlan(index)],
        untagged: false,
        any_vlan: false,
        ..over_own_tcp(index % 2, guest)
    };
    let cable = Some(CableOptions::default());
    let guest = GuestOptions { tcp: OWN, ..GuestOptions::default() };
    let lab = Lab::with(4, LabOptions { cable, guest, host_says, ..LabOptions::default() });
    let mut sides = Vec::new();
    for (round, addresses) in addresses().into_iter().enumerate() {
        // Both pairs have equal addresses and ports at the same time, and differ only in the VLAN.
        let port = 700 + round as u16;
        sides.extend([0, 2].map(|guest| connected_by(&lab, guest, addresses, vlan(guest), port)));
        // The request's VLAN decides, and it has to be one of the guest's.
        let side = Side::new(&lab.guests[0], LEN, &QpOptions::default());
        side.qp.to_init().unwrap();
        for vlan in [0, vlan(2), 7] {
            let [local_addr, remote_addr] = addresses.map(mapped);
            let req = request(&side.qp, 0, 1, port, b"");
            let req = CmConnectReq { local_addr, remote_addr, vlan: vlan.into(), ..req };
            assert_eq!(side.guest().cm_connect(&req), Err(Status::DENIED), "VLAN {vlan}");
        }
    }
    for (a, b) in &mut sides {
        exchange(a, b, 2);
    }
}

#[test]
fn nothing_is_lost_where_frames_are() {
    let faults =
        FaultsConfig { loss: 0.01, dup: 0.01, reorder: 0.01, corrupt: 0.005, ..FaultsConfig::default() };
    for mtu in [1500, 9000] {
        let cable = Some(CableOptions { faults: Some(faults.clone()), mtu, ..CableOptions::default() });
        let lab = Lab::of_tcp_with(OWN, 2, LabOptions { cable, ..LabOptions::default() });
        let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        exchange(&mut a, &mut b, 8);
        let (near, far) = (lab.stats(), lab.remote_stats());
        let both = |counter| near.tcp(0, counter) + far.tcp(0, counter);
        for counter in ["retransmits", "recoveries", "beyond_gap", "duplicates", "bad_checksum"] {
            assert_ne!(both(counter), 0, "{counter}");
        }
        assert_eq!(both("held_bytes"), 0);
        // Data whose place is known did not wait for lost segments.
        assert_ne!(near.transport(0, "fpdus_placed") + far.transport(0, "fpdus_placed"), 0);
        assert_ne!(near.tcp(0, "most_round_trip_ns"), 0);
        assert_eq!((a.cq.poll(), b.cq.poll()), (None, None));
        assert_eq!((a.qp.state(), b.qp.state()), (QpState::RTS, QpState::RTS));
    }
}

#[test]
fn sends_are_in_their_receives_though_one_before_them_was_lost() {
    const EACH: u64 = 4096;
    const SENDS: u32 = 64;
    let faults = FaultsConfig { loss: 0.01, reorder: 0.01, ..FaultsConfig::default() };
    let cable = Some(CableOptions { faults: Some(faults), ..CableOptions::default() });
    let lab = Lab::of_tcp_with(OWN, 2, LabOptions { cable, ..LabOptions::default() });
    let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    let mut rng = Rng::new(6);
    let is_placed = || lab.remote_stats().transport(0, "fpdus_placed") != 0;
    let mut rounds = 0;
    // Losses are random. Repeat until some message was placed out of order.
    while rounds < 4 || !is_placed() {
        rounds += 1;
        assert!(rounds < 200, "nothing was placed");
        let data = rng.bytes((EACH * u64::from(SENDS)) as usize);
        a.mr.put(0, &data);
        b.mr.put(0, &vec![0; data.len()]);
        for n in 0..SENDS {
            b.recv(n, &[b.mr.sge(EACH * u64::from(n), EACH as u32)]);
        }
        b.process.channel.drain();
        for n in 0..SENDS {
            let own = [a.mr.sge(EACH * u64::from(n), EACH as u32)];
            a.post(&Request::send(a.qp.tag(n), Data::Sges(&own)).signaled(true));
        }
        for n in 0..SENDS {
            a.cq.expect(a.qp.number, n, WcStatus::SUCCESS);
            assert_eq!(b.cq.expect(b.qp.number, n, WcStatus::SUCCESS).len(), EACH as u32);
        }
        assert!(b.mr.get(0, data.len() as u64) == data);
    }
    let (near, far) = (lab.stats(), lab.remote_stats());
    assert_eq!(near.tcp(0, "held_bytes") + far.tcp(0, "held_bytes"), 0);
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::RTS, QpState::RTS));
}

#[test]
fn a_cable_that_is_plugged_in_again_costs_nothing_but_time() {
    let lab = Lab::of_tcp(OWN, 2);
    let cable = lab.cable.clone().unwrap();
    let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    let data = Rng::new(3).bytes(LEN as usize);
    a.mr.put(0, &data);
    cable.plug(false);
    wait::until("the link to be down", || (lab.stats().uplink("link_changes") == 1).then_some(()));
    let own = [a.mr.sge(0, LEN as u32)];
    a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)));
    assert!(wait::within(Duration::from_millis(50), || (b.mr.get(0, LEN) == data).then_some(())).is_none());
    cable.plug(true);
    wait::until("the last byte", || (b.mr.get(0, LEN) == data).then_some(()));
    exchange(&mut a, &mut b, 2);
}

#[test]
fn who_closes_with_data_under_way_loses_none() {
    let faults = FaultsConfig { loss: 0.01, ..FaultsConfig::default() };
    let cable = Some(CableOptions { faults: Some(faults), ..CableOptions::default() });
    let lab = Lab::of_tcp_with(OWN, 2, LabOptions { cable, ..LabOptions::default() });
    for round in 0..4 {
        let ((mut a, of_a), (mut b, of_b)) =
            connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
        let data = Rng::new(round).bytes(LEN as usize);
        a.mr.put(0, &data);
        b.recv(1, &[b.mr.sge(0, LEN as u32)]);
        b.process.channel.drain();
        let own = [a.mr.sge(0, LEN as u32)];
        // The SEND completes when TCP has taken it, while it is mostly still in flight. Requests
        // that are not complete may be flushed.
        a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        a.guest().cm_disconnect(a.qp.number).unwrap();
        assert_eq!(b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS).len(), LEN as u32);
        assert!(b.mr.get(0, LEN) == data);
        for (side, of) in [(&a, of_a), (&b, of_b)] {
            side.guest().cm_expect_end(of);
            side.guest().cm_release(of).unwrap();
        }
        a.close();
        b.close();
    }
    assert_eq!(lab.stats().objects(0, "connections"), 0);
}

/// Connects and closes two QPs over and over.
///
/// Nothing remains except connections in TIME-WAIT, which wait for stray segments. There are no
/// more of these than a guest may have connections.
fn come_and_go(rounds: u32, faults: FaultsConfig) {
    let cable = Some(CableOptions { faults: Some(faults), ..CableOptions::default() });
    let lab = Lab::of_tcp_with(OWN, 2, LabOptions { cable, ..LabOptions::default() });
    let (a, b): (Side, Side) =
        [0, 1].map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::default())).into();
    for round in 0..rounds {
        let (of_a, of_b) = connect_streams(&a.qp, &b.qp);
        // The side that closes first stays in TIME-WAIT.
        let first = if round % 2 == 0 { &a } else { &b };
        first.guest().cm_disconnect(first.qp.number).unwrap();
        for (side, of) in [(&a, of_a), (&b, of_b)] {
            side.guest().cm_expect_end(of);
            side.guest().cm_release(of).unwrap();
            side.qp.to_state(QpState::RESET).unwrap();
        }
    }
    let (most, closed) = (u64::from(GuestLimits::default().connections), u64::from(rounds.div_ceil(2)));
    for stats in [Lab::stats, Lab::remote_stats] {
        // The side that closes second gets its event before the peer has acknowledged its FIN.
        let stats = wait::until("no connections of TCP but those in TIME-WAIT", || {
            let stats = stats(&lab);
            (stats.tcp(0, "connections") <= closed.min(most)).then_some(stats)
        });
        assert_eq!((stats.objects(0, "connections"), stats.tcp(0, "held_bytes")), (0, 0));
    }
    a.close();
    b.close();
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    come_and_go(40, FaultsConfig::default());
}

/// The last ACK of a connection arrives long after both drivers got the last event.
#[test]
fn connections_over_a_long_way_leave_nothing() {
    come_and_go(4, FaultsConfig { delay: 1.0, delay_us: 50_000, ..FaultsConfig::default() });
}

#[test]
#[ignore = "long"]
fn ten_thousand_connections_that_come_and_go_leave_nothing() {
    come_and_go(10_000, FaultsConfig::default());
}

/// A host on the wire, at the remote end of the cable.
struct Stranger {
    lab: Lab,
    /// Segments that have arrived and were not examined.
    seen: VecDeque<TcpPacket>,
}

const FAR: Mac = Mac([2, 0, 0, 0, 0, 0x77]);

fn gid(host: u8) -> Gid {
    Gid::from_ipv4([10, 0, 0, host])
}

fn mac(guest: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, guest + 1])
}

/// Builds a segment from a port of 10.0.0.153 to a port of guest 0.
fn segment(flags: Flags, dst_port: u16) -> TcpPacket {
    let header = TcpHeader {
        src_port: 4000,
        dst_port,
        seq: 100,
        ack: 0,
        flags,
        window: 1000,
        urgent: 0,
        options: Options::default(),
    };
    TcpPacket {
        src_mac: FAR,
        dst_mac: mac(0),
        vlan: None,
        src: gid(153),
        dst: gid(1),
        traffic_class: 0,
        header,
    }
}

impl Stranger {
    fn new() -> Stranger {
        Stranger { lab: Lab::of_tcp(OWN, 1), seen: VecDeque::new() }
    }

    fn send(&mut self, packet: &TcpPacket, data: &[u8]) {
        let mut frame = vec![0; packet.len() + data.len()];
        let at = packet.emit(Sum::of(data), &mut frame);
        frame[at..].copy_from_slice(data);
        self.send_frame(&frame);
    }

    fn send_frame(&mut self, bytes: &[u8]) {
        let port = self.lab.outside.as_mut().unwrap();
        let mut frame = port.transmit(bytes.len()).expect("room");
        frame.buf()[..bytes.len()].copy_from_slice(bytes);
        frame.commit(bytes.len());
        port.flush();
    }

    /// Returns the next segment that leaves the daemon, or `None` if none comes in time.
    fn next(&mut self, time: Duration) -> Option<TcpPacket> {
        let Stranger { lab, seen } = self;
        let port = lab.outside.as_mut().unwrap();
        let mut burst = Burst::default();
        wait::within(time, || {
            port.receive(&mut burst);
            seen.extend(burst.frames().iter().filter_map(|frame| Some(TcpPacket::parse(frame).ok()?.0)));
            seen.pop_front()
        })
    }

    /// Returns the next segment to a port. Others may be retransmitted meanwhile.
    fn next_to(&mut self, port: u16) -> TcpPacket {
        loop {
            let packet = self.next(wait::PATIENCE).expect("a segment");
            if packet.header.dst_port == port {
                return packet;
            }
        }
    }

    fn expect_silence(&mut self, what: &str) {
        assert_eq!(self.next(Duration::from_millis(30)), None, "{what}");
    }
}

#[test]
fn a_listener_answers_there_where_the_syn_came_from() {
    let mut stranger = Stranger::new();
    let guest = stranger.lab.guests[0].clone();
    let listener = guest.cm_listen(OWN.address(0), 700, 1).unwrap();
    assert_eq!(guest.cm_listen(OWN.address(0), 700, 1), Err(Status::BUSY));
    let stats = stranger.lab.stats();
    assert_eq!((stats.listening(0), stats.listening(1)), (vec![700], vec![]));
    stranger.send(&segment(Flags::SYN, 700), b"");
    let answer = stranger.next(wait::PATIENCE).unwrap();
    assert_eq!((answer.src_mac, answer.dst_mac, answer.vlan), (mac(0), FAR, None));
    assert_eq!((answer.src, answer.dst), (gid(1), gid(153)));
    assert_eq!((answer.header.flags, answer.header.ack), (Flags::SYN | Flags::ACK, 101));
    assert_eq!(answer.header.options.mss, Some(9000 - 40));
    // Another MAC address cannot redirect the answers: the SYN-ACK is retransmitted to the original
    // one.
    let mut moved = segment(Flags::SYN, 700);
    moved.src_mac = Mac([2, 0, 0, 0, 0, 0x78]);
    stranger.send(&moved, b"");
    assert_eq!(stranger.next(wait::PATIENCE).unwrap().dst_mac, FAR);
    // A segment of no connection, which is no SYN, is answered by a RST.
    let mut ack = segment(Flags::ACK, 700);
    (ack.header.src_port, ack.header.ack) = (4001, 77);
    stranger.send(&ack, b"x");
    let answer = stranger.next_to(4001);
    assert_eq!((answer.header.flags, answer.header.seq), (Flags::RST, 77));
    guest.cm_close_listener(listener).unwrap();
    assert!(stranger.lab.stats().listening(0).is_empty());
    // Half-open connections end with the listener. After that, segments go to the netdev.
    while stranger.next(Duration::from_millis(30)).is_some() {}
    stranger.send(&segment(Flags::SYN, 700), b"");
    stranger.expect_silence("a SYN to nobody");
    guest.cm_listen(OWN.address(0), 700, 1).unwrap();
}

#[test]
fn segments_that_are_somebody_elses_are_not_taken() {
    let mut stranger = Stranger::new();
    let guest = stranger.lab.guests[0].clone();
    guest.cm_listen(OWN.address(0), 700, 1).unwrap();
    // A listener on all addresses that the guest may use.
    guest.cm_listen(Ipv4Addr::UNSPECIFIED, 701, 1).unwrap();
    let right = segment(Flags::SYN, 701);
    type Change = fn(&mut TcpPacket);
    let rows: [(&str, Change); 5] = [
        ("another guest's MAC", |packet| packet.dst_mac = mac(1)),
        ("another guest's address", |packet| packet.dst = gid(2)),
        ("an address that is not the guest's", |packet| packet.dst = gid(99)),
        ("another port", |packet| packet.header.dst_port = 702),
        ("a source that is a group", |packet| packet.src = Gid::from_ipv4([224, 0, 0, 1])),
    ];
    for (what, change) in rows {
        for port in [700, 701] {
            let mut packet = right;
            packet.header.dst_port = port;
            change(&mut packet);
            stranger.send(&packet, b"");
            stranger.expect_silence(what);
        }
    }
    stranger.send(&right, b"");
    assert_eq!(stranger.next(wait::PATIENCE).unwrap().header.flags, Flags::SYN | Flags::ACK);
    assert_eq!(stranger.lab.stats().tcp(1, "segments_in"), 0);
}

#[test]
fn forged_segments_of_a_connection_change_nothing() {
    let mut stranger = Stranger::new();
    let lab = &stranger.lab;
    let ((mut a, _), (mut b, _)) = connected(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    // The port that the daemon chose, and the first ports that the test chooses.
    let ports = (61_000, 20_000..20_100);
    for port in ports.1 {
        for flags in [Flags::RST, Flags::SYN, Flags::RST | Flags::ACK, Flags::FIN | Flags::ACK, Flags::ACK] {
            let mut forged = segment(flags, ports.0);
            (forged.src, forged.header.src_port) = (gid(2), port);
            stranger.send(&forged, b"");
            forged.vlan = Some(VlanTag(5));
            stranger.send(&forged, b"forged");
        }
    }
    exchange(&mut a, &mut b, 2);
    let stats = stranger.lab.stats();
    assert_eq!(
        stats.tcp(0, "outside_window"),
        0,
        "none came so far: they were under the peer's address, and not the peer's"
    );
    assert_ne!(stats.switch("drop_spoofed_tcp"), 0);
}

#[test]
fn forged_segments_of_a_connection_to_another_host_change_nothing() {
    let mut stranger = Stranger::new();
    let guest = stranger.lab.guests[0].clone();
    let side = Side::new(&guest, 4096, &QpOptions::default());
    side.qp.to_init().unwrap();
    let remote_addr = mapped([10, 0, 0, 153]);
    let req = CmConnectReq { remote_addr, next_hop: FAR.0, ..request(&side.qp, 0, 1, 700, b"hello") };
    let of = guest.cm_connect(&req).unwrap();
    let syn = stranger.next_to(700);
    let mut answer = segment(Flags::SYN | Flags::ACK, syn.header.src_port);
    (answer.header.src_port, answer.header.ack) = (700, syn.header.seq.wrapping_add(1));
    stranger.send(&answer, b"");
    stranger.next_to(700);
    for flags in [Flags::RST, Flags::SYN, Flags::RST | Flags::ACK, Flags::FIN | Flags::ACK, Flags::ACK] {
        let mut forged = segment(flags, syn.header.src_port);
        (forged.header.src_port, forged.header.seq) = (700, answer.header.seq.wrapping_sub(1000));
        stranger.send(&forged, b"");
        forged.vlan = Some(VlanTag(5));
        stranger.send(&forged, b"forged");
    }
    wait::until("some to be of the connection", || {
        (stranger.lab.stats().tcp(0, "outside_window") != 0).then_some(())
    });
    assert_eq!(stranger.lab.stats().objects(0, "connections"), 1);
    guest.cm_release(of).unwrap();
}

/// Sends SYNs to a listener of guest 0, from another guest's netdev and from outside.
///
/// Only SYNs from an address of their sender are answered, and the answer goes to that sender.
fn who_speaks_under_anothers_address_is_not_heard(workers: u16) {
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let guest = GuestOptions { tcp: OWN, ..GuestOptions::default() };
    let host_says = over_own_tcp;
    let options = LabOptions { workers, cable, guest, host_says, ..LabOptions::default() };
    let mut stranger = Stranger { lab: Lab::with(3, options), seen: VecDeque::new() };
    let guest = stranger.lab.guests[0].clone();
    guest.cm_listen(Ipv4Addr::UNSPECIFIED, 700, 8).unwrap();
    let mut netdevs = [1, 2].map(|index| {
        NetGuest::connect(&stranger.lab.net_socket(index), NetOptions::default()).expect("accepted")
    });
    let v6 = |host| Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    let (mut port, mut dropped, mut answered) = (4000, 0, [vec![], vec![]]);
    for (gid, vlan) in
        [(gid as fn(u8) -> Gid, None), (gid, Some(VlanTag(5))), (v6, None), (v6, Some(VlanTag(5)))]
    {
        let mut syn = |src_mac: Mac, host: u8| {
            port += 1;
            let mut packet = segment(Flags::SYN, 700);
            packet.header.src_port = port;
            let packet = TcpPacket { src_mac, src: gid(host), dst: gid(1), vlan, ..packet };
            let mut frame = vec![0; packet.len()];
            packet.emit(Sum::of(b""), &mut frame);
            (port, frame)
        };
        for (index, netdev) in netdevs.iter_mut().enumerate() {
            let own = index as u8 + 2;
            let before = stranger.lab.stats().net(own as usize - 1, "tx_spoofed");
            // Another guest's address, the listener's address, and nobody's.
            for host in [5 - own, 1, 99] {
                netdev.send(&syn(mac(own - 1), host).1);
                dropped += 1;
                wait::until("the drop", || {
                    (stranger.lab.stats().switch("drop_spoofed_tcp") == dropped).then_some(())
                });
            }
            if !stranger.lab.are_apart(0, own - 1) {
                assert_eq!(stranger.lab.stats().net(own as usize - 1, "tx_spoofed"), before + 3);
            }
            let (port, frame) = syn(mac(own - 1), own);
            netdev.send(&frame);
            answered[index].push(port);
            // Earlier answers may be retransmitted. Nothing else comes.
            loop {
                let answer = TcpPacket::parse(&netdev.recv().1).expect("a segment").0;
                assert_eq!((answer.dst_mac, answer.header.flags), (mac(own - 1), Flags::SYN | Flags::ACK));
                assert!(answered[index].contains(&answer.header.dst_port), "{answer:?}");
                if answer.header.dst_port == port {
                    break;
                }
            }
        }
        for host in [1, 2, 3] {
            stranger.send_frame(&syn(FAR, host).1);
            dropped += 1;
            wait::until("the drop", || {
                (stranger.lab.stats().switch("drop_spoofed_tcp") == dropped).then_some(())
            });
        }
        let (port, frame) = syn(FAR, 153);
        stranger.send_frame(&frame);
        assert_eq!(stranger.next_to(port).dst, gid(153));
    }
    assert!(stranger.seen.iter().all(|packet| packet.dst_mac == FAR), "{:?}", stranger.seen);
}

#[test]
fn a_syn_under_an_address_that_is_not_its_senders_reaches_no_listener() {
    who_speaks_under_anothers_address_is_not_heard(1);
}

#[test]
fn nor_does_one_of_a_guest_of_another_worker() {
    who_speaks_under_anothers_address_is_not_heard(2);
}

/// Guest 0 lists its addresses. Guests 1 and 2 list none. Guest 1 has RoCE, and 10.0.0.2 as its
/// GID.
fn only_guest_0_lists_addresses(index: u8, guest: GuestConfig) -> GuestConfig {
    match index {
        0 => over_own_tcp(index, guest),
        1 => guest,
        _ => GuestConfig { transport: Transport::Iwarp, ..guest },
    }
}

#[test]
fn the_gid_of_a_guest_that_lists_no_addresses_is_no_source_of_others() {
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let guest = GuestOptions { tcp: OWN, ..GuestOptions::default() };
    let host_says = only_guest_0_lists_addresses;
    let options = LabOptions { cable, guest, host_says, ..LabOptions::default() };
    let mut stranger = Stranger { lab: Lab::with(3, options), seen: VecDeque::new() };
    stranger.lab.guests[0].cm_listen(Ipv4Addr::UNSPECIFIED, 700, 8).unwrap();
    let socket = stranger.lab.net_socket(2);
    let mut netdev = NetGuest::connect(&socket, NetOptions::default()).expect("accepted");
    let syn = |src_mac, host, src_port| {
        let mut packet = segment(Flags::SYN, 700);
        packet.header.src_port = src_port;
        let packet = TcpPacket { src_mac, src: gid(host), ..packet };
        let mut frame = vec![0; packet.len()];
        packet.emit(Sum::of(b""), &mut frame);
        frame
    };
    let is_dropped = |stranger: &Stranger, frames| {
        let dropped = || stranger.lab.stats().switch("drop_spoofed_tcp");
        wait::until("the drop", || (dropped() == frames).then_some(()));
    };
    netdev.send(&syn(mac(2), 2, 4000));
    is_dropped(&stranger, 1);
    stranger.send_frame(&syn(FAR, 2, 4001));
    is_dropped(&stranger, 2);
    // An address that no guest lists or has as GID may be used by any guest.
    netdev.send(&syn(mac(2), 3, 4002));
    let answer = TcpPacket::parse(&netdev.recv().1).expect("a segment").0;
    assert_eq!((answer.header.dst_port, answer.header.flags), (4002, Flags::SYN | Flags::ACK));

    let side = Side::new(&stranger.lab.guests[2], 4096, &QpOptions::default());
    side.qp.to_init().unwrap();
    let connect = |host| side.guest().cm_connect(&request(&side.qp, host, 0, 700, b""));
    assert_eq!(connect(1), Err(Status::DENIED));
    let connection = connect(2).unwrap();
    side.guest().cm_release(connection).unwrap();
    // After guest 1 has deleted the GID, others may use the address.
    stranger.lab.guests[1].del_gid(0).unwrap();
    netdev.send(&syn(mac(2), 2, 4003));
    wait::until("the answer", || {
        let answer = TcpPacket::parse(&netdev.recv().1).ok()?.0;
        (answer.header.dst_port == 4003 && answer.dst == gid(2)).then_some(())
    });
}

/// Builds a router's ICMP message about a segment of the daemon: the next hop's MTU is `mtu` bytes.
fn too_long(segment: &TcpPacket, seq: u32, mtu: u16) -> Vec<u8> {
    let quoted = TcpPacket { header: TcpHeader { seq, ..segment.header }, ..*segment };
    let mut headers = vec![0; quoted.len()];
    quoted.emit(Sum::default(), &mut headers);
    let mut message = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &headers[14..42]].concat();
    let sum = Sum::of(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    // From the destination of the segment to its sender.
    let [of_router, of_sender] = [segment.dst, segment.src].map(|gid| gid.ipv4().unwrap());
    let total = 20 + message.len() as u16;
    let mut ip =
        [&[0x45, 0][..], &total.to_be_bytes(), &[0, 0, 0, 0, 64, 1, 0, 0], &of_router, &of_sender].concat();
    let sum = Sum::of(&ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&segment.src_mac.0[..], &segment.dst_mac.0, &[8, 0], &ip, &message].concat()
}

#[test]
fn routers_that_complain_are_heard_if_they_know_what_is_under_way() {
    let mut stranger = Stranger::new();
    let guest = stranger.lab.guests[0].clone();
    let side = Side::new(&guest, 4096, &QpOptions::default());
    side.qp.to_init().unwrap();
    let remote_addr = mapped([10, 0, 0, 153]);
    let req = CmConnectReq { remote_addr, next_hop: FAR.0, ..request(&side.qp, 0, 1, 700, b"hello") };
    let of = guest.cm_connect(&req).unwrap();
    let syn = stranger.next_to(700);
    let mut answer = segment(Flags::SYN | Flags::ACK, syn.header.src_port);
    (answer.header.src_port, answer.header.ack) = (700, syn.header.seq.wrapping_add(1));
    answer.header.options.mss = Some(8960);
    stranger.send(&answer, b"");
    // The MPA request, which nobody acknowledges.
    let asked =
        std::iter::from_fn(|| Some(stranger.next_to(700))).find(|packet| packet.header.flags.has(Flags::PSH));
    let asked = asked.unwrap();
    let count = |stranger: &Stranger, name: &str| stranger.lab.stats().tcp(0, name);
    let frame = |seq: u32| too_long(&asked, seq, 1400);
    // A sender that guesses sequence numbers.
    for (round, seq) in
        [asked.header.seq.wrapping_sub(1), asked.header.seq.wrapping_add(5000), 0].into_iter().enumerate()
    {
        stranger.send_frame(&frame(seq));
        wait::until("it to be ignored", || {
            (count(&stranger, "too_long_ignored") == round as u64 + 1).then_some(())
        });
    }
    assert_eq!(count(&stranger, "mtu_reduced"), 0);
    stranger.send_frame(&frame(asked.header.seq));
    wait::until("the shorter path", || (count(&stranger, "mtu_reduced") == 1).then_some(()));
    assert_eq!(count(&stranger, "too_long_ignored"), 3);
    guest.cm_release(of).unwrap();
}

/// All segments of one end have the requested DS field and priority, from the first to the last.
///
/// This applies to the initiator and to the listener.
#[test]
fn all_segments_of_a_connection_have_the_traffic_class_and_the_priority_that_were_asked_for() {
    let mut stranger = Stranger::new();
    let guest = stranger.lab.guests[0].clone();
    let side = Side::new(&guest, 4096, &QpOptions::default());
    side.qp.to_init().unwrap();
    let req = CmConnectReq {
        remote_addr: mapped([10, 0, 0, 153]),
        next_hop: FAR.0,
        vlan: 5.into(),
        traffic_class: 0x68,
        priority: 3,
        ..request(&side.qp, 0, 1, 700, b"hello")
    };
    let tag = Some(VlanTag::new(VlanId::new(5).unwrap(), 3));
    let of = guest.cm_connect(&req).unwrap();
    let syn = stranger.next_to(700);
    let mut answer = segment(Flags::SYN | Flags::ACK, syn.header.src_port);
    (answer.vlan, answer.header.src_port) = (Some(VlanTag(5)), 700);
    answer.header.ack = syn.header.seq.wrapping_add(1);
    stranger.send(&answer, b"");
    let mut seen = vec![syn];
    while !seen.last().unwrap().header.flags.has(Flags::PSH) {
        seen.push(stranger.next_to(700));
    }
    // Nobody acknowledges the request, so it is retransmitted. Then the connection ends.
    seen.push(stranger.next_to(700));
    guest.cm_release(of).unwrap();
    while !seen.last().unwrap().header.flags.has(Flags::RST) {
        seen.push(stranger.next_to(700));
    }
    for segment in &seen {
        assert_eq!((segment.traffic_class, segment.vlan), (0x68, tag), "{:?}", segment.header);
    }

    let listen = CmListenReq {
        addr: mapped(OWN.address(0)),
        port: 701.into(),
        backlog: 1.into(),
        traffic_class: 0xb8,
        ..CmListenReq::new_zeroed()
    };
    guest.cm_listen_as(&listen).unwrap();
    let mut syn = segment(Flags::SYN, 701);
    // Answers to the SYN have its priority.
    (syn.vlan, syn.header.src_port) = (tag, 4002);
    stranger.send(&syn, b"");
    let answer = stranger.next_to(4002);
    assert_eq!((answer.traffic_class, answer.vlan), (0xb8, tag));
    assert_eq!(guest.cm_listen_as(&CmListenReq { traffic_class: 1, ..listen }), Err(Status::INVALID));
}

#[test]
fn what_a_guest_may_not_ask_for_is_refused() {
    let lab = Lab::of_tcp(OWN, 1);
    let side = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let guest = side.guest();
    side.qp.to_init().unwrap();
    let right = request(&side.qp, 0, 1, 700, b"");
    let refused = |status, change: &dyn Fn(&mut vrdma_tests::abi::control::CmConnectReq)| {
        let mut req = right;
        change(&mut req);
        assert_eq!(guest.cm_connect(&req), Err(status));
    };
    refused(Status::DENIED, &|req| req.local_addr = mapped(OWN.address(1)));
    refused(Status::DENIED, &|req| req.local_addr = mapped(OWN.address(7)));
    refused(Status::DENIED, &|req| req.remote_addr = mapped([127, 0, 0, 1]));
    refused(Status::NOT_FOUND, &|req| req.remote_addr = mapped([224, 0, 0, 1]));
    // The guest has to specify the next hop, which has to be a unicast address.
    refused(Status::INVALID, &|req| {
        (req.flags, req.next_hop) = (cm_flags::PEER_TO_PEER.into(), [0; 6]);
    });
    refused(Status::INVALID, &|req| req.flags = cm_flags::PEER_TO_PEER.into());
    refused(Status::INVALID, &|req| req.next_hop = [0xff; 6]);
    refused(Status::INVALID, &|req| req.next_hop = [0; 6]);
    refused(Status::INVALID, &|req| req.vlan = 4095.into());
    refused(Status::INVALID, &|req| req.traffic_class = 0x69);
    refused(Status::INVALID, &|req| req.priority = 1);
    refused(Status::INVALID, &|req| (req.vlan, req.priority) = (5.into(), 8));
    for address in [OWN.address(1), [127, 0, 0, 1].into(), [224, 0, 0, 1].into()] {
        assert_eq!(guest.cm_listen(address, 700, 1), Err(Status::DENIED), "{address}");
    }
    assert_eq!(lab.stats().objects(0, "connections"), 0);
    assert_eq!(side.qp.state(), QpState::INIT);
    // The correct request: a connection that nobody answers, which the guest gives up.
    let of = guest.cm_connect(&right).unwrap();
    guest.cm_release(of).unwrap();
    assert_eq!(guest.cm_get_event().unwrap().kind.get(), CmEventKind::NONE.0);
    assert_eq!(lab.stats().objects(0, "connections"), 0);
}
