//! Memory of the process for what is large: tables of thousands of QPs.
//!
//! In pages of 4 KiB a table of 10,000 QPs has more of them than a processor remembers translations
//! of, and in a VM each that it forgot takes it long to find (8 B WRITEs over 10,000 QPs in random
//! order: 0.75 of one QP's rate, 0.84 in huge pages). So allocations of 4 MiB and more lie on a
//! boundary of huge pages, and the kernel is asked for such: under 8 MiB in their first half, which
//! collections have filled when they grow so large, so that no page is partly used.
#![allow(unsafe_code, reason = "the system's calls for memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The system's allocator, but for what is large.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// From so many bytes on an allocation is large.
const LARGE: usize = 2 * HUGE;
/// From so many on all of it is to be in huge pages: what is not used of the last one is a small
/// part.
const WHOLE: usize = 4 * HUGE;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HUGE
}

// SAFETY: what is not large is System's. What is large is a private mapping of its own, as long as
// the layout says, and aligned to what `is_large` allows at most; each layout tells again which of
// both it was.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return advised(map(layout.size(), libc::PROT_READ | libc::PROT_WRITE), layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // Perhaps used sparsely: pages as usual.
            return map(layout.size(), libc::PROT_READ | libc::PROT_WRITE);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that it was allocated with this layout: so it is a mapping
        // if it is large.
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
        // SAFETY: the caller's promise that the alignment allows this size.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller's promise about `at` and `layout`.
        unsafe {
            match (is_large(layout), is_large(new)) {
                (false, false) => System.realloc(at, layout, new_size),
                // Longer alone: a shorter one is cut before it is moved, and whether it was nobody
                // tells if that fails.
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
    /// Copies an allocation into another; null, and nothing is changed, if there is no memory.
    ///
    /// # Safety
    /// `at` was allocated with `old`.
    #[cold]
    unsafe fn copied(&self, at: *mut u8, old: Layout, new: Layout) -> *mut u8 {
        // SAFETY: both are allocations, of at least so many bytes, and the new one is nobody
        // else's.
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

/// A mapping of so many bytes, on a boundary of huge pages; null if there is no room.
#[cold]
fn map(size: usize, protection: i32) -> *mut u8 {
    // The address space ends long before this overflows.
    let (size, flags) = (in_pages(size), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, of which all but `size` bytes from the boundary on are taken away
    // again.
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

/// Asks for huge pages in a mapping. Where there are none it has others.
fn advised(at: *mut u8, size: usize) -> *mut u8 {
    if !at.is_null() {
        let part = if size < WHOLE { size / 2 / HUGE * HUGE } else { in_pages(size) };
        // SAFETY: the mapping is ours, and keeps what it holds.
        unsafe { libc::madvise(at.cast(), part, libc::MADV_HUGEPAGE) };
    }
    at
}

/// Makes a mapping longer, elsewhere, without a copy: a worker waits for it. Null, and nothing is
/// changed, if the system does not.
///
/// # Safety
/// `at` is a mapping of `old` bytes, of [`map`], and all of it was advised alike; `new` is more.
#[cold]
unsafe fn remap(at: *mut u8, old: usize, new: usize) -> *mut u8 {
    let to = map(new, libc::PROT_NONE);
    if to.is_null() {
        return to;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the old mapping is the caller's, and what it is moved over is a new one of our own.
    let moved =
        unsafe { libc::mremap(at.cast(), in_pages(old), in_pages(new), flags, to.cast::<libc::c_void>()) };
    if moved == libc::MAP_FAILED {
        // Addresses alone are lost. Linux may have unmapped `to` before it failed, so that it may
        // be another thread's by now: it is not ours to unmap.
        return ptr::null_mut();
    }
    advised(to, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around both borders, in an order that goes over each of them in both directions.
    const SIZES: [usize; 9] =
        [100, LARGE - 1, LARGE, 3 * LARGE + 1, LARGE + PAGE, 5 * LARGE, LARGE, 4000, 2 * LARGE - 3];

    fn fill(at: *mut u8, from: usize, to: usize) {
        // SAFETY: the tests' own allocations, of at least `to` bytes.
        (from..to).step_by(509).for_each(|index| unsafe { at.add(index).write(index as u8 ^ 0x5a) });
    }

    fn check(at: *mut u8, to: usize) {
        // SAFETY: as above, filled before.
        let is_right = |index: usize| unsafe { at.add(index).read() } == index as u8 ^ 0x5a;
        assert!((0..to).step_by(509).all(is_right));
    }

    #[test]
    fn what_is_in_an_allocation_stays_in_it_however_long_it_becomes() {
        for align in [1, 64, PAGE] {
            let layout = |size| Layout::from_size_align(size, align).unwrap();
            let mut size = 8;
            // SAFETY: each size is that of the call before.
            let mut at = unsafe { Allocator.alloc(layout(size)) };
            for new in SIZES {
                fill(at, 0, size);
                // SAFETY: see above.
                at = unsafe { Allocator.realloc(at, layout(size), new) };
                assert!(!at.is_null() && at.align_offset(align) == 0);
                assert!(new < LARGE || at.align_offset(HUGE) == 0, "{new}");
                check(at, size.min(new));
                fill(at, 0, new);
                check(at, new);
                size = new;
            }
            // SAFETY: see above.
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
        // SAFETY: freed with the layout that it has then.
        let at = unsafe { Allocator.realloc(Allocator.alloc(layout), layout, 9 * LARGE) };
        let begins = format!("{:x}-", at as usize);
        assert!(mappings().contains(&begins));
        // SAFETY: see above.
        unsafe { Allocator.dealloc(at, Layout::from_size_align(9 * LARGE, 8).unwrap()) };
        assert!(!mappings().contains(&begins));
    }

    #[test]
    fn what_there_is_no_room_for_is_null_and_changes_nothing() {
        let layout = Layout::from_size_align(LARGE, 8).unwrap();
        let huge = isize::MAX as usize & !(HUGE - 1);
        // SAFETY: freed with its layout; the larger one was never made.
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
