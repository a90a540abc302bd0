//! The driver's own ioctls (see `vrdma_abi::user::uverbs`).

use std::ffi::{c_int, c_ulong};

use vrdma_verbs::Unit;
use vrdma_verbs::abi::user::uverbs;

use crate::errno::{self, Errno};
use crate::ffi;

/// Most requests' units of one [`post`].
pub const POST_MAX_UNITS: usize = uverbs::POST_MAX_UNITS as usize;

/// RDMA_VERBS_IOCTL: _IOWR(RDMA_IOCTL_MAGIC, 1, struct ib_uverbs_ioctl_hdr).
const VERBS_IOCTL: c_ulong = {
    const READ_AND_WRITE: c_ulong = 3 << 30;
    let size = size_of::<ffi::ib_uverbs_ioctl_hdr>() as c_ulong;
    READ_AND_WRITE | size << 16 | (ffi::RDMA_IOCTL_MAGIC as c_ulong) << 8 | 1
};

/// A call with up to one attribute.
#[repr(C)]
struct Call {
    header: ffi::ib_uverbs_ioctl_hdr,
    attribute: ffi::ib_uverbs_attr,
}

/// Posts whole requests through the kernel's channel: all of them, or none and an error.
pub fn post(cmd_fd: c_int, units: &[Unit]) -> Result<(), Errno> {
    let len = size_of_val(units).try_into().map_err(|_| libc::EINVAL)?;
    let attribute = ffi::ib_uverbs_attr {
        attr_id: uverbs::ATTR_POST_UNITS as u16,
        len,
        flags: ffi::UVERBS_ATTR_F_MANDATORY as u16,
        attr_data: ffi::ib_uverbs_attr__bindgen_ty_1 { reserved: 0 },
        __bindgen_anon_1: ffi::ib_uverbs_attr__bindgen_ty_2 { data: units.as_ptr().addr() as u64 },
    };
    call(cmd_fd, uverbs::METHOD_POST, Some(attribute))
}

/// Kicks the context's own channel.
pub fn kick(cmd_fd: c_int) -> Result<(), Errno> {
    call(cmd_fd, uverbs::METHOD_KICK, None)
}

fn call(cmd_fd: c_int, method: u32, attribute: Option<ffi::ib_uverbs_attr>) -> Result<(), Errno> {
    let count = usize::from(attribute.is_some());
    let length = size_of::<ffi::ib_uverbs_ioctl_hdr>() + count * size_of::<ffi::ib_uverbs_attr>();
    // SAFETY: plain integers (and an array of none), for which zero is a value.
    let mut call: Call = unsafe { std::mem::zeroed() };
    call.header.length = length as u16;
    call.header.object_id = uverbs::OBJECT_CHANNEL as u16;
    call.header.method_id = method as u16;
    call.header.num_attrs = count as u16;
    // header.driver_id stays RDMA_DRIVER_UNKNOWN: that is what the kernel driver is registered as.
    if let Some(attribute) = attribute {
        call.attribute = attribute;
    }
    loop {
        // SAFETY: the header says how long the call is, and the attribute how long its buffer.
        match unsafe { ioctl(cmd_fd, VERBS_IOCTL, &raw mut call) } {
            0 => return Ok(()),
            _ => match errno::last() {
                libc::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// # Safety
/// As for ioctl(2) with this request.
#[cfg(not(test))]
unsafe fn ioctl(fd: c_int, request: c_ulong, call: *mut Call) -> c_int {
    // SAFETY: by this function's own contract, `call` is what the kernel expects of this request.
    unsafe { libc::ioctl(fd, request, call) }
}

/// In tests there is no kernel driver.
#[cfg(test)]
unsafe fn ioctl(fd: c_int, request: c_ulong, call: *mut Call) -> c_int {
    assert_eq!(request, 0xc018_1b01);
    // SAFETY: the caller's; the header and the attribute lie one behind the other.
    unsafe { crate::fake::ioctl(fd, &(*call).header, &(*call).attribute) }
}

const _: () = assert!(ffi::UVERBS_ATTR_F_MANDATORY == 1 && uverbs::OBJECT_CHANNEL <= u16::MAX as u32);
