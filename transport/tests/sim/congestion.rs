//! Bulk senders to one receiver, with congestion control: the length of the switch's queue, and how
//! its port is shared.

use crate::connect::{TO_INIT, TO_RTR, TO_RTS};
use crate::link::Faults;
use crate::memory::Mem;
use crate::rng::Rng;
use crate::scenario::{self, Plan};
use crate::switch::{Millisecond, Queue};
use crate::world::{Guest, OWNER, World};
use std::collections::BTreeMap;
use vrdma_transport::*;
use vrdma_wire::num::{Lkey, Mtu, Qpn, Rkey};

/// Bytes of memory at each end.
const MEMORY: u32 = 1 << 20;
/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// What bulk senders do, on links of one rate to a switch.
#[derive(Clone)]
struct Bulk {
    /// When each sender begins and ends, in milliseconds.
    senders: Vec<(u64, u64)>,
    queue: Queue,
    /// Picoseconds that a byte takes on the link of a host to the switch.
    pace: u64,
    /// Nanoseconds that a frame takes from end to end of an empty network.
    delay: u64,
    /// Bytes of each request, and how many a sender has outstanding.
    requests: (u32, u32),
    /// The receiver READs from the senders. Otherwise they WRITE to it.
    reads: bool,
    congestion: Option<Dcqcn>,
    /// The seed by which engines are replaced by their copies, if they are.
    copies: Option<u64>,
}

/// A connection, with the QP that posts, its own key, and that of its peer.
struct Sender {
    /// The guest that sends the data.
    guest: usize,
    poster: usize,
    qpn: Qpn,
    keys: [u32; 2],
    outstanding: u32,
}

/// What came of it.
struct Seen {
    /// What the switch saw in each millisecond.
    switch: Vec<Millisecond>,
    /// The addresses of the senders.
    sources: Vec<[u8; 6]>,
    queue: Queue,
    notified: u64,
    retried: u64,
}

impl Seen {
    fn dropped(&self, of: std::ops::Range<usize>) -> u64 {
        self.switch[of].iter().map(|it| it.dropped).sum()
    }

    /// Returns the longest time that a frame waited, in microseconds.
    fn longest(&self, of: std::ops::Range<usize>) -> u64 {
        self.switch[of].iter().map(|it| it.longest_wait).max().unwrap_or(0) / 1000
    }

    /// Returns the bytes of each sender.
    fn bytes(&self, of: std::ops::Range<usize>) -> Vec<u64> {
        let mut sums: BTreeMap<_, u64> = self.sources.iter().map(|it| (*it, 0)).collect();
        for (source, bytes) in self.switch[of].iter().flat_map(|it| &it.bytes) {
            if let Some(sum) = sums.get_mut(source) {
                *sum += bytes;
            }
        }
        self.sources.iter().map(|source| sums[source]).collect()
    }

    /// Returns the part of the port's rate that was used.
    fn used(&self, of: std::ops::Range<usize>) -> f64 {
        let bytes: u64 = self.bytes(of.clone()).iter().sum();
        bytes as f64 * self.queue.pace as f64 / (of.len() as f64 * 1e9)
    }

    /// Returns Jain's index of fairness: 1 if all senders sent as much, and one divided by their
    /// number if one sent all.
    fn fairness(&self, of: std::ops::Range<usize>) -> f64 {
        let bytes = self.bytes(of);
        let sum: f64 = bytes.iter().map(|&it| it as f64).sum();
        let squares: f64 = bytes.iter().map(|&it| it as f64 * it as f64).sum();
        sum * sum / (squares * bytes.len() as f64)
    }
}

/// Connects the first QP of a guest to one of the first guest.
fn connect(world: &mut World, guest: usize, bulk: &Bulk) -> Sender {
    let ends = [guest, 0].map(|at| {
        let Guest { device, pd, .. } = world.guests[at];
        let key = world.register(at, Access::ALL, 0x10000, Mem::new(vec![7; MEMORY as usize]));
        let init = QpInit {
            owner: OWNER,
            pd: Some(pd),
            qp_type: QpType::Rc,
            send_cq: CqId(2 * guest as u32),
            recv_cq: CqId(2 * guest as u32 + 1),
            receives: None.into(),
            max_send_wr: bulk.requests.1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        (at, world.engine(at).0.create_qp(device, init).unwrap(), key)
    });
    for (own, peer) in [(0, 1), (1, 0)] {
        let (_, dgid, dmac) = world.place(ends[peer].0);
        let attr = QpAttr {
            access: Access::ALL,
            port: 1,
            path_mtu: Mtu::M4096,
            dest_qpn: ends[peer].1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            dgid,
            dmac,
            hop_limit: 64,
            ..QpAttr::default()
        };
        let (now, device) = (world.now, world.guests[ends[own].0].device);
        let (engine, log) = world.engine(ends[own].0);
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            engine.modify_qp(now, device, ends[own].1, mask, &QpAttr { state, ..attr }, log).unwrap();
        }
    }
    let [own, peer] = if bulk.reads { [1, 0] } else { [0, 1] };
    let (poster, qpn, key) = ends[own];
    Sender { guest, poster, qpn, keys: [key, ends[peer].2], outstanding: 0 }
}

