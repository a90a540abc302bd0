//! Congestion: marks, notifications, and the rates that they cause.

use super::*;
use WcStatus::{RetryExc, Success};

/// The congestion notification DSCP of the default parameters.
const CNP_CLASS: u8 = 48 << 2;

fn controlled() -> Net {
    controlled_with(|_| {}, |_| {})
}

fn controlled_with(a: impl FnOnce(&mut QpAttr), b: impl FnOnce(&mut QpAttr)) -> Net {
    let mut net = Net::connected_with(a, b);
    for host in &mut net.hosts {
        host.engine.set_congestion(Some(Dcqcn::default())).unwrap();
    }
    net
}

/// Marks a frame, as a congested switch does.
fn mark(frame: &mut Frame) {
    assert!(vrdma_wire::ecn::mark(frame), "its ends understand marks");
}

/// Sends notifications of the peer to host `at`, one in 60 us.
fn notify(net: &mut Net, at: usize, count: u32) {
    let mut packet = net.packet(1 - at, Body::Cnp, Psn::default());
    packet.bth = Bth { becn: true, ack_req: false, ..packet.bth };
    for _ in 0..count {
        net.now = net.now + Duration::from_micros(60);
        net.inject(1 - at, &packet, b"");
    }
}

/// Returns the rate of the QP of a host.
fn rate(net: &Net, at: usize) -> Option<u64> {
    let End { device, qpn, .. } = net.hosts[at].end;
    net.hosts[at].engine.qp_view(device, qpn).unwrap().rate
}

#[test]
fn data_say_that_their_ends_understand_marks_and_answers_do_not() {
    for (asked, on) in [(0x40, true), (0x43, true), (0x42, false), (0, false)] {
        let class = |attr: &mut QpAttr| attr.traffic_class = asked;
        let mut net = Net::connected_with(class, class);
        if on {
            for host in &mut net.hosts {
                host.engine.set_congestion(Some(Dcqcn::default())).unwrap();
            }
        }
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 3000)]));
        net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
        net.work(A);
        let (data, answer) = if on { (asked & !3 | 2, asked & !3) } else { (asked, asked) };
        let classes = |net: &Net, at: usize| -> Vec<_> {
            net.hosts[at].cable.frames.iter().map(|it| parse(it).path.traffic_class).collect()
        };
        assert_eq!(classes(&net, A), vec![data; 4], "WRITEs and the READ");
        net.carry(A, |_, _| true);
        net.work(B);
        assert_eq!(classes(&net, B), vec![data; 3], "READ responses");
        net.run();
        net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"x"));
        net.work(A);
        net.carry(A, |_, _| true);
        net.work(B);
        assert_eq!(classes(&net, B), [answer], "an acknowledge");
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success), (3, Success)]);
    }
}

#[test]
fn marked_requests_are_answered_by_one_notification_in_each_interval() {
    let mut net = controlled();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let mut sent = Vec::new();
    for round in 0..4 {
        net.post(A, round, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8000)]));
        net.work(A);
        net.carry(A, |_, frame| {
            mark(frame);
            true
        });
        net.work(B);
        let cnps: Vec<_> = net.hosts[B].cable.frames.iter().map(|it| parse(it)).collect();
        let cnps: Vec<_> = cnps.into_iter().filter(|it| it.body == Body::Cnp).collect();
        for cnp in &cnps {
            assert_eq!(parse(&net.hosts[B].cable.frames[0]), *cnp, "it comes before all others");
            assert_eq!((cnp.bth.dest, cnp.bth.becn, cnp.bth.psn.number()), (a.qpn, true, 0));
            assert_eq!((cnp.path.traffic_class, cnp.path.src, cnp.path.dst), (CNP_CLASS, b.gid, a.gid));
        }
        sent.push(cnps.len());
        // Its peer must not become slow by it here.
        net.carry(B, |_, frame| parse(frame).body != Body::Cnp);
        net.run();
        net.now = net.now + Duration::from_micros(if round == 1 { 50 } else { 10 });
    }
    assert_eq!(sent, [1, 0, 1, 0]);
    let counters = net.hosts[B].counters();
    assert_eq!((counters.np_ecn_marked_roce_packets, counters.np_cnp_sent), (32, 2));
    assert_eq!(net.hosts[A].statuses().len(), 4);
    assert_eq!(rate(&net, A), None);
}

