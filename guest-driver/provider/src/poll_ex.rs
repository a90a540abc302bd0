//! ibv_create_cq_ex(3): completions that are read one by one, from ibv_start_poll() to
//! ibv_end_poll().

use std::cell::UnsafeCell;
use std::ffi::c_int;

use crate::clock::Wall;
use crate::cq::Cq;
use crate::errno::{Errno, code, refusal};
use crate::ffi;
use crate::objects::zeroed;
use crate::poll;
use crate::ring_lock::RingGuard;

/// State of a poll that a thread has started by ibv_start_poll().
pub struct PollEx {
    /// The lock of the CQ's ring, held by the caller from start to end.
    held: UnsafeCell<Option<RingGuard<'static>>>,
    /// The current completion.
    current: UnsafeCell<ffi::ibv_wc>,
    /// Time stamp of the current completion.
    timestamp: UnsafeCell<u64>,
    /// The last comparison of the wall clock with the device's clock, if completions have
    /// wall-clock time.
    wall: UnsafeCell<Option<Wall>>,
}

impl PollEx {
    pub fn new() -> Self {
        Self {
            held: UnsafeCell::new(None),
            current: UnsafeCell::new(zeroed!()),
            timestamp: UnsafeCell::new(0),
            wall: UnsafeCell::new(None),
        }
    }

    /// Makes completions have wall-clock time.
    pub fn compare_clocks(&mut self, cmd_fd: c_int) -> Result<(), Errno> {
        *self.wall.get_mut() = Some(Wall::compare(cmd_fd)?);
        Ok(())
    }

    /// Makes the last comparison of the clocks older by `nanoseconds`. No thread may poll the CQ.
    #[cfg(test)]
    pub fn age(&self, nanoseconds: u64) {
        // SAFETY: nobody else uses it.
        if let Some(wall) = unsafe { (*self.wall.get()).as_mut() } {
            wall.age(nanoseconds);
        }
    }
}

/// Sets the functions of the CQ, including those for time stamps if its completions have them.
pub fn set_functions(cq: &mut ffi::ibv_cq_ex, is_timed: bool) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    // These fields are for InfiniBand only.
    cq.read_slid = Some(read_zero);
    cq.read_sl = Some(read_zero_byte);
    cq.read_dlid_path_bits = Some(read_zero_byte);
    if is_timed {
        cq.read_completion_ts = Some(read_timestamp);
        cq.read_completion_wallclock_ns = Some(read_wallclock);
    }
}

unsafe extern "C" fn start_poll(cq: *mut ffi::ibv_cq_ex, attr: *mut ffi::ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's attributes.
    if unsafe { (*attr).comp_mask } != 0 {
        return refusal(libc::EINVAL);
    }
    // SAFETY: the caller's CQ. The guard is stored next to what it points to, in a CQ that does not
    // move. It is dropped first, by the order of the fields. `held` is under the lock, which this
    // thread has taken.
    unsafe {
        let queue = Cq::of(cq.cast());
        // A thread that starts a second poll would wait for itself.
        let Some(guard) = queue.ring.lock_for_poll() else { return refusal(libc::EINVAL) };
        *queue.poll_ex.held.get() = Some(std::mem::transmute::<RingGuard<'_>, RingGuard<'static>>(guard));
        let result = advance(cq);
        if result.is_err() {
            end(queue);
        }
        found(result)
    }
}

unsafe extern "C" fn next_poll(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: the caller's CQ, on which the caller has started a poll.
    found(unsafe { advance(cq) })
}

/// Returns the result of a poll for C.
///
/// ENOENT means that there is no completion. That is no failure, so errno does not change.
#[inline]
fn found(result: Result<(), Errno>) -> c_int {
    match result {
        Err(libc::ENOENT) => libc::ENOENT,
        result => code(result),
    }
}

unsafe extern "C" fn end_poll(cq: *mut ffi::ibv_cq_ex) {
    // SAFETY: the caller's CQ, on which the caller has started a poll.
    unsafe { end(Cq::of(cq.cast())) }
}

/// Moves to the next completion.
///
/// # Safety
/// The caller's CQ, on which the caller has started a poll.
unsafe fn advance(cq: *mut ffi::ibv_cq_ex) -> Result<(), Errno> {
    // SAFETY: by this function's own contract; these fields are under the lock, which the caller
    // holds.
    unsafe {
        let queue = Cq::of(cq.cast());
        let ring = (*queue.poll_ex.held.get()).as_deref_mut().ok_or(libc::EINVAL)?;
        let (completion, timestamp) = poll::next(queue, ring).ok_or(libc::ENOENT)?;
        ((*cq).wr_id, (*cq).status) = (completion.wr_id, completion.status);
        *queue.poll_ex.current.get() = completion;
        *queue.poll_ex.timestamp.get() = timestamp;
    }
    Ok(())
}

/// Ends the poll.
///
/// # Safety
/// The caller has started a poll of the CQ.
unsafe fn end(cq: &Cq) {
    // SAFETY: `held` is under the lock, which the caller holds. The guard is taken out first,
    // because another thread may write here after unlocking.
    let guard = unsafe { (*cq.poll_ex.held.get()).take() };
    if let Some(mut ring) = guard {
        ring.queue.publish();
        ring.end_poll();
    }
}

/// Defines functions that read a field of the current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty = |$wc:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ffi::ibv_cq_ex) -> $type {
            // SAFETY: the caller's CQ, on which the caller has started a poll.
            let $wc = unsafe { &*Cq::of(cq.cast()).poll_ex.current.get() };
            $value
        })*
    };
}

readers! {
    read_opcode -> ffi::ibv_wc_opcode = |wc| wc.opcode;
    read_vendor_err -> u32 = |wc| wc.vendor_err;
    read_byte_len -> u32 = |wc| wc.byte_len;
    // SAFETY: any bytes are a valid integer. With `IBV_WC_WITH_INV` it is the invalidated key.
    read_imm_data -> ffi::__be32 = |wc| unsafe { wc.__bindgen_anon_1.imm_data };
    read_qp_num -> u32 = |wc| wc.qp_num;
    read_src_qp -> u32 = |wc| wc.src_qp;
    read_wc_flags -> u32 = |wc| wc.wc_flags;
    read_zero -> u32 = |_wc| 0;
    read_zero_byte -> u8 = |_wc| 0;
}

unsafe extern "C" fn read_timestamp(cq: *mut ffi::ibv_cq_ex) -> u64 {
    // SAFETY: the caller's CQ, on which the caller has started a poll.
    unsafe { *Cq::of(cq.cast()).poll_ex.timestamp.get() }
}

/// Returns the wall-clock time of the completion, or 0 if the program did not ask for it when it
/// made the CQ.
unsafe extern "C" fn read_wallclock(cq: *mut ffi::ibv_cq_ex) -> u64 {
    // SAFETY: the caller's CQ, on which the caller has started a poll. Its state is under the lock,
    // which the caller holds.
    unsafe {
        let poll = &Cq::of(cq.cast()).poll_ex;
        let (timestamp, cmd_fd) = (*poll.timestamp.get(), (*(*cq).context).cmd_fd);
        (*poll.wall.get()).as_mut().map_or(0, |wall| wall.at(timestamp, cmd_fd))
    }
}
