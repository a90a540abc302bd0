//! Fake libibverbs functions for completion queues.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::c_int;

use vrdma_verbs::abi::user::{UserCreateCqReq, UserCreateCqResp, UserResizeCqReq};
use vrdma_verbs::abi::zerocopy::FromZeros;

use super::device::FakeCq;
use super::libibverbs::{driver_reply, driver_request, kernel, ordered_error};
use super::{MAX_CQE, Moment};
use crate::ffi::*;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    _channel: *mut ibv_comp_channel,
    _vector: c_int,
    cq: *mut ibv_cq,
    command: *mut ibv_create_cq,
    command_size: usize,
    reply: *mut ib_uverbs_create_cq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let request: UserCreateCqReq = driver_request(command.cast(), 40, command_size);
        driver_reply(reply.cast(), 8, reply_size, UserCreateCqResp::new_zeroed());
        add_cq(context, cq, &request, cqe, false);
        0
    }
}

unsafe fn add_cq(
    context: *mut ibv_context,
    cq: *mut ibv_cq,
    request: &UserCreateCqReq,
    cqe: c_int,
    is_timed: bool,
) {
    unsafe {
        assert!((1..=MAX_CQE).contains(&cqe), "memory for {cqe} entries that there cannot be");
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.cqs.insert(handle, FakeCq::new(request.buf.get(), request.entries.get(), is_timed));
        (*cq).context = context;
        (*cq).handle = handle;
        (*cq).cqe = cqe;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_cq_ex(
    context: *mut ibv_context,
    attr: *const ibv_cq_init_attr_ex,
    cq: *mut verbs_cq,
    command: *mut ibv_create_cq_ex,
    command_size: usize,
    reply: *mut ib_uverbs_ex_create_cq_resp,
    reply_size: usize,
    command_flags: u32,
) -> c_int {
    unsafe {
        assert_eq!(command_flags, 0);
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let request: UserCreateCqReq =
            driver_request(command.cast(), size_of::<ibv_create_cq_ex>(), command_size);
        let core = size_of::<ib_uverbs_ex_create_cq_resp>();
        driver_reply(reply.cast(), core, reply_size, UserCreateCqResp::new_zeroed());
        // The condition under which `ibv_cmd_create_cq_ex` requests time stamps from the kernel.
        let timestamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        let is_timed = (*attr).wc_flags & u64::from(timestamps) != 0;
        add_cq(context, cq.cast(), &request, (*attr).cqe as c_int, is_timed);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_resize_cq(
    cq: *mut ibv_cq,
    cqe: c_int,
    command: *mut ibv_resize_cq,
    command_size: usize,
    _reply: *mut ib_uverbs_resize_cq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(reply_size, 8);
        let request: UserResizeCqReq = driver_request(command.cast(), 24, command_size);
        assert!(request.entries.get() as c_int >= cqe && (1..=MAX_CQE).contains(&cqe));
        let context = (*cq).context;
        let kernel = kernel(context);
        let during = kernel.state().during_resize.take();
        if let Some(during) = during {
            during(&kernel, Moment::Before);
        }
        let ordered = ordered_error(context);
        // After EIO nobody knows whether the command was executed. Here it was.
        if ordered != 0 && ordered != libc::EIO {
            return ordered;
        }
        {
            let mut state = kernel.state();
            let device = state.cqs.get_mut(&(*cq).handle).unwrap();
            if !device.resize(request.buf.get(), request.entries.get(), request.held.get()) {
                return libc::EINVAL;
            }
        }
        if let Some(during) = during {
            during(&kernel, Moment::After);
        }
        if ordered == 0 {
            (*cq).cqe = request.entries.get() as c_int;
        }
        ordered
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_cq(
    cq: *mut ibv_cq,
    attr: *mut ibv_modify_cq_attr,
    _command: *mut ibv_modify_cq,
    command_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(command_size, size_of::<ibv_modify_cq>());
        let context = (*cq).context;
        let moderation = ((*attr).moderate.cq_count, (*attr).moderate.cq_period);
        kernel(context).state().moderation = Some(moderation);
        ordered_error(context)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int {
    unsafe {
        kernel((*cq).context).state().cqs.remove(&(*cq).handle);
    }
    0
}
