//! Guest memory: which of it there is, where it lies in this process, and how it is touched.
//!
//! The guest writes to its memory at any time, so nothing here makes a reference into it: bytes are copied through raw
//! pointers, words through atomics.
#![allow(unsafe_code)] // This folder is the border to memory that others share.

mod buffers;
mod copy;
mod region;
mod shared;
pub mod sigbus;

pub use buffers::Buffers;
pub use region::MrMemory;
pub use shared::Shared;

use std::fs::File;
use std::io;
use std::sync::Arc;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};
use vm_memory::{MmapRegion, mmap::MmapRegionError};

/// The guest's memory as the front-end last described it. It stays mapped while anything holds the [`Arc`] to it.
#[derive(Debug, Default)]
pub struct GuestMemory {
    mmap: GuestMemoryMmap<()>,
    /// Where the front-end has each region in its own address space: ring addresses come as such.
    views: Vec<View>,
}

#[derive(Clone, Debug)]
struct View {
    gpa: u64,
    len: u64,
    front_end_addr: u64,
    /// The file may be cut short while it is mapped.
    _guard: Arc<sigbus::Guard>,
}

/// A region as the front-end describes it.
#[derive(Debug)]
pub struct RegionSpec {
    /// First byte, guest-physical.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte in the front-end's address space.
    pub front_end_addr: u64,
    /// Where the region begins in the file.
    pub file_offset: u64,
    /// What to map.
    pub file: File,
}

/// A run of guest-physical memory that is not known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte, guest-physical.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A run of this process's memory that backs guest memory.
#[derive(Clone, Copy, Debug)]
pub struct HostRun {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: u64,
}

impl GuestMemory {
    /// Maps the regions of a memory table.
    ///
    /// # Errors
    /// A region that cannot be mapped, or that overlaps another.
    pub fn map(regions: Vec<RegionSpec>) -> io::Result<GuestMemory> {
        let mut memory = GuestMemory::default();
        for region in regions {
            memory = memory.with(region)?;
        }
        Ok(memory)
    }

    /// This memory and one region more.
    ///
    /// # Errors
    /// A region that cannot be mapped, that overlaps another, or whose file is none that guests have for memory.
    pub fn with(&self, region: RegionSpec) -> io::Result<GuestMemory> {
        let size = usize::try_from(region.len).map_err(io::Error::other)?;
        if region.gpa.checked_add(region.len).is_none()
            || region.front_end_addr.checked_add(region.len).is_none()
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "memory region wraps"));
        }
        check_file(&region.file, region.len)?;
        let mapped = MmapRegion::from_file(FileOffset::new(region.file, region.file_offset), size)
            .map_err(|e: MmapRegionError| io::Error::other(e.to_string()))?;
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(region.gpa))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "memory region wraps"))?;
        let guard = Arc::new(sigbus::Guard::new(mapped.as_ptr(), size)?);
        let mmap = self.mmap.insert_region(Arc::new(mapped)).map_err(io::Error::other)?;
        let mut views = self.views.clone();
        views.push(View {
            gpa: region.gpa,
            len: region.len,
            front_end_addr: region.front_end_addr,
            _guard: guard,
        });
        Ok(GuestMemory { mmap, views })
    }

    /// This memory less one region.
    ///
    /// # Errors
    /// No region begins at `gpa` with that length.
    pub fn without(&self, gpa: u64, len: u64) -> io::Result<GuestMemory> {
        let (mmap, _) = self.mmap.remove_region(GuestAddress(gpa), len).map_err(io::Error::other)?;
        let views = self.views.iter().filter(|v| v.gpa != gpa).cloned().collect();
        Ok(GuestMemory { mmap, views })
    }

    /// For `virtio-queue`.
    pub fn mmap(&self) -> &GuestMemoryMmap<()> {
        &self.mmap
    }

    /// Guest-physical address of an address of the front-end.
    pub fn front_end_to_gpa(&self, addr: u64) -> Option<u64> {
        self.views
            .iter()
            .find(|v| addr.checked_sub(v.front_end_addr).is_some_and(|offset| offset < v.len))
            .map(|v| addr - v.front_end_addr + v.gpa)
    }

    /// Appends what backs `run` to `out`; several pieces where it crosses from one region into the next.
    /// `None` if any part of it is not guest memory, or if it is empty.
    pub fn resolve(&self, run: Run, out: &mut Vec<HostRun>) -> Option<()> {
        let end = run.gpa.checked_add(run.len)?;
        let mut at = run.gpa;
        if run.len == 0 {
            return None;
        }
        while at < end {
            let piece = self.piece(at, end - at)?;
            at += piece.len;
            match out.last_mut() {
                // SAFETY: only compares addresses; `last` is a run of one mapping, so its end is in bounds or one past it.
                Some(last) if unsafe { last.ptr.add(last.len as usize) } == piece.ptr => {
                    last.len += piece.len
                }
                _ => out.push(piece),
            }
        }
        Some(())
    }

    /// What backs `run` if that is one piece of this process's memory.
    pub fn resolve_one(&self, run: Run) -> Option<HostRun> {
        self.piece(run.gpa, run.len).filter(|piece| piece.len == run.len && run.len != 0)
    }

    /// What backs memory from `gpa` on: `len` bytes, or less where the region ends.
    fn piece(&self, gpa: u64, len: u64) -> Option<HostRun> {
        let region = self.mmap.find_region(GuestAddress(gpa))?;
        let offset = gpa - region.start_addr().0;
        let len = len.min(region.len() - offset);
        // SAFETY: `offset` is less than the region's length, so the pointer stays in the mapping.
        let ptr = unsafe { region.as_ptr().add(offset as usize) };
        Some(HostRun { ptr, len })
    }
}

