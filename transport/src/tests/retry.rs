//! Peers that do not exist, are not connected, or are not ready.

use super::*;
use QpState::{Init, Reset, Rtr, Rts};
use vrdma_wire::num::Imm;

#[test]
fn without_a_receive_retries_are_made_and_then_exceeded() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Inline(b"y")).unwrap();
    assert_eq!(pair.sleep(), Some(RNR));
    assert_eq!(pair.statuses(), []);
    assert_eq!(pair.sleep(), Some(RNR));
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RnrRetryExc), ('a', 2, WcStatus::Flush)]);
    assert_eq!(pair.sleep(), None);
    assert_eq!(pair.state(&b), Rts);
    assert_eq!(b.memory.bytes(0, 1), [0], "order was kept");
    let counters = pair.engine.counters(a.device);
    assert_eq!((counters.rnr_naks, counters.retries, counters.timeouts), (3, 2, 0));
    assert_eq!((counters.rnr_exceeded, counters.retry_exceeded, counters.errors), (1, 0, 1));
}

#[test]
fn no_rnr_retry_fails_at_once() {
    let mut pair = Pair::connected_with(|a| a.rnr_retry = 0, |_| {});
    let a = pair.a.clone();
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RnrRetryExc)]);
}

#[test]
fn a_new_count_of_retries_holds_for_the_request_that_is_under_way() {
    let mut pair = Pair::connected_with(|a| a.rnr_retry = 1, |_| {});
    let a = pair.a.clone();
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    pair.run();
    assert_eq!((pair.statuses(), pair.engine.counters(a.device).rnr_naks), (vec![], 1));
    pair.go(&a, QpState::Sqd);
    let attr = QpAttr { state: QpState::Sqd, rnr_retry: 2, ..QpAttr::default() };
    pair.modify(&a, AttrMask::STATE | AttrMask::RNR_RETRY, attr).unwrap();
    pair.go(&a, QpState::Rts);
    while pair.sleep().is_some() {}
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RnrRetryExc)]);
    // Two retries, and one that exceeds the limit. With the remaining old count, the second would
    // have exceeded it.
    assert_eq!(pair.engine.counters(a.device).rnr_naks, 4);
}

#[test]
fn a_receive_wakes_its_sender_at_once() {
    for rnr_retry in [2, 7] {
        let mut pair = Pair::connected_with(|a| a.rnr_retry = rnr_retry, |_| {});
        let (a, b) = (pair.a.clone(), pair.b.clone());
        for id in 0..4 {
            pair.post(&a, id, SEND, Payload::Inline(b"x")).unwrap();
        }
        for id in 0..4 {
            pair.run();
            assert_eq!(pair.statuses(), []);
            pair.post_recv(&b, 20 + id, &[b.sge(0, 1)]).unwrap();
            assert_eq!(pair.engine.poll_timeout(), Some(Instant(0)));
            pair.run();
            assert_eq!(pair.statuses(), [('b', 20 + id, WcStatus::Success), ('a', id, WcStatus::Success)]);
        }
        assert_eq!(pair.sleep(), None);
    }
}

#[test]
fn seven_rnr_retries_are_for_ever_and_cost_little() {
    let mut pair = Pair::connected_with(|a| a.rnr_retry = 7, |b| b.min_rnr_timer = 1);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    for _ in 0..100 {
        assert!(pair.sleep().unwrap() >= Duration::from_millis(100));
    }
    assert_eq!(pair.statuses(), []);
    // A peer that dies is noticed nevertheless.
    pair.engine.destroy_qp(b.device, b.qpn).unwrap();
    for _ in 0..5 {
        pair.sleep();
    }
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc)]);
}

