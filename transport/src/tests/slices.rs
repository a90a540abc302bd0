//! Long work is done in slices. The tests count what each call does.

use super::unreliable::uc;
use super::*;
use crate::collections::flush::FLUSHED;
use crate::engine::TURNS;
use crate::engine::sweep::SWEPT;

/// Many more than complete in one slice.
const MANY: u32 = 2 * FLUSHED as u32 + 300;

/// Creates a QP in SQD with sends, which are not started, and receives.
fn full(pair: &mut Pair, like: &End, sends: u32, receives: u32) -> End {
    let init = QpInit { max_send_wr: sends + 1, max_recv_wr: receives + 1, ..qp_init(like.pd) };
    let qpn = pair.engine.create_qp(like.device, init).unwrap();
    let end = End { qpn, ..like.clone() };
    pair.connect(&end, attr_to(like), QpState::Rts);
    pair.go(&end, QpState::Sqd);
    let Pair { engine, now, log, .. } = pair;
    for id in 0..sends {
        let payload = Payload::Inline(b"x");
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op: SEND, payload };
        engine.post_send(*now, end.device, OWNER, qpn, &request, log).unwrap();
    }
    for id in 0..receives {
        let request = RecvRequest { id, sges: &[] };
        engine.post_recv(*now, end.device, OWNER, qpn, request, log).unwrap();
    }
    end
}

/// Takes a queue's completions since the last call: ids and statuses. Those of other queues stay.
fn ended(pair: &mut Pair, end: &End, cq: CqId) -> Vec<(u32, WcStatus)> {
    let is_it = |(device, of, completion): &mut (DeviceId, CqId, Completion)| {
        *device == end.device && *of == cq && completion.qpn == end.qpn
    };
    pair.log
        .completions
        .extract_if(.., is_it)
        .map(|(_, _, completion)| (completion.id, completion.status))
        .collect()
}

/// Changes the state with this same engine, because a copy may flush as much again.
fn go_now(pair: &mut Pair, end: &End, state: QpState) {
    let attr = QpAttr { state, ..QpAttr::default() };
    let Pair { engine, now, log, .. } = pair;
    engine.modify_qp(*now, end.device, end.qpn, AttrMask::STATE, &attr, log).unwrap();
}

/// Polls once, and asserts that the poll flushes at most one slice, beside one failed request.
///
/// Returns true if there is more to do.
fn poll(pair: &mut Pair) -> bool {
    let before = pair.log.completions.len();
    let more = pair.engine.poll(pair.now, u64::MAX, &mut pair.log);
    assert!(pair.log.completions.len() - before <= FLUSHED + 1);
    assert!(!more || pair.engine.poll_timeout() == Some(Instant(0)));
    more
}

const FLUSH: WcStatus = WcStatus::Flush;

#[test]
fn full_queues_are_flushed_in_slices_in_order_with_what_is_posted_meanwhile() {
    let mut pair = Pair::new();
    let a = pair.a.clone();
    let end = full(&mut pair, &a, MANY, MANY);
    go_now(&mut pair, &end, QpState::Err);
    assert_eq!((pair.state(&end), pair.log.completions.len()), (QpState::Err, FLUSHED));
    assert!(pair.engine.is_flushing(end.device, end.qpn));
    pair.post(&end, MANY, SEND, Payload::Inline(b"last")).unwrap();
    pair.post_recv(&end, MANY, &[]).unwrap();
    // An engine that takes over continues.
    pair.engine = save::copied(&pair.engine);
    while poll(&mut pair) {}
    for cq in [SEND_CQ, RECV_CQ] {
        let ids: Vec<_> = ended(&mut pair, &end, cq);
        assert!(ids.into_iter().eq((0..=MANY).map(|id| (id, FLUSH))), "{cq:?}");
    }
    assert!(!pair.engine.is_flushing(end.device, end.qpn));
    assert_eq!(pair.engine.counters(end.device).flushes, 2 * u64::from(MANY) + 2);
    // Requests posted later complete at once.
    pair.post_recv(&end, 7, &[]).unwrap();
    assert_eq!(ended(&mut pair, &end, RECV_CQ), [(7, FLUSH)]);
}

