//! Failed operations: each status of `ibv_poll_cq(3)`, at the right end, with its events.

use super::*;
use QpState::{Err as Error_, Rts};

/// Statuses, events, and the states of both ends.
type Outcome = (Vec<(char, u32, WcStatus)>, Vec<(char, Event)>, (QpState, QpState));

/// Posts `op` from a to b, and returns the outcome.
fn outcome(pair: &mut Pair, op: SendOp, payload: Payload<'_>) -> Outcome {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, op, payload).unwrap();
    pair.run();
    (pair.statuses(), pair.events(), (pair.state(&a), pair.state(&b)))
}

/// Registers a region at `a` or `b` with these rights.
fn region(pair: &mut Pair, end: &End, pd: PdId, access: Access) -> u32 {
    pair.engine.reg_mr(end.device, pd, access, IOVA, 4096, end.memory.clone()).unwrap()
}

#[test]
fn local_protection_error_for_own_elements() {
    let stranger = |pair: &mut Pair, end: &End| {
        let pd = pair.engine.alloc_pd(end.device, OWNER).unwrap();
        region(pair, end, pd, Access::ALL)
    };
    type Spoil = fn(&End, u32) -> Sge;
    let cases: [(&str, Spoil); 5] = [
        ("no such key", |a, _| Sge { lkey: Lkey(a.key ^ 1), ..a.sge(0, 8) }),
        ("beyond the end", |a, _| a.sge((1 << 20) - 7, 8)),
        ("before the start", |a, _| Sge { addr: IOVA - 1, ..a.sge(0, 8) }),
        ("address wraps", |a, _| Sge { addr: u64::MAX, ..a.sge(0, 8) }),
        ("another PD", |a, foreign| Sge { lkey: Lkey(foreign), ..a.sge(0, 8) }),
    ];
    for (name, sge) in cases {
        for read in [false, true] {
            let mut pair = Pair::connected();
            let (a, b) = (pair.a.clone(), pair.b.clone());
            let foreign = stranger(&mut pair, &a);
            let op = if read { SendOp::Read { remote: b.remote(0) } } else { write_to(b.remote(0)) };
            // The valid element comes first. Nothing of it may arrive.
            a.memory.fill(0, b"x");
            let sges = [a.sge(0, 1), sge(&a, foreign)];
            let outcome = outcome(&mut pair, op, Payload::Sges(&sges));
            assert_eq!(outcome, (vec![('a', 1, WcStatus::LocProt)], vec![], (Error_, Rts)), "{name}");
            assert_eq!(b.memory.bytes(0, 1), [0], "{name}");
        }
    }
}

#[test]
fn local_protection_error_for_results_without_local_write() {
    for op in [
        |b: &End| SendOp::Read { remote: b.remote(0) },
        |b: &End| SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 1 }),
        |b: &End| SendOp::atomic(b.remote(0), Atomic::CompareSwap { compare: 0, swap: 1 }),
    ] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let lkey = Lkey(region(&mut pair, &a, a.pd, Access::REMOTE_READ));
        let outcome = outcome(&mut pair, op(&b), Payload::Sges(&[Sge { lkey, ..a.sge(0, 8) }]));
        assert_eq!(outcome, (vec![('a', 1, WcStatus::LocProt)], vec![], (Error_, Rts)));
        assert_eq!(b.memory.bytes(0, 8), [0; 8], "no atomic was carried out");
    }
}

#[test]
fn local_length_error_for_messages_beyond_2_31() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let sges = [a.sge(0, 1 << 30), a.sge(0, 1 << 30), a.sge(0, 1)];
    let result = outcome(&mut pair, write_to(b.remote(0)), Payload::Sges(&sges));
    assert_eq!(result.0, [('a', 1, WcStatus::LocLen)]);
    let mut pair = Pair::connected();
    let sges = [a.sge(0, u32::MAX); 8];
    assert_eq!(outcome(&mut pair, SEND, Payload::Sges(&sges)).0, [('a', 1, WcStatus::LocLen)]);
}

