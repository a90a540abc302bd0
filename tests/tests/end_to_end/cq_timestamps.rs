//! CQEs with timestamps: the time of a completion by the device's clock.

use vrdma_tests::abi::control::{QpState, QpType, Status, cq_flags};
use vrdma_tests::abi::cqe::{TimedCqe, WcStatus};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::control::run;
use vrdma_tests::events::Told;
use vrdma_tests::verbs::{Arm, CqLayout, Data, Request};
use vrdma_tests::{Context, Cq, Guest, Lab, LabOptions, Mr, Qp, QpOptions, connect, wait};

use std::sync::Arc;

/// A process with a CQ that has timestamps.
struct Process {
    context: Context,
    cq: Cq,
    mr: Mr,
    qp: Qp,
}

impl Process {
    fn new(guest: &Arc<Guest>, entries: u32, options: &QpOptions) -> Process {
        let context = Context::open(guest).unwrap();
        let cq = Cq::create_with(guest, context.number, entries, 0, cq_flags::TIMESTAMP).unwrap();
        let (mr, qp) = (context.mr(4096), context.qp(&cq, &cq, options));
        Process { context, cq, mr, qp }
    }

    /// Creates a process whose requests complete as soon as they are posted, because its QP is in
    /// ERR.
    fn failing(guest: &Arc<Guest>, entries: u32) -> Process {
        let process = Process::new(guest, entries, &QpOptions { recv_wr: 512, ..QpOptions::default() });
        process.qp.to_init().unwrap();
        process.qp.to_state(QpState::ERR).unwrap();
        process
    }

    fn guest(&self) -> &Guest {
        &self.context.guest
    }

    /// Produces completions with these ids. All are in the CQ when this returns.
    fn complete(&mut self, lab: &Lab, ids: std::ops::Range<u32>) {
        let wanted = lab.stats().device(0, "completions") + u64::from(ids.end - ids.start);
        ids.for_each(|id| self.context.post(&Request::recv(self.qp.tag(id), &[])));
        wait::until("all completions", || (lab.stats().device(0, "completions") == wanted).then_some(()));
    }

    /// Takes completions with these ids and returns their timestamps. Asserts that the CQ is empty
    /// then.
    fn take(&mut self, ids: std::ops::Range<u32>) -> Vec<u64> {
        let stamps = ids.map(|id| {
            let (wc, timestamp) = wait::until("a completion", || self.cq.poll_timed());
            assert_eq!((wc.id(), wc.status()), (id, WcStatus::WR_FLUSH_ERR));
            timestamp
        });
        let stamps = stamps.collect();
        assert_eq!(self.cq.poll(), None);
        stamps
    }

    fn close(self) {
        self.qp.destroy().unwrap();
        self.mr.deregister().unwrap();
        self.cq.destroy().unwrap();
        self.context.close().unwrap();
    }
}

