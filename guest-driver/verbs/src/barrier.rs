//! The barrier between a store for the device and a load of what the device stores.

/// Makes all earlier stores visible to the device before any later load.
///
/// A sequentially consistent store is no substitute. On x86 it is an `xchg`. For a VM with one
/// processor, QEMU's TCG turns `xchg` and `lock`ed instructions into plain ones. Nothing else in
/// the VM can tell the difference, but the device can, and a kick or an event is lost. `mfence`
/// stays a barrier there. `fence(SeqCst)` may be compiled to a `lock`ed instruction, so `mfence` is
/// written out.
#[inline]
pub(crate) fn full() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction touches neither memory, registers, flags nor the stack. It is not
    // marked `nomem`, so the compiler moves no memory access across it either.
    unsafe {
        core::arch::asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
