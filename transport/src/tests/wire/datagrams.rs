//! Datagrams with packets.

use super::*;
use crate::tests::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD, to};
use QpState::{Err, Rts, Sqe};
use vrdma_wire::entropy::connection_source_port;
use vrdma_wire::num::{FlowLabel, Imm, Pkey, Qkey, VlanId};
use vrdma_wire::roce::Body;

const OK: WcStatus = WcStatus::Success;

pub(crate) fn ud() -> Net {
    ready(Net::new(QpType::Ud))
}

/// Changes the state of both QPs, which are in RESET, to RTS.
pub(crate) fn ready(mut net: Net) -> Net {
    for own in [A, B] {
        let attr = QpAttr { port: 1, qkey: QKEY, sq_psn: Psn::truncate(0xff_ffff), ..QpAttr::default() };
        for (state, mask) in [(QpState::Init, TO_INIT_UD), (QpState::Rtr, AttrMask::STATE), (Rts, TO_RTS_UD)]
        {
            net.hosts[own].modify(net.now, mask, QpAttr { state, ..attr });
        }
    }
    net
}

impl Net {
    /// Returns the destination of A's datagrams to B.
    pub(crate) fn way(&self) -> Destination {
        let [a, b] = &self.hosts;
        Destination { dmac: b.mac, ..to(&a.end, &b.end) }
    }

    pub(crate) fn send(&mut self, id: u32, to: &Destination, op: SendOp, payload: Payload<'_>) {
        let Host { engine, end, log, .. } = &mut self.hosts[A];
        let request = SendRequest { id, signaled: true, solicited: true, fence: false, op, payload };
        engine.post_datagram(self.now, end.device, OWNER, end.qpn, &request, to, log).unwrap();
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let host = &self.hosts[B];
        let counters = host.counters().iter().chain(host.engine.port_counters().iter());
        counters.filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect()
    }
}

#[test]
fn a_datagram_is_a_packet_with_all_that_its_handle_says() {
    let mut net = ud();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    a.memory.fill(0, b"datagram");
    net.post_recv(B, 9, &[b.sge(0, 30), b.sge(30, 18)]);
    let vlan = VlanId::new(5).unwrap();
    for host in &mut net.hosts {
        let gid = host.end.gid;
        host.engine.set_gid(host.end.device, 1, Some(GidEntry { gid, vlan })).unwrap();
    }
    let way = Destination { sgid_index: 1, vlan: Some(5), sl: 3, ..net.way() };
    net.send(1, &way, SendOp::Send { imm }, Payload::Sges(&[a.sge(0, 5), a.sge(5, 3)]));
    assert_eq!(net.hosts[A].statuses(), [], "it waits for its turn");
    assert!(net.hosts[A].engine.is_sending(a.device, a.qpn));
    net.work(A);
    assert_eq!(net.hosts[A].statuses(), [(1, OK)]);
    assert!(!net.hosts[A].engine.is_sending(a.device, a.qpn));
    let frame = net.hosts[A].cable.frames[0].clone();
    let parsed = Packet::parse(&frame).unwrap();
    let (path, bth) = (parsed.packet.path, parsed.packet.bth);
    assert_eq!(
        (path.src, path.dst, path.src_mac, path.dst_mac),
        (a.gid, b.gid, net.hosts[A].mac, net.hosts[B].mac)
    );
    assert_eq!((path.hop_limit, path.traffic_class), (9, 0x68));
    let tag = path.vlan.unwrap();
    assert_eq!((tag.id().number(), tag.priority()), (5, 3));
    assert_eq!(path.src_port, connection_source_port(FlowLabel::truncate(0xabcde), a.qpn, b.qpn));
    assert_eq!((bth.dest, bth.psn, bth.pkey), (b.qpn, Psn::truncate(0xff_ffff), Pkey::DEFAULT));
    assert!(bth.solicited && !bth.ack_req);
    let Body::Ud { deth, imm: with } = parsed.packet.body else { panic!() };
    assert_eq!((deth.qkey, deth.src, with), (QKEY, a.qpn, imm));
    net.run();
    let received = net.hosts[B].log.completions.remove(0).2;
    assert_eq!((received.id, received.byte_len, received.imm, received.src_qpn), (9, 48, imm, a.qpn));
    assert_eq!(received.arrival, Some(Arrival { smac: net.hosts[A].mac, vlan: Some(5) }));
    let got = b.memory.bytes(0, 48);
    assert_eq!((&got[20..40], &got[40..]), (&frame[18..38], &b"datagram"[..]));
    // A source port that the sender chose, and the next PSN.
    let way = Destination { udp_sport: 0xc123, ..net.way() };
    net.send(2, &way, SEND, Payload::Inline(b""));
    net.work(A);
    let parsed = Packet::parse(&net.hosts[A].cable.frames[0]).unwrap().packet;
    assert_eq!((parsed.path.src_port, parsed.path.vlan, parsed.bth.psn), (0xc123, None, Psn::default()));
}