/// Asserts that times are in ascending order.
#[track_caller]
fn assert_ordered(times: &[u64]) {
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_completion_came_after_its_post_and_before_it_was_found() {
    for busy_poll in [false, true] {
        let lab = Lab::with(1, LabOptions { busy_poll, ..LabOptions::default() });
        let before = lab.stats().all_objects(0);
        let mut process = Process::failing(&lab.guests[0], 8);
        let mut times = Vec::new();
        // Laps of the ring, with one or several completions at once.
        for round in 0..60 {
            times.push(process.guest().query_clock().unwrap());
            let ids = round * 5..round * 5 + 1 + round % 5;
            process.complete(&lab, ids.clone());
            times.extend(process.take(ids));
            times.push(process.guest().query_clock().unwrap());
        }
        assert_ordered(&times);
        assert!(times.first() < times.last(), "the clock stands");
        process.close();
        assert_eq!(lab.stats().all_objects(0), before);
    }
}

/// Timestamps advance from completion to completion, although nothing queries the clock meanwhile.
#[test]
fn time_goes_on_from_completion_to_completion() {
    let lab = Lab::new(1);
    let mut process = Process::failing(&lab.guests[0], 8);
    let mut times = Vec::new();
    for id in 0..50 {
        process.complete(&lab, id..id + 1);
        times.extend(process.take(id..id + 1));
    }
    assert_ordered(&times);
    times.dedup();
    assert!(times.len() > 25, "one time for many turns: {times:?}");
    process.close();
}

#[test]
fn what_a_peer_does_has_a_time_on_both_sides() {
    let lab = Lab::new(2);
    let options = QpOptions::of(QpType::RC);
    let [mut a, mut b] = [0, 1].map(|i| Process::new(&lab.guests[i], 64, &options));
    connect(&a.qp, &b.qp);
    let mut times = Vec::new();
    for id in 0..100 {
        b.context.post(&Request::recv(b.qp.tag(id), &[b.mr.sge(0, 64)]));
        // Both guests are on one host, with one clock.
        times.push(a.guest().query_clock().unwrap());
        let element = [a.mr.sge(0, 64)];
        a.context.post(&Request::send(a.qp.tag(id), Data::Sges(&element)).signaled(true));
        let both = [&mut b, &mut a].map(|side| {
            let (wc, timestamp) = wait::until("a completion", || side.cq.poll_timed());
            assert_eq!((wc.id(), wc.status()), (id, WcStatus::SUCCESS));
            timestamp
        });
        times.extend(both);
        times.push(b.guest().query_clock().unwrap());
    }
    assert_ordered(&times);
    a.close();
    b.close();
}

#[test]
fn a_resize_takes_time_stamps_along() {
    let lab = Lab::new(1);
    let mut process = Process::failing(&lab.guests[0], 8);
    let (mut times, mut next) = (vec![process.guest().query_clock().unwrap()], 0);
    for entries in [16, 8, 64, 4, 2, 4] {
        // Half of the completions are still in the former ring.
        let left = process.cq.entries().min(entries) / 2;
        process.complete(&lab, next..next + left);
        process.cq.resize(entries).unwrap();
        process.complete(&lab, next + left..next + entries);
        times.extend(process.take(next..next + entries));
        times.push(process.guest().query_clock().unwrap());
        next += entries;
    }
    assert_ordered(&times);
    assert_eq!(lab.stats().device(0, "cq_overruns"), 0);
    process.close();
}

#[test]
fn events_and_moderation_are_as_without() {
    let lab = Lab::new(1);
    let mut process = Process::failing(&lab.guests[0], 8);
    let guest = lab.guests[0].clone();
    let told = Told { kind: EventKind::COMPLETION, object: process.cq.number };
    for round in 0..3 {
        assert_eq!(process.cq.arm(Arm::Next), None);
        process.complete(&lab, 2 * round..2 * round + 2);
        assert_eq!(guest.comp_events(0).recv(), told);
        process.take(2 * round..2 * round + 2);
    }
    // A failed completion is not delayed, so a moderated CQ reports it at once.
    guest.modify_cq(process.cq.number, 16, u16::MAX).unwrap();
    assert_eq!(process.cq.arm(Arm::Next), None);
    process.complete(&lab, 6..7);
    assert_eq!(guest.comp_events(0).recv(), told);
    process.take(6..7);
    // More completions than the ring holds.
    process.complete(&lab, 7..16);
    let told = guest.async_events().recv();
    assert_eq!(told, Told { kind: EventKind::CQ_ERR, object: process.cq.number });
    process.close();
}

#[test]
fn the_ring_is_as_long_as_its_cqes_say() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let page = guest.memory.alloc(1 << 14);
    guest.memory.fill(page, 1 << 14, 0);
    let create = |flags, runs: &[_]| guest.create_cq_with(0, 4, 0, flags, runs);
    let (short, long) = (4 * 32 + 128, 4 * TimedCqe::SIZE as u64 + 128);
    assert_eq!(long, CqLayout::for_entries(4).unwrap().with_timestamps(true).size() as u64);
    assert_eq!(create(cq_flags::TIMESTAMP, &[run(page, short)]), Err(Status::INVALID));
    assert_eq!(create(0, &[run(page, long)]), Err(Status::INVALID));
    let cut = [run(page, 32), run(page + 4096, long - 32)];
    assert_eq!(create(cq_flags::TIMESTAMP, &cut), Err(Status::FAULT), "a CQE lies in two runs");
    assert_eq!(create(cq_flags::TIMESTAMP, &[run(page + 4, long)]), Err(Status::FAULT));
    assert_eq!(create(cq_flags::TIMESTAMP | 4, &[run(page, long)]), Err(Status::INVALID));
    assert_eq!(lab.stats().objects(0, "cqs"), 0);
    for flags in [cq_flags::TIMESTAMP, cq_flags::TIMESTAMP | cq_flags::IGNORE_OVERRUN] {
        let runs = [run(page, 64), run(page + 4096, long - 64)];
        let cqn = create(flags, &runs).unwrap();
        guest.destroy_cq(cqn).unwrap();
    }
}

#[test]
fn a_cq_of_time_stamps_that_ignores_an_overrun_goes_on() {
    let lab = Lab::new(1);
    let mut process = Process::failing(&lab.guests[0], 4);
    let flags = cq_flags::TIMESTAMP | cq_flags::IGNORE_OVERRUN;
    let mut cq = Cq::create_with(&lab.guests[0], process.context.number, 4, 0, flags).unwrap();
    let qp = process.context.qp(&cq, &cq, &QpOptions::default());
    qp.to_init().unwrap();
    qp.to_state(QpState::ERR).unwrap();
    let wanted = lab.stats().device(0, "completions") + 12;
    (0..8).for_each(|id| process.context.post(&Request::recv(qp.tag(id), &[])));
    wait::until("eight", || (lab.stats().device(0, "completions") == wanted - 4).then_some(()));
    let clock = process.guest().query_clock().unwrap();
    (8..12).for_each(|id| process.context.post(&Request::recv(qp.tag(id), &[])));
    wait::until("all", || (lab.stats().device(0, "completions") == wanted).then_some(()));
    // Two laps later the phase bits look new again, with the times of the third lap.
    let found: Vec<_> = std::iter::from_fn(|| cq.poll_timed()).collect();
    assert_eq!(found.iter().map(|(wc, _)| wc.id()).collect::<Vec<_>>(), [8, 9, 10, 11]);
    assert!(found.iter().all(|(_, timestamp)| *timestamp >= clock));
    assert_eq!(lab.stats().device(0, "cq_overruns"), 0);
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    process.close();
}
