//! SRQs with UC and UD QPs, and with packets.

use super::*;
use crate::tests::datagrams::to;
use crate::tests::wire::{A, B, Host, Net, datagrams, unreliable};

/// Creates two hosts with QPs in RTS, where B's QP takes its receives from an SRQ.
pub(super) fn shared_net(qp_type: QpType) -> (Net, Shared) {
    let mut net = Net::new(qp_type);
    let Host { engine, end, .. } = &mut net.hosts[B];
    let shared = Shared::new(engine, end);
    end.qpn = engine.create_qp(end.device, QpInit { qp_type, ..shared.init(end) }).unwrap();
    let net = match qp_type {
        QpType::Uc => unreliable::connected(net),
        QpType::Ud => datagrams::ready(net),
        _ => {
            net.connect(net.attr(A), net.attr(B));
            net
        }
    };
    (net, shared)
}

#[test]
fn messages_in_packets_take_their_receives_from_it() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let (mut net, shared) = shared_net(qp_type);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let length = if qp_type == QpType::Ud { 1000 } else { 10_000 };
        let data: Vec<u8> = (0..length).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        a.memory.fill(0, &data);
        for id in 1..=3 {
            let Host { engine, log, .. } = &mut net.hosts[B];
            shared.post(engine, id, 1 << 16, log).unwrap();
        }
        for id in 11..=13 {
            let payload = [a.sge(0, length)];
            match qp_type {
                QpType::Ud => net.send(id, &net.way(), SEND, Payload::Sges(&payload)),
                _ => net.post(A, id, SEND, Payload::Sges(&payload)),
            }
            net.run();
        }
        assert_eq!(net.hosts[A].statuses(), [(11, OK), (12, OK), (13, OK)]);
        assert_eq!(net.hosts[B].statuses(), [(1, OK), (2, OK), (3, OK)], "{qp_type:?}");
        for id in 1..=3u64 {
            let at = ((id << 16) + if qp_type == QpType::Ud { 40 } else { 0 }) as usize;
            assert!(shared.end.memory.bytes(at, length as usize) == data, "{qp_type:?} {id}");
        }
        assert_eq!(b.memory.bytes(0, 100), [0; 100]);
    }
}

#[test]
fn without_a_receive_packets_are_answered_by_rnr_or_dropped() {
    let (mut net, shared) = shared_net(QpType::Rc);
    net.post(A, 1, SEND, Payload::Inline(b"x"));
    net.run();
    assert_eq!(net.hosts[B].counters().rnr_naks_sent, 1);
    let Host { engine, log, .. } = &mut net.hosts[B];
    shared.post(engine, 2, 1, log).unwrap();
    assert_eq!(net.sleep(), Some(RNR));
    assert_eq!((net.hosts[A].statuses(), net.hosts[B].statuses()), (vec![(1, OK)], vec![(2, OK)]));
    for qp_type in [QpType::Uc, QpType::Ud] {
        let (mut net, _) = shared_net(qp_type);
        match qp_type {
            QpType::Ud => net.send(1, &net.way(), SEND, Payload::Inline(b"x")),
            _ => net.post(A, 1, SEND, Payload::Inline(b"x")),
        }
        net.run();
        assert_eq!(net.hosts[B].counters().drop_no_receive, 1);
    }
}

#[test]
fn unreliable_messages_on_one_host_take_their_receives_from_it() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut pair = Pair::new();
        let shared = Shared::new(&mut pair.engine, &pair.b);
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let inits = [QpInit { qp_type, ..qp_init(a.pd) }, QpInit { qp_type, ..shared.init(&b) }];
        for (end, init) in [&mut pair.a, &mut pair.b].into_iter().zip(inits) {
            end.qpn = pair.engine.create_qp(end.device, init).unwrap();
        }
        let pair = match qp_type {
            QpType::Ud => crate::tests::datagrams::ready(pair),
            _ => crate::tests::unreliable::connected(pair),
        };
        take_one_of_two(pair, &shared);
    }
}

/// Loses one message and delivers two, of which the second finds no receive.
fn take_one_of_two(mut pair: Pair, shared: &Shared) {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let request = SendRequest {
        id: 1,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(b"hi"),
    };
    let send = |pair: &mut Pair| {
        let Pair { engine, now, log, .. } = pair;
        match engine.is_datagram(a.device, a.qpn) {
            true => engine.post_datagram(*now, a.device, OWNER, a.qpn, &request, &to(&a, &b), log).unwrap(),
            false => engine.post_send(*now, a.device, OWNER, a.qpn, &request, log).unwrap(),
        }
        pair.look();
        pair.run();
    };
    send(&mut pair);
    shared.post(&mut pair.engine, 7, 100, &mut pair.log).unwrap();
    send(&mut pair);
    send(&mut pair);
    assert_eq!(pair.statuses(), [('a', 1, OK), ('b', 7, OK), ('a', 1, OK), ('a', 1, OK)]);
    assert_eq!(pair.engine.counters(b.device).drop_no_receive, 2);
}
