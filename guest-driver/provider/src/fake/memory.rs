//! Fake libibverbs functions for protection domains, regions and memory windows.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::{c_int, c_void};

use vrdma_verbs::abi::user::AllocPdResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use super::Rereg;
use super::libibverbs::{driver_reply, kernel, ordered_error};
use crate::ffi::*;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    _command: *mut ibv_alloc_pd,
    _size: usize,
    reply: *mut ib_uverbs_alloc_pd_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        driver_reply(reply.cast(), 4, reply_size, AllocPdResp::new_zeroed());
        let kernel = kernel(context);
        let mut state = kernel.state();
        (*pd).context = context;
        (*pd).handle = state.new_handle();
        state.pds.insert((*pd).handle);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    unsafe {
        match ordered_error((*pd).context) {
            0 => {}
            error => return error,
        }
        assert!(kernel((*pd).context).state().pds.remove(&(*pd).handle));
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _hca_va: u64,
    _access: c_int,
    mr: *mut verbs_mr,
    _command: *mut ibv_reg_mr,
    _command_size: usize,
    _reply: *mut ib_uverbs_reg_mr_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error((*pd).context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel((*pd).context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.mrs.insert(handle, length);
        (*mr).ibv_mr = ibv_mr { context: (*pd).context, pd, addr, length, handle, lkey: 7, rkey: 8 };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dereg_mr(mr: *mut verbs_mr) -> c_int {
    unsafe {
        let ibv_mr { context, handle, .. } = (*mr).ibv_mr;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        assert!(kernel(context).state().mrs.remove(&handle).is_some());
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_rereg_mr(
    mr: *mut verbs_mr,
    flags: u32,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
    _pd: *mut ibv_pd,
    _command: *mut ibv_rereg_mr,
    _command_size: usize,
    _reply: *mut ib_uverbs_rereg_mr_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        let mr = &mut (*mr).ibv_mr;
        match ordered_error(mr.context) {
            0 => {}
            error => return error,
        }
        let asked = Rereg { flags, addr: addr.addr() as u64, length, iova: hca_va, access };
        kernel(mr.context).state().rereg = Some(asked);
        (mr.lkey, mr.rkey) = (mr.lkey + 0x100, mr.rkey + 0x100);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_mw(
    pd: *mut ibv_pd,
    mw_type: ibv_mw_type,
    mw: *mut ibv_mw,
    _command: *mut ibv_alloc_mw,
    _command_size: usize,
    _reply: *mut ib_uverbs_alloc_mw_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        let context = (*pd).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        kernel(context).state().mws += 1;
        // The key tag has its largest value, so the next one wraps.
        *mw = ibv_mw { context, pd, rkey: 0x55ff, handle: 1, type_: mw_type };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    unsafe {
        match ordered_error((*mw).context) {
            0 => {}
            error => return error,
        }
        kernel((*mw).context).state().mws -= 1;
        0
    }
}