#[test]
fn local_length_error_for_atomics_not_of_8_bytes() {
    let mut data = [0; 16];
    data[0] = 1;
    for (kind, length) in [0, 1, 2].into_iter().flat_map(|kind| [0, 7, 9, 16].map(|length| (kind, length))) {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let (sge, remote) = ([a.sge(0, length)], b.remote(0));
        a.memory.fill(0, &data);
        let (op, payload) = match kind {
            0 => (SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }), Payload::Sges(&sge)),
            1 => (SendOp::AtomicWrite { remote }, Payload::Sges(&sge)),
            _ => (SendOp::AtomicWrite { remote }, Payload::Inline(&data[..length as usize])),
        };
        let outcome = outcome(&mut pair, op, payload);
        assert_eq!(outcome, (vec![('a', 1, WcStatus::LocLen)], vec![], (Error_, Rts)), "{kind} {length}");
        assert_eq!(b.memory.bytes(0, 16), [0; 16], "{kind} {length}");
    }
}

#[test]
fn local_protection_error_for_an_atomic_write_of_what_may_not_be_read() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    a.memory.fill(0, &[1; 8]);
    let sges = [a.sge(0, 4), Sge { lkey: Lkey(a.key ^ 0x80), ..a.sge(4, 4) }];
    let outcome = outcome(&mut pair, SendOp::AtomicWrite { remote: b.remote(0) }, Payload::Sges(&sges));
    assert_eq!(outcome, (vec![('a', 1, WcStatus::LocProt)], vec![], (Error_, Rts)));
    assert_eq!(b.memory.bytes(0, 8), [0; 8]);
}

#[test]
fn local_qp_operation_error_beyond_the_capabilities_of_the_qp() {
    let (many, long) = ([Sge::default(); 9], [0; 129]);
    for case in 0..5 {
        let mut pair = Pair::connected_with(|a| a.max_rd_atomic = if case >= 3 { 0 } else { 1 }, |_| {});
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let read = SendOp::Read { remote: b.remote(0) };
        let sge = [a.sge(0, 8)];
        let (op, payload) = match case {
            0 => (SEND, Payload::Sges(&many[..])),
            1 => (SEND, Payload::Inline(&long[..])),
            2 => (read, Payload::Inline(&long[..8])),
            3 => (read, Payload::Sges(&sge[..])),
            _ => (SendOp::AtomicWrite { remote: b.remote(0) }, Payload::Inline(&long[..8])),
        };
        let outcome = outcome(&mut pair, op, payload);
        assert_eq!(outcome, (vec![('a', 1, WcStatus::LocQpOp)], vec![], (Error_, Rts)), "{case}");
    }
}