#[test]
fn marked_responses_slow_the_responder_down() {
    let mut net = controlled();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    b.memory.fill(0, &[7; 8000]);
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.work(B);
    net.carry(B, |_, frame| {
        mark(frame);
        true
    });
    assert_eq!(a.memory.bytes(0, 8000), [7; 8000]);
    net.work(A);
    assert_eq!(parse(&net.hosts[A].cable.frames[0]).bth.dest, b.qpn);
    net.run();
    assert_eq!(net.hosts[B].counters().rp_cnp_handled, 1);
    assert_eq!((rate(&net, A), rate(&net, B)), (None, Some(Dcqcn::default().rp_max_rate / 2)));
}

#[test]
fn marks_and_notifications_do_nothing_while_congestion_control_is_off() {
    let mut net = Net::connected_with(|a| a.traffic_class = 2, |_| {});
    let b = net.hosts[B].end.clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.work(A);
    net.carry(A, |_, frame| {
        mark(frame);
        true
    });
    notify(&mut net, A, 3);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    let (a, b) = (net.hosts[A].counters(), net.hosts[B].counters());
    assert_eq!((b.np_ecn_marked_roce_packets, b.np_cnp_sent), (1, 0));
    assert_eq!((a.rp_cnp_handled, a.rp_cnp_ignored, rate(&net, A)), (0, 3, None));
}

#[test]
fn only_the_peer_of_a_connection_can_slow_it_down() {
    let mut net = controlled();
    let good = net.packet(B, Body::Cnp, Psn::default());
    let spoil: [fn(&mut Packet); 4] = [
        |it| it.path.src = Gid::from_ipv4([10, 0, 0, 9]),
        |it| it.path.dst = Gid::from_ipv4([10, 0, 0, 9]),
        |it| it.bth.dest = Qpn::new(99).unwrap(),
        |it| it.path.dst_mac = Mac([2; 6]),
    ];
    for (which, spoil) in spoil.into_iter().enumerate() {
        let mut packet = good;
        spoil(&mut packet);
        net.inject(B, &packet, b"");
        assert_eq!(rate(&net, A), None, "{which}");
    }
    let counters = net.hosts[A].counters();
    assert_eq!((counters.rp_cnp_ignored, counters.rp_cnp_handled, counters.drop_no_qp), (1, 0, 1));
    net.inject(B, &good, b"");
    assert!(rate(&net, A).is_some());
}

#[test]
fn a_qp_of_another_service_or_in_another_state_ignores_notifications() {
    let mut net = controlled();
    let error = QpAttr { state: QpState::Err, ..QpAttr::default() };
    net.hosts[A].modify(net.now, AttrMask::STATE, error);
    notify(&mut net, A, 2);
    assert_eq!((net.hosts[A].counters().rp_cnp_ignored, rate(&net, A)), (2, None));
    let not_connected = Net::new(QpType::Ud);
    for mut net in [not_connected, unreliable::uc()] {
        net.hosts[A].engine.set_congestion(Some(Dcqcn::default())).unwrap();
        notify(&mut net, A, 2);
        assert_eq!((net.hosts[A].counters().rp_cnp_ignored, rate(&net, A)), (2, None));
    }
}

#[test]
fn requests_and_responses_of_a_qp_share_its_rate() {
    let mut net = Net::connected();
    net.hosts[A].engine.set_congestion(Some(constant(10_000_000))).unwrap();
    notify(&mut net, A, 2000);
    let first = net.second_pair();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let other = [A, B].map(|at| net.hosts[at].end.clone());
    let begin = |net: &mut Net, ends: &[End; 2]| {
        net.hosts[A].end = ends[A].clone();
        net.hosts[B].end = ends[B].clone();
    };
    // The peer reads without end, and another QP of the device has much to send.
    begin(&mut net, &first);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
    let (mut reads, mut writes, mut ended) = (0, 0, None);
    let start = net.now;
    while ended.is_none() {
        for _ in reads..4 {
            begin(&mut net, &first);
            net.post(B, 7, SendOp::Read { remote: a.remote(0) }, Payload::Sges(&[b.sge(0, 50_000)]));
        }
        for _ in writes..4 {
            begin(&mut net, &other);
            net.post(A, 8, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 200_000)]));
        }
        (reads, writes) = (4, 4);
        for _ in 0..4 {
            net.work(A);
            net.work(B);
            net.carry(A, |_, _| true);
            net.carry(B, |_, _| true);
        }
        for (id, status) in net.hosts[A].statuses() {
            assert_eq!(status, Success);
            if id == 1 { ended = Some(net.now) } else { writes -= 1 }
        }
        for (_, status) in net.hosts[B].statuses() {
            assert_eq!(status, Success);
            reads -= 1;
        }
        net.now = net.now + Duration::from_micros(20);
        assert!(net.now < start + Duration::from_millis(100), "100 kB have half of 10 MB in a second");
    }
}

