//! Watched sends: which ends are reported, and which are forgotten.

use super::operations::{Walk, all_walks};
use super::tcp;
use super::wire::A;
use super::*;

const SINCE: Instant = Instant(77);

/// Two connected QPs. A watched SEND of A waits for a receive.
fn waiting() -> Pair {
    save::replace_none();
    let mut pair = Pair::connected();
    let a = pair.a.clone();
    pair.post(&a, 1, SEND, Payload::Inline(b"watched")).unwrap();
    watch(&mut pair, &a, OWNER);
    assert_eq!((watched(&pair), pair.log.watched.len()), (1, 0));
    pair
}

fn watch(pair: &mut Pair, end: &End, owner: OwnerId) {
    pair.engine.watch_last(end.device, owner, end.qpn, SINCE, &mut pair.log);
}

/// Returns how many sends of A's device are watched.
fn watched(pair: &Pair) -> usize {
    pair.engine.core.devices.find(pair.a.device).unwrap().requests.num_watched()
}

/// Asserts that A's device watches nothing, and that no end was reported.
fn assert_forgotten(pair: &Pair) {
    assert_eq!((watched(pair), &pair.log.watched[..]), (0, &[][..]));
}

/// Asserts that the only reported end is that of a request between QPs of one engine.
fn assert_reported(pair: &mut Pair) {
    let end = WatchedEnd { service: QpType::Rc, transport: TransportKind::Local, since: SINCE };
    assert_eq!((watched(pair), pair.log.watched.pop()), (0, Some((pair.a.device, end))));
    assert_forgotten(pair);
}

#[test]
fn a_request_that_ends_within_its_post_is_reported_at_once() {
    save::replace_none();
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, write_to(b.remote(0)), Payload::Inline(b"x")).unwrap();
    watch(&mut pair, &a, OWNER);
    assert_reported(&mut pair);
}

#[test]
fn a_request_that_waits_is_reported_when_it_succeeds() {
    let mut pair = waiting();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    // Those before and behind it are not watched.
    pair.post(&a, 2, SEND, Payload::Inline(b"not")).unwrap();
    for id in 1..=3 {
        pair.post_recv(&b, id, &[b.sge(0, 100)]).unwrap();
    }
    pair.run();
    assert_eq!(pair.statuses().iter().filter(|(end, ..)| *end == 'a').count(), 2);
    assert_reported(&mut pair);
}

#[test]
fn unsignaled_requests_are_reported_too() {
    save::replace_none();
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let payload = Payload::Inline(b"x");
    let request = SendRequest { id: 1, signaled: false, solicited: false, fence: false, op: SEND, payload };
    pair.engine.post_send(pair.now, a.device, OWNER, a.qpn, &request, &mut pair.log).unwrap();
    watch(&mut pair, &a, OWNER);
    pair.post_recv(&b, 1, &[b.sge(0, 100)]).unwrap();
    pair.run();
    assert_reported(&mut pair);
}

#[test]
fn requests_of_all_services_are_reported_once() {
    for (service, packets) in all_walks() {
        save::replace_none();
        let mut walk = Walk::ready(service, packets);
        let End { device, qpn, .. } = walk.ends[A];
        walk.post(A, SEND, Payload::Inline(b"x")).unwrap();
        let (engine, log, _) = walk.engine(A);
        engine.watch_last(device, OWNER, qpn, SINCE, log);
        walk.run();
        let (engine, log, _) = walk.engine(A);
        let statuses: Vec<_> = log.completions.iter().map(|(_, _, c)| (c.id, c.status)).collect();
        assert!(statuses.contains(&(7, WcStatus::Success)), "{service:?} {packets} {statuses:?}");
        let reported: Vec<_> = log.watched.iter().map(|(at, end)| (*at, end.service, end.since)).collect();
        assert_eq!(reported, [(device, service, SINCE)], "packets: {packets}");
        assert_eq!(engine.core.devices.find(device).unwrap().requests.num_watched(), 0);
    }
}

