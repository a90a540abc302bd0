//! The operations of the provider. This file alone names all of them.

use std::ffi::{OsStr, c_int, c_void};

use crate::device::{self, Entry};
use crate::errno::{Errno, object};
use crate::ffi::{self, zeroed};
use crate::{ah, clock, context, cq, dm, mr, pd, post, qp, queries, srq, windows, xrcd};

/// Opens a device: `alloc_context` of libibverbs, ibv_open_device(3).
pub unsafe extern "C" fn alloc_context(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    _private: *mut c_void,
) -> *mut ffi::verbs_context {
    let wants_channel = !is_set(std::env::var_os("VRDMA_NO_CHANNEL").as_deref());
    // SAFETY: the caller's device and file descriptor.
    object(unsafe { open(device, cmd_fd, Entry::Open { wants_channel }) })
}

/// Imports a context: `import_context` of libibverbs, ibv_import_device(3).
pub unsafe extern "C" fn import_context(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
) -> *mut ffi::verbs_context {
    // SAFETY: the caller's device, and a file descriptor of a context that this provider has
    // opened, in this process or in another one.
    object(unsafe { open(device, cmd_fd, Entry::Import) })
}

/// Opens a device for [`alloc_context`] and [`import_context`], and sets the operations of its
/// context.
///
/// # Safety
/// `device` and `cmd_fd` are as for `alloc_context`.
pub unsafe fn open(
    device: *mut ffi::ibv_device,
    cmd_fd: c_int,
    entry: Entry,
) -> Result<*mut ffi::verbs_context, Errno> {
    // SAFETY: by this function's own contract; the table is copied.
    unsafe {
        let verbs = device::open(device, cmd_fd, entry)?;
        ffi::verbs_set_ops(verbs, &ops());
        Ok(verbs)
    }
}

/// Whether an environment variable with this value is set: neither empty nor `0`.
fn is_set(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the operations of this provider. libibverbs has defaults for the others (mostly
/// EOPNOTSUPP).
fn ops() -> ffi::verbs_context_ops {
    ffi::verbs_context_ops {
        alloc_dm: Some(dm::alloc_dm),
        alloc_mw: Some(windows::alloc_mw),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        alloc_pd: Some(pd::alloc_pd),
        alloc_td: Some(pd::alloc_td),
        async_event: Some(context::async_event),
        attach_mcast: Some(ffi::ibv_cmd_attach_mcast),
        bind_mw: Some(windows::bind_mw),
        close_xrcd: Some(xrcd::close_xrcd),
        create_ah: Some(ah::create_ah),
        create_cq: Some(cq::create_cq),
        create_cq_ex: Some(cq::create_cq_ex),
        create_qp: Some(qp::create_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        create_srq: Some(srq::create_srq),
        create_srq_ex: Some(srq::create_srq_ex),
        dealloc_mw: Some(windows::dealloc_mw),
        dealloc_pd: Some(pd::dealloc_pd),
        dealloc_td: Some(pd::dealloc_td),
        dereg_mr: Some(mr::dereg_mr),
        destroy_ah: Some(ah::destroy_ah),
        destroy_cq: Some(cq::destroy_cq),
        destroy_qp: Some(qp::destroy_qp),
        destroy_srq: Some(srq::destroy_srq),
        detach_mcast: Some(ffi::ibv_cmd_detach_mcast),
        free_context: Some(context::free_context),
        free_dm: Some(dm::free_dm),
        get_srq_num: Some(srq::get_srq_num),
        import_dm: Some(dm::import_dm),
        import_mr: Some(mr::import_mr),
        import_pd: Some(pd::import_pd),
        modify_cq: Some(cq::modify_cq),
        modify_qp: Some(qp::modify_qp),
        modify_srq: Some(srq::modify_srq),
        open_qp: Some(qp::open_qp),
        open_xrcd: Some(xrcd::open_xrcd),
        poll_cq: Some(cq::poll_cq),
        post_recv: Some(post::post_recv),
        post_send: Some(post::post_send),
        post_srq_recv: Some(post::post_srq_recv),
        query_device_ex: Some(queries::query_device_ex),
        query_port: Some(queries::query_port),
        query_qp: Some(qp::query_qp),
        query_rt_values: Some(clock::query_rt_values),
        query_srq: Some(srq::query_srq),
        reg_dm_mr: Some(dm::reg_dm_mr),
        reg_mr: Some(mr::reg_mr),
        req_notify_cq: Some(cq::req_notify_cq),
        rereg_mr: Some(mr::rereg_mr),
        resize_cq: Some(cq::resize_cq),
        unimport_dm: Some(dm::unimport_dm),
        unimport_mr: Some(mr::unimport_mr),
        unimport_pd: Some(pd::unimport_pd),
        ..zeroed!()
    }
}

#[cfg(test)]
mod tests {
    use super::is_set;

    #[test]
    fn variables_that_ask() {
        for (value, asks) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(is_set(value.map(str::as_ref)), asks, "{value:?}");
        }
    }
}