#[test]
fn a_write_with_immediate_needs_a_receive_at_its_end() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    a.memory.fill(0, &[5; 600_000]);
    let op = SendOp::Write { remote: b.remote(0), imm: Some(Imm::default()) };
    pair.post(&a, 1, op, Payload::Sges(&[a.sge(0, 600_000)])).unwrap();
    pair.run();
    assert_eq!(b.memory.bytes(524_287, 2), [5, 0], "what needs no receive has landed");
    pair.post_recv(&b, 9, &[]).unwrap();
    pair.run();
    assert_eq!(pair.log.completions[0].2.byte_len, 600_000);
    assert_eq!(pair.statuses(), [('b', 9, WcStatus::Success), ('a', 1, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(0, 600_000), [5; 600_000]);
}

/// Posts a WRITE to a peer that does not answer.
///
/// It fails after three timeouts, and counts as dropped for `reason`.
fn never_answered(mut pair: Pair, reason: &str) {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    pair.post(&a, 2, SEND, Payload::Inline(b"x")).unwrap();
    for _ in 0..3 {
        assert_eq!(pair.statuses(), [], "{reason}");
        assert_eq!(pair.sleep(), Some(TIMEOUT), "{reason}");
    }
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc), ('a', 2, WcStatus::Flush)], "{reason}");
    assert_eq!(pair.state(&a), QpState::Err, "{reason}");
    assert_eq!(b.memory.bytes(0, 1), [0], "{reason}");
    assert_eq!(pair.sleep(), None, "{reason}");
    let counted = |device| pair.engine.counters(device).iter().find(|c| c.0 == reason).unwrap().1;
    assert_eq!(counted(a.device) + counted(b.device), 3, "{reason}");
    assert_eq!(pair.engine.counters(a.device).timeouts, 3, "{reason}");
}

#[test]
fn retries_are_exceeded_when_the_peer_does_not_exist() {
    let mut pair = Pair::connected();
    let b = pair.b.clone();
    pair.engine.destroy_qp(b.device, b.qpn).unwrap();
    never_answered(pair, "drop_no_qp");
    let mut pair = Pair::connected();
    let b = pair.b.clone();
    pair.engine.reset_device(b.device);
    never_answered(pair, "drop_no_route");
    let mut pair = Pair::connected();
    pair.engine.remove_device(pair.b.device);
    never_answered(pair, "drop_no_route");
}

#[test]
fn retries_are_exceeded_when_nobody_here_has_the_address() {
    never_answered(Pair::connected_with(|a| a.dgid = Gid([3; 16]), |_| {}), "drop_no_route");
    for own in [true, false] {
        let mut pair = Pair::connected();
        let device = if own { pair.a.device } else { pair.b.device };
        pair.engine.set_gid(device, 0, None).unwrap();
        never_answered(pair, "drop_no_route");
    }
}

#[test]
fn retries_are_exceeded_when_the_peer_is_not_ready_to_receive() {
    for state in [Reset, Init, QpState::Err] {
        let mut pair = Pair::connected();
        let b = pair.b.clone();
        if state == Init {
            pair.go(&b, Reset);
            pair.connect(&b, attr_to(&pair.a.clone()), Init);
        } else {
            pair.go(&b, state);
        }
        never_answered(pair, "drop_state");
    }
}

#[test]
fn retries_are_exceeded_when_the_peer_is_connected_to_another() {
    let other = Qpn::new(77).unwrap();
    never_answered(Pair::connected_with(|_| {}, |b| b.dest_qpn = other), "drop_not_connected");
    never_answered(Pair::connected_with(|_| {}, |b| b.dgid = Gid([3; 16])), "drop_not_connected");
}

#[test]
fn retries_are_exceeded_when_psns_differ() {
    never_answered(Pair::connected_with(|_| {}, |b| b.rq_psn = Psn::truncate(5)), "drop_psn");
    never_answered(Pair::connected_with(|_| {}, |b| b.rq_psn = Psn::truncate(0xff_fffd)), "drop_psn");
}

#[test]
fn retry_counts_start_anew_with_each_success() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for round in 0..5 {
        pair.post(&a, round, SEND, Payload::Inline(b"x")).unwrap();
        assert_eq!(pair.sleep(), Some(RNR));
        pair.post_recv(&b, 9, &[b.sge(0, 1)]).unwrap();
        pair.run();
        assert_eq!(pair.statuses().len(), 2, "{round}");
    }
}

