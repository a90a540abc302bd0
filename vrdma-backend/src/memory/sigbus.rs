//! Guest memory whose file was cut short.
//!
//! A front-end can shrink the file behind a memory region after this process has mapped it; touching the missing pages raises SIGBUS,
//! which would end the process and every guest with it. Instead the handler here puts private zero pages in the place of the whole region.
//! The guest has cut itself off: what is written there it never sees. The others notice nothing.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Most regions at a time. Past that regions are refused, so none is without protection.
const SLOTS: usize = 8192;

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { taken: AtomicBool::new(false), start: AtomicUsize::new(0), len: AtomicUsize::new(0) } };
        SLOTS];
static FAULTS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Protection of one mapping for as long as this lives.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Protects a mapping of `len` bytes at `start`, which must outlive neither this nor be something else than guest memory.
    ///
    /// # Errors
    /// Too many regions.
    pub fn new(start: *mut u8, len: usize) -> io::Result<Guard> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let free = |slot: &Slot| {
            slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = TABLE.iter().position(free).ok_or_else(|| io::Error::other("too many memory regions"))?;
        TABLE[index].start.store(start.addr(), Ordering::Relaxed);
        TABLE[index].len.store(len, Ordering::Release);
        Ok(Guard(index))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].len.store(0, Ordering::Release);
        TABLE[self.0].taken.store(false, Ordering::Release);
    }
}

/// How many regions have been replaced.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

fn install() {
    // SAFETY: all-zero is a valid sigaction; the handler is async-signal-safe: it touches atomics and calls mmap and sigaction only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let previous = Box::leak(Box::new(std::mem::zeroed()));
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, previous), 0, "SIGBUS can be handled");
        PREVIOUS.store(previous, Ordering::Release);
    }
}

extern "C" fn handle(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t, in which SIGBUS sets the address.
    let address = unsafe { (*info).si_addr() }.addr();
    for slot in &TABLE {
        let len = slot.len.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= len {
            continue;
        }
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces a mapping of guest memory, to which nobody has a reference, by another of the same length.
        let mapped = unsafe { libc::mmap(std::ptr::without_provenance_mut(start), len, prot, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            FAULTS.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: on return the instruction faults again, and the handler that was there before sees it.
    // SAFETY: `install` stored what sigaction returned.
    unsafe { libc::sigaction(libc::SIGBUS, PREVIOUS.load(Ordering::Acquire), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::super::tests::memfd;
    use super::super::{GuestMemory, MrMemory, RegionSpec, Run};
    use super::*;
    use std::sync::Arc;
    use vrdma_transport::Region;

    #[test]
    fn a_truncated_file_costs_its_guest_the_memory_and_nobody_else() {
        let file = memfd(0x10000);
        let other = memfd(0x1000);
        let spec = |gpa, len, file| RegionSpec { gpa, len, front_end_addr: gpa, file_offset: 0, file };
        let memory = GuestMemory::map(vec![
            spec(0, 0x10000, file.try_clone().unwrap()),
            spec(0x10000, 0x1000, other.try_clone().unwrap()),
        ]);
        let memory = Arc::new(memory.unwrap());
        let all = MrMemory::all(&memory);
        all.write(0x8000, &[7; 16]).unwrap();
        all.write(0x10000, &[9; 16]).unwrap();
        let before = faults();
        file.set_len(0).unwrap();
        let mut bytes = [1; 16];
        all.read(0x8000, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
        all.write(0x9000, &[1; 16]).unwrap();
        all.copy_to(0x9000, &all, 0x10008, 16).unwrap();
        all.read(0x10000, &mut bytes).unwrap();
        assert_eq!(bytes, [9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(faults(), before + 1, "the region is replaced as a whole");
        assert!(MrMemory::new(&memory, &[Run { gpa: 0, len: 1 }]).is_some());
    }
}