#[test]
fn a_notification_does_not_wait_for_responses_that_wait() {
    let mut net = Net::connected_with(|it| it.timeout = 14, |it| it.timeout = 14);
    net.hosts[A].engine.set_congestion(Some(constant(1_250_000))).unwrap();
    net.hosts[B].engine.set_congestion(Some(Dcqcn::default())).unwrap();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    notify(&mut net, A, 2000);
    net.post(B, 1, SendOp::Read { remote: a.remote(0) }, Payload::Sges(&[b.sge(0, 50_000)]));
    net.run();
    let before = net.hosts[A].counters().np_cnp_sent;
    net.post(B, 2, write_to(a.remote(0)), Payload::Inline(b"x"));
    net.work(B);
    net.carry(B, |_, frame| {
        mark(frame);
        true
    });
    net.run();
    assert_eq!(net.hosts[A].counters().np_cnp_sent, before + 1, "it is there at once");
    assert_eq!(net.hosts[B].statuses(), [], "responses still wait");
    net.settle();
    assert_eq!(net.hosts[B].statuses(), [(1, Success), (2, Success)]);
}

#[test]
fn a_qp_with_a_rate_on_a_device_with_rates_is_not_taken_for_dead() {
    let mut net = Net::connected_with(|it| it.retry_cnt = 1, |_| {});
    let limit = RateLimit {
        bytes: core::num::NonZeroU64::new(20_000_000),
        messages: None,
        burst: Duration::from_millis(1),
    };
    let device = net.hosts[A].end.device;
    let limits = RateLimits { tx: limit, ..RateLimits::default() };
    net.hosts[A].engine.set_rates(net.now, device, &limits).unwrap();
    net.hosts[A].engine.set_congestion(Some(constant(50_000_000))).unwrap();
    notify(&mut net, A, 2000);
    let first = net.second_pair();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for id in 0..4 {
        net.post(A, 10 + id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 400_000)]));
    }
    net.hosts[A].end = first[A].clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 400_000)]));
    net.settle();
    let mut statuses = net.hosts[A].statuses();
    statuses.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(statuses, [1, 10, 11, 12, 13].map(|id| (id, Success)));
    assert_eq!(net.hosts[A].counters().timeouts, 0);
}

/// Lets time pass until nothing is left, and returns when frames with data left host `from`, with
/// their length.
fn departures(net: &mut Net, from: usize) -> Vec<(Instant, usize)> {
    let mut left = Vec::new();
    for _ in 0..100_000 {
        loop {
            net.work(A);
            net.work(B);
            if net.hosts.iter().all(|host| host.cable.frames.is_empty()) {
                break;
            }
            for at in [A, B] {
                let now = net.now;
                net.carry(at, |_, frame| {
                    if at == from && frame.len() > 500 {
                        left.push((now, frame.len() + 24));
                    }
                    true
                });
            }
        }
        let Some(next) = net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min() else {
            return left;
        };
        net.now = net.now.max(next);
    }
    panic!("this has no end");
}

/// Checks that departures have a rate, from the first one on: not more, except for a burst, and not
/// much less.
fn check_rate(departures: &[(Instant, usize)], rate: u64, burst: u64) {
    let (begin, end) = (departures[0].0, departures.last().unwrap().0);
    let mut sum = 0;
    for &(at, length) in departures {
        let most = u128::from(rate) * u128::from(at.0 - begin.0) / 1_000_000_000;
        // What a burst may be, and what is saved up.
        assert!(sum <= most as u64 + 2 * burst + 4 * 4200, "{sum} {most} {burst}");
        sum += length as u64;
    }
    let seconds = (end.0 - begin.0) as f64 / 1e9;
    assert!(sum as f64 >= 0.97 * rate as f64 * seconds, "{sum} in {seconds} s");
}

/// A rate that stays as it is: it grows very slowly.
fn constant(rate: u64) -> Dcqcn {
    Dcqcn {
        rp_min_rate: rate,
        rp_time_reset: Dcqcn::LONGEST,
        rp_byte_reset: u64::MAX / 4,
        ..Dcqcn::default()
    }
}