#[test]
fn a_datagram_of_a_limited_member_is_taken() {
    for (pkey, is_taken) in [(0x7fff, true), (0x7ffe, false), (0, false)] {
        let mut net = ud();
        let b = net.hosts[B].end.clone();
        net.post_recv(B, 9, &[b.sge(0, 48)]);
        net.send(1, &net.way(), SEND, Payload::Inline(b"datagram"));
        net.work(A);
        let mut packet = Packet::parse(&net.hosts[A].cable.frames[0]).unwrap().packet;
        packet.bth.pkey = Pkey(pkey);
        net.inject(A, &packet, b"datagram");
        let (ended, dropped) = match is_taken {
            true => (vec![(9, OK)], vec![]),
            false => (vec![], vec![("drop_pkey", 1)]),
        };
        assert_eq!((net.hosts[B].statuses(), net.dropped()), (ended, dropped), "{pkey:#x}");
    }
}

#[test]
fn the_header_before_the_data_is_the_same_on_both_ways() {
    let mut net = ud();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    // A's datagram to its own QP takes the local path.
    net.post_recv(B, 1, &[b.sge(0, 4200)]);
    let data = vec![0x77; 4096];
    a.memory.fill(0, &data);
    net.send(2, &net.way(), SEND, Payload::Sges(&[a.sge(0, 4096)]));
    net.run();
    net.post_recv(A, 3, &[a.sge(8192, 4200)]);
    let to_self = Destination { dgid: a.gid, qpn: a.qpn, ..net.way() };
    net.send(4, &to_self, SEND, Payload::Sges(&[a.sge(0, 4096)]));
    net.run();
    assert_eq!(net.hosts[B].statuses(), [(1, OK)]);
    assert_eq!(net.hosts[A].statuses(), [(2, OK), (3, OK), (4, OK)]);
    let (wire, local) = (b.memory.bytes(0, 4136), a.memory.bytes(8192, 4136));
    // Equal except for checksum and destination.
    assert_eq!((&wire[..30], &wire[32..36]), (&local[..30], &local[32..36]));
    assert_eq!((wire[39], local[39], &wire[40..]), (2, 1, &local[40..]));
}

