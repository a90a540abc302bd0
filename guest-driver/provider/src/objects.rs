//! Queries of device and port, which the kernel answers.

use std::ffi::c_int;
use std::fmt::Write;
use std::ptr;

use crate::context::Context;
use crate::errno::{Errno, check, code};
use crate::ffi;

/// Makes a C structure of which all bytes may be zero.
macro_rules! zeroed {
    () => {
        // SAFETY: used for integers, pointers, optional function pointers, and pthread objects that
        // are not in use yet.
        unsafe { std::mem::zeroed() }
    };
}
pub(crate) use zeroed;

pub unsafe extern "C" fn query_device_ex(
    context: *mut ffi::ibv_context,
    input: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: the caller's open context, input and attributes.
    code(unsafe {
        query_device(context, input, attr, attr_size).map(|fw_ver| {
            let (attr, context) = (&mut (*attr).orig_attr, Context::of(context));
            write_version(fw_ver, &mut attr.fw_ver);
            // A context's channel may be too small for the device's largest request.
            let most = c_int::try_from(context.max_sge).unwrap_or(c_int::MAX);
            for max_sge in [&mut attr.max_sge, &mut attr.max_sge_rd, &mut attr.max_srq_sge] {
                *max_sge = most.min(*max_sge);
            }
        })
    })
}

/// Queries the most entries of a CQ. The context need not be set up.
///
/// # Safety
/// libibverbs has made the context.
pub unsafe fn max_cqe(context: *mut ffi::ibv_context) -> Result<u32, Errno> {
    let mut attr: ffi::ibv_device_attr_ex = zeroed!();
    // SAFETY: by this function's own contract; the attributes are as long as stated.
    unsafe { query_device(context, ptr::null(), &raw mut attr, size_of_val(&attr)) }?;
    u32::try_from(attr.orig_attr.max_cqe).map_err(|_| libc::EPROTO)
}

/// Queries the device by the kernel, and returns the device's version.
///
/// # Safety
/// As for the arguments of ibv_query_device_ex(3), except that the context need not contain our
/// part.
unsafe fn query_device(
    context: *mut ffi::ibv_context,
    input: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    attr_size: usize,
) -> Result<u64, Errno> {
    let mut reply: ffi::ib_uverbs_ex_query_device_resp = zeroed!();
    let mut reply_size = size_of_val(&reply);
    // SAFETY: by this function's own contract.
    check(unsafe {
        ffi::ibv_cmd_query_device_any(context, input, attr, attr_size, &raw mut reply, &raw mut reply_size)
    })?;
    Ok(reply.base.fw_ver)
}

/// Writes `version` (major << 32 | minor << 16 | patch) as a C string.
fn write_version(version: u64, to: &mut [core::ffi::c_char; 64]) {
    struct Text<'a>(std::slice::IterMut<'a, core::ffi::c_char>);
    impl Write for Text<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                *self.0.next().ok_or(std::fmt::Error)? = byte as core::ffi::c_char;
            }
            Ok(())
        }
    }
    to.fill(0);
    let (major, minor, patch) = (version >> 32, version >> 16 & 0xffff, version & 0xffff);
    // At most 22 characters, so the text fits and the string ends.
    let _ = write!(Text(to.iter_mut()), "{major}.{minor}.{patch}");
}

pub unsafe extern "C" fn query_port(
    context: *mut ffi::ibv_context,
    port: u8,
    attr: *mut ffi::ibv_port_attr,
) -> c_int {
    let mut command: ffi::ibv_query_port = zeroed!();
    // SAFETY: the caller's context and attributes.
    code(check(unsafe {
        ffi::ibv_cmd_query_port(context, port, attr, &raw mut command, size_of_val(&command))
    }))
}

#[cfg(test)]
pub fn version_text(version: u64) -> String {
    let mut text = [1; 64];
    write_version(version, &mut text);
    text.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}
