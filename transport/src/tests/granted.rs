//! Rates: what moves in a turn that a QP or a device has waited for.
//!
//! Shows: quality-of-service.

use super::held::exchange;
use super::wire::{A, B, Host, Net};
use super::*;
use crate::agenda::rate::RateLimit;
use crate::agenda::rates::{Flow, RateLimits};
use crate::agenda::schedule::{GRAIN, QP_TURN};
use crate::base::qp_ref::QpRef;
use core::num::NonZeroU64;

/// Bytes in a second of a rate whose bucket holds more than a turn.
const FAST: u64 = 100_000_000;
/// Bytes in a second of a rate whose bucket holds two pieces.
const SLOW: u64 = 1_000_000;

fn limit(bytes: u64) -> RateLimit {
    RateLimit { bytes: NonZeroU64::new(bytes), messages: None, burst: Duration::from_millis(10) }
}

fn tx(bytes: u64) -> RateLimits {
    RateLimits { tx: limit(bytes), rx: RateLimit::default() }
}

fn rx(bytes: u64) -> RateLimits {
    RateLimits { tx: RateLimit::default(), rx: limit(bytes) }
}

fn place(end: &End) -> QpRef {
    QpRef { device: end.device.0, qpn: end.qpn }
}

/// Returns how much of the first request of a QP has moved.
fn offset(pair: &Pair, end: &End) -> u32 {
    pair.engine.core.devices.known(place(end)).1.requester.offset
}

/// Gives the first QP of an engine that has a turn that turn.
fn one_turn(pair: &mut Pair) {
    pair.engine.poll(pair.now, 1, &mut pair.log);
}

/// Adds a device to host A, without a QP.
fn neighbour(net: &mut Net) -> End {
    let engine = &mut net.hosts[A].engine;
    let device = engine.add_device(Limits::default());
    let gid = Gid::from_ipv4([10, 0, 0, 3]);
    engine.set_gid(device, 0, Some(gid.into())).unwrap();
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let memory = Mem::new(1 << 20);
    let key = engine.reg_mr(device, pd, OF_REGION, IOVA, 1 << 20, memory.clone()).unwrap();
    End { device, pd, qpn: Qpn::default(), gid, memory, key }
}