#[test]
fn remote_access_error_for_the_peers_region() {
    type Spoil = fn(&mut Pair, &End) -> Remote;
    let cases: [(&str, Spoil); 6] = [
        ("no such key", |_, b| Remote { rkey: Rkey(b.key ^ 0x80), ..b.remote(0) }),
        ("beyond the end", |_, b| b.remote((1 << 20) - 7)),
        ("address wraps", |_, b| Remote { addr: u64::MAX - 3, ..b.remote(0) }),
        ("another PD", |pair, b| {
            let pd = pair.engine.alloc_pd(b.device, OWNER).unwrap();
            Remote { rkey: Rkey(region(pair, b, pd, Access::ALL)), ..b.remote(0) }
        }),
        ("no right", |pair, b| Remote {
            rkey: Rkey(region(pair, b, b.pd, Access::LOCAL_WRITE)),
            ..b.remote(0)
        }),
        ("deregistered", |pair, b| {
            let key = region(pair, b, b.pd, Access::ALL);
            pair.engine.dereg_mr(b.device, key).unwrap();
            Remote { rkey: Rkey(key), ..b.remote(0) }
        }),
    ];
    for (name, spoil) in cases {
        for kind in 0..5 {
            let mut pair = Pair::connected();
            let (a, b) = (pair.a.clone(), pair.b.clone());
            a.memory.fill(0, &[1; 8]);
            let remote = spoil(&mut pair, &b);
            let op = match kind {
                0 => write_to(remote),
                1 => SendOp::Read { remote },
                2 => SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }),
                3 => SendOp::atomic(remote, Atomic::CompareSwap { compare: 0, swap: 1 }),
                _ => SendOp::AtomicWrite { remote },
            };
            pair.post_recv(&b, 9, &[]).unwrap();
            let outcome = outcome(&mut pair, op, Payload::Sges(&[a.sge(0, 8)]));
            let statuses = vec![('a', 1, WcStatus::RemAccess), ('b', 9, WcStatus::Flush)];
            let events = vec![('b', Event::QpAccessError(b.qpn))];
            assert_eq!(outcome, (statuses, events, (Error_, Error_)), "{name} {kind}");
            assert!(b.memory.bytes(0, 1 << 20).iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn remote_invalid_request_for_what_the_peers_qp_does_not_allow() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
        Access::NONE,
        Access::REMOTE_WRITE,
    ];
    for (right, kind) in rights.into_iter().chain([Access::NONE]).zip(0..) {
        let mut pair = Pair::connected_with(
            |_| {},
            |b| {
                b.access = Access(Access::ALL.0 & !right.0);
                b.max_dest_rd_atomic = if [3, 5].contains(&kind) { 0 } else { 1 };
            },
        );
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let op = match kind {
            0 => write_to(b.remote(0)),
            1 | 3 => SendOp::Read { remote: b.remote(0) },
            2 => SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 1 }),
            _ => SendOp::AtomicWrite { remote: b.remote(0) },
        };
        let outcome = outcome(&mut pair, op, Payload::Sges(&[a.sge(0, 8)]));
        let events = vec![('b', Event::QpRequestError(b.qpn))];
        assert_eq!(outcome, (vec![('a', 1, WcStatus::RemInvReq)], events, (Error_, Error_)), "{kind}");
    }
}

#[test]
fn remote_invalid_request_for_unaligned_atomics() {
    for write in [false, true] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        a.memory.fill(0, &[1; 8]);
        let remote = b.remote(4);
        let op = if write {
            SendOp::AtomicWrite { remote }
        } else {
            SendOp::atomic(remote, Atomic::FetchAdd { add: 1 })
        };
        let outcome = outcome(&mut pair, op, Payload::Sges(&[a.sge(0, 8)]));
        let events = vec![('b', Event::QpRequestError(b.qpn))];
        assert_eq!(outcome, (vec![('a', 1, WcStatus::RemInvReq)], events, (Error_, Error_)));
        assert_eq!(b.memory.bytes(0, 16), [0; 16]);
    }
}

#[test]
fn remote_invalid_request_where_path_mtus_differ() {
    let mut pair = Pair::connected_with(|a| a.path_mtu = Mtu::M4096, |_| {});
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 0, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1024)])).unwrap();
    assert_eq!(pair.completion().status, WcStatus::Success);
    let outcome = outcome(&mut pair, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1025)]));
    assert_eq!(outcome.0, [('a', 1, WcStatus::RemInvReq)]);
}

#[test]
fn a_send_longer_than_the_receive_is_a_local_length_error_there() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 8, &[b.sge(0, 4), b.sge(100, 3)]).unwrap();
    pair.post_recv(&b, 9, &[]).unwrap();
    let outcome = outcome(&mut pair, SEND, Payload::Sges(&[a.sge(0, 8)]));
    let statuses = vec![('b', 8, WcStatus::LocLen), ('a', 1, WcStatus::RemInvReq), ('b', 9, WcStatus::Flush)];
    assert_eq!(outcome, (statuses, vec![], (Error_, Error_)));
}

