//! Rates beside each other: what a rate holds back, and what it must not.
//!
//! Shows: quality-of-service.

use super::datagrams::{QKEY, Ud, to};
use super::unreliable::uc;
use super::wire::{A, B, Host, Net};
use super::*;
use crate::agenda::rate::RateLimit;
use crate::agenda::rates::{Flow, RateLimits};
use crate::agenda::schedule::SentIn;
use crate::base::qp_ref::QpRef;
use crate::objects::qp::Direction;
use core::num::NonZeroU64;
use vrdma_wire::num::Qkey;
use vrdma_wire::roce::{Body, Rc};

/// Bytes in a second of the limits in these tests.
const BYTES: u64 = 1_000_000;

fn bytes() -> RateLimit {
    RateLimit { bytes: NonZeroU64::new(BYTES), messages: None, burst: Duration::from_millis(10) }
}

fn tx() -> RateLimits {
    RateLimits { tx: bytes(), rx: RateLimit::default() }
}

fn rx() -> RateLimits {
    RateLimits { tx: RateLimit::default(), rx: bytes() }
}

/// Connects two more QPs of host A's device with each other.
fn join_here(net: &mut Net) -> [End; 2] {
    let now = net.now;
    let Host { engine, log, end, .. } = &mut net.hosts[A];
    let ends =
        [(), ()].map(|()| End { qpn: engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    for (own, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            let attr = QpAttr { state, ..attr_to(peer) };
            engine.modify_qp(now, own.device, own.qpn, mask, &attr, log).unwrap();
        }
    }
    ends
}

/// Returns what of the rate a device has not used.
fn left(net: &Net, host: usize, flow: Flow) -> u64 {
    let Host { engine, end, .. } = &net.hosts[host];
    engine.core.schedule.rates.left(end.device.0, flow)
}

#[test]
fn busy_messages_on_this_host_leave_a_limited_device_its_turns_of_the_port() {
    let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
    let [own, peer] = join_here(&mut net);
    let device = own.device;
    net.hosts[A].engine.set_rates(net.now, device, &tx()).unwrap();
    let remote = net.hosts[B].end.remote(0);
    let (mut here, mut wire) = ([0_u64; 2], [0_u64; 2]);
    let end = net.now + Duration::from_secs(4);
    while net.now < end {
        while here[0] - here[1] < 8 {
            let Host { engine, log, .. } = &mut net.hosts[A];
            let (op, sges) = (write_to(peer.remote(0)), [own.sge(0, 16 << 10)]);
            let payload = Payload::Sges(&sges);
            let request =
                SendRequest { id: 1000, signaled: true, solicited: false, fence: false, op, payload };
            engine.post_send(net.now, device, OWNER, own.qpn, &request, log).unwrap();
            here[0] += 1;
        }
        while wire[0] - wire[1] < 8 {
            let sges = [net.hosts[A].end.sge(0, 16 << 10)];
            net.post(A, 1, write_to(remote), Payload::Sges(&sges));
            wire[0] += 1;
        }
        for host in [A, B, A, B] {
            net.work(host);
            net.carry(host, |_, _| true);
        }
        let ended = net.hosts[A].statuses();
        for &(id, status) in &ended {
            assert_eq!(status, WcStatus::Success);
            if id == 1000 { here[1] += 1 } else { wire[1] += 1 }
        }
        if ended.is_empty() {
            let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
            net.now = next.expect("the rate is waited for").max(net.now);
        }
    }
    let moved = [here[1], wire[1]].map(|messages| messages * (16 << 10));
    let sum: u64 = moved.iter().sum();
    assert!(sum.abs_diff(4 * BYTES) < BYTES / 4, "{moved:?}");
    assert!(moved.iter().all(|moved| moved * 4 > sum), "each has its part: {moved:?}");
}

#[test]
fn a_low_rate_lets_no_acknowledge_come_too_late() {
    // Each QP has a packet in 8 ms, and asks for an acknowledge with every 32nd by itself.
    const QPS: u32 = 8;
    let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
    let device = net.hosts[A].end.device;
    let mut ends = vec![net.hosts.each_ref().map(|host| host.end.clone())];
    for _ in 1..QPS {
        net.second_pair();
        ends.push(net.hosts.each_ref().map(|host| host.end.clone()));
    }
    net.hosts[A].engine.set_rates(net.now, device, &tx()).unwrap();
    for pair in &ends {
        net.hosts[A].end = pair[A].clone();
        let sges = [pair[A].sge(0, 100_000)];
        net.post(A, 1, write_to(pair[B].remote(0)), Payload::Sges(&sges));
    }
    let end = net.now + Duration::from_secs(5);
    let mut done = 0;
    while done < QPS && net.now < end {
        for host in [A, B, A, B] {
            net.work(host);
            net.carry(host, |_, _| true);
        }
        done += net.hosts[A].statuses().len() as u32;
        let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
        if let Some(next) = next {
            net.now = next.max(net.now);
        }
    }
    let counters = net.hosts[A].engine.counters(device);
    assert_eq!((done, counters.timeouts, counters.retries), (QPS, 0, 0));
}

#[test]
fn packets_that_are_not_accepted_cost_a_receiver_nothing() {
    let mut net = Net::connected();
    let device = net.hosts[B].end.device;
    net.hosts[B].engine.set_rates(net.now, device, &rx()).unwrap();
    let full = left(&net, B, Flow::Rx);
    let sges = [net.hosts[A].end.sge(0, 1000)];
    net.post(A, 1, write_to(net.hosts[B].end.remote(0)), Payload::Sges(&sges));
    net.work(A);
    let frames = std::mem::take(&mut net.hosts[A].cable.frames);
    assert_eq!(frames.len(), 1);
    let write = wire::parse(&frames[0]);
    let Body::Rc(Rc::Write(_)) = write.body else { panic!("a WRITE: {write:?}") };
    // To another QP, from another host, and out of order.
    let mut strays = [write; 3];
    strays[0].bth.dest = Qpn::truncate(0x777);
    strays[1].path.src = Gid::from_ipv4([10, 0, 0, 99]);
    strays[2].bth.psn = write.bth.psn.add(100);
    for stray in &strays {
        (0..100).for_each(|_| net.inject(A, stray, &[7; 1000]));
    }
    assert_eq!(left(&net, B, Flow::Rx), full);
    // The one that is accepted counts, and its duplicates do not.
    (0..100).for_each(|_| net.deliver(A, &frames[0]));
    assert_eq!(left(&net, B, Flow::Rx), full - 1000);
}

#[test]
fn datagrams_that_are_not_accepted_cost_a_receiver_nothing() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    let rate = RateLimit { messages: NonZeroU64::new(1000), bytes: None, burst: Duration::from_millis(5) };
    let limits = RateLimits { rx: rate, tx: RateLimit::default() };
    ud.pair.engine.set_rates(ud.pair.now, b.device, &limits).unwrap();
    let stray = Destination { qkey: Qkey(QKEY.0 + 1), ..to(&a, &b) };
    for id in 0..5 {
        ud.pair.post_recv(&b, id, &[b.sge(0, 4136)]).unwrap();
        (0..10).for_each(|_| ud.send(100, &stray, SEND, Payload::Inline(b"stray")));
        ud.pair.run();
    }
    (0..5).for_each(|id| ud.send(id, &to(&a, &b), SEND, Payload::Inline(b"wanted")));
    ud.pair.run();
    let arrived = ud.pair.log.completions.iter().filter(|(device, ..)| *device == b.device).count();
    assert_eq!((arrived, ud.pair.engine.rate_counters(b.device).rx_limited), (5, 0));
}

