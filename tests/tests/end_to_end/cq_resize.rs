//! A CQ is resized while completions arrive.
//!
//! None is lost, none is reported twice, and an armed CQ stays armed.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{QpState, QpType, ResizeCqReq, Run, Status, cq_flags};
use vrdma_tests::abi::cqe::{Cqe, TimedCqe, WcStatus};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::control::run;
use vrdma_tests::events::Told;
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Arm, CqLayout, Data, Request, UdTarget};
use vrdma_tests::{Cq, Lab, LabOptions, QpOptions, Rng, wait};

/// Long enough for any error to show.
const QUIET: Duration = Duration::from_millis(20);

/// Creates a side whose requests complete as soon as they are posted, because its QP is in ERR.
fn failing(lab: &Lab, entries: u32) -> Side {
    let options = QpOptions { recv_wr: 512, ..QpOptions::default() };
    let side = Side::with_cq(&lab.guests[0], entries, 4096, &options);
    side.qp.to_init().unwrap();
    side.qp.to_state(QpState::ERR).unwrap();
    side
}

/// Produces completions with these ids. All are in the CQ when this returns.
fn complete(lab: &Lab, side: &mut Side, ids: std::ops::Range<u32>) {
    let before = lab.stats().device(0, "completions");
    let wanted = before + u64::from(ids.end - ids.start);
    ids.for_each(|id| side.recv(id, &[]));
    wait::until("all completions", || (lab.stats().device(0, "completions") == wanted).then_some(()));
}

fn expect_ids(cq: &mut Cq, ids: std::ops::Range<u32>) {
    for id in ids {
        let wc = cq.wait();
        assert_eq!((wc.id(), wc.status()), (id, WcStatus::WR_FLUSH_ERR));
    }
    assert_eq!(cq.poll(), None);
}

fn completion(cq: &Cq) -> Option<Told> {
    Some(Told { kind: EventKind::COMPLETION, object: cq.number })
}

#[test]
fn what_is_in_it_stays_and_the_new_ring_holds_as_many_as_it_says() {
    let lab = Lab::new(1);
    let before = lab.stats().all_objects(0);
    let mut side = failing(&lab, 8);
    complete(&lab, &mut side, 0..6);
    assert_eq!((side.cq.poll().unwrap().id(), side.cq.poll().unwrap().id()), (0, 1));
    side.cq.resize(64).unwrap();
    assert_eq!(side.cq.entries(), 64);
    complete(&lab, &mut side, 6..70);
    expect_ids(&mut side.cq, 2..70);
    // Many laps in smaller rings, one ring of equal size, and larger rings.
    let mut next = 70;
    for entries in [4, 4, 2, 16, 256, 8] {
        side.cq.resize(entries).unwrap();
        for _ in 0..5 {
            complete(&lab, &mut side, next..next + entries);
            expect_ids(&mut side.cq, next..next + entries);
            next += entries;
        }
    }
    assert_eq!(lab.stats().device(0, "cq_overruns"), 0);
    side.close();
    assert_eq!(lab.stats().all_objects(0), before);
}

#[test]
fn a_ring_that_is_too_small_for_what_nobody_polled_is_refused() {
    let lab = Lab::new(1);
    let mut side = failing(&lab, 8);
    complete(&lab, &mut side, 0..5);
    assert_eq!(side.cq.resize(4), Err(Status::INVALID));
    assert_eq!(side.cq.poll().unwrap().id(), 0);
    side.cq.resize(4).unwrap();
    // Completions that the driver took over from former rings count, too.
    assert_eq!(side.cq.resize(2), Err(Status::INVALID));
    complete(&lab, &mut side, 5..7);
    assert_eq!(side.cq.resize(4), Err(Status::INVALID));
    side.cq.resize(8).unwrap();
    complete(&lab, &mut side, 7..9);
    expect_ids(&mut side.cq, 1..9);
    side.cq.resize(2).unwrap();
    // One more completion than the new ring holds.
    complete(&lab, &mut side, 9..12);
    let event = lab.guests[0].async_events().recv_within(wait::PATIENCE);
    assert_eq!(event, Some(Told { kind: EventKind::CQ_ERR, object: side.cq.number }));
    assert_eq!(side.cq.resize(64), Err(Status::INVALID), "a CQ that lost completions is not mended");
}

