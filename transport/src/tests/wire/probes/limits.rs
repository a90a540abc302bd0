//! How often something is sent again, and when a request ends.

use super::*;
use crate::agenda::rates::{Flow, RateLimits};
use crate::base::qp_ref::QpRef;
use WcStatus::RetryExc;

/// Returns a NAK of B for the packet with this PSN.
fn nak(net: &Net, psn: Psn) -> Packet {
    let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), msn: Default::default() };
    net.packet(B, Body::Rc(Rc::Ack(aeth)), psn)
}

#[test]
fn a_second_nak_is_obeyed_when_the_answer_to_the_first_should_be_there() {
    let mut link = Link::warm();
    let first = first_psn(&link);
    post(&mut link, SEND, 1);
    link.work(&mut |_| true);
    // B was told nothing, but it says that the first packet is missing, again and again.
    let start = link.net.now;
    let mut again = Vec::new();
    for micros in 1..2000 {
        link.net.now = start + Duration::from_micros(micros);
        let nak = nak(&link.net, first);
        let before = link.net.hosts[A].counters().retries;
        link.net.inject(B, &nak, &[]);
        link.work(&mut |_| true);
        if link.net.hosts[A].counters().retries > before {
            again.push(micros);
        }
    }
    // The round-trip time is shorter than 100 us.
    assert_eq!(again, [1, 101, 301, 701, 1501]);
    assert_eq!(link.net.hosts[A].counters().timeouts, 0);
}

/// A peer that executes nothing, and NAKs all the time.
#[derive(Default)]
struct Refusal<'a> {
    retry_cnt: u8,
    /// Whether the QP has no local ACK timeout.
    is_patient: bool,
    /// When B acknowledges one more packet.
    answers: &'a [Duration],
    /// Bytes a second that the QP may send.
    rate: Option<u64>,
}

/// Sends a request to a peer that refuses it. Returns how long it takes to fail, and how many
/// packets are sent.
fn time_to_fail(refusal: &Refusal<'_>) -> (Duration, usize) {
    let set = |attr: &mut QpAttr| {
        attr.retry_cnt = refusal.retry_cnt;
        attr.timeout = if refusal.is_patient { 0 } else { attr.timeout };
    };
    let mut net = Net::connected_with(set, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    if let Some(rate) = refusal.rate {
        save::replace_none();
        let bytes = std::num::NonZeroU64::new(rate);
        let limit = RateLimit { bytes, messages: None, burst: Duration::from_millis(1) };
        net.hosts[A].engine.set_qp_rate(net.now, a.device, a.qpn, &limit).unwrap();
    }
    let first = net.expected(B);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
    let start = net.now;
    let (mut answered, mut packets) = (0, 0);
    for step in 0..20_000 {
        net.now = start + step * TIMEOUT / 50;
        net.work(A);
        packets += net.hosts[A].cable.frames.len();
        net.hosts[A].cable.frames.clear();
        let done = net.hosts[A].statuses();
        if let Some(done) = done.first() {
            assert_eq!(*done, (1, RetryExc));
            return (Duration::from_nanos(net.now.0 - start.0), packets);
        }
        let is_answered = refusal.answers.get(answered as usize).is_some_and(|at| start + *at <= net.now);
        answered += u32::from(is_answered);
        let nak = nak(&net, first.add(answered));
        net.inject(B, &nak, &[]);
    }
    panic!("it never fails");
}

#[test]
fn a_request_fails_when_nothing_was_answered_for_so_long_and_not_before() {
    for retry_cnt in [0, 1, 2, 7] {
        let promised = TIMEOUT * (u32::from(retry_cnt) + 1);
        let (took, _) = time_to_fail(&Refusal { retry_cnt, ..Refusal::default() });
        assert!(took >= promised && took <= promised + promised / 10, "{retry_cnt}: {took:?}");
        // Each answer begins the time anew.
        let answers: Vec<Duration> = (1..=5).map(|n| promised * 9 / 10 * n).collect();
        let (took, _) = time_to_fail(&Refusal { retry_cnt, answers: &answers, ..Refusal::default() });
        let promised = answers[4] + promised;
        assert!(took >= promised && took <= promised + promised / 10, "{retry_cnt}: {took:?}");
    }
}

#[test]
fn a_peer_that_refuses_for_ever_ends_a_request_behind_a_rate() {
    // A NAK comes before a rate allows the next packet.
    let packet = TIMEOUT / 10;
    let rate = Some((1024 * 1_000_000_000 / packet.as_nanos()) as u64);
    for retry_cnt in [0, 2] {
        let promised = TIMEOUT * (u32::from(retry_cnt) + 1);
        let (took, packets) = time_to_fail(&Refusal { retry_cnt, rate, ..Refusal::default() });
        println!("{retry_cnt}: {took:?}, {packets} packets");
        assert!(took >= promised && took <= 4 * promised, "{retry_cnt}: {took:?}");
    }
}

#[test]
fn without_a_timeout_naks_spend_retries() {
    for retry_cnt in [0, 3] {
        let (_, packets) = time_to_fail(&Refusal { retry_cnt, is_patient: true, ..Refusal::default() });
        // The window narrows with each loss.
        assert!(packets <= 98 * (usize::from(retry_cnt) + 1), "{packets}");
    }
}

#[test]
fn memory_that_is_gone_is_no_reason_to_count_a_probe() {
    let mut link = Link::warm();
    link.b_rests_until = link.net.now + Duration::from_millis(5);
    post(&mut link, write_to(Remote { addr: 0, rkey: Rkey(0) }), 1);
    link.work(&mut |_| false);
    let end = link.net.hosts[A].end.clone();
    link.net.hosts[A].engine.dereg_mr(end.device, end.key).unwrap();
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [(0, Success)]);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.roce_adp_retrans, counters.retries, link.packets[A]), (0, 0, 5));
    assert!(srtt(&link.net.hosts[A]) > Some(Duration::from_micros(500)), "its answer was measured");
}

