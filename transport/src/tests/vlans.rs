//! Equal addresses in several VLANs.

use super::wire::{A, B, Host, Net, parse};
use super::*;
use crate::GidEntry;
use crate::tests::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD, to};
use crate::verbs::request::Destination;
use vrdma_wire::num::{VlanId, VlanTag};

const X: Gid = Gid([7; 16]);
const Y: Gid = Gid([8; 16]);

fn entry(gid: Gid, vlan: u16) -> GidEntry {
    GidEntry { gid, vlan: VlanId::new(vlan).unwrap() }
}

/// Adds a device with this GID in this VLAN, and a QP in RESET.
fn device(pair: &mut Pair, gid: Gid, vlan: u16) -> End {
    let engine = &mut pair.engine;
    let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
    engine.set_gid(device, 0, Some(entry(gid, vlan))).unwrap();
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let memory = Mem::new(1 << 12);
    let key = engine.reg_mr(device, pd, Access::ALL, IOVA, 1 << 12, memory.clone()).unwrap();
    let qpn = engine.create_qp(device, qp_init(pd)).unwrap();
    End { device, pd, qpn, gid, memory, key }
}

#[test]
fn an_address_belongs_to_one_device_in_each_vlan() {
    let Pair { mut engine, a, b, .. } = Pair::new();
    assert_eq!(engine.set_gid(a.device, 1, Some(entry(X, 10))), Ok(()));
    assert_eq!(engine.set_gid(b.device, 1, Some(entry(X, 20))), Ok(()));
    assert_eq!(engine.set_gid(b.device, 2, Some(entry(X, 10))), Err(Error::Denied));
    assert_eq!(engine.set_gid(b.device, 2, Some(X.into())), Ok(()));
    assert_eq!(engine.gid(b.device, 1), Ok(entry(X, 20)));
    assert_eq!(engine.gid(b.device, 2), Ok(entry(X, 0)));
    engine.reset_device(a.device);
    assert_eq!(engine.set_gid(b.device, 3, Some(entry(X, 10))), Ok(()));
}

#[test]
fn connections_of_one_host_stay_in_their_vlan() {
    let mut pair = Pair::new();
    let [x10, y10, x20, y20] =
        [(X, 10), (Y, 10), (X, 20), (Y, 20)].map(|(gid, vlan)| device(&mut pair, gid, vlan));
    for (one, other, vlan) in [(&x10, &y10, 10), (&y10, &x10, 10), (&x20, &y20, 20), (&y20, &x20, 20)] {
        pair.connect(one, QpAttr { vlan: Some(vlan), ..attr_to(other) }, QpState::Rts);
    }
    for (from, to, text) in [(&x10, &y10, b"ten"), (&x20, &y20, b"two"), (&y20, &x20, b"XX!")] {
        pair.post(from, 1, write_to(to.remote(0)), Payload::Inline(text)).unwrap();
        pair.run();
        assert_eq!(pair.completion().status, WcStatus::Success);
        assert_eq!(to.memory.bytes(0, 3), text);
    }
    assert_eq!((x10.memory.bytes(0, 3), x20.memory.bytes(0, 3)), (vec![0; 3], b"XX!".to_vec()));
}

#[test]
fn a_queue_pair_in_another_vlan_is_no_peer() {
    // B has its address in both VLANs, and its QP is in the VLAN that A's QP is not in.
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for end in [&a, &b] {
        for (index, vlan) in [(1, 10), (2, 20)] {
            // Peers of A and B also know them by their untagged addresses.
            pair.engine.set_gid(end.device, index, Some(entry(end.gid, vlan))).unwrap();
        }
    }
    let attr = |peer: &End, sgid_index, vlan| QpAttr { sgid_index, vlan: Some(vlan), ..attr_to(peer) };
    pair.connect(&a, attr(&b, 1, 10), QpState::Rts);
    pair.connect(&b, attr(&a, 2, 20), QpState::Rts);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    while pair.sleep().is_some() {}
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc)]);
    assert_eq!(pair.engine.counters(b.device).drop_not_connected, 3);
    assert_eq!(b.memory.bytes(0, 1), [0]);
}

