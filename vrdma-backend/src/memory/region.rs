//! The memory of a registered region (MR).

use super::{Buffers, GuestMemory, HostRun, Run, TooMany, copy::copy, reap};
use crate::cycles::{self, Stage};
use crate::port::External;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use vrdma_transport::{Fault, PageList, Region};

/// The memory of a region, in guest-physical addresses and in this process.
#[derive(Debug)]
pub struct MrMemory {
    host: Host,
    /// Keeps the memory mapped that `host` points to.
    guard: Arc<LoanGuard>,
    runs: Runs,
}

/// The owner of what a region has pinned ([`MrMemory::loan`]). Each pin and the region itself hold
/// it.
#[derive(Debug)]
struct LoanGuard {
    memory: Arc<GuestMemory>,
}

/// Memory that regions have pinned and that may still be in use. The regions do not hold it any
/// more.
#[derive(Clone, Debug, Default)]
pub struct Loans(Vec<Weak<LoanGuard>>);

impl Loans {
    /// Forgets the pins that have ended. Returns whether all have.
    pub fn are_back(&mut self) -> bool {
        self.0.retain(|guard| guard.strong_count() != 0);
        // A thread that released memory has read it before.
        fence(Ordering::Acquire);
        self.0.is_empty()
    }

    /// Adds the pins of `others`.
    pub fn extend(&mut self, others: Loans) {
        self.0.extend(others.0);
    }
}

/// The guest-physical extents of a region. They are shared, so that another thread than the worker
/// can translate them.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Gpa>);

/// A translation of a region's extents to addresses of this process.
#[derive(Debug)]
pub struct Translation {
    host: Host,
    of: Runs,
}

#[derive(Debug)]
enum Host {
    /// One piece. This is the common case, and needs no further cache line.
    One(HostRun),
    /// Several pieces in order, each with its offset in the region.
    Many(Arc<[(u64, HostRun)]>),
    /// Several pieces in order, of pages that REG_MR requests registered.
    Pages(Arc<[(u64, HostRun)]>),
    /// All guest memory. Offsets are guest-physical addresses.
    All,
    /// The memory does not exist any more.
    Gone,
}

#[derive(Debug)]
enum Gpa {
    One(Run),
    Many(Box<[Run]>),
    /// Extents that REG_MR requests registered. The number is the most that they may register.
    Pages(u32, Box<[Run]>),
    All,
}

// SAFETY: the pointers lead to memory shared with the guest. Only `copy` and atomics of an
// `MrMemory` access it, and the `MrMemory` keeps it mapped.
unsafe impl Send for Host {}

impl Runs {
    /// Translates the extents. If they are not all in this memory, each use returns [`Fault`].
    pub fn translate(&self, memory: &GuestMemory) -> Translation {
        Translation { host: resolve(memory, &self.0).unwrap_or(Host::Gone), of: self.clone() }
    }

    /// Makes their pages resident ([`GuestMemory::populate`]).
    ///
    /// It skips regions of all guest memory, because much of that may never be used. It also skips
    /// pages that requests registered, because the guest may use them for something else.
    ///
    /// # Errors
    /// The errors of [`GuestMemory::populate`].
    pub fn populate(&self, memory: &GuestMemory, budget: &mut u64) -> Result<(), TooMany> {
        match &*self.0 {
            Gpa::One(run) => memory.populate(&[*run], budget),
            Gpa::Many(runs) => memory.populate(runs, budget),
            Gpa::All | Gpa::Pages(..) => Ok(()),
        }
    }
}

/// The reaper drops regions of more extents than this, because freeing them takes long.
const MANY: u64 = 1024;

impl Drop for MrMemory {
    fn drop(&mut self) {
        if self.runs() > MANY {
            reap((std::mem::replace(&mut self.host, Host::Gone), self.runs.clone()));
        }
    }
}

