//! Guests that pause, are reset, leave and come back.
//!
//! Shows: clean-up.

use std::path::PathBuf;
use std::time::Duration;
use vrdma_tests::abi::control::{QpState, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::side::{Side, pair, pair_between};
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::{Context, Guest, Lab, LabOptions, QpOptions, Rng, proc, wait};

/// Starts a daemon as a process of its own, so that its memory, descriptors and mappings can be
/// counted.
fn process_lab(guests: u8) -> Lab {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    Lab::without_guests(guests, LabOptions { program, ..LabOptions::default() })
}

/// Returns a process' numbers of descriptors, mappings of guest memory, and threads.
fn open_things(lab: &Lab) -> (usize, usize, usize) {
    let pid = lab.daemon.pid();
    (proc::descriptors(pid), proc::guest_mappings(pid), proc::threads(pid))
}

#[track_caller]
fn expect_open_things(lab: &Lab, wanted: (usize, usize, usize)) {
    let as_before =
        |found: (usize, usize, usize)| found.0 <= wanted.0 && found.1 <= wanted.1 && found.2 <= wanted.2;
    let found = wait::within(wait::PATIENCE, || as_before(open_things(lab)).then_some(()));
    assert!(found.is_some(), "{:?} descriptors, mappings and threads, {wanted:?} before", open_things(lab));
}

#[test]
fn a_pause_keeps_queue_pairs_and_what_is_under_way() {
    for event_idx in [true, false] {
        let mut options = LabOptions::default();
        options.guest.event_idx = event_idx;
        let lab = Lab::with(2, options);
        let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions { timeout: 0, ..QpOptions::default() });
        for round in 0..5u8 {
            b.recv_any(1);
            b.recv_any(2);
            a.post(&Request::send(a.qp.tag(1), Data::Inline(&[round; 8])).signaled(true));
            a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
            b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
            assert_eq!(b.cq.arm(Arm::Next), None);
            let bases = b.guest().pause().unwrap();
            assert_eq!(bases[0], b.guest().control().queue.next_avail());
            // While the guest is paused, its memory does not change, and its peer waits.
            a.post(&Request::send(a.qp.tag(2), Data::Inline(&[round ^ 0x80; 8])).signaled(true));
            let own = b.qp.tag(3);
            b.post(&Request::write(own, a.mr.remote(100), Data::Inline(&[round; 8])).signaled(true));
            a.cq.expect_nothing(Duration::from_millis(20));
            assert_eq!((b.mr.get(0, 8), b.cq.poll()), (vec![round; 8], None));
            b.guest().resume(&bases).unwrap();
            a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
            let guest = b.guest().clone();
            assert_eq!(guest.comp_events(0).recv().object, b.cq.number);
            let mut ids = [b.cq.expect_success().id(), b.cq.expect_success().id()];
            ids.sort_unstable();
            assert_eq!(ids, [2, 3]);
            assert_eq!((b.mr.get(0, 8), a.mr.get(100, 8)), (vec![round ^ 0x80; 8], vec![round; 8]));
            // The control queue continues where it stopped.
            assert_eq!((b.qp.state(), b.guest().query_gid(0).unwrap().gid), (QpState::RTS, b.guest().gid()));
        }
    }
}

/// Brings the control queue to index 0, as 65,536 commands would, and pauses the guest there.
fn pause_at_index_0(guest: &Guest) -> Vec<u16> {
    let mut bases = guest.pause().unwrap();
    guest.queues[0].ring.clear();
    guest.control().queue.start_at(0xffc0);
    bases[0] = 0xffc0;
    guest.resume(&bases).unwrap();
    for _ in 0..64 {
        guest.query_port().unwrap();
    }
    let bases = guest.pause().unwrap();
    assert_eq!(bases[0], 0);
    bases
}

#[test]
fn a_pause_where_the_control_queue_wraps_is_told_from_a_driver_that_begins() {
    let lab = Lab::new(2);
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    let bases = pause_at_index_0(a.guest());
    a.guest().resume(&bases).unwrap();
    assert_eq!(a.qp.state(), QpState::RTS);
    a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"x")).signaled(true));
    a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
    pause_at_index_0(a.guest());
    a.guest().restart().unwrap();
    assert_eq!(lab.stats().all_objects(0), []);
    assert_eq!(a.guest().query_qp(a.qp.number).err(), Some(Status::NOT_FOUND));
}

