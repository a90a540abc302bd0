//! Reference counts of objects that other objects refer to.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::errno::{Errno, boxed};

/// An object and its reference count.
///
/// The object comes first. So a pointer to this is also a pointer to the beginning of the object.
#[repr(C)]
struct Counted<T> {
    object: T,
    references: AtomicUsize,
}

/// A counted reference. The object lives as long as any reference.
///
/// It is like `Arc`, but `Arc` would end the process if memory is short.
pub struct Ref<T>(NonNull<Counted<T>>);

impl<T> Ref<T> {
    /// Makes a new object, and returns the first reference to it.
    pub fn new(object: T) -> Result<Self, Errno> {
        let counted = boxed(Counted { object, references: AtomicUsize::new(1) })?;
        Ok(Self(NonNull::from(Box::leak(counted))))
    }

    /// Turns this reference into the pointer that libibverbs gets, until [`Self::from_raw`] takes
    /// it back.
    ///
    /// The pointer points to the object.
    pub fn into_raw(self) -> *mut T {
        let object = self.0.as_ptr().cast();
        std::mem::forget(self);
        object
    }

    /// Takes back the reference of libibverbs.
    ///
    /// # Safety
    /// `object` comes from [`Self::into_raw`], and nobody else takes it back.
    pub unsafe fn from_raw(object: *mut T) -> Self {
        // SAFETY: by this function's own contract it is not a null pointer.
        Self(unsafe { NonNull::new_unchecked(object.cast()) })
    }

    /// Returns a further reference to an object that libibverbs has.
    ///
    /// # Safety
    /// `object` comes from [`Self::into_raw`], and was not taken back.
    pub unsafe fn to(object: *mut T) -> Self {
        // SAFETY: by this function's own contract; ManuallyDrop keeps the reference of libibverbs.
        let theirs = std::mem::ManuallyDrop::new(unsafe { Self::from_raw(object) });
        (*theirs).clone()
    }

    /// Whether this is the only reference.
    pub fn is_only(&self) -> bool {
        self.counted().references.load(Ordering::Acquire) == 1
    }

    /// Returns the pointer to the object, for C.
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: it lives as long as this reference, and is only shared.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        // Relaxed: the caller has a reference already.
        self.counted().references.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().object
    }
}

impl<T> Drop for Ref<T> {
    fn drop(&mut self) {
        // Release, and acquire by the last reference: all earlier uses of the object come before
        // its end.
        if self.counted().references.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: made by new(), and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
