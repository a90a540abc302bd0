//! Rates: what devices and QPs send and receive in a second, and what is held back.
//!
//! Shows: quality-of-service.

use super::datagrams::{Ud, to};
use super::wire::{A, B, Net};
use super::*;
use crate::agenda::rate::RateLimit;
use crate::agenda::rates::RateLimits;
use crate::agenda::schedule::QP_TURN;
use crate::base::time::SLOW_CHECK;
use core::num::NonZeroU64;

/// Bytes in a second of the limits in these tests.
const BYTES: u64 = 100_000_000;
/// Messages in a second of the limits in these tests.
const MESSAGES: u64 = 10_000;
const BURST: Duration = Duration::from_millis(10);

fn limit(bytes: u64, messages: u64) -> RateLimit {
    RateLimit { bytes: NonZeroU64::new(bytes), messages: NonZeroU64::new(messages), burst: BURST }
}

fn tx(bytes: u64, messages: u64) -> RateLimits {
    RateLimits { tx: limit(bytes, messages), rx: RateLimit::default() }
}

fn rx(bytes: u64, messages: u64) -> RateLimits {
    RateLimits { tx: RateLimit::default(), rx: limit(bytes, messages) }
}

/// Runs two QPs of an engine for a second, with messages of this length all the time. Returns the
/// number of messages that ended.
fn second(pair: &mut Pair, op: impl Fn(&End) -> SendOp, length: u32) -> u64 {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let end = pair.now + Duration::from_secs(1);
    let (mut posted, mut done) = (0_u64, 0_u64);
    while pair.now < end {
        while posted - done < 8 {
            let sges = [a.sge(0, length)];
            let payload = Payload::Sges(if length == 0 { &[] } else { &sges });
            pair.post(&a, posted as u32, op(&b), payload).unwrap();
            posted += 1;
        }
        while pair.engine.poll(pair.now, 1 << 20, &mut pair.log) {}
        let before = done;
        done += pair.statuses().iter().filter(|status| status.2 == WcStatus::Success).count() as u64;
        if done == before {
            // Nothing more happens before that time.
            let next = pair.engine.poll_timeout().expect("a limit is waited for");
            assert!(next > pair.now, "what is ready was done");
            pair.now = next;
        }
    }
    done
}

/// Whether messages of this length were as many in a second as the limits allow, within 2 %.
fn assert_rate(done: u64, length: u32, context: &str) {
    let expected = MESSAGES.min(BYTES / u64::from(length.max(1)));
    // What was saved up, and what was begun, is beyond the rate.
    let saved = expected / 100 + 2;
    let is_right = done + expected / 50 + 2 >= expected && done <= expected + expected / 50 + saved;
    assert!(is_right, "{context}: {done} messages of {length} bytes, {expected} expected");
}

#[test]
fn on_one_host_sender_and_receiver_are_limited_for_each_operation_and_length() {
    for length in [0, 8, 4096, 70_000, 300_000, 1 << 20] {
        for limits in [tx(BYTES, MESSAGES), rx(BYTES, MESSAGES)] {
            let is_tx = !limits.tx.is_none();
            for is_read in [false, true] {
                if is_read && length < 70_000 {
                    // Data that go back count by bytes, and these would be very many messages.
                    continue;
                }
                let mut pair = Pair::connected();
                let (a, b) = (pair.a.clone(), pair.b.clone());
                // The messages are limited at the requester or the responder, the data at who has
                // them or gets them.
                let device = if is_tx != is_read { a.device } else { b.device };
                pair.engine.set_rates(pair.now, device, &limits).unwrap();
                let done = second(
                    &mut pair,
                    |peer| match is_read {
                        true => SendOp::Read { remote: peer.remote(0) },
                        false => write_to(peer.remote(0)),
                    },
                    length,
                );
                let context = format!("tx {is_tx}, read {is_read}");
                assert_rate(done, length, &context);
                let held = pair.engine.rate_counters(device);
                let count = if is_tx && !is_read { held.tx_held } else { held.tx_held + held.rx_held };
                assert!(is_read || count > 0, "{context}: {held:?}");
            }
        }
    }
}

