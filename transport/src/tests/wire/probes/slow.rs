//! Peers and ways that are slow, and lose nothing or little.

use super::*;
use vrdma_wire::roce::Credits;

/// The operations that the tests send, with several packets or a response.
fn operations() -> [SendOp; 4] {
    let remote = Remote { addr: 0, rkey: Rkey(0) };
    let atomic = SendOp::atomic(remote, Atomic::FetchAdd { add: 1 });
    [SEND, write_to(remote), SendOp::Read { remote }, atomic]
}

#[test]
fn a_response_that_is_lost_early_is_asked_for_once() {
    let mut link = Link::warm();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    b.memory.fill(0, &[7; 200 * 1024]);
    // The responses take 20 round-trip times.
    link.pace = 20 * 2 * DELAY / 200;
    let first = first_psn(&link);
    link.net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 200 * 1024)]));
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == B && sent.packet.bth.psn == first.add(2) && lost == 0;
        lost += u32::from(is_lost);
        is_lost
    });
    assert_eq!(link.net.hosts[A].statuses(), [(1, Success)]);
    assert_eq!(a.memory.bytes(0, 200 * 1024), [7; 200 * 1024]);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.responses_lost, counters.roce_adp_retrans, counters.timeouts), (1, 0, 0));
    assert_eq!(link.packets, [2, 200 + 198]);
}

#[test]
fn a_request_that_is_lost_when_it_is_repeated_is_found_after_the_old_responses() {
    let mut link = Link::warm();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    b.memory.fill(0, &[7; 200 * 1024]);
    link.pace = 20 * 2 * DELAY / 200;
    let (first, start) = (first_psn(&link), link.net.now);
    link.net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 200 * 1024)]));
    let (mut requests, mut lost) = (0, 0);
    link.run(|sent| {
        requests += u32::from(sent.from == A);
        let is_lost = sent.from == B && sent.packet.bth.psn == first.add(2) && lost == 0;
        lost += u32::from(is_lost);
        is_lost || sent.from == A && requests == 2
    });
    assert_eq!(link.net.hosts[A].statuses(), [(1, Success)]);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.responses_lost, counters.roce_adp_retrans, counters.timeouts), (1, 1, 0));
    assert!(link.net.now < start + Duration::from_millis(6), "{:?}", link.net.now);
}

#[test]
fn a_peer_that_became_slower_is_measured_again() {
    let mut link = Link::warm();
    link.delay = Duration::from_micros(500);
    let mut probes = Vec::new();
    for id in 0..40 {
        let b = link.net.hosts[B].end.remote(0);
        link.net.post(A, id, write_to(b), Payload::Inline(b"x"));
        link.run(|_| false);
        probes.push(link.net.hosts[A].counters().roce_adp_retrans);
    }
    assert!(probes[0] > 0 && probes[4] == probes[39] && probes[39] <= 10, "{probes:?}");
    let srtt = srtt(&link.net.hosts[A]).unwrap();
    assert!(srtt > Duration::from_micros(950) && srtt <= Duration::from_millis(1), "{srtt:?}");
    assert_eq!(link.net.hosts[A].counters().retries, 0);
}

#[test]
fn a_peer_that_answers_in_steps_is_not_sent_everything_again() {
    for op in operations() {
        for (step, rest) in [(1, 1), (4, 1), (4, 10)] {
            let mut link = Link::warm();
            link.steps = Some((step, Duration::from_millis(rest)));
            for _ in 0..3 {
                post(&mut link, op, 4);
                link.run(|_| false);
            }
            assert_eq!(link.net.hosts[A].statuses().len(), 12);
            let counters = link.net.hosts[A].counters();
            assert_eq!((counters.retries, counters.timeouts), (0, 0), "{op:?} {step} {rest}");
            assert!(counters.roce_adp_retrans > 0 || step > 1, "{op:?} {step} {rest}");
        }
    }
}

#[test]
fn a_loss_is_known_when_an_acknowledge_is_repeated() {
    let mut link = Link::warm();
    let start = link.net.now;
    let rest = Duration::from_millis(10);
    link.b_rests_until = start + rest;
    post(&mut link, SEND, 2);
    let (first, mut lost) = (first_psn(&link), 0);
    link.run(|sent| {
        let is_lost = sent.from == A && sent.again == 0 && sent.packet.bth.psn.distance(first) >= 5;
        lost += u32::from(is_lost);
        is_lost
    });
    assert_eq!(lost, 5);
    assert_eq!(link.net.hosts[A].statuses(), [0, 1].map(|id| (id, Success)));
    check(&link, SEND, 2);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.retries, counters.timeouts), (1, 0));
    // Without that, it would wait for as long as the peer had rested.
    assert!(link.net.now < start + rest + Duration::from_millis(1), "{:?}", link.net.now);
}