#[test]
fn what_cannot_be_taken_is_dropped_and_counted() {
    type Spoil = fn(&mut Net, &mut Destination);
    let cases: [(&str, Spoil); 7] = [
        ("drop_no_receive", |_, _| {}),
        ("drop_length", |net, _| net.post_recv(B, 1, &[net.hosts[B].end.sge(0, 41)])),
        ("drop_qkey", |_, to| to.qkey = Qkey(1)),
        ("drop_no_qp", |_, to| to.qpn = Qpn::GSI),
        ("drop_state", |net, _| {
            net.hosts[B].modify(net.now, AttrMask::STATE, QpAttr { state: Err, ..QpAttr::default() });
        }),
        ("drop_mac", |net, to| to.dmac = net.hosts[A].mac),
        ("drop_no_device", |_, to| to.dgid = Gid::from_ipv4([10, 0, 0, 3])),
    ];
    for (counter, spoil) in cases {
        let mut net = ud();
        let mut way = net.way();
        spoil(&mut net, &mut way);
        net.send(1, &way, SEND, Payload::Inline(b"hi"));
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(1, OK)]);
        assert_eq!((net.dropped(), net.hosts[B].statuses()), (vec![(counter, 1)], vec![]));
    }
}

#[test]
fn multicast_leaves_and_nobody_here_takes_it() {
    let mut net = ud();
    let group =
        Destination { dgid: Gid::from_ipv4([224, 0, 0, 5]), dmac: Mac([1, 0, 0x5e, 0, 0, 5]), ..net.way() };
    let group = Destination { qpn: Qpn::new(0xff_ffff).unwrap(), ..group };
    net.send(1, &group, SEND, Payload::Inline(b"all"));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].counters().packets_out), (vec![(1, OK)], 1));
    assert_eq!(net.dropped(), [("drop_multicast", 1)]);
}

#[test]
fn datagrams_stay_in_order_whichever_way_they_go() {
    let mut net = ud();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let to_self = Destination { dgid: a.gid, qpn: a.qpn, ..net.way() };
    for id in 0..10 {
        net.post_recv(A, 100 + id, &[a.sge(0, 100)]);
        net.post_recv(B, 100 + id, &[b.sge(0, 100)]);
    }
    net.hosts[A].cable.room = Some(3);
    for id in 0..10 {
        let way = if id % 2 == 0 { net.way() } else { to_self };
        net.send(id, &way, SEND, Payload::Inline(&[id as u8]));
    }
    net.work(A);
    let ended = |net: &mut Net| -> Vec<u32> {
        net.hosts[A].statuses().into_iter().map(|(id, _)| id).filter(|id| *id < 100).collect()
    };
    assert_eq!(ended(&mut net), [0, 1, 2, 3, 4, 5], "6 needs a fourth packet");
    net.hosts[A].cable.room = None;
    net.run();
    assert_eq!(ended(&mut net), [6, 7, 8, 9]);
    assert_eq!(net.hosts[B].statuses(), (100..105).map(|id| (id, OK)).collect::<Vec<_>>());
}

#[test]
fn what_is_queued_ends_while_the_link_is_down_or_is_flushed() {
    let mut net = ud();
    net.hosts[A].engine.set_link(false);
    net.send(1, &net.way(), SEND, Payload::Inline(b"lost"));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].cable.frames.len()), (vec![(1, OK)], 0));
    net.hosts[A].engine.set_link(true);
    net.hosts[A].cable.room = Some(0);
    let way = net.way();
    for id in [2, 3] {
        net.send(id, &way, SEND, Payload::Inline(b"waits"));
    }
    net.work(A);
    net.hosts[A].modify(net.now, AttrMask::STATE, QpAttr { state: Err, ..QpAttr::default() });
    net.send(4, &way, SEND, Payload::Inline(b"late"));
    let flushed = [2, 3, 4].map(|id| (id, WcStatus::Flush));
    assert_eq!(net.hosts[A].statuses(), flushed);
    net.hosts[A].cable.room = None;
    net.run();
    assert_eq!(net.hosts[A].counters().packets_out, 1, "the one that was lost");
}

#[test]
fn memory_that_is_gone_stops_the_send_queue() {
    let mut net = ud();
    let a = net.hosts[A].end.clone();
    let way = net.way();
    a.memory.vanish();
    net.send(1, &way, SEND, Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.hosts[A].state()), (vec![(1, WcStatus::LocProt)], Sqe));
    assert_eq!(net.hosts[A].cable.frames.len(), 0);
}