impl Sender {
    fn post(&mut self, world: &mut World, bulk: &Bulk) {
        let sge = [Sge { addr: 0x10000, length: bulk.requests.0, lkey: Lkey(self.keys[0]) }];
        let remote = Remote { addr: 0x10000, rkey: Rkey(self.keys[1]) };
        let request = SendRequest {
            id: 0,
            signaled: true,
            solicited: false,
            fence: false,
            op: if bulk.reads { SendOp::Read { remote } } else { SendOp::Write { remote, imm: None } },
            payload: Payload::Sges(&sge),
        };
        world.post_send(self.poster, self.qpn, None, &request).unwrap();
        self.outstanding += 1;
    }
}

/// Lets senders send.
fn run(bulk: &Bulk) -> Seen {
    let count = bulk.senders.len();
    let faults = Faults { delay: bulk.delay, pace: bulk.pace, ..Faults::default() };
    let mut world = World::new(7, &vec![1; count + 1], true, faults, false);
    world.replace = bulk.copies.map(Rng::new);
    world.set_congestion(bulk.congestion);
    world.add_switch(7, bulk.queue);
    let mut senders: Vec<Sender> = (1..=count).map(|guest| connect(&mut world, guest, bulk)).collect();
    let start = world.now;
    let end = bulk.senders.iter().map(|(_, end)| *end).max().unwrap();
    let time = |ms: u64| Instant(start.0 + ms * MS);
    while world.now < time(end) {
        for (sender, &(begin, end)) in senders.iter_mut().zip(&bulk.senders) {
            while sender.outstanding < bulk.requests.1 && (time(begin)..time(end)).contains(&world.now) {
                sender.post(&mut world, bulk);
            }
        }
        world.settle();
        for host in &mut world.hosts {
            for (_, cq, completion) in host.log.completions.drain(..) {
                assert_eq!(completion.status, WcStatus::Success);
                senders[cq.0 as usize / 2 - 1].outstanding -= 1;
            }
        }
        let begins = bulk.senders.iter().map(|(begin, _)| time(*begin)).filter(|at| *at > world.now);
        let is_ready = |(sender, &(begin, end)): (&Sender, &(u64, u64))| {
            sender.outstanding < bulk.requests.1 && (time(begin)..time(end)).contains(&world.now)
        };
        if !senders.iter().zip(&bulk.senders).any(is_ready) {
            let next = world.next().into_iter().chain(begins).min();
            world.now = next.expect("somebody sends").max(world.now);
        }
    }
    let (mut notified, mut retried) = (0, 0);
    for sender in &senders {
        notified += world.counters(sender.guest).rp_cnp_handled;
        retried += world.counters(sender.poster).retries;
    }
    let switch = world.link.switch.as_ref().unwrap();
    let since = start.0 / MS;
    let switch = (since..since + end).map(|at| switch.seen.get(&at).cloned().unwrap_or_default()).collect();
    let sources = senders.iter().map(|sender| world.guests[sender.guest].mac.0).collect();
    Seen { switch, sources, queue: bulk.queue, notified, retried }
}

/// A switch of 100 Gb/s, with room for 16 MB.
const SWITCH: Queue = Queue { pace: 80, room: 16 << 20, ecn_min: 100_000, ecn_max: 400_000 };

fn print(name: &str, seen: &Seen, bins: usize) {
    let dropped = seen.dropped(0..seen.switch.len());
    println!("{name}: {} notifications, {dropped} dropped, {} retries", seen.notified, seen.retried);
    for at in (0..seen.switch.len()).step_by(bins) {
        let of = at..(at + bins).min(seen.switch.len());
        let megabytes: Vec<_> = seen.bytes(of.clone()).iter().map(|it| it / 10_000).collect();
        println!(
            "{at:>4} ms: waits {:>5} us, used {:.3}, fairness {:.3}, {:?}",
            seen.longest(of.clone()),
            seen.used(of.clone()),
            seen.fairness(of),
            &megabytes[..megabytes.len().min(8)]
        );
    }
}

