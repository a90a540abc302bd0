//! Packets that are lost, doubled or out of order.

use super::*;
use crate::base::rng::Rng;
use WcStatus::{Flush, RetryExc, Success};

#[test]
fn a_lost_packet_is_asked_for_at_once() {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    a.memory.fill(0, &[9; 10_000]);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 10_000)]));
    net.work(A);
    net.carry(A, |index, _| index != 4);
    net.work(B);
    let naks: Vec<_> = net.hosts[B].cable.frames.iter().map(|frame| parse(frame)).collect();
    assert_eq!(naks.len(), 1, "one word is enough for five packets");
    let before = net.now;
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.now), (vec![(1, Success)], before));
    assert_eq!(b.memory.bytes(0, 10_000), [9; 10_000]);
    let (a, b) = (net.hosts[A].counters(), net.hosts[B].counters());
    assert_eq!((a.naks_sequence_in, a.retries, a.timeouts), (1, 1, 0));
    assert_eq!((b.naks_sequence, b.out_of_sequence, b.duplicates), (1, 5, 0));
}

#[test]
fn without_any_answer_requests_end_in_the_time_that_was_promised() {
    for lost in [A, B] {
        let mut net = Net::connected();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
        net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 5000)]));
        let start = net.now;
        for _ in 0..3 {
            net.work(A);
            net.carry(A, |_, _| lost == B);
            net.work(B);
            net.hosts[B].cable.frames.clear();
            assert_eq!(net.hosts[A].statuses(), []);
            net.now = net.hosts[A].engine.poll_timeout().unwrap();
        }
        assert_eq!(net.now, Instant(start.0 + 3 * TIMEOUT.as_nanos() as u64));
        net.work(A);
        assert_eq!(net.hosts[A].statuses(), [(1, RetryExc), (2, Flush)]);
        assert_eq!(net.hosts[A].state(), QpState::Err);
        let counters = net.hosts[A].counters();
        assert_eq!((counters.timeouts, counters.retry_exceeded, counters.rnr_exceeded), (3, 1, 0));
        net.settle();
        assert_eq!((net.hosts[A].events(), net.hosts[B].events()), (vec![], vec![]));
    }
}

#[test]
fn without_a_timeout_who_is_in_this_process_is_asked_for_ever_and_nobody_else() {
    for stays_here in [true, false] {
        let mut net = Net::connected_with(|a| (a.timeout, a.retry_cnt) = (0, 0), |_| {});
        net.hosts[A].cable.stays_here = stays_here;
        let b = net.hosts[B].end.clone();
        net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
        for _ in 0..20 {
            net.work(A);
            net.hosts[A].cable.frames.clear();
            if !stays_here {
                assert_eq!(net.hosts[A].engine.poll_timeout(), None);
                break;
            }
            net.now = net.hosts[A].engine.poll_timeout().expect("it asks again");
        }
        net.run();
        let (statuses, written) = (net.hosts[A].statuses(), b.memory.bytes(0, 1)[0]);
        let wanted = if stays_here { (vec![(1, Success)], b'x') } else { (vec![], 0) };
        assert_eq!((statuses, written), wanted);
        // The requester asks no more once all is answered.
        net.settle();
    }
}

#[test]
fn who_goes_on_posting_does_not_put_the_end_off() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let start = net.now;
    for id in 0..13 {
        net.post(A, id, write_to(b.remote(0)), Payload::Inline(b"x"));
        net.work(A);
        net.hosts[A].cable.frames.clear();
        net.now = net.now + TIMEOUT / 3;
    }
    net.work(A);
    let (id, status) = net.hosts[A].statuses()[0];
    assert_eq!((id, status), (0, RetryExc));
    assert!(net.now <= start + 5 * TIMEOUT);
}

