//! A shared receive queue: what posts and polls need of it.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Mutex;

use crate::errno::Errno;
use crate::ffi::{self, zeroed};
use crate::pd::Pd;
use crate::refs::Ref;
use crate::slots::Slots;
use crate::table::Numbered;

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    /// rdma-core's part, which rdma-core may change at any time.
    pub(super) verbs: UnsafeCell<ffi::verbs_srq>,
    /// Number of the queue.
    pub srqn: u32,
    /// Most SGEs of a request.
    pub max_sge: u32,
    /// Outstanding receives. Each post locks them for a moment, under the lock of
    /// [`crate::context::Own::work`]. So does each poll that finds a completion of the queue, under
    /// the lock of the CQ.
    pub slots: Mutex<Slots>,
    /// Held during a resize.
    pub(super) resizing: Mutex<()>,
    /// CQ of the receives of an XRC queue; otherwise NULL.
    pub(super) cq: *mut ffi::ibv_cq,
    _pd: Ref<Pd>,
}

impl Srq {
    /// Makes a queue that the kernel does not know yet.
    pub(super) fn new(max_sge: u32, cq: *mut ffi::ibv_cq, pd: Ref<Pd>) -> Result<Self, Errno> {
        Ok(Self {
            verbs: UnsafeCell::new(zeroed!()),
            srqn: 0,
            max_sge,
            slots: Mutex::new(Slots::new(0)?),
            resizing: Mutex::new(()),
            cq,
            _pd: pd,
        })
    }

    /// Returns the queue that libibverbs calls `srq`.
    ///
    /// # Safety
    /// `srq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(srq: *mut ffi::ibv_srq) -> &'a Self {
        // SAFETY: `ibv_srq` is the beginning of `verbs_srq`, the first field.
        unsafe { &*srq.cast::<Self>() }
    }

    /// Returns the queue as libibverbs calls it.
    #[inline]
    pub fn ibv(&self) -> *mut ffi::ibv_srq {
        self.verbs.get().cast()
    }
}

impl Numbered for Srq {
    fn number(&self) -> u32 {
        self.srqn
    }

    fn cqs(&self) -> [*mut ffi::ibv_cq; 2] {
        [self.cq, ptr::null_mut()]
    }
}
