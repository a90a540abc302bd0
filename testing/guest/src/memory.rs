//! The guest's memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;
/// Size of a huge page in bytes.
pub const HUGE_PAGE: u64 = 2 << 20;

/// A region of the memory table.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte: guest-physical address.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    host: NonNull<u8>,
}

impl Region {
    /// Returns the address of the first byte in this process: vhost-user's front-end address.
    pub fn front_end_addr(&self) -> u64 {
        self.host.as_ptr().addr() as u64
    }
}

/// Guest memory in a memfd, with a small allocator of its pages.
///
/// Allocated pages never have two users. They are freed by [`Memory::free`] alone, because a device
/// may write to them at any time.
#[derive(Debug)]
pub struct Memory {
    file: File,
    regions: Vec<Region>,
    /// Page size in bytes.
    page: u64,
    /// Free ranges by address: start and length.
    free: Mutex<Vec<(u64, u64)>>,
}

// SAFETY: the pointers lead to shared mappings that live as long as the value. All accesses through
// them are raw memory accesses.
unsafe impl Send for Memory {}
// SAFETY: the pointers lead to shared mappings that live as long as the value. All accesses through
// them are raw memory accesses.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates memory with these regions.
    ///
    /// Each region has a guest-physical address and a length, both multiples of a page. The regions
    /// are in ascending order.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn new(layout: &[(u64, u64)]) -> io::Result<Arc<Memory>> {
        Memory::of_pages(layout, PAGE)
    }

    /// Creates memory with these regions in huge pages.
    ///
    /// The lengths have to be multiples of a huge page.
    ///
    /// # Errors
    /// The system has not enough huge pages.
    pub fn huge(layout: &[(u64, u64)]) -> io::Result<Arc<Memory>> {
        Memory::of_pages(layout, HUGE_PAGE)
    }

    fn of_pages(layout: &[(u64, u64)], page: u64) -> io::Result<Arc<Memory>> {
        let huge = if page == HUGE_PAGE { libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { 0 };
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC | huge) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(layout.iter().map(|(_, len)| len).sum())?;
        let mut memory = Memory { file, regions: Vec::new(), page, free: Mutex::new(layout.to_vec()) };
        let mut offset = 0;
        for &(gpa, len) in layout {
            let host = map(&memory.file, offset, len)?;
            memory.regions.push(Region { gpa, len, offset, host });
            offset += len;
        }
        Ok(Arc::new(memory))
    }

    /// Returns whether the memory is in huge pages.
    pub fn is_huge(&self) -> bool {
        self.page == HUGE_PAGE
    }

    /// Returns the regions.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Changes the length of the file behind the memory; a shorter length cuts it off at the end.
    pub fn truncate(&self, len: u64) {
        self.file.set_len(len).expect("the file is ours");
    }

    /// Returns the file descriptor that the daemon maps.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the address of `len` bytes at `gpa` in this process, if they are in one region.
    pub fn try_host(&self, gpa: u64, len: u64) -> Option<NonNull<u8>> {
        let region = self.regions.iter().find(|r| gpa >= r.gpa && gpa - r.gpa < r.len)?;
        let offset = gpa - region.gpa;
        // SAFETY: the address is inside the region's mapping.
        (region.len - offset >= len).then(|| unsafe { region.host.add(offset as usize) })
    }

    /// Returns the address of `len` bytes at `gpa` in this process. Panics if they are not in one
    /// region.
    pub fn host(&self, gpa: u64, len: u64) -> NonNull<u8> {
        self.try_host(gpa, len).unwrap_or_else(|| panic!("{gpa:#x}+{len:#x} is not in one region"))
    }

    /// Copies bytes into guest memory.
    pub fn write(&self, gpa: u64, bytes: &[u8]) {
        let to = self.host(gpa, bytes.len() as u64);
        // SAFETY: the range is mapped, and a slice of this process does not overlap it.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Copies bytes out of guest memory into a slice.
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) {
        let from = self.host(gpa, bytes.len() as u64);
        // SAFETY: the range is mapped, and a slice of this process does not overlap it.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) }
    }

    /// Copies bytes out of guest memory into a vector.
    pub fn bytes(&self, gpa: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.read(gpa, &mut bytes);
        bytes
    }

    /// Sets `len` bytes at `gpa` to `byte`.
    pub fn fill(&self, gpa: u64, len: u64, byte: u8) {
        // SAFETY: the range is mapped.
        unsafe { self.host(gpa, len).write_bytes(byte, len as usize) }
    }

    /// Returns the 16-bit word at `gpa`, which must be aligned.
    pub fn word16(&self, gpa: u64) -> &AtomicU16 {
        assert!(gpa.is_multiple_of(2));
        // SAFETY: the word is mapped and aligned (regions begin at pages), and it lives as long as
        // `self`.
        unsafe { AtomicU16::from_ptr(self.host(gpa, 2).cast().as_ptr()) }
    }

    /// Returns the 32-bit word at `gpa`, which must be aligned.
    pub fn word32(&self, gpa: u64) -> &AtomicU32 {
        assert!(gpa.is_multiple_of(4));
        // SAFETY: the word is mapped and aligned (regions begin at pages), and it lives as long as
        // `self`.
        unsafe { AtomicU32::from_ptr(self.host(gpa, 4).cast().as_ptr()) }
    }

    /// Returns the 64-bit word at `gpa`, which must be aligned.
    pub fn word64(&self, gpa: u64) -> &AtomicU64 {
        assert!(gpa.is_multiple_of(8));
        // SAFETY: the word is mapped and aligned (regions begin at pages), and it lives as long as
        // `self`.
        unsafe { AtomicU64::from_ptr(self.host(gpa, 8).cast().as_ptr()) }
    }

    /// Allocates contiguous, zeroed pages for `len` bytes and returns their address.
    pub fn alloc(&self, len: u64) -> u64 {
        let len = len.max(1).next_multiple_of(PAGE);
        let mut free = self.free.lock().expect("no panic with it");
        let range = free.iter_mut().find(|(_, room)| *room >= len);
        let (start, room) = range.unwrap_or_else(|| panic!("guest memory is used up: {len} bytes wanted"));
        let gpa = *start;
        (*start, *room) = (gpa + len, *room - len);
        drop(free);
        self.fill(gpa, len, 0);
        gpa
    }

    /// Takes exactly these pages out of the allocator, and returns whether they were free.
    pub fn reserve(&self, gpa: u64, len: u64) -> bool {
        let mut free = self.free.lock().expect("no panic with it");
        let Some(at) = free.iter().position(|(s, l)| *s <= gpa && gpa + len <= s + l) else { return false };
        let (start, room) = free.remove(at);
        free.insert(at, (gpa + len, start + room - gpa - len));
        free.insert(at, (start, gpa - start));
        true
    }

    /// Frees pages of [`Memory::alloc`].
    pub fn free(&self, gpa: u64, len: u64) {
        let len = len.max(1).next_multiple_of(PAGE);
        let mut free = self.free.lock().expect("no panic with it");
        free.retain(|(_, len)| *len != 0);
        let at = free.partition_point(|(start, _)| *start < gpa);
        free.insert(at, (gpa, len));
        if at + 1 < free.len() && free[at].0 + free[at].1 == free[at + 1].0 {
            free[at].1 += free.remove(at + 1).1;
        }
        if at > 0 && free[at - 1].0 + free[at - 1].1 == free[at].0 {
            free[at - 1].1 += free.remove(at).1;
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for region in &self.regions {
            // SAFETY: `map()` mapped this region with this length. Nothing borrows from `self` any
            // more.
            unsafe { libc::munmap(region.host.as_ptr().cast(), region.len as usize) };
        }
    }
}