/// Sends mixed requests both ways over a bad wire. All arrive, once and in order.
fn storm(seed: u64, per_mille: u64) {
    let set = |attr: &mut QpAttr| {
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.min_rnr_timer = 1;
        attr.path_mtu = Mtu::M256;
    };
    let mut net = Net::connected_with(set, set);
    let mut rng = Rng::new(seed);
    let ends = [net.hosts[A].end.clone(), net.hosts[B].end.clone()];
    let counters = 1000 * 1000;
    let mut delayed: [Vec<Frame>; 2] = Default::default();
    let mut expected: [Vec<(u32, WcStatus)>; 2] = Default::default();
    let mut sums = [0u64; 2];
    let mut done: [Vec<(u32, WcStatus)>; 2] = Default::default();
    let mut model: [Vec<u8>; 2] = [vec![0; MEMORY], vec![0; MEMORY]];
    for round in 0..40u32 {
        for from in [A, B] {
            let (own, peer) = (&ends[from], &ends[1 - from]);
            for k in 0..rng.next() % 6 {
                let id = round * 10 + k as u32;
                let length = (rng.next() % 3000) as u32;
                let data: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
                // Each request has a slot of 4000 bytes of its own. Sources, targets and READ
                // buffers each have a third of each side's memory.
                let slot = (u64::from(round) * 6 + k) % 80 * 4000;
                let (source, target) = (slot, 320_000 + slot);
                if expected[from].len() - done[from].len() >= 60 {
                    break;
                }
                match rng.next() % 5 {
                    0 | 1 => {
                        own.memory.fill(source as usize, &data);
                        let write = rng.next().is_multiple_of(2);
                        let op = if write { write_to(peer.remote(target)) } else { SEND };
                        if !write {
                            net.post_recv(1 - from, 1_000_000, &[peer.sge(target, 4000)]);
                        }
                        net.post(from, id, op, Payload::Sges(&[own.sge(source, length)]));
                        model[1 - from][target as usize..][..data.len()].copy_from_slice(&data);
                    }
                    2 => {
                        net.post(
                            from,
                            id,
                            SendOp::Read { remote: peer.remote(target) },
                            Payload::Sges(&[own.sge(640_000 + slot, length)]),
                        );
                    }
                    3 => {
                        let value = rng.next().to_ne_bytes();
                        let op = SendOp::AtomicWrite { remote: peer.remote(target) };
                        net.post(from, id, op, Payload::Inline(&value));
                        model[1 - from][target as usize..][..8].copy_from_slice(&value);
                    }
                    _ => {
                        let remote = peer.remote(counters);
                        net.post(
                            from,
                            id,
                            SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }),
                            Payload::Sges(&[own.sge(1_000_100, 8)]),
                        );
                        sums[1 - from] += 1;
                    }
                }
                expected[from].push((id, Success));
                if rng.next().is_multiple_of(3) {
                    break;
                }
            }
        }
        let mut idle = 0;
        for _ in 0..100_000 {
            let mut moved = false;
            for from in [A, B] {
                net.work(from);
                let late = std::mem::take(&mut delayed[from]);
                let frames: Vec<Frame> = net.hosts[from].cable.frames.drain(..).collect();
                for frame in frames {
                    moved = true;
                    match rng.next() % 1000 {
                        n if n < per_mille => {}
                        n if n < 2 * per_mille => {
                            net.deliver(from, &frame);
                            net.deliver(from, &frame);
                        }
                        n if n < 3 * per_mille => delayed[from].push(frame),
                        _ => net.deliver(from, &frame),
                    }
                }
                for frame in late {
                    moved = true;
                    net.deliver(from, &frame);
                }
            }
            for at in [A, B] {
                done[at].extend(net.hosts[at].statuses().into_iter().filter(|done| done.0 < 1_000_000));
            }
            if !moved && delayed.iter().all(Vec::is_empty) {
                // Sometimes the next round begins before this one has ended.
                let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
                match next {
                    Some(at) if idle < 2 || round == 39 => net.now = net.now.max(at),
                    _ => break,
                }
                idle += 1;
            }
        }
    }
    for at in [A, B] {
        assert_eq!(done[at], expected[at], "seed {seed} at {at}");
        assert!(
            ends[at].memory.bytes(320_000, 320_000) == model[at][320_000..640_000],
            "seed {seed} at {at}"
        );
        assert_eq!(
            ends[at].memory.bytes(counters as usize, 8),
            sums[at].to_ne_bytes(),
            "seed {seed} at {at}"
        );
    }
}

#[test]
fn over_a_bad_wire_all_arrives_once_and_in_order() {
    for seed in 0..40 {
        storm(seed, 10);
    }
}
