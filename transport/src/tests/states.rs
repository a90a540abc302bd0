//! States of a QP, and what they allow.

use super::*;
use QpState::{Init, Reset, Rtr, Rts, Sqd};
use vrdma_wire::num::VlanId;

#[test]
fn posts_are_taken_as_the_state_allows() {
    let allowed = |state| {
        let mut pair = Pair::new();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        if state != Reset {
            pair.connect(&a, attr_to(&b), state);
        }
        (pair.post(&a, 1, SEND, Payload::Sges(&[])).is_ok(), pair.post_recv(&a, 1, &[]).is_ok())
    };
    assert_eq!(allowed(Reset), (false, false));
    assert_eq!(allowed(Init), (false, true));
    assert_eq!(allowed(Rtr), (false, true));
    assert_eq!(allowed(Rts), (true, true));
}

#[test]
fn owners_post_to_their_own_qps_and_the_kernel_to_any() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let request = RecvRequest { id: 1, sges: &[] };
    let mut post = |owner, qpn| pair.engine.post_recv(pair.now, a.device, owner, qpn, request, &mut pair.log);
    assert_eq!(post(OwnerId(8), a.qpn), Err(PostError::NotOwner));
    assert_eq!(post(OwnerId::KERNEL, a.qpn), Ok(()));
    assert_eq!(post(OWNER, Qpn::GSI), Err(PostError::NoSuchQp));
    assert_eq!(post(OWNER, Qpn::new(a.qpn.number() + 1024).unwrap()), Err(PostError::NoSuchQp));
    let foreign = pair.engine.post_recv(pair.now, DeviceId(9), OWNER, b.qpn, request, &mut pair.log);
    assert_eq!(foreign, Err(PostError::NoSuchQp));
    let counters = pair.engine.counters(a.device);
    assert_eq!((counters.post_not_owner, counters.post_no_qp), (1, 2));
}

#[test]
fn the_first_message_in_rtr_establishes_communication_once() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.connect(&a, attr_to(&b), Rts);
    pair.connect(&b, attr_to(&a), Rtr);
    for _ in 0..2 {
        pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    }
    assert_eq!(pair.events(), [('b', Event::CommEstablished(b.qpn))]);
    let pair = Pair::connected();
    assert_eq!(pair.log.events, []);
}

const NOTIFY: AttrMask = AttrMask::STATE.with(AttrMask::EN_SQD_ASYNC_NOTIFY);

fn to_sqd() -> QpAttr {
    QpAttr { state: Sqd, en_sqd_async_notify: true, ..QpAttr::default() }
}

#[test]
fn a_drained_queue_ends_what_it_started_and_holds_the_rest() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let drained = ('a', Event::SqDrained(a.qpn));
    pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    pair.post(&a, 2, SEND, Payload::Inline(b"y")).unwrap();
    pair.modify(&a, NOTIFY, to_sqd()).unwrap();
    let sq_draining = |pair: &Pair| pair.engine.query_qp(a.device, a.qpn).unwrap().sq_draining;
    assert!(sq_draining(&pair) && pair.events().is_empty());
    for id in [8, 9] {
        pair.post_recv(&b, id, &[b.sge(0, 1)]).unwrap();
        pair.run();
    }
    assert_eq!(pair.statuses(), [('b', 8, WcStatus::Success), ('a', 1, WcStatus::Success)]);
    assert_eq!((pair.events(), sq_draining(&pair)), (vec![drained], false));
    pair.post(&a, 3, write_to(b.remote(0)), Payload::Inline(b"z")).unwrap();
    pair.run();
    assert_eq!((pair.statuses(), pair.events()), (vec![], vec![]));
    pair.go(&a, Rts);
    pair.run();
    let expected = [('b', 9, WcStatus::Success), ('a', 2, WcStatus::Success), ('a', 3, WcStatus::Success)];
    assert_eq!(pair.statuses(), expected);
}

#[test]
fn an_idle_queue_is_drained_at_once_and_tells_only_if_asked() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.modify(&a, NOTIFY, to_sqd()).unwrap();
    assert_eq!(pair.events(), [('a', Event::SqDrained(a.qpn))]);
    pair.go(&b, Sqd);
    assert_eq!(pair.events(), []);
    // B still receives in SQD.
    pair.go(&a, Rts);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    assert_eq!(pair.completion().status, WcStatus::Success);
}