#[test]
fn a_receive_that_is_wrong_ends_after_those_before_it_and_before_those_after() {
    let mut pair = Pair::new();
    let a = pair.a.clone();
    let end = full(&mut pair, &a, 1, MANY);
    let Pair { engine, now, log, .. } = &mut pair;
    engine.post_invalid(*now, end.device, OWNER, end.qpn, MANY, Queue::Recv, log).unwrap();
    pair.engine = save::copied(&pair.engine);
    assert!(poll(&mut pair));
    pair.post_recv(&end, MANY + 1, &[]).unwrap();
    while poll(&mut pair) {}
    let expected = (0..MANY + 2).map(|id| (id, if id == MANY { WcStatus::LocQpOp } else { FLUSH }));
    assert!(ended(&mut pair, &end, RECV_CQ).into_iter().eq(expected));
}

#[test]
fn sends_that_are_flushed_in_sqe_end_before_those_that_follow_in_rts() {
    let mut pair = uc([true; 2]);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let init = QpInit { qp_type: QpType::Uc, max_send_wr: MANY, ..qp_init(a.pd) };
    let qpn = pair.engine.create_qp(a.device, init).unwrap();
    let end = End { qpn, ..a.clone() };
    let attr = attr_to(&b);
    let mask = AttrMask::STATE.with(AttrMask::AV).with(AttrMask::PATH_MTU);
    for (state, mask) in [
        (QpState::Init, TO_INIT),
        (QpState::Rtr, mask.with(AttrMask::DEST_QPN).with(AttrMask::RQ_PSN)),
        (QpState::Rts, AttrMask::STATE.with(AttrMask::SQ_PSN)),
        (QpState::Sqd, AttrMask::STATE),
    ] {
        pair.modify(&end, mask, QpAttr { state, ..attr }).unwrap();
    }
    // The first request is wrong.
    let Pair { engine, now, log, .. } = &mut pair;
    engine.post_invalid(*now, end.device, OWNER, end.qpn, 0, Queue::Send, log).unwrap();
    for id in 1..MANY {
        let payload = Payload::Inline(b"x");
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op: SEND, payload };
        engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }
    pair.go(&end, QpState::Rts);
    assert!(poll(&mut pair));
    assert_eq!((pair.state(&end), pair.engine.is_flushing(end.device, end.qpn)), (QpState::Sqe, true));
    pair.engine = save::copied(&pair.engine);
    // A state change without waiting flushes the rest at once.
    pair.go(&end, QpState::Rts);
    pair.post(&end, MANY, SEND, Payload::Inline(b"goes")).unwrap();
    while poll(&mut pair) {}
    let expected = (0..=MANY).map(|id| match id {
        0 => (id, WcStatus::LocQpOp),
        MANY => (id, WcStatus::Success),
        _ => (id, FLUSH),
    });
    assert!(ended(&mut pair, &end, SEND_CQ).into_iter().eq(expected));
}

#[test]
fn a_guest_with_much_to_flush_keeps_another_waiting_for_one_turn() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let long: Vec<_> = (0..4).map(|_| full(&mut pair, &a, 0, MANY)).collect();
    let short = full(&mut pair, &b, 0, 40);
    long.iter().for_each(|end| go_now(&mut pair, end, QpState::Err));
    go_now(&mut pair, &short, QpState::Err);
    assert!(ended(&mut pair, &short, RECV_CQ).is_empty(), "all that may end at once has");
    assert!(poll(&mut pair));
    assert_eq!(ended(&mut pair, &short, RECV_CQ).len(), 40);
    while poll(&mut pair) {}
    // Nothing is written to a suspended guest.
    let end = full(&mut pair, &a, 0, MANY);
    go_now(&mut pair, &end, QpState::Err);
    pair.engine.set_suspended(a.device, true);
    let before = pair.log.completions.len();
    while poll(&mut pair) {}
    assert_eq!(pair.log.completions.len(), before);
    pair.engine.set_suspended(a.device, false);
    while poll(&mut pair) {}
    assert!(!pair.engine.is_flushing(end.device, end.qpn));
}

