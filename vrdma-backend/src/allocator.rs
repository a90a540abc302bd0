//! The global allocator, which puts large allocations into huge pages: tables of thousands of QPs.
//!
//! In pages of 4 KiB, a table of 10,000 QPs has more pages than a processor's TLB has entries. In a
//! VM each TLB miss is expensive. Measured with 8-byte WRITEs over 10,000 QPs in random order: 0.75
//! of one QP's rate with small pages, 0.84 with huge pages.
//!
//! So allocations of 4 MiB and more are aligned to huge pages, and the kernel is asked for huge
//! pages. Allocations under 8 MiB ask for them in their first half only. A collection that grew to
//! this size has filled that half, so no huge page is partly used.
#![allow(unsafe_code, reason = "the system's calls for memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The system's allocator, except for large allocations, which are mappings of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// Size in bytes from which on an allocation is large.
const LARGE: usize = 2 * HUGE;
/// Size in bytes from which on a whole allocation is to be in huge pages.
///
/// The unused part of its last huge page is a small part of the allocation then.
const WHOLE: usize = 4 * HUGE;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HUGE
}

// SAFETY: small allocations are those of `System`. A large allocation is a private mapping of its
// own. The mapping is as long as the layout says, and aligned to the most that `is_large` allows.
// `is_large` tells both kinds apart by the layout, which each call passes again.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return advised(map(layout.size(), libc::PROT_READ | libc::PROT_WRITE), layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // It may be used sparsely, so do not ask for huge pages.
            return map(layout.size(), libc::PROT_READ | libc::PROT_WRITE);
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that `at` was allocated with this layout. So it is a mapping
        // if the layout is large.
        unsafe {
            if is_large(layout) {
                libc::munmap(at.cast(), in_pages(layout.size()));
            } else {
                System.dealloc(at, layout);
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the alignment allows this size.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller promises that `at` was allocated with `layout`.
        unsafe {
            match (is_large(layout), is_large(new)) {
                (false, false) => System.realloc(at, layout, new_size),
                // Only to grow. To shrink, `mremap` cuts the mapping before it moves it. If the
                // call then fails, nothing tells whether it was cut.
                (true, true) if layout.size() >= WHOLE && new_size > layout.size() => {
                    let moved = remap(at, layout.size(), new_size);
                    if moved.is_null() { self.copied(at, layout, new) } else { moved }
                }
                _ => self.copied(at, layout, new),
            }
        }
    }
}

impl Allocator {
    /// Copies an allocation into another one. Returns null, and changes nothing, if there is no
    /// memory.
    ///
    /// # Safety
    /// `at` was allocated with `old`.
    #[cold]
    unsafe fn copied(&self, at: *mut u8, old: Layout, new: Layout) -> *mut u8 {
        // SAFETY: both allocations have at least as many bytes as are copied. The new one is not
        // shared.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                ptr::copy_nonoverlapping(at, to, old.size().min(new.size()));
                self.dealloc(at, old);
            }
            to
        }
    }
}

fn in_pages(size: usize) -> usize {
    size.next_multiple_of(PAGE)
}

