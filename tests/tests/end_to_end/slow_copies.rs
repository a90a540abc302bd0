//! A worker that copies from a pinned region of another worker's guest, while a page does not
//! arrive.
//!
//! Nobody else waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use vrdma_backend::hooks;
use vrdma_tests::abi::control::QpState;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::memory::Memory;
use vrdma_tests::pingpong::PingPong;
use vrdma_tests::side::pair_between;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, wait};

/// More bytes than one pinned region has.
const LEN: u64 = 256 << 10;

fn lab() -> Lab {
    Lab::with(5, LabOptions { workers: 2, ..LabOptions::default() })
}

#[test]
fn a_worker_that_takes_loans_back_waits_for_no_slow_copy_and_their_guest_ends() {
    let mut lab = lab();
    let pingpong = PingPong::start(&lab.guests[2], &lab.guests[4]);
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    let ((begins, begun), (go_on, may_go_on)) = (channel(), channel::<()>());
    hooks::within_next_copy(move || {
        begins.send(()).expect("the test waits for it");
        wait::receive("the test to let it go on", &may_go_on);
    });
    let own = [a.mr.sge(0, LEN as u32)];
    a.post(&Request::write(a.qp.tag(7), b.mr.remote(0), Data::Sges(&own)).signaled(true));
    wait::receive("a copy from lent memory", &begun);
    let victim = lab.guests[0].clone();
    // The answer would say that the memory is the guest's alone again. The command therefore fails.
    let told = a.qp.to_state(QpState::ERR);
    assert!(told.is_err(), "{told:?}");
    wait::until("the connection to end", || victim.front_end().is_closed().then_some(()));
    pingpong.expect_another_round();
    go_on.send(()).expect("the worker waits in the hook");
    drop((a, b, victim));
    assert_eq!(lab.stats().device(0, "kept_loans"), 1);
    // The guest may reconnect.
    lab.guests[0] = lab.connect(0);
    PingPong::start(&lab.guests[0], &lab.guests[1]).stop();
    pingpong.stop();
}

/// Removes the pages of guest memory, as a balloon does.
fn punch(memory: &Memory, (gpa, len): (u64, u64)) {
    let region = memory.regions().iter().find(|region| (region.gpa..region.gpa + region.len).contains(&gpa));
    let region = region.expect("it is guest memory");
    let at = region.offset + gpa - region.gpa;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call uses no pointers.
    let result = unsafe { libc::fallocate(memory.fd(), mode, at as i64, len as i64) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn holes_that_are_punched_under_copies_end_nothing() {
    let lab = lab();
    let pingpong = PingPong::start(&lab.guests[2], &lab.guests[3]);
    let (mut a, b) = pair_between(&lab.guests[0], &lab.guests[1], LEN, &QpOptions::default());
    let done = AtomicBool::new(false);
    let memories =
        [(lab.guests[0].memory.clone(), a.mr.runs[0]), (lab.guests[1].memory.clone(), b.mr.runs[0])];
    std::thread::scope(|scope| {
        for (memory, run) in &memories {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    punch(memory, *run);
                }
            });
        }
        for round in 0..500 {
            let own = [a.mr.sge(0, LEN as u32)];
            a.post(&Request::write(a.qp.tag(round), b.mr.remote(0), Data::Sges(&own)).signaled(true));
            a.cq.expect(a.qp.number, round, WcStatus::SUCCESS);
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = lab.stats();
    assert_eq!([0, 1].map(|guest| stats.device(guest, "kept_loans")), [0, 0]);
    a.close();
    b.close();
    pingpong.stop();
}
