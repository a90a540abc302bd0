//! Copies bytes between pieces of shared memory.

use super::heat::is_cold;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smallest length in bytes for which it pays to ask whether the destination is cached.
const LARGE: usize = 32 << 10;
/// Size of a cache line in bytes.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies `len` bytes. The pieces may overlap.
///
/// The last bytes of `dst` (up to 8) are stored separately, after all others. Programs poll the
/// last byte of a message: IBTA o9-20 leaves this to the device, and NICs do it.
///
/// # Safety
/// Both pieces are mapped for `len` bytes. The guest may access them at the same time. The bytes
/// are then any mix of old and new.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    if len == 8 && src.addr().is_multiple_of(8) && dst.addr().is_multiple_of(8) {
        // SAFETY: both are 8 mapped, aligned bytes.
        unsafe {
            let word = AtomicU64::from_ptr(src.cast_mut().cast()).load(Ordering::Relaxed);
            AtomicU64::from_ptr(dst.cast()).store(word, Ordering::Release);
        }
        return;
    }
    if len <= 8 {
        // SAFETY: both pieces are mapped for `len` bytes (this function's contract).
        unsafe { copy_few(src, dst, len) };
        return;
    }
    let head = len - 8;
    // SAFETY: both pieces are mapped for `len` bytes (this function's contract). The tail is read
    // first, as an overlapping destination may change it. libc's memmove is opaque to the
    // optimiser, which thus assumes nothing about bytes that others write.
    unsafe {
        let tail = src.add(head).cast::<u64>().read_unaligned();
        if head < LARGE || !copy_past_caches(src, dst, head) {
            libc::memmove(dst.cast(), src.cast(), head);
        }
        std::sync::atomic::fence(Ordering::Release);
        dst.add(head).cast::<u64>().write_unaligned(tail);
    }
}

/// Copies with stores that bypass the caches, to memory that is not cached.
///
/// It returns false and copies nothing in three cases: the destination is likely cached, the pieces
/// overlap, or the processor has no such stores.
///
/// # Safety
/// The contract is that of [`copy`].
#[inline(never)]
unsafe fn copy_past_caches(src: *const u8, dst: *mut u8, len: usize) -> bool {
    if src.addr().abs_diff(dst.addr()) < len || !is_cold(dst, len) {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: both pieces are mapped for `len` bytes (this function's contract), and the
        // processor has AVX.
        unsafe { stream(src, dst, len) };
        return true;
    }
    false
}

/// Copies with non-temporal stores. They are visible before any later store.
///
/// # Safety
/// The contract is that of [`copy`]. In addition, the pieces do not overlap, and the processor has
/// AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const VECTOR: usize = size_of::<__m256i>();
    // Only whole lines are streamed. The partial lines at both ends are copied normally.
    let before = dst.align_offset(LINE).min(len);
    let end = before + (len - before) / LINE * LINE;
    // SAFETY: `before` and `end` are at most `len`, for which both pieces are mapped (this
    // function's contract). Each streamed address is a multiple of a line's size. Others may write
    // the bytes while they are read. Assumptions of the compiler about them do no harm, because
    // they are only stored.
    unsafe {
        libc::memmove(dst.cast(), src.cast(), before);
        for at in (before..end).step_by(LINE) {
            let low = _mm256_loadu_si256(src.add(at).cast());
            let high = _mm256_loadu_si256(src.add(at + VECTOR).cast());
            _mm256_stream_si256(dst.add(at).cast(), low);
            _mm256_stream_si256(dst.add(at + VECTOR).cast(), high);
        }
        libc::memmove(dst.add(end).cast(), src.add(end).cast(), len - end);
        // The last bytes of a message, and its CQE, are plain stores. Without the fence they could
        // overtake the streamed stores.
        _mm_sfence();
    }
}

/// Copies up to 8 bytes through a register, so the pieces may overlap.
///
/// # Safety
/// Both pieces are mapped for `len` bytes, which is at most 8.
#[inline]
unsafe fn copy_few(src: *const u8, dst: *mut u8, len: usize) {
    let mut bytes = [0u8; 8];
    for (i, byte) in bytes.iter_mut().enumerate().take(len) {
        // SAFETY: `i < len`.
        *byte = unsafe { src.add(i).read_volatile() };
    }
    for (i, byte) in bytes.iter().enumerate().take(len) {
        // SAFETY: `i < len`.
        unsafe { dst.add(i).write_volatile(*byte) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_offset_is_copied_exactly() {
        let src: Vec<u8> = (0..300u32).map(|i| (i % 251) as u8).collect();
        for len in (0..40).chain([63, 64, 65, 200]) {
            for offset in 0..9 {
                let mut dst = vec![0xeeu8; 300];
                // SAFETY: offset + len is less than both lengths.
                unsafe { copy(src.as_ptr().add(offset), dst.as_mut_ptr().add(8 - offset), len) };
                assert_eq!(dst[8 - offset..][..len], src[offset..][..len]);
                assert!(dst[..8 - offset].iter().chain(&dst[8 - offset + len..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn large_pieces_are_copied_exactly_whether_they_are_in_the_caches_or_not() {
        let src: Vec<u8> = (0..5 * LARGE).map(|i| (i % 251) as u8).collect();
        for (len, from, to) in
            [(LARGE + 8, 0, 0), (2 * LARGE + 13, 5, 77), (3 * LARGE + 64, 64, 1), (4 * LARGE, 1, 63)]
        {
            let mut dst = vec![0xeeu8; 5 * LARGE];
            // In the second pass the destination was just copied to.
            for _ in 0..2 {
                dst.fill(0xee);
                // SAFETY: both pieces are inside their vectors.
                unsafe { copy(src.as_ptr().add(from), dst.as_mut_ptr().add(to), len) };
                assert!(dst[to..][..len] == src[from..][..len], "{len} from {from} to {to}");
                assert!(dst[..to].iter().chain(&dst[to + len..]).all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn large_pieces_that_overlap_are_moved() {
        for (from, to) in [(0, 100), (100, 0), (3, 3)] {
            let mut bytes: Vec<u8> = (0..3 * LARGE).map(|i| (i % 251) as u8).collect();
            let mut wanted = bytes.clone();
            wanted.copy_within(from..from + 2 * LARGE, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: both pieces are inside the vector.
            unsafe { copy(base.add(from), base.add(to), 2 * LARGE) };
            assert!(bytes == wanted, "{from} {to}");
        }
    }

    #[test]
    fn overlapping_pieces_are_moved() {
        for (from, to) in [(0usize, 3usize), (3, 0), (5, 5)] {
            for len in [4, 8, 9, 40] {
                let mut bytes: Vec<u8> = (0..64).collect();
                let mut wanted = bytes.clone();
                wanted.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both pieces are inside the vector.
                unsafe { copy(base.add(from), base.add(to), len) };
                assert_eq!(bytes, wanted, "{from} {to} {len}");
            }
        }
    }
}