#[test]
fn who_reads_has_its_turn_although_the_device_that_is_read_sends_all_the_time() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    // A second pair, so that reads do not wait behind writes.
    let [c, d] = [&a, &b]
        .map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    pair.connect(&c, attr_to(&d), QpState::Rts);
    pair.connect(&d, attr_to(&c), QpState::Rts);
    pair.engine.set_rates(pair.now, b.device, &tx()).unwrap();
    let length = 20_000;
    let (mut writes, mut reads) = ([0_u64; 2], [0_u64; 2]);
    let end = pair.now + Duration::from_secs(4);
    while pair.now < end {
        while writes[0] - writes[1] < 8 {
            pair.post(&b, 1, write_to(a.remote(0)), Payload::Sges(&[b.sge(0, length)])).unwrap();
            writes[0] += 1;
        }
        while reads[0] - reads[1] < 8 {
            let op = SendOp::Read { remote: d.remote(0) };
            pair.post(&c, 2, op, Payload::Sges(&[c.sge(0, length)])).unwrap();
            reads[0] += 1;
        }
        while pair.engine.poll(pair.now, 1 << 20, &mut pair.log) {}
        let ended = pair.statuses();
        writes[1] += ended.iter().filter(|status| status.1 == 1).count() as u64;
        reads[1] += ended.iter().filter(|status| status.1 == 2).count() as u64;
        if ended.is_empty() {
            pair.now = pair.engine.poll_timeout().expect("the rate is waited for").max(pair.now);
        }
    }
    let moved = [writes[1], reads[1]].map(|messages| messages * u64::from(length));
    let sum: u64 = moved.iter().sum();
    assert!(sum.abs_diff(4 * BYTES) < BYTES / 4, "{moved:?}");
    assert!(moved.iter().all(|moved| moved * 5 > sum), "each has its part: {moved:?}");
}