#[test]
fn requests_and_responses_leave_at_the_rate_of_their_qp() {
    for (rate, is_read) in [(50_000_000, false), (50_000_000, true), (1_250_000, false), (1_250_000, true)] {
        // A peer of a slow QP needs patience.
        let patient = |attr: &mut QpAttr| attr.timeout = 14;
        let mut net = Net::connected_with(patient, patient);
        for host in &mut net.hosts {
            host.engine.set_congestion(Some(constant(rate))).unwrap();
        }
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let from = if is_read { B } else { A };
        notify(&mut net, from, 2000);
        assert_eq!(self::rate(&net, from), Some(rate));
        let op = if is_read { SendOp::Read { remote: b.remote(0) } } else { write_to(b.remote(0)) };
        for id in 0..2 {
            net.post(A, id, op, Payload::Sges(&[a.sge(0, 400_000)]));
        }
        let left = departures(&mut net, from);
        let frames: usize = left.iter().map(|(_, length)| length).sum();
        assert!(frames >= 800_000);
        check_rate(&left, rate, 4 * 1200);
        assert_eq!(net.hosts[A].statuses(), [(0, Success), (1, Success)]);
        // However slow it is, nothing is taken for lost. Long pauses between responses have probes.
        let counters = [A, B].map(|at| net.hosts[at].counters());
        assert_eq!(counters.map(|it| (it.timeouts, it.retries)), [(0, 0); 2]);
        let probes = counters[A].roce_adp_retrans;
        assert!(probes == 0 || is_read && probes < 10, "{rate} {probes}");
        assert_eq!((counters[A].duplicates, counters[B].duplicates), (0, probes));
    }
}

#[test]
fn a_qp_with_a_rate_delays_no_other_and_its_acknowledges_go_at_once() {
    let mut net = Net::connected();
    net.hosts[A].engine.set_congestion(Some(constant(1_250_000))).unwrap();
    notify(&mut net, A, 2000);
    let first = net.second_pair();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let slow = net.hosts[A].end.clone();
    net.hosts[A].end = first[A].clone();
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [], "it waits for its time");
    net.hosts[A].end = slow;
    net.post(A, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
    let before = net.now;
    net.run();
    assert_eq!((net.hosts[A].statuses(), net.now), (vec![(2, Success)], before));
    // A message of the peer is acknowledged meanwhile.
    net.hosts[B].end = first[B].clone();
    net.post(B, 3, write_to(a.remote(0)), Payload::Inline(b"x"));
    net.run();
    assert_eq!((net.hosts[B].statuses(), net.now), (vec![(3, Success)], before));
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
}

#[test]
fn a_flood_of_notifications_stops_nobody() {
    let mut net = controlled();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 500_000)]));
    let begin = net.now;
    while net.hosts[A].statuses() != [(1, Success)] {
        notify(&mut net, A, 1);
        net.run();
        assert!(net.now < begin + Duration::from_secs(1), "10 Mb/s are 1.25 MB in a second");
    }
    assert_eq!(net.hosts[A].counters().timeouts, 0);
}

#[test]
fn a_rate_ends_when_its_qp_was_left_alone_for_a_while() {
    let mut net = controlled();
    let b = net.hosts[B].end.clone();
    notify(&mut net, A, 5);
    assert!(rate(&net, A).is_some());
    net.now = net.now + Duration::from_secs(3);
    net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    net.run();
    assert_eq!((net.hosts[A].statuses(), rate(&net, A)), (vec![(1, Success)], None));
}

#[test]
fn whoever_waits_for_its_rate_can_be_reset_destroyed_and_switched_off() {
    let waiting = || {
        let mut net = Net::connected();
        net.hosts[A].engine.set_congestion(Some(constant(1_250_000))).unwrap();
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        notify(&mut net, A, 2000);
        net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
        net.run();
        assert!(net.hosts[A].engine.poll_timeout().is_some());
        net
    };
    let mut net = waiting();
    let End { device, qpn, .. } = net.hosts[A].end;
    net.hosts[A].engine.destroy_qp(device, qpn).unwrap();
    net.settle();
    let mut net = waiting();
    net.hosts[A].modify(net.now, AttrMask::STATE, QpAttr { state: QpState::Reset, ..QpAttr::default() });
    assert_eq!(rate(&net, A), None, "a new connection begins anew");
    net.settle();
    let mut net = waiting();
    net.hosts[A].engine.reset_device(device).unwrap();
    net.settle();
    let mut net = waiting();
    net.hosts[A].engine.set_congestion(None).unwrap();
    let before = net.now;
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    assert!(net.now < before + Duration::from_millis(100), "it waited once more at most");
    assert_eq!(rate(&net, A), None);
}

