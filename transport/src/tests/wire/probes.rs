//! Silent peers, and what is sent to them before the local ACK timeout.

mod limits;
pub(crate) mod repeat;
mod slow;

use super::*;
use WcStatus::Success;
use std::collections::BTreeMap;
use vrdma_wire::num::Srqn;
use vrdma_wire::roce::{Aeth, NakCode, Syndrome};

/// The time that each frame takes, unless a test changes it.
const DELAY: Duration = Duration::from_micros(20);

/// A frame that was sent.
struct Sent {
    from: usize,
    packet: Packet,
    /// How often its host sent a frame of this kind and PSN before.
    again: u32,
}

impl Sent {
    fn is_ack(&self) -> bool {
        matches!(self.packet.body, Body::Rc(Rc::Ack(_)) | Body::Xrc(_) if self.from == B)
    }

    fn is_nak(&self) -> bool {
        matches!(self.packet.body, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Nak(_), .. })))
    }
}

/// Two hosts whose frames take time.
struct Link {
    net: Net,
    delay: Duration,
    /// How long each frame of B takes up the line.
    pace: Duration,
    /// When the line from B is free again.
    free_at: Instant,
    /// Frames under way from each host, and when they arrive.
    flying: [VecDeque<(Instant, Frame)>; 2],
    counts: BTreeMap<(usize, u32, u8), u32>,
    /// Packets from each host.
    packets: [u64; 2],
    /// Frames to B wait until this time.
    b_rests_until: Instant,
    /// B rests for this time after each of this number of frames.
    steps: Option<(u64, Duration)>,
    /// Frames that B has handled.
    handled: u64,
}

impl Link {
    fn new(net: Net) -> Link {
        let (flying, counts, b_rests_until, steps, free_at, handled) = Default::default();
        let (delay, pace) = (DELAY, Duration::ZERO);
        Link { net, delay, pace, free_at, flying, counts, packets: [0; 2], b_rests_until, steps, handled }
    }

    /// Connects two hosts, and lets A measure the round-trip time.
    fn warm() -> Link {
        let set = |attr: &mut QpAttr| (attr.timeout, attr.retry_cnt) = (14, 7);
        let mut link = Link::new(Net::connected_with(set, set));
        for _ in 0..20 {
            for from in [A, B] {
                let peer = link.net.hosts[1 - from].end.remote(0);
                link.net.post(from, 0, write_to(peer), Payload::Inline(b"x"));
            }
            link.run(|_| false);
        }
        for host in &mut link.net.hosts {
            assert_eq!(host.statuses(), vec![(0, Success); 20]);
            let counters = host.counters();
            assert_eq!((counters.roce_adp_retrans, counters.retries), (0, 0));
            assert_eq!(srtt(host), Some(2 * DELAY));
        }
        link.packets = [0; 2];
        link
    }

    /// Lets the hosts send what they can. `lose` decides what is lost.
    fn work(&mut self, lose: &mut impl FnMut(&Sent) -> bool) {
        for from in [A, B] {
            self.net.work(from);
            for frame in std::mem::take(&mut self.net.hosts[from].cable.frames) {
                let packet = parse(&frame);
                let kind = frame[frame.len().min(42)];
                let count = self.counts.entry((from, packet.bth.psn.number(), kind)).or_default();
                let sent = Sent { from, packet, again: *count };
                *count += 1;
                self.packets[from] += 1;
                if !lose(&sent) {
                    let mut at = self.net.now;
                    if from == B {
                        self.free_at = self.free_at.max(at) + self.pace;
                        at = self.free_at;
                    }
                    self.flying[from].push_back((at + self.delay, frame));
                }
            }
        }
    }

