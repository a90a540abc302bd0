//! Values on the heap. If memory is short, a verb fails, and the process goes on.

use std::alloc::{Layout, alloc};
use std::ptr::NonNull;

use crate::errno::Errno;

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
