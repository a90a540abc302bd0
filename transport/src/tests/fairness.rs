//! Scheduling: long messages do not block others.
//!
//! Shows: fairness.

use super::datagrams::{Ud, to};
use super::wire::{A, B, Cable, MEMORY, Net};
use super::*;
use crate::agenda::schedule::{OPERATION, QUANTUM, WITHIN_POSTS};
use crate::engine::DEADLINES;
use crate::engine::sweep::SWEPT;
use vrdma_wire::num::Mac;
use vrdma_wire::roce::Body;

#[test]
fn small_messages_of_others_overtake_a_long_one() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let [c, d] = [&a, &b]
        .map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    pair.connect(&c, attr_to(&d), QpState::Rts);
    pair.connect(&d, attr_to(&c), QpState::Rts);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    pair.post(&c, 2, write_to(d.remote(0)), Payload::Inline(b"at once")).unwrap();
    assert_eq!(pair.statuses(), [('a', 2, WcStatus::Success)]);
    pair.post(&c, 3, write_to(d.remote(0)), Payload::Sges(&[c.sge(0, 100_000)])).unwrap();
    let mut polls = 0;
    while pair.engine.poll(pair.now, 1, &mut pair.log) {
        polls += 1;
        if polls == 2 {
            assert_eq!(pair.statuses(), [('a', 3, WcStatus::Success)]);
        }
    }
    assert_eq!(polls, 4);
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
}

#[test]
fn a_budget_is_kept_roughly_and_nothing_ready_costs_nothing() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for id in 0..16 {
        pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    }
    assert!(pair.engine.poll(pair.now, 4 << 20, &mut pair.log));
    let done = pair.statuses().len();
    assert!((3..=5).contains(&done), "{done}");
    pair.run();
    assert!(!pair.engine.poll(pair.now, 0, &mut pair.log));
    assert_eq!(pair.engine.poll_timeout(), None);
}

#[test]
fn order_is_kept_whatever_is_small_or_long() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for id in 0..12 {
        let length = [1, 70_000, 300_000, 8][id as usize % 4];
        let op = match id % 3 {
            0 => SendOp::Read { remote: b.remote(0) },
            _ => write_to(b.remote(0)),
        };
        pair.post(&a, id, op, Payload::Sges(&[a.sge(0, length)])).unwrap();
    }
    pair.run();
    let ids: Vec<_> = pair.statuses().iter().map(|s| s.1).collect();
    assert_eq!(ids, (0..12).collect::<Vec<_>>());
}

#[test]
fn posts_carry_only_so_much_before_others_have_their_turn() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    for turn in 0..3 {
        for id in 0..80 {
            pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 64 << 10)])).unwrap();
        }
        let at_once = pair.statuses().len();
        assert!((64..=65).contains(&at_once), "{turn}: {at_once}");
        assert_eq!(pair.engine.counts(a.device).pending_sends, 80 - at_once as u64);
        pair.run();
        let ids: Vec<_> = pair.statuses().iter().map(|s| s.1 as usize).collect();
        assert_eq!(ids, (at_once..80).collect::<Vec<_>>());
    }
}

#[test]
fn posts_that_have_to_wait_have_carried_nothing() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let post = |pair: &mut Pair, qpn, op| {
        let sges = [a.sge(0, 64 << 10)];
        let payload = Payload::Sges(&sges);
        let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op, payload };
        let Pair { engine, now, log, .. } = pair;
        engine.post_send(*now, a.device, OWNER, qpn, &request, log).unwrap();
    };
    // Many times the budget of posts, to QPs without receives.
    for _ in 0..(4 * WITHIN_POSTS) >> 16 {
        let ends = [&a, &b].map(|end| with_qp(&mut pair.engine, end));
        pair.connect(&ends[0], attr_to(&ends[1]), QpState::Rts);
        pair.connect(&ends[1], attr_to(&ends[0]), QpState::Rts);
        post(&mut pair, ends[0].qpn, SEND);
    }
    assert!(pair.log.completions.is_empty());
    post(&mut pair, a.qpn, write_to(b.remote(0)));
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
}