#[test]
fn full_queues_of_a_qp_that_goes_are_freed_in_slices() {
    for destroy in [true, false] {
        let mut pair = Pair::new();
        let a = pair.a.clone();
        let end = full(&mut pair, &a, MANY, MANY);
        let dropped = |pair: &Pair| pair.engine.core.devices.get(a.device.0).unwrap().requests.num_dropped();
        // Some of them after their flush has begun.
        go_now(&mut pair, &end, QpState::Err);
        assert_eq!(ended(&mut pair, &end, SEND_CQ).len(), FLUSHED);
        match destroy {
            true => drop(pair.engine.destroy_qp(end.device, end.qpn).unwrap()),
            false => go_now(&mut pair, &end, QpState::Reset),
        }
        let counts = pair.engine.counts(a.device);
        assert_eq!((counts.pending_sends, counts.pending_receives), (0, 0));
        let mut left = dropped(&pair);
        assert_eq!(left, 2 * MANY - FLUSHED as u32, "no more end between two polls");
        while poll(&mut pair) {
            let now = dropped(&pair);
            assert!(now < left && left - now <= FLUSHED as u32, "{left} {now}");
            left = now;
        }
        assert_eq!((dropped(&pair), pair.log.completions.len()), (0, 0));
    }
}

#[test]
fn nothing_of_a_device_is_dropped_within_its_reset() {
    let mut pair = Pair::connected();
    let a = pair.a.clone();
    let holders = || Rc::strong_count(&a.memory.0);
    for _ in 0..1000 {
        pair.engine.reg_mr(a.device, a.pd, Access::ALL, IOVA, 8, a.memory.clone()).unwrap();
    }
    let before = holders();
    let remains = pair.engine.reset_device(a.device);
    assert_eq!((holders(), pair.engine.counts(a.device)), (before, ObjectCounts::default()));
    drop(remains);
    assert_eq!(holders(), before - 1001);
    assert!(pair.engine.reset_device(DeviceId(99)).is_none());
}

#[test]
fn qps_follow_a_gid_in_slices_and_nobody_else_has_it_until_all_have() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * SWEPT + 100;
    for _ in 0..all {
        pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap();
    }
    let qpns: Vec<_> =
        pair.engine.core.devices.get(a.device.0).unwrap().qps.iter().map(|entry| entry.qp.qpn).collect();
    for &qpn in &qpns {
        pair.connect(&End { qpn, ..a.clone() }, attr_to(&b), QpState::Rts);
    }
    let with_source = |pair: &Pair| {
        let qps = pair.engine.core.devices.get(a.device.0).unwrap().qps.iter();
        qps.filter(|entry| !entry.qp.sgid.is_zero()).count()
    };
    assert_eq!(with_source(&pair), qpns.len());
    pair.engine.set_gid(a.device, 0, None).unwrap();
    let mut left = with_source(&pair);
    assert!(left >= qpns.len() - SWEPT && pair.engine.is_setting_gids(a.device));
    assert_eq!(pair.engine.set_gid(b.device, 1, Some(a.gid.into())), Err(Error::Denied));
    // A suspended device does not keep the address either.
    pair.engine.set_suspended(a.device, true);
    while pair.engine.poll(pair.now, u64::MAX, &mut pair.log) {
        let now = with_source(&pair);
        assert!(left - now <= SWEPT);
        left = now;
    }
    assert_eq!((with_source(&pair), pair.engine.is_setting_gids(a.device)), (0, false));
    pair.engine.set_gid(b.device, 1, Some(a.gid.into())).unwrap();
    // A device that is reset in between keeps nothing either.
    pair.engine.set_gid(a.device, 0, Some(Gid::from_ipv4([10, 0, 0, 9]).into())).unwrap();
    pair.engine.set_gid(a.device, 0, None).unwrap();
    pair.engine.reset_device(a.device);
    pair.engine.set_gid(b.device, 2, Some(Gid::from_ipv4([10, 0, 0, 9]).into())).unwrap();
}

#[test]
fn so_many_qps_have_turns_in_one_poll_however_short_they_are() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * TURNS + 10;
    for _ in 0..all {
        let [own, peer] = [&a, &b].map(|end| {
            let qpn = pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap();
            End { qpn, ..end.clone() }
        });
        pair.connect(&own, attr_to(&peer), QpState::Rts);
        pair.connect(&peer, attr_to(&own), QpState::Rts);
        // After SQD, the request waits for its turn.
        pair.go(&own, QpState::Sqd);
        pair.post(&own, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
        pair.go(&own, QpState::Rts);
    }
    for ended in [TURNS, 2 * TURNS, all] {
        assert_eq!(pair.engine.poll(pair.now, u64::MAX, &mut pair.log), ended < all);
        assert_eq!(pair.log.completions.len(), ended);
    }
}
