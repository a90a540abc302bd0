//! The synchronisation types of `ring`, `slots` and `sleeper`. Loom's types replace them under
//! loom.

pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// A cell with the part of loom's `UnsafeCell` interface that is used here.
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Creates a cell with a value.
    pub fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Passes `f` a pointer to the value, for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Passes `f` a pointer to the value, for reading and writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