#[test]
fn a_receive_with_a_wrong_key_is_a_local_protection_error_there() {
    for spoil in [0, 1, 2] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let sge = match spoil {
            0 => Sge { lkey: Lkey(1), ..b.sge(0, 8) },
            1 => b.sge((1 << 20) - 4, 8),
            _ => Sge { lkey: Lkey(region(&mut pair, &b, b.pd, Access::REMOTE_READ)), ..b.sge(0, 8) },
        };
        pair.post_recv(&b, 8, &[sge]).unwrap();
        let outcome = outcome(&mut pair, SEND, Payload::Sges(&[a.sge(0, 8)]));
        let statuses = vec![('b', 8, WcStatus::LocProt), ('a', 1, WcStatus::RemOp)];
        assert_eq!(outcome, (statuses, vec![], (Error_, Error_)), "{spoil}");
    }
}

#[test]
fn vanished_memory_is_a_protection_error_at_home_and_an_operational_one_abroad() {
    let own = [0, 1, 2, 4].map(|kind| (true, kind));
    for (own, kind) in own.into_iter().chain([0, 1, 2, 3, 4].map(|kind| (false, kind))) {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        if own {
            a.memory.vanish()
        } else {
            b.memory.vanish()
        }
        let remote = b.remote(0);
        let op = match kind {
            0 => write_to(remote),
            1 => SendOp::Read { remote },
            2 => SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }),
            3 => SEND,
            _ => SendOp::AtomicWrite { remote },
        };
        if kind == 3 {
            pair.post_recv(&b, 9, &[b.sge(0, 8)]).unwrap();
        }
        let outcome = outcome(&mut pair, op, Payload::Sges(&[a.sge(0, 8)]));
        let (statuses, events, b_state) = match (own, kind) {
            (true, _) => (vec![('a', 1, WcStatus::LocProt)], vec![], Rts),
            (false, 3) => (vec![('b', 9, WcStatus::LocProt), ('a', 1, WcStatus::RemOp)], vec![], Error_),
            (false, _) => (vec![('a', 1, WcStatus::RemOp)], vec![('b', Event::QpFatal(b.qpn))], Error_),
        };
        assert_eq!(outcome, (statuses, events, (Error_, b_state)), "{own} {kind}");
    }
}

#[test]
fn after_an_error_everything_is_flushed_in_order_and_so_is_what_comes_later() {
    let mut pair = Pair::connected_with(|a| a.rnr_retry = 7, |_| {});
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&a, 30, &[]).unwrap();
    pair.post_recv(&a, 31, &[]).unwrap();
    pair.post(&a, 1, SEND, Payload::Inline(b"waits for a receive")).unwrap();
    pair.post(&a, 2, write_to(Remote::default()), Payload::Sges(&[a.sge(0, 8)])).unwrap();
    pair.post(&a, 3, SEND, Payload::Sges(&[a.sge(0, 8)])).unwrap();
    pair.post(&a, 4, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8)])).unwrap();
    assert_eq!(pair.statuses(), []);
    pair.post_recv(&b, 20, &[b.sge(0, 100)]).unwrap();
    pair.run();
    let expected = [
        ('b', 20, WcStatus::Success),
        ('a', 1, WcStatus::Success),
        ('a', 2, WcStatus::RemAccess),
        ('a', 3, WcStatus::Flush),
        ('a', 4, WcStatus::Flush),
        ('a', 30, WcStatus::Flush),
        ('a', 31, WcStatus::Flush),
    ];
    assert_eq!(pair.statuses(), expected);
    pair.post(&a, 5, SEND, Payload::Inline(b"")).unwrap();
    pair.post_recv(&a, 32, &[]).unwrap();
    pair.engine.post_invalid(pair.now, a.device, OWNER, a.qpn, 6, Queue::Send, &mut pair.log).unwrap();
    pair.engine.post_invalid(pair.now, a.device, OWNER, a.qpn, 33, Queue::Recv, &mut pair.log).unwrap();
    let ids: Vec<_> = pair.statuses().iter().map(|s| (s.1, s.2)).collect();
    assert_eq!(ids, [5, 32, 6, 33].map(|id| (id, WcStatus::Flush)));
    assert_eq!(pair.sleep(), None);
    assert_eq!(pair.engine.counts(a.device).pending_sends, 0);
}