impl MrMemory {
    /// Returns the memory of `runs`, in order. `None` if a part is not guest memory.
    pub fn new(memory: &Arc<GuestMemory>, runs: &[Run]) -> Option<MrMemory> {
        let gpa = match runs {
            [one] => Gpa::One(*one),
            many => Gpa::Many(many.into()),
        };
        let host = resolve(memory, &gpa)?;
        Some(MrMemory { host, guard: guard(memory), runs: Runs(Arc::new(gpa)) })
    }

    /// Returns all memory of the guest. Offsets are guest-physical addresses.
    pub fn all(memory: &Arc<GuestMemory>) -> MrMemory {
        MrMemory { host: Host::All, guard: guard(memory), runs: Runs(Arc::new(Gpa::All)) }
    }

    /// Returns an empty region, in which requests may register up to `most` pages.
    pub fn pages(memory: &Arc<GuestMemory>, most: u32) -> MrMemory {
        let gpa = Gpa::Pages(most, Box::default());
        MrMemory { host: Host::Pages(Arc::default()), guard: guard(memory), runs: Runs(Arc::new(gpa)) }
    }

    /// Returns its guest-physical extents.
    pub fn places(&self) -> Runs {
        self.runs.clone()
    }

    /// Switches to a new memory table, in which its [`MrMemory::places`] have been translated.
    ///
    /// If the memory does not exist there, each use returns [`Fault`] until a later table has it
    /// again. Returns the old translation, which may take long to drop, and the pins of the old
    /// memory.
    pub fn install(&mut self, memory: &Arc<GuestMemory>, new: Translation) -> (Translation, Loans) {
        let loans = self.loans();
        self.guard = guard(memory);
        // A request may have registered other pages since. They are few, so this thread translates
        // them.
        let new = if Arc::ptr_eq(&new.of.0, &self.runs.0) { new } else { self.runs.translate(memory) };
        (Translation { host: std::mem::replace(&mut self.host, new.host), of: new.of }, loans)
    }

    /// Returns the number of guest memory extents, or their largest number if requests register
    /// them.
    pub fn runs(&self) -> u64 {
        match &*self.runs.0 {
            Gpa::One(_) => 1,
            Gpa::Many(runs) => runs.len() as u64,
            Gpa::Pages(most, _) => (*most).into(),
            Gpa::All => 0,
        }
    }

    /// Returns whether the region may be pinned.
    ///
    /// Not if it is all guest memory, or pages that requests registered. The guest may use those
    /// for something else without deregistering the region.
    #[inline]
    pub fn may_pin(&self) -> bool {
        !matches!(self.host, Host::All | Host::Pages(_))
    }

    /// Returns whether the uplink's device can read it by DMA.
    #[inline]
    pub fn is_for_dma(&self) -> bool {
        self.guard.memory.dma_page().is_some()
    }

    /// Returns the present pins, for a caller that is about to drop the region. Usually there are
    /// none.
    pub fn loans(&self) -> Loans {
        let is_loaned = Arc::strong_count(&self.guard) > 1;
        Loans(is_loaned.then(|| Arc::downgrade(&self.guard)).into_iter().collect())
    }

    /// Returns the present pins. Later pins of the region are not among them.
    pub fn recall(&mut self) -> Loans {
        let loans = self.loans();
        if !loans.0.is_empty() {
            self.guard = guard(&self.guard.memory);
        }
        loans
    }

    /// Appends a range to `out`, pinned for as long as the sender needs it. At most 65,535 bytes.
    ///
    /// It stays mapped even if the front-end disconnects. If a device reads the memory by DMA, each
    /// piece lies in one page: QEMU's NICs behind an IOMMU drop others.
    pub fn loan(&self, offset: u64, len: u16, out: &mut Vec<External>) -> Result<(), Fault> {
        let page = self.guard.memory.dma_page();
        self.for_pieces(offset, len.into(), |ptr, _, n| {
            let mut done = 0;
            while done < n {
                // SAFETY: `done` is less than `n`.
                let at = unsafe { ptr.add(done) };
                let part = page.map_or(n, |page| (n - done).min(page - at.addr() % page));
                // SAFETY: `ptr` is mapped for `n` bytes, which is at most `len`, while the guard
                // exists. Concurrent writes of the guest only change its own data.
                out.push(unsafe { External::new(at, part as u16, self.guard.clone()) });
                done += part;
            }
        })
    }

