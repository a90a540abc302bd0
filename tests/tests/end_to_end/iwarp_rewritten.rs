//! Programs that write to their memory while it is being sent.
//!
//! A program may do so with the source of a READ, and the peer must not suffer. An FPDU carries the
//! CRC of the bytes actually sent in it, also when it is retransmitted.
//!
//! Shows: rewritten-memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrdma_backend::port::FaultsConfig;
use vrdma_tests::abi::control::QpState;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::cm::connected;
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, GuestTcp, Lab, LabOptions, Mr, QpOptions, wait};

const LEN: u64 = 1 << 20;
/// Concurrent requests, each for a part of its own.
const DEPTH: u32 = 8;
const PART: u64 = LEN / DEPTH as u64;
/// Writers set this bit in each byte that they write.
const WRITTEN: u8 = 0x80;

/// Stops writers when dropped.
///
/// It does so also if a test fails. Otherwise joining the writers would hang.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rewrites the whole region over and over, and counts the rounds.
fn rewrite(mr: &Mr, stop: &AtomicBool, rounds: &AtomicU64) {
    for round in 0u64.. {
        for page in (0..LEN).step_by(4096) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            mr.put(page, &[WRITTEN | round as u8; 4096]);
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads and writes `bytes` bytes while their sources change.
fn go_through(tcp: GuestTcp, bytes: u64) {
    let faults = FaultsConfig { loss: 0.01, ..FaultsConfig::default() };
    // The cable carries the daemon's own TCP. The kernel's TCP loses nothing.
    let cable = Some(CableOptions { faults: Some(faults), ..CableOptions::default() });
    let lab = match tcp {
        GuestTcp::Own => Lab::of_tcp_with(tcp, 2, LabOptions { cable, ..LabOptions::default() }),
        _ => Lab::of_tcp(tcp, 2),
    };
    let ((mut a, _), (b, _)) = connected(&lab.guests[0], &lab.guests[1], 2 * LEN, &QpOptions::default());
    b.mr.put(0, &vec![WRITTEN; LEN as usize]);
    a.mr.put(0, &vec![WRITTEN; LEN as usize]);
    let (stop, rounds) = (AtomicBool::new(false), [0, 1].map(|_| AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for (mr, rounds) in [&a.mr, &b.mr].into_iter().zip(&rounds) {
            let mr = Mr::clone(mr);
            let stop = &stop;
            scope.spawn(move || rewrite(&mr, stop, rounds));
        }
        let _stop = Stop(&stop);
        for _ in 0..bytes.div_ceil(LEN) {
            a.mr.put(LEN, &vec![0; LEN as usize]);
            for n in 0..DEPTH {
                let place = u64::from(n) * PART;
                let (from, to) = ([a.mr.sge(place, PART as u32)], [a.mr.sge(LEN + place, PART as u32)]);
                a.post(&Request::read(a.qp.tag(2 * n), b.mr.remote(place), &to).signaled(true));
                let write = Request::write(a.qp.tag(2 * n + 1), b.mr.remote(LEN + place), Data::Sges(&from));
                a.post(&write.signaled(true));
            }
            for n in 0..2 * DEPTH {
                a.cq.expect(a.qp.number, n, WcStatus::SUCCESS);
            }
            let came = a.mr.get(LEN, LEN);
            assert!(came.iter().all(|byte| byte & WRITTEN != 0), "what was never in the source came");
        }
    });
    // A WRITE completes when it is sent. The last ones still have to arrive.
    wait::until("what was in the sources of WRITEs", || {
        b.mr.get(LEN, LEN).iter().all(|byte| byte & WRITTEN != 0).then_some(())
    });
    assert!(rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) > 1), "sources were rewritten");
    let (near, far) = (lab.stats(), lab.remote_stats());
    for counter in ["terminates_out", "terminates_in", "stream_faults"] {
        assert_eq!(near.transport(0, counter) + far.transport(0, counter), 0, "{counter}");
    }
    if tcp == GuestTcp::Own {
        assert_ne!(far.tcp(0, "retransmits"), 0, "there were losses");
    }
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::RTS, QpState::RTS));
}

#[test]
fn sources_that_are_rewritten_end_nothing() {
    go_through(GuestTcp::Own, 32 << 20);
}

#[test]
fn sources_that_are_rewritten_end_nothing_over_the_hosts_tcp() {
    go_through(GuestTcp::Kernel, 32 << 20);
}

#[test]
#[ignore = "long"]
fn a_gigabyte_of_sources_that_are_rewritten() {
    go_through(GuestTcp::Own, 1 << 30);
}
