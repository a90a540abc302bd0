//! Completion queues in guest memory (see `vrdma_abi::cqe`).

use crate::memory::{Extent, GuestMemory, Shared, reap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrdma_abi::cqe::{CqRecord, Cqe, TimedCqe};

const CONSUMER: usize = 64;
/// Offset of the time stamp in a CQE that has one.
const TIMESTAMP: usize = std::mem::offset_of!(TimedCqe, timestamp);

/// The kind of CQEs in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeKind {
    /// [`Cqe`]s.
    Plain,
    /// [`TimedCqe`]s.
    Timed,
}

impl CqeKind {
    /// Returns the size of a CQE in bytes, a power of two.
    const fn size(self) -> usize {
        match self {
            CqeKind::Plain => Cqe::SIZE,
            CqeKind::Timed => TimedCqe::SIZE,
        }
    }
}

/// The ring and the record of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    /// `None` if a new memory table did not contain it. The CQ is broken then, and keeps no old
    /// table mapped.
    mapped: Option<CqMapping>,
    layout: CqLayout,
    entries: u32,
    /// Free-running index of the next CQE to write.
    head: u32,
    /// The consumer's index, as last read.
    consumer: u32,
    /// Values of the arm words at the last event.
    seen_next: u32,
    seen_solicited: u32,
    /// CQEs in a former ring were not consumed, and no CQE since has raised an event.
    left: bool,
    /// Whether CQEs that are not consumed are overwritten.
    overwrites: bool,
    broken: bool,
}

/// The guest-physical layout of a completion queue. It is shared, so that another thread than the
/// worker can map it.
#[derive(Clone, Debug)]
pub struct CqLayout {
    extents: Arc<[Extent]>,
    entries: u32,
    kind: CqeKind,
}

/// The mapping of a completion queue in this process.
#[derive(Debug)]
pub struct CqMapping {
    chunks: Box<[Shared<8>]>,
    /// log2 of the size of a chunk in bytes.
    chunk_shift: u32,
    record: Shared<4>,
}

impl CqLayout {
    /// Maps the CQ. Returns `None` if it is not all in this memory.
    pub fn map(&self, memory: &Arc<GuestMemory>) -> Option<CqMapping> {
        resolve(memory, &self.extents, self.entries, self.kind.size())
    }
}

/// The reaper drops rings of more chunks than this, because freeing them takes long.
const MANY: usize = 1024;

impl Drop for CqRing {
    fn drop(&mut self) {
        if let Some(mapped) = self.mapped.take_if(|mapped| mapped.chunks.len() > MANY) {
            reap((mapped, self.layout.clone()));
        }
    }
}

/// A reserved slot of a CQ ring: the free-running index of a CQE.
#[derive(Clone, Copy, Debug, Default)]
pub struct CqeSlot(u32);

/// Size of a cache line in bytes.
const LINE: usize = 64;

impl CqMapping {
    /// Returns the chunk of a CQE, and the offset in the chunk.
    #[inline]
    fn find(&self, CqeSlot(index): CqeSlot, entries: u32, kind: CqeKind) -> (&Shared<8>, usize) {
        let at = (index & (entries - 1)) as usize * kind.size();
        (&self.chunks[at >> self.chunk_shift], at & ((1 << self.chunk_shift) - 1))
    }
}

