//! Fake libibverbs functions for shared receive queues.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::c_int;

use vrdma_verbs::abi::user::UserCreateSrqResp;

use super::libibverbs::{destroyed, driver_reply, kernel, ordered_error};
use crate::ffi::*;

/// Most receives of a shared queue.
const MAX_SRQ_WR: u32 = 32768;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_srq(
    pd: *mut ibv_pd,
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_init_attr,
    _command: *mut ibv_create_srq,
    _command_size: usize,
    reply: *mut ib_uverbs_create_srq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        let context = (*pd).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        if !(1..=MAX_SRQ_WR).contains(&(*attr).attr.max_wr) {
            return libc::EINVAL;
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.queues += 1;
        state.srqs.insert(handle, ((*attr).attr.max_wr, 0));
        (*srq).context = context;
        (*srq).handle = handle;
        // A number unlike those of QPs.
        let srqn = 0xab_0000 + handle;
        driver_reply(
            reply.cast(),
            16,
            reply_size,
            UserCreateSrqResp { srqn: srqn.into(), ..Default::default() },
        );
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
    _command: *mut ibv_modify_srq,
    _size: usize,
) -> c_int {
    unsafe {
        match ordered_error((*srq).context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel((*srq).context);
        let mut state = kernel.state();
        let (max_wr, limit) = state.srqs.get_mut(&(*srq).handle).unwrap();
        if mask as u32 & IBV_SRQ_MAX_WR != 0 {
            if !(1..=MAX_SRQ_WR).contains(&(*attr).max_wr) {
                return libc::EINVAL;
            }
            *max_wr = (*attr).max_wr;
        }
        if mask as u32 & IBV_SRQ_LIMIT != 0 {
            *limit = (*attr).srq_limit;
        }
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    _command: *mut ibv_query_srq,
    _size: usize,
) -> c_int {
    unsafe {
        let kernel = kernel((*srq).context);
        let (max_wr, srq_limit) = kernel.state().srqs[&(*srq).handle];
        *attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_srq(srq: *mut ibv_srq) -> c_int {
    unsafe {
        match ordered_error((*srq).context) {
            0 => {}
            error => return error,
        }
        kernel((*srq).context).state().srqs.remove(&(*srq).handle);
        destroyed((*srq).context);
        0
    }
}
