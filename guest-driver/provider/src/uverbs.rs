//! The driver's own ioctls (see `vrdma_abi::user::uverbs`).

use std::ffi::{c_int, c_ulong};

use vrdma_verbs::Unit;
use vrdma_verbs::abi::user::{AllocContextExResp, AllocPdResp, QueryDmResp, UserClockResp, uverbs};
use vrdma_verbs::abi::zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::errno::{self, Errno};
use crate::ffi;

/// Most 64-byte units of the requests of one [`post`].
pub const POST_MAX_UNITS: usize = uverbs::POST_MAX_UNITS as usize;

/// `RDMA_VERBS_IOCTL`: `_IOWR(RDMA_IOCTL_MAGIC, 1, struct ib_uverbs_ioctl_hdr)`.
const VERBS_IOCTL: c_ulong = {
    const READ_AND_WRITE: c_ulong = 3 << 30;
    let size = size_of::<ffi::ib_uverbs_ioctl_hdr>() as c_ulong;
    READ_AND_WRITE | size << 16 | (ffi::RDMA_IOCTL_MAGIC as c_ulong) << 8 | 1
};

/// Most attributes of a call.
const MAX_ATTRIBUTES: usize = 2;

/// A call with its attributes. The header has their number.
#[repr(C)]
struct Call {
    header: ffi::ib_uverbs_ioctl_hdr,
    attributes: [ffi::ib_uverbs_attr; MAX_ATTRIBUTES],
}

/// Posts whole requests through the kernel's channel: all of them, or none and an error.
pub fn post(cmd_fd: c_int, units: &[Unit]) -> Result<(), Errno> {
    let len = size_of_val(units).try_into().map_err(|_| libc::EINVAL)?;
    let units = attribute(uverbs::ATTR_POST_UNITS, len, units.as_ptr().addr() as u64);
    call(cmd_fd, uverbs::METHOD_POST, &[units])
}

/// Kicks the context's own channel.
pub fn kick(cmd_fd: c_int) -> Result<(), Errno> {
    call(cmd_fd, uverbs::METHOD_KICK, &[])
}

/// Queries what a process that imports the context needs.
pub fn query_context(cmd_fd: c_int) -> Result<AllocContextExResp, Errno> {
    query(cmd_fd, uverbs::METHOD_QUERY_CONTEXT, None)
}

/// Queries what a process that imports a PD needs. Fails with ENOENT if there is no such PD.
pub fn query_pd(cmd_fd: c_int, handle: u32) -> Result<AllocPdResp, Errno> {
    query(cmd_fd, uverbs::METHOD_QUERY_PD, Some(handle))
}

/// Queries how device memory is mapped. Fails with ENOENT if there is none with this handle.
pub fn query_dm(cmd_fd: c_int, handle: u32) -> Result<QueryDmResp, Errno> {
    query(cmd_fd, uverbs::METHOD_QUERY_DM, Some(handle))
}

/// Reads the device's clock, in nanoseconds.
pub fn query_clock(cmd_fd: c_int) -> Result<u64, Errno> {
    query(cmd_fd, uverbs::METHOD_QUERY_CLOCK, None).map(|reply: UserClockResp| reply.clock.get())
}

/// Queries the context, or the object that the kernel knows by `handle`.
fn query<T: FromZeros + IntoBytes + FromBytes>(
    cmd_fd: c_int,
    method: u32,
    handle: Option<u32>,
) -> Result<T, Errno> {
    let mut reply = T::new_zeroed();
    let bytes = reply.as_mut_bytes();
    // Exposed, because the kernel writes to it.
    let at = bytes.as_mut_ptr().expose_provenance() as u64;
    let out = attribute(uverbs::ATTR_QUERY_RESP, bytes.len() as u16, at);
    match handle {
        Some(handle) => {
            let object = attribute(uverbs::ATTR_QUERY_HANDLE, 0, handle.into());
            call(cmd_fd, method, &[out, object])?;
        }
        None => call(cmd_fd, method, &[out])?,
    }
    Ok(reply)
}

/// Makes an attribute. `data` is the address of `len` bytes, or the handle of an object.
fn attribute(id: u32, len: u16, data: u64) -> ffi::ib_uverbs_attr {
    ffi::ib_uverbs_attr {
        attr_id: id as u16,
        len,
        flags: ffi::UVERBS_ATTR_F_MANDATORY as u16,
        attr_data: ffi::ib_uverbs_attr__bindgen_ty_1 { reserved: 0 },
        __bindgen_anon_1: ffi::ib_uverbs_attr__bindgen_ty_2 { data },
    }
}

/// Makes a call.
///
/// The attributes must hold addresses of live memory of the stated length.
fn call(cmd_fd: c_int, method: u32, attributes: &[ffi::ib_uverbs_attr]) -> Result<(), Errno> {
    let length = size_of::<ffi::ib_uverbs_ioctl_hdr>() + size_of_val(attributes);
    // SAFETY: plain integers, for which zero is a valid value.
    let mut call: Call = unsafe { std::mem::zeroed() };
    call.header.length = length as u16;
    call.header.object_id = uverbs::OBJECT_CHANNEL as u16;
    call.header.method_id = method as u16;
    call.header.num_attrs = attributes.len() as u16;
    // `header.driver_id` stays `RDMA_DRIVER_UNKNOWN`, under which the kernel driver is registered.
    for (to, from) in call.attributes.iter_mut().zip(attributes) {
        *to = *from;
    }
    loop {
        // SAFETY: the header has the length of the call, and each attribute that of its buffer.
        match unsafe { ioctl(cmd_fd, VERBS_IOCTL, &raw mut call) } {
            0 => return Ok(()),
            _ => match errno::last() {
                libc::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Makes the system call ioctl(2).
///
/// # Safety
/// As for ioctl(2) with this request.
#[cfg(not(test))]
unsafe fn ioctl(fd: c_int, request: c_ulong, call: *mut Call) -> c_int {
    // SAFETY: by this function's own contract, `call` is what the kernel expects of this request.
    unsafe { libc::ioctl(fd, request, call) }
}

/// Passes the call to [`crate::fake`], because tests have no kernel driver.
#[cfg(test)]
unsafe fn ioctl(fd: c_int, request: c_ulong, call: *mut Call) -> c_int {
    assert_eq!(request, 0xc018_1b01);
    // SAFETY: by this function's own contract.
    unsafe {
        let (header, all) = (&(*call).header, &(*call).attributes);
        crate::fake::ioctl(fd, header, all.get(..usize::from(header.num_attrs)).unwrap_or_default())
    }
}

const _: () = assert!(ffi::UVERBS_ATTR_F_MANDATORY == 1 && uverbs::OBJECT_CHANNEL <= u16::MAX as u32);