    /// Returns the segment of a range, and the memory that it belongs to.
    ///
    /// `None` if the range is not all there, or [`MrMemory::may_pin`] is false.
    pub(super) fn stretch(&self, offset: u64, len: u32) -> Option<(Stretch, Arc<GuestMemory>)> {
        let stretch = match &self.host {
            Host::One(run) => Stretch::One(whole(run, offset, len.into())?),
            Host::Many(runs) => {
                let &(start, last) = runs.last()?;
                let end = offset.checked_add(len.into())?;
                (end <= start + last.len).then(|| Stretch::Many(runs.clone(), offset))?
            }
            Host::Pages(_) | Host::All | Host::Gone => return None,
        };
        Some((stretch, self.guard.memory.clone()))
    }

    /// Returns the piece at `offset`: at least one byte, at most `len`.
    #[inline]
    pub(super) fn piece(&self, offset: u64, len: u64) -> Result<HostRun, Fault> {
        match &self.host {
            Host::One(run) if offset < run.len => Ok(tail(*run, offset, len)),
            Host::Many(runs) | Host::Pages(runs) => piece_of(runs, offset, len),
            Host::All => self.guard.memory.piece(offset, len).ok_or(Fault),
            _ => Err(Fault),
        }
    }

    /// Calls `f` for each piece of a range, with the number of bytes before it.
    #[inline]
    fn for_pieces(
        &self,
        offset: u64,
        len: u64,
        mut f: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < len {
            let piece = self.piece(offset.checked_add(done).ok_or(Fault)?, len - done)?;
            f(piece.ptr, done as usize, piece.len as usize);
            done += piece.len;
        }
        Ok(())
    }

    /// Returns the 8 aligned bytes at `offset`.
    fn word(&self, offset: u64) -> Result<&AtomicU64, Fault> {
        let piece = self.piece(offset, 8)?;
        if piece.len < 8 || piece.ptr.align_offset(8) != 0 {
            return Err(Fault);
        }
        // SAFETY: these are 8 mapped, aligned bytes. The mapping outlives `self`.
        Ok(unsafe { AtomicU64::from_ptr(piece.ptr.cast()) })
    }
}

/// Largest number of crossings between regions of guest memory. It keeps many pieces from counting
/// as few extents.
///
/// Extents that do not overlap cross each region boundary at most once.
const MAX_SEAMS: usize = 512;

fn guard(memory: &Arc<GuestMemory>) -> Arc<LoanGuard> {
    Arc::new(LoanGuard { memory: memory.clone() })
}

fn resolve(memory: &GuestMemory, gpa: &Gpa) -> Option<Host> {
    let mut out = Vec::new();
    match gpa {
        Gpa::All => return Some(Host::All),
        Gpa::One(run) => memory.resolve(*run, &mut out)?,
        Gpa::Many(runs) | Gpa::Pages(_, runs) => runs.iter().try_for_each(|run| {
            memory.resolve(*run, &mut out)?;
            (out.len() <= runs.len() + MAX_SEAMS).then_some(())
        })?,
    }
    let is_registered = matches!(gpa, Gpa::Pages(..));
    if let [one] = out[..]
        && !is_registered
    {
        return Some(Host::One(one));
    }
    let mut offset = 0;
    let many = out.into_iter().map(|run| {
        let start = offset;
        offset += run.len;
        (start, run)
    });
    let many = many.collect();
    Some(if is_registered { Host::Pages(many) } else { Host::Many(many) })
}

