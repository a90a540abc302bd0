//! Copying bytes between pieces of shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Copies `len` bytes; the pieces may overlap. The last (up to 8) bytes of `dst` are stored by themselves and after all
/// others, because programs poll the last byte of a message (IBTA o9-20 leaves it to the device; NICs do it).
///
/// # Safety
/// Both pieces are mapped for `len` bytes. The guest may access them at the same time; then the bytes are any mix of old and new.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    if len == 8 && src.addr().is_multiple_of(8) && dst.addr().is_multiple_of(8) {
        // SAFETY: 8 mapped bytes each, aligned.
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
    // SAFETY: both pieces are mapped for `len` bytes (this function's contract); the tail is taken first, as an overlapping destination may change it.
    // libc's memmove is opaque to the optimiser, so it may assume nothing about bytes that others write.
    unsafe {
        let tail = src.add(head).cast::<u64>().read_unaligned();
        libc::memmove(dst.cast(), src.cast(), head);
        std::sync::atomic::fence(Ordering::Release);
        dst.add(head).cast::<u64>().write_unaligned(tail);
    }
}

/// Copies up to 8 bytes through a register, so that overlapping pieces do no harm.
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
