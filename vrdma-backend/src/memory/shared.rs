//! Access to words and small structures in memory that the guest shares.

use super::{Extent, GuestMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Prefetches the cache lines of an object of this process. The address need not be valid.
#[inline]
pub fn fetch_ahead<const N: usize>(lines: *const [u8; N]) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..N).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: this is a hint. It has no visible effect, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(lines.cast::<i8>().wrapping_add(offset)) };
    }
}

/// A piece of guest memory, contiguous in this process. It stays mapped as long as this lives.
///
/// All accesses are bounds-checked. Offsets must be multiples of the size of the access, which is
/// at most `ALIGN`. The piece begins at a multiple of `ALIGN`.
#[derive(Clone, Debug)]
pub struct Shared<const ALIGN: usize = 16> {
    ptr: *mut u8,
    len: usize,
    _memory: Arc<GuestMemory>,
}

// SAFETY: the pointer leads to shared memory that only atomics access. The mapping lives as long as
// `_memory`.
unsafe impl<const ALIGN: usize> Send for Shared<ALIGN> {}

impl<const ALIGN: usize> Shared<ALIGN> {
    /// Maps `extent`. `None` if it does not all exist, is not contiguous, or does not begin at a
    /// multiple of `ALIGN`.
    pub fn new(memory: &Arc<GuestMemory>, extent: Extent) -> Option<Self> {
        if !extent.gpa.is_multiple_of(ALIGN as u64) {
            return None;
        }
        let host = memory.resolve_one(extent)?;
        if host.ptr.align_offset(ALIGN) != 0 {
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

    /// Prefetches the line of `offset` for exclusive ownership, because it will be written.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this is a hint. It has no visible effect, and never faults. The intrinsic emits
        // the hint for a read unless the whole program may use `prefetchw`. Each x86-64 processor
        // executes `prefetchw`, at least as a no-op.
        unsafe {
            let line = self.ptr.wrapping_add(offset);
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }

    /// Copies out 8-byte words, in the byte order of memory.
    #[inline]
    pub fn read_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        self.check::<8>(offset, 8 * N);
        std::array::from_fn(|i| {
            // SAFETY: the address is checked to be inside the piece and aligned. The access is
            // atomic, because the guest may write at the same time.
            let word = unsafe { AtomicU64::from_ptr(self.ptr.add(offset + 8 * i).cast()) };
            word.load(Ordering::Relaxed)
        })
    }

    /// Stores 8-byte words, little-endian. A reader that sees the last one also sees the others and
    /// all earlier writes.
    #[inline]
    pub fn publish_words<const N: usize>(&self, offset: usize, words: [u64; N]) {
        self.check::<8>(offset, 8 * N);
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: the address is checked to be inside the piece and aligned. The access is
            // atomic, because the guest may access it at the same time.
            let place = unsafe { AtomicU64::from_ptr(self.ptr.add(offset + 8 * i).cast()) };
            place.store(word.to_le(), if i + 1 == N { Ordering::Release } else { Ordering::Relaxed });
        }
    }

    #[inline]
    fn atomic16(&self, offset: usize) -> &AtomicU16 {
        self.check::<2>(offset, 2);
        // SAFETY: the address is checked to be inside the piece and aligned. The mapping outlives
        // `self`.
        unsafe { AtomicU16::from_ptr(self.ptr.add(offset).cast()) }
    }

    #[inline]
    fn atomic32(&self, offset: usize) -> &AtomicU32 {
        self.check::<4>(offset, 4);
        // SAFETY: the address is checked to be inside the piece and aligned. The mapping outlives
        // `self`.
        unsafe { AtomicU32::from_ptr(self.ptr.add(offset).cast()) }
    }

    #[inline]
    fn atomic64(&self, offset: usize) -> &AtomicU64 {
        self.check::<8>(offset, 8);
        // SAFETY: the address is checked to be inside the piece and aligned. The mapping outlives
        // `self`.
        unsafe { AtomicU64::from_ptr(self.ptr.add(offset).cast()) }
    }