#[test]
fn an_address_vector_is_in_the_vlan_of_its_own_address() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_gid(a.device, 1, Some(entry(X, 10))).unwrap();
    pair.connect(&a, attr_to(&b), QpState::Init);
    for (sgid_index, vlan, allowed) in
        [(0, Some(10), false), (1, None, false), (1, Some(20), false), (2, None, false), (1, Some(10), true)]
    {
        let attr = QpAttr { state: QpState::Rtr, sgid_index, vlan, ..attr_to(&b) };
        assert_eq!(pair.modify(&a, TO_RTR, attr).is_ok(), allowed, "{sgid_index} {vlan:?}");
    }
    assert_eq!(pair.engine.query_qp(a.device, a.qpn).unwrap().vlan, Some(10));
}

/// Creates two connected QPs in RTS, both in VLAN 10. B also has its address in VLAN 20.
fn connected_in_10() -> Net {
    let mut net = Net::new(QpType::Rc);
    for at in [A, B] {
        let Host { engine, end, .. } = &mut net.hosts[at];
        engine.set_gid(end.device, 0, Some(entry(end.gid, 10))).unwrap();
        engine.set_gid(end.device, 1, Some(entry(end.gid, 20))).unwrap();
    }
    let [a, b] = [B, A].map(|peer| {
        let peer = &net.hosts[peer];
        QpAttr { dmac: peer.mac, vlan: Some(10), sl: 5, ..attr_to(&peer.end) }
    });
    net.connect(a, b);
    net
}

#[test]
fn packets_have_the_marks_of_their_device_instead_of_what_the_program_asks_for() {
    let mut net = connected_in_10();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let id = VlanId::new(10).unwrap();
    for (marks, class, priority) in [
        (Marks::default(), 0, 5),
        (Marks { dscp: Some(46), pcp: None }, 46 << 2, 5),
        (Marks { dscp: None, pcp: Some(3) }, 0, 3),
    ] {
        net.hosts[A].engine.set_marks(a.device, marks).unwrap();
        net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"mark"));
        net.work(A);
        let path = parse(&net.hosts[A].cable.frames[0]).path;
        assert_eq!((path.traffic_class, path.vlan), (class, Some(VlanTag::new(id, priority))));
        // The peer's own packets have their own.
        net.carry(A, |_, _| true);
        net.work(B);
        let path = parse(&net.hosts[B].cable.frames[0]).path;
        assert_eq!((path.traffic_class, path.vlan), (0, Some(VlanTag::new(id, 5))));
        net.carry(B, |_, _| true);
    }
}

#[test]
fn packets_have_the_tag_of_their_vlan_and_are_taken_in_no_other() {
    let mut net = connected_in_10();
    let b = net.hosts[B].end.clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"tag!"));
    net.work(A);
    let tag = VlanTag::new(VlanId::new(10).unwrap(), 5);
    assert_eq!(parse(&net.hosts[A].cable.frames[0]).path.vlan, Some(tag));
    // The same packet with other tags. B has the address in VLAN 20 for other QPs, and neither in
    // VLAN 30 nor untagged.
    let good = net.hosts[A].cable.frames[0].clone();
    for (tag, counter) in [
        (Some([0, 20]), "drop_source"),
        (Some([0xa0, 20]), "drop_source"),
        (Some([0, 30]), "drop_vlan"),
        (Some([0, 0]), "drop_vlan"),
        (Some([0x0f, 0xff]), "drop_vlan"),
        (None, "drop_vlan"),
    ] {
        let mut frame = good.clone();
        match tag {
            Some(tag) => frame[14..16].copy_from_slice(&tag),
            None => drop(frame.drain(12..16)),
        }
        let count = |net: &Net| {
            let host = &net.hosts[B];
            let all = host.counters().iter().chain(host.engine.port_counters().iter());
            all.filter(|(name, _)| *name == counter).map(|(_, count)| count).sum::<u64>()
        };
        let before = count(&net);
        net.deliver(A, &frame);
        assert_eq!(count(&net), before + 1, "{tag:?}: {counter}");
        assert_eq!((net.answers(B), b.memory.bytes(0, 4)), (vec![], vec![0; 4]), "{tag:?}");
    }
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(0, 4), b"tag!");
}