    /// Delivers what has arrived. B handles frames one by one, and answers each.
    fn deliver(&mut self, lose: &mut impl FnMut(&Sent) -> bool) {
        while let Some((at, from)) = self.arrival()
            && at <= self.net.now
        {
            let (_, frame) = self.flying[from].pop_front().unwrap();
            self.net.deliver(from, &frame);
            self.handled += u64::from(from == A);
            if let Some((count, rest)) = self.steps
                && from == A
                && self.handled.is_multiple_of(count)
            {
                self.b_rests_until = self.net.now + rest;
            }
            self.work(lose);
        }
    }

    /// Returns when a frame is handled next, and from which host it is.
    fn arrival(&self) -> Option<(Instant, usize)> {
        let arrivals = [A, B].map(|from| {
            let at = self.flying[from].front()?.0;
            Some((if from == A { at.max(self.b_rests_until) } else { at }, from))
        });
        arrivals.into_iter().flatten().min()
    }

    /// Returns when something happens next.
    fn next(&mut self) -> Option<Instant> {
        let flying = self.arrival().map(|(at, _)| at);
        let timers = self.net.hosts.iter_mut().filter_map(|host| {
            host.engine.move_idle_deadlines();
            let has_room = host.cable.has_room_for_more();
            host.engine.poll_timeout().filter(|at| has_room || *at != Instant(0))
        });
        timers.chain(flying).min()
    }

    /// Runs until nothing is left to do, or until `end`.
    fn run_until(&mut self, end: Instant, mut lose: impl FnMut(&Sent) -> bool) {
        loop {
            self.work(&mut lose);
            self.deliver(&mut lose);
            match self.next() {
                Some(next) if next <= end => self.net.now = self.net.now.max(next),
                _ => break,
            }
        }
        if end != Instant(u64::MAX) {
            self.net.now = end;
        }
    }

    fn run(&mut self, lose: impl FnMut(&Sent) -> bool) {
        self.run_until(Instant(u64::MAX), lose);
    }
}

fn srtt(host: &Host) -> Option<Duration> {
    host.engine.qp_view(host.end.device, host.end.qpn).unwrap().srtt
}

/// Returns the PSN that A sends next, which is the first of the next request.
fn first_psn(link: &Link) -> Psn {
    let End { device, qpn, .. } = link.net.hosts[A].end;
    link.net.hosts[A].engine.query_qp(device, qpn).unwrap().sq_psn
}

/// Posts this many requests of a kind, of which each is of 5000 bytes if its kind allows it.
fn post(link: &mut Link, op: SendOp, count: u32) {
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    a.memory.fill(0, &[1; 5000]);
    b.memory.fill(10_000, &[2; 5000]);
    for id in 0..count {
        let to = 20_000 + u64::from(id) * 5000;
        match op {
            SEND => {
                link.net.post_recv(B, 50 + id, &[b.sge(to, 5000)]);
                link.net.post(A, id, SEND, Payload::Sges(&[a.sge(0, 5000)]));
            }
            SendOp::Write { .. } => {
                link.net.post(A, id, write_to(b.remote(to)), Payload::Sges(&[a.sge(0, 5000)]))
            }
            SendOp::Read { .. } => {
                let op = SendOp::Read { remote: b.remote(10_000) };
                link.net.post(A, id, op, Payload::Sges(&[a.sge(to, 5000)]));
            }
            SendOp::AtomicWrite { .. } => {
                let op = SendOp::AtomicWrite { remote: b.remote(to) };
                link.net.post(A, id, op, Payload::Inline(&[1; 8]));
            }
            SendOp::Flush { .. } => {
                let scope = FlushScope { placement: Placement::Global, whole: false, length: 8 };
                link.net.post(A, id, SendOp::Flush { remote: b.remote(0), scope }, Payload::Inline(&[]));
            }
            _ => {
                let op = SendOp::atomic(b.remote(8), Atomic::FetchAdd { add: 1 });
                link.net.post(A, id, op, Payload::Sges(&[a.sge(to, 8)]));
            }
        }
    }
}