/// A turn may move less than the next piece of a message. Then it takes no more time than for that.
#[test]
fn on_one_host_long_messages_reach_rates_that_hold_less_than_a_turn() {
    for (bytes, burst) in [(1_000_000, 10), (10_000_000, 10), (100_000_000, 1)] {
        let limit =
            RateLimit { bytes: NonZeroU64::new(bytes), messages: None, burst: Duration::from_millis(burst) };
        for is_read in [false, true] {
            let mut pair = Pair::connected();
            let limits = match is_read {
                true => RateLimits { tx: limit, ..RateLimits::default() },
                false => RateLimits { rx: limit, ..RateLimits::default() },
            };
            let peer = pair.b.device;
            pair.engine.set_rates(pair.now, peer, &limits).unwrap();
            let op = |b: &End| match is_read {
                true => SendOp::Read { remote: b.remote(0) },
                false => write_to(b.remote(0)),
            };
            let length = 50_000;
            let done = second(&mut pair, op, length) * u64::from(length);
            let (least, most) = (bytes * 9 / 10 - u64::from(length), bytes * 11 / 10 + 2 * u64::from(length));
            assert!((least..=most).contains(&done), "{bytes} and {burst} ms, READ {is_read}: {done}");
        }
    }
}

#[test]
fn a_device_without_limits_is_not_held_up_by_one_with_limits() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, &tx(1_000_000, 100)).unwrap();
    // B sends slowly, and A as fast as ever, to the same device.
    for id in 0..1000 {
        pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
        pair.run();
    }
    assert_eq!(pair.statuses().len(), 1000);
    assert_eq!(pair.engine.rate_counters(a.device), Default::default());
    // Without limits everything goes at once again.
    pair.engine.set_rates(pair.now, b.device, &RateLimits::default()).unwrap();
    for id in 0..200 {
        pair.post(&b, id, write_to(a.remote(0)), Payload::Sges(&[b.sge(0, 8)])).unwrap();
    }
    pair.run();
    assert_eq!((pair.statuses().len(), pair.engine.poll_timeout()), (200, None));
}

