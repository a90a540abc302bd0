//! A guest whose stores show later than its next loads, because its barriers are none: it publishes, sees that nobody asks to be told, and only then
//! does what it published show. The device finds it all the same.
//!
//! The store has to show before the device's second look, a millisecond after its first. A test's thread may be kept from that, so each
//! tries some rounds; without a second look not one of them succeeds.

use std::sync::atomic::Ordering;
use std::time::Duration;
use vrdma_tests::abi::control::QpType;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request, Unit};
use vrdma_tests::{Lab, LabOptions, QpOptions, wait};

const ROUNDS: u32 = 30;
const SHORT: Duration = Duration::from_millis(50);

/// A channel, store by store.
struct Slow<'a> {
    side: &'a mut Side,
    next: u16,
}

impl Slow<'_> {
    /// Everything but the index.
    fn prepare(&mut self, request: &Request<'_>) {
        let channel = &self.side.process.channel;
        let mut unit = [Unit::default()];
        assert_eq!(request.encode(&mut unit).unwrap(), 1);
        let slot = self.next & (channel.ring.size - 1);
        let bytes = unit[0].0.map(u64::to_ne_bytes);
        channel.ring.memory.write(channel.slots + 64 * u64::from(slot), bytes.as_flattened());
        channel.ring.set_avail_entry(self.next, slot);
        self.next = self.next.wrapping_add(1);
    }

    fn publish(&self) {
        self.side.process.channel.ring.set_avail_idx(self.next);
    }

    fn kick(&self) {
        let queue = self.side.process.channel.queue;
        self.side.guest().queues[usize::from(queue)].kick.write(1).unwrap();
    }

    /// Waits until the worker has asked for a kick, and sleeps: for a while.
    fn wait_until_armed(&self) {
        let ring = &self.side.process.channel.ring;
        wait::until("the worker to sleep", || (ring.avail_event() == self.next).then_some(()));
        // It looks at the rings before it sleeps, which nothing shows.
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn a_request_is_seen_that_was_published_without_a_kick_as_the_worker_fell_asleep() {
    let lab = Lab::with(2, LabOptions { poll_us: 0, ..LabOptions::default() });
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    let (tag, remote) = (a.qp.tag(1), b.mr.remote(0));
    let request = Request::write(tag, remote, Data::Inline(b"x")).signaled(true);
    let mut slow = Slow { side: &mut a, next: 0 };
    let mut seen = 0;
    for _ in 0..ROUNDS {
        slow.prepare(&request);
        slow.publish();
        slow.kick();
        slow.side.cq.expect_success();
        slow.wait_until_armed();
        slow.prepare(&request);
        slow.publish();
        if slow.side.cq.wait_within(SHORT).is_some() {
            seen += 1;
            continue;
        }
        slow.kick();
        slow.side.cq.expect_success();
    }
    assert!(seen > 0);
}

/// Arms the CQ of the receiver after the device has looked at its arm words, though the driver had seen no CQE; how often an event came.
fn late_arms(options: LabOptions) -> u32 {
    let lab = Lab::with(2, options);
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::of(QpType::UC));
    let guest = b.guest().clone();
    let mut message = |b: &mut Side, id| {
        b.recv_any(id);
        a.post(&Request::send(a.qp.tag(id), Data::EMPTY));
        wait::until("a CQE", || b.cq.driver.is_ready().then_some(()));
        // This one is carried out in a later turn: the arm words have been looked at.
        a.post(&Request::send(a.qp.tag(id), Data::EMPTY).signaled(true));
        a.cq.expect_success();
    };
    let mut told = 0;
    for round in 0..ROUNDS {
        message(&mut b, round);
        guest.memory.word32(b.cq.record()).fetch_add(1, Ordering::SeqCst);
        let in_time = guest.comp_events(0).recv_within(SHORT).is_some();
        b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
        told += u32::from(in_time);
        if !in_time {
            // It has missed that one.
            message(&mut b, round);
            guest.comp_events(0).recv();
            b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
        }
    }
    told
}

#[test]
fn an_event_comes_though_the_cq_was_armed_a_little_late() {
    assert_ne!(late_arms(LabOptions { poll_us: 0, ..LabOptions::default() }), 0);
}

#[test]
fn a_worker_that_never_sleeps_looks_for_late_arms_too() {
    assert_ne!(late_arms(LabOptions { busy_poll: true, ..LabOptions::default() }), 0);
}