#[test]
fn without_a_timeout_a_peer_is_awaited_for_ever_and_noticed_at_once() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.connect(&a, QpAttr { timeout: 0, retry_cnt: 0, ..attr_to(&b) }, Rts);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    for _ in 0..100 {
        assert!(pair.sleep().unwrap() >= Duration::from_millis(100));
    }
    assert_eq!(pair.statuses(), []);
    pair.connect(&b, attr_to(&a), Rtr);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    assert_eq!(pair.events(), [('b', Event::CommEstablished(b.qpn))]);
    assert_eq!(pair.sleep(), None);
}

#[test]
fn a_peer_that_dies_in_mid_message_is_noticed() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 9, &[b.sge(0, 1 << 20)]).unwrap();
    pair.post(&a, 1, SEND, Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
    pair.go(&b, QpState::Err);
    assert_eq!(pair.statuses(), [('b', 9, WcStatus::Flush)]);
    while pair.sleep().is_some() {}
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc)]);
}

#[test]
fn a_sender_that_dies_in_mid_message_leaves_its_receive_and_cannot_begin_anew() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&b, 9, &[b.sge(0, 1 << 20)]).unwrap();
    pair.post(&a, 1, SEND, Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
    pair.go(&a, Reset);
    assert_eq!(pair.engine.counts(b.device).pending_receives, 1);
    // Even with the right PSN, the new sender would be in the middle of a message.
    let sq_psn = pair.engine.query_qp(b.device, b.qpn).unwrap().rq_psn;
    pair.connect(&a, QpAttr { sq_psn, ..attr_to(&b) }, Rts);
    pair.post(&a, 2, SEND, Payload::Inline(b"x")).unwrap();
    assert_eq!(pair.statuses(), [('a', 2, WcStatus::RemInvReq), ('b', 9, WcStatus::Flush)]);
}

#[test]
fn a_suspended_device_makes_no_progress_and_goes_on_where_it_was() {
    let mut pair = Pair::connected_with(|a| a.timeout = 20, |_| {});
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    pair.post(&a, 2, SEND, Payload::Inline(b"no receive")).unwrap();
    pair.engine.poll(pair.now, 1, &mut pair.log);
    pair.engine.set_suspended(a.device, true);
    assert!(!pair.engine.poll(pair.now, u64::MAX, &mut pair.log), "nothing is ready");
    pair.post(&a, 3, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    assert_eq!((pair.sleep(), pair.statuses()), (None, vec![]));
    pair.engine.set_suspended(a.device, false);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    // Its deadline passes while it is suspended. No retry is lost, and none is forgotten.
    pair.engine.set_suspended(a.device, true);
    assert_eq!(pair.sleep(), Some(RNR));
    assert_eq!(pair.sleep(), None);
    pair.post_recv(&b, 9, &[b.sge(0, 100)]).unwrap();
    pair.run();
    assert_eq!(pair.statuses(), []);
    pair.engine.set_suspended(a.device, false);
    pair.run();
    let expected = [('b', 9, WcStatus::Success), ('a', 2, WcStatus::Success), ('a', 3, WcStatus::Success)];
    assert_eq!(pair.statuses(), expected);
}

#[test]
fn a_suspended_peer_does_not_answer_until_it_goes_on() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_suspended(b.device, true);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    assert_eq!((pair.sleep(), pair.statuses()), (Some(TIMEOUT), vec![]));
    assert_eq!(b.memory.bytes(0, 1), [0]);
    pair.engine.set_suspended(b.device, false);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    let mut pair = Pair::connected();
    pair.engine.set_suspended(pair.b.device, true);
    never_answered(pair, "drop_state");
}

#[test]
fn at_the_end_of_time_nothing_goes_wrong() {
    let mut pair = Pair::connected();
    pair.now = Instant(u64::MAX);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    pair.engine.destroy_qp(b.device, b.qpn).unwrap();
    for _ in 0..20 {
        pair.sleep();
    }
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RetryExc)]);
    assert_eq!(pair.engine.core.schedule.len(), (0, 0));
}
