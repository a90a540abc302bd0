//! Objects that other objects refer to.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::errno::{Errno, boxed};

/// An object and its references. The object comes first, so that a pointer to this is one to what
/// the object begins with.
#[repr(C)]
struct Counted<T> {
    object: T,
    references: AtomicUsize,
}

/// A reference. The object lives as long as any. (As `Arc`, which ends the process where memory is
/// short.)
pub struct Ref<T>(NonNull<Counted<T>>);

impl<T> Ref<T> {
    /// The first reference to a new object.
    pub fn new(object: T) -> Result<Self, Errno> {
        let counted = boxed(Counted { object, references: AtomicUsize::new(1) })?;
        Ok(Self(NonNull::from(Box::leak(counted))))
    }

    /// What libibverbs gets: this reference, until [`Self::from_raw`] takes it back. It begins with
    /// the object.
    pub fn into_raw(self) -> *mut T {
        let object = self.0.as_ptr().cast();
        std::mem::forget(self);
        object
    }

    /// The reference that libibverbs has.
    ///
    /// # Safety
    /// `object` is of [`Self::into_raw`], and nobody else takes it back.
    pub unsafe fn from_raw(object: *mut T) -> Self {
        // SAFETY: by this function's own contract it is no null pointer.
        Self(unsafe { NonNull::new_unchecked(object.cast()) })
    }

    /// A further reference to an object that libibverbs has.
    ///
    /// # Safety
    /// `object` is of [`Self::into_raw`], and was not taken back.
    pub unsafe fn to(object: *mut T) -> Self {
        // SAFETY: by this function's own contract; that reference stays where it is.
        let theirs = std::mem::ManuallyDrop::new(unsafe { Self::from_raw(object) });
        (*theirs).clone()
    }

    /// Whether there is no other reference.
    pub fn is_only(&self) -> bool {
        self.counted().references.load(Ordering::Acquire) == 1
    }

    /// The object, for C.
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
        // Relaxed: who clones has a reference already.
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
        // Release, and acquire by the last: what others did with the object comes before its end.
        if self.counted().references.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: made by new(), and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