#[test]
fn rates_of_one_device_are_not_looked_at_for_messages_of_others() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let other = pair.engine.add_device(Limits::default());
    let place = |end: &End| QpRef { device: end.device.0, qpn: end.qpn };
    let concerned = |pair: &Pair| [&a, &b].map(|end| pair.engine.is_limited_here(place(end)));
    pair.engine.set_rates(pair.now, other, &tx()).unwrap();
    assert!(pair.engine.core.schedule.rates.any());
    assert_eq!(concerned(&pair), [false; 2]);
    // They are looked at for both ends of a device's messages, also if only a QP has a rate.
    pair.engine.set_rates(pair.now, b.device, &tx()).unwrap();
    assert_eq!(concerned(&pair), [true; 2]);
    pair.engine.set_qp_rate(pair.now, b.device, b.qpn, &bytes()).unwrap();
    pair.engine.set_rates(pair.now, b.device, &RateLimits::default()).unwrap();
    assert_eq!(concerned(&pair), [true; 2]);
    pair.engine.set_qp_rate(pair.now, b.device, b.qpn, &RateLimit::default()).unwrap();
    assert_eq!(concerned(&pair), [false; 2]);
    // A QP takes its rate with it.
    pair.engine.set_qp_rate(pair.now, a.device, a.qpn, &bytes()).unwrap();
    pair.engine.destroy_qp(a.device, a.qpn).unwrap();
    assert!(!pair.engine.core.is_limited(a.device.0));
    pair.engine.set_qp_rate(pair.now, b.device, b.qpn, &bytes()).unwrap();
    pair.engine.reset_device(b.device);
    assert!(!pair.engine.core.is_limited(b.device.0) && pair.engine.core.is_limited(other.0));
}

/// Lets hosts exchange packets until nothing is ready.
///
/// The engines stay the same. Others would not know who has waited.
pub(super) fn exchange(net: &mut Net) {
    loop {
        net.work_near(A);
        net.work_near(B);
        let far = net.hosts.each_mut().map(|host| std::mem::take(&mut host.cable.frames));
        let is_over = far.iter().all(|frames| frames.is_empty());
        for (from, frames) in far.into_iter().enumerate() {
            let Host { engine, log, .. } = &mut net.hosts[1 - from];
            frames.iter().for_each(|frame| engine.handle_frame(net.now, frame, log));
        }
        let near = net.hosts.iter().all(|host| host.cable.near.is_some());
        if is_over && (!near || net.hand_over_all() == 0) {
            return;
        }
    }
}