/// Reads a page list. Returns the extents of `length` bytes from `offset` of the first page on.
///
/// `None` if the list is not guest memory, or names an address that is no multiple of the page
/// size.
fn page_runs(memory: &Arc<GuestMemory>, list: &PageList, offset: u64, length: u64) -> Option<Box<[Run]>> {
    let PageList { addr, pages, page_shift } = *list;
    let mut entries = vec![[0; 8]; pages as usize];
    let mut buffers = Buffers::new(memory);
    buffers.push(Run { gpa: addr, len: 8 * u64::from(pages) })?;
    buffers.read(0, entries.as_flattened_mut());
    let size = 1 << page_shift;
    let (mut skip, mut left) = (offset, length);
    let run = |entry: [u8; 8]| {
        let page = u64::from_le_bytes(entry);
        let (gpa, len) = (page.checked_add(skip)?, left.min(size - skip));
        (skip, left) = (0, left - len);
        page.is_multiple_of(size).then_some(Run { gpa, len })
    };
    entries.into_iter().map(run).collect()
}

/// A segment: where a range of a region is in this process.
#[derive(Debug)]
pub(super) enum Stretch {
    /// The range is contiguous, and begins here.
    One(*mut u8),
    /// The range is in the pieces of the region, from this offset on.
    Many(Arc<[(u64, HostRun)]>, u64),
}

// SAFETY: the pointers lead to memory shared with the guest. Only `copy` accesses it, while it is
// mapped.
unsafe impl Send for Stretch {}

/// Returns the piece at `offset` of extents with offsets: at least one byte, at most `len`.
#[inline]
pub(super) fn piece_of(runs: &[(u64, HostRun)], offset: u64, len: u64) -> Result<HostRun, Fault> {
    let index = runs.partition_point(|(start, _)| *start <= offset).checked_sub(1).ok_or(Fault)?;
    let (start, run) = runs[index];
    let offset = offset - start;
    if offset < run.len { Ok(tail(run, offset, len)) } else { Err(Fault) }
}

/// Returns the address of `len` bytes at `offset`, if the extent contains all of them.
#[inline]
fn whole(run: &HostRun, offset: u64, len: u64) -> Option<*mut u8> {
    // SAFETY: `offset` is at most the extent's length, so the pointer stays in it, or one past its
    // end.
    (len <= run.len && offset <= run.len - len).then(|| unsafe { run.ptr.add(offset as usize) })
}

#[inline]
fn tail(run: HostRun, offset: u64, len: u64) -> HostRun {
    // SAFETY: each caller has checked that `offset < run.len`, so the pointer stays in the extent.
    HostRun { ptr: unsafe { run.ptr.add(offset as usize) }, len: len.min(run.len - offset) }
}