#[test]
fn an_own_address_is_a_stranger_s_in_another_vlan() {
    // In VLAN 10, A has the address that B has in VLAN 20. B must not take A for a forger of it.
    let mut net = Net::new(QpType::Rc);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for at in [A, B] {
        let Host { engine, end, .. } = &mut net.hosts[at];
        engine.set_gid(end.device, 0, Some(entry(end.gid, 10))).unwrap();
    }
    net.hosts[B].engine.set_gid(b.device, 1, Some(entry(a.gid, 20))).unwrap();
    let [to_b, to_a] = [B, A].map(|peer| {
        let peer = &net.hosts[peer];
        QpAttr { dmac: peer.mac, vlan: Some(10), ..attr_to(&peer.end) }
    });
    net.connect(to_b, to_a);
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"mine"));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.hosts[B].engine.port_counters().drop_spoofed, 0);
}

#[test]
fn a_datagram_is_in_the_vlan_of_its_own_address() {
    let mut net = Net::new(QpType::Ud);
    for own in [A, B] {
        let attr = QpAttr { port: 1, qkey: QKEY, ..QpAttr::default() };
        for (state, mask) in
            [(QpState::Init, TO_INIT_UD), (QpState::Rtr, AttrMask::STATE), (QpState::Rts, TO_RTS_UD)]
        {
            net.hosts[own].modify(net.now, mask, QpAttr { state, ..attr });
        }
        let Host { engine, end, .. } = &mut net.hosts[own];
        engine.set_gid(end.device, 1, Some(entry(end.gid, 10))).unwrap();
    }
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let way = Destination { dmac: net.hosts[B].mac, ..to(&a, &b) };
    let send = |net: &mut Net, to: Destination| {
        let Host { engine, end, log, .. } = &mut net.hosts[A];
        let payload = Payload::Inline(b"hi");
        let request =
            SendRequest { id: 1, signaled: true, solicited: false, fence: false, op: SEND, payload };
        engine.post_datagram(net.now, end.device, OWNER, end.qpn, &request, &to, log).unwrap();
        net.work(A);
    };
    for (sgid_index, vlan, tag) in [(0, None, None), (1, Some(10), Some(10))] {
        net.post_recv(B, 9, &[b.sge(0, 64)]);
        send(&mut net, Destination { sgid_index, vlan, ..way });
        let path = parse(&net.hosts[A].cable.frames[0]).path;
        assert_eq!(path.vlan.map(|tag| tag.id().number()), tag);
        net.run();
        let arrival = net.hosts[B].log.completions.remove(0).2.arrival.unwrap();
        assert_eq!(arrival.vlan, tag);
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    }
    // A tag that carries only a priority names no VLAN.
    net.post_recv(B, 9, &[b.sge(0, 64)]);
    send(&mut net, way);
    let mut frame = net.hosts[A].cable.frames.pop_back().unwrap();
    frame.splice(12..12, [0x81, 0x00, 0xe0, 0x00]);
    net.deliver(A, &frame);
    assert_eq!(net.hosts[B].log.completions.remove(0).2.arrival.unwrap().vlan, None);
    net.hosts[A].statuses();
    for (sgid_index, vlan) in [(0, Some(10)), (1, None), (1, Some(20))] {
        send(&mut net, Destination { sgid_index, vlan, ..way });
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::LocQpOp)], "{sgid_index} {vlan:?}");
        let now = net.now;
        net.hosts[A].modify(now, AttrMask::STATE, QpAttr { state: QpState::Rts, ..QpAttr::default() });
    }
}
