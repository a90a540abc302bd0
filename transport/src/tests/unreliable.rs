//! UC connections between QPs of one engine.

use super::*;
use QpState::{Err, Rts, Sqd, Sqe};
use vrdma_wire::num::Imm;

pub(crate) const CONNECT: AttrMask = AttrMask::STATE
    .with(AttrMask::AV)
    .with(AttrMask::PATH_MTU)
    .with(AttrMask::DEST_QPN)
    .with(AttrMask::RQ_PSN);

/// Creates two UC QPs, and connects those that `connected` says.
pub(crate) fn uc(connected: [bool; 2]) -> Pair {
    let mut pair = Pair::new();
    for end in [&mut pair.a, &mut pair.b] {
        let init = QpInit { qp_type: QpType::Uc, ..qp_init(end.pd) };
        end.qpn = pair.engine.create_qp(end.device, init).unwrap();
    }
    let ends = [(pair.a.clone(), attr_to(&pair.b)), (pair.b.clone(), attr_to(&pair.a))];
    for ((end, attr), _) in ends.into_iter().zip(connected).filter(|(_, wanted)| *wanted) {
        connect_uc(&mut pair, &end, attr);
    }
    pair
}

/// Changes the state of both QPs, which are in RESET, to RTS.
pub(crate) fn connected(mut pair: Pair) -> Pair {
    let ends = [(pair.a.clone(), attr_to(&pair.b)), (pair.b.clone(), attr_to(&pair.a))];
    ends.into_iter().for_each(|(end, attr)| connect_uc(&mut pair, &end, attr));
    pair
}

fn connect_uc(pair: &mut Pair, end: &End, attr: QpAttr) {
    let steps =
        [(QpState::Init, TO_INIT), (QpState::Rtr, CONNECT), (Rts, AttrMask::STATE | AttrMask::SQ_PSN)];
    for (state, mask) in steps {
        pair.modify(end, mask, QpAttr { state, ..attr }).unwrap();
    }
}

fn dropped(pair: &Pair) -> Vec<(&'static str, u64)> {
    let counters = [&pair.a, &pair.b].into_iter().flat_map(|end| pair.engine.counters(end.device).iter());
    counters.filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect()
}

const OK: WcStatus = WcStatus::Success;

#[test]
fn sends_and_writes_arrive_whatever_their_length() {
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let data: Vec<u8> = (0..1u32 << 19).map(|i| (i * 7 + (i >> 8)) as u8).collect();
    a.memory.fill(0, &data);
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    for length in [0, 1, 1024, 1025, 65_536, 65_537, 300_000, 1 << 19] {
        let bytes = |b: &End| b.memory.bytes(1 << 19, length as usize) == data[..length as usize];
        pair.post_recv(&b, 1, &[b.sge(1 << 19, length)]).unwrap();
        pair.post(&a, 2, SendOp::Send { imm }, Payload::Sges(&[a.sge(0, length)])).unwrap();
        pair.run();
        let received = pair.log.completions.remove(0).2;
        assert_eq!((received.byte_len, received.imm, received.src_qpn), (length, imm, a.qpn));
        assert!(pair.completion().status == OK && bytes(&b));
        b.memory.fill(1 << 19, &vec![0; length as usize]);
        pair.post_recv(&b, 3, &[]).unwrap();
        let op = SendOp::Write { remote: b.remote(1 << 19), imm };
        pair.post(&a, 4, op, Payload::Sges(&[a.sge(0, length)])).unwrap();
        pair.run();
        assert_eq!(pair.log.completions[0].2.byte_len, length);
        assert_eq!(pair.statuses(), [('b', 3, OK), ('a', 4, OK)]);
        assert!(bytes(&b));
    }
    assert_eq!((dropped(&pair), pair.engine.counters(b.device).uc_gaps), (vec![], 0));
    let psns = [&a, &b].map(|end| pair.engine.query_qp(end.device, end.qpn).unwrap());
    assert_eq!(psns[0].sq_psn, psns[1].rq_psn);
}

