//! Methods to copy memory. The best of them is the limit of this machine.

/// A method to copy memory.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. `len` and
/// `to` are multiples of [`ALIGNMENT`].
pub type CopyFn = unsafe fn(from: *const u8, to: *mut u8, len: usize);

/// Size in bytes of a non-temporal AVX store, which faults unless its address is a multiple of
/// this.
pub const ALIGNMENT: usize = 32;

/// Returns the methods by name.
pub fn copies() -> Vec<(&'static str, CopyFn)> {
    let mut all: Vec<(&'static str, CopyFn)> = vec![("memcpy", memcpy)];
    #[cfg(target_arch = "x86_64")]
    {
        all.push(("rep movsb", movsb));
        // The contract of `non_temporal` requires AVX.
        if std::arch::is_x86_feature_detected!("avx") {
            all.push(("non-temporal", non_temporal));
        }
    }
    all
}

/// Copies with `memcpy`.
///
/// # Safety
/// The contract is that of [`CopyFn`].
unsafe fn memcpy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of `CopyFn`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies with `rep movsb`.
///
/// # Safety
/// The contract is that of [`CopyFn`].
#[cfg(target_arch = "x86_64")]
unsafe fn movsb(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of `CopyFn`.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies with non-temporal stores.
///
/// # Safety
/// The contract is that of [`CopyFn`]. In addition, the processor has AVX.
#[cfg(target_arch = "x86_64")]
unsafe fn non_temporal(from: *const u8, to: *mut u8, len: usize) {
    /// Copies, compiled for AVX.
    ///
    /// # Safety
    /// The contract is that of [`CopyFn`].
    #[target_feature(enable = "avx")]
    unsafe fn inner(from: *const u8, to: *mut u8, len: usize) {
        use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
        // SAFETY: by the contract of `CopyFn`, `to` and `len` are multiples of 32. So is each
        // address that is stored to.
        unsafe {
            for at in (0..len).step_by(ALIGNMENT) {
                _mm256_stream_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
            }
            _mm_sfence();
        }
    }
    // SAFETY: this function's contract covers the call.
    unsafe { inner(from, to, len) }
}
