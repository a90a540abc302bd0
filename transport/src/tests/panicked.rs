//! A call that panics: the devices that it handled go, and no other device loses requests.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Connections between the devices of [`many`], by their numbers.
const CONNECTIONS: [(usize, usize); 5] = [(0, 1), (2, 3), (4, 5), (0, 2), (3, 4)];

/// Creates six devices, and both ends of each of [`CONNECTIONS`].
fn many() -> (Pair, Vec<[End; 2]>) {
    let mut pair = Pair::new();
    let more = (3..7).map(|n| {
        let device = pair.engine.add_device(Limits::default());
        let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]);
        pair.engine.set_gid(device, 0, Some(gid.into())).unwrap();
        let pd = pair.engine.alloc_pd(device, OWNER).unwrap();
        let memory = Mem::new(1 << 20);
        let key = pair.engine.reg_mr(device, pd, OF_REGION, IOVA, 1 << 20, memory.clone()).unwrap();
        End { device, pd, qpn: pair.a.qpn, gid, memory, key }
    });
    let more: Vec<_> = more.collect();
    let all: Vec<_> = [pair.a.clone(), pair.b.clone()].into_iter().chain(more).collect();
    let ends = CONNECTIONS.map(|(one, other)| {
        let ends = [one, other].map(|index| {
            let end = all[index].clone();
            End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end }
        });
        pair.connect(&ends[0], attr_to(&ends[1]), QpState::Rts);
        pair.connect(&ends[1], attr_to(&ends[0]), QpState::Rts);
        ends
    });
    (pair, ends.into())
}

/// Posts requests of each end: some execute at once, some take several rounds, and some need
/// receives.
fn post_all(engine: &mut Engine<Mem>, now: Instant, ends: &[[End; 2]], sink: &mut Log, first: usize) {
    for [one, other] in &ends[first..] {
        for (own, peer) in [(one, other), (other, one)] {
            let request = RecvRequest { id: 100, sges: &[own.sge(0, 200_000)] };
            let posted = engine.post_recv(now, own.device, OWNER, own.qpn, request, sink);
            let ops = [
                (1, write_to(peer.remote(0)), 64),
                (2, write_to(peer.remote(0)), 300_000),
                (3, SEND, 150_000),
            ];
            for (id, op, length) in ops {
                let sges = [own.sge(0, length)];
                let request = SendRequest {
                    id,
                    signaled: true,
                    solicited: false,
                    fence: false,
                    op,
                    payload: Payload::Sges(&sges),
                };
                let _ = engine.post_send(now, own.device, OWNER, own.qpn, &request, sink);
            }
            let _ = posted;
        }
    }
}

fn go_on(engine: &mut Engine<Mem>, now: Instant, sink: &mut Log) {
    while engine.poll(now, 1 << 16, sink) || {
        let question = engine.poll_question();
        question.is_some_and(|question| {
            engine.answer(now, question, sink);
            true
        })
    } {}
}

#[test]
fn what_a_step_that_panicked_had_at_hand_goes_and_all_others_complete_what_they_have() {
    let (mut seen, mut whole) = (BTreeSet::new(), false);
    for left in 0.. {
        let (mut pair, ends) = many();
        let mut sink = Log { breaks_after: Some(left), ..Log::default() };
        let now = pair.now;
        // The engine's contents show which post was in progress. The remaining posts are made
        // afterwards.
        let mut at = 0;
        let result = catch_unwind(AssertUnwindSafe(|| {
            for first in 0..ends.len() {
                at = first + 1;
                pair.engine.begin_step();
                post_all(&mut pair.engine, now, &ends[..=first], &mut sink, first);
            }
            go_on(&mut pair.engine, now, &mut sink);
        }));
        if result.is_ok() {
            whole = true;
            assert!(left >= 2 * CONNECTIONS.len() * 4, "all completed");
            break;
        }
        let reached = pair.engine.reached();
        assert!((1..=2).contains(&reached.len()), "{reached:?}");
        seen.extend(reached.iter().copied());
        for &device in &reached {
            drop(pair.engine.reset_device(device));
        }
        pair.engine.check_after_panic().expect("what devices share is whole");
        sink.breaks_after = None;
        post_all(&mut pair.engine, now, &ends, &mut sink, at);
        go_on(&mut pair.engine, now, &mut sink);
        let mut counts = BTreeMap::<_, usize>::new();
        for (device, _, completion) in &sink.completions {
            if completion.status == WcStatus::Success {
                *counts.entry((*device, completion.qpn)).or_default() += 1;
            }
        }
        for [one, other] in &ends {
            if [one, other].iter().all(|end| !reached.contains(&end.device)) {
                for end in [one, other] {
                    assert_eq!(counts.get(&(end.device, end.qpn)), Some(&4), "{left}: {reached:?}");
                }
            }
        }
        // Peers of removed devices get no answer.
        while let Some(at) = pair.engine.poll_timeout() {
            pair.now = pair.now.max(at);
            go_on(&mut pair.engine, pair.now, &mut sink);
        }
        let counts = reached.iter().map(|&device| pair.engine.counts(device).qps);
        assert_eq!(counts.sum::<u32>(), 0);
    }
    assert!(whole && seen.len() == 6, "{seen:?}");
}

#[test]
fn a_list_that_lost_an_entry_of_another_device_is_found_out() {
    let (mut pair, ends) = many();
    let mut sink = Log::default();
    post_all(&mut pair.engine, pair.now, &ends, &mut sink, 0);
    pair.engine.check_after_panic().expect("nothing is lost yet");
    // As if a step of one device had taken the entry of another device and not put it back.
    assert!(pair.engine.core.schedule.local.pop().is_some());
    assert!(pair.engine.check_after_panic().is_err());
}

#[test]
fn memory_of_packets_ahead_of_gaps_that_is_not_accounted_is_noticed() {
    let mut net = wire::Net::connected();
    let (a, b) = (net.hosts[0].end.clone(), net.hosts[1].end.clone());
    net.post(0, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 3000)]));
    net.work(0);
    net.carry(0, |at, _| at != 0);
    let engine = &mut net.hosts[1].engine;
    assert_eq!(engine.held_early(b.device).0, 2);
    engine.check_after_panic().unwrap();
    engine.core.schedule.reorder.forget(b.device.0);
    assert!(engine.check_after_panic().is_err());
}
