//! FLUSH: earlier writes are placed when it completes, and rights are checked.

use vrdma_tests::abi::control::{Status, access, device_cap};
use vrdma_tests::abi::cqe::{WcOpcode, WcStatus};
use vrdma_tests::abi::wqe::placement::{GLOBAL, PERSISTENT};
use vrdma_tests::control::run;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Flush, Remote, Request};
use vrdma_tests::{CableOptions, Lab, LabOptions, Mr, QpOptions};

/// Returns a FLUSH of a range, to global visibility.
fn range(length: u32) -> Flush {
    Flush { placement: GLOBAL, whole: false, length }
}

fn options() -> QpOptions {
    QpOptions { access: access::QP, ..QpOptions::default() }
}

/// Runs `test` with two sides on one host, and again on two hosts.
///
/// The region passed to it belongs to the second side and may be flushed.
fn both(mut test: impl FnMut(Side, Side, Mr)) {
    for cable in [None, Some(CableOptions::default())] {
        let lab = Lab::with(2, LabOptions { cable, ..LabOptions::default() });
        let (a, b) = pair(&lab, 1, 1 << 20, &options());
        let flushable = b.process.mr_with(1 << 20, access::ALL | access::FLUSH_GLOBAL);
        test(a, b, flushable);
    }
}

#[test]
fn it_ends_when_what_was_written_is_there() {
    both(|mut a, b, mr| {
        let device = a.guest().query_device_ex().unwrap();
        assert_ne!(device.device_cap.get() & device_cap::FLUSH_GLOBAL, 0);
        assert_eq!(device.device_cap.get() & device_cap::FLUSH_PERSISTENT, 0);
        for round in 1..=20u8 {
            let length = 40_000 * u32::from(round);
            a.mr.fill(round);
            let own = [a.mr.sge(0, length)];
            a.post(&Request::write(a.qp.tag(1), mr.remote(0), Data::Sges(&own)));
            let flush = Flush { whole: round % 4 == 0, ..range(length) };
            a.post(&Request::flush(a.qp.tag(2), mr.remote(0), flush).signaled(true));
            let wc = a.cq.expect_success();
            assert_eq!((wc.id(), wc.opcode(), wc.len()), (2, WcOpcode::FLUSH, 0));
            assert!(mr.get(0, length.into()).iter().all(|byte| *byte == round), "{round}");
        }
        mr.deregister().unwrap();
        a.close();
        b.close();
    });
}

/// Returns the address of a region with every right except global FLUSH.
fn without(side: &Side) -> Remote {
    side.process.mr_with(4096, access::ALL).remote(0)
}

#[test]
fn key_range_and_rights_are_checked() {
    type Case = (&'static str, fn(&Side, &Mr) -> Remote, Flush, WcStatus);
    let all = Flush { whole: true, ..range(u32::MAX) };
    let cases: [Case; 11] = [
        ("no bytes", |_, mr| mr.remote(0), range(0), WcStatus::SUCCESS),
        ("all of a range", |_, mr| mr.remote(0), range(1 << 20), WcStatus::SUCCESS),
        ("all of the region", |_, mr| mr.remote(1 << 19), all, WcStatus::SUCCESS),
        ("a byte too many", |_, mr| mr.remote(1), range(1 << 20), WcStatus::REM_ACCESS_ERR),
        (
            "no such key",
            |_, mr| Remote { rkey: mr.key ^ 1, ..mr.remote(0) },
            range(8),
            WcStatus::REM_ACCESS_ERR,
        ),
        (
            "no such key at all",
            |_, mr| Remote { rkey: mr.key ^ 1, ..mr.remote(0) },
            all,
            WcStatus::REM_ACCESS_ERR,
        ),
        ("no right", |b, _| without(b), range(8), WcStatus::REM_ACCESS_ERR),
        ("no right to anything", |b, _| without(b), all, WcStatus::REM_ACCESS_ERR),
        (
            "persistence",
            |_, mr| mr.remote(0),
            Flush { placement: PERSISTENT, ..range(8) },
            WcStatus::REM_ACCESS_ERR,
        ),
        (
            "both",
            |_, mr| mr.remote(0),
            Flush { placement: GLOBAL | PERSISTENT, ..range(8) },
            WcStatus::REM_ACCESS_ERR,
        ),
        ("neither", |_, mr| mr.remote(0), Flush { placement: 0, ..range(8) }, WcStatus::LOC_QP_OP_ERR),
    ];
    for (what, place, flush, status) in cases {
        both(|mut a, b, mr| {
            a.post(&Request::flush(a.qp.tag(1), place(&b, &mr), flush).signaled(true));
            let wc = a.cq.wait();
            assert_eq!((wc.id(), wc.status()), (1, status), "{what}");
        });
    }
}

#[test]
fn a_qp_that_does_not_allow_it_refuses_it() {
    for (rights, placement) in [(access::ALL, GLOBAL), (access::ALL | access::FLUSH_GLOBAL, PERSISTENT)] {
        let lab = Lab::new(2);
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions { access: rights, ..QpOptions::default() });
        let mr = b.process.mr_with(4096, access::ALL | access::FLUSH_GLOBAL);
        a.post(&Request::flush(a.qp.tag(1), mr.remote(0), Flush { placement, ..range(8) }));
        a.cq.expect(a.qp.number, 1, WcStatus::REM_INV_REQ_ERR);
    }
}

#[test]
fn no_region_is_persistent() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let side = Side::new(guest, 4096, &options());
    let page = guest.memory.alloc(4096);
    let register = |access| guest.reg_mr(side.process.pd, access, 0, 4096, &[run(page, 4096)]);
    let before = lab.stats().all_objects(0);
    for rights in [access::FLUSH_PERSISTENT, access::FLUSH_PERSISTENT | access::FLUSH_GLOBAL | access::ALL] {
        assert_eq!(register(rights).err(), Some(Status::UNSUPPORTED));
    }
    for rights in [64, 128, 1024, 1 << 31, access::FLUSH_GLOBAL | 32, access::FLUSH_PERSISTENT | 64] {
        assert_eq!(register(rights).err(), Some(Status::INVALID), "{rights:#x}");
    }
    assert_eq!(lab.stats().all_objects(0), before);
    // The region needs no other right.
    let key = register(access::FLUSH_GLOBAL).unwrap();
    guest.dereg_mr(key.lkey.get()).unwrap();
    side.close();
}

#[test]
fn how_many_may_be_outstanding_is_as_for_reads() {
    both(|mut a, b, mr| {
        for id in 0..100 {
            a.post(&Request::flush(a.qp.tag(id), mr.remote(0), range(8)).signaled(true).fence(id % 3 == 0));
        }
        for id in 0..100 {
            assert_eq!(a.cq.expect_success().id(), id);
        }
        mr.deregister().unwrap();
        a.close();
        b.close();
    });
}
