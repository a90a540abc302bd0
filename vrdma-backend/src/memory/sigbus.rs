//! Survives files of guest memory that are cut short.
//!
//! A front-end can shrink the file behind a memory region after this process has mapped it. Access
//! to a missing page raises SIGBUS, which would end the process and disconnect every guest. The
//! handler here instead replaces the whole region by private zero pages. The thread that accessed
//! it continues. The handler also shuts down the front-end's connection. Its session then detaches
//! the device, and the pages are freed with the mapping. Other guests notice nothing.

use super::slot::{Mapping, Slot};
use super::sync::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Once};

/// Largest number of regions of all guests at a time.
///
/// Further regions are refused, so that none is unprotected. It is below the system's limit of
/// mappings (`vm.max_map_count`, 65,530).
const SLOTS: usize = 32_768;

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        sequence: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        socket: AtomicI32::new(-1),
    }
}; SLOTS];
/// The index from which on slots were never taken.
static USED: AtomicUsize = AtomicUsize::new(0);
/// For each slot, whether its mapping was replaced.
static LOST: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];
static FAULTS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Protection of one mapping, for as long as this lives.
///
/// It must end before the mapping does, because another mapping may take its address at once.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
    /// Stays open while the slot names it.
    _connection: Option<Arc<UnixStream>>,
}

impl Guard {
    /// Protects a mapping of `len` bytes of guest memory at `start`. The mapping has to outlive the
    /// guard.
    ///
    /// If its file turns out to be shorter, `connection` is shut down.
    ///
    /// # Errors
    /// There are too many regions.
    pub fn new(start: *mut u8, len: usize, connection: Option<Arc<UnixStream>>) -> io::Result<Guard> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let socket = connection.as_ref().map_or(-1, |stream| stream.as_raw_fd());
        let mapping = Mapping { start: start.addr(), len, socket };
        let slot = TABLE
            .iter()
            .position(|slot| slot.take(mapping))
            .ok_or_else(|| io::Error::other("too many memory regions of all guests together"))?;
        LOST[slot].store(false, Ordering::Relaxed);
        // This precedes any access to the mapping, so the handler finds its slot.
        USED.fetch_max(slot + 1, Ordering::Release);
        Ok(Guard { slot, _connection: connection })
    }

    /// Returns whether the mapping was replaced. Its file was cut short, or the system had no page
    /// for it.
    pub fn is_lost(&self) -> bool {
        LOST[self.slot].load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.slot].release();
    }
}

/// Returns how many regions have been replaced.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

fn install() {
    // SAFETY: an all-zero sigaction is valid. The handler is async-signal-safe: it accesses
    // atomics, and calls mmap, shutdown and sigaction only.
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
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid siginfo_t, in which SIGBUS sets the address.
    let address = unsafe { (*info).si_addr() }.addr();
    if !replace(address) {
        // The address is in no guarded mapping. On return the instruction faults again, and the
        // previous handler sees it.
        // SAFETY: `install` stored what sigaction returned.
        unsafe { libc::sigaction(libc::SIGBUS, PREVIOUS.load(Ordering::Acquire), std::ptr::null_mut()) };
    }
    // SAFETY: errno is this thread's own. The interrupted code finds it unchanged.
    unsafe { *libc::__errno_location() = errno };
}

/// Replaces the guarded mapping that contains this address. Returns false if there is none.
///
/// The thread that accessed the address holds its mapping, so that mapping and its slot do not
/// change. All other slots may.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for (slot, lost) in TABLE[..used].iter().zip(&LOST) {
        let Some(Mapping { start, len, socket }) = slot.read() else { continue };
        if address.wrapping_sub(start) >= len {
            continue;
        }
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this replaces a mapping of guest memory, to which no references exist, by another
        // of the same length.
        let mapped = unsafe { libc::mmap(std::ptr::without_provenance_mut(start), len, prot, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        lost.store(true, Ordering::Relaxed);
        FAULTS.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        tests::FAULTS_HERE.set(tests::FAULTS_HERE.get() + 1);
        // SAFETY: this accesses no memory. The guard keeps the descriptor open, and -1 is refused.
        unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::memfd;
    use super::super::{Extent, GuestMemory, MrMemory, RegionSpec};
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use vrdma_transport::Region;

    thread_local! {
        /// Faults of this thread. Other tests cause some at the same time.
        pub(super) static FAULTS_HERE: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_truncated_file_costs_its_guest_the_memory_and_nobody_else() {
        let file = memfd(0x10000);
        let other = memfd(0x1000);
        let spec = |gpa, len, file| RegionSpec { gpa, len, front_end_addr: gpa, file_offset: 0, file };
        let memory = GuestMemory::default().map_anew(vec![
            spec(0, 0x10000, file.try_clone().unwrap()),
            spec(0x10000, 0x1000, other.try_clone().unwrap()),
        ]);
        let memory = Arc::new(memory.unwrap());
        let all = MrMemory::all(&memory);
        all.write(0x8000, &[7; 16]).unwrap();
        all.write(0x10000, &[9; 16]).unwrap();
        let before = (faults(), FAULTS_HERE.get());
        file.set_len(0).unwrap();
        let mut bytes = [1; 16];
        all.read(0x8000, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
        all.write(0x9000, &[1; 16]).unwrap();
        all.copy_to(0x9000, &all, 0x10008, 16).unwrap();
        all.read(0x10000, &mut bytes).unwrap();
        assert_eq!(bytes, [9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(FAULTS_HERE.get(), before.1 + 1, "the region is replaced as a whole");
        assert!(faults() > before.0, "and it is told");
        assert!(MrMemory::new(&memory, &[Extent { gpa: 0, len: 1 }]).is_some());
    }

    /// Two front-ends against a third, the victim.
    ///
    /// One front-end unmaps its memory, so that a file of the second is mapped at its address. The
    /// second's file is cut short, and accessed before the first one's protection ends. The stale
    /// protection would then replace whatever else is mapped there.
    #[test]
    fn memory_that_goes_takes_its_protection_with_it() {
        const HALF: u64 = 4 << 20;
        let spec = |gpa, len, file| RegionSpec { gpa, len, front_end_addr: gpa, file_offset: 0, file };
        let (big, small) = (memfd(2 * HALF), memfd(0x1000));
        let done = Arc::new(AtomicBool::new(false));
        let theirs = done.clone();
        let first = std::thread::spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                let more = (0..16).map(|i| spec((i + 1) << 32, 0x1000, small.try_clone().unwrap()));
                let first = spec(0, 2 * HALF, big.try_clone().unwrap());
                GuestMemory::default().map_anew([first].into_iter().chain(more).collect()).unwrap();
            }
        });
        let (short, victim) = (memfd(HALF), memfd(HALF));
        for round in 1..=10_000u64 {
            short.set_len(HALF).unwrap();
            let spec = |gpa, file: &std::fs::File| spec(gpa, HALF, file.try_clone().unwrap());
            let memory = GuestMemory::default().map_anew(vec![spec(0, &short), spec(HALF, &victim)]);
            let all = MrMemory::all(&Arc::new(memory.unwrap()));
            short.set_len(0).unwrap();
            all.write(0, &[1; 8]).unwrap();
            all.write(HALF + 0x1000, &round.to_ne_bytes()).unwrap();
            let mut seen = [0; 8];
            std::os::unix::fs::FileExt::read_exact_at(&victim, &mut seen, 0x1000).unwrap();
            assert_eq!(u64::from_ne_bytes(seen), round, "the victim's memory was replaced");
        }
        done.store(true, Ordering::Relaxed);
        first.join().unwrap();
    }
}
