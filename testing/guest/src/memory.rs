//! The guest's memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;

/// A region of the memory table.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First byte, guest-physical.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// Where it begins in the file.
    pub offset: u64,
    host: NonNull<u8>,
}

impl Region {
    /// First byte in this process, which is what vhost-user calls the front-end's address.
    pub fn front_end_addr(&self) -> u64 {
        self.host.as_ptr().addr() as u64
    }
}

/// Guest memory in a memfd, and a tiny allocator of its pages. Allocated pages are never in use by
/// two, and are given back only by [`Memory::free`]: a device may write to them as long as it
/// likes.
#[derive(Debug)]
pub struct Memory {
    file: File,
    regions: Vec<Region>,
    /// Bytes of its pages.
    page: u64,
    /// Free ranges by address: start and length.
    free: Mutex<Vec<(u64, u64)>>,
}

// SAFETY: the pointers lead to shared mappings that live as long as the value; what is done with
// them is raw memory access.
unsafe impl Send for Memory {}
// SAFETY: the same.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory with these regions (guest-physical address and length, multiples of a page, in
    /// order).
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn new(layout: &[(u64, u64)]) -> io::Result<Arc<Memory>> {
        Memory::of_pages(layout, PAGE)
    }

    /// The same in huge pages, of which the lengths have to be multiples.
    ///
    /// # Errors
    /// The system has not enough of them.
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
        // SAFETY: just made, and nobody else's.
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

    /// Whether it is in huge pages.
    pub fn is_huge(&self) -> bool {
        self.page == HUGE_PAGE
    }

    /// The regions.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Changes the length of the file behind the memory: less cuts it off from the end.
    pub fn truncate(&self, len: u64) {
        self.file.set_len(len).expect("the file is ours");
    }

    /// What the daemon maps.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Where `len` bytes at `gpa` are in this process, if they are in one region.
    pub fn try_host(&self, gpa: u64, len: u64) -> Option<NonNull<u8>> {
        let region = self.regions.iter().find(|r| gpa >= r.gpa && gpa - r.gpa < r.len)?;
        let offset = gpa - region.gpa;
        // SAFETY: inside the region's mapping.
        (region.len - offset >= len).then(|| unsafe { region.host.add(offset as usize) })
    }

    /// Where `len` bytes at `gpa` are in this process.
    pub fn host(&self, gpa: u64, len: u64) -> NonNull<u8> {
        self.try_host(gpa, len).unwrap_or_else(|| panic!("{gpa:#x}+{len:#x} is not in one region"))
    }

    /// Copies bytes in.
    pub fn write(&self, gpa: u64, bytes: &[u8]) {
        let to = self.host(gpa, bytes.len() as u64);
        // SAFETY: the range is mapped, and a slice of this process does not overlap it.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Copies bytes out.
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) {
        let from = self.host(gpa, bytes.len() as u64);
        // SAFETY: the range is mapped, and a slice of this process does not overlap it.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) }
    }

    /// Copies bytes out.
    pub fn bytes(&self, gpa: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.read(gpa, &mut bytes);
        bytes
    }

    /// Sets bytes.
    pub fn fill(&self, gpa: u64, len: u64, byte: u8) {
        // SAFETY: the range is mapped.
        unsafe { self.host(gpa, len).write_bytes(byte, len as usize) }
    }

    /// A 16-bit word.
    pub fn word16(&self, gpa: u64) -> &AtomicU16 {
        assert!(gpa.is_multiple_of(2));
        // SAFETY: mapped, aligned (regions begin with pages), and lives as long as `self`.
        unsafe { AtomicU16::from_ptr(self.host(gpa, 2).cast().as_ptr()) }
    }

    /// A 32-bit word.
    pub fn word32(&self, gpa: u64) -> &AtomicU32 {
        assert!(gpa.is_multiple_of(4));
        // SAFETY: as in word16().
        unsafe { AtomicU32::from_ptr(self.host(gpa, 4).cast().as_ptr()) }
    }

    /// A 64-bit word.
    pub fn word64(&self, gpa: u64) -> &AtomicU64 {
        assert!(gpa.is_multiple_of(8));
        // SAFETY: as in word16().
        unsafe { AtomicU64::from_ptr(self.host(gpa, 8).cast().as_ptr()) }
    }

    /// Whole pages, zeroed, one behind the other, that hold `len` bytes.
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

    /// Takes exactly these pages out of the allocator, if they are free.
    pub fn reserve(&self, gpa: u64, len: u64) -> bool {
        let mut free = self.free.lock().expect("no panic with it");
        let Some(at) = free.iter().position(|(s, l)| *s <= gpa && gpa + len <= s + l) else { return false };
        let (start, room) = free.remove(at);
        free.insert(at, (gpa + len, start + room - gpa - len));
        free.insert(at, (start, gpa - start));
        true
    }

    /// Gives pages of [`Memory::alloc`] back.
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
            // SAFETY: mapped by map() with this length; nobody who borrows from `self` is left.
            unsafe { libc::munmap(region.host.as_ptr().cast(), region.len as usize) };
        }
    }
}

fn map(file: &File, offset: u64, len: u64) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, where the kernel likes; nothing of this process is touched.
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
        // Many machines have none.
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