#[test]
fn what_waits_for_a_limit_goes_on_when_the_limit_is_taken_away_or_the_device_reset() {
    for is_tx in [true, false] {
        let mut pair = Pair::connected();
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let (device, limits) =
            if is_tx { (a.device, tx(1_000_000, 0)) } else { (b.device, rx(1_000_000, 0)) };
        pair.engine.set_rates(pair.now, device, &limits).unwrap();
        for id in 0..8 {
            pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
        }
        pair.run();
        assert_eq!(pair.statuses(), []);
        let next = pair.engine.poll_timeout().expect("something waits");
        assert!(next > pair.now && next < pair.now + Duration::from_secs(1), "{next:?}");
        // A record has what waits as ready, so that it is tried at once.
        let record = pair.engine.save();
        let shares = record.turns.local.shares.iter().filter(|share| !share.requests.is_empty());
        assert_eq!(shares.count(), 1);
        pair.engine.set_rates(pair.now, device, &RateLimits::default()).unwrap();
        if !is_tx {
            // Senders of other devices look again by themselves.
            pair.now = pair.now + SLOW_CHECK;
        }
        pair.run();
        assert_eq!(pair.statuses().len(), 8, "tx {is_tx}");
        assert!(!pair.engine.core.schedule.rates.any(), "nothing waits");
        // What waits leaves nothing behind when it goes.
        pair.engine.set_rates(pair.now, device, &limits).unwrap();
        for id in 0..8 {
            pair.post(&a, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
        }
        pair.run();
        if is_tx {
            pair.engine.destroy_qp(a.device, a.qpn).unwrap();
        } else {
            pair.engine.reset_device(a.device);
        }
        pair.now = pair.now + Duration::from_secs(10);
        pair.run();
        assert_eq!(pair.engine.poll_timeout(), None);
        pair.engine.remove_device(device);
        assert!(!pair.engine.core.schedule.rates.any());
    }
}

#[test]
fn a_qp_with_a_rate_waits_for_its_time_and_others_of_its_device_do_not() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let rate = RateLimit { bytes: NonZeroU64::new(BYTES), messages: None, burst: Duration::from_micros(16) };
    pair.engine.set_qp_rate(pair.now, a.device, a.qpn, &rate).unwrap();
    assert_eq!(pair.engine.set_qp_rate(pair.now, a.device, Qpn::truncate(999), &rate), Err(Error::NotFound));
    let done = second(&mut pair, |peer| write_to(peer.remote(0)), 70_000);
    let expected = BYTES / 70_000;
    assert!(done.abs_diff(expected) <= expected / 50, "{done}, {expected} expected");
    // Another QP of the device goes at once, while the first one waits.
    let ends = [&a, &b]
        .map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end.clone() });
    pair.connect(&ends[0], attr_to(&ends[1]), QpState::Rts);
    pair.connect(&ends[1], attr_to(&ends[0]), QpState::Rts);
    for id in 0..16 {
        pair.post(&ends[0], id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 1 << 20)])).unwrap();
    }
    pair.run();
    assert_eq!(pair.statuses().len(), 16);
    let held = pair.engine.rate_counters(a.device);
    assert!(held.tx_held > 0 && held.tx_held_ns > 500_000_000, "{held:?}");
    // Without a rate the rest goes at once, however long it had to wait.
    let slow = RateLimit { bytes: NonZeroU64::new(1), ..rate };
    pair.engine.set_qp_rate(pair.now, a.device, a.qpn, &slow).unwrap();
    pair.run();
    let next = pair.engine.poll_timeout().expect("it waits");
    assert!(next > pair.now + Duration::from_secs(1000), "{next:?}");
    pair.engine.set_qp_rate(pair.now, a.device, a.qpn, &RateLimit::default()).unwrap();
    pair.run();
    assert_eq!(pair.engine.counts(a.device).pending_sends, 0);
}

#[test]
fn many_senders_to_a_limited_device_get_equal_parts_and_are_not_all_tried_at_once() {
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.engine.set_rates(pair.now, b.device, &rx(BYTES, 0)).unwrap();
    let mut ends = vec![a.clone()];
    for _ in 0..200 {
        let own = End { qpn: pair.engine.create_qp(a.device, qp_init(a.pd)).unwrap(), ..a.clone() };
        let peer = End { qpn: pair.engine.create_qp(b.device, qp_init(b.pd)).unwrap(), ..b.clone() };
        pair.connect(&own, attr_to(&peer), QpState::Rts);
        pair.connect(&peer, attr_to(&own), QpState::Rts);
        ends.push(own);
    }
    for end in &ends {
        for id in 0..4 {
            pair.post(end, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, QP_TURN)])).unwrap();
        }
    }
    let (begin, mut polls) = (pair.now, 0);
    let all = 4 * ends.len();
    let mut done = 0;
    while done < all {
        while pair.engine.poll(pair.now, 1 << 20, &mut pair.log) {}
        done += pair.statuses().len();
        polls += 1;
        if done < all {
            pair.now = pair.engine.poll_timeout().expect("some wait").max(pair.now);
        }
    }
    let took = (pair.now.0 - begin.0) as f64 / 1e9;
    let expected = (all as u64 * u64::from(QP_TURN)) as f64 / BYTES as f64;
    assert!((took - expected).abs() < expected / 20.0, "{took} s, {expected} expected");
    assert!(polls < 40 * all, "{polls} polls");
    // However many wait, time counts once.
    let held = pair.engine.rate_counters(b.device);
    let held_for = held.rx_held_ns as f64 / 1e9;
    assert!(held.rx_held > 0 && held_for > took / 2.0 && held_for <= took + 0.1, "{held:?} in {took} s");
}

