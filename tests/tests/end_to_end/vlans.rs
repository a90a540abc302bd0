//! Guests in VLANs of one uplink, on two hosts. Each reaches the guests of its VLAN, and no others.
//!
//! Shows: vlans.

use vrdma_backend::config::GuestConfig;
use vrdma_backend::port::Burst;
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{QpType, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::guest::gid;
use vrdma_tests::lab::CableOptions;
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{Lab, LabOptions, QpOptions, connect, wait};
use vrdma_wire::icrc::Icrc;
use vrdma_wire::num::{Psn, Qpn, VlanId, VlanTag};
use vrdma_wire::roce::Packet;

const ALL: [u8; 6] = [0xff; 6];
const TEST: u16 = 0x88b5;
/// EtherType of a VLAN tag.
const TAG: u16 = 0x8100;
/// Guests with even numbers are on one host, those with odd numbers on the other.
const GUESTS: u8 = 7;

/// Returns the VLAN of a guest.
///
/// VLAN 10 has guests 0 and 4, and on the other host 1 and 5. VLAN 20 has guests 2 and 6, and on
/// the other host 3.
fn vlan(guest: u8) -> u16 {
    if (guest / 2).is_multiple_of(2) { 10 } else { 20 }
}

/// Returns the address of a guest. Two guests have each address, one in each VLAN.
fn address(guest: u8) -> (u8, Option<u16>) {
    (1 + 10 * (guest % 2) + guest / 4, Some(vlan(guest)))
}

fn options() -> LabOptions {
    let host_says =
        |index, guest| GuestConfig { vlans: vec![vlan(index)], untagged: false, any_vlan: false, ..guest };
    LabOptions { cable: Some(CableOptions::default()), address, host_says, ..LabOptions::default() }
}

/// Connects the guests' Ethernet functions.
fn netdevs(lab: &Lab) -> Vec<NetGuest> {
    let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
    (0..GUESTS).map(connect).collect()
}

/// Builds a frame of guest `src` with these tags.
fn tagged(tags: &[(u16, u16)], dst: [u8; 6], src: u8, payload: u8) -> Vec<u8> {
    let tags: Vec<u8> =
        tags.iter().flat_map(|tag| [tag.0.to_be_bytes(), tag.1.to_be_bytes()].concat()).collect();
    [&dst[..], &mac(src + 1), &tags, &TEST.to_be_bytes(), &[payload; 60]].concat()
}

#[test]
fn frames_stay_in_their_vlan() {
    let lab = Lab::without_guests(GUESTS, options());
    let mut guests = netdevs(&lab);
    // The next frame that a guest receives is the next one of its own VLAN. No other comes between.
    for round in 0..3 {
        for from in 0..GUESTS {
            let shout = tagged(&[(TAG, vlan(from))], ALL, from, 16 * round + from);
            guests[usize::from(from)].send(&shout);
            for to in (0..GUESTS).filter(|&to| to != from && vlan(to) == vlan(from)) {
                assert_eq!(guests[usize::from(to)].recv().1, shout, "from {from} to {to}");
            }
            for to in (0..GUESTS).filter(|&to| to != from) {
                let word = tagged(&[(TAG, vlan(from))], mac(to + 1), from, 0x80 + from);
                guests[usize::from(from)].send(&word);
                if vlan(to) == vlan(from) {
                    assert_eq!(guests[usize::from(to)].recv().1, word, "from {from} to {to}");
                }
            }
        }
    }
    guests.iter_mut().for_each(NetGuest::expect_nothing);
    assert_eq!(lab.stats().switch("drop_ingress_vlan"), 0);
    // Per round, the local switch drops the broadcasts of four guests at the two guests of the
    // other VLAN. It also drops those of three remote guests there.
    let egress = || lab.stats().switch("drop_egress_vlan");
    assert!(
        wait::within(wait::PATIENCE, || (egress() == 3 * (8 + 6)).then_some(())).is_some(),
        "{}",
        egress()
    );
}

#[test]
fn a_guest_is_not_heard_in_a_vlan_that_is_not_its_own() {
    let lab = Lab::without_guests(GUESTS, options());
    let mut guests = netdevs(&lab);
    let attempts: [&[(u16, u16)]; 10] = [
        &[],
        &[(TAG, 0)],
        &[(TAG, 20)],
        &[(TAG, 0xe014)],
        &[(TAG, 4095)],
        &[(TAG, 0), (TAG, 20)],
        &[(TAG, 10), (TAG, 20)],
        &[(0x88a8, 20)],
        &[(0x88a8, 10), (TAG, 20)],
        &[(0x9100, 10), (TAG, 20)],
    ];
    for tags in attempts {
        for dst in [ALL, mac(3), mac(4)] {
            guests[0].send(&tagged(tags, dst, 0, 0xbb));
        }
    }
    // If a frame had been let through, it would arrive before these.
    for from in [0, 2] {
        let shout = tagged(&[(TAG, vlan(from))], ALL, from, 0x55);
        guests[usize::from(from)].send(&shout);
        for to in (0..GUESTS).filter(|&to| to != from && vlan(to) == vlan(from)) {
            assert_eq!(guests[usize::from(to)].recv().1, shout, "from {from} to {to}");
        }
    }
    let stats = lab.stats();
    assert_eq!((stats.switch("drop_ingress_vlan"), stats.net(0, "tx_vlan")), (30, 30));
    assert_eq!(lab.remote_stats().switch("drop_egress_vlan"), 0, "none of it left the host");
}

#[test]
fn guests_without_vlans_talk_without_tags_alone() {
    let host_says = |_, guest| GuestConfig { any_vlan: false, ..guest };
    let lab = Lab::without_guests(2, LabOptions { host_says, ..LabOptions::default() });
    let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
    let (mut a, mut b) = (connect(0), connect(1));
    a.send(&tagged(&[(TAG, 10)], ALL, 0, 1));
    let plain = frame(mac(2), mac(1), TEST, &[2; 60]);
    a.send(&plain);
    assert_eq!(b.recv().1, plain);
    let priority = tagged(&[(TAG, 0xa000)], mac(2), 0, 3);
    a.send(&priority);
    assert_eq!(b.recv().1, priority);
    assert_eq!(lab.stats().net(0, "tx_vlan"), 1);
}

/// Creates sides of these guests, with QPs of this type.
fn sides<const N: usize>(lab: &Lab, guests: [usize; N], qp_type: QpType) -> [Side; N] {
    guests.map(|guest| Side::new(&lab.guests[guest], 4096, &QpOptions::of(qp_type)))
}

#[test]
fn connections_of_guests_with_the_same_address_reach_their_own_peers() {
    let lab = Lab::with(GUESTS, options());
    // On the local host, 0 and 2 are 10.0.0.1, and 4 and 6 are 10.0.0.2. On the remote host, 1 and
    // 3 are 10.0.0.11.
    assert_eq!([0, 2, 4, 6, 1, 3].map(|guest| lab.guests[guest].gid()[15]), [1, 1, 2, 2, 11, 11]);
    for (peers, path) in [([4, 6], "same host"), ([1, 3], "wire")] {
        for qp_type in [QpType::RC, QpType::UC] {
            let mut ten = sides(&lab, [0, peers[0]], qp_type);
            let mut twenty = sides(&lab, [2, peers[1]], qp_type);
            for (n, pair) in [&mut ten, &mut twenty].into_iter().enumerate() {
                let [a, b] = pair;
                connect(&a.qp, &b.qp);
                for (round, text) in [(0u32, [b'a', n as u8]), (1, [b'b', n as u8])] {
                    let (from, to) = if round == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
                    to.recv_any(round);
                    to.process.channel.drain();
                    from.post(&Request::send(from.qp.tag(round), Data::Inline(&text)).signaled(true));
                    from.cq.expect(from.qp.number, round, WcStatus::SUCCESS);
                    to.cq.expect(to.qp.number, round, WcStatus::SUCCESS);
                    assert_eq!(to.mr.get(0, 2), text, "{path}");
                }
            }
        }
    }
}

#[test]
fn datagrams_of_guests_with_the_same_address_reach_their_own_peers() {
    let lab = Lab::with(GUESTS, options());
    // All QPs have the same number, so only the VLAN tells them apart.
    let mut all = sides(&lab, [0, 2, 4, 6, 1, 3], QpType::UD);
    all.iter().for_each(|side| side.qp.start().unwrap());
    let handles = [0, 2].map(|guest| AhTable::new(&lab.guests[guest], 64).unwrap());
    for (own, table) in handles.iter().enumerate() {
        for (index, peer) in [2 + own, 4 + own].into_iter().enumerate() {
            let guest = all[peer].guest();
            let vlan = guest.options.vlan.expect("all are in one").into();
            let way = AhEntry { vlan, dmac: guest.config.mac, ..entry(all[own].process.pd, guest.gid()) };
            table.put(index as u32, &way);
        }
    }
    for round in 0..8u8 {
        for own in 0..2usize {
            for (index, peer) in [2 + own, 4 + own].into_iter().enumerate() {
                let (text, id) = ([b'u', round, own as u8], u32::from(round));
                let to = &mut all[peer];
                to.recv_any(id);
                to.process.channel.drain();
                let target = UdTarget { ah: index as u32, qpn: to.qp.number, qkey: to.qp.options.qkey };
                let from = &mut all[own];
                from.post(&Request::ud_send(from.qp.tag(id), target, Data::Inline(&text)).signaled(true));
                from.cq.expect(from.qp.number, id, WcStatus::SUCCESS);
                let to = &mut all[peer];
                let wc = to.cq.expect(to.qp.number, id, WcStatus::SUCCESS);
                let own = &lab.guests[2 * own];
                assert_eq!((wc.vlan(), wc.smac()), (own.options.vlan.unwrap(), own.config.mac));
                assert_eq!(to.mr.get(40, 3), text);
            }
        }
    }
}

#[test]
fn a_gid_is_had_in_the_vlans_that_the_host_allows() {
    let host_says = |index, guest| {
        let gids = [["10.0.0.1@10", "10.0.0.1@untagged"], ["10.0.0.1@20", "10.0.0.2@20"]][usize::from(index)];
        let gids = gids.map(|gid| gid.parse().unwrap()).to_vec();
        let untagged = index == 0;
        GuestConfig { vlans: vec![10, 20], any_vlan: false, any_gid: false, gids, untagged, ..guest }
    };
    let address = |index| (1, Some(10 + 10 * u16::from(index)));
    // Both guests have 10.0.0.1: guest 0 in VLAN 10 and guest 1 in VLAN 20.
    let lab = Lab::with(2, LabOptions { host_says, address, ..LabOptions::default() });
    for (guest, vlan) in [(0, 20), (1, 10)] {
        let taken = lab.guests[guest].add_gid_in(Some(vlan), 1, gid(1));
        assert_eq!(taken, Err(Status::DENIED), "the other guest has it there");
    }
    for (guest, vlan, last, status) in [
        (0, Some(30), 1, Err(Status::DENIED)),
        (0, Some(4094), 1, Err(Status::DENIED)),
        (0, Some(10), 2, Err(Status::DENIED)),
        (0, None, 2, Err(Status::DENIED)),
        (1, None, 1, Err(Status::DENIED)),
        (0, Some(20), 3, Err(Status::DENIED)),
        (0, Some(0), 1, Err(Status::INVALID)),
        (0, Some(4095), 1, Err(Status::INVALID)),
        (0, Some(0x100a), 1, Err(Status::INVALID)),
        (0, None, 1, Ok(())),
        (1, Some(20), 2, Ok(())),
    ] {
        let found = lab.guests[guest].add_gid_in(vlan, 2, gid(last));
        assert_eq!(found, status, "guest {guest}, 10.0.0.{last} in {vlan:?}");
    }
    let entry = lab.guests[1].query_gid(2).unwrap();
    assert_eq!((entry.gid, entry.vlan.get()), (gid(2), 20));
    assert_eq!(lab.guests[0].query_gid(2).unwrap().vlan.get(), 0xffff);
    let mac = lab.guests[0].config.mac;
    let own = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]];
    lab.guests[0].add_gid_in(Some(20), 3, own).expect("its link-local address is its own");
    assert_eq!(lab.guests[1].add_gid_in(Some(10), 3, own), Err(Status::DENIED));
}