fn map(file: &File, offset: u64, len: u64) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses affects no other memory of this
    // process.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), len as usize, protection, flags, file.as_raw_fd(), offset as i64)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_zeroed_and_are_joined_again() {
        let memory = Memory::new(&[(0x10000, 3 * PAGE), (0x40000, PAGE)]).unwrap();
        let (a, b) = (memory.alloc(PAGE), memory.alloc(2 * PAGE));
        assert_eq!((a, b, memory.alloc(1)), (0x10000, 0x11000, 0x40000));
        memory.write(a, &[1; 4096]);
        memory.free(b, 2 * PAGE);
        memory.free(a, PAGE);
        assert_eq!(memory.alloc(3 * PAGE), 0x10000);
        assert_eq!(memory.bytes(a, PAGE), [0; 4096]);
    }

    #[test]
    fn huge_pages_are_memory_or_an_error() {
        // Many machines have no huge pages.
        if let Ok(memory) = Memory::huge(&[(HUGE_PAGE, HUGE_PAGE)]) {
            assert!(memory.is_huge());
            memory.write(HUGE_PAGE, &[1, 2, 3]);
            assert_eq!(memory.bytes(HUGE_PAGE, 4), [1, 2, 3, 0]);
        }
        assert!(!Memory::new(&[(HUGE_PAGE, HUGE_PAGE)]).unwrap().is_huge());
    }

    #[test]
    fn holes_are_not_memory() {
        let memory = Memory::new(&[(0x10000, PAGE), (0x40000, PAGE)]).unwrap();
        assert!(memory.try_host(0x10fff, 1).is_some() && memory.try_host(0x10fff, 2).is_none());
        assert!(memory.try_host(0xffff, 1).is_none() && memory.try_host(0x11000, 1).is_none());
    }
}