#[test]
fn what_the_peer_would_refuse_is_lost_and_the_next_message_is_not() {
    type Spoil = fn(&mut Pair) -> SendOp;
    let cases: [(&str, Spoil); 7] = [
        ("drop_no_receive", |_| SEND),
        ("drop_no_receive", |pair| SendOp::Write { remote: pair.b.remote(0), imm: Some(Imm::default()) }),
        ("drop_length", |pair| {
            let b = pair.b.clone();
            pair.post_recv(&b, 1, &[b.sge(0, 99_999)]).unwrap();
            SEND
        }),
        ("drop_access", |pair| write_to(pair.b.remote((1 << 20) - 99_999))),
        ("drop_access", |pair| write_to(Remote { rkey: Rkey(5), ..pair.b.remote(0) })),
        ("drop_state", |pair| {
            pair.go(&pair.b.clone(), Err);
            SEND
        }),
        ("drop_no_route", |pair| {
            pair.engine.set_gid(pair.b.device, 0, None).unwrap();
            SEND
        }),
    ];
    for (at, (counter, spoil)) in cases.into_iter().enumerate() {
        let mut pair = uc([true; 2]);
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let op = spoil(&mut pair);
        pair.log.completions.clear();
        // Too long to be tried within the post.
        pair.post(&a, 2, op, Payload::Sges(&[a.sge(0, 100_000)])).unwrap();
        pair.post(&a, 3, op, Payload::Sges(&[a.sge(0, 100_000)])).unwrap();
        pair.run();
        assert_eq!(pair.statuses(), [('a', 2, OK), ('a', 3, OK)], "case {at}");
        assert_eq!(dropped(&pair), [(counter, 2)], "case {at}");
        assert_eq!((pair.state(&a), pair.events()), (Rts, vec![]), "case {at}");
        pair.engine.set_gid(b.device, 0, Some(b.gid.into())).unwrap();
        if pair.state(&b) == Rts {
            a.memory.fill(0, b"next");
            pair.post(&a, 4, write_to(b.remote(7)), Payload::Sges(&[a.sge(0, 4)])).unwrap();
            assert_eq!((pair.statuses(), b.memory.bytes(7, 4)), (vec![('a', 4, OK)], b"next".to_vec()));
        }
    }
}