#[test]
fn datagrams_that_are_too_many_for_a_receiver_are_dropped_and_counted() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    let rate = RateLimit { messages: NonZeroU64::new(1000), bytes: None, burst: Duration::from_millis(5) };
    let limits = RateLimits { rx: rate, tx: RateLimit::default() };
    ud.pair.engine.set_rates(ud.pair.now, b.device, &limits).unwrap();
    for id in 0..15 {
        ud.pair.post_recv(&b, id, &[b.sge(0, 4136)]).unwrap();
        ud.send(id, &to(&a, &b), SEND, Payload::Sges(&[a.sge(0, 100)]));
    }
    ud.pair.run();
    let arrived = ud.pair.log.completions.iter().filter(|(device, ..)| *device == b.device).count();
    assert_eq!((arrived, ud.pair.engine.rate_counters(b.device).rx_limited), (5, 10));
    // All sends have ended.
    assert_eq!(ud.pair.log.completions.len() - arrived, 15);
}

/// Runs two hosts for a time, in which A sends all the time. Returns the bytes that were sent.
fn over_the_wire(net: &mut Net, op: impl Fn(&Net) -> SendOp, length: u32, time: Duration) -> u64 {
    let end = net.now + time;
    let own = net.hosts[A].end.sge(0, length);
    let (mut posted, mut done) = (0_u64, 0_u64);
    while net.now < end {
        while posted - done < 8 {
            let op = op(net);
            net.post(A, posted as u32, op, Payload::Sges(&[own]));
            posted += 1;
        }
        for host in [A, B, A, B] {
            net.work(host);
            net.carry(host, |_, _| true);
        }
        let before = done;
        let log = &mut net.hosts[A].log;
        for (_, completion) in log.completions.drain(..).map(|(device, _, completion)| (device, completion)) {
            assert_eq!(completion.status, WcStatus::Success);
            done += 1;
        }
        if done == before {
            net.now = net.now + Duration::from_micros(20);
        }
    }
    done * u64::from(length)
}

#[test]
fn on_the_wire_the_sender_keeps_its_limit_and_a_receiver_slows_senders_down() {
    let time = Duration::from_millis(200);
    let expected = BYTES / 5;
    for (host, limits, is_read) in [
        (A, tx(BYTES, 0), false),
        (B, rx(BYTES, 0), false),
        // Of READs, requester and responder limit the responses.
        (A, rx(BYTES, 0), true),
        (B, tx(BYTES, 0), true),
    ] {
        // The usual timeout. Acknowledges wait for a quarter of it at most.
        let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
        let device = net.hosts[host].end.device;
        net.hosts[host].engine.set_rates(net.now, device, &limits).unwrap();
        let op = |net: &Net| {
            let remote = net.hosts[B].end.remote(0);
            if is_read { SendOp::Read { remote } } else { write_to(remote) }
        };
        let sent = over_the_wire(&mut net, op, 32 << 10, time);
        let saved = BYTES / 100;
        let is_right = sent + expected / 20 >= expected && sent <= expected + saved + expected / 20;
        assert!(is_right, "host {host}, read {is_read}: {sent} of {expected} bytes");
        let counters = net.hosts[A].engine.counters(net.hosts[A].end.device);
        assert_eq!((counters.timeouts, counters.retries), (0, 0), "host {host}, read {is_read}");
        let held = net.hosts[host].engine.rate_counters(device);
        assert!(held.tx_held + held.rx_held > 0 || is_read, "host {host}, read {is_read}: {held:?}");
    }
}

