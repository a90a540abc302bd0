//! Makes pages resident before they are needed.
//!
//! The first access to a page may wait until the system finds one. In the worker, all guests would
//! wait for that. Sessions therefore touch in their own threads what the worker will use.

use super::extent::HostExtent;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Shorter pieces are touched page by page, because a system call takes longer.
const SHORT: u64 = 64 << 10;
/// Size of the slice for one system call, in bytes. No other thread can map or unmap anything
/// during the call.
const SLICE: u64 = 2 << 20;
/// Size of a page in bytes.
const PAGE: u64 = 4096;

/// Makes the pages of a piece of guest memory resident. The caller holds the memory, so the piece
/// stays mapped.
pub(super) fn populate(piece: HostExtent) {
    let mut at = piece.ptr.map_addr(|addr| addr & !(PAGE as usize - 1));
    let mut left = (piece.len + (piece.ptr.addr() - at.addr()) as u64).next_multiple_of(PAGE);
    while left != 0 {
        let len = left.min(SLICE);
        let advised = if left < SHORT {
            Err(Errno::INVAL)
        } else {
            // SAFETY: these are whole pages of a mapping, and their contents do not change.
            unsafe { madvise(at.cast(), len as usize, Advice::LinuxPopulateWrite) }
        };
        match advised {
            Ok(()) => {}
            // Linux before 5.14 does not know the advice, and also returns this error.
            Err(Errno::INVAL) => touch(at, len),
            Err(_) => return,
        }
        // SAFETY: the pointer stays inside the mapping, or is one past its end.
        (at, left) = (unsafe { at.add(len as usize) }, left - len);
    }
}

/// Which pages of one slice of a mapping the file has.
pub(super) struct Present {
    /// Address of the slice's first byte.
    start: usize,
    /// One byte for each page. The lowest bit says whether the file has it (`mincore(2)`).
    pages: [u8; PAGES],
    is_known: bool,
}

/// Number of pages of a slice.
const PAGES: usize = (SLICE / PAGE) as usize;

impl Default for Present {
    /// Returns a value that knows no slice.
    fn default() -> Present {
        Present { start: 0, pages: [0; PAGES], is_known: false }
    }
}

impl Present {
    /// Returns the bytes of those pages of a piece that its file lacks. Later calls count these
    /// pages as present.
    ///
    /// The piece belongs to the mapping of `len` bytes at `start`. The caller holds the memory, so
    /// the piece stays mapped.
    pub(super) fn missing(&mut self, piece: HostExtent, (start, len): (usize, u64)) -> u64 {
        let (mut at, mut left, mut missing) = ((piece.ptr.addr() - start) as u64, piece.len, 0);
        while left != 0 {
            let stretch = at / SLICE * SLICE;
            let part = left.min(stretch + SLICE - at);
            self.look(piece.ptr.with_addr(start + stretch as usize), (len - stretch).min(SLICE));
            let (first, last) = ((at - stretch) / PAGE, (at - stretch + part - 1) / PAGE);
            let pages = &mut self.pages[first as usize..=last as usize];
            missing += pages.iter().filter(|&&page| page & 1 == 0).count() as u64 * PAGE;
            pages.fill(1);
            (at, left) = (at + part, left - part);
        }
        missing
    }

    /// Queries a slice, unless it was the last one queried. If the query fails, all pages count as
    /// missing.
    ///
    /// Pages that are swapped out count as missing, and so do pages that `fallocate(2)` made and
    /// nobody wrote. They are charged though they cost nothing. If a process may not write the file
    /// by its mode, `mincore(2)` reports all pages as present. The daemon may write it, by
    /// CAP_DAC_OVERRIDE.
    fn look(&mut self, start: *mut u8, len: u64) {
        if self.is_known && self.start == start.addr() {
            return;
        }
        (self.start, self.is_known) = (start.addr(), true);
        // SAFETY: these are whole pages of a mapping, and there is a byte for each.
        let result = unsafe { libc::mincore(start.cast(), len as usize, self.pages.as_mut_ptr()) };
        if result != 0 {
            self.pages.fill(0);
        }
    }
}

/// Reads a byte of each page. This makes pages of shared memory writable, too.
fn touch(at: *mut u8, len: u64) {
    for offset in (0..len).step_by(PAGE as usize) {
        // SAFETY: the address is inside the mapping. The guest may write at the same time, and the
        // byte is not used.
        unsafe { at.add(offset as usize).read_volatile() };
    }
}