/// Returns bulk senders over a switch of 100 Gb/s, with a round trip of 100 us.
fn bulk(senders: Vec<(u64, u64)>, copies: Option<u64>) -> Bulk {
    Bulk {
        senders,
        queue: SWITCH,
        pace: SWITCH.pace,
        delay: 50_000,
        requests: (1 << 20, 4),
        reads: false,
        congestion: Some(Dcqcn::default()),
        copies,
    }
}

#[test]
fn many_senders_that_begin_together_share_a_port_and_keep_its_queue_short() {
    for (count, copies) in [(2, None), (8, None), (32, None)] {
        let seen = run(&bulk(vec![(0, 20); count], copies));
        print(&format!("{count} senders"), &seen, 1);
        assert_eq!((seen.dropped(0..20), seen.retried), (0, 0));
        assert!(seen.used(0..20) > 0.75, "{}", seen.used(0..20));
        assert!(seen.used(10..20) > 0.85 && seen.fairness(10..20) > 0.9);
        // The most that is marked for certain, and what comes in a round trip.
        let most = (SWITCH.ecn_max * SWITCH.pace) / 1_000_000 + 100;
        assert!(seen.longest(6..20) <= most, "{} us", seen.longest(6..20));
    }
}

#[test]
fn short_messages_share_a_port_too() {
    let mut bulk = bulk(vec![(0, 8); 8], None);
    bulk.requests = (1000, 256);
    let seen = run(&bulk);
    print("8 senders of short messages", &seen, 1);
    assert_eq!((seen.dropped(0..8), seen.retried), (0, 0));
    assert!(seen.longest(3..8) <= 132, "{} us", seen.longest(3..8));
    assert!(seen.fairness(4..8) > 0.9 && seen.used(4..8) > 0.6);
}

#[test]
fn a_reader_of_many_keeps_the_queue_short_too() {
    let mut bulk = bulk(vec![(0, 20); 8], None);
    bulk.reads = true;
    let seen = run(&bulk);
    print("a reader of 8", &seen, 1);
    assert_eq!((seen.dropped(0..20), seen.retried), (0, 0));
    assert!(seen.notified > 0);
    assert!(seen.longest(10..20) <= 132, "{} us", seen.longest(10..20));
    assert!(seen.fairness(10..20) > 0.8 && seen.used(10..20) > 0.5);
}

#[test]
fn a_sender_that_joins_late_gets_its_share() {
    let mut senders = vec![(0, 30); 4];
    senders.push((10, 30));
    let seen = run(&bulk(senders, None));
    print("one joins after 10 ms", &seen, 1);
    assert_eq!((seen.dropped(0..30), seen.retried), (0, 0));
    assert!(seen.fairness(20..30) > 0.9 && seen.used(20..30) > 0.85);
}

/// Returns bulk senders with links of 10 Gb/s to a port of 1 Gb/s, with a round trip of 50 us.
fn slow_port(count: usize, ms: u64) -> Bulk {
    Bulk {
        queue: Queue { pace: 8000, room: 262_144, ecn_min: 30_000, ecn_max: 120_000 },
        pace: 800,
        delay: 25_000,
        requests: (65_536, 4),
        congestion: Some(Dcqcn { rp_max_rate: 1_250_000_000, ..Dcqcn::default() }),
        ..bulk(vec![(0, ms); count], None)
    }
}

#[test]
fn many_senders_share_a_slow_port() {
    for count in [1, 2, 4, 8, 16, 32, 64] {
        let seen = run(&slow_port(count, 500));
        let (later, of) = (100..500, seen.switch.len());
        println!(
            "{count} senders: used {:.3}, fairness {:.3}, longest wait {} us, {} dropped later, {} first, {} notifications, {} retries",
            seen.used(later.clone()), seen.fairness(later.clone()), seen.longest(later.clone()), seen.dropped(later.clone()),
            seen.dropped(0..of) - seen.dropped(later.clone()), seen.notified, seen.retried
        );
    }
}

#[test]
fn without_control_the_queue_is_as_long_as_all_windows() {
    let seen = run(&Bulk { congestion: None, ..bulk(vec![(0, 10); 8], None) });
    print("8 senders without control", &seen, 1);
    assert!(seen.longest(5..10) > 200, "{} us", seen.longest(5..10));
    assert_eq!(seen.notified, 0);
}