#[test]
fn requests_that_cannot_be_understood_end_in_order_as_local_qp_operation_errors() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"first")).unwrap();
    pair.engine.post_invalid(pair.now, a.device, OWNER, a.qpn, 2, Queue::Send, &mut pair.log).unwrap();
    pair.post(&a, 3, SEND, Payload::Inline(b"third")).unwrap();
    assert_eq!(pair.statuses(), []);
    pair.post_recv(&b, 20, &[b.sge(0, 100)]).unwrap();
    pair.run();
    let statuses: Vec<_> = pair.statuses().into_iter().filter(|s| s.0 == 'a').collect();
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocQpOp), (3, WcStatus::Flush)];
    assert_eq!(statuses, expected.map(|(id, status)| ('a', id, status)));
    pair.post_recv(&b, 21, &[]).unwrap();
    pair.engine.post_invalid(pair.now, b.device, OWNER, b.qpn, 22, Queue::Recv, &mut pair.log).unwrap();
    assert_eq!(pair.statuses(), [('b', 21, WcStatus::Flush), ('b', 22, WcStatus::LocQpOp)]);
    assert_eq!(pair.state(&b), Error_);
}

#[test]
fn a_receive_with_too_many_elements_is_a_local_qp_operation_error() {
    let mut pair = Pair::connected();
    let b = pair.b.clone();
    pair.post_recv(&b, 21, &[Sge::default(); 9]).unwrap();
    assert_eq!(pair.statuses(), [('b', 21, WcStatus::LocQpOp)]);
}

#[test]
fn an_overflow_of_either_queue_is_fatal_to_the_qp() {
    for sends in [true, false] {
        let mut pair = Pair::connected();
        let a = pair.a.clone();
        let post = |pair: &mut Pair, id| match sends {
            true => pair.post(&a, id, SEND, Payload::Sges(&[])),
            false => pair.post_recv(&a, id, &[]),
        };
        for id in 0..16 {
            post(&mut pair, id).unwrap();
        }
        assert_eq!(post(&mut pair, 16), Err(PostError::Overflow));
        let expected: Vec<_> = (0..16).map(|id| ('a', id, WcStatus::Flush)).collect();
        assert_eq!(pair.statuses(), expected);
        assert_eq!(pair.events(), [('a', Event::QpFatal(a.qpn))]);
        assert_eq!(pair.engine.counters(a.device).post_overflow, 1);
    }
}

#[test]
fn a_failed_cq_takes_its_qps_to_error() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let other = QpInit { send_cq: CqId(99), recv_cq: CqId(99), ..qp_init(a.pd) };
    let other = pair.engine.create_qp(a.device, other).unwrap();
    pair.post_recv(&a, 5, &[]).unwrap();
    pair.cq_failed(a.device, RECV_CQ);
    assert_eq!(pair.statuses(), [('a', 5, WcStatus::Flush)]);
    assert_eq!(pair.events(), [('a', Event::QpFatal(a.qpn))]);
    assert_eq!((pair.state(&a), pair.state(&b)), (Error_, Rts));
    assert_eq!(pair.engine.query_qp(a.device, other).unwrap().state, QpState::Reset);
    pair.cq_failed(a.device, SEND_CQ);
    assert_eq!(pair.events(), []);
}

#[test]
fn a_region_that_goes_in_mid_message_is_never_touched_again() {
    for own in [true, false] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        a.memory.fill(0, &[7; 1 << 20]);
        pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
        assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
        let end = if own { &a } else { &b };
        pair.engine.dereg_mr(end.device, end.key).unwrap();
        end.memory.vanish();
        pair.run();
        let status = if own { WcStatus::LocProt } else { WcStatus::RemAccess };
        assert_eq!(pair.statuses(), [('a', 1, status)]);
        let arrived = b.memory.bytes(0, 1 << 20).iter().filter(|byte| **byte == 7).count();
        assert_eq!(arrived, 256 << 10);
    }
}
