//! Resize, query and destruction of shared receive queues.

use std::ffi::c_int;
use std::ptr;

use super::Srq;
use crate::cq::Cq;
use crate::errno::{Errno, check, code};
use crate::ffi::{self, zeroed};
use crate::locks::lock;

pub unsafe extern "C" fn modify_srq(
    ibv: *mut ffi::ibv_srq,
    attr: *mut ffi::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue and attributes.
    let (srq, asked) = unsafe { (Srq::of(ibv), (*attr).max_wr) };
    let modify = || {
        let mut command: ffi::ibv_modify_srq = zeroed!();
        // SAFETY: the caller's queue and attributes.
        check(unsafe { ffi::ibv_cmd_modify_srq(ibv, attr, mask, &raw mut command, size_of_val(&command)) })
    };
    code(if mask as u32 & ffi::IBV_SRQ_MAX_WR == 0 { modify() } else { resize(srq, asked, modify) })
}

/// Resizes a queue by `modify`, so that never more receives are posted than the device takes.
fn resize(srq: &Srq, asked: u32, modify: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let context = srq.context();
    // One resize at a time.
    let _resizing = lock(&srq.resizing);
    let before = lock(&srq.slots).limit();
    if asked < before {
        // Under this lock, each receive that has a slot is in the channel. The device takes it
        // before the command.
        let _work = lock(&context.work);
        lock(&srq.slots).set_limit(asked)?;
    }
    let result = modify();
    let limit = match result {
        Ok(()) => asked,
        // It is unknown whether the command was, or will be, executed.
        Err(libc::EIO) => before.min(asked),
        Err(_) => before,
    };
    result.and(lock(&srq.slots).set_limit(limit))
}

pub unsafe extern "C" fn query_srq(srq: *mut ffi::ibv_srq, attr: *mut ffi::ibv_srq_attr) -> c_int {
    let mut command: ffi::ibv_query_srq = zeroed!();
    // SAFETY: the caller's queue and attributes.
    code(check(unsafe { ffi::ibv_cmd_query_srq(srq, attr, &raw mut command, size_of_val(&command)) }))
}

pub unsafe extern "C" fn get_srq_num(srq: *mut ffi::ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the caller's queue, and place for its number.
    unsafe { ptr::write(number, Srq::of(srq).srqn) };
    0
}

pub unsafe extern "C" fn destroy_srq(ibv: *mut ffi::ibv_srq) -> c_int {
    // SAFETY: the caller's queue, which nobody uses from now on. If it is an XRC queue, polls of
    // its CQ may still find it.
    let srq = unsafe { Srq::of(ibv) };
    // No lock is held: this waits until the program has acknowledged the queue's events
    // (ibv_destroy_srq(3)).
    // SAFETY: the caller's queue.
    let result = check(unsafe { ffi::ibv_cmd_destroy_srq(ibv) });
    if result.is_ok() {
        if !srq.cq.is_null() {
            let srqs = &srq.context().srqs;
            srqs.hide(srq.srqn);
            // After this no poll uses the queue: later polls do not find it, and earlier ones have
            // ended.
            // SAFETY: CQs outlive the queues that use them.
            unsafe { Cq::of(srq.cq) }.ring.lock().clean_srq(srq.srqn);
            srqs.free(srq.srqn);
        }
        // SAFETY: made by create() or create_xrc(), and unused after the kernel has destroyed it:
        // no QP uses it any more.
        drop(unsafe { Box::from_raw(ibv.cast::<Srq>()) });
    }
    code(result)
}
