//! Address handles.

use std::ffi::c_int;

use vrdma_verbs::abi::user::UserCreateAhResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::errno::{Errno, boxed, check, code, object};
use crate::ffi;
use crate::objects::zeroed;
use crate::pd::Pd;
use crate::refs::Ref;

/// Reply of `ibv_cmd_create_ah` with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_create_ah_resp,
    driver: UserCreateAhResp,
}

/// An address handle.
#[repr(C)]
pub struct Ah {
    verbs: ffi::ibv_ah,
    /// Index in the table of address handles.
    pub index: u32,
    _pd: Ref<Pd>,
}

impl Ah {
    /// Returns the index of the address handle that libibverbs calls `ah`, or `None` for NULL.
    ///
    /// # Safety
    /// `ah` is NULL or was made by this provider and is not destroyed.
    #[inline]
    pub unsafe fn index_of(ah: *const ffi::ibv_ah) -> Option<u32> {
        // SAFETY: by this function's own contract; `ibv_ah` is the first field.
        unsafe { ah.cast::<Self>().as_ref() }.map(|ah| ah.index)
    }
}

pub unsafe extern "C" fn create_ah(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    let create = || -> Result<*mut ffi::ibv_ah, Errno> {
        // SAFETY: the caller's PD.
        let mut ah = boxed(Ah { verbs: zeroed!(), index: 0, _pd: unsafe { Pd::of(pd) } })?;
        let mut reply = Reply { ibv: zeroed!(), driver: UserCreateAhResp::new_zeroed() };
        // SAFETY: the caller's PD and attributes; the reply is as long as stated.
        check(unsafe {
            ffi::ibv_cmd_create_ah(pd, &raw mut ah.verbs, attr, &raw mut reply.ibv, size_of::<Reply>())
        })?;
        ah.index = reply.driver.ah.get();
        Ok(Box::into_raw(ah).cast())
    };
    object(create())
}

pub unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: made by create_ah(), and unused after the kernel has destroyed it.
    unsafe { code(check(ffi::ibv_cmd_destroy_ah(ah)).map(|()| drop(Box::from_raw(ah.cast::<Ah>())))) }
}