/// Checks the memory after [`post`].
fn check(link: &Link, op: SendOp, count: u32) {
    let (a, b) = (&link.net.hosts[A].end, &link.net.hosts[B].end);
    for id in 0..count as usize {
        let to = 20_000 + id * 5000;
        match op {
            SEND | SendOp::Write { .. } => assert_eq!(b.memory.bytes(to, 5000), [1; 5000]),
            SendOp::Read { .. } => assert_eq!(a.memory.bytes(to, 5000), [2; 5000]),
            SendOp::AtomicWrite { .. } => assert_eq!(b.memory.bytes(to, 8), [1; 8]),
            SendOp::Atomic { .. } => assert_eq!(a.memory.bytes(to, 8), (id as u64).to_ne_bytes()),
            _ => {}
        }
    }
}

#[test]
fn what_is_lost_without_a_word_is_found_by_probes() {
    let remote = Remote { addr: 0, rkey: Rkey(0) };
    let (write, read) = (write_to(remote), SendOp::Read { remote });
    let atomic = SendOp::atomic(remote, Atomic::FetchAdd { add: 1 });
    let scope = FlushScope { placement: Placement::Global, whole: false, length: 8 };
    let (flush, atomic_write) = (SendOp::Flush { remote, scope }, SendOp::AtomicWrite { remote });
    /// Whether a frame is lost. The number is that of its PSN, from the first request on.
    type Lose = fn(&Sent, u32) -> bool;
    let cases: [(&str, SendOp, u32, Lose); 20] = [
        ("the last packet of a SEND", SEND, 1, |it, psn| it.from == A && it.again == 0 && psn == 4),
        ("the last packet of a WRITE", write, 1, |it, psn| it.from == A && it.again == 0 && psn == 4),
        ("the only packets of a WRITE", write, 1, |it, _| it.from == A && it.again == 0),
        ("its last packet and the probe", write, 1, |it, psn| it.from == A && it.again < 2 && psn == 4),
        ("three packets at the end", write, 1, |it, psn| it.from == A && it.again == 0 && psn >= 2),
        ("the acknowledge", write, 1, |it, _| it.is_ack() && it.again == 0),
        ("three acknowledges", write, 3, |it, _| it.is_ack() && it.again == 0),
        ("a packet and the NAK", write, 1, |it, psn| {
            it.again == 0 && (it.from == A && psn == 2 || it.is_nak())
        }),
        ("a packet and its retransmission", write, 3, |it, psn| it.from == A && it.again < 2 && psn == 2),
        ("the last response of a READ", read, 1, |it, psn| it.from == B && it.again == 0 && psn == 4),
        ("the end of the response of a READ", read, 1, |it, psn| it.from == B && it.again == 0 && psn > 1),
        ("the request of a READ", read, 1, |it, _| it.from == A && it.again == 0),
        ("the requests of four READs", read, 4, |it, _| it.from == A && it.again == 0),
        ("the responses of four READs", read, 4, |it, _| it.from == B && it.again == 0),
        ("the responses of four READs from the first on", read, 4, |it, psn| {
            it.from == B && it.again == 0 && psn >= 3
        }),
        ("the response of an atomic", atomic, 1, |it, _| it.from == B && it.again == 0),
        ("the responses of four atomics", atomic, 4, |it, _| it.from == B && it.again == 0),
        ("the response of an ATOMIC WRITE", atomic_write, 2, |it, _| it.from == B && it.again == 0),
        ("the request of a FLUSH", flush, 1, |it, _| it.from == A && it.again == 0),
        ("the response of a FLUSH", flush, 1, |it, _| it.from == B && it.again == 0),
    ];
    for (what, op, count, lose) in cases {
        let mut link = Link::warm();
        let (first, start) = (first_psn(&link), link.net.now);
        let mut lost = 0;
        post(&mut link, op, count);
        link.run(|sent| {
            let is_lost = lose(sent, sent.packet.bth.psn.number().wrapping_sub(first.number()) & 0xff_ffff);
            lost += u32::from(is_lost);
            is_lost
        });
        let took = Duration::from_nanos(link.net.now.0 - start.0);
        let done = link.net.hosts[A].statuses();
        assert_eq!(done, (0..count).map(|id| (id, Success)).collect::<Vec<_>>(), "{what}");
        check(&link, op, count);
        let counters = link.net.hosts[A].counters();
        println!("{what}: {lost} lost, {took:?}, {} packets", link.packets[A]);
        assert!(lost > 0 && counters.roce_adp_retrans > 0, "{what}");
        assert_eq!((counters.timeouts, counters.naks_in), (0, 0), "{what}");
        // The probe timeout is about 100 us here.
        assert!(took < Duration::from_micros(900), "{what}: {took:?}");
    }
}

