//! XRC domains, which processes share by a file: ibv_open_xrcd(3).

use std::ffi::c_int;

use crate::errno::{Errno, boxed, check, code, object};
use crate::ffi;
use crate::objects::zeroed;

pub unsafe extern "C" fn open_xrcd(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_xrcd_init_attr,
) -> *mut ffi::ibv_xrcd {
    let open = || -> Result<*mut ffi::ibv_xrcd, Errno> {
        let mut xrcd: Box<ffi::verbs_xrcd> = boxed(zeroed!())?;
        let mut command: ffi::ibv_open_xrcd = zeroed!();
        let mut reply: ffi::ib_uverbs_open_xrcd_resp = zeroed!();
        // SAFETY: the caller's context and attributes; all lengths are as stated.
        check(unsafe {
            ffi::ibv_cmd_open_xrcd(
                context,
                &raw mut *xrcd,
                size_of::<ffi::verbs_xrcd>() as c_int,
                attr,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply,
                size_of_val(&reply),
            )
        })?;
        // `verbs_xrcd` begins with `ibv_xrcd`.
        Ok(Box::into_raw(xrcd).cast())
    };
    object(open())
}

pub unsafe extern "C" fn close_xrcd(xrcd: *mut ffi::ibv_xrcd) -> c_int {
    let xrcd: *mut ffi::verbs_xrcd = xrcd.cast();
    // SAFETY: made by open_xrcd(), and unused after the kernel has closed it.
    unsafe { code(check(ffi::ibv_cmd_close_xrcd(xrcd)).map(|()| drop(Box::from_raw(xrcd)))) }
}