/// The error of a CQ that is full or broken. It accepts no completion any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl CqRing {
    /// Returns the size in bytes of a CQ with `entries` entries, including the record.
    pub fn bytes(kind: CqeKind, entries: u32) -> u64 {
        u64::from(entries) * kind.size() as u64 + CqRecord::SIZE as u64
    }

    /// Creates a CQ of `entries` entries in `extents`.
    ///
    /// `entries` is a power of two, and the extents sum up to [`CqRing::bytes`]. Returns `None` if
    /// they are not all guest memory, or cut a CQE or the record.
    pub fn new(memory: &Arc<GuestMemory>, extents: &[Extent], kind: CqeKind, entries: u32) -> Option<CqRing> {
        let layout = CqLayout { extents: extents.into(), entries, kind };
        Some(CqRing {
            mapped: Some(layout.map(memory)?),
            layout,
            entries,
            head: 0,
            consumer: 0,
            seen_next: 0,
            seen_solicited: 0,
            left: false,
            overwrites: false,
            broken: false,
        })
    }

    /// Makes the CQ overwrite CQEs that are not consumed.
    pub fn ignore_overrun(&mut self) {
        self.overwrites = true;
    }

    /// Returns whether CQEs may be written after later ones. This needs a slot for each.
    #[inline]
    pub fn may_wait(&self) -> bool {
        !self.overwrites
    }

    /// Returns the kind of its CQEs.
    pub fn kind(&self) -> CqeKind {
        self.layout.kind
    }

    /// Returns the number of CQEs that fit.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the number of CQEs not consumed. `None` if the CQ is broken, or the consumer's index
    /// invalid.
    pub fn unconsumed(&self) -> Option<u32> {
        let mapped = self.mapped.as_ref().filter(|_| !self.broken)?;
        let unconsumed = self.head.wrapping_sub(mapped.record.load32(CONSUMER, Ordering::Acquire));
        match unconsumed {
            many if many <= self.entries => Some(many),
            _ if self.overwrites => Some(self.entries),
            _ => None,
        }
    }

    /// Continues in a new ring. The consumer still takes CQEs from the former ring.
    ///
    /// The values seen in the arm words remain valid.
    pub fn go_on_in(&mut self, mut next: CqRing) {
        next.left = self.left || self.unconsumed() != Some(0);
        (next.seen_next, next.seen_solicited) = (self.seen_next, self.seen_solicited);
        next.overwrites = self.overwrites;
        *self = next;
    }

    /// Returns the number of extents that the CQ takes in this process.
    ///
    /// These are the guest's extents, or the chunks of the ring if there are more of those.
    pub fn extents(&self) -> u64 {
        self.layout.extents.len().max(self.mapped.as_ref().map_or(0, |mapped| mapped.chunks.len())) as u64
    }

    /// Reserves the next slot, for a CQE that is written later. By then the processor may have its
    /// line.
    ///
    /// # Errors
    /// The ring is full, or the consumer's index is invalid. The CQ is broken from then on.
    #[inline]
    pub fn reserve(&mut self) -> Result<CqeSlot, Overrun> {
        let Some(mapped) = self.mapped.as_ref().filter(|_| !self.broken) else { return Err(Overrun) };
        if !self.overwrites && self.head.wrapping_sub(self.consumer) >= self.entries {
            self.consumer = mapped.record.load32(CONSUMER, Ordering::Acquire);
            // If the consumer is more than a ring behind, or ahead of the device, the distance
            // exceeds the ring.
            if self.head.wrapping_sub(self.consumer) >= self.entries {
                self.broken = true;
                return Err(Overrun);
            }
        }
        let place = CqeSlot(self.head);
        self.head = self.head.wrapping_add(1);
        let (chunk, at) = mapped.find(place, self.entries, self.layout.kind);
        if at.is_multiple_of(LINE) {
            chunk.prefetch_to_write(at);
        }
        Ok(place)
    }

    /// Publishes a CQE in a slot that was reserved in this ring.
    ///
    /// `words` is its memory image (little-endian) with phase 0: the phase is set here. `timestamp`
    /// is called if the ring's CQEs have a time stamp. The consumer sees no CQE behind a slot that
    /// is not yet written.
    #[inline]
    pub fn write(&mut self, place: CqeSlot, words: &[u64; 4], timestamp: impl FnOnce() -> u64) {
        // The memory may have gone since, if the guest removed it.
        let Some(mapped) = self.mapped.as_ref() else { return };
        let (chunk, at) = mapped.find(place, self.entries, self.layout.kind);
        if self.layout.kind == CqeKind::Timed {
            chunk.store64(at + TIMESTAMP, timestamp(), Ordering::Relaxed);
        }
        // The phase is the bit of the index above the ring's bits. It inverts with each lap. In the
        // first lap the bit is 0, and the phase 1.
        let phase = u64::from(place.0 & self.entries == 0);
        let [first, second, third, last] = *words;
        chunk.publish_words(at, [first, second, third, last | phase << 56]);
    }

    /// Returns whether the consumer has asked for an event for any completion, as far as is
    /// visible.
    pub fn is_armed(&self) -> bool {
        let next = self.mapped.as_ref().map(|mapped| mapped.record.load32(0, Ordering::Relaxed));
        next.is_some_and(|next| next != self.seen_next)
    }

    /// Returns whether an event is due for CQEs published since the last call.
    ///
    /// The caller has made the CQEs visible by a full barrier.
    pub fn take_event(&mut self, solicited: bool) -> bool {
        let Some(mapped) = &self.mapped else { return false };
        let next = mapped.record.load32(0, Ordering::Relaxed);
        let sol = mapped.record.load32(4, Ordering::Relaxed);
        let due = next != self.seen_next || (solicited && sol != self.seen_solicited);
        if due {
            (self.seen_next, self.seen_solicited) = (next, sol);
        }
        due
    }

    /// Returns whether an event is due long after the CQEs were published, without a barrier.
    ///
    /// It is due if the consumer has armed the CQ and left CQEs in it. A consumer that armed and
    /// then saw the CQEs has taken them. Whether it has taken those in a former ring is not
    /// visible.
    pub fn take_late_event(&mut self, solicited: bool) -> bool {
        let left = std::mem::take(&mut self.left);
        let consumer = self.mapped.as_ref().map(|mapped| mapped.record.load32(CONSUMER, Ordering::Acquire));
        consumer.is_some_and(|consumer| left || consumer != self.head) && self.take_event(solicited)
    }

    /// Returns its guest-physical layout. `None` if it is broken because its memory was gone: it
    /// stays broken.
    pub fn layout(&self) -> Option<CqLayout> {
        self.mapped.as_ref().map(|_| self.layout.clone())
    }

    /// Switches to a mapping of its [`CqRing::layout`] in a new memory table.
    ///
    /// Without a mapping, the CQ is broken from then on. Returns the old mapping, which may take
    /// long to drop.
    pub fn install(&mut self, new: Option<CqMapping>) -> Option<CqMapping> {
        self.broken |= new.is_none();
        std::mem::replace(&mut self.mapped, new)
    }
}