#[test]
fn a_whole_window_that_is_lost_is_sent_again_at_once() {
    let mut link = Link::warm();
    let (b, start) = (link.net.hosts[B].end.clone(), link.net.now);
    let a = link.net.hosts[A].end.clone();
    a.memory.fill(0, &[5; 400_000]);
    link.net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 400_000)]));
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == A && lost < 128;
        lost += u32::from(is_lost);
        is_lost
    });
    assert_eq!(link.net.hosts[A].statuses(), [(1, Success)]);
    assert_eq!(b.memory.bytes(0, 400_000), [5; 400_000]);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.timeouts, counters.roce_adp_retrans, counters.retries), (0, 1, 4));
    assert!(link.net.now < start + Duration::from_millis(1));
    assert_eq!(link.packets[A], 391 + 128 + 3, "the lost ones, and what was lost and came alone");
}

#[test]
fn a_request_of_xrc_is_sent_again_with_the_queue_that_it_names() {
    let mut net = Net::new(QpType::Rc);
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let engine = &mut net.hosts[B].engine;
    let xrcd = engine.alloc_xrcd(b.device).unwrap();
    let cq = CqId(100);
    let queue = SrqInit { owner: OWNER, pd: b.pd, max_wr: 8, max_sge: 2, xrc: Some(XrcSrq { xrcd, cq }) };
    let srq = engine.create_srq(b.device, queue).unwrap();
    let init = qp_init(b.pd);
    let init = QpInit { qp_type: QpType::XrcRecv, pd: None, receives: Receives::Xrc(xrcd), ..init };
    net.hosts[B].end.qpn = engine.create_qp(b.device, init).unwrap();
    let init = QpInit { qp_type: QpType::XrcSend, ..qp_init(a.pd) };
    net.hosts[A].end.qpn = net.hosts[A].engine.create_qp(a.device, init).unwrap();
    let attrs = [A, B].map(|at| QpAttr { timeout: 14, ..net.attr(at) });
    net.connect(attrs[0], attrs[1]);
    let mut link = Link::new(net);
    let start = link.net.now;
    for id in 0..3 {
        let Net { hosts: [from, to], now } = &mut link.net;
        let request = RecvRequest { id, sges: &[b.sge(u64::from(id) * 8, 8)] };
        to.engine.post_srq_recv(b.device, OWNER, srq, request, &mut to.log).unwrap();
        let payload = Payload::Inline(b"message.");
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op: SEND, payload };
        let srqn = Srqn::new(srq.0).unwrap();
        let qpn = from.end.qpn;
        from.engine.post_xrc(*now, a.device, OWNER, qpn, &request, srqn, &mut from.log).unwrap();
    }
    let mut lost = 0;
    link.run(|sent| {
        let is_lost = sent.from == A && lost < 3;
        lost += u32::from(is_lost);
        is_lost
    });
    assert_eq!(link.net.hosts[A].statuses(), [0, 1, 2].map(|id| (id, Success)));
    assert_eq!(b.memory.bytes(0, 24), *b"message.message.message.");
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.timeouts, counters.roce_adp_retrans), (0, 1));
    // Nothing was known of the peer.
    assert!(link.net.now < start + Duration::from_millis(12));
}