    /// Checks an access. Offsets come from this process, bounded by the structure of the piece, and
    /// never from the guest.
    #[inline]
    fn check<const UNIT: usize>(&self, offset: usize, size: usize) {
        const { assert!(UNIT <= ALIGN && ALIGN.is_power_of_two() && UNIT.is_power_of_two()) };
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.len),
            "access inside the shared piece"
        );
        // The piece itself is aligned to `ALIGN`.
        assert!(offset.is_multiple_of(UNIT), "access aligned");
    }
}

/// A cache line of guest memory, which stays mapped as long as this lives. It is checked once,
/// unlike [`Shared`].
#[derive(Clone, Debug)]
pub struct SharedLine {
    /// Points to a whole mapped, aligned line.
    ptr: *mut u64,
    _memory: Arc<GuestMemory>,
}

// SAFETY: the pointer leads to shared memory that only atomics access. The mapping lives as long as
// `_memory`.
unsafe impl Send for SharedLine {}

impl SharedLine {
    /// Size of a line in bytes.
    pub const SIZE: usize = 64;

    /// Maps the line at this address. `None` if the address is not aligned to a line, or not guest
    /// memory.
    pub fn new(memory: &Arc<GuestMemory>, gpa: u64) -> Option<SharedLine> {
        let piece = Shared::<{ Self::SIZE }>::new(memory, Extent { gpa, len: Self::SIZE as u64 })?;
        Some(SharedLine { ptr: piece.ptr.cast(), _memory: piece._memory })
    }

    /// Prefetches the line for a read.
    #[inline]
    pub fn prefetch(&self) {
        fetch_ahead(self.ptr.cast_const().cast::<[u8; Self::SIZE]>());
    }

    /// Copies out its 8-byte words, in the byte order of memory.
    #[inline]
    pub fn read(&self, out: &mut [u64; Self::SIZE / 8]) {
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: the word is in the line, which is mapped and aligned. The access is atomic,
            // because the guest may write at the same time.
            *word = unsafe { AtomicU64::from_ptr(self.ptr.add(i)) }.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    #[test]
    fn words_are_little_endian() {
        let memory = memory(&[(0, 0x1000)]);
        let piece = Shared::<64>::new(&memory, Extent { gpa: 0x40, len: 0x40 }).unwrap();
        piece.store64(8, 0x0807_0605_0403_0201, Ordering::Relaxed);
        assert_eq!(piece.load16(10, Ordering::Relaxed), 0x0403);
        assert_eq!(piece.load32(12, Ordering::Relaxed), 0x0807_0605);
        assert_eq!(piece.read_words::<2>(0).map(u64::to_le_bytes)[1], [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn pieces_are_refused_when_misaligned_or_missing() {
        let memory = memory(&[(0, 0x1000), (0x1000, 0x1000)]);
        assert!(Shared::<64>::new(&memory, Extent { gpa: 0x20, len: 64 }).is_none());
        assert!(Shared::<64>::new(&memory, Extent { gpa: 0x1fc0, len: 128 }).is_none());
    }

    #[test]
    fn lines_are_read_whole_and_refused_when_misaligned_or_missing() {
        let memory = memory(&[(0, 0x1000)]);
        let piece = Shared::<64>::new(&memory, Extent { gpa: 0x40, len: 0x40 }).unwrap();
        piece.publish_words(0, [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut words = [0; 8];
        SharedLine::new(&memory, 0x40).unwrap().read(&mut words);
        assert_eq!(words.map(u64::from_le), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(SharedLine::new(&memory, 0x60).is_none() && SharedLine::new(&memory, 0x1000).is_none());
    }

    #[test]
    #[should_panic(expected = "inside the shared piece")]
    fn words_are_published_inside() {
        let memory = memory(&[(0, 0x1000)]);
        Shared::<8>::new(&memory, Extent { gpa: 0, len: 64 }).unwrap().publish_words(40, [0; 4]);
    }

    #[test]
    #[should_panic(expected = "inside the shared piece")]
    fn accesses_stay_inside() {
        let memory = memory(&[(0, 0x1000)]);
        Shared::<64>::new(&memory, Extent { gpa: 0, len: 64 }).unwrap().load32(64, Ordering::Relaxed);
    }
}