#[test]
fn a_message_in_mid_flight_is_drained() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    assert!(pair.engine.poll(pair.now, 1, &mut pair.log));
    pair.modify(&a, NOTIFY, to_sqd()).unwrap();
    assert_eq!(pair.events(), []);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    assert_eq!(pair.events(), [('a', Event::SqDrained(a.qpn))]);
}

#[test]
fn reset_drops_everything_silently_and_the_qp_can_begin_anew() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post_recv(&a, 1, &[a.sge(0, 9)]).unwrap();
    pair.post(&a, 2, SEND, Payload::Inline(b"waits")).unwrap();
    pair.post(&a, 3, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)])).unwrap();
    for end in [&a, &b] {
        pair.go(end, Reset);
    }
    assert_eq!((pair.sleep(), pair.statuses(), pair.events()), (None, vec![], vec![]));
    let counts = pair.engine.counts(a.device);
    assert_eq!((counts.pending_sends, counts.pending_receives), (0, 0));
    assert_eq!(pair.engine.query_qp(a.device, a.qpn).unwrap(), QpAttr::default());
    pair.connect(&a, attr_to(&b), Rts);
    pair.connect(&b, attr_to(&a), Rts);
    pair.post(&a, 4, write_to(b.remote(0)), Payload::Inline(b"anew")).unwrap();
    assert_eq!(pair.completion().status, WcStatus::Success);
}

#[test]
fn error_flushes_and_comes_from_any_state() {
    for state in [Reset, Init, Rtr, Rts, Sqd] {
        let mut pair = Pair::new();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        if state != Reset {
            pair.connect(&a, attr_to(&b), if state == Sqd { Rts } else { state });
            pair.post_recv(&a, 1, &[]).unwrap();
        }
        if state == Sqd {
            pair.go(&a, Sqd);
            pair.post(&a, 2, SEND, Payload::Sges(&[])).unwrap();
        }
        pair.go(&a, QpState::Err);
        let expected: &[_] = match state {
            Reset => &[],
            Sqd => &[('a', 2, WcStatus::Flush), ('a', 1, WcStatus::Flush)],
            _ => &[('a', 1, WcStatus::Flush)],
        };
        assert_eq!(pair.statuses(), expected);
        assert_eq!(pair.state(&a), QpState::Err);
        pair.go(&a, Reset);
    }
}

#[test]
fn attributes_come_back_as_set_and_refused_changes_change_nothing() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let in_vlan = GidEntry { gid: a.gid, vlan: VlanId::new(5).unwrap() };
    pair.engine.set_gid(a.device, 0, Some(in_vlan)).unwrap();
    let attr = QpAttr { traffic_class: 9, hop_limit: 64, vlan: Some(5), udp_sport: 0xc000, ..attr_to(&b) };
    pair.connect(&a, attr, Rts);
    let expected = QpAttr { state: Rts, cur_state: Rts, ..attr };
    assert_eq!(pair.engine.query_qp(a.device, a.qpn).unwrap(), expected);
    for (mask, attr) in [
        (AttrMask::DEST_QPN, QpAttr::default()),
        (AttrMask::CUR_STATE, QpAttr { cur_state: Sqd, ..attr }),
        (AttrMask::MIN_RNR_TIMER, QpAttr { min_rnr_timer: 40, ..attr }),
        (TO_INIT, QpAttr { state: Init, ..attr }),
        (AttrMask(1 << 31), attr),
    ] {
        assert_eq!(pair.modify(&a, mask, attr), Err(Error::Invalid));
    }
    assert_eq!(pair.modify(&a, AttrMask::ALT_PATH, attr), Err(Error::Unsupported));
    assert_eq!(pair.engine.query_qp(a.device, a.qpn).unwrap(), expected);
    let rnr = QpAttr { min_rnr_timer: 31, ..QpAttr::default() };
    pair.modify(&a, AttrMask::MIN_RNR_TIMER, rnr).unwrap();
    assert_eq!(pair.engine.query_qp(a.device, a.qpn).unwrap().min_rnr_timer, 31);
}

#[test]
fn an_own_address_is_needed_to_become_ready() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.connect(&a, attr_to(&b), Init);
    let to_rtr = |sgid_index| QpAttr { state: Rtr, sgid_index, ..attr_to(&b) };
    assert_eq!(pair.modify(&a, TO_RTR, to_rtr(1)), Err(Error::Invalid));
    assert_eq!(pair.modify(&a, TO_RTR, to_rtr(255)), Err(Error::Invalid));
    assert_eq!(pair.modify(&a, TO_RTR, to_rtr(0)), Ok(()));
}
