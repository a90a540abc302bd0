//! What `ring`, `places` and `sleeper` synchronise by. Under loom it is loom's.

pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// As loom's, of which this has the part that is used.
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// With a value.
    pub fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Hands out a pointer to the value, to read it.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Hands out a pointer to the value.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
