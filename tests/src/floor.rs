//! The limits that benchmarks compare with: the *ring floor*, a bare split virtqueue and CQ ring between two threads, and
//! the best plain copy.

use crate::memory::Memory;
use crate::ring::Ring;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use vrdma_verbs::{Channel, ChannelParts, Cq, CqLayout};

/// A device that does nothing but the work: takes each request out of the ring, copies its payload and publishes its completion.
/// There is not one check. Addresses in requests are those of this process.
#[derive(Debug)]
pub struct Floor {
    /// The driver's end of the channel. It is never kicked.
    pub channel: Channel<fn()>,
    /// The driver's end of the CQ.
    pub cq: Cq,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _memory: Arc<Memory>,
}

/// Where the device's thread finds its words.
struct Words {
    avail_idx: *const AtomicU16,
    avail: *const AtomicU16,
    used_idx: *const AtomicU16,
    used: *const AtomicU32,
    slots: *const u64,
    cqes: *const AtomicU64,
    entries: u16,
    cq_entries: u32,
}

// SAFETY: the pointers lead to memory that Floor keeps until the thread has ended.
unsafe impl Send for Words {}

impl Floor {
    /// With rings of so many entries in `memory`; the device's thread runs on processor `cpu`.
    pub fn start(memory: &Arc<Memory>, entries: u16, cpu: usize) -> Floor {
        let ring = Ring::new(memory, entries);
        let slots = memory.alloc(64 * u64::from(entries));
        let layout = CqLayout::for_entries(u32::from(entries) * 2).expect("a possible size");
        let cq = memory.alloc(layout.size() as u64);
        let host = |gpa| memory.host(gpa, 64);
        let words = Words {
            avail_idx: memory.word16(ring.avail + 2),
            avail: memory.word16(ring.avail + 4),
            used_idx: memory.word16(ring.used + 2),
            used: memory.word32(ring.used + 4),
            slots: host(slots).as_ptr().cast(),
            cqes: memory.word64(cq),
            entries,
            cq_entries: layout.entries(),
        };
        let parts = ChannelParts {
            avail: host(ring.avail),
            used: host(ring.used),
            slots: host(slots).cast(),
            entries,
            // With flags, and the flag that asks for no kick.
            event_idx: false,
            doorbell: never as fn(),
        };
        memory.word16(ring.used).store(1, Ordering::Relaxed);
        // SAFETY: fresh pages that are kept beside the value; nobody else uses them but the device's thread.
        let channel = unsafe { Channel::new(parts) }.expect("pages are aligned");
        // SAFETY: the same.
        let cq = unsafe { Cq::new(host(cq), layout) }.expect("pages are aligned");
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            crate::proc::pin(0, cpu);
            // SAFETY: as the words are good, and requests are those of the benchmark.
            unsafe { serve(&words, &theirs) }
        });
        Floor { channel, cq, stop, thread: Some(thread), _memory: memory.clone() }
    }
}

fn never() {
    panic!("nobody asked for a kick");
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// # Safety
/// The words are those of rings with so many entries, and each request is a signaled one of one unit, from one element to a
/// remote address, both in this process.
unsafe fn serve(words: &Words, stop: &AtomicBool) {
    let (mut taken, mut made) = (0u16, 0u32);
    // SAFETY: the words are those of living rings, and requests name memory of this process (this function's contract).
    unsafe {
        while !stop.load(Ordering::Relaxed) {
            let available = (*words.avail_idx).load(Ordering::Acquire);
            if available == taken {
                std::hint::spin_loop();
                continue;
            }
            while taken != available {
                let position = usize::from(taken & (words.entries - 1));
                let slot = (*words.avail.add(position)).load(Ordering::Relaxed);
                let request = words.slots.add(8 * usize::from(slot)).cast::<[u64; 8]>().read_volatile();
                (*words.used.add(2 * position)).store(slot.into(), Ordering::Relaxed);
                (*words.used.add(2 * position + 1)).store(0, Ordering::Relaxed);
                taken = taken.wrapping_add(1);
                let (to, from, len) = (request[2], request[4], request[5] & 0xffff_ffff);
                copy(from as *const u8, to as *mut u8, len as usize);
                let cqe = words.cqes.add(4 * (made & (words.cq_entries - 1)) as usize);
                let phase = u64::from(made & words.cq_entries == 0) << 56;
                (*cqe).store(request[1] & 0xffff_ffff | request[0] & 0xffff_ffff << 32, Ordering::Relaxed);
                (*cqe.add(1)).store(0, Ordering::Relaxed);
                (*cqe.add(2)).store(0, Ordering::Relaxed);
                (*cqe.add(3)).store(phase, Ordering::Release);
                made = made.wrapping_add(1);
            }
            (*words.used_idx).store(taken, Ordering::Release);
        }
    }
}

/// # Safety
/// `len` bytes at `from` are readable, at `to` writable.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `len` bytes are readable and writable (this function's contract); the two do not overlap in any benchmark.
    unsafe {
        if len == 8 {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// A way to copy memory.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. `len` and `to` are multiples of [`ALIGNMENT`].
pub type CopyFn = unsafe fn(from: *const u8, to: *mut u8, len: usize);

/// Bytes of a non-temporal store of AVX, which faults at an address that is no multiple of them.
pub const ALIGNMENT: usize = 32;

/// Ways to copy memory, by name: the best of them is what a machine can do.
pub fn copies() -> Vec<(&'static str, CopyFn)> {
    let mut all: Vec<(&'static str, CopyFn)> = vec![("memcpy", memcpy)];
    #[cfg(target_arch = "x86_64")]
    {
        all.push(("rep movsb", movsb));
        // Its contract asks for it.
        if std::arch::is_x86_feature_detected!("avx") {
            all.push(("non-temporal", non_temporal));
        }
    }
    all
}

/// # Safety
/// That of [`CopyFn`].
unsafe fn memcpy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the contract of `CopyFn`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

/// # Safety
/// That of [`CopyFn`].
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

/// # Safety
/// That of [`CopyFn`], and the processor has AVX.
#[cfg(target_arch = "x86_64")]
unsafe fn non_temporal(from: *const u8, to: *mut u8, len: usize) {
    /// # Safety
    /// That of [`CopyFn`].
    #[target_feature(enable = "avx")]
    unsafe fn inner(from: *const u8, to: *mut u8, len: usize) {
        use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
        // SAFETY: the contract of `CopyFn`: `to` and `len` are multiples of 32, and so each address that is stored to.
        unsafe {
            for at in (0..len).step_by(ALIGNMENT) {
                _mm256_stream_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
            }
            _mm_sfence();
        }
    }
    // SAFETY: this function's contract.
    unsafe { inner(from, to, len) }
}