#[test]
fn who_may_have_any_gid_has_none_of_another_guest() {
    let host_says = |index, guest| {
        let gids = (index == 1).then(|| "10.0.0.2".parse().unwrap()).into_iter().collect();
        GuestConfig { any_gid: index == 0, gids, ..guest }
    };
    let lab = Lab::without_guests(2, LabOptions { host_says, ..LabOptions::default() });
    let guest = lab.connect(0);
    assert_eq!(guest.add_gid(1, gid(2)), Err(Status::DENIED), "though the other guest is not there yet");
    guest.add_gid(1, gid(3)).unwrap();
    lab.connect(1);
}

#[test]
fn a_peer_is_heard_in_the_vlan_of_the_gid_alone() {
    // The test is the remote host, with the peer 10.0.0.2. Guest 0 has 10.0.0.1 in VLAN 10, and may
    // also use VLAN 20.
    let host_says = |_, guest| GuestConfig { vlans: vec![10, 20], any_vlan: false, ..guest };
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let address = |index| (index + 1, Some(10));
    let mut lab = Lab::with(1, LabOptions { cable, host_says, address, ..LabOptions::default() });
    // The requests are never acknowledged.
    let mut side = Side::new(&lab.guests[0], 4096, &QpOptions { timeout: 0, ..QpOptions::default() });
    side.qp.to_init().unwrap();
    side.qp.to_rtr(gid(2), 0x77, 1000).unwrap();
    side.qp.to_rts().unwrap();
    // The request carries the tag.
    side.post(&Request::send(side.qp.tag(1), Data::Inline(b"echo")));
    let (mut burst, mut came) = (Burst::default(), None);
    let outside = lab.outside.as_mut().unwrap();
    wait::until("the request", || {
        outside.receive(&mut burst);
        came = burst.frames().iter().find_map(|frame| Packet::parse(frame).ok().map(|it| it.packet));
        came.map(|_| ())
    });
    let sent = came.unwrap();
    assert_eq!(sent.path.vlan, Some(VlanTag::new(VlanId::new(10).unwrap(), 0)));
    // A packet with the tag of another VLAN belongs to no guest, or at least not to this
    // connection.
    let mut answer = sent;
    let path = &mut answer.path;
    (path.src, path.dst, path.src_mac, path.dst_mac) =
        (sent.path.dst, sent.path.src, sent.path.dst_mac, sent.path.src_mac);
    (answer.bth.dest, answer.bth.psn) = (Qpn::new(side.qp.number).unwrap(), Psn::truncate(1000));
    side.recv_any(2);
    side.process.channel.drain();
    for (vlan, counter) in [
        (Some(20), "roce.drop_vlan"),
        (None, "roce.drop_vlan"),
        (Some(0), "roce.drop_vlan"),
        (Some(30), "switch.drop_egress_vlan"),
        (Some(4095), "switch.drop_egress_vlan"),
        (Some(20), "transport.drop_source"),
        (Some(10), "transport.receives"),
    ] {
        if counter == "transport.drop_source" {
            // The guest has the address in this VLAN too, but the connection is in another one.
            lab.guests[0].add_gid_in(Some(20), 1, gid(1)).unwrap();
        }
        let count = |lab: &Lab| match counter.split_once('.').unwrap() {
            ("roce", name) => lab.stats().roce(name),
            ("switch", name) => lab.stats().switch(name),
            (_, name) => lab.transport(0, name),
        };
        let before = count(&lab);
        answer.path.vlan = vlan.map(VlanTag);
        let frame = packet_frame(&answer, b"well");
        let outside = lab.outside.as_mut().unwrap();
        let mut room = outside.transmit(frame.len()).expect("room");
        room.buf()[..frame.len()].copy_from_slice(&frame);
        room.commit(frame.len());
        outside.flush();
        wait::until(counter, || (count(&lab) == before + 1).then_some(()));
        assert_eq!(side.cq.poll().is_some(), counter == "transport.receives", "{vlan:?}");
    }
    assert_eq!(side.mr.get(0, 4), b"well");
}

/// Builds a packet with its ICRC.
fn packet_frame(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; packet.frame_len(payload.len())];
    let head = packet.emit(payload.len(), &mut frame);
    frame[head..head + payload.len()].copy_from_slice(payload);
    let (covered, trailer) = frame.split_at_mut(head + payload.len());
    let mut icrc = Icrc::new(&covered[..head]);
    icrc.update(&covered[head..]);
    trailer.copy_from_slice(&icrc.finish());
    frame
}
