//! Connections whose address vector changes during work.
//!
//! Work that was started for one transport kind is not done by the other.

use super::*;

/// Sets an address vector to `dgid`, in SQD.
fn lead_to(pair: &mut Pair, end: &End, sgid_index: u8, dgid: Gid) {
    pair.go(end, QpState::Sqd);
    let attr = QpAttr { dgid, sgid_index, ..attr_to(&pair.a) };
    pair.modify(end, AttrMask::AV, attr).unwrap();
}

/// Creates two QPs in RTS on one engine, which also has a port.
fn connected_beside_a_port() -> Pair {
    let mut pair = Pair::new();
    pair.engine.set_link(true);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.connect(&a, attr_to(&b), QpState::Rts);
    pair.connect(&b, attr_to(&a), QpState::Rts);
    pair
}

/// Returns the packets that the port of `pair` has to send, at most `most`.
fn packets(pair: &mut Pair, most: usize) -> Vec<Packet> {
    let mut cable = Cable { room: Some(most), ..Cable::default() };
    pair.engine.transmit(pair.now, usize::MAX, &mut cable, &mut pair.log);
    cable.frames.iter().map(|frame| parse(frame)).collect()
}

const LONG: u32 = 100_000;
const ELSEWHERE: Gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);

#[test]
fn a_request_that_was_ready_here_leaves_by_the_port_once_its_peer_is_elsewhere() {
    let mut pair = connected_beside_a_port();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let own = [a.sge(0, LONG)];
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&own)).unwrap();
    lead_to(&mut pair, &a, 0, ELSEWHERE);
    pair.go(&a, QpState::Rts);
    // A guest of this host may have the address by then, and answer from there.
    pair.engine.set_gid(b.device, 1, Some(ELSEWHERE.into())).unwrap();
    lead_to(&mut pair, &b, 1, a.gid);
    pair.go(&b, QpState::Rts);
    pair.run();
    assert_eq!(pair.statuses(), [], "its peer is not here");
    assert_eq!(b.memory.bytes(0, 8), [0; 8]);
    let sent = packets(&mut pair, 4);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|packet| packet.path.dst == ELSEWHERE && packet.bth.dest == b.qpn));
}

#[test]
fn a_request_that_was_due_at_the_port_is_carried_here_once_its_peer_is_here() {
    let mut pair = connected_beside_a_port();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    lead_to(&mut pair, &a, 0, ELSEWHERE);
    pair.go(&a, QpState::Rts);
    let own = [a.sge(0, LONG)];
    a.memory.fill(0, &[7; 8]);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&own)).unwrap();
    lead_to(&mut pair, &a, 0, b.gid);
    pair.go(&a, QpState::Rts);
    assert_eq!(packets(&mut pair, 4).len(), 0, "its peer is here");
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(0, 8), [7; 8]);
    assert_eq!(packets(&mut pair, 4).len(), 0);
}

#[test]
fn what_was_begun_in_packets_goes_on_when_the_address_vector_comes_back() {
    let mut net = Net::connected();
    let own = [net.hosts[A].end.sge(0, 3000)];
    net.hosts[A].end.memory.fill(0, &[5; 3000]);
    net.post(A, 1, write_to(net.hosts[B].end.remote(0)), Payload::Sges(&own));
    // The first packet arrives, the others are lost.
    let mut taken = 0;
    net.work(A);
    net.carry(A, |_, _| {
        taken += 1;
        taken == 1
    });
    let (now, peer) = (net.now, net.hosts[A].end.clone());
    let peer_mac = net.hosts[A].mac;
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    let remote = QpAttr { dmac: peer_mac, hop_limit: 64, ..attr_to(&peer) };
    let mut change = |mask, attr: QpAttr| {
        engine.modify_qp(now, end.device, end.qpn, mask, &attr, log).unwrap();
    };
    for dgid in [end.gid, peer.gid] {
        change(AttrMask::STATE, QpAttr { state: QpState::Sqd, ..remote });
        change(AttrMask::AV, QpAttr { dgid, ..remote });
        change(AttrMask::STATE, QpAttr { state: QpState::Rts, ..remote });
    }
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.hosts[B].end.memory.bytes(0, 3000), [5; 3000]);
}