/// Lets A post these operations one after the other, all the time, for four seconds. Each has a
/// length. Once all have ended, `pending` are posted. Returns the bytes of those that ended.
///
/// It ends early if many more end than a rate allows.
fn four_seconds(net: &mut Net, pending: usize, ops: &[(SendOp, u32)]) -> u64 {
    let end = net.now + Duration::from_secs(4);
    let (mut posted, mut done, mut moved) = (0, 0, 0);
    while net.now < end && moved < 8 * BYTES {
        let more = if posted == done { pending } else { 0 };
        for _ in 0..more {
            let at = posted % ops.len();
            let (op, length) = ops[at];
            let sges = [net.hosts[A].end.sge(0, length)];
            net.post(A, at as u32, op, Payload::Sges(if length == 0 { &[] } else { &sges }));
            posted += 1;
        }
        exchange(net);
        let ended = net.hosts[A].statuses();
        done += ended.len();
        for &(at, status) in &ended {
            assert_eq!(status, WcStatus::Success);
            moved += u64::from(ops[at as usize].1);
        }
        if ended.is_empty() {
            let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
            net.now = next.expect("the rate is waited for").max(net.now);
        }
    }
    moved
}

#[test]
fn reads_behind_short_requests_keep_to_the_rate_of_their_requester() {
    for is_near in [false, true] {
        let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
        if is_near {
            net = net.on_near_ways();
        }
        let device = net.hosts[A].end.device;
        net.hosts[A].engine.set_rates(net.now, device, &rx()).unwrap();
        let remote = net.hosts[B].end.remote(0);
        let ops = [(write_to(remote), 0), (SendOp::Read { remote }, 32 << 10)];
        // Both are posted once both have ended, so each turn begins with the WRITE.
        let moved = four_seconds(&mut net, 2, &ops);
        assert!(moved.abs_diff(4 * BYTES) < BYTES / 2, "near {is_near}: {moved}");
    }
}

#[test]
fn data_that_are_read_keep_to_the_rate_of_their_sender_on_each_way_and_behind_atomics() {
    for (is_near, with_atomics) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
        if is_near {
            net = net.on_near_ways();
        }
        let device = net.hosts[B].end.device;
        net.hosts[B].engine.set_rates(net.now, device, &tx()).unwrap();
        let remote = net.hosts[B].end.remote(0);
        let Remote { addr, rkey } = remote;
        let atomic = SendOp::Atomic { addr, rkey, op: Atomic::FetchAdd { add: 1 } };
        let ops = match with_atomics {
            true => vec![(atomic, 8), (SendOp::Read { remote }, 4096)],
            // An inter-worker packet has up to 64 KiB of these.
            false => vec![(SendOp::Read { remote }, 256 << 10)],
        };
        let moved = four_seconds(&mut net, 16, &ops);
        let context = format!("near {is_near}, atomics {with_atomics}");
        assert!(moved.abs_diff(4 * BYTES) < BYTES / 2, "{context}: {moved}");
    }
}

#[test]
fn what_the_peer_does_not_accept_costs_it_nothing_and_does_not_wait_for_it() {
    type Spoil = fn(&mut Pair) -> SendOp;
    let cases: [(&str, [bool; 2], Spoil); 4] = [
        ("not connected back", [true, false], |pair| write_to(pair.b.remote(0))),
        ("no such QP", [true; 2], |pair| {
            pair.engine.destroy_qp(pair.b.device, pair.b.qpn).unwrap();
            write_to(pair.b.remote(0))
        }),
        ("no receive", [true; 2], |_| SEND),
        ("a wrong key", [true; 2], |pair| write_to(Remote { rkey: Rkey(5), ..pair.b.remote(0) })),
    ];
    for (what, connected, spoil) in cases {
        let mut pair = uc(connected);
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let op = spoil(&mut pair);
        pair.engine.set_rates(pair.now, b.device, &rx()).unwrap();
        let left = |pair: &Pair| pair.engine.core.schedule.rates.left(b.device.0, Flow::Rx);
        let full = left(&pair);
        for id in 0..10 {
            pair.post(&a, id, op, Payload::Sges(&[a.sge(0, 5000)])).unwrap();
        }
        pair.run();
        assert_eq!((pair.statuses().len(), left(&pair)), (10, full), "{what}");
        if what == "a wrong key" || what == "no receive" {
            continue;
        }
        // Without a connection, they do not wait for each other.
        pair.engine.core.schedule.rates.charge(b.device.0, Flow::Rx, 1_000_000, 1);
        pair.post(&a, 11, op, Payload::Sges(&[a.sge(0, 100_000)])).unwrap();
        pair.run();
        assert_eq!(pair.statuses(), [('a', 11, WcStatus::Success)], "{what}");
    }
    // A reliable request that is refused costs only its sender.
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, &rx()).unwrap();
    let full = pair.engine.core.schedule.rates.left(b.device.0, Flow::Rx);
    let op = write_to(Remote { rkey: Rkey(5), ..b.remote(0) });
    pair.post(&a, 1, op, Payload::Sges(&[a.sge(0, 5000)])).unwrap();
    pair.run();
    assert_eq!(pair.engine.core.schedule.rates.left(b.device.0, Flow::Rx), full);
}