#[test]
fn deadlines_that_come_together_are_attended_to_in_slices() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * DEADLINES + 10;
    for _ in 0..all {
        let qpn = pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap();
        let end = End { qpn, ..a.clone() };
        // B has no QP connected to this one, so it does not answer.
        pair.connect(&end, attr_to(&b), QpState::Rts);
        pair.post(&end, 1, SEND, Payload::Sges(&[])).unwrap();
    }
    pair.now = pair.now + TIMEOUT;
    for attended in [DEADLINES, 2 * DEADLINES, all] {
        let more = pair.engine.poll(pair.now, u64::MAX, &mut pair.log);
        assert!(more || attended == all);
        assert_eq!(pair.engine.counters(a.device).timeouts, attended as u64);
    }
    // The QPs that retry get their rounds.
    while pair.engine.poll(pair.now, u64::MAX, &mut pair.log) {}
    assert_eq!(pair.engine.counters(a.device).timeouts, all as u64);
}

#[test]
fn a_device_goes_on_in_slices() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let all = 2 * SWEPT + 10;
    let ends: Vec<_> = (0..all)
        .map(|_| End { qpn: pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap(), ..a.clone() })
        .collect();
    pair.engine.set_suspended(a.device, true);
    for end in &ends {
        // B has no QP connected to this one, so its timer shows that it was tried.
        pair.connect(end, attr_to(&b), QpState::Rts);
        pair.post(end, 1, SEND, Payload::Sges(&[])).unwrap();
    }
    pair.engine.set_suspended(a.device, false);
    for slice in 1.. {
        assert_eq!(pair.engine.poll_timeout(), Some(Instant(0)));
        let more = pair.engine.poll(pair.now, u64::MAX, &mut pair.log);
        let (_, tried) = pair.engine.core.schedule.len();
        assert!(tried > 0 && tried <= slice * SWEPT, "{tried} in {slice}");
        if !more {
            assert_eq!(tried, all);
            break;
        }
    }
    // A device that is suspended again before its turn does not continue.
    pair.engine.set_suspended(a.device, true);
    pair.engine.set_suspended(a.device, false);
    pair.engine.set_suspended(a.device, true);
    assert!(!pair.engine.poll(pair.now, u64::MAX, &mut pair.log));
    pair.engine.set_suspended(a.device, false);
    pair.engine.reset_device(a.device);
    assert!(!pair.engine.poll(pair.now, u64::MAX, &mut pair.log));
}

#[test]
fn connections_start_over_in_slices_when_the_link_is_back() {
    let mut net = Net::connected();
    let all = SWEPT + 100;
    for _ in 0..all {
        net.second_pair();
        let remote = net.hosts[B].end.remote(0);
        net.post(A, 1, write_to(remote), Payload::Inline(b"x"));
        net.work(A);
    }
    let host = &mut net.hosts[A];
    assert_eq!(std::mem::take(&mut host.cable.frames).len(), all);
    host.engine.set_link(false);
    host.engine.set_link(true);
    assert_eq!(host.engine.core.schedule.wire.len(), 0);
    assert!(host.engine.poll(net.now, u64::MAX, &mut host.log));
    let due = host.engine.core.schedule.wire.len();
    assert!(due > 0 && due <= SWEPT, "{due}");
    net.work(A);
    assert_eq!(net.hosts[A].cable.frames.len(), all);
}

/// Adds a device with an address of its own, and memory.
fn device(engine: &mut Engine<Mem>, host: u8) -> End {
    let device = engine.add_device(Limits { max_qp: 1 << 15, ..Limits::default() });
    let gid = Gid::from_ipv4([10, 0, 0, host]);
    engine.set_gid(device, 0, Some(gid.into())).unwrap();
    engine.set_mac(device, mac(host)).unwrap();
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let memory = Mem::new(MEMORY);
    let key = engine.reg_mr(device, pd, Access::ALL, IOVA, MEMORY as u64, memory.clone()).unwrap();
    End { device, pd, qpn: Qpn::default(), gid, memory, key }
}

fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}

/// Creates one more QP on an end's device.
fn with_qp(engine: &mut Engine<Mem>, end: &End) -> End {
    let qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
    End { qpn, ..end.clone() }
}

/// Connects a QP with `peer`, whose MAC address ends with `host`.
fn connect(engine: &mut Engine<Mem>, log: &mut Log, own: &End, peer: &End, host: u8) {
    let attr = QpAttr { dmac: mac(host), hop_limit: 64, ..attr_to(peer) };
    for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
        let attr = QpAttr { state, ..attr };
        engine.modify_qp(Instant(1), own.device, own.qpn, mask, &attr, log).unwrap();
    }
}

fn post_write(engine: &mut Engine<Mem>, log: &mut Log, own: &End, peer: &End, length: u32) {
    let sges = [own.sge(0, length)];
    let op = write_to(peer.remote(0));
    let payload = Payload::Sges(&sges);
    let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op, payload };
    engine.post_send(Instant(1), own.device, OWNER, own.qpn, &request, log).unwrap();
}

#[test]
fn a_guest_with_one_qp_waits_for_one_turn_of_a_guest_with_16000() {
    let (mut engine, mut log) = (Engine::new(1), Log::default());
    let [greedy, its_peer, one, other] = [1, 2, 3, 4].map(|host| device(&mut engine, host));
    for _ in 0..16_000 {
        let (from, to) = (with_qp(&mut engine, &greedy), with_qp(&mut engine, &its_peer));
        connect(&mut engine, &mut log, &from, &to, 2);
        connect(&mut engine, &mut log, &to, &from, 1);
        post_write(&mut engine, &mut log, &from, &to, 256 << 10);
    }
    let (from, to) = (with_qp(&mut engine, &one), with_qp(&mut engine, &other));
    connect(&mut engine, &mut log, &from, &to, 4);
    connect(&mut engine, &mut log, &to, &from, 3);
    for _ in 0..20 {
        post_write(&mut engine, &mut log, &from, &to, 100_000);
        // Each poll gives one QP its turn.
        (0..2).for_each(|_| assert!(engine.poll(Instant(1), 1, &mut log)));
        let own = log.completions.drain(..).filter(|(device, ..)| *device == from.device);
        assert_eq!(own.count(), 1);
    }
    // A removed device leaves nothing in the schedule.
    engine.remove_device(greedy.device);
    engine.remove_device(from.device);
    assert!(!engine.poll(Instant(1), 1, &mut log));
    assert_eq!(engine.core.schedule.len(), (0, 0));
}

#[test]
fn both_guests_get_as_many_bytes_however_they_are_cut() {
    let (mut engine, mut log) = (Engine::new(1), Log::default());
    let ends = [1, 2, 3, 4].map(|host| device(&mut engine, host));
    let pairs = [0, 2].map(|at| (with_qp(&mut engine, &ends[at]), with_qp(&mut engine, &ends[at + 1])));
    for (index, (from, to)) in pairs.iter().enumerate() {
        connect(&mut engine, &mut log, from, to, 2 * index as u8 + 2);
        connect(&mut engine, &mut log, to, from, 2 * index as u8 + 1);
    }
    let (mut posted, mut bytes) = ([0; 2], [0_u64; 2]);
    for _ in 0..400 {
        for (index, (from, to)) in pairs.iter().enumerate() {
            let length = [70_000, 1 << 20][index];
            while posted[index] < 8 {
                post_write(&mut engine, &mut log, from, to, length);
                posted[index] += 1;
            }
        }
        engine.poll(Instant(1), 1, &mut log);
        for (device, ..) in log.completions.drain(..) {
            let index = usize::from(device == pairs[1].0.device);
            posted[index] -= 1;
            bytes[index] += [70_000, 1 << 20][index];
        }
    }
    assert!(bytes[0].abs_diff(bytes[1]) < 3 << 20, "{bytes:?}");
}

