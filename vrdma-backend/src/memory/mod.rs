//! Guest memory: its regions, where they are mapped in this process, and how they are accessed.
//!
//! The guest may write to its memory at any time, so nothing here makes a reference into it. Bytes
//! are copied through raw pointers, and words are accessed as atomics.
#![allow(unsafe_code, reason = "this folder is the border to memory that others share")]

mod backing;
mod buffers;
mod copy;
mod extent;
mod gate;
mod heat;
mod ledger;
mod pinned_region;
mod populate;
mod reaper;
mod region;
mod shared;
pub mod sigbus;
mod slot;
mod sync;

pub use backing::MapOptions;
pub use buffers::Buffers;
pub use extent::{Extent, HostExtent};
pub use gate::{PATIENCE, PinGate};
pub use ledger::{Ledger, TooMany};
pub use pinned_region::Pinned;
#[cfg(test)]
pub(crate) use reaper::tests::Busy;
pub use reaper::{Backlog, Entry, prepare as prepare_reaper, reap};
pub use region::{Extents, MrMemory, Pins, Translation};
pub use shared::{Shared, SharedLine, fetch_ahead};

use crate::panics;
use crate::port::DmaMapping;
use backing::{Pages, Reservation, check_file, refused};
use ledger::Charge;
use rustix::mm::{Advice, madvise};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};
use vm_memory::{MmapRegion, mmap::MmapRegionError};

/// A guest's memory as the front-end last described it. It stays mapped while anything holds the
/// [`Arc`].
#[derive(Debug, Default)]
pub struct GuestMemory {
    views: Vec<View>,
    mmap: GuestMemoryMmap<()>,
    options: MapOptions,
    dma_page: Option<usize>,
}

/// Size of a page in bytes: `PAGE` on tmpfs, `HUGE_PAGE` the smallest one of hugetlbfs.
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// A memory region. A table shares its regions with the table that it was derived from.
#[derive(Clone, Debug)]
struct View {
    gpa: u64,
    len: u64,
    /// Start in the front-end's address space. The front-end names ring addresses in it.
    front_end_addr: u64,
    mapping: Arc<Mapping>,
}

/// The mapping of a region, which is unmapped when no table has it any more.
///
/// Fields are dropped in this order. The IOMMU entry and the guard thus end before the mapping.
#[derive(Debug)]
struct Mapping {
    /// The IOMMU entry by which the uplink's device reaches it.
    dma: Option<DmaMapping>,
    /// Smallest size of its pages, in bytes.
    page: usize,
    /// Bytes of its pages that this process has made.
    charge: Charge,
    /// Protects against a file that is cut short while it is mapped.
    guard: sigbus::Guard,
    _region: Arc<GuestRegionMmap>,
    _reservation: Reservation,
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // `mmap` holds the regions too. After this line only the views' mappings hold them.
        drop(std::mem::take(&mut self.mmap));
        let unused: Vec<_> = self.views.drain(..).filter_map(|view| Arc::into_inner(view.mapping)).collect();
        if !unused.is_empty() {
            let entry = self.options.backlog.enter();
            // The tuple is dropped in this order.
            reaper::reap((unused, entry));
        }
    }
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
    /// Offset of the region in the file, in bytes.
    pub file_offset: u64,
    /// The file to map.
    pub file: File,
}

impl GuestMemory {
    /// Returns empty guest memory.
    pub fn empty(options: MapOptions) -> GuestMemory {
        GuestMemory { views: Vec::new(), mmap: GuestMemoryMmap::default(), options, dma_page: None }
    }

    /// Returns empty guest memory with the same options.
    pub fn emptied(&self) -> GuestMemory {
        GuestMemory::empty(self.options.clone())
    }

    /// Maps the regions of a new memory table, which replaces this one. The options stay the same.
    ///
    /// It waits until earlier tables that nobody holds any more are unmapped. A front-end can
    /// therefore not accumulate them.
    ///
    /// # Errors
    /// A region cannot be mapped, overlaps another, or is too large. Or its file is of no kind that
    /// guest memory may have.
    pub fn map_anew(&self, regions: Vec<RegionSpec>) -> io::Result<GuestMemory> {
        self.options.backlog.wait();
        regions.into_iter().try_fold(self.emptied(), |memory, region| memory.with_one(region))
    }

