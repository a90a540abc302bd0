//! ibv_resize_cq(3): a completion queue moves to other memory, while threads poll and arm it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;

use vrdma_verbs::CqLayout;
use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::UserResizeCqReq;

use crate::cq::{self, Cq, Ring};
use crate::errno::{Errno, check, code, lock, try_lock};
use crate::ffi;
use crate::memory::Pages;
use crate::objects::zeroed;
use crate::pd::Resource;

/// [`ffi::ibv_resize_cq`] with driver data.
#[repr(C)]
struct Command {
    ibv: ffi::ibv_resize_cq,
    driver: UserResizeCqReq,
}

pub unsafe extern "C" fn resize_cq(cq: *mut ffi::ibv_cq, cqes: c_int) -> c_int {
    // SAFETY: the caller's CQ.
    code(unsafe { resize(cq, cqes) })
}

/// Resizes a CQ.
///
/// # Safety
/// `ibv` is the caller's CQ.
unsafe fn resize(ibv: *mut ffi::ibv_cq, cqes: c_int) -> Result<(), Errno> {
    // SAFETY: the caller's CQ.
    let cq = unsafe { Cq::of(ibv) };
    if cq.context().device_cap & device_cap::CQ_RESIZE == 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let layout = cq::layout(cqes, cq.context())?.with_timestamps(cq.is_timed);
    let memory = Pages::new(cq.domain.as_ref(), layout.size(), Resource::Cq)?;
    // One resize at a time. The other resize may wait for the end of this thread's poll, so a
    // thread that polls does not wait for it.
    let resizing = if cq.ring.is_polled_here() { try_lock(&cq.resizing) } else { Some(lock(&cq.resizing)) };
    let resizing = resizing.ok_or(libc::EBUSY)?;
    let begun = begin(&mut cq.ring.lock(), memory, layout);
    let (result, unused) = match begun {
        Ok(driver) => {
            let mut command = Command { ibv: zeroed!(), driver };
            let mut reply: ffi::ib_uverbs_resize_cq_resp = zeroed!();
            // SAFETY: the caller's CQ. The command begins with what rdma-core expects. Command and
            // reply are as long as stated.
            let result = check(unsafe {
                ffi::ibv_cmd_resize_cq(
                    ibv,
                    cqes,
                    &raw mut command.ibv,
                    size_of::<Command>(),
                    &raw mut reply,
                    size_of_val(&reply),
                )
            });
            (result, end(&mut cq.ring.lock(), result))
        }
        Err((errno, memory)) => (Err(errno), Some(memory)),
    };
    drop(resizing);
    // A function of the program may take the memory back, so none of our locks is held here.
    drop(unused);
    result
}

/// Begins a resize, and returns the driver data for the kernel.
///
/// From here on the queue moves to `memory` as soon as the rings show that the device does.
fn begin(ring: &mut Ring, memory: Pages, layout: CqLayout) -> Result<UserResizeCqReq, (Errno, Pages)> {
    if ring.successor.is_some() {
        // It is unknown whether the device executed the last resize.
        return Err((libc::EIO, memory));
    }
    // Room for everything that may be left in the ring: it is needed when the device has answered.
    if ring.held.try_reserve(ring.queue.layout().entries() as usize).is_err() {
        return Err((libc::ENOMEM, memory));
    }
    // SAFETY: zeroed, page-aligned memory of that size. New and present memory are kept until
    // end(), and longer if the device did not answer.
    if !unsafe { ring.queue.begin_resize(memory.start(), layout) } {
        return Err((libc::EIO, memory));
    }
    let driver = UserResizeCqReq {
        buf: (memory.start().as_ptr().expose_provenance() as u64).into(),
        entries: layout.entries().into(),
        held: (ring.held.len() as u32).into(),
    };
    ring.successor = Some(memory);
    Ok(driver)
}

/// Ends a resize after the kernel's answer, and returns the memory that is not used any more.
///
/// If the device did not answer (EIO), it may use either memory. Then both stay, and the rings show
/// which one it uses.
fn end(ring: &mut Ring, result: Result<(), Errno>) -> Option<Pages> {
    let unused = match result {
        Ok(()) => {
            let held = &mut ring.held;
            ring.queue.end_resize(|found| held.push_back(found));
            ring.successor.take().map(|memory| mem::replace(&mut ring.memory, memory))
        }
        Err(libc::EIO) => None,
        Err(_) => {
            ring.queue.cancel_resize();
            ring.successor.take()
        }
    };
    if ring.held.is_empty() {
        ring.held = VecDeque::new();
    }
    unused
}