/// Divides the ring into equal chunks, each contiguous in this process. They are as large as the
/// extents allow.
fn resolve(memory: &Arc<GuestMemory>, extents: &[Extent], entries: u32, size: usize) -> Option<CqMapping> {
    let ring_bytes = u64::from(entries) * size as u64;
    let mut pieces = Vec::new();
    for extent in extents {
        memory.resolve(*extent, &mut pieces)?;
    }
    // The size of a chunk is the largest power of two that divides the ring's size and the offset
    // of each cut.
    let mut cuts = ring_bytes;
    let mut offset = 0;
    for piece in &pieces {
        offset += piece.len;
        if offset < ring_bytes {
            cuts |= offset;
        }
    }
    let chunk = 1u64 << cuts.trailing_zeros();
    if chunk < size as u64 {
        return None;
    }
    let chunk_shift = chunk.ilog2();
    let mut cutter = Cutter { extents, rest: Extent { gpa: 0, len: 0 } };
    let chunks: Option<Box<[Shared<8>]>> =
        (0..ring_bytes / chunk).map(|_| Shared::<8>::new(memory, cutter.cut(chunk)?)).collect();
    let chunks = chunks?;
    let record = Shared::<4>::new(memory, cutter.cut(CqRecord::SIZE as u64)?)?;
    Some(CqMapping { chunks, chunk_shift, record })
}

/// Cuts pieces off extents that are known to be guest memory, from the first to the last.
struct Cutter<'a> {
    extents: &'a [Extent],
    /// The rest of the extent before `extents`.
    rest: Extent,
}

