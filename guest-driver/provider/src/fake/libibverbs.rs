//! Fake libibverbs functions for drivers and contexts, and helpers of the other fakes.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use vrdma_verbs::abi::user::AllocContextReq;
use vrdma_verbs::abi::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Kernel, MAX_CQE};
use crate::ffi::*;

/// Number of registered drivers.
pub static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// The operations given for a context. In rdma-core they are in its private part.
struct Private(verbs_context_ops);

/// Returns the operations of a context.
pub unsafe fn ops<'a>(context: *mut verbs_context) -> &'a verbs_context_ops {
    unsafe { &(*(*context).priv_.cast::<Private>()).0 }
}

pub unsafe fn kernel(context: *mut ibv_context) -> std::sync::Arc<Kernel> {
    Kernel::of(unsafe { (*context).cmd_fd })
}

/// Returns the error that a test has set for the next command.
pub unsafe fn ordered_error(context: *mut ibv_context) -> c_int {
    std::mem::take(&mut unsafe { kernel(context) }.state().command_error)
}

/// Destroys a queue in the kernel, and then runs the program's actions before it acknowledges the
/// queue's events.
pub(super) unsafe fn destroyed(context: *mut ibv_context) {
    let kernel = unsafe { kernel(context) };
    let meanwhile = {
        let mut state = kernel.state();
        state.queues -= 1;
        state.during_destroy.take()
    };
    if let Some(meanwhile) = meanwhile {
        meanwhile();
    }
}

pub(super) unsafe fn driver_request<T: FromBytes>(command: *const u8, core: usize, size: usize) -> T {
    assert_eq!(size, core + size_of::<T>());
    T::read_from_bytes(unsafe { std::slice::from_raw_parts(command.add(core), size_of::<T>()) }).unwrap()
}

pub(super) unsafe fn driver_reply<T: IntoBytes + Immutable>(
    reply: *mut u8,
    core: usize,
    size: usize,
    value: T,
) {
    assert_eq!(size, core + size_of::<T>());
    let bytes = value.as_bytes();
    unsafe { reply.add(core).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

#[unsafe(no_mangle)]
extern "C" fn verbs_register_driver_34(_ops: *const verbs_device_ops) {
    REGISTERED.fetch_add(1, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _verbs_init_and_alloc_context(
    device: *mut ibv_device,
    cmd_fd: c_int,
    size: usize,
    offset: *mut verbs_context,
    driver_id: u32,
) -> *mut c_void {
    assert_eq!(driver_id, 0);
    unsafe {
        let memory = libc::calloc(1, size);
        let verbs = memory.byte_add(offset.addr()).cast::<verbs_context>();
        (*verbs).context.device = device;
        (*verbs).context.cmd_fd = cmd_fd;
        (*verbs).priv_ = Box::into_raw(Box::new(Private(std::mem::zeroed()))).cast();
        Kernel::of(cmd_fd).state().contexts += 1;
        memory
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn verbs_uninit_context(context: *mut verbs_context) {
    unsafe {
        drop(Box::from_raw((*context).priv_.cast::<Private>()));
        kernel(&raw mut (*context).context).state().contexts -= 1;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn verbs_set_ops(context: *mut verbs_context, ops: *const verbs_context_ops) {
    unsafe { (*(*context).priv_.cast::<Private>()).0 = ops.read() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_get_context(
    context: *mut verbs_context,
    command: *mut ibv_get_context,
    command_size: usize,
    reply: *mut ib_uverbs_get_context_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        let context = &raw mut (*context).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel(context);
        let request: AllocContextReq = driver_request(command.cast(), 16, command_size);
        kernel.state().context_flags = request.flags.get();
        // As much as there is room for.
        let written = kernel.reply_len.min(reply_size - 8);
        let bytes = &kernel.reply.as_bytes()[..written];
        reply.cast::<u8>().add(8).copy_from_nonoverlapping(bytes.as_ptr(), written);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_device_any(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
    reply: *mut ib_uverbs_ex_query_device_resp,
    _reply_size: *mut usize,
) -> c_int {
    unsafe {
        assert_eq!(attr_size, size_of_val(&*attr));
        *attr = std::mem::zeroed();
        let attr = &mut (*attr).orig_attr;
        // 14 SGEs, which fit into 4 units.
        (attr.max_cqe, attr.max_sge, attr.max_sge_rd, attr.max_srq_sge) = (MAX_CQE, 14, 14, 14);
        (*reply).base.fw_ver = 1 << 32 | 2 << 16 | 3;
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_query_port(
    _context: *mut ibv_context,
    _port: u8,
    _attr: *mut ibv_port_attr,
    _command: *mut ibv_query_port,
    _size: usize,
) -> c_int {
    0
}