#[test]
fn losses_at_an_unknown_peer_do_not_wait_for_the_timeout_one_by_one() {
    let set = |attr: &mut QpAttr| (attr.timeout, attr.retry_cnt) = (14, 7);
    for op in [SEND, SendOp::Read { remote: Remote { addr: 0, rkey: Rkey(0) } }] {
        let mut link = Link::new(Net::connected_with(set, set));
        let start = link.net.now;
        post(&mut link, op, 4);
        link.run(|sent| sent.from == A && sent.again == 0);
        assert_eq!(link.net.hosts[A].statuses(), [0, 1, 2, 3].map(|id| (id, Success)));
        check(&link, op, 4);
        let counters = link.net.hosts[A].counters();
        assert_eq!((counters.timeouts, counters.roce_adp_retrans, counters.retries), (0, 1, 1));
        assert!(link.net.now < start + Duration::from_millis(12));
    }
}

#[test]
fn new_connections_to_a_known_peer_know_its_time() {
    let mut link = Link::warm();
    link.net.second_pair();
    assert_eq!(srtt(&link.net.hosts[A]), None);
    let start = link.net.now;
    post(&mut link, SEND, 1);
    link.run(|sent| sent.from == A && sent.again == 0);
    assert_eq!(link.net.hosts[A].statuses(), [(0, Success)]);
    // The first time that A took was measured without any other.
    let known = srtt(&link.net.hosts[A]).unwrap();
    assert_eq!(known, 2 * DELAY);
    assert!(link.net.now < start + Duration::from_micros(900));
}

#[test]
fn switches_may_mark_probes_if_congestion_control_is_on() {
    let remote = Remote { addr: 0, rkey: Rkey(0) };
    for (is_on, expected) in [(true, 2), (false, 0)] {
        for op in [SEND, SendOp::Read { remote }] {
            let mut link = Link::warm();
            let parameters = is_on.then(Dcqcn::default);
            link.net.hosts[A].engine.set_congestion(parameters).unwrap();
            post(&mut link, op, 1);
            let mut probes = 0;
            link.run(|sent| {
                let is_of_a = sent.from == A;
                assert!(!is_of_a || sent.packet.path.traffic_class & 3 == expected, "{op:?}");
                probes += u32::from(is_of_a && sent.again == 1);
                is_of_a && sent.again == 0
            });
            assert!(probes > 0 && link.net.hosts[A].counters().roce_adp_retrans == 1);
        }
    }
}

#[test]
fn what_was_sent_after_a_probe_is_not_taken_for_lost() {
    let mut link = Link::warm();
    let b = link.net.hosts[B].end.clone();
    link.net.post(A, 1, write_to(b.remote(0)), Payload::Inline(b"x"));
    let mut is_probed = false;
    // The acknowledge is lost. The probe is on its way.
    while !is_probed {
        let next = link.net.now;
        link.run_until(next, |sent| {
            is_probed |= sent.from == A && sent.again > 0;
            sent.is_ack()
        });
        link.net.now = link.next().unwrap();
    }
    let a = link.net.hosts[A].end.clone();
    link.net.post(A, 2, write_to(b.remote(8)), Payload::Sges(&[a.sge(0, 5000)]));
    link.packets = [0; 2];
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
    assert_eq!(link.packets[A], 5, "the new message, once");
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.roce_adp_retrans, counters.retries), (1, 0));
}