#[test]
fn requests_in_streams_are_reported_when_they_complete() {
    save::replace_none();
    let mut net = tcp::Net::greeted();
    let [a, b] = [tcp::A, tcp::B].map(|at| net.hosts[at].end.clone());
    let read = SendOp::Read { remote: b.remote(0) };
    net.post(tcp::A, 1, read, Payload::Sges(&[a.sge(0, 5000)]));
    let tcp::Host { engine, log, .. } = &mut net.hosts[tcp::A];
    engine.watch_last(a.device, OWNER, a.qpn, SINCE, log);
    net.work(tcp::A);
    assert_eq!(net.hosts[tcp::A].log.watched, []);
    net.run();
    let log = &net.hosts[tcp::A].log;
    let end = WatchedEnd { service: QpType::Rc, transport: TransportKind::Tcp, since: SINCE };
    assert_eq!((&log.watched[..], log.completions.len()), (&[(a.device, end)][..], 1));
}

#[test]
fn requests_that_fail_or_are_flushed_are_forgotten() {
    let mut pair = waiting();
    let a = pair.a.clone();
    while pair.sleep().is_some() {}
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::RnrRetryExc)]);
    assert_forgotten(&pair);

    let mut pair = waiting();
    pair.go(&a, QpState::Err);
    pair.run();
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::Flush)]);
    assert_forgotten(&pair);

    // One that fails within its post.
    save::replace_none();
    let mut pair = Pair::connected();
    pair.post(&a, 1, SEND, Payload::Sges(&[Sge { lkey: Lkey(0), ..a.sge(0, 1) }])).unwrap();
    watch(&mut pair, &a, OWNER);
    assert_eq!(pair.statuses(), [('a', 1, WcStatus::LocProt)]);
    assert_forgotten(&pair);
}

#[test]
fn requests_that_are_dropped_are_forgotten() {
    let mut pair = waiting();
    let a = pair.a.clone();
    pair.go(&a, QpState::Reset);
    pair.run();
    assert_forgotten(&pair);

    let mut pair = waiting();
    pair.engine.destroy_qp(a.device, a.qpn).unwrap();
    pair.run();
    assert_forgotten(&pair);

    let mut pair = waiting();
    drop(pair.engine.reset_device(a.device));
    pair.run();
    assert_forgotten(&pair);
    assert_eq!(pair.log.completions, []);
}

#[test]
fn what_was_refused_watches_nothing() {
    save::replace_none();
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"of the owner")).unwrap();
    watch(&mut pair, &a, OwnerId(OWNER.0 + 1));
    watch(&mut pair, &End { qpn: Qpn::new(a.qpn.number() + 1).unwrap(), ..a.clone() }, OWNER);
    watch(&mut pair, &End { device: DeviceId(99), ..a.clone() }, OWNER);
    assert_forgotten(&pair);
    // The kernel may post to all.
    watch(&mut pair, &a, OwnerId::KERNEL);
    assert_eq!(watched(&pair), 1);
    // A QP that is not in RTS executes nothing.
    pair.go(&b, QpState::Reset);
    assert_eq!(pair.post(&b, 1, SEND, Payload::Inline(b"x")), Err(PostError::BadState));
    watch(&mut pair, &b, OWNER);
    assert_eq!(pair.log.watched, []);
}

#[test]
fn a_record_does_not_tell_what_is_watched() {
    save::replace_none();
    let mut pair = Pair::connected();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    pair.post(&a, 1, SEND, Payload::Inline(b"watched")).unwrap();
    let record = pair.engine.save();
    watch(&mut pair, &a, OWNER);
    assert_eq!((watched(&pair), pair.engine.save()), (1, record));
    // An engine that takes over reports nothing.
    pair.engine = save::copied(&pair.engine);
    assert_forgotten(&pair);
    pair.post_recv(&b, 1, &[b.sge(0, 100)]).unwrap();
    pair.run();
    assert_eq!(pair.statuses().len(), 2);
    assert_forgotten(&pair);
}
