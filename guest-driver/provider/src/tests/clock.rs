//! The device's clock, and completions with a time stamp.

use std::mem::zeroed;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::AllocContextExResp;

use super::guest::{Guest, wr_ids, write};
use crate::cq::Cq;
use crate::errno::{self, Errno};
use crate::fake::Kernel;
use crate::ffi::*;

const BOTH: u32 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Makes a CQ whose completions have these fields in addition to the usual ones.
fn timed(guest: &Guest, fields: u32) -> Result<*mut ibv_cq_ex, Errno> {
    let mut attr: ibv_cq_init_attr_ex = unsafe { zeroed() };
    (attr.cqe, attr.wc_flags) = (8, (IBV_WC_STANDARD_FLAGS | fields).into());
    let cq = unsafe { guest.ops.create_cq_ex.unwrap()(guest.context, &raw mut attr) };
    if cq.is_null() { Err(errno::last()) } else { Ok(cq) }
}

/// Returns the next completion: wr_id, time stamp, wall-clock time.
fn next(cq: *mut ibv_cq_ex) -> Option<(u64, u64, u64)> {
    let mut attr: ibv_poll_cq_attr = unsafe { zeroed() };
    unsafe {
        if (*cq).start_poll.unwrap()(cq, &raw mut attr) != 0 {
            return None;
        }
        let timestamp = (*cq).read_completion_ts.unwrap()(cq);
        let found = ((*cq).wr_id, timestamp, (*cq).read_completion_wallclock_ns.unwrap()(cq));
        (*cq).end_poll.unwrap()(cq);
        Some(found)
    }
}

fn realtime() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn a_completion_has_the_time_that_the_device_gave_it() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = timed(&guest, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP).unwrap();
    let qp = guest.qp(cq.cast(), |_| ());
    // Past the end of the ring, and polled in both ways.
    for wr_id in 0..30 {
        kernel.state().clock = 5_000_000_000_000 + wr_id;
        guest.send(qp, &mut [write(wr_id), write(100)]).unwrap();
        kernel.serve();
        assert_eq!(
            next(cq),
            Some((wr_id, 5_000_000_000_000 + wr_id, 0)),
            "the wall's clock was not asked for"
        );
        assert_eq!(wr_ids(&guest.poll(cq.cast(), 8)), [100]);
        assert_eq!(next(cq), None);
    }
    assert_eq!(kernel.state().clock_queries, 0);
    guest.destroy_qp(qp);
    guest.close(&[cq.cast()]);
}

#[test]
fn time_stamps_stay_with_their_completions_in_a_resize() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = timed(&guest, BOTH).unwrap();
    let qp = guest.qp(cq.cast(), |_| ());
    let complete = |wr_ids: std::ops::Range<u64>| {
        for wr_id in wr_ids {
            kernel.state().clock = 1000 * wr_id;
            guest.send(qp, &mut [write(wr_id)]).unwrap();
            kernel.serve();
        }
    };
    complete(0..4);
    assert_eq!(unsafe { guest.ops.resize_cq.unwrap()(cq.cast(), 30) }, 0);
    complete(4..8);
    for wr_id in 0..8 {
        assert_eq!(next(cq).map(|(id, timestamp, _)| (id, timestamp)), Some((wr_id, 1000 * wr_id)));
    }
    assert_eq!(next(cq), None);
    guest.destroy_qp(qp);
    guest.close(&[cq.cast()]);
}

#[test]
fn the_time_of_the_wall_is_the_device_s_time_and_what_it_lacks() {
    const SECOND: u64 = 1_000_000_000;
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    kernel.state().clock = 7 * SECOND;
    let before = realtime();
    let cq = timed(&guest, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK).unwrap();
    let after = realtime();
    let qp = guest.qp(cq.cast(), |_| ());
    let complete = |clock| {
        kernel.state().clock = clock;
        guest.send(qp, &mut [write(1)]).unwrap();
        kernel.serve();
        next(cq).unwrap()
    };
    let age = |nanoseconds| unsafe { Cq::of(cq.cast()) }.poll_ex.age(nanoseconds);
    let (_, timestamp, wall) = complete(10 * SECOND);
    assert_eq!(timestamp, 10 * SECOND);
    if kernel.state().clock_queries == 1 {
        assert!((before + 3 * SECOND..=after + 3 * SECOND).contains(&wall));
    }
    // Until the next comparison of the clocks, the wall-clock time follows the device's clock.
    let queries = kernel.state().clock_queries;
    let (_, _, later) = complete(11 * SECOND);
    if kernel.state().clock_queries == queries {
        assert_eq!(later, wall + SECOND);
    }
    age(SECOND);
    let before = realtime();
    let (_, _, wall) = complete(50 * SECOND);
    assert!((before..=realtime()).contains(&wall), "compared again");
    // A device that does not answer: the last comparison stays valid, and the next query comes a
    // second later.
    age(SECOND);
    kernel.state().command_error = libc::EIO;
    let queries = kernel.state().clock_queries;
    assert_eq!(complete(51 * SECOND).2, wall + SECOND);
    assert_eq!(kernel.state().clock_queries, queries + 1);
    guest.destroy_qp(qp);
    guest.close(&[cq.cast()]);
}

#[test]
fn the_clock_can_be_asked_for() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let query = |asked| unsafe {
        let mut values: ibv_values_ex = zeroed();
        values.comp_mask = asked;
        let errno = guest.ops.query_rt_values.unwrap()(guest.context, &raw mut values);
        (errno, values.comp_mask, values.raw_clock.tv_sec, values.raw_clock.tv_nsec)
    };
    kernel.state().clock = 123_456_789_012;
    assert_eq!(query(IBV_VALUES_MASK_RAW_CLOCK), (0, IBV_VALUES_MASK_RAW_CLOCK, 0, 123_456_789_012));
    assert_eq!(query(IBV_VALUES_MASK_RAW_CLOCK | 0x80), (0, IBV_VALUES_MASK_RAW_CLOCK, 0, 123_456_789_012));
    assert_eq!(query(0), (0, 0, 0, 0));
    kernel.state().command_error = libc::EIO;
    assert_eq!(query(IBV_VALUES_MASK_RAW_CLOCK).0, libc::EIO);
    kernel.state().command_error = libc::EIO;
    assert_eq!(timed(&guest, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK).err(), Some(libc::EIO));
    guest.close(&[]);
}

#[test]
fn an_older_device_has_no_time_stamps() {
    let older = Kernel::of_version(size_of::<AllocContextExResp>(), |reply| {
        reply.device_cap = (device_cap::V1_0 | device_cap::CQ_RESIZE).into();
    });
    let guest = Guest::new(&older);
    for fields in [BOTH, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK] {
        assert_eq!(timed(&guest, fields).err(), Some(libc::EOPNOTSUPP));
    }
    let mut values: ibv_values_ex = unsafe { zeroed() };
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    let errno = unsafe { guest.ops.query_rt_values.unwrap()(guest.context, &raw mut values) };
    assert_eq!((errno, older.state().clock_queries), (libc::EOPNOTSUPP, 0));
    guest.close(&[]);
}