#[test]
fn another_path_has_no_rate_and_nothing_waits_for_the_old_one() {
    let mut net = Net::connected();
    net.hosts[A].engine.set_congestion(Some(constant(1_250_000))).unwrap();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    notify(&mut net, A, 2000);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
    net.run();
    let attr = QpAttr { state: QpState::Sqd, flow_label: 7, ..net.attr(A) };
    net.hosts[A].modify(net.now, AttrMask::STATE, attr);
    net.run();
    assert!(rate(&net, A).is_some() && net.hosts[A].statuses().is_empty());
    net.hosts[A].modify(net.now, AttrMask::STATE | AttrMask::AV, attr);
    assert_eq!(rate(&net, A), None);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)], "no time has passed");
}

#[test]
fn a_slow_qp_whose_peer_is_gone_fails_in_time() {
    let mut net = Net::connected();
    net.hosts[A].engine.set_congestion(Some(constant(1_250_000))).unwrap();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    notify(&mut net, A, 2000);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 300_000)]));
    let begin = net.now;
    while net.hosts[A].state() == QpState::Rts {
        net.work(A);
        net.hosts[A].cable.frames.clear();
        let Some(next) = net.hosts[A].engine.poll_timeout() else { break };
        net.now = net.now.max(next);
    }
    net.work(A);
    assert_eq!(net.hosts[A].statuses(), [(1, RetryExc)]);
    // Between two tries it waits for its time, too.
    assert!(net.now < begin + 20 * TIMEOUT);
}

/// Returns the record of an engine with a QP that has a rate and owes a notification.
pub(crate) fn record() -> Record {
    let mut net = controlled();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for id in 0..2 {
        net.post(A, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
        net.post(B, id, SendOp::Read { remote: a.remote(0) }, Payload::Sges(&[b.sge(0, 9000)]));
        net.run();
        notify(&mut net, A, 20);
        net.now = net.now + Duration::from_millis(2);
    }
    let packet = net.packet(B, super::hostile::write_only(&net, A), net.expected(A));
    let mut frame = frame(&Packet { path: Path { traffic_class: 2, ..packet.path }, ..packet }, b"data");
    mark(&mut frame);
    net.deliver(B, &frame);
    net.hosts[A].engine.save()
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let mut engine = Engine::<Mem>::new(1);
    let bad = Dcqcn { rp_min_rate: 0, ..Dcqcn::default() };
    assert_eq!(engine.set_congestion(Some(bad)), Err(Error::Invalid));
    assert_eq!(engine.set_congestion(Some(Dcqcn::default())), Ok(()));
}

#[test]
fn responses_to_reads_that_were_held_leave_at_the_rate_of_their_qp() {
    let patient = |attr: &mut QpAttr| attr.timeout = 14;
    let mut net = Net::connected_with(patient, patient);
    net.hosts[B].engine.set_congestion(Some(constant(1_250_000))).unwrap();
    notify(&mut net, B, 2000);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(90_000)), Payload::Inline(b"x"));
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 50_000)]));
    net.work(A);
    let frames: Vec<Frame> = net.hosts[A].cable.frames.drain(..).collect();
    for at in [1, 0] {
        net.deliver(A, &frames[at]);
        net.work(B);
    }
    let sent = net.hosts[B].cable.frames.len();
    // The READ has 49 packets.
    assert!(sent < 20, "{sent} at once");
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, Success), (2, Success)]);
}

#[test]
fn a_mark_counts_on_a_packet_that_waits_behind_another() {
    let mut net = controlled();
    net.post(A, 1, SEND, Payload::Inline(b"first"));
    net.post(A, 2, SEND, Payload::Inline(b"second"));
    net.work(A);
    let mut frames: Vec<Frame> = net.hosts[A].cable.frames.drain(..).collect();
    mark(&mut frames[1]);
    let Host { engine, log, .. } = &mut net.hosts[B];
    frames.iter().for_each(|frame| engine.handle_frame(net.now, frame, log));
    assert!(engine.has_questions());
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 8)]);
    net.post_recv(B, 2, &[b.sge(0, 8)]);
    net.work(B);
    let counters = net.hosts[B].counters();
    assert_eq!((counters.np_ecn_marked_roce_packets, counters.np_cnp_sent), (1, 1));
}

/// Has host A write, and the answer take this many microseconds.
fn write_and_wait(net: &mut Net, micros: u64) {
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 50_000)]));
    net.work(A);
    net.carry(A, |_, _| true);
    net.now = net.now + Duration::from_micros(micros);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
}