/// A ring too small for the requests posted earlier is refused.
///
/// This includes datagrams without a receive at the peer: they complete too, after the device has
/// looked for one.
#[test]
fn what_was_posted_before_counts_even_if_its_receive_is_looked_for() {
    let lab = Lab::new(2);
    let handles = AhTable::new(&lab.guests[0], 4).unwrap();
    for round in 0..300u32 {
        let options = QpOptions::of(QpType::UD);
        let [mut a, b] = [0, 1].map(|at| Side::with_cq(&lab.guests[at], 8, 4096, &options));
        [&a, &b].into_iter().for_each(|side| side.qp.start().unwrap());
        let peer = if round % 2 == 0 { &a } else { &b };
        handles.put(0, &entry(a.process.pd, peer.guest().gid()));
        let to = UdTarget { ah: 0, qpn: peer.qp.number, qkey: peer.qp.options.qkey };
        let (qp, sges) = (a.qp.clone(), [a.mr.sge(0, 8)]);
        for id in 0..6 {
            a.post(&Request::ud_send(qp.tag(id), to, Data::Sges(&sges)).signaled(true));
        }
        assert_eq!(a.cq.resize(1), Err(Status::INVALID), "round {round}");
        (0..6).for_each(|id| assert_eq!(a.cq.expect_success().id(), id));
        [a, b].into_iter().for_each(Side::close);
    }
}

#[test]
fn the_former_ring_is_not_touched_once_the_device_has_answered() {
    let lab = Lab::new(1);
    let mut side = failing(&lab, 8);
    let (former, len) = (side.cq.gpa, CqLayout::for_entries(8).unwrap().size() as u64);
    let memory = lab.guests[0].memory.clone();
    side.cq.resize(4).unwrap();
    memory.fill(former, len, 0xa5);
    for lap in 0..8 {
        assert_eq!(side.cq.arm(Arm::Next), None);
        complete(&lab, &mut side, 4 * lap..4 * lap + 4);
        expect_ids(&mut side.cq, 4 * lap..4 * lap + 4);
        assert_eq!(lab.guests[0].comp_events(0).recv(), completion(&side.cq).unwrap());
    }
    assert!(memory.bytes(former, len).iter().all(|byte| *byte == 0xa5));
}

#[test]
fn what_was_armed_stays_armed_and_what_was_answered_is_answered() {
    for kind in [Arm::Next, Arm::Solicited] {
        let lab = Lab::new(1);
        let mut side = failing(&lab, 8);
        let guest = lab.guests[0].clone();
        let event = |time| guest.comp_events(0).recv_within(time);
        assert_eq!(side.cq.arm(kind), None);
        side.cq.resize(16).unwrap();
        complete(&lab, &mut side, 0..1);
        assert_eq!(event(wait::PATIENCE), completion(&side.cq));
        side.cq.resize(4).unwrap();
        complete(&lab, &mut side, 1..2);
        assert_eq!(event(QUIET), None, "that request was answered before");
        expect_ids(&mut side.cq, 0..2);
        assert_eq!(side.cq.arm(kind), None);
        complete(&lab, &mut side, 2..3);
        assert_eq!(event(wait::PATIENCE), completion(&side.cq));
    }
}

/// Polls until the CQ is empty, and asserts that the ids are consecutive.
fn take(cq: &mut Cq, found: &mut u32) {
    while let Some(wc) = cq.poll() {
        assert_eq!((wc.id(), wc.status()), (*found, WcStatus::SUCCESS));
        *found += 1;
    }
}