/// Runs the random plans of seeds on a switch that loses nothing, with congestion control. The
/// switch marks much, or long round-trip times count.
fn seeds(range: std::ops::Range<u64>, is_marking: bool) {
    let (mut streams, mut failures, mut notified, mut replaced) = (0, 0, 0, 0);
    for seed in range {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::random(&mut rng);
        let pace = rng.pick(&[80, 800, 8000]);
        let ecn_min = if is_marking { 0 } else { u64::MAX };
        let queue = Queue { pace, room: 1 << 40, ecn_min, ecn_max: ecn_min.saturating_add(20_000) };
        plan.extras.switch = Some(queue);
        let target = (!is_marking).then(|| core::time::Duration::from_micros(rng.pick(&[1, 10, 100])));
        plan.extras.congestion = Some(Dcqcn { rp_delay_target: target, ..Dcqcn::default() });
        let copies = seed.is_multiple_of(2).then(|| Rng::new(!seed));
        let outcome = scenario::run(seed, rng, &plan, copies, false);
        streams += outcome.streams;
        failures += outcome.failures;
        notified += outcome.notified;
        replaced += outcome.replaced;
    }
    println!(
        "{streams} streams, of which {failures} failed as they may; {notified} signs of congestion; {replaced} copies"
    );
    assert!(notified > streams as u64 / 4 && replaced > streams as u64 / 2);
    assert!(failures < streams / 2);
}

#[test]
fn seeds_0_to_499_on_a_switch_that_marks() {
    seeds(0..500, true);
}

#[test]
fn seeds_500_to_999_on_a_switch_that_marks() {
    seeds(500..1000, true);
}

#[test]
fn seeds_0_to_499_on_a_switch_that_delays() {
    seeds(0..500, false);
}

#[test]
fn seeds_500_to_999_on_a_switch_that_delays() {
    seeds(500..1000, false);
}

/// A switch that does not mark, with a port of this pace in picoseconds a byte.
fn unmarked(pace: u64) -> Queue {
    Queue { pace, room: 16 << 20, ecn_min: u64::MAX, ecn_max: u64::MAX }
}

/// Parameters of senders that watch their round-trip times, on links of a switch's rate.
fn by_delay(queue: Queue) -> Dcqcn {
    let target = Some(core::time::Duration::from_micros(500));
    Dcqcn { rp_delay_target: target, rp_max_rate: 1_000_000_000_000 / queue.pace, ..Dcqcn::default() }
}

#[test]
fn senders_that_watch_delays_keep_the_queue_short_of_a_switch_that_does_not_mark() {
    // The last plan lasts long enough to show a queue that grows slowly.
    for (count, pace, ms) in [(2, 80, 40), (8, 80, 40), (32, 80, 40), (8, 800, 100), (32, 8000, 2000)] {
        let queue = unmarked(pace);
        let (senders, congestion) = (vec![(0, ms); count], Some(by_delay(queue)));
        let seen = run(&Bulk { queue, pace, congestion, ..bulk(senders, None) });
        let ms = ms as usize;
        print(&format!("{count} senders, delays, {} Mb/s", 8_000_000 / pace), &seen, ms / 10);
        assert_eq!((seen.dropped(0..ms), seen.notified), (0, 0));
        let later = ms / 2..ms;
        assert!(seen.used(later.clone()) > 0.85 && seen.fairness(later.clone()) > 0.95);
        // Without control, all windows are 134 ms of the slowest port.
        assert!(seen.longest(later) <= 4000);
    }
}

#[test]
fn a_sender_that_joins_those_that_watch_delays_gets_its_share() {
    let mut senders = vec![(0, 150); 4];
    senders.push((50, 150));
    let queue = unmarked(800);
    let seen = run(&Bulk { queue, pace: queue.pace, congestion: Some(by_delay(queue)), ..bulk(senders, Some(3)) });
    print("one joins after 50 ms, delays", &seen, 10);
    assert_eq!((seen.dropped(0..150), seen.retried), (0, 0));
    assert!(seen.fairness(100..150) > 0.9 && seen.used(100..150) > 0.85);
}

#[test]
fn senders_that_begin_together_fill_no_queue_in_their_first_round_trip() {
    let longest = |congestion| {
        let queue = Queue { room: 1 << 30, ..SWITCH };
        let seen = run(&Bulk { queue, congestion, ..bulk(vec![(0, 3); 32], None) });
        seen.longest(0..3)
    };
    let (free, controlled) = (longest(None), longest(Some(Dcqcn::default())));
    println!("the longest wait: {free} us without control, {controlled} us with it");
    // 256 KiB of each of 32 senders are 671 us of the port, and headers come on top.
    assert!(free > 1200 && controlled <= 700, "{free} us, {controlled} us");
}