fn by_delay() -> Dcqcn {
    Dcqcn { rp_delay_target: Some(Duration::from_micros(500)), ..Dcqcn::default() }
}

#[test]
fn round_trips_that_take_too_long_lower_the_rate_and_one_late_answer_does_not() {
    let mut net = controlled();
    let slow = |net: &Net| (rate(net, A).is_some(), net.hosts[A].counters().rp_delay_handled);
    for micros in [100, 900, 900, 900] {
        write_and_wait(&mut net, micros);
    }
    assert_eq!(slow(&net), (false, 0), "round-trip times do not count");
    net.hosts[A].engine.set_congestion(Some(by_delay())).unwrap();
    for micros in [100, 900, 100, 900, 490] {
        write_and_wait(&mut net, micros);
    }
    assert_eq!(slow(&net), (false, 0), "no two were too long, one after the other");
    write_and_wait(&mut net, 900);
    write_and_wait(&mut net, 900);
    assert_eq!(slow(&net), (true, 1));
    assert_eq!(rate(&net, B), None);
}

#[test]
fn one_late_answer_to_a_new_connection_and_late_data_of_reads_do_not_count() {
    let mut net = controlled();
    net.hosts[A].engine.set_congestion(Some(by_delay())).unwrap();
    write_and_wait(&mut net, 900);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    for _ in 0..5 {
        net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 3000)]));
        net.work(A);
        net.now = net.now + Duration::from_micros(900);
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    }
    assert_eq!((net.hosts[A].counters().rp_delay_handled, rate(&net, A)), (0, None));
}

#[test]
fn a_queue_pair_that_has_little_to_send_keeps_most_of_its_rate() {
    let mut net = controlled();
    net.hosts[A].engine.set_congestion(Some(by_delay())).unwrap();
    write_and_wait(&mut net, 600);
    write_and_wait(&mut net, 600);
    // Four fifths of the sixth by which the time is too long.
    let expected = Dcqcn::default().rp_max_rate * 13 / 15;
    assert!(rate(&net, A).unwrap().abs_diff(expected) < 1000, "{:?}", rate(&net, A));
}

#[test]
fn delays_do_not_count_where_a_switch_marks() {
    let mut net = controlled();
    net.hosts[A].engine.set_congestion(Some(by_delay())).unwrap();
    notify(&mut net, A, 1);
    for _ in 0..3 {
        write_and_wait(&mut net, 900);
    }
    assert_eq!(net.hosts[A].counters().rp_delay_handled, 0);
    net.now = net.now + Duration::from_secs(1);
    write_and_wait(&mut net, 900);
    assert_eq!(net.hosts[A].counters().rp_delay_handled, 1);
}

#[test]
fn a_rate_does_not_grow_while_an_answer_is_late() {
    let rates = |is_answered: bool| {
        let mut net = controlled();
        net.hosts[A].engine.set_congestion(Some(by_delay())).unwrap();
        write_and_wait(&mut net, 900);
        write_and_wait(&mut net, 900);
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        [0; 2].map(|_| {
            for id in 0..40 {
                net.post(A, 2 + id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 900)]));
                net.now = net.now + Duration::from_millis(1);
                if is_answered { net.run() } else { net.work(A) }
            }
            rate(&net, A).unwrap()
        })
    };
    let [before, after] = rates(true);
    assert!(after > before);
    // The first packet was timed.
    let [before, after] = rates(false);
    assert_eq!(after, before);
}

#[test]
fn a_connection_sends_little_in_its_first_round_trip_and_after_an_idle_time() {
    let patient = |attr: &mut QpAttr| (attr.timeout, attr.path_mtu) = (14, Mtu::M4096);
    for is_on in [true, false] {
        let mut net = Net::connected_with(patient, patient);
        for host in &mut net.hosts {
            host.engine.set_congestion(is_on.then(Dcqcn::default)).unwrap();
        }
        let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
        let mut at_once = |idle: u64| {
            net.now = net.now + Duration::from_micros(idle);
            for id in 0..4 {
                net.post(A, id, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
            }
            net.work(A);
            let sent = net.hosts[A].cable.frames.len();
            net.run();
            assert_eq!(net.hosts[A].statuses().len(), 4);
            sent
        };
        let limited = if is_on { 64 } else { 100 };
        assert_eq!([0, 0, 900, 1100, 0].map(&mut at_once), [limited, 100, 100, limited, 100]);
    }
}