impl Cutter<'_> {
    /// Returns the next `len` bytes, if they are contiguous.
    fn cut(&mut self, len: u64) -> Option<Extent> {
        while self.rest.len < len {
            let (next, extents) = self.extents.split_first()?;
            self.extents = extents;
            // Successive extents that are adjacent in guest memory are joined.
            match self.rest {
                Extent { len: 0, .. } => self.rest = *next,
                Extent { gpa, len } if gpa + len == next.gpa => self.rest.len += next.len,
                _ => return None,
            }
        }
        let piece = Extent { gpa: self.rest.gpa, len };
        self.rest = Extent { gpa: piece.gpa + len, len: self.rest.len - len };
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::CqeKind::{Plain, Timed};
    use super::*;
    use crate::memory::tests::memory;

    fn bytes(entries: u32) -> u64 {
        CqRing::bytes(Plain, entries)
    }

    fn words(cqe: &Cqe) -> [u64; 4] {
        let words: [u64; 4] = vrdma_abi::zerocopy::transmute!(*cqe);
        words.map(u64::from_le)
    }

    fn push(ring: &mut CqRing, cqe: &Cqe) -> Result<(), Overrun> {
        let place = ring.reserve()?;
        ring.write(place, &words(cqe), || panic!("these have no time stamp"));
        Ok(())
    }

    fn cq(extents: &[(u64, u64)], entries: u32) -> (Arc<GuestMemory>, Option<CqRing>) {
        let memory = memory(&[(0, 0x10000)]);
        let extents: Vec<Extent> = extents.iter().map(|&(gpa, len)| Extent { gpa, len }).collect();
        let ring = CqRing::new(&memory, &extents, Plain, entries);
        (memory, ring)
    }

    fn cqe_at(memory: &Arc<GuestMemory>, gpa: u64) -> Cqe {
        let words = Shared::<8>::new(memory, Extent { gpa, len: 32 }).unwrap().read_words::<4>(0);
        vrdma_abi::zerocopy::transmute!(words)
    }

    fn number(n: u32) -> Cqe {
        Cqe { wqe_id: n.into(), vlan: 0x1234.into(), opcode: 1, status: 2, flags: 3, ..Cqe::default() }
    }

    #[test]
    fn phase_turns_with_each_lap_and_overrun_latches() {
        let (memory, ring) = cq(&[(0, bytes(4))], 4);
        let mut ring = ring.unwrap();
        for n in 0..4 {
            push(&mut ring, &number(n)).unwrap();
            let found = cqe_at(&memory, 32 * u64::from(n));
            assert_eq!((found.wqe_id.get(), found.vlan.get(), found.flags, found.phase), (n, 0x1234, 3, 1));
        }
        let consumer = Shared::<4>::new(&memory, Extent { gpa: 128 + 64, len: 4 }).unwrap();
        consumer.store32(0, 1, Ordering::Relaxed);
        push(&mut ring, &number(4)).unwrap();
        assert_eq!(cqe_at(&memory, 0).phase, 0);
        assert_eq!(push(&mut ring, &number(5)), Err(Overrun));
        consumer.store32(0, 5, Ordering::Relaxed);
        assert_eq!(push(&mut ring, &number(5)), Err(Overrun), "a lost completion cannot be mended");
        assert_eq!(cqe_at(&memory, 32).wqe_id.get(), 1);
    }

    #[test]
    fn cqes_that_come_together_show_with_the_first() {
        let (memory, ring) = cq(&[(0, bytes(4))], 4);
        let mut ring = ring.unwrap();
        push(&mut ring, &number(0)).unwrap();
        let places: Vec<CqeSlot> = (1..4).map(|_| ring.reserve().unwrap()).collect();
        assert_eq!(ring.reserve().err(), Some(Overrun), "places are taken");
        for (n, &place) in (1..4).zip(&places).rev() {
            assert_eq!(cqe_at(&memory, 32).phase, 0, "the next one is not there");
            ring.write(place, &words(&number(n)), || panic!("these have no time stamp"));
        }
        let found =
            [0, 32, 64, 96].map(|gpa| (cqe_at(&memory, gpa).wqe_id.get(), cqe_at(&memory, gpa).phase));
        assert_eq!(found, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    }

    #[test]
    fn a_ring_that_ignores_overruns_goes_on_over_what_nobody_consumed() {
        let (memory, ring) = cq(&[(0, bytes(2))], 2);
        let mut ring = ring.unwrap();
        ring.ignore_overrun();
        for n in 0..7 {
            push(&mut ring, &number(n)).unwrap();
        }
        let found = [0, 32].map(|gpa| (cqe_at(&memory, gpa).wqe_id.get(), cqe_at(&memory, gpa).phase));
        assert_eq!(found, [(6, 0), (5, 1)]);
        assert_eq!(ring.unconsumed(), Some(2), "more are not there");
        let next = CqRing::new(&memory, &[Extent { gpa: 0x1000, len: bytes(2) }], Plain, 2).unwrap();
        ring.go_on_in(next);
        for n in 0..7 {
            push(&mut ring, &number(n)).unwrap();
        }
    }

    #[test]
    fn it_goes_on_in_another_ring_from_its_start() {
        let (memory, ring) = cq(&[(0, bytes(4))], 4);
        let mut ring = ring.unwrap();
        let word = |gpa| Shared::<4>::new(&memory, Extent { gpa, len: 4 }).unwrap();
        for n in 0..3 {
            push(&mut ring, &number(n)).unwrap();
        }
        word(128).store32(0, 7, Ordering::Relaxed);
        assert!(ring.take_event(false));
        word(128 + 64).store32(0, 1, Ordering::Relaxed);
        assert_eq!(ring.unconsumed(), Some(2));
        let next = CqRing::new(&memory, &[Extent { gpa: 0x1000, len: bytes(2) }], Plain, 2).unwrap();
        // The driver initialises the arm words with their last values.
        word(0x1000 + 64).store32(0, 7, Ordering::Relaxed);
        ring.go_on_in(next);
        assert!(!ring.is_armed() && !ring.take_event(true), "that was answered");
        push(&mut ring, &number(3)).unwrap();
        push(&mut ring, &number(4)).unwrap();
        assert_eq!(push(&mut ring, &number(5)), Err(Overrun));
        assert_eq!((cqe_at(&memory, 0x1000).wqe_id.get(), cqe_at(&memory, 0x1000).phase), (3, 1));
        assert_eq!(cqe_at(&memory, 96).phase, 0, "nothing more came to the former ring");
        word(0x1000 + 64).store32(0, 8, Ordering::Relaxed);
        assert!(ring.is_armed() && ring.take_event(false));
    }

    #[test]
    fn an_arm_that_shows_late_is_answered_for_what_is_in_a_former_ring() {
        for consumed in [0, 1] {
            let (memory, ring) = cq(&[(0, bytes(2))], 2);
            let mut ring = ring.unwrap();
            push(&mut ring, &number(0)).unwrap();
            let word = |gpa| Shared::<4>::new(&memory, Extent { gpa, len: 4 }).unwrap();
            word(64 + 64).store32(0, consumed, Ordering::Relaxed);
            let next = CqRing::new(&memory, &[Extent { gpa: 0x1000, len: bytes(2) }], Plain, 2).unwrap();
            ring.go_on_in(next);
            word(0x1000 + 64).store32(0, 1, Ordering::Relaxed);
            assert_eq!(ring.take_late_event(false), consumed == 0);
        }
    }

    #[test]
    fn a_consumer_ahead_of_the_device_is_an_overrun() {
        let (memory, ring) = cq(&[(0, bytes(2))], 2);
        let mut ring = ring.unwrap();
        let consumer = Shared::<4>::new(&memory, Extent { gpa: 64 + 64, len: 4 }).unwrap();
        consumer.store32(0, 100, Ordering::Relaxed);
        assert!(push(&mut ring, &number(0)).is_ok() && push(&mut ring, &number(1)).is_ok());
        assert_eq!(push(&mut ring, &number(2)), Err(Overrun));
    }

    #[test]
    fn rings_may_be_scattered_between_cqes() {
        // 8 CQEs in extents of 2, 2 and 4, then the record in its own.
        let (memory, ring) = cq(&[(0x1000, 64), (0x3000, 64), (0x2000, 128), (0x5000, 128)], 8);
        let mut ring = ring.unwrap();
        for n in 0..8 {
            push(&mut ring, &number(n)).unwrap();
        }
        for (n, gpa) in [(0, 0x1000), (1, 0x1020), (2, 0x3000), (3, 0x3020), (4, 0x2000), (7, 0x2060)] {
            assert_eq!(cqe_at(&memory, gpa).wqe_id.get(), n);
        }
        assert!(cq(&[(0x1000, 40), (0x3000, 24 + 128)], 2).1.is_none(), "a cut CQE");
        assert!(cq(&[(0x1000, 64 + 64), (0x3000, 64)], 2).1.is_none(), "a cut record");
        assert!(cq(&[(0x1004, bytes(2))], 2).1.is_none(), "not aligned");
        assert!(cq(&[(0xffe0, bytes(2))], 2).1.is_none(), "outside memory");
    }

    #[test]
    fn a_ring_whose_memory_is_gone_lets_go_of_the_old_table() {
        let (old, ring) = cq(&[(0, bytes(2))], 2);
        let mut ring = ring.unwrap();
        let new = memory(&[(0x1000, 0x1000)]);
        let mapping = ring.layout().unwrap().map(&new);
        assert!(mapping.is_none());
        drop(ring.install(mapping));
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
        assert_eq!(push(&mut ring, &number(0)), Err(Overrun));
        assert!(!ring.take_event(true) && !ring.take_late_event(true));
        assert!(ring.layout().is_none(), "it does not come back");
    }

    #[test]
    fn a_time_stamp_lies_behind_each_cqe_and_the_rest_where_it_is() {
        // 4 CQEs in extents of 1, 1 and 2, the last with the record.
        let memory = memory(&[(0, 0x10000)]);
        let extent = |gpa, len| Extent { gpa, len };
        let extents = [extent(0x1000, 64), extent(0x3000, 64), extent(0x2000, 128 + 128)];
        assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), CqRing::bytes(Timed, 4));
        let mut ring = CqRing::new(&memory, &extents, Timed, 4).unwrap();
        for n in 0..6 {
            Shared::<4>::new(&memory, extent(0x2000 + 128 + 64, 4)).unwrap().store32(0, n, Ordering::Relaxed);
            let place = ring.reserve().unwrap();
            ring.write(place, &words(&number(n)), || 1000 + u64::from(n));
        }
        for (n, gpa, phase) in [(4, 0x1000, 0), (5, 0x3000, 0), (2, 0x2000, 1), (3, 0x2040, 1)] {
            let found: TimedCqe = {
                let words = Shared::<8>::new(&memory, extent(gpa, 64)).unwrap().read_words::<8>(0);
                vrdma_abi::zerocopy::transmute!(words)
            };
            let expected = Cqe { phase, ..number(n) };
            assert_eq!((found.base, found.timestamp.get()), (expected, 1000 + u64::from(n)));
        }
        assert!(
            CqRing::new(&memory, &[extent(0, 32), extent(64, 2 * 64 + 96)], Timed, 2).is_none(),
            "a cut CQE"
        );
    }

    #[test]
    fn what_runs_cut_the_ring_into_is_counted() {
        let whole = bytes(1024);
        assert_eq!(cq(&[(0, whole)], 1024).1.unwrap().extents(), 1);
        assert_eq!(cq(&[(0, 4096), (4096, whole - 4096)], 1024).1.unwrap().extents(), 2);
        // Two extents with a gap of one CQE between them make each chunk the size of a CQE.
        assert_eq!(cq(&[(0, 32), (64, whole - 32)], 1024).1.unwrap().extents(), 1024);
    }

    #[test]
    fn arm_words_are_seen_once_and_solicited_never_hides_next() {
        let (memory, ring) = cq(&[(0, bytes(2))], 2);
        let mut ring = ring.unwrap();
        let arm = Shared::<4>::new(&memory, Extent { gpa: 64, len: 8 }).unwrap();
        assert!(!ring.take_event(true));
        arm.store32(4, 1, Ordering::Relaxed);
        assert!(!ring.take_event(false) && ring.take_event(true) && !ring.take_event(true));
        arm.store32(0, 1, Ordering::Relaxed);
        arm.store32(4, 2, Ordering::Relaxed);
        assert!(ring.take_event(false));
        assert!(!ring.take_event(true), "one event answers both");
    }
}