/// Returns the bytes that guests of weights 1 and 3 have moved, and the number of their messages.
/// Both post messages of these lengths all the time.
fn weighted(lengths: [u32; 2]) -> [(u64, u64); 2] {
    let (mut engine, mut log) = (Engine::new(1), Log::default());
    let ends = [1, 2, 3, 4].map(|host| device(&mut engine, host));
    let pairs = [0, 2].map(|at| (with_qp(&mut engine, &ends[at]), with_qp(&mut engine, &ends[at + 1])));
    engine.set_weight(ends[2].device, 3).unwrap();
    for (index, (from, to)) in pairs.iter().enumerate() {
        connect(&mut engine, &mut log, from, to, 2 * index as u8 + 2);
        connect(&mut engine, &mut log, to, from, 2 * index as u8 + 1);
    }
    let (mut posted, mut had) = ([0; 2], [(0, 0); 2]);
    for _ in 0..4000 {
        for (index, (from, to)) in pairs.iter().enumerate() {
            while posted[index] < 8 {
                post_write(&mut engine, &mut log, from, to, lengths[index]);
                posted[index] += 1;
            }
        }
        engine.poll(Instant(1), 1, &mut log);
        for (device, ..) in log.completions.drain(..) {
            let index = usize::from(device == pairs[1].0.device);
            posted[index] -= 1;
            had[index] = (had[index].0 + u64::from(lengths[index]), had[index].1 + 1);
        }
    }
    had
}

#[test]
fn guests_of_weights_1_and_3_get_bytes_and_messages_as_1_to_3() {
    for lengths in [[1 << 20, 1 << 20], [70_000, 1 << 20], [1 << 20, 70_000], [100_000, 100_000]] {
        let [one, three] = weighted(lengths);
        assert!((3 * one.0).abs_diff(three.0) * 20 <= three.0, "{lengths:?}: {one:?} and {three:?}");
        if lengths[0] == lengths[1] {
            assert!((3 * one.1).abs_diff(three.1) * 20 <= three.1, "{lengths:?}: {one:?} and {three:?}");
        }
    }
}

/// What guests of weights 1 and 3 have sent.
#[derive(Default)]
struct Shares {
    all: [u64; 2],
    /// While both had messages.
    both: [u64; 2],
}

/// Plays two guests of weights 1 and 3, as the benchmark of the quality of service does: with 8 QPs
/// that have 32 messages each, which are posted again once they have ended.
///
/// `pause` returns after how many polls the program looks at completions again.
fn played(length: u32, mut pause: impl FnMut() -> u32) -> Shares {
    const PENDING: usize = 32;
    let (mut engine, mut log) = (Engine::new(1), Log::default());
    let ends = [1, 2, 3, 4].map(|host| device(&mut engine, host));
    engine.set_weight(ends[2].device, 3).unwrap();
    let mut guests = [0, 2].map(|at| {
        let pairs = (0..8).map(|_| {
            let init = QpInit { max_send_wr: PENDING as u32, ..qp_init(ends[at].pd) };
            let own = End { qpn: engine.create_qp(ends[at].device, init).unwrap(), ..ends[at].clone() };
            let peer = with_qp(&mut engine, &ends[at + 1]);
            connect(&mut engine, &mut log, &own, &peer, at as u8 + 2);
            connect(&mut engine, &mut log, &peer, &own, at as u8 + 1);
            (own, peer, 0)
        });
        pairs.collect::<Vec<(End, End, usize)>>()
    });
    let (mut shares, mut had_more) = (Shares::default(), false);
    for _ in 0..1000 {
        for (own, peer, pending) in guests.iter_mut().flatten() {
            while *pending < PENDING {
                post_write(&mut engine, &mut log, own, peer, length);
                *pending += 1;
            }
        }
        let mut counted = 0;
        for _ in 0..pause() {
            engine.poll(Instant(1), 1 << 20, &mut log);
            let has_more = |end: &End| engine.counts(end.device).pending_sends > 0;
            let have_more = has_more(&ends[0]) && has_more(&ends[2]);
            for (device, ..) in &log.completions[counted..] {
                let at = usize::from(*device == ends[2].device);
                shares.all[at] += 1;
                // After a pause, posts have moved some at once.
                shares.both[at] += u64::from(had_more && have_more);
            }
            (counted, had_more) = (log.completions.len(), have_more);
        }
        for (device, _, completion) in log.completions.drain(..) {
            let guest = &mut guests[usize::from(device == ends[2].device)];
            let at = guest.iter().position(|(own, ..)| own.qpn == completion.qpn).unwrap();
            guest[at].2 -= 1;
        }
    }
    shares
}