#[test]
fn in_streams_the_sender_keeps_its_limit_and_a_receiver_takes_no_more_than_its_own() {
    use super::tcp;
    const LENGTH: u32 = 20_000;
    for (host, limits, is_read) in [
        (A, tx(BYTES, 0), false),
        (B, rx(BYTES, 0), false),
        (A, tx(0, MESSAGES), false),
        (B, rx(0, MESSAGES), false),
        (A, rx(BYTES, 0), true),
        (B, tx(BYTES, 0), true),
    ] {
        let mut net = tcp::Net::greeted();
        let device = net.hosts[host].end.device;
        net.hosts[host].engine.set_rates(net.now, device, &limits).unwrap();
        let by_bytes = limits.tx.bytes.or(limits.rx.bytes).is_some();
        let length = if by_bytes { LENGTH } else { 8 };
        let (own, remote) = (net.hosts[A].end.sge(0, length), net.hosts[B].end.remote(0));
        let end = net.now + Duration::from_millis(300);
        let (mut posted, mut done) = (0_u64, 0_u64);
        while net.now < end {
            // A TCP would have no more room than this.
            while posted - done < 4 && net.hosts[B].offered.len() < 100_000 {
                let op = if is_read { SendOp::Read { remote } } else { write_to(remote) };
                net.post(A, posted as u32, op, Payload::Sges(&[own]));
                posted += 1;
            }
            net.run();
            let ended = net.hosts[A].statuses();
            assert!(ended.iter().all(|status| status.1 == WcStatus::Success));
            done += ended.len() as u64;
            // What A has sent may still be on its way.
            net.now = net.now + Duration::from_micros(20);
        }
        // WRITEs are complete when they are sent, so what B has not taken counts, too.
        // An FPDU of a WRITE of 8 bytes has 28.
        let sent = if by_bytes { u64::from(length) + 300 } else { 28 };
        let offered = net.hosts[B].offered.len() as u64 / sent;
        let arrived = done.saturating_sub(if host == B { offered } else { 0 });
        let expected = if by_bytes { BYTES / u64::from(length) } else { MESSAGES } * 3 / 10;
        let saved = expected / 30 + 4;
        let context = format!("host {host}, read {is_read}: {done}, {offered} offered, {expected} expected");
        assert!(arrived + expected / 20 + 4 >= expected, "{context}");
        assert!(arrived <= expected + saved + expected / 20, "{context}");
        let held = net.hosts[host].engine.rate_counters(device);
        assert!(held.tx_held + held.rx_held > 0, "{context}: {held:?}");
    }
}

#[test]
fn acknowledges_wait_no_longer_than_peers_have_patience_however_much_comes() {
    let mut net = Net::connected_with(|a| a.timeout = 14, |b| b.timeout = 14);
    let device = net.hosts[B].end.device;
    // A megabyte in a second: each window takes a tenth of a second.
    net.hosts[B].engine.set_rates(net.now, device, &rx(1_000_000, 0)).unwrap();
    let (own, remote) = (net.hosts[A].end.sge(0, 100_000), net.hosts[B].end.remote(0));
    for id in 0..10 {
        net.post(A, id, write_to(remote), Payload::Sges(&[own]));
    }
    let (begin, mut waited) = (net.now, Duration::ZERO);
    for _ in 0..10_000 {
        for host in [A, B, A, B] {
            net.work(host);
            net.carry(host, |_, _| true);
        }
        if net.hosts[A].log.completions.len() == 10 {
            break;
        }
        // What waits last are acknowledges of B. A waits for them, or has more to send at once.
        let next = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
        let next = next.expect("acknowledges wait").max(net.now);
        waited = waited.max(Duration::from_nanos(next.0 - net.now.0));
        net.now = next;
    }
    let counters = net.hosts[A].engine.counters(net.hosts[A].end.device);
    assert_eq!((counters.timeouts, counters.retries), (0, 0));
    assert_eq!(net.hosts[A].log.completions.len(), 10);
    assert!(waited <= crate::agenda::rates::PATIENCE, "{waited:?}");
    // The rate is exceeded then, and the sender is slowed down nevertheless.
    assert!(net.now > begin + 2 * crate::agenda::rates::PATIENCE);
}