#[test]
fn a_slow_peer_gets_a_few_probes_and_nothing_again() {
    let remote = Remote { addr: 0, rkey: Rkey(0) };
    for op in [SEND, write_to(remote), SendOp::Read { remote }, SendOp::AtomicWrite { remote }] {
        for rest in [1, 10, 60].map(Duration::from_millis) {
            let mut link = Link::warm();
            link.b_rests_until = link.net.now + rest;
            post(&mut link, op, 10);
            link.run(|_| false);
            assert_eq!(link.net.hosts[A].statuses().len(), 10);
            check(&link, op, 10);
            let counters = link.net.hosts[A].counters();
            let probes = counters.roce_adp_retrans;
            // Their interval doubles from 100 us on.
            let most = 1 + (rest.as_micros() / 100).ilog2();
            assert!((1..=u64::from(most)).contains(&probes), "{op:?}: {probes} in {rest:?}");
            assert_eq!((counters.retries, counters.timeouts), (0, 0), "{op:?}");
        }
    }
}

#[test]
fn a_peer_that_makes_pauses_within_a_response_is_not_sent_everything_again() {
    let mut link = Link::warm();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    b.memory.fill(0, &[4; 5000]);
    link.net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 5000)]));
    link.net.post(A, 2, write_to(b.remote(20_000)), Payload::Sges(&[a.sge(20_000, 5000)]));
    for more in [2, 1, 1] {
        link.net.hosts[B].cable.room = Some(more);
        let end = link.net.now + 30 * DELAY;
        link.run_until(end, |_| false);
    }
    assert_eq!(link.net.hosts[A].statuses(), []);
    link.net.hosts[B].cable.room = None;
    link.run(|_| false);
    assert_eq!(link.net.hosts[A].statuses(), [1, 2].map(|id| (id, Success)));
    assert_eq!(a.memory.bytes(0, 5000), [4; 5000]);
    let counters = link.net.hosts[A].counters();
    let probes = counters.roce_adp_retrans;
    assert!(probes >= 2, "{probes}");
    assert_eq!((counters.retries, link.packets[A]), (0, 6 + probes));
}

#[test]
fn who_acknowledges_many_packets_at_once_gets_no_probe() {
    let mut link = Link::warm();
    let (a, b) = (link.net.hosts[A].end.clone(), link.net.hosts[B].end.clone());
    // B does not come to send before 64 packets came.
    let mut asks = 0;
    for round in 0..20 {
        for id in 0..8 {
            let payload = [a.sge(0, 8192)];
            link.net.post(A, round * 8 + id, write_to(b.remote(0)), Payload::Sges(&payload));
        }
        link.net.work(A);
        let frames = std::mem::take(&mut link.net.hosts[A].cable.frames);
        assert_eq!(frames.len(), 64);
        asks += frames.iter().filter(|frame| parse(frame).bth.ack_req).count();
        link.net.now = link.net.now + DELAY;
        frames.iter().for_each(|frame| link.net.deliver(A, frame));
        link.run(|_| false);
    }
    assert_eq!(asks, 20 * 8, "one for each message");
    assert_eq!(link.net.hosts[A].statuses().len(), 160);
    let counters = link.net.hosts[A].counters();
    assert_eq!((counters.roce_adp_retrans, counters.retries), (0, 0));
}

#[test]
fn without_losses_nobody_wakes_for_a_probe() {
    let mut link = Link::warm();
    let b = link.net.hosts[B].end.clone();
    for id in 0..100 {
        link.net.post(A, id, write_to(b.remote(0)), Payload::Inline(b"x"));
        let mut wakes = 0;
        let (start, mut lose) = (link.net.now, |_: &Sent| false);
        loop {
            link.work(&mut lose);
            link.deliver(&mut lose);
            let Some(next) = link.next() else { break };
            wakes += 1;
            link.net.now = link.net.now.max(next);
        }
        // B hears the message, and A the acknowledge.
        assert_eq!((wakes, link.net.now), (2, start + 2 * DELAY));
        for host in &link.net.hosts {
            assert_eq!(host.engine.core.schedule.deadlines.len(), 0, "an idle deadline is dropped");
        }
    }
    assert_eq!(link.packets, [100, 100]);
}
