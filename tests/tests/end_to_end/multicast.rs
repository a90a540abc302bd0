//! Multicast groups: each member gets its copy, on any host, and no other QP does.

use vrdma_backend::config::GuestConfig;
use vrdma_backend::port::Burst;
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{QpState, QpType, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::guest::gid;
use vrdma_tests::net::{NetGuest, NetOptions};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{CableOptions, Context, Lab, LabOptions, Qp, QpOptions, wait};
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::roce::Packet;

/// Destination QPN of datagrams to groups.
const MEMBERS: u32 = 0xff_ffff;
/// Index of the address handle of the group.
const GROUP: u32 = 3;

fn group(last: u8) -> [u8; 16] {
    Gid::from_ipv4([239, 1, 2, last]).0
}

/// Returns an address handle of a group.
fn to_group(pd: u32, mgid: [u8; 16]) -> AhEntry {
    AhEntry { dmac: Gid(mgid).group_mac().0, ..entry(pd, mgid) }
}

/// Creates a UD QP of a guest in RTS, with memory and a CQ.
fn member(lab: &Lab, guest: usize) -> Side {
    let side = Side::new(&lab.guests[guest], 4096, &QpOptions::of(QpType::UD));
    side.qp.start().unwrap();
    side
}

fn target(side: &Side) -> UdTarget {
    UdTarget { ah: GROUP, qpn: MEMBERS, qkey: side.qp.options.qkey }
}

/// Sends to the group of the sender's address handle, and waits for the completion.
fn send(side: &mut Side, id: u32, data: Data<'_>) {
    let to = target(side);
    side.post(&Request::ud_send(side.qp.tag(id), to, data).signaled(true));
    loop {
        let wc = side.cq.wait();
        assert_eq!(wc.status(), WcStatus::SUCCESS);
        if wc.id() == id {
            break;
        }
    }
}

fn receives(sides: &mut [Side], id: u32) {
    for side in sides {
        side.recv_any(id);
        side.process.channel.drain();
    }
}

#[test]
fn each_member_gets_what_any_of_them_sends_on_one_host_and_on_two() {
    for cable in [None, Some(CableOptions::default())] {
        let lab = Lab::with(4, LabOptions { cable, ..LabOptions::default() });
        let mut sides: Vec<Side> = [0, 0, 1, 2, 3].iter().map(|&guest| member(&lab, guest)).collect();
        let mgid = group(1);
        let handles: Vec<AhTable> = lab.guests.iter().map(|guest| AhTable::new(guest, 64).unwrap()).collect();
        for side in &sides[..4] {
            side.guest().attach_mcast(side.qp.number, mgid).unwrap();
            side.guest().attach_mcast(side.qp.number, mgid).expect("once more changes nothing");
        }
        for (from, guest) in [(1, 0), (2, 1), (4, 3)] {
            receives(&mut sides, 100 + from as u32);
            handles[guest].put(GROUP, &to_group(sides[from].process.pd, mgid));
            sides[from].mr.put(2000, b"to all of you");
            let data = [sides[from].mr.sge(2000, 13)];
            let to = target(&sides[from]);
            let request = Request::ud_send(sides[from].qp.tag(7), to, Data::Sges(&data));
            sides[from].post(&request);
            let sender = (sides[from].qp.number, sides[from].guest().config.mac);
            for side in &mut sides[..4] {
                let wc = side.cq.expect(side.qp.number, 100 + from as u32, WcStatus::SUCCESS);
                assert_eq!((wc.len(), wc.src_qpn(), wc.smac()), (53, sender.0, sender.1));
                assert!(wc.is_recv() && wc.has_grh());
                let got = side.mr.get(0, 53);
                assert_eq!(got[32..40], [10, 0, 0, guest as u8 + 1, 239, 1, 2, 1]);
                assert_eq!(&got[40..], b"to all of you");
                assert_eq!(side.cq.poll(), None, "once");
            }
            // The fifth QP is no member, and keeps its receive.
            assert_eq!(sides[4].cq.poll(), None);
            sides[4].qp.to_state(QpState::RESET).unwrap();
            sides[4].qp.start().unwrap();
        }
        for side in &sides[..4] {
            side.guest().detach_mcast(side.qp.number, mgid).unwrap();
            assert_eq!(side.guest().detach_mcast(side.qp.number, mgid), Err(Status::INVALID));
        }
        receives(&mut sides, 9);
        handles[0].put(GROUP, &to_group(sides[0].process.pd, mgid));
        send(&mut sides[0], 1, Data::Inline(b"nobody"));
        assert_eq!(sides[1].cq.poll(), None);
    }
}

#[test]
fn what_a_member_does_not_take_is_lost_to_it_alone() {
    let lab = Lab::new(2);
    let mut sides: Vec<Side> = [0, 1, 1, 1, 1, 1].iter().map(|&guest| member(&lab, guest)).collect();
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    handles.put(GROUP, &to_group(sides[0].process.pd, group(1)));
    for side in &sides[1..] {
        side.guest().attach_mcast(side.qp.number, group(1)).unwrap();
    }
    // Members without a receive, with a short receive, with another `Q_Key`, in ERR, and one that
    // accepts it.
    let short = sides[2].mr.sge(0, 41);
    sides[2].recv(1, &[short]);
    for side in [3, 5] {
        sides[side].recv_any(1);
    }
    sides.iter_mut().for_each(|side| side.process.channel.drain());
    sides[3].qp.to_state(QpState::RESET).unwrap();
    let mut other = sides[3].qp.clone();
    other.options.qkey = 9;
    other.start().unwrap();
    sides[3].recv_any(2);
    sides[3].process.channel.drain();
    sides[4].qp.to_state(QpState::ERR).unwrap();
    send(&mut sides[0], 1, Data::Inline(b"hi"));
    let side = &mut sides[5];
    assert_eq!(side.cq.expect(side.qp.number, 1, WcStatus::SUCCESS).len(), 42);
    for counter in ["drop_no_receive", "drop_length", "drop_qkey", "drop_state"] {
        wait::until(counter, || (lab.transport(1, counter) == 1).then_some(()));
    }
    assert_eq!(lab.transport(1, "receives"), 1);
    assert!(sides[1..5].iter_mut().all(|side| side.cq.poll().is_none()));
}

#[test]
fn a_receive_that_was_posted_before_the_send_is_found() {
    let lab = Lab::new(2);
    let (mut a, mut b) = (member(&lab, 0), member(&lab, 1));
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    handles.put(GROUP, &to_group(a.process.pd, group(1)));
    b.guest().attach_mcast(b.qp.number, group(1)).unwrap();
    for round in 0..500 {
        // Not drained: the worker may take the send before the receive.
        b.recv_any(round);
        send(&mut a, round, Data::Inline(&round.to_le_bytes()));
        b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
        assert_eq!(b.mr.get(40, 4), round.to_le_bytes());
    }
    assert_eq!(lab.transport(1, "drop_no_receive"), 0);
}

#[test]
fn commands_are_checked_and_limits_hold() {
    let lab = Lab::new(2);
    let guest = &lab.guests[0];
    let caps = guest.query_device_ex().unwrap();
    let (groups, members) = (caps.max_mcast_grp.get(), caps.max_mcast_qp_attach.get());
    assert_eq!((groups, members, caps.max_total_mcast_qp_attach.get()), (1024, 1024, 8192));
    let ud = member(&lab, 0);
    for wrong in [[0; 16], gid(1), [0xfe; 16], Gid::from_ipv4([223, 255, 255, 255]).0] {
        assert_eq!(guest.attach_mcast(ud.qp.number, wrong), Err(Status::INVALID));
        assert_eq!(guest.detach_mcast(ud.qp.number, wrong), Err(Status::INVALID));
    }
    assert_eq!(guest.attach_mcast(ud.qp.number + 1000, group(1)), Err(Status::NOT_FOUND));
    assert_eq!(guest.attach_mcast(1 << 24, group(1)), Err(Status::NOT_FOUND));
    assert_eq!(lab.guests[1].attach_mcast(ud.qp.number, group(1)), Err(Status::NOT_FOUND), "another's");
    for service in [QpType::RC, QpType::UC] {
        let connected = Side::new(guest, 4096, &QpOptions::of(service));
        assert_eq!(guest.attach_mcast(connected.qp.number, group(1)), Err(Status::INVALID));
    }
    let nth = |n: u32| Gid::from_ipv4([230, 0, (n >> 8) as u8, n as u8]).0;
    (0..groups).for_each(|n| guest.attach_mcast(ud.qp.number, nth(n)).unwrap());
    assert_eq!(guest.attach_mcast(ud.qp.number, nth(groups)), Err(Status::NO_RESOURCES));
    guest.attach_mcast(ud.qp.number, nth(0)).expect("it is a member already");
    // Another guest has groups of its own.
    let other = member(&lab, 1);
    lab.guests[1].attach_mcast(other.qp.number, nth(groups)).unwrap();
    // A destroyed QP leaves its groups.
    ud.qp.destroy().unwrap();
    let next = member(&lab, 0);
    guest.attach_mcast(next.qp.number, nth(groups)).unwrap();
    next.qp.destroy().unwrap();
}

#[test]
fn a_datagram_for_a_thousand_members_comes_to_each_once() {
    const COUNT: u32 = 1000;
    let lab = Lab::new(2);
    let mut a = member(&lab, 0);
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    handles.put(GROUP, &to_group(a.process.pd, group(1)));
    let mut process = Context::open(&lab.guests[1]).unwrap();
    let (mut cq, mr) = (process.cq(4096), process.mr(4096));
    let qps: Vec<Qp> = (0..COUNT)
        .map(|_| {
            let options = QpOptions { send_wr: 1, recv_wr: 4, ..QpOptions::of(QpType::UD) };
            let qp = process.qp(&cq, &cq, &options);
            qp.start().unwrap();
            qp.guest().attach_mcast(qp.number, group(1)).unwrap();
            qp
        })
        .collect();
    for round in 0..2u32 {
        for qp in &qps {
            process.post(&Request::recv(qp.tag(round), &[mr.sge(0, 4096)]));
        }
        process.channel.drain();
        send(&mut a, round, Data::Inline(b"one of many"));
        let mut got: Vec<u32> = qps
            .iter()
            .map(|_| {
                let wc = cq.wait();
                assert_eq!((wc.status(), wc.id(), wc.len()), (WcStatus::SUCCESS, round, 51));
                wc.qpn()
            })
            .collect();
        got.sort_unstable();
        let mut all: Vec<u32> = qps.iter().map(|qp| qp.number).collect();
        all.sort_unstable();
        assert!(got == all, "each once");
        assert_eq!(cq.poll(), None);
    }
}

/// Starts a lab with guests 0 and 2 in VLAN 10, and guests 1 and 3 in VLAN 20.
fn in_vlans() -> Lab {
    fn address(index: u8) -> (u8, Option<u16>) {
        (index + 1, Some(if index.is_multiple_of(2) { 10 } else { 20 }))
    }
    let host_says = |index: u8, guest| {
        let vlan = if index.is_multiple_of(2) { 10 } else { 20 };
        GuestConfig { vlans: vec![vlan], untagged: false, any_vlan: false, ..guest }
    };
    Lab::with(4, LabOptions { address, host_says, ..LabOptions::default() })
}

#[test]
fn a_group_is_another_in_each_vlan() {
    let lab = in_vlans();
    let mut sides: Vec<Side> = (0..4).map(|guest| member(&lab, guest)).collect();
    for side in &sides {
        side.guest().attach_mcast(side.qp.number, group(1)).unwrap();
    }
    receives(&mut sides, 1);
    for (from, vlan, others) in [(0, 10u16, [1, 3]), (1, 20, [0, 2])] {
        let handles = AhTable::new(&lab.guests[from], 64).unwrap();
        let way = AhEntry { vlan: vlan.into(), ..to_group(sides[from].process.pd, group(1)) };
        handles.put(GROUP, &way);
        let to = target(&sides[from]);
        let request = Request::ud_send(sides[from].qp.tag(7), to, Data::Inline(b"ours"));
        sides[from].post(&request);
        for side in [from, from + 2] {
            let side = &mut sides[side];
            let wc = side.cq.expect(side.qp.number, 1, WcStatus::SUCCESS);
            assert_eq!((wc.vlan(), wc.len()), (vlan, 44));
        }
        if from == 0 {
            assert!(others.iter().all(|&side| sides[side].cq.poll().is_none()), "another VLAN");
        }
        // An address handle with another guest's VLAN is refused.
        handles.put(GROUP, &AhEntry { vlan: (30 - vlan).into(), ..way });
        let to = target(&sides[from]);
        let request = Request::ud_send(sides[from].qp.tag(8), to, Data::Inline(b"spy"));
        sides[from].post(&request.signaled(true));
        let side = &mut sides[from];
        side.cq.expect(side.qp.number, 8, WcStatus::LOC_QP_OP_ERR);
    }
}

/// Tests groups on the wire, where the test holds the remote end of the cable.
///
/// Guest 1 has the group's member. Guest 0 sends, and its netdev must receive nothing.
#[test]
fn on_the_wire_a_group_has_its_address_and_frames_from_there_come_to_members_alone() {
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let mut lab = Lab::with(2, LabOptions { cable, ..LabOptions::default() });
    let mut netdev = NetGuest::connect(&lab.net_socket(0), NetOptions::default()).expect("accepted");
    let mut sides: Vec<Side> = [0, 1].iter().map(|&guest| member(&lab, guest)).collect();
    lab.guests[1].attach_mcast(sides[1].qp.number, group(1)).unwrap();
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    handles.put(GROUP, &to_group(sides[0].process.pd, group(1)));
    receives(&mut sides, 1);
    send(&mut sides[0], 1, Data::Inline(b"out"));
    let side = &mut sides[1];
    side.cq.expect(side.qp.number, 1, WcStatus::SUCCESS);
    let (mut burst, mut frame) = (Burst::default(), None);
    let outside = lab.outside.as_mut().unwrap();
    wait::until("the packet", || {
        outside.receive(&mut burst);
        frame = burst.frames().iter().find(|frame| Packet::parse(frame).is_ok()).map(|frame| frame.to_vec());
        frame.as_ref().map(|_| ())
    });
    let frame = frame.unwrap();
    let parsed = Packet::parse(&frame).unwrap();
    parsed.check_icrc().unwrap();
    let path = parsed.packet.path;
    assert_eq!((path.dst_mac, path.dst), (Mac([1, 0, 0x5e, 1, 2, 1]), Gid(group(1))));
    assert_eq!((parsed.packet.bth.dest.number(), parsed.payload), (MEMBERS, &b"out"[..]));
    // The datagram comes back as that of another host.
    let answer = |src: Gid, dst: [u8; 16], to: Mac, qpn: u32| {
        let mut packet = parsed.packet;
        (packet.path.src, packet.path.src_mac) = (src, Mac([0x52, 0x54, 0, 0, 0, 0x99]));
        (packet.path.dst, packet.path.dst_mac) = (Gid(dst), to);
        packet.bth.dest = vrdma_wire::num::Qpn::truncate(qpn);
        packet_frame(&packet, b"back")
    };
    let (far, right) = (Gid::from_ipv4([10, 0, 0, 0x99]), Gid(group(1)).group_mac());
    let own = Mac(lab.guests[1].config.mac);
    let cases = [
        ("drop_multicast", answer(far, group(2), Gid(group(2)).group_mac(), MEMBERS)),
        ("drop_multicast", answer(far, group(1), right, sides[1].qp.number)),
        ("drop_mac", answer(far, group(1), own, MEMBERS)),
        ("drop_spoofed", answer(Gid(lab.guests[0].gid()), group(1), right, MEMBERS)),
        ("", answer(far, group(1), right, MEMBERS)),
    ];
    receives(&mut sides[1..], 2);
    for (counter, frame) in cases {
        let before = if counter.is_empty() { 0 } else { lab.stats().roce(counter) };
        let outside = lab.outside.as_mut().unwrap();
        let mut room = outside.transmit(frame.len()).expect("room");
        room.buf()[..frame.len()].copy_from_slice(&frame);
        room.commit(frame.len());
        outside.flush();
        if counter.is_empty() {
            let side = &mut sides[1];
            let wc = side.cq.expect(side.qp.number, 2, WcStatus::SUCCESS);
            assert_eq!((wc.len(), side.mr.get(40, 4)), (44, b"back".to_vec()));
        } else {
            // A datagram from outside to a group goes to all workers. Each worker without a member
            // counts it.
            let times = if counter == "drop_multicast" { lab.workers().into() } else { 1 };
            wait::until(counter, || (lab.stats().roce(counter) == before + times).then_some(()));
            assert_eq!(sides[1].cq.poll(), None, "{counter}");
        }
    }
    netdev.expect_nothing();
}

/// Builds a packet with its ICRC.
fn packet_frame(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; packet.frame_len(payload.len())];
    let head = packet.emit(payload.len(), &mut frame);
    let end = frame.len() - 4;
    frame[head..head + payload.len()].copy_from_slice(payload);
    let mut icrc = vrdma_wire::icrc::Icrc::new(&frame[..head]);
    icrc.update(&frame[head..end]);
    let icrc = icrc.finish();
    frame[end..].copy_from_slice(&icrc);
    frame
}
