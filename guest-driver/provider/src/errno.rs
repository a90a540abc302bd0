//! Errors as libibverbs expects them, and small helpers.

use std::alloc::{Layout, alloc};
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

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

/// Makes a `Box`, or returns ENOMEM where `Box::new` would abort the process.
pub fn boxed<T>(value: T) -> Result<Box<T>, Errno> {
    let layout = Layout::new::<T>();
    assert_not_empty::<T>();
    // SAFETY: the layout is not empty. The memory is written before it becomes a Box with the
    // layout of its type.
    unsafe {
        let memory = NonNull::new(alloc(layout).cast::<T>()).ok_or(libc::ENOMEM)?;
        memory.write(value);
        Ok(Box::from_raw(memory.as_ptr()))
    }
}

const fn assert_not_empty<T>() {
    const { assert!(size_of::<T>() != 0) }
}

/// Makes `len` values, or returns ENOMEM.
pub fn boxed_slice<T>(len: usize, make: impl FnMut() -> T) -> Result<Box<[T]>, Errno> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| libc::ENOMEM)?;
    values.resize_with(len, make);
    Ok(values.into_boxed_slice())
}

/// Locks a mutex. Poisoning is ignored, because nothing panics.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex if nobody holds it.
#[inline]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
