//! Errors as libibverbs expects them.

use std::ffi::c_int;
use std::ptr;

/// A positive errno value.
pub type Errno = c_int;

/// Turns the result of a libibverbs function that returns 0 or an errno into a `Result`.
pub fn check(ret: c_int) -> Result<(), Errno> {
    match ret {
        0 => Ok(()),
        // Some functions return -1 and set errno.
        ret if ret < 0 => Err(last()),
        ret => Err(ret),
    }
}

/// Returns the errno of this thread's last system call.
pub fn last() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Returns 0 or an errno, as operations do. It also sets errno, which many programs print.
#[inline]
pub fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => refusal(errno),
    }
}

/// Returns `errno`, as operations that fail do, and sets it as errno.
#[cold]
pub fn refusal(errno: Errno) -> c_int {
    set(errno);
    errno
}

/// Returns the object that an operation makes, or NULL, with errno set, if it failed.
pub fn object<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set(errno);
        ptr::null_mut()
    })
}

/// Sets errno.
pub fn set(errno: Errno) {
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = errno };
}
