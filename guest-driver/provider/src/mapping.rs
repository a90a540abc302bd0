//! Mapped memory.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use crate::errno::{self, Errno};
use crate::ffi;

/// A mapping, undone when dropped.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The mapping is excluded from forks.
    kept_from_fork: bool,
}

// SAFETY: memory is not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a Mapping only has the address of the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory of this process that a device will write.
    ///
    /// Pinned pages must not become copies in a parent that forks. So they are not inherited by
    /// children, if the process requested that by `ibv_fork_init`.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut mapping = Self::new(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        // SAFETY: exactly the new mapping.
        errno::check(unsafe { ffi::ibv_dontfork_range(mapping.start.as_ptr().cast(), mapping.len) })?;
        mapping.kept_from_fork = true;
        Ok(mapping)
    }

    /// Maps `len` bytes of what the driver offers at `offset`, readable and writable.
    pub fn shared(fd: c_int, offset: u64, len: u32) -> Result<Self, Errno> {
        Self::of_driver(fd, offset, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps `len` bytes of what the driver offers at `offset`, writable only.
    pub fn write_only(fd: c_int, offset: u64, len: u32) -> Result<Self, Errno> {
        Self::of_driver(fd, offset, len, libc::PROT_WRITE)
    }

    /// Returns the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of `len` bytes at `offset`, or `None` if they are not inside.
    pub fn part(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: inside the mapping.
        (end <= self.len).then(|| unsafe { self.start.add(offset) })
    }

    fn of_driver(fd: c_int, offset: u64, len: u32, protection: c_int) -> Result<Self, Errno> {
        let offset = offset.try_into().map_err(|_| libc::EINVAL)?;
        Self::new(len as usize, protection, libc::MAP_SHARED, fd, offset)
    }

    fn new(len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(errno::last());
        }
        let start = NonNull::new(start.cast()).ok_or(libc::ENOMEM)?;
        Ok(Self { start, len, kept_from_fork: false })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping. Every user of the memory drops the mapping after its
        // pointers.
        unsafe {
            if self.kept_from_fork {
                ffi::ibv_dofork_range(self.start.as_ptr().cast(), self.len);
            }
            libc::munmap(self.start.as_ptr().cast(), self.len);
        }
    }
}