#[test]
fn rights_of_the_qp_count() {
    let mut pair = uc([true, false]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    connect_uc(&mut pair, &b, QpAttr { access: Access::REMOTE_READ, ..attr_to(&a) });
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    assert_eq!((pair.statuses(), dropped(&pair)), (vec![('a', 1, OK)], vec![("drop_invalid", 1)]));
}

#[test]
fn nobody_is_waited_for() {
    let mut pair = uc([true, false]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for id in 0..3 {
        pair.post(&a, id, SEND, Payload::Inline(b"lost")).unwrap();
    }
    assert_eq!(pair.statuses(), [('a', 0, OK), ('a', 1, OK), ('a', 2, OK)]);
    assert_eq!((dropped(&pair), pair.sleep()), (vec![("drop_state", 3)], None));
    // A peer that comes later has missed the messages, and notices that.
    connect_uc(&mut pair, &b, attr_to(&a));
    pair.post_recv(&b, 9, &[b.sge(0, 4)]).unwrap();
    pair.post(&a, 3, SEND, Payload::Inline(b"here")).unwrap();
    assert_eq!(pair.statuses(), [('b', 9, OK), ('a', 3, OK)]);
    assert_eq!(pair.engine.counters(b.device).uc_gaps, 1);
}

#[test]
fn a_message_that_breaks_off_leaves_its_receive_to_the_next() {
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let half = Mem::new(1 << 19);
    let key = pair.engine.reg_mr(a.device, a.pd, Access::ALL, 0, 1 << 19, half.clone()).unwrap();
    pair.post_recv(&b, 1, &[b.sge(0, 1 << 20)]).unwrap();
    let sges = [a.sge(0, 300_000), Sge { addr: 0, length: 300_000, lkey: Lkey(key) }];
    pair.post(&a, 2, SEND, Payload::Sges(&sges)).unwrap();
    assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
    // Memory that was checked is gone when the message's turn comes.
    pair.engine.dereg_mr(a.device, key).unwrap();
    pair.run();
    assert_eq!(
        (pair.statuses(), pair.state(&a), pair.state(&b)),
        (vec![('a', 2, WcStatus::LocProt)], Sqe, Rts)
    );
    pair.post(&a, 3, SEND, Payload::Inline(b"flushed")).unwrap();
    assert_eq!(pair.statuses(), [('a', 3, WcStatus::Flush)]);
    pair.modify(&a, AttrMask::STATE, QpAttr { state: Rts, ..QpAttr::default() }).unwrap();
    pair.post(&a, 4, SEND, Payload::Inline(b"whole")).unwrap();
    assert_eq!(pair.log.completions[0].2.byte_len, 5);
    assert_eq!(
        (pair.statuses(), b.memory.bytes(0, 5)),
        (vec![('b', 1, OK), ('a', 4, OK)], b"whole".to_vec())
    );
}

#[test]
fn own_mistakes_stop_the_send_queue_alone() {
    let cases = [
        (WcStatus::LocQpOp, SendOp::Read { remote: Remote::default() }, 8),
        (WcStatus::LocQpOp, SendOp::atomic(Remote::default(), Atomic::FetchAdd { add: 1 }), 8),
        (WcStatus::LocQpOp, SendOp::AtomicWrite { remote: Remote::default() }, 8),
        (WcStatus::LocProt, SEND, (1 << 20) + 1),
        (WcStatus::LocLen, SEND, MAX_MESSAGE + 1),
    ];
    for (status, op, length) in cases {
        let mut pair = uc([true; 2]);
        let a = pair.a.clone();
        pair.post(&a, 1, op, Payload::Sges(&[a.sge(0, length)])).unwrap();
        pair.run();
        assert_eq!((pair.statuses(), pair.state(&a)), (vec![('a', 1, status)], Sqe));
    }
}

#[test]
fn a_receive_that_may_not_be_written_fails_its_qp_and_no_other() {
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 1, &[b.sge(1 << 20, 8)]).unwrap();
    pair.post_recv(&b, 2, &[]).unwrap();
    pair.post(&a, 3, SEND, Payload::Inline(b"12345678")).unwrap();
    let expected = [('a', 3, OK), ('b', 1, WcStatus::LocProt), ('b', 2, WcStatus::Flush)];
    assert_eq!((pair.statuses(), pair.state(&a), pair.state(&b)), (expected.to_vec(), Rts, Err));
    // Memory of a WRITE is gone: an event reports it.
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    b.memory.vanish();
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"12345678")).unwrap();
    assert_eq!((pair.statuses(), pair.events()), (vec![('a', 1, OK)], vec![('b', Event::QpFatal(b.qpn))]));
}

#[test]
fn a_connection_is_of_one_service() {
    let mut pair = uc([false; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let rc = End { qpn: pair.engine.create_qp(b.device, qp_init(b.pd)).unwrap(), ..b };
    connect_uc(&mut pair, &a, attr_to(&rc));
    pair.connect(&rc, attr_to(&a), Rts);
    pair.post_recv(&rc, 1, &[]).unwrap();
    pair.post(&a, 2, SEND, Payload::Sges(&[])).unwrap();
    assert_eq!((pair.statuses(), dropped(&pair)), (vec![('a', 2, OK)], vec![("drop_not_connected", 1)]));
}

#[test]
fn a_queue_that_drains_ends_the_message_it_has_begun() {
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
    let attr = QpAttr { state: Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    pair.modify(&a, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY, attr).unwrap();
    pair.run();
    assert_eq!((pair.statuses(), pair.events()), (vec![('a', 1, OK)], vec![('a', Event::SqDrained(a.qpn))]));
    pair.go(&a, Rts);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 2, OK)]);
}