/// Has A wait for room to send a probe.
fn has_probe_due() -> Link {
    let mut link = Link::warm();
    link.b_rests_until = link.net.now + Duration::from_millis(5);
    post(&mut link, SEND, 1);
    link.work(&mut |_| false);
    link.net.hosts[A].cable.room = Some(0);
    let end = link.net.now + Duration::from_millis(1);
    link.run_until(end, |_| false);
    assert_eq!(link.packets[A], 5);
    link
}

#[test]
fn a_probe_that_is_due_survives_a_suspension_and_ends_with_its_queue_pair() {
    let mut link = has_probe_due();
    let end = link.net.hosts[A].end.clone();
    link.net.hosts[A].cable.room = None;
    link.net.hosts[A].engine.set_suspended(end.device, true);
    let later = link.net.now + Duration::from_millis(1);
    link.run_until(later, |_| false);
    assert_eq!(link.packets[A], 5, "a suspended device sends nothing");
    link.net.hosts[A].engine.set_suspended(end.device, false);
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [(0, Success)]);
    check(&link, SEND, 1);

    let mut link = has_probe_due();
    link.net.hosts[A].cable.room = None;
    let attr = QpAttr { state: QpState::Err, ..link.net.attr(A) };
    link.net.hosts[A].modify(link.net.now, AttrMask::STATE, attr);
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [(0, WcStatus::Flush)]);
    assert_eq!((link.packets[A], link.net.hosts[A].counters().roce_adp_retrans), (5, 0));
}

#[test]
fn idle_deadlines_are_moved_some_at_a_time_and_not_those_of_others() {
    save::replace_none();
    let mut link = Link::warm();
    for _ in 0..100 {
        link.net.second_pair();
        let b = link.net.hosts[B].end.remote(0);
        link.net.post(A, 1, write_to(b), Payload::Inline(b"x"));
        // No time passes.
        link.net.run();
    }
    assert_eq!(link.net.hosts[A].statuses(), vec![(1, Success); 100]);
    let engine = &mut link.net.hosts[A].engine;
    let mut left = || {
        engine.move_idle_deadlines();
        engine.core.schedule.deadlines.len()
    };
    assert_eq!([left(), left()], [100 - 64, 0]);
    // Nothing is moved while the device is suspended.
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.remote(0));
    link.net.post(A, 1, write_to(b), Payload::Inline(b"x"));
    link.net.run();
    let engine = &mut link.net.hosts[A].engine;
    engine.set_suspended(a.device, true);
    engine.move_idle_deadlines();
    assert_eq!(engine.core.schedule.deadlines.len(), 1);
    engine.set_suspended(a.device, false);
    engine.move_idle_deadlines();
    assert_eq!(engine.core.schedule.deadlines.len(), 0);
}