/// A peer sends without pause, while one thread polls, arms and resizes.
///
/// Each completion is reported once and in order, and no event is missed.
#[test]
fn resizes_and_events_while_a_peer_completes() {
    const MESSAGES: u32 = 4_000;
    let lab = Lab::new(2);
    let (mut a, mut b) = pair(&lab, 1, 4096, &QpOptions::default());
    let mut rng = Rng::from_env("resizes_and_events_while_a_peer_completes");
    (0..64).for_each(|id| b.recv(id, &[]));
    let sender = thread::spawn(move || {
        for id in 0..MESSAGES {
            a.post(&Request::send(a.qp.tag(id), Data::EMPTY).signaled(true));
            a.cq.expect_success();
        }
        a
    });
    let (mut found, mut resizes) = (0, [0; 2]);
    let mut posted = 64;
    while found < MESSAGES {
        take(&mut b.cq, &mut found);
        // There is always room for the 64 completions that may come.
        let entries = 64 << rng.below(4);
        let armed = rng.one_in(2);
        let result = b.cq.resize_while(entries, |cq| {
            if armed {
                cq.driver.arm(Arm::Next);
            }
            take(cq, &mut found);
        });
        resizes[usize::from(result.is_ok())] += 1;
        take(&mut b.cq, &mut found);
        while posted < found + 64 && posted < MESSAGES {
            b.recv(posted, &[]);
            posted += 1;
        }
        // Wait as programs do: arm, poll, and sleep until an event.
        if found < MESSAGES && rng.one_in(4) {
            b.cq.driver.arm(Arm::Next);
            let before = found;
            take(&mut b.cq, &mut found);
            while found == before {
                assert_eq!(b.guest().comp_events(0).recv(), completion(&b.cq).unwrap());
                // An event may be spurious. The device does not see that the driver took what was
                // left in a former ring.
                b.cq.driver.arm(Arm::Next);
                take(&mut b.cq, &mut found);
            }
        }
    }
    assert!(resizes[1] > 20, "hardly any resize: {resizes:?}");
    sender.join().unwrap().close();
    b.close();
    assert_eq!(lab.stats().device(1, "cq_overruns"), 0);
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let lab = Lab::new(1);
    let mut side = failing(&lab, 8);
    let guest = lab.guests[0].clone();
    complete(&lab, &mut side, 0..3);
    let before = lab.stats().all_objects(0);
    let page = guest.memory.alloc(1 << 20);
    guest.memory.fill(page, 1 << 20, 0);
    let good = ResizeCqReq { cqn: side.cq.number.into(), entries: 4.into(), held: 0.into(), flags: 0.into() };
    let bytes = |entries: u64| entries * Cqe::SIZE as u64 + 128;
    let max = GuestLimits::default().cq_entries;
    let refused = |req: ResizeCqReq, runs: &[Run], status| {
        assert_eq!(guest.resize_cq(&req, runs), Err(status), "{req:?} {runs:?}");
    };
    refused(ResizeCqReq { cqn: 77.into(), ..good }, &[run(page, bytes(4))], Status::NOT_FOUND);
    refused(ResizeCqReq { cqn: u32::MAX.into(), ..good }, &[run(page, bytes(4))], Status::NOT_FOUND);
    refused(ResizeCqReq { entries: 0.into(), ..good }, &[run(page, bytes(0))], Status::INVALID);
    refused(ResizeCqReq { entries: 3.into(), ..good }, &[run(page, bytes(3))], Status::INVALID);
    let large = u64::from(max) * 2;
    refused(
        ResizeCqReq { entries: (2 * max).into(), ..good },
        &[run(page, bytes(large))],
        Status::NO_RESOURCES,
    );
    refused(ResizeCqReq { entries: 2.into(), ..good }, &[run(page, bytes(2))], Status::INVALID);
    refused(ResizeCqReq { held: 2.into(), ..good }, &[run(page, bytes(4))], Status::INVALID);
    refused(ResizeCqReq { held: u32::MAX.into(), ..good }, &[run(page, bytes(4))], Status::INVALID);
    for flags in [1, 2, 3, 4, 1 << 31] {
        refused(ResizeCqReq { flags: flags.into(), ..good }, &[run(page, bytes(4))], Status::INVALID);
    }
    let timed = ResizeCqReq { flags: cq_flags::TIMESTAMP.into(), ..good };
    refused(timed, &[run(page, 4 * TimedCqe::SIZE as u64 + 128)], Status::INVALID);
    refused(good, &[], Status::INVALID);
    refused(good, &[run(page, bytes(4) - 1)], Status::INVALID);
    refused(good, &[run(page, bytes(4) + 1)], Status::INVALID);
    refused(good, &[run(page + 4, bytes(4))], Status::FAULT);
    refused(good, &[run(0xffff_0000_0000, bytes(4))], Status::FAULT);
    refused(good, &[run(u64::MAX - 8, bytes(4))], Status::FAULT);
    refused(good, &[run(page, 40), run(page + 4096, bytes(4) - 40)], Status::FAULT);
    assert_eq!(lab.stats().all_objects(0), before);
    expect_ids(&mut side.cq, 0..3);
    // Consumer indices ahead of the device, and one more than a ring behind.
    for nonsense in [4u32, 1000, 0u32.wrapping_sub(100)] {
        let consumer = guest.memory.word32(side.cq.record() + 64);
        let saved = consumer.swap(nonsense.to_le(), Ordering::SeqCst);
        refused(good, &[run(page, bytes(4))], Status::INVALID);
        consumer.store(saved, Ordering::SeqCst);
    }
    complete(&lab, &mut side, 3..6);
    expect_ids(&mut side.cq, 3..6);
    side.cq.resize(4).unwrap();
    complete(&lab, &mut side, 6..10);
    expect_ids(&mut side.cq, 6..10);
}