/// Maps `size` bytes, aligned to a huge page. Returns null if there is no room.
#[cold]
fn map(size: usize, protection: i32) -> *mut u8 {
    // The address space ends long before this overflows.
    let (size, flags) = (in_pages(size), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the mapping is new. All of it is unmapped again except `size` bytes from the boundary
    // on.
    unsafe {
        let all = libc::mmap(ptr::null_mut(), size + HUGE, protection, flags, -1, 0);
        if all == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        let before = all.align_offset(HUGE);
        if before > 0 {
            libc::munmap(all, before);
        }
        let at = all.cast::<u8>().add(before);
        libc::munmap(at.add(size).cast(), HUGE - before);
        at
    }
}

/// Asks for huge pages in a mapping. If the system has none, the mapping uses small pages.
fn advised(at: *mut u8, size: usize) -> *mut u8 {
    if !at.is_null() {
        let part = if size < WHOLE { size / 2 / HUGE * HUGE } else { in_pages(size) };
        // SAFETY: the mapping is ours, and the advice keeps its contents.
        unsafe { libc::madvise(at.cast(), part, libc::MADV_HUGEPAGE) };
    }
    at
}

/// Moves a mapping to a longer one without copying, because a worker waits for it.
///
/// Returns null, and changes nothing, if the system refuses.
///
/// # Safety
/// `at` is a mapping of `old` bytes from [`map`]. All of it was advised alike. `new` is more than
/// `old`.
#[cold]
unsafe fn remap(at: *mut u8, old: usize, new: usize) -> *mut u8 {
    let to = map(new, libc::PROT_NONE);
    if to.is_null() {
        return to;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the old mapping is the caller's. The mapping that it replaces is new and ours.
    let moved =
        unsafe { libc::mremap(at.cast(), in_pages(old), in_pages(new), flags, to.cast::<libc::c_void>()) };
    if moved == libc::MAP_FAILED {
        // Only address space is lost. Linux may have unmapped `to` before it failed, so another
        // thread may have mapped it since. It must not be unmapped here.
        return ptr::null_mut();
    }
    advised(to, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around both limits. Their order crosses each limit in both directions.
    const SIZES: [usize; 9] =
        [100, LARGE - 1, LARGE, 3 * LARGE + 1, LARGE + PAGE, 5 * LARGE, LARGE, 4000, 2 * LARGE - 3];

    fn fill(at: *mut u8, from: usize, to: usize) {
        // SAFETY: the tests pass their own allocations, of at least `to` bytes.
        (from..to).step_by(509).for_each(|index| unsafe { at.add(index).write(index as u8 ^ 0x5a) });
    }

    fn check(at: *mut u8, to: usize) {
        // SAFETY: the tests pass their own allocations, of at least `to` bytes that `fill` wrote.
        let is_right = |index: usize| unsafe { at.add(index).read() } == index as u8 ^ 0x5a;
        assert!((0..to).step_by(509).all(is_right));
    }

    #[test]
    fn what_is_in_an_allocation_stays_in_it_however_long_it_becomes() {
        for align in [1, 64, PAGE] {
            let layout = |size| Layout::from_size_align(size, align).unwrap();
            let mut size = 8;
            // SAFETY: `size` is always the size of the preceding call.
            let mut at = unsafe { Allocator.alloc(layout(size)) };
            for new in SIZES {
                fill(at, 0, size);
                // SAFETY: `size` is the size of the preceding call.
                at = unsafe { Allocator.realloc(at, layout(size), new) };
                assert!(!at.is_null() && at.align_offset(align) == 0);
                assert!(new < LARGE || at.align_offset(HUGE) == 0, "{new}");
                check(at, size.min(new));
                fill(at, 0, new);
                check(at, new);
                size = new;
            }
            // SAFETY: `size` is the size of the preceding call.
            unsafe { Allocator.dealloc(at, layout(size)) };
        }
    }

    #[test]
    fn zeroed_memory_is_zero_though_it_was_used_before() {
        let layout = Layout::from_size_align(LARGE + 5, 8).unwrap();
        for _ in 0..4 {
            // SAFETY: freed with the same layout.
            unsafe {
                let at = Allocator.alloc_zeroed(layout);
                assert!((0..layout.size()).all(|index| at.add(index).read() == 0));
                fill(at, 0, layout.size());
                Allocator.dealloc(at, layout);
            }
        }
    }

    #[test]
    fn mappings_are_given_back_whole() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap();
        let layout = Layout::from_size_align(7 * LARGE, 8).unwrap();
        // SAFETY: freed with the layout that it then has.
        let at = unsafe { Allocator.realloc(Allocator.alloc(layout), layout, 9 * LARGE) };
        let begins = format!("{:x}-", at as usize);
        assert!(mappings().contains(&begins));
        // SAFETY: allocated with this layout by `realloc`.
        unsafe { Allocator.dealloc(at, Layout::from_size_align(9 * LARGE, 8).unwrap()) };
        assert!(!mappings().contains(&begins));
    }

    #[test]
    fn what_there_is_no_room_for_is_null_and_changes_nothing() {
        let layout = Layout::from_size_align(LARGE, 8).unwrap();
        let huge = isize::MAX as usize & !(HUGE - 1);
        // SAFETY: freed with its layout. The larger allocation was never made.
        unsafe {
            let at = Allocator.alloc(layout);
            fill(at, 0, LARGE);
            assert!(Allocator.realloc(at, layout, huge).is_null());
            check(at, LARGE);
            Allocator.dealloc(at, layout);
            assert!(Allocator.alloc(Layout::from_size_align(huge, 8).unwrap()).is_null());
        }
    }
}
