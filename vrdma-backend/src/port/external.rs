//! Memory that frames take with them.

use std::ffi::c_void;
use std::sync::Arc;

/// Memory of somebody else that a frame carries without a copy. Its owner, an [`Arc`], is let go
/// when the driver is through with it.
#[derive(Debug)]
pub struct External {
    bytes: *const u8,
    len: u16,
    owner: *mut c_void,
    done: Done,
}

// SAFETY: `External::new` asks for bytes that any thread may read, and for an owner that any thread
// may let go.
#[allow(unsafe_code, reason = "the border to memory that frames take with them")]
unsafe impl Send for External {}

/// Lets an owner go: (the bytes, the owner).
pub(super) type Done = unsafe extern "C" fn(*mut c_void, *mut c_void);

impl External {
    /// Memory of `len` bytes, at most 65,535.
    ///
    /// # Safety
    /// The bytes can be read by any thread for as long as a clone of `owner` exists. They may
    /// change meanwhile.
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    pub unsafe fn new<T: Send + Sync + 'static>(bytes: *const u8, len: u16, owner: Arc<T>) -> External {
        unsafe extern "C" fn done<T>(_bytes: *mut c_void, owner: *mut c_void) {
            // SAFETY: `owner` came from Arc::into_raw of an Arc of this type, and each External
            // calls this once.
            drop(unsafe { Arc::from_raw(owner.cast_const().cast::<T>()) });
        }
        External { bytes, len, owner: Arc::into_raw(owner).cast_mut().cast(), done: done::<T> }
    }

    /// How many bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Copies all bytes into `to`, which has as many.
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    pub(super) fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len(), "room for all bytes");
        // SAFETY: the bytes are readable while `self` holds the owner; `to` is other memory,
        // because it is borrowed mutably. Should a guest write meanwhile, the copy has some of
        // each, which is the guest's affair.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes, to.as_mut_ptr(), self.len()) };
    }

    /// Address, length, and how the owner is to be let go: once, by whom takes this.
    pub(super) fn into_parts(self) -> (*const u8, u16, Done, *mut c_void) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.bytes, this.len, this.done, this.owner)
    }
}

impl Drop for External {
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    fn drop(&mut self) {
        // SAFETY: `done` and `owner` were made for each other in `new`, and nobody took them
        // (`into_parts` forgets `self`).
        unsafe { (self.done)(self.bytes.cast_mut().cast(), self.owner) };
    }
}