#[test]
fn a_pause_in_mid_message_is_not_noticed() {
    let lab = Lab::new(2);
    let (mut a, b) = pair(&lab, 1, 8 << 20, &QpOptions { timeout: 0, ..QpOptions::default() });
    let data = Rng::new(1).bytes(8 << 20);
    a.mr.put(0, &data);
    for round in 0..20 {
        b.mr.fill(0);
        let (guest, peer) = (a.guest().clone(), b.guest().clone());
        let own = [a.mr.sge(0, 8 << 20)];
        a.post(&Request::write(a.qp.tag(round), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        let paused = if round % 2 == 0 { guest } else { peer };
        let bases = paused.pause().unwrap();
        paused.resume(&bases).unwrap();
        a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
        assert!(b.mr.get(0, 8 << 20) == data, "round {round}");
    }
}

#[test]
fn a_reset_gives_everything_back_and_the_next_driver_begins_anew() {
    let lab = Lab::new(2);
    for round in 0..10 {
        let (mut a, mut b) = pair(&lab, 1, 1 << 20, &QpOptions::default());
        b.recv_any(1);
        a.post(&Request::send(a.qp.tag(1), Data::Inline(b"hello")).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        // Requests after the reset are to fail soon.
        a.qp.gives_up_soon().unwrap();
        b.recv_any(2);
        for id in 0..10 {
            let own = [b.mr.sge(0, 1 << 20)];
            b.post(&Request::write(b.qp.tag(id), a.mr.remote(0), Data::Sges(&own)));
        }
        let left = lab.stats().objects(1, "mrs");
        assert_eq!(left, 1);
        b.guest().reset().unwrap();
        assert_eq!(lab.stats().all_objects(1), [], "round {round}");
        assert_eq!(b.guest().query_qp(b.qp.number).err(), Some(Status::NOT_FOUND));
        // The peer notices by its own attempts.
        a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Inline(b"x")));
        a.cq.expect(a.qp.number, 2, WcStatus::RETRY_EXC_ERR);
        b.guest().set_gid();
        a.close();
    }
}

#[test]
fn reset_device_gives_everything_back_too() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    for _ in 0..3 {
        let side = Side::new(guest, 4096, &QpOptions::default());
        assert_eq!(lab.stats().objects(0, "qps"), 1);
        guest.front_end().reset_device().unwrap();
        assert_eq!(lab.stats().all_objects(0), []);
        guest.pause().unwrap();
        guest.restart().unwrap();
        drop(side);
    }
    assert!(guest.query_device().is_ok());
}

/// Starts random work of a guest whose VMM will be killed.
fn live_a_little(
    rng: &mut Rng,
    guest: &std::sync::Arc<Guest>,
    peer: &mut Option<Side>,
    other: &std::sync::Arc<Guest>,
) {
    let steps = rng.below(5);
    if steps == 0 {
        return;
    }
    let (mut a, b) =
        pair_between(guest, other, 2 << 20, &QpOptions { timeout: 14, retry_cnt: 1, ..QpOptions::default() });
    if steps > 1 {
        (0..10).for_each(|id| a.recv_any(id));
        assert_eq!(a.cq.arm(Arm::Next), None);
    }
    if steps > 2 {
        for id in 0..30 {
            let own = [a.mr.sge(0, 2 << 20)];
            a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(id % 2 == 0));
        }
    }
    if steps > 3 {
        a.cq.wait();
    }
    *peer = Some(b);
}

#[test]
fn a_front_end_that_leaves_at_any_moment_gives_everything_back() {
    let mut lab = process_lab(2);
    lab.guests = vec![lab.connect(1)];
    let other = lab.guests[0].clone();
    let before = open_things(&lab);
    let mut rng = Rng::from_env("a_front_end_that_leaves");
    for _ in 0..30 {
        let guest = lab.connect(0);
        let mut peer = None;
        live_a_little(&mut rng, &guest, &mut peer, &other);
        guest.front_end().disconnect();
        lab.expect_nothing_left(0);
        if let Some(mut b) = peer {
            // A peer that waits for the killed guest gets an error.
            b.post(&Request::send(b.qp.tag(77), Data::EMPTY));
            let wc = b.cq.wait();
            assert_eq!((wc.id(), wc.status()), (77, WcStatus::RETRY_EXC_ERR), "{wc:?}");
            b.close();
        }
        expect_open_things(&lab, before);
    }
    assert_eq!(lab.stats().all_objects(1), [("gids".to_owned(), 1)]);
}

#[test]
fn memory_of_the_daemon_does_not_grow_with_guests_that_come_and_go() {
    let lab = process_lab(1);
    let cycle = || {
        let guest = lab.connect(0);
        let process = Context::open(&guest).unwrap();
        let cq = process.cq(1024);
        for _ in 0..100 {
            process.mr(4096);
            process.qp(&cq, &cq, &QpOptions::default());
        }
        drop((process, cq, guest));
        lab.expect_nothing_left(0);
    };
    (0..10).for_each(|_| cycle());
    let (before, open) = (proc::resident(lab.daemon.pid()), open_things(&lab));
    (0..50).for_each(|_| cycle());
    expect_open_things(&lab, open);
    let grown = proc::resident(lab.daemon.pid()).saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes more after 50 guests");
}