/// The benchmark once told shares of 1 to 2.81, on a machine that kept its program from posting.
#[test]
fn shares_are_those_of_weights_as_long_as_both_guests_have_messages() {
    let share = |[one, three]: [u64; 2]| three as f64 / one as f64;
    for (length, most) in [(64 << 10, 1), (64 << 10, 10), (64 << 10, 40), (100_000, 3), (100_000, 40)] {
        let mut rng = crate::base::rng::Rng::new(3);
        let Shares { all, both } = played(length, || 1 + (rng.next() % most) as u32);
        let context = format!("{length} bytes, {most} polls: {all:?}, {both:?}");
        assert!((2.9..3.1).contains(&share(both)) && both[0] > 1000, "{context}");
        // In 40 polls, all messages of a guest end. The other one then has all turns.
        assert_eq!(share(all) < 2.85, most == 40, "{context}");
    }
}

#[test]
fn guests_of_weights_1_and_3_share_the_wire_as_1_to_3() {
    let mut net = Net::connected();
    let first = net.hosts.each_ref().map(|host| host.end.clone());
    for _ in 0..60 {
        net.second_pair();
        let (own, remote) = (net.hosts[A].end.sge(0, 128 << 10), net.hosts[B].end.remote(0));
        net.post(A, 1, write_to(remote), Payload::Sges(&[own]));
    }
    // A second guest of host A, whose QPs have as much to send.
    let engine = &mut net.hosts[A].engine;
    let heavy = device(engine, 3);
    engine.set_weight(heavy.device, 3).unwrap();
    for _ in 0..180 {
        let own = with_qp(&mut net.hosts[A].engine, &heavy);
        let peer = with_qp(&mut net.hosts[B].engine, &first[B]);
        let wire::Host { engine, log, .. } = &mut net.hosts[A];
        connect(engine, log, &own, &peer, 2);
        post_write(engine, log, &own, &peer, 128 << 10);
    }
    let wire::Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 20_000, cable, log);
    let sources = cable.frames.iter().map(|frame| wire::parse(frame).path.src);
    let (own, others): (Vec<_>, Vec<_>) = sources.partition(|&src| src == heavy.gid);
    assert!(own.len().abs_diff(3 * others.len()) * 20 <= own.len(), "{} and {}", own.len(), others.len());
    assert_eq!(engine.set_weight(heavy.device, 0), Err(Error::Invalid));
    assert_eq!(engine.set_weight(heavy.device, 101), Err(Error::Invalid));
    assert_eq!(engine.set_weight(DeviceId(77), 1), Err(Error::NotFound));
}

/// Returns the position of a QP's ACK among the next 1,000 packets that host A sends.
fn acknowledge(net: &mut Net, of: Qpn) -> Option<usize> {
    let wire::Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 1000, cable, log);
    let frames = std::mem::take(&mut cable.frames);
    frames.iter().map(|frame| wire::parse(frame)).position(|packet| {
        packet.bth.dest == of && matches!(packet.body, Body::Rc(vrdma_wire::roce::Rc::Ack(_)))
    })
}

/// Packets of path MTU 1024 in a quantum.
const PACKETS: usize = QUANTUM as usize / (1024 + OPERATION as usize) + 1;

