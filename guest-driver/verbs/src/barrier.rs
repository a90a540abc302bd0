//! The barrier between telling the device something and looking at what it says.

/// What was stored before is visible to the device before anything is loaded after.
///
/// A sequentially consistent store is no substitute. On x86 it is an `xchg`, and QEMU's TCG turns
/// `xchg` and `lock`ed instructions into plain ones for a VM that has one processor: nothing else
/// in the VM can tell the difference, but the device can, and a kick or an event is lost. `mfence`
/// stays a barrier there. `fence(SeqCst)` may be compiled to a `lock`ed instruction, so it is
/// written out.
#[inline]
pub(crate) fn full() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction touches neither memory, registers, flags nor the stack. It is no
    // `nomem`, so that the compiler moves no access across it either.
    unsafe {
        core::arch::asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
