//! The worker sleeps when it has no work, and a kick wakes it.
//!
//! It asks for no kicks while it is awake.
//!
//! Shows: no-system-calls, sleep.

use std::path::PathBuf;
use std::time::Duration;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::wait::Spell;
use vrdma_tests::{Lab, LabOptions, QpOptions, Rng, connect, proc, wait};

fn lab(poll_us: u64, event_idx: bool) -> Lab {
    let mut options = LabOptions { poll_us, ..LabOptions::default() };
    options.guest.event_idx = event_idx;
    Lab::with(2, options)
}

/// Pauses for a random time around the worker's polling time. Half of the pauses free the
/// processor.
fn pause(rng: &mut Rng) {
    let time = Duration::from_nanos(rng.below(150_000));
    if rng.one_in(2) {
        return wait::pause(time, "what is tried is any time between two requests");
    }
    let spell = Spell::of(time);
    while spell.lasts() {
        std::hint::spin_loop();
    }
}

/// Continues until 1,000 operations had to wake the worker. Others found it awake.
fn no_wake_up_is_lost(event_idx: bool) {
    let lab = lab(10, event_idx);
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    let mut rng = Rng::from_env("no_wake_up_is_lost");
    let mut id = 0;
    while a.process.channel.driver.doorbell().count() < 1000 {
        pause(&mut rng);
        a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Inline(b"x")).signaled(true));
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        id += 1;
        assert!(id < 200_000, "the worker hardly ever sleeps");
    }
}

#[test]
fn a_first_operation_wakes_the_worker_1000_times_with_event_idx() {
    no_wake_up_is_lost(true);
}

#[test]
fn a_first_operation_wakes_the_worker_1000_times_with_flags() {
    no_wake_up_is_lost(false);
}

/// Both the worker and the guest sleep between two messages.
///
/// A kick wakes the worker, and an interrupt wakes the guest.
#[test]
fn no_event_is_lost_when_both_ends_sleep() {
    for event_idx in [true, false] {
        let lab = lab(0, event_idx);
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
        let guest = b.guest().clone();
        let mut rng = Rng::from_env("no_event_is_lost_when_both_ends_sleep");
        for round in 0..500u32 {
            b.recv_any(round);
            if round % 2 == 0 {
                pause(&mut rng);
            }
            assert_eq!(b.cq.arm(Arm::Next), None);
            a.post(&Request::send(a.qp.tag(round), Data::EMPTY).signaled(true));
            let told = guest.comp_events(0).recv();
            assert_eq!((told.kind, told.object), (EventKind::COMPLETION, b.cq.number));
            b.cq.expect(b.qp.number, round, WcStatus::SUCCESS);
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
        }
    }
}

#[test]
fn an_idle_worker_sleeps_and_one_operation_costs_one_kick() {
    let lab = lab(50, true);
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    for round in 0..5 {
        // Reading the counters wakes the worker too, and perhaps once more after it has answered.
        // Earlier wake-ups may be counted late.
        let asked = 2 * u64::from(lab.workers());
        let idle = wait::until("a tenth of a second without a reason to wake the worker", || {
            let before = lab.stats();
            wait::pause(Duration::from_millis(100), "a worker that is woken for nothing is so in any time");
            let idle = lab.stats();
            let is_quiet = idle.worker_sleeps() <= before.worker_sleeps() + asked
                && idle.device(0, "kicks") == before.device(0, "kicks");
            is_quiet.then_some(idle)
        });
        let ring = &a.process.channel.ring;
        wait::until("a wish for a kick", || (ring.avail_event() == ring.avail_idx()).then_some(()));
        let rung = a.process.channel.driver.doorbell().count();
        a.post(&Request::write(a.qp.tag(round), b.mr.remote(0), Data::EMPTY).signaled(true));
        a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
        assert_eq!(a.process.channel.driver.doorbell().count(), rung + 1);
        // A second check may have found the request before the kick came. The kick is counted when
        // the worker sleeps again.
        let counted = || lab.stats().device(0, "kicks") == idle.device(0, "kicks") + 1;
        wait::until("the kick to be counted", || counted().then_some(()));
    }
}

#[test]
fn kicks_stay_under_1_percent_of_10000_operations_while_the_device_polls() {
    const OPERATIONS: u32 = 10_000;
    for event_idx in [true, false] {
        let mut options = LabOptions { busy_poll: true, ..LabOptions::default() };
        options.guest.event_idx = event_idx;
        let lab = Lab::with(2, options);
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        let before = lab.stats();
        for id in 0..OPERATIONS {
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Inline(b"x")).signaled(true));
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        let after = lab.stats();
        assert_eq!(after.device(0, "requests") - before.device(0, "requests"), u64::from(OPERATIONS));
        let rung = a.process.channel.driver.doorbell().count();
        assert!(rung < u64::from(OPERATIONS) / 100, "{rung} doorbells");
        let kicks = after.device(0, "kicks");
        assert!(kicks < u64::from(OPERATIONS) / 100, "{kicks} kicks");
    }
}

#[test]
fn with_100_idle_connected_qps_the_daemon_uses_under_1_percent_of_a_core() {
    const TIME: Duration = Duration::from_secs(3);
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::with(2, LabOptions { program, ..LabOptions::default() });
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    let extra: Vec<_> = (0..99).map(|_| connected(&a, &b)).collect();
    // All QPs have been in use, and some have receives queued.
    for (own, peer) in &extra {
        b.process.post(&Request::recv(peer.tag(1), &[]));
        b.process.post(&Request::recv(peer.tag(2), &[]));
        a.process.post(&Request::send(own.tag(3), Data::EMPTY).signaled(true));
        a.cq.expect(own.number, 3, WcStatus::SUCCESS);
        b.cq.expect(peer.number, 1, WcStatus::SUCCESS);
    }
    let pid = lab.daemon.pid();
    let used = |time| {
        let before = proc::cpu_time(pid);
        wait::pause(time, "processor time is compared: a busy machine gives less of it, not more");
        proc::cpu_time(pid) - before
    };
    let short = TIME / 20;
    wait::until("what was under way to end", || (used(short) < short / 100).then_some(()));
    let used = used(TIME);
    assert!(used < TIME / 100, "{used:?} of processor time in {TIME:?}");
    b.recv_any(9);
    a.post(&Request::send(a.qp.tag(9), Data::EMPTY).signaled(true));
    a.cq.expect(a.qp.number, 9, WcStatus::SUCCESS);
}

fn connected(a: &Side, b: &Side) -> (vrdma_tests::Qp, vrdma_tests::Qp) {
    let make = |side: &Side| side.process.qp(&side.cq, &side.cq, &QpOptions::default());
    let qps = (make(a), make(b));
    connect(&qps.0, &qps.1);
    qps
}