/// Connects new QPs of two devices of host A.
fn join(net: &mut Net, ends: [&End; 2]) -> [End; 2] {
    let now = net.now;
    let Host { engine, log, .. } = &mut net.hosts[A];
    let ends =
        ends.map(|end| End { qpn: engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    for (own, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            let attr = QpAttr { state, ..attr_to(peer) };
            engine.modify_qp(now, own.device, own.qpn, mask, &attr, log).unwrap();
        }
    }
    ends
}

/// Connects new QPs of both hosts, with the usual timeout.
fn another_pair(net: &mut Net) -> [End; 2] {
    for Host { engine, end, .. } in &mut net.hosts {
        end.qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
    }
    let [a, b] = [A, B].map(|own| QpAttr { timeout: 14, ..net.attr(own) });
    net.connect(a, b);
    net.hosts.each_ref().map(|host| host.end.clone())
}

/// What a QP of a host posts all the time.
struct Load {
    host: usize,
    own: End,
    op: SendOp,
    length: u32,
    /// How many of these are in its send queue.
    most: u32,
    pending: u32,
    /// Bytes of those that ended.
    moved: u64,
}

impl Load {
    fn new(host: usize, own: &End, op: SendOp, length: u32) -> Load {
        Load { host, own: own.clone(), op, length, most: 8, pending: 0, moved: 0 }
    }
}

/// Lets both hosts work for this time, with these loads. Returns the bytes of each.
fn play(net: &mut Net, time: Duration, mut loads: Vec<Load>) -> Vec<u64> {
    let end = net.now + time;
    while net.now < end {
        for (id, load) in loads.iter_mut().enumerate() {
            let Host { engine, log, .. } = &mut net.hosts[load.host];
            while load.pending < load.most {
                let payload = Payload::Sges(&[load.own.sge(0, load.length)]);
                let (id, op) = (id as u32, load.op);
                let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
                let End { device, qpn, .. } = load.own;
                engine.post_send(net.now, device, OWNER, qpn, &request, log).unwrap();
                load.pending += 1;
            }
        }
        exchange(net);
        let ended: Vec<_> = net.hosts.iter_mut().flat_map(Host::statuses).collect();
        for &(id, status) in &ended {
            assert_eq!(status, WcStatus::Success);
            let load = &mut loads[id as usize];
            (load.pending, load.moved) = (load.pending - 1, load.moved + u64::from(load.length));
        }
        if ended.is_empty() {
            let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
            net.now = next.expect("the rate is waited for").max(net.now);
        }
    }
    loads.iter().map(|load| load.moved).collect()
}

/// Asserts that loads have had a device's rate in a second, and each has had a part of it.
fn assert_parts(moved: &[u64], context: &str) {
    let sum: u64 = moved.iter().sum();
    assert!(sum.abs_diff(FAST) < FAST / 8, "{context}: {moved:?}");
    assert!(moved.iter().all(|moved| moved * 5 > sum), "{context}, each has its part: {moved:?}");
}

#[test]
fn a_device_that_is_read_here_has_its_part_of_its_rate_here_and_at_the_port() {
    for is_here in [true, false] {
        let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
        let (own, reader) = (net.hosts[A].end.clone(), neighbour(&mut net));
        let [reads, is_read] = join(&mut net, [&reader, &own]);
        let [sends, receives] = match is_here {
            true => join(&mut net, [&own, &reader]),
            false => net.hosts.each_ref().map(|host| host.end.clone()),
        };
        net.hosts[A].engine.set_rates(net.now, own.device, &tx(FAST)).unwrap();
        let read = SendOp::Read { remote: is_read.remote(0) };
        let loads = vec![
            Load::new(A, &sends, write_to(receives.remote(0)), QP_TURN),
            Load::new(A, &reads, read, 1 << 20),
        ];
        let moved = play(&mut net, Duration::from_secs(1), loads);
        assert_parts(&moved, &format!("here {is_here}"));
    }
}

#[test]
fn data_that_other_hosts_read_have_their_part_beside_requests() {
    for (is_near, is_here) in [(false, false), (true, false), (false, true)] {
        let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
        if is_near {
            net = net.on_near_ways();
        }
        let [own, other] = net.hosts.each_ref().map(|host| host.end.clone());
        let [sends, receives] = match is_here {
            true => {
                let beside = neighbour(&mut net);
                join(&mut net, [&own, &beside])
            }
            false => another_pair(&mut net),
        };
        net.hosts[A].engine.set_rates(net.now, own.device, &tx(FAST)).unwrap();
        let loads = vec![
            Load::new(A, &sends, write_to(receives.remote(0)), QP_TURN),
            Load::new(B, &other, SendOp::Read { remote: own.remote(0) }, QP_TURN),
        ];
        let moved = play(&mut net, Duration::from_secs(1), loads);
        assert_parts(&moved, &format!("near {is_near}, here {is_here}"));
    }
}

#[test]
fn long_reads_of_many_qps_keep_to_the_rate_of_their_device() {
    const LENGTH: u32 = 1 << 20;
    let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
    let device = net.hosts[A].end.device;
    let mut pairs = vec![net.hosts.each_ref().map(|host| host.end.clone())];
    pairs.extend((1..8).map(|_| another_pair(&mut net)));
    net.hosts[A].engine.set_rates(net.now, device, &rx(SLOW)).unwrap();
    let load = |[own, peer]: &[End; 2]| {
        let op = SendOp::Read { remote: peer.remote(0) };
        Load { most: 2, ..Load::new(A, own, op, LENGTH) }
    };
    let moved = play(&mut net, Duration::from_secs(4), pairs.iter().map(load).collect());
    // One may always go that is longer than what is saved up.
    let sum: u64 = moved.iter().sum();
    let reads = sum / u64::from(LENGTH);
    assert!((3..=5).contains(&reads), "{reads} READs in four seconds: {moved:?}");
}

#[test]
fn the_last_segment_of_a_message_in_sqd_counts_at_its_receiver() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let limits = RateLimits { rx: RateLimit { burst: Duration::from_secs(1), ..limit(SLOW) }, ..tx(0) };
    pair.engine.set_rates(pair.now, b.device, &limits).unwrap();
    let left = |pair: &Pair| pair.engine.core.schedule.rates.left(b.device.0, Flow::Rx);
    let full = left(&pair);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)])).unwrap();
    one_turn(&mut pair);
    assert_eq!((offset(&pair, &a), full - left(&pair)), (QP_TURN, QP_TURN.into()));
    pair.go(&a, QpState::Sqd);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    assert_eq!(full - left(&pair), 300_000);
}

#[test]
fn what_a_device_may_still_send_does_not_cut_what_it_reads() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, a.device, &tx(SLOW)).unwrap();
    pair.engine.core.schedule.rates.charge(a.device.0, Flow::Tx, 9_999, 0);
    let sges = [a.sge(0, 200_000)];
    pair.post(&a, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&sges)).unwrap();
    one_turn(&mut pair);
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Sges(&sges)).unwrap();
    one_turn(&mut pair);
    assert_eq!(offset(&pair, &a), GRAIN);
}

