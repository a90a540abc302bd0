//! Frames on their way between a port and those who make and read them.

use super::dpdk::Mbuf;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

/// An Ethernet frame without FCS; its buffer goes back to where it came from when this is dropped.
///
/// What was received is one piece. What is to be sent may have pieces of memory of others after its first ([`External`]).
#[derive(Debug)]
pub struct Frame(Storage);

#[derive(Debug)]
enum Storage {
    Heap(Vec<u8>),
    Mbuf(Mbuf),
}

impl Frame {
    /// A frame of these bytes, of no driver: it is copied once more when it is sent.
    pub fn new(bytes: Vec<u8>) -> Frame {
        Frame(Storage::Heap(bytes))
    }

    pub(super) fn from_mbuf(mbuf: Mbuf) -> Frame {
        Frame(Storage::Mbuf(mbuf))
    }

    /// The mbuf, or itself back.
    pub(super) fn into_mbuf(self) -> Result<Mbuf, Frame> {
        match self.0 {
            Storage::Mbuf(mbuf) => Ok(mbuf),
            heap @ Storage::Heap(_) => Err(Frame(heap)),
        }
    }

    pub(super) fn as_mbuf(&mut self) -> Option<&mut Mbuf> {
        match &mut self.0 {
            Storage::Mbuf(mbuf) => Some(mbuf),
            Storage::Heap(_) => None,
        }
    }

    /// Everything that fits into the first piece, from the Ethernet header on.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.room(),
        }
    }

    /// Makes the first `len` bytes of the room the frame.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        match &mut self.0 {
            Storage::Heap(bytes) => bytes.truncate(len),
            Storage::Mbuf(mbuf) => mbuf.set_len(len),
        }
    }

    /// Makes a frame of no driver longer by `len` bytes, which `fill` writes; false for others.
    pub(super) fn extend(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Storage::Heap(bytes) = &mut self.0 else { return false };
        let before = bytes.len();
        bytes.resize(before + len, 0);
        fill(&mut bytes[before..]);
        true
    }

    /// Bytes of all pieces.
    #[inline]
    pub fn total_len(&self) -> usize {
        match &self.0 {
            Storage::Heap(bytes) => bytes.len(),
            Storage::Mbuf(mbuf) => mbuf.total_len(),
        }
    }

    /// Appends a copy of all pieces to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Storage::Heap(bytes) => out.extend_from_slice(bytes),
            Storage::Mbuf(mbuf) => mbuf.copy_to(out),
        }
    }

    /// Puts a copy in the place of pieces that are memory of others. Such a frame has nothing left to be filled in.
    pub(super) fn own(&mut self) {
        if self.total_len() != self.len() {
            *self = self.to_heap();
        }
    }

    /// All pieces in one, of no driver.
    pub fn to_heap(&self) -> Frame {
        let mut bytes = Vec::with_capacity(self.total_len());
        self.copy_to(&mut bytes);
        Frame::new(bytes)
    }
}

/// The first piece: all there is of a frame that was received.
impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Heap(bytes) => bytes,
            Storage::Mbuf(mbuf) => mbuf.bytes(),
        }
    }
}

/// Memory of somebody else that a frame carries without a copy. Its owner, an [`Arc`], is let go when the driver is through with it.
#[derive(Debug)]
pub struct External {
    bytes: *const u8,
    len: u16,
    owner: *mut c_void,
    done: Done,
}

// SAFETY: `External::new` asks for bytes that any thread may read, and for an owner that any thread may let go.
#[allow(unsafe_code, reason = "the border to memory that frames take with them")]
unsafe impl Send for External {}

/// Lets an owner go: (the bytes, the owner).
pub(super) type Done = unsafe extern "C" fn(*mut c_void, *mut c_void);

impl External {
    /// Memory of `len` bytes, at most 65,535.
    ///
    /// # Safety
    /// The bytes can be read by any thread for as long as a clone of `owner` exists. They may change meanwhile.
    #[allow(unsafe_code, reason = "the border to memory that frames take with them")]
    pub unsafe fn new<T: Send + Sync + 'static>(bytes: *const u8, len: u16, owner: Arc<T>) -> External {
        unsafe extern "C" fn done<T>(_bytes: *mut c_void, owner: *mut c_void) {
            // SAFETY: `owner` came from Arc::into_raw of an Arc of this type, and each External calls this once.
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
        // SAFETY: the bytes are readable while `self` holds the owner; `to` is other memory, because it is borrowed mutably. Should a
        // guest write meanwhile, the copy has some of each, which is the guest's affair.
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
        // SAFETY: `done` and `owner` were made for each other in `new`, and nobody took them (`into_parts` forgets `self`).
        unsafe { (self.done)(self.bytes.cast_mut().cast(), self.owner) };
    }
}
