//! External memory, which frames carry without a copy.

use std::ffi::c_void;
use std::sync::Arc;

/// External memory: memory with an owner of its own that a frame carries without a copy.
///
/// The owner is an [`Arc`]. It is dropped when the driver does not need the memory any more.
#[derive(Debug)]
pub struct External {
    bytes: *const u8,
    len: u16,
    owner: *mut c_void,
    done: Done,
}

// SAFETY: `External::new` requires bytes that any thread may read, and an owner that any thread may
// drop.
#[allow(unsafe_code, reason = "the border to memory that frames take with them")]
unsafe impl Send for External {}

/// Drops an owner. The arguments are the bytes and the owner.
pub(super) type Done = unsafe extern "C" fn(*mut c_void, *mut c_void);

impl External {
    /// Refers to `len` bytes of memory, at most 65,535.
    ///
    /// # Safety
    /// Any thread can read the bytes while a clone of `owner` exists. They may change meanwhile.
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    pub unsafe fn new<T: Send + Sync + 'static>(bytes: *const u8, len: u16, owner: Arc<T>) -> External {
        unsafe extern "C" fn done<T>(_bytes: *mut c_void, owner: *mut c_void) {
            // SAFETY: `owner` came from `Arc::into_raw` of an `Arc` of this type, and each
            // `External` calls this once.
            drop(unsafe { Arc::from_raw(owner.cast_const().cast::<T>()) });
        }
        External { bytes, len, owner: Arc::into_raw(owner).cast_mut().cast(), done: done::<T> }
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Copies all bytes into `to`, which has the same length.
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    pub(super) fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len(), "room for all bytes");
        // SAFETY: the bytes are readable while `self` holds the owner. `to` is other memory,
        // because it is borrowed mutably. If a guest writes meanwhile, the copy has old and new
        // bytes. That harms only this guest.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes, to.as_mut_ptr(), self.len()) };
    }

    /// Returns address, length, and how the owner is dropped. The caller has to do that once.
    pub(super) fn into_parts(self) -> (*const u8, u16, Done, *mut c_void) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.bytes, this.len, this.done, this.owner)
    }
}

impl Drop for External {
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    fn drop(&mut self) {
        // SAFETY: `new` made `done` and `owner` for each other. Nobody has taken them, because
        // `into_parts` forgets `self`.
        unsafe { (self.done)(self.bytes.cast_mut().cast(), self.owner) };
    }
}