#[test]
fn an_acknowledge_waits_for_one_turn_at_most_whichever_guest_has_many_requests() {
    let mut net = Net::connected();
    let first = net.hosts.each_ref().map(|host| host.end.clone());
    for _ in 0..900 {
        net.second_pair();
        let (own, remote) = (net.hosts[A].end.sge(0, 128 << 10), net.hosts[B].end.remote(0));
        net.post(A, 1, write_to(remote), Payload::Sges(&[own]));
    }
    // A second guest of host A, and its peer.
    let engine = &mut net.hosts[A].engine;
    let victim = device(engine, 3);
    let victim = with_qp(engine, &victim);
    let peer = with_qp(&mut net.hosts[B].engine, &first[B]);
    let wire::Host { engine, log, .. } = &mut net.hosts[A];
    connect(engine, log, &victim, &peer, 2);
    let wire::Host { engine, log, .. } = &mut net.hosts[B];
    connect(engine, log, &peer, &victim, 3);
    for _ in 0..5 {
        for (at, (to, from)) in [(&victim, &peer), (&first[A], &first[B])].into_iter().enumerate() {
            net.hosts[B].end = from.clone();
            net.post(B, 1, write_to(to.remote(0)), Payload::Inline(b"x"));
            net.work(B);
            net.carry(B, |_, _| true);
            let found = acknowledge(&mut net, from.qpn);
            // QPs that owe an answer go first within their guest, but another turn may have begun
            // already.
            assert!(found.is_some_and(|found| found <= PACKETS), "{at}: {found:?}");
        }
    }
}

#[test]
fn responses_without_end_leave_the_requests_of_their_guest_turns() {
    let mut net = Net::connected();
    let first = net.hosts.each_ref().map(|host| host.end.clone());
    // Each QP of A has responses of 256 KiB to send, again and again. The first QP also has a
    // request.
    for _ in 0..100 {
        net.second_pair();
        let (own, remote) = (net.hosts[B].end.sge(0, 256 << 10), net.hosts[A].end.remote(0));
        (0..4).for_each(|id| net.post(B, id, SendOp::Read { remote }, Payload::Sges(&[own])));
    }
    net.work(B);
    net.carry(B, |_, _| true);
    net.hosts[A].end = first[A].clone();
    let (own, remote) = (net.hosts[A].end.sge(0, 8), first[B].remote(0));
    net.post(A, 1, write_to(remote), Payload::Sges(&[own]));
    let wire::Host { engine, log, cable, .. } = &mut net.hosts[A];
    engine.transmit(net.now, 1000, cable, log);
    let sent: Vec<_> = std::mem::take(&mut cable.frames).iter().map(|frame| wire::parse(frame)).collect();
    let is_write =
        |packet: &vrdma_wire::roce::Packet| matches!(packet.body, Body::Rc(vrdma_wire::roce::Rc::Write(_)));
    let found = sent.iter().position(is_write);
    assert!(found.is_some_and(|found| found <= PACKETS), "{found:?}");
}

#[test]
fn datagrams_that_are_copied_cost_a_turn_of_the_port_what_they_copy() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.engine.set_link(true);
    let message = [a.sge(0, 4096)];
    // After SQD, the datagrams wait for a turn of the port.
    ud.pair.go(&a, QpState::Sqd);
    for id in 0..16 {
        ud.pair.post_recv(&b, id, &[b.sge(0, 4136)]).unwrap();
        ud.send(id, &to(&a, &b), SEND, Payload::Sges(&message));
    }
    ud.pair.go(&a, QpState::Rts);
    let mut cable = Cable::default();
    let Pair { engine, now, log, .. } = &mut ud.pair;
    assert!(engine.transmit(*now, 4, &mut cable, log));
    assert_eq!(log.completions.iter().filter(|(device, ..)| *device == a.device).count(), 4);
    while engine.transmit(*now, 4, &mut cable, log) {}
    assert_eq!((log.completions.len(), cable.frames.len()), (32, 0));
}