    /// Returns this memory with one more region. It waits for unmapping like
    /// [`GuestMemory::map_anew`].
    ///
    /// # Errors
    /// The errors of [`GuestMemory::map_anew`].
    pub fn with(&self, region: RegionSpec) -> io::Result<GuestMemory> {
        self.options.backlog.wait();
        self.with_one(region)
    }

    fn with_one(&self, region: RegionSpec) -> io::Result<GuestMemory> {
        // Guards and DMA mappings are in tables that all guests share.
        panics::shared(|| self.with_region(region))
    }

    fn with_region(&self, region: RegionSpec) -> io::Result<GuestMemory> {
        #[cfg(feature = "hooks")]
        crate::hooks::step("mapping");
        reaper::prepare();
        let RegionSpec { gpa, len, front_end_addr, file_offset, file } = region;
        let size = usize::try_from(len).map_err(io::Error::other)?;
        if gpa.checked_add(len).is_none() || front_end_addr.checked_add(len).is_none() {
            return refused("a memory region wraps");
        }
        let max = self.options.memory_max;
        if self.len().checked_add(len).is_none_or(|sum| sum > max) {
            return refused(format!(
                "a memory region of {len} bytes beside {}, and a guest may have {max}: memory_max",
                self.len()
            ));
        }
        let is_huge = check_file(&file, file_offset, len)? == Pages::Huge;
        let reservation = Reservation::new(len)?;
        let mapped = MmapRegion::from_file(FileOffset::new(file, file_offset), size)
            .map_err(|e: MmapRegionError| io::Error::other(e.to_string()))?;
        // The variable also makes the guard, which is created later, drop before the mapping if an
        // error occurs.
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(gpa)).map(Arc::new);
        let Some(mapped) = mapped else { return refused("a memory region wraps") };
        let guard = sigbus::Guard::new(mapped.as_ptr(), size, self.options.connection.clone())?;
        // SAFETY: these are whole pages of a mapping that this process owns. Their contents do not
        // change.
        unsafe { madvise(mapped.as_ptr().cast(), size, Advice::LinuxDontDump) }?;
        if is_huge {
            // Huge pages are reserved for the guest, and take long to allocate.
            populate::populate(HostExtent { ptr: mapped.as_ptr(), len });
        }
        let mmap = self.mmap.insert_region(mapped.clone()).map_err(io::Error::other)?;
        let dma = self.options.dma.as_ref().and_then(|dma| dma.map(mapped.as_ptr(), size));
        let mut views = self.views.clone();
        let mapping = Arc::new(Mapping {
            dma,
            page: if is_huge { HUGE_PAGE } else { PAGE },
            charge: Charge::new(self.options.ledger.clone()),
            guard,
            _region: mapped,
            _reservation: reservation,
        });
        views.push(View { gpa, len, front_end_addr, mapping });
        Ok(self.replaced(views, mmap))
    }

    /// Returns this memory without one region. It waits for unmapping like
    /// [`GuestMemory::map_anew`].
    ///
    /// # Errors
    /// No region begins at `gpa` with that length.
    pub fn without(&self, gpa: u64, len: u64) -> io::Result<GuestMemory> {
        self.options.backlog.wait();
        let (mmap, _) = self.mmap.remove_region(GuestAddress(gpa), len).map_err(io::Error::other)?;
        let views = self.views.iter().filter(|v| v.gpa != gpa).cloned().collect();
        Ok(self.replaced(views, mmap))
    }

    fn replaced(&self, views: Vec<View>, mmap: GuestMemoryMmap<()>) -> GuestMemory {
        let page = |view: &View| view.mapping.dma.as_ref().map(|_| view.mapping.page);
        let pages = views.iter().map(page).collect::<Option<Vec<_>>>();
        let dma_page = pages.and_then(|pages| pages.into_iter().min());
        GuestMemory { views, mmap, options: self.options.clone(), dma_page }
    }

    /// Makes the pages of these extents resident, up to `budget` bytes. It reduces `budget`
    /// accordingly.
    ///
    /// Addresses outside guest memory are skipped. If the system has no page left, the user of the
    /// page finds out. Pages that the file does not have yet are charged to the function. Pages of
    /// hugetlbfs are not charged: the VMM has to reserve them.
    ///
    /// # Errors
    /// The function, or all guests together, would exceed their limit. No page is made then.
    pub fn populate(&self, extents: &[Extent], budget: &mut u64) -> Result<(), TooMany> {
        let all = *budget;
        let mut present = populate::Present::default();
        let mut charged: Vec<(&Charge, u64)> = Vec::new();
        let mut is_too_much = false;
        self.for_pieces(extents, budget, |gpa, piece| {
            let view =
                self.views.iter().find(|view| gpa.checked_sub(view.gpa).is_some_and(|at| at < view.len));
            let Some(view) = view.filter(|view| view.mapping.page == PAGE) else { return };
            let start = piece.ptr.addr() - (gpa - view.gpa) as usize;
            let missing = present.missing(piece, (start, view.len));
            let charge = &view.mapping.charge;
            is_too_much = is_too_much || missing != 0 && charge.add(missing).is_err();
            match charged.last_mut() {
                _ if is_too_much || missing == 0 => {}
                Some((last, bytes)) if std::ptr::eq(*last, charge) => *bytes += missing,
                _ => charged.push((charge, missing)),
            }
        });
        if is_too_much {
            charged.into_iter().for_each(|(charge, bytes)| charge.give_back(bytes));
            return Err(TooMany);
        }
        self.for_pieces(extents, &mut { all }, |_, piece| populate::populate(piece));
        Ok(())
    }

    /// Calls `f` for the mapped pieces of these extents, with the guest-physical address, up to
    /// `budget` bytes.
    fn for_pieces(&self, extents: &[Extent], budget: &mut u64, mut f: impl FnMut(u64, HostExtent)) {
        for extent in extents {
            let (mut at, mut left) = (extent.gpa, extent.len.min(*budget));
            *budget -= left;
            while let Some(piece) = self.piece(at, left).filter(|_| left != 0) {
                f(at, piece);
                (at, left) = (at + piece.len, left - piece.len);
            }
            if *budget == 0 {
                return;
            }
        }
    }

    /// Counts a registration that is refused because it would make too many pages.
    pub fn refuse(&self) {
        self.options.ledger.refuse();
    }

    /// Returns the memory for `virtio-queue`. It must not be cloned: the mappings end with this
    /// object.
    pub fn mmap(&self) -> &GuestMemoryMmap<()> {
        &self.mmap
    }

    /// Returns the number of regions.
    pub fn num_regions(&self) -> usize {
        self.views.len()
    }

    /// Returns the total size of all regions in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.views.iter().map(|view| view.len).sum()
    }

    /// Returns the connection of its front-end.
    pub fn connection(&self) -> Option<Arc<UnixStream>> {
        self.options.connection.clone()
    }

    /// Returns the smallest page size in bytes, if the uplink's device reaches all of the memory.
    ///
    /// Memory within a page is contiguous for the device, too.
    pub fn dma_page(&self) -> Option<usize> {
        self.dma_page
    }

    /// Returns whether a part of it was replaced because its file was cut short.
    pub fn is_lost(&self) -> bool {
        self.views.iter().any(|view| view.mapping.guard.is_lost())
    }

    /// Translates an address of the front-end to a guest-physical address.
    pub fn front_end_to_gpa(&self, addr: u64) -> Option<u64> {
        self.views
            .iter()
            .find(|v| addr.checked_sub(v.front_end_addr).is_some_and(|offset| offset < v.len))
            .map(|v| addr - v.front_end_addr + v.gpa)
    }

    /// Appends the pieces that back `extent` to `out`. There are several if it crosses region
    /// boundaries.
    ///
    /// Returns `None` if a part is not guest memory, or if the extent is empty.
    pub fn resolve(&self, extent: Extent, out: &mut Vec<HostExtent>) -> Option<()> {
        let end = extent.gpa.checked_add(extent.len)?;
        let mut at = extent.gpa;
        if extent.len == 0 {
            return None;
        }
        while at < end {
            let piece = self.piece(at, end - at)?;
            at += piece.len;
            match out.last_mut() {
                // SAFETY: this only compares addresses. `last` is an extent of one mapping, so its
                // end is in bounds or one past the end.
                Some(last) if unsafe { last.ptr.add(last.len as usize) } == piece.ptr => {
                    last.len += piece.len
                }
                _ => out.push(piece),
            }
        }
        Some(())
    }

    /// Returns the piece that backs `extent`, if it is contiguous in this process.
    pub fn resolve_one(&self, extent: Extent) -> Option<HostExtent> {
        self.piece(extent.gpa, extent.len).filter(|piece| piece.len == extent.len && extent.len != 0)
    }

    /// Returns the piece at `gpa`: `len` bytes, or fewer if the region ends before.
    fn piece(&self, gpa: u64, len: u64) -> Option<HostExtent> {
        let region = self.mmap.find_region(GuestAddress(gpa))?;
        let offset = gpa - region.start_addr().0;
        let len = len.min(region.len() - offset);
        // SAFETY: `offset` is less than the region's length, so the pointer stays in the mapping.
        let ptr = unsafe { region.as_ptr().add(offset as usize) };
        Some(HostExtent { ptr, len })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::port::{Dma, DmaMapper};
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Maps memory of `regions` (GPA, length), each backed by a memfd of its own.
    ///
    /// The front-end's addresses are GPA + 1 TiB.
    pub(crate) fn memory(regions: &[(u64, u64)]) -> Arc<GuestMemory> {
        let specs = regions.iter().map(|&(gpa, len)| RegionSpec {
            gpa,
            len,
            front_end_addr: gpa + (1 << 40),
            file_offset: 0,
            file: memfd(len),
        });
        Arc::new(GuestMemory::default().map_anew(specs.collect()).unwrap())
    }

    pub(crate) fn memfd(len: u64) -> File {
        use std::os::fd::FromRawFd;
        // SAFETY: the name is a C string, and the File alone owns the new descriptor.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn runs_outside_or_across_holes_are_refused() {
        let memory = memory(&[(0, 0x1000), (0x2000, 0x1000), (0x3000, 0x1000)]);
        let resolve = |gpa, len| {
            let mut out = Vec::new();
            memory.resolve(Extent { gpa, len }, &mut out).map(|()| out.iter().map(|r| r.len).sum::<u64>())
        };
        assert_eq!(resolve(0, 0x1000), Some(0x1000));
        assert_eq!(resolve(0x2fff, 2), Some(2), "crosses from region to region");
        for (gpa, len) in
            [(0, 0), (0xfff, 2), (0x1000, 1), (0x3fff, 2), (u64::MAX, 2), (1, u64::MAX), (0x2000, 1 << 60)]
        {
            assert_eq!(resolve(gpa, len), None, "{gpa:#x}+{len:#x}");
        }
        assert!(memory.resolve_one(Extent { gpa: 0x2100, len: 0x100 }).is_some());
    }

    #[test]
    fn pages_that_a_file_has_cost_nothing_and_others_until_they_are_unmapped() {
        const LEN: u64 = 16 << 20;
        let extent = |gpa, len| [Extent { gpa, len }];
        let file = memfd(LEN);
        // The VMM itself has made pages 0 to 1023, and page 2000.
        for at in (0..1024).chain([2000]) {
            std::os::unix::fs::FileExt::write_all_at(&file, b"a page", at * 4096).unwrap();
        }
        let ledger = Arc::new(Ledger::new(2 << 20, u64::MAX));
        let options = MapOptions { ledger: ledger.clone(), ..MapOptions::default() };
        let spec = || {
            let file = file.try_clone().unwrap();
            RegionSpec { gpa: 0x1000, len: LEN, front_end_addr: 0, file_offset: 0, file }
        };
        let memory = GuestMemory::empty(options.clone()).map_anew(vec![spec()]).unwrap();
        let populate = |extents: &[Extent]| memory.populate(extents, &mut { u64::MAX });
        // Names all of these pages, then all again, in extents that are not whole pages.
        assert_eq!(populate(&extent(0x1000, 4 << 20)), Ok(()));
        assert_eq!(populate(&extent(0x1001, (4 << 20) - 1)), Ok(()));
        // Names two missing pages by three extents within them, and one page that is there.
        let at = 0x1000 + 1999 * 4096;
        let extents = [
            Extent { gpa: at + 8, len: 1 },
            Extent { gpa: at + 16, len: 1 },
            Extent { gpa: at, len: 3 * 4096 },
        ];
        assert_eq!(populate(&extents), Ok(()));
        assert_eq!(ledger.bytes(), 2 * 4096);
        assert_eq!(populate(&extent(0x1000 + (8 << 20), 2 << 20)), Err(TooMany));
        assert_eq!(ledger.bytes(), 2 * 4096, "none is made");
        assert_eq!(populate(&extent(0x1000 + (8 << 20), 1 << 20)), Ok(()));
        assert_eq!(populate(&extent(0x1000, 4 << 20)), Ok(()), "they are there already");
        assert_eq!(ledger.bytes(), (1 << 20) + 2 * 4096);
        // Another table keeps the mapping.
        let other = memory
            .with(RegionSpec { gpa: 1 << 30, front_end_addr: 1 << 40, file: memfd(LEN), ..spec() })
            .unwrap();
        drop(memory);
        assert_eq!(ledger.bytes(), (1 << 20) + 2 * 4096);
        drop(other);
        options.backlog.wait();
        crate::wait::until("the reaper", || (ledger.bytes() == 0).then_some(()));
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
        assert!(both.resolve_one(Extent { gpa: 0x4000, len: 0x1000 }).is_some());
        assert!(both.without(0x4000, 0x2000).is_err());
        let one = both.without(0x4000, 0x1000).unwrap();
        assert!(one.resolve_one(Extent { gpa: 0x4000, len: 1 }).is_none());
        assert!(one.resolve_one(Extent { gpa: 0, len: 1 }).is_some());
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
    fn no_core_has_guest_memory() {
        let memory = memory(&[(0, 0x3000), (0x8000, 0x1000)]);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        for (gpa, len) in [(0u64, 0x3000), (0x8000, 0x1000)] {
            let at = memory.resolve_one(Extent { gpa, len }).unwrap().ptr.addr();
            // Regions of one file may be in one mapping.
            let is_its = |line: &&str| {
                let (begin, end) =
                    line.split(' ').next().and_then(|range| range.split_once('-')).unwrap_or(("", ""));
                let parse = |text| usize::from_str_radix(text, 16);
                parse(begin).is_ok_and(|begin| begin <= at) && parse(end).is_ok_and(|end| at < end)
            };
            let flags =
                smaps.lines().skip_while(|line| !is_its(line)).find(|line| line.starts_with("VmFlags:"));
            assert!(flags.unwrap().split(' ').any(|flag| flag == "dd"), "{flags:?}");
        }
    }

    #[test]
    fn files_that_are_no_memory_are_refused() {
        let map = |file: File, len| {
            GuestMemory::default().map_anew(vec![RegionSpec {
                gpa: 0,
                len,
                front_end_addr: 0,
                file_offset: 0,
                file,
            }])
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
            GuestMemory::default().map_anew(vec![RegionSpec {
                gpa: 0,
                len,
                front_end_addr: 0,
                file_offset: 0,
                file,
            }])
        };
        assert!(map(0x1000).is_err() && map(HUGE + 0x1000).is_err());
        let memory = Arc::new(map(HUGE).unwrap());
        // This works whether or not the system has a huge page left.
        MrMemory::all(&memory).write(HUGE - 8, &[7; 8]).unwrap();
    }

    #[test]
    fn files_on_disks_and_shorter_than_their_region_are_refused() {
        let map = |file: &File, file_offset, len| {
            let file = file.try_clone().unwrap();
            let error = GuestMemory::default()
                .map_anew(vec![RegionSpec { gpa: 0, len, front_end_addr: 0, file_offset, file }])
                .unwrap_err();
            error.to_string()
        };
        let file = memfd(0x2000);
        for (offset, len) in [(0, 0x3000), (0x1000, 0x2000), (0x2000, 0x1000), (u64::MAX - 0xfff, 0x2000)] {
            let why = map(&file, offset, len);
            assert!(why.contains("of a file that has 8192"), "{offset:#x}+{len:#x}: {why}");
        }
        let disk = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(map(&disk, 0, 0x1000).contains("take a memfd"));
    }

    #[test]
    fn a_guest_has_no_more_memory_than_it_may() {
        let limited = GuestMemory::empty(MapOptions { memory_max: 0x3000, ..MapOptions::default() });
        let spec = |gpa, len| RegionSpec { gpa, len, front_end_addr: gpa, file_offset: 0, file: memfd(len) };
        let memory = limited.with(spec(0, 0x2000)).unwrap();
        assert!(memory.with(spec(0x4000, 0x2000)).unwrap_err().to_string().contains("memory_max"));
        let memory = memory.with(spec(0x4000, 0x1000)).unwrap();
        assert_eq!((memory.len(), memory.num_regions()), (0x3000, 2));
        assert!(memory.map_anew(vec![spec(0, 0x3000)]).is_ok(), "a new table takes the place of the old one");
        let tib = 1 << 40;
        let all = GuestMemory::default().map_anew((0..65).map(|i| spec(i * tib, tib)).collect()).unwrap_err();
        assert!(all.to_string().contains("all guests together"), "{all}");
    }

    #[test]
    fn a_front_end_waits_until_its_earlier_tables_are_unmapped() {
        let spec =
            |gpa| RegionSpec { gpa, len: 0x1000, front_end_addr: gpa, file_offset: 0, file: memfd(0x1000) };
        for change in 0..3 {
            let first = GuestMemory::default().map_anew(vec![spec(0)]).unwrap();
            let second = first.map_anew(vec![spec(0x1000), spec(0x4000)]).unwrap();
            let busy = reaper::tests::Busy::new();
            drop(first);
            GuestMemory::default().map_anew(vec![spec(0)]).expect("another front-end does not wait");
            let released = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let third = match change {
                        0 => second.map_anew(vec![spec(0x2000)]),
                        1 => second.with(spec(0x3000)),
                        _ => second.without(0x1000, 0x1000),
                    };
                    assert!(third.is_ok() && released.load(Ordering::Relaxed), "change {change}");
                });
                // On most machines this is long enough for a thread that does not wait.
                (0..1000).for_each(|_| std::thread::yield_now());
                released.store(true, Ordering::Relaxed);
                drop(busy);
            });
        }
    }

    #[test]
    fn a_table_whose_regions_others_have_is_not_left_to_the_reaper() {
        let spec =
            |gpa| RegionSpec { gpa, len: 0x1000, front_end_addr: gpa, file_offset: 0, file: memfd(0x1000) };
        let one = GuestMemory::default().map_anew(vec![spec(0)]).unwrap();
        let busy = reaper::tests::Busy::new();
        let backlog = one.options.backlog.clone();
        let two = one.with(spec(0x4000)).unwrap();
        drop(one);
        assert_eq!(reaper::tests::loads(&backlog), 0, "the second table has all that the first one had");
        let last = two.without(0, 0x1000).unwrap();
        drop(two);
        assert_eq!(reaper::tests::loads(&backlog), 1, "the third one has not");
        drop(last);
        assert_eq!(reaper::tests::loads(&backlog), 2);
        drop(busy);
        backlog.wait();
    }

    /// The mappings that a simulated device knows, as address and length. It refuses mappings of
    /// one length.
    #[derive(Debug, Default)]
    struct Iommu {
        known: Mutex<BTreeSet<(usize, usize)>>,
        refused: usize,
    }

    impl DmaMapper for Iommu {
        fn map(&self, start: usize, len: usize) -> anyhow::Result<()> {
            anyhow::ensure!(len != self.refused, "no room");
            assert!(self.known.lock().unwrap().insert((start, len)), "mapped twice");
            Ok(())
        }
        fn unmap(&self, start: usize, len: usize) {
            assert!(self.known.lock().unwrap().remove(&(start, len)), "it is mapped");
            // SAFETY: msync accesses no memory of this process. It fails if the address is not
            // mapped.
            let is_mapped =
                unsafe { libc::msync(std::ptr::without_provenance_mut(start), len, libc::MS_ASYNC) == 0 };
            assert!(is_mapped, "the device knows memory no longer than there is any");
        }
        fn tell(&self, _: usize, _: &anyhow::Error) {}
    }

    #[test]
    fn a_device_knows_memory_for_as_long_as_a_table_has_it() {
        let iommu = Arc::new(Iommu { refused: 0x3000, ..Iommu::default() });
        let options = MapOptions { dma: Some(Dma::new(iommu.clone())), ..MapOptions::default() };
        let spec = |gpa, len| RegionSpec { gpa, len, front_end_addr: gpa, file_offset: 0, file: memfd(len) };
        let known = || iommu.known.lock().unwrap().len();
        let one = GuestMemory::empty(options).map_anew(vec![spec(0, 0x1000)]).unwrap();
        assert_eq!((one.dma_page(), known()), (Some(0x1000), 1));
        let two = one.with(spec(0x1000, 0x2000)).unwrap();
        drop(one);
        assert_eq!((two.dma_page(), known()), (Some(0x1000), 2));
        let three = two.with(spec(0x10000, 0x3000)).unwrap();
        assert_eq!((three.dma_page(), known()), (None, 2), "one that is refused: all packets are copied");
        drop(two);
        let last = three.without(0x10000, 0x3000).unwrap().without(0, 0x1000).unwrap();
        drop(three);
        // It waits until the dropped tables are unmapped.
        let next = last.map_anew(vec![spec(0, 0x1000)]).unwrap();
        assert_eq!((last.dma_page(), known()), (Some(0x1000), 2));
        let backlog = next.options.backlog.clone();
        drop((last, next));
        backlog.wait();
        assert_eq!(known(), 0);
    }

    #[test]
    fn what_a_device_reads_lies_in_one_page_each() {
        let options = MapOptions { dma: Some(Dma::new(Arc::new(Iommu::default()))), ..MapOptions::default() };
        let spec = RegionSpec { gpa: 0, len: 0x4000, front_end_addr: 0, file_offset: 0, file: memfd(0x4000) };
        let memory = Arc::new(GuestMemory::empty(options).map_anew(vec![spec]).unwrap());
        let region = MrMemory::new(&memory, &[Extent { gpa: 0, len: 0x4000 }]).unwrap();
        let lens = |offset, len| {
            let mut out = Vec::new();
            region.pin_for_dma(offset, len, &mut out).unwrap();
            out.iter().map(crate::port::External::len).collect::<Vec<_>>()
        };
        assert_eq!(lens(0, 0x1000), [0x1000]);
        assert_eq!(lens(0xfff, 0x1002), [1, 0x1000, 1]);
        assert_eq!(lens(0x1800, 0x2000), [0x800, 0x1000, 0x800]);
        let plain = tests::memory(&[(0, 0x4000)]);
        let plain = MrMemory::new(&plain, &[Extent { gpa: 0, len: 0x4000 }]).unwrap();
        let mut out = Vec::new();
        plain.pin_for_dma(0xfff, 0x1002, &mut out).unwrap();
        assert_eq!(out.len(), 1, "virtual devices read it as it is");
    }

    #[test]
    fn whoever_drops_memory_last_does_not_unmap_it() {
        let memory = memory(&[(0, 0x1000)]);
        let busy = reaper::tests::Busy::new();
        let start = memory.resolve_one(Extent { gpa: 0, len: 1 }).unwrap().ptr;
        let is_mapped = || {
            // SAFETY: msync accesses no memory of this process. It fails if the address is not
            // mapped.
            unsafe { libc::msync(start.cast(), 0x1000, libc::MS_ASYNC) == 0 }
        };
        drop(memory);
        assert!(is_mapped());
        drop(busy);
        while is_mapped() {
            std::thread::yield_now();
        }
    }
}