/// Lets A post to B all the time for a second, while others use the rate of B up and more. Returns
/// the bytes that A has moved.
fn beside_a_flood(op: impl Fn(&End) -> SendOp, limits: &RateLimits, flood: impl Fn(&mut Pair)) -> u64 {
    const LENGTH: u32 = 64 << 10;
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, limits).unwrap();
    let end = pair.now + Duration::from_secs(1);
    let (mut posted, mut moved) = (0, 0);
    while pair.now < end {
        while posted < 8 {
            pair.engine.core.schedule.rates.see(pair.now);
            pair.post(&a, 1, op(&b), Payload::Sges(&[a.sge(0, LENGTH)])).unwrap();
            posted += 1;
        }
        flood(&mut pair);
        while pair.engine.poll(pair.now, 1 << 20, &mut pair.log) {}
        let ended = pair.statuses().len();
        posted -= ended;
        moved += ended as u64 * u64::from(LENGTH);
        let next = pair.engine.poll_timeout().expect("the rate is waited for");
        pair.now = next.clamp(pair.now, pair.now + Duration::from_millis(1));
    }
    moved
}

/// Others, who cannot be stopped, keep a device in debt. Each turn of a sender here then moves what
/// it has waited for.
#[test]
fn senders_here_have_a_part_of_a_rate_that_others_use_up() {
    const RATE: u64 = 100_000_000;
    let limit = RateLimit { bytes: NonZeroU64::new(RATE), ..bytes() };
    let rx = RateLimits { tx: RateLimit::default(), rx: limit };
    let written = beside_a_flood(
        |b| write_to(b.remote(0)),
        &rx,
        |pair| pair.engine.core.schedule.came_unasked(pair.b.device.0, 10_000_000, 1),
    );
    let tx = RateLimits { tx: limit, rx: RateLimit::default() };
    let read = beside_a_flood(
        |b| SendOp::Read { remote: b.remote(0) },
        &tx,
        |pair| {
            let turn = SentIn::Wire(Direction::Answers);
            pair.engine.core.schedule.sent(pair.b.device.0, turn, 10_000_000, 0);
        },
    );
    // A debt is paid in 32 ms, and then 64 KiB move.
    for moved in [written, read] {
        let turns = moved / (64 << 10);
        assert!((20..=60).contains(&turns), "{written} and {read}");
    }
}

#[test]
fn only_a_packet_that_begins_a_message_may_be_the_last_for_a_rate_of_messages() {
    let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
    let device = net.hosts[A].end.device;
    let messages = RateLimit { bytes: None, messages: NonZeroU64::new(200), ..bytes() };
    let limits = RateLimits { tx: messages, rx: RateLimit::default() };
    net.hosts[A].engine.set_rates(net.now, device, &limits).unwrap();
    let sges = [net.hosts[A].end.sge(0, 16 << 10)];
    net.post(A, 1, write_to(net.hosts[B].end.remote(0)), Payload::Sges(&sges));
    net.work_near(A);
    let asks = |frame: &wire::Frame| wire::parse(frame).bth.ack_req;
    let asked: Vec<_> = net.hosts[A].cable.frames.iter().map(asks).collect();
    // The last one asks by itself. One message more was allowed.
    assert_eq!(asked.iter().filter(|&&asks| asks).count(), 1, "{asked:?}");
    assert_eq!(asked.last(), Some(&true));
}
