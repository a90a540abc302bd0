//! Pages that are there before they are needed: the first access to a page may wait for the system to find one, and in the worker all
//! guests would wait with it. So sessions touch, in their own threads, what the worker will.

use super::run::HostRun;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Shorter pieces are touched page by page: a system call takes longer.
const SHORT: u64 = 64 << 10;
/// Bytes in one system call, during which no other thread can map or unmap anything.
const SLICE: u64 = 2 << 20;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Has the pages of a piece of guest memory ready. The piece is mapped as long as the caller has its memory.
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

/// Reads a byte of each page. Memory that is shared is writable then, too.
fn touch(at: *mut u8, len: u64) {
    for offset in (0..len).step_by(PAGE as usize) {
        // SAFETY: inside the mapping; the guest may write meanwhile, and the byte is not used.
        unsafe { at.add(offset as usize).read_volatile() };
    }
}
