//! Pages that are there before they are needed: the first access to a page may wait for the system
//! to find one, and in the worker all guests would wait with it. So sessions touch, in their own
//! threads, what the worker will.

use super::run::HostRun;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Shorter pieces are touched page by page: a system call takes longer.
const SHORT: u64 = 64 << 10;
/// Bytes in one system call, during which no other thread can map or unmap anything.
const SLICE: u64 = 2 << 20;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Has the pages of a piece of guest memory ready. The piece is mapped as long as the caller has
/// its memory.
pub(super) fn populate(piece: HostRun) {
    let mut at = piece.ptr.map_addr(|addr| addr & !(PAGE as usize - 1));
    let mut left = (piece.len + (piece.ptr.addr() - at.addr()) as u64).next_multiple_of(PAGE);
    while left != 0 {
        let len = left.min(SLICE);
        let advised = if left < SHORT {
            Err(Errno::INVAL)
        } else {
            // SAFETY: whole pages of a mapping, of which what lies in them does not change.
            unsafe { madvise(at.cast(), len as usize, Advice::LinuxPopulateWrite) }
        };
        match advised {
            Ok(()) => {}
            // Also where the system (before Linux 5.14) does not know the advice.
            Err(Errno::INVAL) => touch(at, len),
            Err(_) => return,
        }
        // SAFETY: inside the mapping, or one past its end.
        (at, left) = (unsafe { at.add(len as usize) }, left - len);
    }
}

/// What a file has of the pages in one stretch of a mapping.
pub(super) struct Present {
    /// First byte of the stretch.
    start: usize,
    /// One for each page; the lowest bit says whether the file has it (mincore(2)).
    pages: [u8; PAGES],
    is_known: bool,
}

/// Pages of a stretch.
const PAGES: usize = (SLICE / PAGE) as usize;

impl Default for Present {
    /// Of none.
    fn default() -> Present {
        Present { start: 0, pages: [0; PAGES], is_known: false }
    }
}

impl Present {
    /// Bytes of the pages of a piece that its file does not have yet, which from then on it is
    /// taken to have. The piece is of the mapping that begins at `start` and has `len` bytes, and
    /// is mapped as long as the caller has its memory.
    pub(super) fn missing(&mut self, piece: HostRun, (start, len): (usize, u64)) -> u64 {
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

    /// Finds out about a stretch, unless that was the last. What cannot be found out is not there.
    /// Pages that are swapped out, or that fallocate(2) made and nobody wrote, are not there
    /// either: they are charged though they cost nothing. To a process that may not write the file
    /// by its mode, mincore(2) says that all is there; the daemon may, by CAP_DAC_OVERRIDE.
    fn look(&mut self, start: *mut u8, len: u64) {
        if self.is_known && self.start == start.addr() {
            return;
        }
        (self.start, self.is_known) = (start.addr(), true);
        // SAFETY: whole pages of a mapping, and a byte for each.
        let result = unsafe { libc::mincore(start.cast(), len as usize, self.pages.as_mut_ptr()) };
        if result != 0 {
            self.pages.fill(0);
        }
    }
}

/// Reads a byte of each page. Memory that is shared is writable then, too.
fn touch(at: *mut u8, len: u64) {
    for offset in (0..len).step_by(PAGE as usize) {
        // SAFETY: inside the mapping; the guest may write meanwhile, and the byte is not used.
        unsafe { at.add(offset as usize).read_volatile() };
    }
}
