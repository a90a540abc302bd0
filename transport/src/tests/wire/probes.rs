//! Silent peers, and what is sent to them before the local ACK timeout.

use super::*;
use crate::base::qp_ref::QpRef;
use WcStatus::{RetryExc, Success};
use std::collections::BTreeMap;
use vrdma_wire::num::Srqn;
use vrdma_wire::roce::{Aeth, NakCode, Syndrome};

/// The time that each frame takes.
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
    /// Frames under way: when they arrive, and from which host they are.
    flying: VecDeque<(Instant, usize, Frame)>,
    counts: BTreeMap<(usize, u32, u8), u32>,
    /// Packets from each host.
    packets: [u64; 2],
    /// Frames to B wait until this time.
    b_rests_until: Instant,
}

impl Link {
    fn new(net: Net) -> Link {
        let (flying, counts, b_rests_until) = Default::default();
        Link { net, flying, counts, packets: [0; 2], b_rests_until }
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
                    self.flying.push_back((self.net.now + DELAY, from, frame));
                }
            }
        }
    }

    /// Delivers what has arrived. B handles frames one by one, and answers each.
    fn deliver(&mut self, lose: &mut impl FnMut(&Sent) -> bool) {
        while let Some(&(at, from, _)) = self.flying.front()
            && at <= self.net.now
            && (from == B || self.b_rests_until <= self.net.now)
        {
            let (_, from, frame) = self.flying.pop_front().unwrap();
            self.net.deliver(from, &frame);
            self.work(lose);
        }
    }

    /// Returns when something happens next.
    fn next(&mut self) -> Option<Instant> {
        let resting = |at: Instant, from| if from == A { at.max(self.b_rests_until) } else { at };
        let flying = self.flying.front().map(|&(at, from, _)| resting(at, from));
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
    assert_eq!((counters.timeouts, counters.roce_adp_retrans, counters.retries), (0, 1, 1));
    assert!(link.net.now < start + Duration::from_millis(1));
    assert_eq!(link.packets[A], 391 + 128 + 1, "the lost ones, and one for which B sent a NAK");
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
    assert!(link.net.now < start + Duration::from_millis(10));
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
        assert!(link.net.now < start + Duration::from_millis(10));
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
        let end = link.net.now + 8 * DELAY;
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
    let mut again = Vec::new();
    for _ in 0..90 {
        link.net.now = link.net.now + Duration::from_micros(1);
        let nak = nak(&link.net, first);
        link.net.inject(B, &nak, &[]);
        let before = link.packets[A];
        link.work(&mut |_| true);
        if link.packets[A] > before {
            again.push(link.net.now);
        }
    }
    assert!(link.packets[A] <= 4 * 5, "{} packets", link.packets[A]);
    assert!(again.len() >= 2, "{again:?}");
    assert!(again.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 2 * DELAY.as_nanos() as u64));
}

/// Sends a request that is never executed, and NAKs for it all the time. Returns how long it takes
/// to fail. `answers` tells when B acknowledges one more packet.
fn time_to_fail(retry_cnt: u8, answers: &[Duration]) -> Duration {
    let mut net = Net::connected_with(|attr| attr.retry_cnt = retry_cnt, |_| {});
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    let first = net.expected(B);
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100_000)]));
    let start = net.now;
    let mut answered = 0;
    for step in 0..100_000 {
        net.now = start + step * TIMEOUT / 50;
        net.work(A);
        net.hosts[A].cable.frames.clear();
        let done = net.hosts[A].statuses();
        if let Some(done) = done.first() {
            assert_eq!(*done, (1, RetryExc));
            return Duration::from_nanos(net.now.0 - start.0);
        }
        answered += u32::from(answers.get(answered as usize).is_some_and(|at| start + *at <= net.now));
        let nak = nak(&net, first.add(answered));
        net.inject(B, &nak, &[]);
    }
    panic!("it never fails");
}

#[test]
fn a_request_fails_when_nothing_was_answered_for_so_long_and_not_before() {
    for retry_cnt in [0, 1, 2, 7] {
        let promised = TIMEOUT * (u32::from(retry_cnt) + 1);
        let took = time_to_fail(retry_cnt, &[]);
        assert!(took >= promised && took <= promised + promised / 10, "{retry_cnt}: {took:?}");
        // Each answer begins the time anew.
        let answers: Vec<Duration> = (1..=5).map(|n| promised * 9 / 10 * n).collect();
        let took = time_to_fail(retry_cnt, &answers);
        let promised = answers[4] + promised;
        assert!(took >= promised && took <= promised + promised / 10, "{retry_cnt}: {took:?}");
    }
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