#[test]
fn who_waits_for_a_rate_spends_no_retry() {
    let mut net = Net::connected_with(|attr| attr.retry_cnt = 0, |_| {});
    save::replace_none();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 2048)]));
    net.work(A);
    net.hosts[A].cable.frames.clear();
    // The QP has used up its rate for ten timeouts.
    let bytes = std::num::NonZeroU64::new(1_000_000_000);
    let limit = RateLimit { bytes, messages: None, burst: Duration::from_millis(1) };
    net.hosts[A].engine.set_qp_rate(net.now, a.device, a.qpn, &limit).unwrap();
    let place = QpRef { device: a.device.0, qpn: a.qpn };
    net.hosts[A].engine.core.schedule.rates.charge_qp(place, 11_000_000, 0);
    let nak = nak(&net, first);
    net.inject(B, &nak, &[]);
    let start = net.now;
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    let took = Duration::from_nanos(net.now.0 - start.0);
    assert!(took > 5 * TIMEOUT, "it has waited {took:?}");
    assert_eq!((net.hosts[A].counters().timeouts, net.hosts[A].counters().naks_sequence_in), (0, 1));
}

#[test]
fn probes_of_many_queue_pairs_are_bounded_and_those_of_other_devices_are_not_concerned() {
    const QPS: u64 = 10_000;
    save::replace_none();
    let mut net = Net::new(QpType::Rc);
    let Host { engine, end, log, cable, .. } = &mut net.hosts[A];
    let many = engine.add_device(Limits { max_qp: 1 << 14, ..Limits::default() });
    engine.set_gid(many, 0, Some(Gid::from_ipv4([10, 0, 0, 9]).into())).unwrap();
    engine.set_mac(many, Mac([2, 0, 0, 0, 0, 9])).unwrap();
    let pd = engine.alloc_pd(many, OWNER).unwrap();
    // Nobody has this address. The local ACK timeout is 2.1 s.
    let peer = End { gid: Gid::from_ipv4([10, 0, 0, 77]), ..end.clone() };
    let attr = QpAttr { timeout: 19, hop_limit: 1, ..attr_to(&peer) };
    let start = net.now;
    let alone = (end.device, end.qpn);
    let init = qp_init(pd);
    let others: Vec<_> = (0..QPS).map(|_| (many, engine.create_qp(many, init).unwrap())).collect();
    for (device, qpn) in others.into_iter().chain([alone]) {
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            engine.modify_qp(start, device, qpn, mask, &QpAttr { state, ..attr }, log).unwrap();
        }
        let (op, payload) = (write_to(peer.remote(0)), Payload::Inline(b"x"));
        let request = SendRequest { id: 1, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_send(start, device, OWNER, qpn, &request, log).unwrap();
    }
    let second = 1_000_000_000;
    let mut now = start;
    while now.0 < start.0 + second {
        while engine.poll(now, u64::MAX, log) | engine.transmit(now, 1000, cable, log) {}
        cable.frames.clear();
        now = engine.poll_timeout().unwrap();
    }
    let [probes, of_alone] = [many, alone.0].map(|device| engine.counters(device).roce_adp_retrans);
    println!("{probes} probes of {QPS} QPs in a second");
    assert!((QPS..=second / 10_000).contains(&probes), "{probes}");
    // 4, 8, 16, 32, 64, 128, 256 and 512 ms after each other, with up to 10 % more.
    assert!((7..=8).contains(&of_alone), "{of_alone}");
}

/// Has A wait for the last response to a READ, which was lost. What the READ asked for is more than
/// the device may receive for a while.
fn reads_beyond_its_rate() -> Link {
    let mut link = Link::warm();
    save::replace_none();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    let bytes = std::num::NonZeroU64::new(1_000_000);
    let rx = RateLimit { bytes, messages: None, burst: Duration::from_millis(1) };
    let limits = RateLimits { rx, ..RateLimits::default() };
    link.net.hosts[A].engine.set_rates(link.net.now, a.device, &limits).unwrap();
    link.net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 30_000)]));
    let (last, end) = (first_psn(&link).add(29), link.net.now + 3 * DELAY);
    link.run_until(end, |sent| sent.from == B && sent.packet.bth.psn == last);
    assert_eq!((link.packets, link.net.hosts[A].statuses()), ([1, 30], vec![]));
    // A probe is due.
    link.net.now = end + Duration::from_millis(1);
    let Host { engine, log, .. } = &mut link.net.hosts[A];
    while engine.poll(link.net.now, u64::MAX, log) {}
    link
}