impl Region for MrMemory {
    #[inline]
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        let _mark = cycles::enter(Stage::Copy);
        if let (Host::One(from), Host::One(to)) = (&self.host, &dst.host)
            && let (Some(from), Some(to)) = (whole(from, offset, len), whole(to, dst_offset, len))
        {
            // SAFETY: both are mapped for `len` bytes.
            unsafe { copy(from, to, len as usize) };
            return Ok(());
        }
        let mut done = 0;
        while done < len {
            let from = self.piece(offset.checked_add(done).ok_or(Fault)?, len - done)?;
            let to = dst.piece(dst_offset.checked_add(done).ok_or(Fault)?, from.len)?;
            // SAFETY: `from` and `to` are mapped for `to.len` bytes, which is at most `from.len`.
            unsafe { copy(from.ptr, to.ptr, to.len as usize) };
            done += to.len;
        }
        Ok(())
    }

    #[inline]
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let _mark = cycles::enter(Stage::Copy);
        let len = buf.len() as u64;
        self.for_pieces(offset, len, |ptr, done, n| {
            // SAFETY: `ptr` is mapped for `n` bytes, and `done + n` is at most the buffer's length.
            unsafe { copy(ptr, buf[done..done + n].as_mut_ptr(), n) }
        })
    }

    #[inline]
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let _mark = cycles::enter(Stage::Copy);
        self.for_pieces(offset, data.len() as u64, |ptr, done, n| {
            // SAFETY: `ptr` is mapped for `n` bytes, and `done + n` is at most the data's length.
            unsafe { copy(data[done..done + n].as_ptr(), ptr, n) }
        })
    }

    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        let _mark = cycles::enter(Stage::Copy);
        self.word(offset).map(operation)
    }

    fn register(&mut self, list: &PageList, offset: u64, length: u64) -> Result<(), Fault> {
        let Gpa::Pages(most, _) = *self.runs.0 else { return Err(Fault) };
        let runs = page_runs(&self.guard.memory, list, offset, length).ok_or(Fault)?;
        let gpa = Gpa::Pages(most, runs);
        self.host = resolve(&self.guard.memory, &gpa).ok_or(Fault)?;
        self.runs = Runs(Arc::new(gpa));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    fn remap(region: &mut MrMemory, memory: &Arc<GuestMemory>) {
        let translation = region.places().translate(memory);
        drop(region.install(memory, translation));
    }

    fn runs(list: &[(u64, u64)]) -> Vec<Run> {
        list.iter().map(|&(gpa, len)| Run { gpa, len }).collect()
    }

    #[test]
    fn scattered_regions_read_and_write_as_one() {
        let memory = memory(&[(0, 0x4000)]);
        let scattered = MrMemory::new(&memory, &runs(&[(0x3000, 5), (0x100, 1), (0x2000, 100)])).unwrap();
        let flat = MrMemory::new(&memory, &runs(&[(0x1000, 106)])).unwrap();
        let data: Vec<u8> = (0..106).collect();
        scattered.write(0, &data).unwrap();
        scattered.copy_to(3, &flat, 3, 103).unwrap();
        let mut found = vec![0; 103];
        flat.read(3, &mut found).unwrap();
        assert_eq!(found, data[3..]);
        flat.copy_to(50, &scattered, 0, 50).unwrap();
        scattered.read(0, &mut found[..50]).unwrap();
        assert_eq!(found[..50], data[50..100]);
    }

    #[test]
    fn nothing_beyond_the_region_is_reached() {
        let memory = memory(&[(0, 0x4000)]);
        for region in [&[(0x1000u64, 16u64)][..], &[(0x1000, 8), (0x2000, 8)]] {
            let region = MrMemory::new(&memory, &runs(region)).unwrap();
            assert!(region.write(9, &[1; 8]).is_err());
            assert!(region.write(u64::MAX, &[1; 8]).is_err());
            assert!(region.read(16, &mut [0]).is_err());
            assert!(region.read(0, &mut [0; 16]).is_ok());
        }
    }

    #[test]
    fn runs_that_cross_between_regions_of_memory_all_the_time_are_refused() {
        let memory = memory(&[(0, 0x1000), (0x1000, 0x1000), (0x2000, 0x1000)]);
        let crossing = |count| MrMemory::new(&memory, &vec![Run { gpa: 0, len: 0x3000 }; count]);
        assert!(crossing(10).is_some());
        assert!(crossing(1000).is_none());
    }

    #[test]
    fn atomics_need_an_aligned_word_in_one_piece() {
        let memory = memory(&[(0, 0x4000)]);
        let region = MrMemory::new(&memory, &runs(&[(0x1000, 12), (0x2004, 12), (0x3001, 8)])).unwrap();
        region.write(0, &7u64.to_le_bytes()).unwrap();
        let add = |offset, value| region.with_word(offset, |word| word.fetch_add(value, Ordering::SeqCst));
        assert_eq!(add(0, 5).unwrap(), 7);
        let mut found = [0; 8];
        region.read(0, &mut found).unwrap();
        assert_eq!(u64::from_le_bytes(found), 12);
        assert!(add(8, 1).is_err(), "straddles two pieces");
        assert!(add(24, 1).is_err(), "not aligned in memory");
        assert!(add(u64::MAX - 3, 1).is_err());
    }

    /// Writes a page list to an address.
    fn list_at(memory: &Arc<GuestMemory>, addr: u64, pages: &[u64]) -> PageList {
        let entries: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        MrMemory::all(memory).write(addr, &entries).unwrap();
        PageList { addr, pages: pages.len() as u32, page_shift: 12 }
    }

    #[test]
    fn a_region_is_the_pages_that_were_registered() {
        let memory = memory(&[(0, 0x4000), (0x4000, 0x2000)]);
        let all = MrMemory::all(&memory);
        let mut region = MrMemory::pages(&memory, 8);
        assert_eq!((region.runs(), region.read(0, &mut [0])), (8, Err(Fault)));
        let list = list_at(&memory, 0x101, &[0x5000, 0x2000, 0x3000]);
        region.register(&list, 0xff0, 0x1020).unwrap();
        let data: Vec<u8> = (0..0x1020).map(|n| (n % 255) as u8).collect();
        region.write(0, &data).unwrap();
        assert_eq!(region.write(0x1020, &[1]), Err(Fault));
        let mut found = vec![0; 0x1020];
        all.read(0x5ff0, &mut found[..0x10]).unwrap();
        all.read(0x2000, &mut found[0x10..]).unwrap();
        assert_eq!(found, data);
        assert_eq!((region.runs(), region.may_pin()), (8, false));
        // A failed registration changes nothing.
        let odd = list_at(&memory, 0x200, &[0x5000, 0x2001, 0x3000]);
        let outside = list_at(&memory, 0x300, &[0x5000, 0x6000, 0x3000]);
        let last_page = list_at(&memory, 0x400, &[u64::MAX - 0xfff]);
        let far = PageList { addr: 0x6000 - 16, ..list };
        let last = PageList { addr: u64::MAX - 7, ..list };
        for list in [odd, outside, last_page, far, last] {
            assert_eq!(region.register(&list, 0, u64::from(list.pages) << 12), Err(Fault), "{list:?}");
        }
        region.read(0, &mut found).unwrap();
        assert_eq!(found, data);
        // Only the named part of the last page has to exist.
        let large = PageList { page_shift: 16, ..list_at(&memory, 0x500, &[0]) };
        assert_eq!(region.register(&large, 0, 0x6001), Err(Fault));
        region.register(&large, 0, 0x6000).unwrap();
        region.register(&PageList { pages: 0, ..list }, 0, 0).unwrap();
        assert_eq!(region.read(0, &mut [0]), Err(Fault));
        let mut other = MrMemory::new(&memory, &runs(&[(0x1000, 0x1000)])).unwrap();
        assert_eq!(other.register(&list, 0, 16), Err(Fault), "it is not for that");
    }

    #[test]
    fn what_is_registered_while_the_memory_table_changes_is_translated_by_it() {
        let before = memory(&[(0, 0x2000)]);
        let mut region = MrMemory::pages(&before, 8);
        region.register(&list_at(&before, 0x100, &[0x1000]), 0, 0x1000).unwrap();
        let after = memory(&[(0, 0x1000), (0x4000, 0x1000)]);
        let stale = region.places().translate(&after);
        region.register(&list_at(&before, 0x100, &[0]), 0, 0x1000).unwrap();
        drop(region.install(&after, stale));
        region.write(0, &[7; 8]).unwrap();
        let mut found = [0; 8];
        MrMemory::all(&after).read(0, &mut found).unwrap();
        assert_eq!(found, [7; 8], "the page that was registered last, where it is now");
        region.register(&list_at(&after, 0x100, &[0x4000]), 0, 0x1000).unwrap();
        remap(&mut region, &before);
        assert_eq!(region.read(0, &mut [0]), Err(Fault));
        remap(&mut region, &after);
        assert_eq!(region.read(0, &mut [0]), Ok(()));
    }

    #[test]
    fn a_region_follows_the_memory_table() {
        let before = memory(&[(0, 0x1000), (0x1000, 0x1000)]);
        let mut region = MrMemory::new(&before, &runs(&[(0x800, 0x1000)])).unwrap();
        remap(&mut region, &memory(&[(0, 0x1000)]));
        assert!(region.read(0, &mut [0]).is_err());
        remap(&mut region, &before);
        assert!(region.read(0xfff, &mut [0]).is_ok());
        let mut all = MrMemory::all(&before);
        assert!(all.read(0x1fff, &mut [0]).is_ok() && all.read(0x2000, &mut [0]).is_err());
        remap(&mut all, &memory(&[(0x2000, 0x1000)]));
        assert!(all.read(0x1fff, &mut [0]).is_err() && all.read(0x2000, &mut [0]).is_ok());
    }
}