/// Lets QP A wait for the rate of device B, with a request of a turn. Sets these rates of A, and
/// one of its QP, before that. Returns what it may move at its time.
fn granted(is_read: bool, limits: &RateLimits, of_qp: &RateLimit) -> Option<u64> {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, a.device, limits).unwrap();
    pair.engine.set_qp_rate(pair.now, a.device, a.qpn, of_qp).unwrap();
    let (flow, op) = match is_read {
        true => (Flow::Tx, SendOp::Read { remote: b.remote(0) }),
        false => (Flow::Rx, write_to(b.remote(0))),
    };
    pair.engine.set_rates(pair.now, b.device, &RateLimits { tx: limit(FAST), rx: limit(FAST) }).unwrap();
    pair.engine.core.schedule.rates.charge(b.device.0, flow, 2_000_000, 0);
    pair.post(&a, 1, op, Payload::Sges(&[a.sge(0, QP_TURN)])).unwrap();
    one_turn(&mut pair);
    assert_eq!(offset(&pair, &a), 0, "it waits");
    pair.engine.core.schedule.rates.take_grant(place(&a))
}

#[test]
fn no_time_is_kept_free_for_more_than_a_sender_may_send_at_once() {
    let (none, two_pieces) = (RateLimit::default(), u64::from(2 * GRAIN));
    assert_eq!(granted(false, &tx(FAST), &none), Some(QP_TURN.into()));
    assert_eq!(granted(false, &tx(SLOW), &none), Some(two_pieces));
    assert_eq!(granted(false, &RateLimits::default(), &limit(SLOW)), Some(two_pieces));
    // The peer sends what is read.
    assert_eq!(granted(true, &tx(SLOW), &none), Some(QP_TURN.into()));
}

/// Lets QP A wait for the rate of device B, which owes half a megabyte.
fn waiting(length: u32) -> Pair {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, &rx(FAST)).unwrap();
    pair.engine.core.schedule.rates.charge(b.device.0, Flow::Rx, 1_500_000, 0);
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, length)])).unwrap();
    one_turn(&mut pair);
    assert!(pair.engine.core.schedule.rates.has_grant(place(&a)));
    pair
}

#[test]
fn who_waited_by_another_rate_waits_again() {
    let mut pair = waiting(QP_TURN);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, &rx(SLOW)).unwrap();
    pair.now = pair.engine.poll_timeout().expect("it waits");
    one_turn(&mut pair);
    assert_eq!((offset(&pair, &a), pair.statuses()), (0, vec![]));
    // It has its time by the new rate.
    while offset(&pair, &a) == 0 {
        pair.now = pair.engine.poll_timeout().expect("it waits").max(pair.now);
        one_turn(&mut pair);
    }
    assert_eq!(offset(&pair, &a), 2 * GRAIN);
}

#[test]
fn a_qp_that_was_reset_has_waited_for_nothing_and_reserves_once() {
    // A copy does not know who waits for a time.
    save::replace_none();
    let mut pair = waiting(8);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let until = pair.engine.poll_timeout().expect("it waits");
    for id in 10..20 {
        pair.go(&a, QpState::Reset);
        assert!(!pair.engine.core.schedule.rates.has_grant(place(&a)));
        pair.connect(&a, attr_to(&b), QpState::Rts);
        pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)])).unwrap();
        one_turn(&mut pair);
        assert_eq!(pair.engine.poll_timeout(), Some(until), "it has one time, however often it comes anew");
    }
    pair.go(&a, QpState::Reset);
    pair.connect(&a, attr_to(&b), QpState::Rts);
    pair.post(&a, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)])).unwrap();
    pair.run();
    assert_eq!(pair.statuses(), [], "the rate is used up still");
    pair.sleep();
    assert_eq!(pair.statuses(), [('a', 2, WcStatus::Success)]);
}

#[test]
fn a_qp_that_waits_for_its_own_rate_keeps_its_time_at_the_peer() {
    let mut pair = waiting(8);
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let rates = &mut pair.engine.core.schedule.rates;
    rates.set_qp(place(&a), &limit(SLOW));
    rates.grant(place(&a), 8);
    rates.charge_qp(place(&a), 1_000_000, 0);
    pair.now = pair.engine.poll_timeout().expect("it waits");
    one_turn(&mut pair);
    assert_eq!(pair.statuses(), []);
    // Meanwhile others use the peer's rate up.
    pair.now = pair.engine.poll_timeout().expect("it waits for its own rate");
    pair.engine.core.schedule.rates.see(pair.now);
    pair.engine.core.schedule.rates.charge(b.device.0, Flow::Rx, 10_000_000, 0);
    one_turn(&mut pair);
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Success)]);
}