/// Returns until when A may not ask for data.
fn debt(link: &Link) -> Option<Instant> {
    let Host { engine, end, .. } = &link.net.hosts[A];
    engine.core.schedule.rates.wait(end.device.0, Flow::Rx)
}

/// Lets A send what it can. It does not try for ever.
fn transmit(link: &mut Link) -> usize {
    let Host { engine, cable, log, .. } = &mut link.net.hosts[A];
    let tries = (0..10).take_while(|_| engine.transmit(link.net.now, 1000, cable, log)).count();
    assert!(tries < 10, "it spins");
    cable.frames.len()
}

#[test]
fn a_probe_of_a_read_asks_for_nothing_that_rates_have_not_counted() {
    let mut link = reads_beyond_its_rate();
    let before = debt(&link);
    assert!(before > Some(link.net.now + Duration::from_millis(10)), "{before:?}");
    // A WRITE does not wait for a rate of what comes.
    let b = link.net.hosts[B].end.clone();
    link.net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"x"));
    assert_eq!(transmit(&mut link), 2, "the probe and the WRITE");
    assert_eq!(debt(&link), before);
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.roce_adp_retrans, counters.retries, counters.timeouts), (1, 0, 0));
}

#[test]
fn a_probe_leaves_a_read_behind_it_the_time_for_which_that_has_waited() {
    let mut link = reads_beyond_its_rate();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    link.net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 100)]));
    assert_eq!(transmit(&mut link), 0, "it waits for its own time");
    link.net.now = debt(&link).unwrap();
    let Host { engine, log, .. } = &mut link.net.hosts[A];
    while engine.poll(link.net.now, u64::MAX, log) {}
    assert_eq!(transmit(&mut link), 2, "the probe and the READ");
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
}

#[test]
fn what_is_sent_again_shortly_before_the_end_has_the_time_that_an_answer_takes() {
    let mut link = Link::warm();
    let (first, start) = (first_psn(&link), link.net.now);
    post(&mut link, write_to(Remote { addr: 0, rkey: Rkey(0) }), 1);
    let end = start + Duration::from_nanos((4096 << 14) - 30_000);
    link.run_until(end, |_| true);
    assert_eq!(link.net.hosts[A].counters().timeouts, 0);
    let nak = nak(&link.net, first);
    link.net.inject(B, &nak, &[]);
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [(0, Success)]);
    let counters = link.net.hosts[A].counters();
    // Three packets alone, and then all that is left.
    assert_eq!((counters.naks_sequence_in, counters.retries, counters.timeouts), (1, 4, 0));
}

/// Has A wait without a local ACK timeout for the answer to a WRITE that was lost, and then sets a
/// timeout.
fn sets_a_timeout() -> Link {
    let set = |attr: &mut QpAttr| attr.timeout = 0;
    let mut link = Link::new(Net::connected_with(set, set));
    post(&mut link, write_to(Remote { addr: 0, rkey: Rkey(0) }), 1);
    link.run(|_| true);
    for (mask, state) in [(AttrMask::STATE, QpState::Sqd), (AttrMask::TIMEOUT, QpState::Sqd)] {
        let attr = QpAttr { state, timeout: 14, ..link.net.attr(A) };
        link.net.hosts[A].modify(link.net.now, mask | AttrMask::STATE, attr);
    }
    link
}

#[test]
fn a_timeout_that_is_set_later_holds_for_what_was_sent_before() {
    let mut link = sets_a_timeout();
    let start = link.net.now;
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [(0, Success)]);
    assert!(link.net.now < start + Duration::from_millis(12), "a probe was sent");
    let mut link = sets_a_timeout();
    let end = link.net.now + Duration::from_secs(1);
    link.run_until(end, |_| true);
    assert_eq!(link.net.hosts[A].statuses(), [(0, RetryExc)]);
}
