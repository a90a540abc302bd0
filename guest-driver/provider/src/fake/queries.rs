//! Fake kernel: device memory, and queries by a process that imports objects.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs and the kernel"
)]

use std::ffi::c_int;

use vrdma_verbs::abi::user::{
    AllocContextExResp, AllocContextResp, AllocPdResp, QueryDmResp, UserClockResp, uverbs,
};
use vrdma_verbs::abi::zerocopy::{FromZeros, IntoBytes};

use super::libibverbs::{kernel, ordered_error};
use super::{Kernel, PAGE, State};
use crate::ffi::*;

/// Added to the handle of a PD, gives its PDN.
const PDN: u32 = 0x1000;

/// Answers the driver's methods that describe a context and its objects. Returns an errno.
pub unsafe fn answer(
    kernel: &Kernel,
    state: &mut State,
    method: u32,
    attributes: &[ib_uverbs_attr],
) -> c_int {
    let find = |id| attributes.iter().find(|attribute| u32::from(attribute.attr_id) == id);
    let handle = find(uverbs::ATTR_QUERY_HANDLE).map(|attribute| {
        assert_eq!(attribute.len, 0);
        unsafe { attribute.__bindgen_anon_1.data as u32 }
    });
    let out = find(uverbs::ATTR_QUERY_RESP).unwrap();
    let reply = match (method, handle) {
        (uverbs::METHOD_QUERY_CONTEXT, None) => {
            let base = AllocContextResp {
                max_qp: kernel.reply.base.max_qp,
                max_inline: kernel.reply.base.max_inline,
                max_wqe_units: kernel.reply.base.max_wqe_units,
                ..AllocContextResp::new_zeroed()
            };
            let device_cap = kernel.reply.device_cap;
            AllocContextExResp { base, device_cap, reserved: [0; 56] }.as_bytes().to_vec()
        }
        (uverbs::METHOD_QUERY_PD, Some(pd)) if state.pds.contains(&pd) => {
            AllocPdResp { pdn: (PDN + pd).into(), ..AllocPdResp::new_zeroed() }.as_bytes().to_vec()
        }
        (uverbs::METHOD_QUERY_DM, Some(dm)) if state.dms.contains_key(&dm) => {
            let (offset, length) = state.dms[&dm];
            let mmap_len = length.next_multiple_of(PAGE);
            let reply = QueryDmResp { mmap: offset.into(), mmap_len: mmap_len.into(), length: length.into() };
            reply.as_bytes().to_vec()
        }
        (uverbs::METHOD_QUERY_PD | uverbs::METHOD_QUERY_DM, Some(_)) => return libc::ENOENT,
        (uverbs::METHOD_QUERY_CLOCK, None) => {
            state.clock_queries += 1;
            match std::mem::take(&mut state.command_error) {
                0 => UserClockResp { clock: state.clock.into() }.as_bytes().to_vec(),
                error => return error,
            }
        }
        method => panic!("method {method:?}"),
    };
    assert_eq!(usize::from(out.len), reply.len());
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(out.__bindgen_anon_1.data as usize);
        to.copy_from_nonoverlapping(reply.as_ptr(), reply.len());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_context(
    context: *mut ibv_context,
    driver: *mut ibv_command_buffer,
) -> c_int {
    assert!(driver.is_null());
    unsafe {
        (*context).num_comp_vectors = 3;
        ordered_error(context)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_dm(
    context: *mut ibv_context,
    attr: *const ibv_alloc_dm_attr,
    dm: *mut verbs_dm,
    link: *mut ibv_command_buffer,
) -> c_int {
    assert!(link.is_null());
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        let (offset, length) = (kernel.file.metadata().unwrap().len(), (*attr).length as u64);
        kernel.file.set_len(offset + length.next_multiple_of(PAGE)).unwrap();
        state.dms.insert(handle, (offset, length));
        (*dm).handle = handle;
        (*dm).dm.handle = handle;
        (*dm).dm.context = context;
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_free_dm(dm: *mut verbs_dm) -> c_int {
    unsafe {
        match ordered_error((*dm).dm.context) {
            0 => {}
            error => return error,
        }
        assert!(kernel((*dm).dm.context).state().dms.remove(&(*dm).handle).is_some());
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut verbs_dm,
    offset: u64,
    length: usize,
    access: u32,
    mr: *mut verbs_mr,
    link: *mut ibv_command_buffer,
) -> c_int {
    assert!(link.is_null());
    if access & IBV_ACCESS_ZERO_BASED == 0 {
        return libc::EINVAL;
    }
    unsafe {
        let kernel = kernel((*pd).context);
        let mut state = kernel.state();
        let (_, whole) = state.dms[&(*dm).handle];
        if offset.checked_add(length as u64).is_none_or(|end| end > whole) {
            return libc::EINVAL;
        }
        let handle = state.new_handle();
        state.mrs.insert(handle, length);
        let addr = std::ptr::null_mut();
        (*mr).ibv_mr = ibv_mr { context: (*pd).context, pd, addr, length, handle, lkey: 7, rkey: 8 };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_mr(pd: *mut ibv_pd, mr: *mut verbs_mr, handle: u32) -> c_int {
    unsafe {
        let context = (*pd).context;
        let kernel = kernel(context);
        let state = kernel.state();
        let Some(&length) = state.mrs.get(&handle) else { return libc::ENOENT };
        let addr = std::ptr::null_mut();
        (*mr).ibv_mr = ibv_mr { context, pd, addr, length, handle, lkey: 7, rkey: 8 };
        0
    }
}