/// File systems whose pages come from the kernel alone, soon: tmpfs (memfds too), ext4, XFS, Btrfs.
const PROMPT: [u32; 4] = [0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e];
const HUGETLBFS: u32 = 0x9584_58f6;

/// Refuses files that would make it dangerous to touch their memory: each access to a file of FUSE, for instance, may wait for a
/// process of the front-end's choice. And refuses parts of huge pages, which can be neither unmapped nor replaced ([`sigbus`]).
fn check_file(file: &File, len: u64) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let fs = rustix::fs::fstatfs(file)?;
    match fs.f_type as u32 {
        _ if !file.metadata()?.is_file() => wrong("memory region of something else than a file"),
        HUGETLBFS if !len.is_multiple_of(fs.f_bsize as u64) => {
            wrong("memory region of a part of a huge page")
        }
        HUGETLBFS => Ok(()),
        kind if PROMPT.contains(&kind) => Ok(()),
        _ => wrong("memory region of a file system whose files may not be there at once"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Memory of `regions` (GPA, length), each backed by a memfd of its own; front-end address = GPA + 1 TiB.
    pub(crate) fn memory(regions: &[(u64, u64)]) -> Arc<GuestMemory> {
        let specs = regions.iter().map(|&(gpa, len)| RegionSpec {
            gpa,
            len,
            front_end_addr: gpa + (1 << 40),
            file_offset: 0,
            file: memfd(len),
        });
        Arc::new(GuestMemory::map(specs.collect()).unwrap())
    }

    pub(crate) fn memfd(len: u64) -> File {
        use std::os::fd::FromRawFd;
        // SAFETY: the name is a C string, and the new descriptor is owned by the File alone.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn runs_outside_or_across_holes_are_refused() {
        let memory = memory(&[(0, 0x1000), (0x2000, 0x1000), (0x3000, 0x1000)]);
        let resolve = |gpa, len| {
            let mut out = Vec::new();
            memory.resolve(Run { gpa, len }, &mut out).map(|()| out.iter().map(|r| r.len).sum::<u64>())
        };
        assert_eq!(resolve(0, 0x1000), Some(0x1000));
        assert_eq!(resolve(0x2fff, 2), Some(2), "crosses from region to region");
        for (gpa, len) in
            [(0, 0), (0xfff, 2), (0x1000, 1), (0x3fff, 2), (u64::MAX, 2), (1, u64::MAX), (0x2000, 1 << 60)]
        {
            assert_eq!(resolve(gpa, len), None, "{gpa:#x}+{len:#x}");
        }
        assert!(memory.resolve_one(Run { gpa: 0x2100, len: 0x100 }).is_some());
    }

    #[test]
    fn front_end_addresses_are_translated() {
        let memory = memory(&[(0x1000, 0x1000)]);
        assert_eq!(memory.front_end_to_gpa((1 << 40) + 0x1fff), Some(0x1fff));
        assert_eq!(memory.front_end_to_gpa((1 << 40) + 0x2000), None);
        assert_eq!(memory.front_end_to_gpa(0xfff), None);
    }

    #[test]
    fn regions_come_and_go() {
        let first = memory(&[(0, 0x1000)]);
        let both = first
            .with(RegionSpec {
                gpa: 0x4000,
                len: 0x1000,
                front_end_addr: 0,
                file_offset: 0,
                file: memfd(0x1000),
            })
            .unwrap();
        assert!(both.resolve_one(Run { gpa: 0x4000, len: 0x1000 }).is_some());
        assert!(both.without(0x4000, 0x2000).is_err());
        let one = both.without(0x4000, 0x1000).unwrap();
        assert!(one.resolve_one(Run { gpa: 0x4000, len: 1 }).is_none());
        assert!(one.resolve_one(Run { gpa: 0, len: 1 }).is_some());
        let overlap = one.with(RegionSpec {
            gpa: 0xfff,
            len: 0x1000,
            front_end_addr: 0,
            file_offset: 0,
            file: memfd(0x1000),
        });
        assert!(overlap.is_err());
    }

    #[test]
    fn files_that_are_no_memory_are_refused() {
        let map = |file: File, len| {
            GuestMemory::map(vec![RegionSpec { gpa: 0, len, front_end_addr: 0, file_offset: 0, file }])
        };
        for path in ["/dev/zero", "/proc/self/maps"] {
            let error = map(File::open(path).unwrap(), 0x1000).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}: {error}");
        }
        assert!(map(memfd(0x1000), 0x1000).is_ok());
    }

    #[test]
    fn a_part_of_a_huge_page_is_refused_and_a_missing_one_is_survived() {
        use rustix::fs::MemfdFlags;
        use vrdma_transport::Region;
        const HUGE: u64 = 2 << 20;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let Ok(file) = rustix::fs::memfd_create("huge", flags).map(File::from) else {
            return; // The kernel has none.
        };
        file.set_len(2 * HUGE).unwrap();
        let map = |len| {
            let file = file.try_clone().unwrap();
            GuestMemory::map(vec![RegionSpec { gpa: 0, len, front_end_addr: 0, file_offset: 0, file }])
        };
        assert!(map(0x1000).is_err() && map(HUGE + 0x1000).is_err());
        let memory = Arc::new(map(HUGE).unwrap());
        // Whether or not the system has a huge page to give.
        MrMemory::all(&memory).write(HUGE - 8, &[7; 8]).unwrap();
    }
}
