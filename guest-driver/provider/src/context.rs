//! An open device, and what its objects need of it.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::errno::{self, Errno};
use crate::ffi;
use crate::mapping::Mapping;
use crate::qp::Qp;
use crate::refs::Ref;
use crate::srq::Srq;
use crate::table::Table;
use crate::work::Work;

/// The driver ID of `vrdma.ko`, called `RDMA_DRIVER_UNKNOWN` in the kernel's enumeration.
const DRIVER_UNKNOWN: u32 = 0;

/// An open device. libibverbs allocates it (see [`Context::make`]).
#[repr(C)]
pub struct Context {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_context>,
    own: Own,
}

/// The provider's own part of a [`Context`].
pub struct Own {
    /// The path of requests to the device. Each post takes this lock, and no lock of a QP: this
    /// lock protects the posting side of all QPs.
    pub work: Mutex<Work>,
    /// All QPs by their numbers.
    pub qps: Table<Qp>,
    /// All XRC shared receive queues by their numbers.
    pub srqs: Table<Srq>,
    /// Most bytes of inline data in a request.
    pub max_inline: u32,
    /// Most elements (SGEs) of a request.
    pub max_sge: u32,
    /// Most entries of a CQ.
    pub max_cqe: u32,
    /// Functions that both device and kernel driver have (`VRDMA_CAP_*`).
    pub device_cap: u64,
    /// The device is lost for good, so posts do not wait for it. This flag is outside of the lock
    /// of `work`, because a waiting post holds that lock.
    pub lost: Ref<AtomicBool>,
    /// The mappings that `work` points into. The field comes after `work`, so that it is dropped
    /// later.
    pub _mappings: Vec<Mapping>,
}

// Memory of calloc() is aligned for all types of C.
const _: () = assert!(align_of::<Context>() <= 16);

impl Deref for Context {
    type Target = Own;

    #[inline]
    fn deref(&self) -> &Own {
        &self.own
    }
}

impl Context {
    /// Makes a context. `set_up` makes the provider's own part of it, by the part of rdma-core.
    ///
    /// # Safety
    /// `device` and `cmd_fd` are as for `alloc_context` of libibverbs.
    pub unsafe fn make(
        device: *mut ffi::ibv_device,
        cmd_fd: c_int,
        set_up: impl FnOnce(*mut ffi::verbs_context) -> Result<Own, Errno>,
    ) -> Result<*mut ffi::verbs_context, Errno> {
        const OFFSET: *mut ffi::verbs_context = ptr::without_provenance_mut(offset_of!(Context, verbs));
        // SAFETY: the caller's device and file descriptor. The new memory is a Context except for
        // our part, which is written last. If that fails, what libibverbs made is undone.
        unsafe {
            let size = size_of::<Self>();
            let context: *mut Self =
                ffi::_verbs_init_and_alloc_context(device, cmd_fd, size, OFFSET, DRIVER_UNKNOWN).cast();
            if context.is_null() {
                return Err(errno::last());
            }
            let verbs = (*context).verbs.get();
            match set_up(verbs) {
                Ok(own) => {
                    (&raw mut (*context).own).write(own);
                    Ok(verbs)
                }
                Err(errno) => {
                    discard(context);
                    Err(errno)
                }
            }
        }
    }

    /// Returns the context that libibverbs calls `context`.
    ///
    /// # Safety
    /// `context` was opened by this provider and isn't closed while the result is in use.
    #[inline]
    pub unsafe fn of<'a>(context: *mut ffi::ibv_context) -> &'a Self {
        const OFFSET: usize = offset_of!(Context, verbs) + offset_of!(ffi::verbs_context, context);
        // SAFETY: `context` is the part at that offset of a Context.
        unsafe { &*context.byte_sub(OFFSET).cast::<Self>() }
    }
}

/// The way back from an object of the tables.
impl Qp {
    /// Returns the context of the QP.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the QP was made, by ibv_cmd_create_qp(); a context outlives its objects.
        unsafe { Context::of((*self.ibv()).context) }
    }
}

/// The way back from an object of the tables.
impl Srq {
    /// Returns the context of the queue.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: set when the queue was made, by ibv_cmd_create_srq(); a context outlives its
        // objects.
        unsafe { Context::of((*self.ibv()).context) }
    }
}

/// Closes a device: ibv_close_device(3).
pub unsafe extern "C" fn free_context(context: *mut ffi::ibv_context) {
    // SAFETY: libibverbs frees a context once, after its objects; make() made both parts.
    unsafe {
        let context = ptr::from_ref(Context::of(context)).cast_mut();
        ptr::drop_in_place(&raw mut (*context).own);
        discard(context);
    }
}

/// Undoes `_verbs_init_and_alloc_context`.
///
/// # Safety
/// Nobody uses the context any more, and it does not contain our part (any more).
unsafe fn discard(context: *mut Context) {
    // SAFETY: by this function's own contract; the memory is calloc's.
    unsafe {
        ffi::verbs_uninit_context((*context).verbs.get());
        libc::free(context.cast());
    }
}

/// Handles an event of the device, which libibverbs has just read.
pub unsafe extern "C" fn async_event(context: *mut ffi::ibv_context, event: *mut ffi::ibv_async_event) {
    // SAFETY: the open context of libibverbs, and the event that it has just read.
    unsafe {
        if (*event).event_type == ffi::IBV_EVENT_DEVICE_FATAL {
            // Relaxed: posters read no other data with this flag.
            Context::of(context).lost.store(true, Ordering::Relaxed);
        }
    }
}
