//! A completion queue.

use std::cell::UnsafeCell;
use std::sync::Mutex;

use super::lock::RingLock;
use super::started::Started;
use crate::context::Context;
use crate::ffi;
use crate::pd::Pd;
use crate::refs::Ref;

/// A completion queue.
#[repr(C)]
pub struct Cq {
    /// rdma-core's part, which rdma-core may change at any time.
    pub(super) verbs: UnsafeCell<ffi::verbs_cq>,
    /// State of ibv_start_poll(). The field comes before `ring`, to which it points, so that it is
    /// dropped first.
    pub started: Started,
    /// The ring. Each poll and each arm locks it.
    pub ring: RingLock,
    /// The CQEs have a time stamp.
    pub is_timed: bool,
    /// Held during a resize. `ring` is locked under it, but not while the resize waits for the
    /// device.
    pub resizing: Mutex<()>,
    /// The parent domain of the queue, if it has one. The field comes after the memory from its
    /// allocators.
    pub domain: Option<Ref<Pd>>,
}

impl Cq {
    /// Returns the queue that libibverbs calls `cq`.
    ///
    /// # Safety
    /// `cq` was made by this provider and isn't destroyed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(cq: *mut ffi::ibv_cq) -> &'a Self {
        // SAFETY: `ibv_cq` is the beginning of `verbs_cq`, the first field.
        unsafe { &*cq.cast::<Self>() }
    }

    /// Returns the queue as libibverbs calls it.
    #[inline]
    pub fn ibv(&self) -> *mut ffi::ibv_cq {
        self.verbs.get().cast()
    }

    /// Returns the context of the queue.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_cq(); a context outlives its
        // objects.
        unsafe { Context::of((*self.ibv()).context) }
    }
}