/// Has A wait for more than the acknowledge of the first packet, after a probe.
fn partly_acknowledged() -> (Link, Psn) {
    let mut link = Link::warm();
    let first = first_psn(&link);
    post(&mut link, write_to(Remote { addr: 0, rkey: Rkey(0) }), 1);
    let end = link.net.now + Duration::from_millis(1);
    link.run_until(end, |_| true);
    assert!(link.net.hosts[A].counters().roce_adp_retrans > 0);
    acknowledge(&mut link, first, 4);
    (link, first)
}

/// Delivers an acknowledge of B with so many credits.
fn acknowledge(link: &mut Link, psn: Psn, credits: u32) {
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::at_most(credits)), msn: Default::default() };
    let packet = link.net.packet(B, Body::Rc(Rc::Ack(aeth)), psn);
    link.net.inject(B, &packet, &[]);
}

#[test]
fn new_credits_are_no_sign_of_a_loss() {
    let (mut link, first) = partly_acknowledged();
    for (credits, retries) in [(6, 0), (8, 0), (8, 1)] {
        acknowledge(&mut link, first, credits);
        assert_eq!(link.net.hosts[A].counters().retries, retries);
    }
}

#[test]
fn what_waits_for_the_data_of_reads_is_not_timed_unless_there_were_probes() {
    const LONG: u32 = 512 * 1024;
    for is_probed in [false, true] {
        let mut link = Link::warm();
        link.pace = Duration::from_nanos(3300);
        let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
        let read = SendOp::Read { remote: b.remote(0) };
        link.net.post(A, 1, read, Payload::Sges(&[a.sge(0, LONG)]));
        if is_probed {
            // The request is lost.
            link.work(&mut |_| true);
            let end = link.net.now + Duration::from_micros(5800);
            link.run_until(end, |_| false);
        }
        // The first response has come.
        let end = link.net.now + 4 * DELAY;
        link.run_until(end, |_| false);
        let probes = link.net.hosts[A].counters().roce_adp_retrans;
        assert_eq!((probes > 0, link.net.hosts[A].statuses()), (is_probed, vec![]));
        for id in 2..4 {
            link.net.post(A, id, read, Payload::Sges(&[a.sge(0, 1024)]));
        }
        link.run(|_| false);
        assert_eq!(link.net.hosts[A].statuses(), [1, 2, 3].map(|id| (id, Success)));
        assert_eq!(link.net.hosts[A].counters().roce_adp_retrans, probes);
        let srtt = srtt(&link.net.hosts[A]).unwrap();
        assert_eq!(srtt > 3 * DELAY, is_probed, "{srtt:?}");
    }
}

#[test]
fn acknowledges_that_come_together_after_a_while_cause_nothing_but_probes() {
    let mut link = Link::warm();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    let mut probes = Vec::new();
    for round in 0..20 {
        for id in 0..8 {
            let payload = [a.sge(0, 8192)];
            link.net.post(A, round * 8 + id, write_to(b.remote(0)), Payload::Sges(&payload));
        }
        link.net.work(A);
        let frames = std::mem::take(&mut link.net.hosts[A].cable.frames);
        assert_eq!(frames.len(), 64);
        // They come one by one within 300 us. B does not come to send before.
        let start = link.net.now + DELAY;
        for (index, frame) in (0u32..).zip(&frames) {
            link.net.now = start + index * Duration::from_micros(300) / 64;
            link.net.work(A);
            link.net.deliver(A, frame);
        }
        link.run(|_| false);
        probes.push(link.net.hosts[A].counters().roce_adp_retrans);
    }
    assert_eq!(link.net.hosts[A].statuses().len(), 160);
    assert_eq!(link.net.hosts[A].counters().retries, 0);
    assert!(probes[19] <= 4 && probes[19] == probes[3], "{probes:?}");
}

#[test]
fn large_reads_over_a_slow_way_are_not_asked_for_again() {
    // Each packet of B takes 3.3 us, as at 2.5 Gb/s.
    for (qps, bytes) in [(4, 1 << 20), (4, 100 * 1024), (2, 16 * 1024)] {
        let mut link = Link::warm();
        link.pace = Duration::from_nanos(3300);
        for _ in 0..qps {
            for Host { engine, end, .. } in &mut link.net.hosts {
                end.qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
            }
            let [a, b] = [A, B].map(|at| QpAttr { timeout: 14, ..link.net.attr(at) });
            link.net.connect(a, b);
            let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
            link.net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, bytes)]));
        }
        link.run(|_| false);
        assert_eq!(link.net.hosts[A].statuses().len(), qps);
        let needed = qps as u64 * u64::from(bytes) / 1024;
        let (sent, probes) = (link.packets[B], link.net.hosts[A].counters().roce_adp_retrans);
        println!("{qps} READs of {bytes} bytes: {sent} packets for {needed}, {probes} probes");
        assert!(sent * 10 <= needed * 13, "{qps} READs of {bytes} bytes: {sent} packets for {needed}");
        assert_eq!(link.net.hosts[A].counters().timeouts, 0);
    }
}
