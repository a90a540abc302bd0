//! The memory into which a request is written.

use core::marker::PhantomData;
use core::ptr;

use crate::unit::Unit;

/// The size of a unit in bytes.
const UNIT: usize = size_of::<Unit>();

/// The units of one request: slots, which may continue at the start of the ring.
pub(crate) struct Span<'a> {
    head: *mut u8,
    /// The number of bytes before the break at the end of the ring.
    head_len: usize,
    /// The address of byte `head_len`.
    tail: *mut u8,
    _units: PhantomData<&'a mut [Unit]>,
}

impl<'a> Span<'a> {
    /// Returns a span of all of `units`.
    pub(crate) fn contiguous(units: &'a mut [Unit]) -> Self {
        let head = units.as_mut_ptr().cast();
        Self { head, head_len: size_of_val(units), tail: head, _units: PhantomData }
    }

    /// Returns a span from slot `first` of `entries` on, which continues at the start of the ring.
    ///
    /// # Safety
    /// `slots` points to `entries` units, and `first` is one of them. The units that will be
    /// written belong to the caller for as long as the span lives.
    #[inline]
    pub(crate) unsafe fn ring(slots: *mut Unit, first: usize, entries: usize) -> Self {
        // SAFETY: `first` is inside the ring.
        let head = unsafe { slots.add(first) }.cast();
        Self { head, head_len: (entries - first) * UNIT, tail: slots.cast(), _units: PhantomData }
    }

    /// Writes 16 bytes at `offset`, a multiple of 16.
    ///
    /// # Safety
    /// The bytes are inside the span.
    #[inline]
    pub(crate) unsafe fn put_pair(&self, offset: usize, words: [u64; 2]) {
        // SAFETY: the caller stays inside the span, and 16-byte pieces do not straddle the break
        // between units. The slots belong to this side until the index is released, so a plain
        // write has no race.
        unsafe { self.at(offset).cast::<[u64; 2]>().write(words) }
    }

    /// Writes `len` bytes at `offset`.
    ///
    /// # Safety
    /// The bytes are inside the span, and `from` is readable.
    #[inline]
    pub(crate) unsafe fn put_bytes(&self, offset: usize, from: *const u8, len: usize) {
        let before_break = self.head_len.saturating_sub(offset).min(len);
        // SAFETY: as for put_pair. Each of the two parts is on its side of the break.
        unsafe {
            if before_break != 0 {
                ptr::copy_nonoverlapping(from, self.head.add(offset), before_break);
            }
            if before_break != len {
                let to = self.at(offset + before_break);
                ptr::copy_nonoverlapping(from.add(before_break), to, len - before_break);
            }
        }
    }

    /// # Safety
    /// `offset` is inside the span.
    #[inline]
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: both sides of the break are inside the ring.
        unsafe {
            if offset < self.head_len { self.head.add(offset) } else { self.tail.add(offset - self.head_len) }
        }
    }
}
