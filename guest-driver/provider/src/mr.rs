//! Memory regions.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use vrdma_verbs::abi::control::device_cap;

use crate::context::Context;
use crate::errno::{self, Errno, boxed, check, code, object};
use crate::ffi;
use crate::objects::zeroed;
use crate::pd::Pd;
use crate::refs::Ref;

/// A memory region.
#[repr(C)]
pub struct Mr {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::verbs_mr>,
    /// PD of the last registration.
    pd: Ref<Pd>,
}

impl Mr {
    /// Makes the object of a region for libibverbs. `fill` registers the region in the kernel, or
    /// finds it there.
    ///
    /// # Safety
    /// `pd` was made by this provider, and is not deallocated.
    pub unsafe fn make(
        pd: *mut ffi::ibv_pd,
        fill: impl FnOnce(*mut ffi::verbs_mr) -> c_int,
    ) -> Result<*mut ffi::ibv_mr, Errno> {
        // SAFETY: by this function's own contract.
        let mr = boxed(Self { verbs: UnsafeCell::new(zeroed!()), pd: unsafe { Pd::of(pd) } })?;
        check(fill(mr.verbs.get()))?;
        // `ibv_mr` is the first field of `verbs_mr`.
        Ok(Box::into_raw(mr).cast())
    }
}

pub unsafe extern "C" fn reg_mr(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let mut command: ffi::ibv_reg_mr = zeroed!();
    let mut reply: ffi::ib_uverbs_reg_mr_resp = zeroed!();
    let (command_size, reply_size) = (size_of_val(&command), size_of_val(&reply));
    // SAFETY: the caller's PD; the kernel checks the memory.
    object(unsafe {
        Mr::make(pd, |mr| {
            let (command, reply) = (&raw mut command, &raw mut reply);
            ffi::ibv_cmd_reg_mr(
                pd,
                addr,
                length,
                hca_va,
                access,
                mr,
                command,
                command_size,
                reply,
                reply_size,
            )
        })
    })
}

/// Registers a region again. libibverbs chooses one of the codes of ibv_rereg_mr(3); errno has the
/// reason.
pub unsafe extern "C" fn rereg_mr(
    mr: *mut ffi::verbs_mr,
    flags: c_int,
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's region, which belongs to an open context.
    let context = unsafe { Context::of((*mr).ibv_mr.context) };
    let register = || -> Result<(), Errno> {
        if context.device_cap & device_cap::REREG_MR == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let mut command: ffi::ibv_rereg_mr = zeroed!();
        let mut reply: ffi::ib_uverbs_rereg_mr_resp = zeroed!();
        // SAFETY: the caller's region and PD; the kernel checks the memory.
        check(unsafe {
            ffi::ibv_cmd_rereg_mr(
                mr,
                flags as u32,
                addr,
                length,
                addr.addr() as u64,
                access,
                pd,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply,
                size_of_val(&reply),
            )
        })
    };
    match register() {
        Ok(()) => {
            if flags & ffi::IBV_REREG_MR_CHANGE_PD as c_int != 0 {
                // SAFETY: the caller's region, which nobody else uses meanwhile, and the caller's
                // PD.
                unsafe { (*mr.cast::<Mr>()).pd = Pd::of(pd) };
            }
            0
        }
        Err(errno) => {
            errno::set(errno);
            ffi::IBV_REREG_MR_ERR_CMD
        }
    }
}

pub unsafe extern "C" fn dereg_mr(mr: *mut ffi::verbs_mr) -> c_int {
    // SAFETY: made by Mr::make(), and unused after the kernel has deregistered it.
    unsafe { code(check(ffi::ibv_cmd_dereg_mr(mr)).map(|()| drop(Box::from_raw(mr.cast::<Mr>())))) }
}

pub unsafe extern "C" fn import_mr(pd: *mut ffi::ibv_pd, handle: u32) -> *mut ffi::ibv_mr {
    // SAFETY: the caller's PD.
    object(unsafe { Mr::make(pd, |mr| ffi::ibv_cmd_query_mr(pd, mr, handle)) })
}

pub unsafe extern "C" fn unimport_mr(mr: *mut ffi::ibv_mr) {
    // SAFETY: made by import_mr(), and not used any more; the kernel keeps the region.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
}
