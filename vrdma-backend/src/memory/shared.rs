//! Words and small structures in memory that the guest shares.

use super::{GuestMemory, Run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Has the processor fetch the lines of something of this process, for a use to come; it may not be there.
#[inline]
pub fn fetch_ahead<const N: usize>(lines: *const [u8; N]) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..N).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint: it reads nothing that shows, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(lines.cast::<i8>().wrapping_add(offset)) };
    }
}

/// A piece of guest memory, contiguous in this process, that stays mapped as long as this lives.
///
/// All accesses are bounds-checked against the piece; offsets must be multiples of the size of what is accessed.
#[derive(Clone, Debug)]
pub struct Shared {
    ptr: *mut u8,
    len: usize,
    _memory: Arc<GuestMemory>,
}

// SAFETY: the pointer leads to shared memory that is accessed by atomics alone; the mapping lives as long as `_memory`.
unsafe impl Send for Shared {}

impl Shared {
    /// The memory of `run`; `None` if it is not all there, not in one piece, or does not begin at a multiple of `align`.
    pub fn new(memory: &Arc<GuestMemory>, run: Run, align: u64) -> Option<Shared> {
        if !run.gpa.is_multiple_of(align) {
            return None;
        }
        let host = memory.resolve_one(run)?;
        if host.ptr.align_offset(align as usize) != 0 {
            return None;
        }
        Some(Shared { ptr: host.ptr, len: usize::try_from(host.len).ok()?, _memory: memory.clone() })
    }

    /// Loads 16 bits, little-endian.
    #[inline]
    pub fn load16(&self, offset: usize, order: Ordering) -> u16 {
        u16::from_le(self.atomic16(offset).load(order))
    }

    /// Stores 16 bits, little-endian.
    #[inline]
    pub fn store16(&self, offset: usize, value: u16, order: Ordering) {
        self.atomic16(offset).store(value.to_le(), order);
    }

    /// Loads 32 bits, little-endian.
    #[inline]
    pub fn load32(&self, offset: usize, order: Ordering) -> u32 {
        u32::from_le(self.atomic32(offset).load(order))
    }

    /// Stores 32 bits, little-endian.
    #[inline]
    pub fn store32(&self, offset: usize, value: u32, order: Ordering) {
        self.atomic32(offset).store(value.to_le(), order);
    }

    /// Stores 64 bits, little-endian.
    #[inline]
    pub fn store64(&self, offset: usize, value: u64, order: Ordering) {
        self.atomic64(offset).store(value.to_le(), order);
    }

    /// Has the processor fetch the first line, for a read to come.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint: it reads nothing that shows, and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.ptr.cast_const().cast());
        }
    }

    /// Has the processor fetch the line of `offset` for itself alone, for a write to come.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint: it reads nothing that shows, and never faults. (The intrinsic gives a read's hint unless all of the program may use `prefetchw`, which
        // each x86-64 processor takes at least as nothing.)
        unsafe {
            let line = self.ptr.wrapping_add(offset);
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }

    /// Copies 8-byte words out, as they lie in memory.
    #[inline]
    pub fn read_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        self.check(offset, 8 * N, 8);
        std::array::from_fn(|i| {
            // SAFETY: checked to be inside the piece and aligned; atomic, since the guest may write meanwhile.
            let word = unsafe { AtomicU64::from_ptr(self.ptr.add(offset + 8 * i).cast()) };
            word.load(Ordering::Relaxed)
        })
    }

    #[inline]
    fn atomic16(&self, offset: usize) -> &AtomicU16 {
        self.check(offset, 2, 2);
        // SAFETY: checked to be inside the piece and aligned; the mapping outlives `self`.
        unsafe { AtomicU16::from_ptr(self.ptr.add(offset).cast()) }
    }

    #[inline]
    fn atomic32(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4, 4);
        // SAFETY: checked to be inside the piece and aligned; the mapping outlives `self`.
        unsafe { AtomicU32::from_ptr(self.ptr.add(offset).cast()) }
    }

    #[inline]
    fn atomic64(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8, 8);
        // SAFETY: checked to be inside the piece and aligned; the mapping outlives `self`.
        unsafe { AtomicU64::from_ptr(self.ptr.add(offset).cast()) }
    }

    /// Offsets come from this process, bounded by the structure for which the piece was made: never from the guest.
    #[inline]
    fn check(&self, offset: usize, size: usize, align: usize) {
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.len),
            "access inside the shared piece"
        );
        assert!((self.ptr.addr() + offset).is_multiple_of(align), "access aligned");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    #[test]
    fn words_are_little_endian() {
        let memory = memory(&[(0, 0x1000)]);
        let piece = Shared::new(&memory, Run { gpa: 0x40, len: 0x40 }, 64).unwrap();
        piece.store64(8, 0x0807_0605_0403_0201, Ordering::Relaxed);
        assert_eq!(piece.load16(10, Ordering::Relaxed), 0x0403);
        assert_eq!(piece.load32(12, Ordering::Relaxed), 0x0807_0605);
        assert_eq!(piece.read_words::<2>(0).map(u64::to_le_bytes)[1], [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn pieces_are_refused_when_misaligned_or_missing() {
        let memory = memory(&[(0, 0x1000), (0x1000, 0x1000)]);
        assert!(Shared::new(&memory, Run { gpa: 0x20, len: 64 }, 64).is_none());
        assert!(Shared::new(&memory, Run { gpa: 0x1fc0, len: 128 }, 64).is_none());
    }

    #[test]
    #[should_panic(expected = "inside the shared piece")]
    fn accesses_stay_inside() {
        let memory = memory(&[(0, 0x1000)]);
        Shared::new(&memory, Run { gpa: 0, len: 64 }, 64).unwrap().load32(64, Ordering::Relaxed);
    }
}