#[test]
fn runs_count_once() {
    let limits = GuestLimits { total_runs: 200, ..GuestLimits::default() };
    let lab = Lab::with(1, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let side = failing(&lab, 8);
    let used = lab.stats().objects(0, "runs");
    let page = guest.memory.alloc(1 << 20);
    // Extents of one CQE each, and one of the record.
    let scattered = |entries: u64, at: u64| -> Vec<Run> {
        let cqes = (0..entries).map(|i| run(at + 64 * i, 32));
        cqes.chain([run(at + 64 * entries, 128)]).collect()
    };
    let resize = |entries: u32, at: u64| {
        guest.memory.fill(at, 1 << 16, 0);
        let (cqn, entries) = (side.cq.number.into(), entries.into());
        let req = ResizeCqReq { cqn, entries, ..ResizeCqReq::default() };
        guest.resize_cq(&req, &scattered(entries.get().into(), at))
    };
    // Back and forth, more often than the quota of extents would allow if extents leaked.
    for i in 0..20 {
        resize(128, page + (1 << 16) * (i % 2)).unwrap();
        assert_eq!(lab.stats().objects(0, "runs"), used - 1 + 129);
    }
    assert_eq!(resize(256, page), Err(Status::NO_RESOURCES));
    assert_eq!(lab.stats().objects(0, "runs"), used - 1 + 129);
    side.qp.destroy().unwrap();
    guest.destroy_cq(side.cq.number).unwrap();
    assert_eq!(lab.stats().objects(0, "runs"), used - 1);
    side.mr.deregister().unwrap();
    side.process.close().unwrap();
}

/// A guest whose driver resizes at random, over memory of its other rings, harms itself alone.
#[test]
fn a_storm_of_wild_resizes_hurts_nobody_else() {
    let lab = Lab::new(4);
    let canaries = [2, 3].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let pingpong = PingPong::start(&lab.guests[2], &lab.guests[3]);
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    let stop = AtomicBool::new(false);
    let mut rng = Rng::from_env("a_storm_of_wild_resizes_hurts_nobody_else");
    thread::scope(|scope| {
        scope.spawn(|| {
            let sge = a.mr.sge(0, 8);
            let mut id = 0;
            while !stop.load(Ordering::Relaxed) {
                let data = [sge];
                let request = Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&data));
                a.process.post(&request.signaled(true));
                id = id.wrapping_add(1);
            }
        });
        let guest = &lab.guests[0];
        let memory = guest.memory.alloc(1 << 16);
        for _ in 0..3_000 {
            let entries = 1u32 << rng.below(8);
            let at = memory + 32 * rng.below(1024);
            if rng.one_in(3) {
                guest.memory.fill(at, 512, rng.next_u32() as u8);
            }
            let held = if rng.one_in(4) { rng.nasty() as u32 } else { 0 };
            let bytes = u64::from(entries) * 32 + 128;
            let flags = if rng.one_in(16) { cq_flags::TIMESTAMP } else { 0 };
            let (cqn, held, flags) = (a.cq.number.into(), held.into(), flags.into());
            let req = ResizeCqReq { cqn, entries: entries.into(), held, flags };
            let _ = guest.resize_cq(&req, &[run(at, bytes)]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    pingpong.stop();
    canaries.iter().for_each(Canary::check);
    lab.guests[0].reset().unwrap();
    assert_eq!(lab.stats().all_objects(0), []);
}

/// Runs the kernel module's CQ code with a device in plain memory.
#[test]
fn the_kernel_module_polls_and_arms_whichever_ring_the_device_is_in() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = TempDir::new().unwrap();
    let (shim, program) = (root.join("kernel-on-host"), directory.path().join("ring"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-I"]).arg(&shim);
    compiler.arg("-I").arg(root.join("../guest-driver/kernel"));
    compiler.arg(shim.join("ring.c")).arg("-o").arg(&program);
    assert!(compiler.status().expect("there is a C compiler").success());
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
