//! Completion queues in guest memory (see `vrdma_abi::cqe`).

use crate::memory::{GuestMemory, Run, Shared, reap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrdma_abi::cqe::{CqRecord, Cqe};

const CONSUMER: usize = 64;

/// Ring and record of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    /// None once its memory was not there under a new memory table: it is broken then, and keeps no old table mapped.
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
    broken: bool,
}

/// Where the guest says that a completion queue is. Shared, so that it can be mapped away from the worker.
#[derive(Clone, Debug)]
pub struct CqLayout {
    runs: Arc<[Run]>,
    entries: u32,
}

/// Where a completion queue is in this process.
#[derive(Debug)]
pub struct CqMapping {
    chunks: Box<[Shared]>,
    /// log2 of the CQEs in a chunk.
    chunk_shift: u32,
    record: Shared,
}

impl CqLayout {
    /// Maps it; `None` if it is not all in this memory.
    pub fn map(&self, memory: &Arc<GuestMemory>) -> Option<CqMapping> {
        resolve(memory, &self.runs, self.entries)
    }
}

/// Rings of more chunks are dropped by the reaper: to free so much memory takes a while.
const MANY: usize = 1024;

impl Drop for CqRing {
    fn drop(&mut self) {
        if let Some(mapped) = self.mapped.take_if(|mapped| mapped.chunks.len() > MANY) {
            reap((mapped, self.layout.clone()));
        }
    }
}

/// The completion does not fit, or never will again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

impl CqRing {
    /// Bytes of a CQ with so many entries.
    pub fn bytes(entries: u32) -> u64 {
        u64::from(entries) * Cqe::SIZE as u64 + CqRecord::SIZE as u64
    }

    /// A CQ of `entries` (a power of two) in `runs`, whose lengths sum up to [`CqRing::bytes`].
    /// `None` if they are not all guest memory, or cut a CQE or the record.
    pub fn new(memory: &Arc<GuestMemory>, runs: &[Run], entries: u32) -> Option<CqRing> {
        let layout = CqLayout { runs: runs.into(), entries };
        Some(CqRing {
            mapped: Some(layout.map(memory)?),
            layout,
            entries,
            head: 0,
            consumer: 0,
            seen_next: 0,
            seen_solicited: 0,
            broken: false,
        })
    }

    /// What it takes in this process, in runs: those of the guest, or the pieces that they cut the ring into, if these are more.
    pub fn runs(&self) -> u64 {
        self.layout.runs.len().max(self.mapped.as_ref().map_or(0, |mapped| mapped.chunks.len())) as u64
    }

    /// Publishes a completion; its `phase` is set here.
    ///
    /// # Errors
    /// The ring is full (or the consumer's index nonsense); it takes nothing from now on.
    #[inline]
    pub fn push(&mut self, cqe: &Cqe) -> Result<(), Overrun> {
        let Some(mapped) = self.mapped.as_ref().filter(|_| !self.broken) else { return Err(Overrun) };
        if self.head.wrapping_sub(self.consumer) >= self.entries {
            self.consumer = mapped.record.load32(CONSUMER, Ordering::Acquire);
            // More than a ring behind, or ahead of us: both show as a distance of more than the ring.
            if self.head.wrapping_sub(self.consumer) >= self.entries {
                self.broken = true;
                return Err(Overrun);
            }
        }
        let slot = self.head & (self.entries - 1);
        let chunk = &mapped.chunks[(slot >> mapped.chunk_shift) as usize];
        let at = (slot & ((1 << mapped.chunk_shift) - 1)) as usize * Cqe::SIZE;
        let words: [u64; 4] = vrdma_abi::zerocopy::transmute!(*cqe);
        for (i, word) in words[..3].iter().enumerate() {
            chunk.store64(at + 8 * i, u64::from_le(*word), Ordering::Relaxed);
        }
        // The bit of the index beyond the ring's turns with each lap, beginning with 0.
        let phase = u64::from(self.head & self.entries == 0);
        let last = u64::from_le(words[3]) & !(0xff << 56) | phase << 56;
        chunk.store64(at + 24, last, Ordering::Release);
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    /// Whether an event is due for CQEs published since the last call, which a full barrier has made visible.
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

    /// The same, long after: whether the consumer has armed the CQ and left CQEs in it. One that armed and then saw them has taken them.
    pub fn take_late_event(&mut self, solicited: bool) -> bool {
        let consumer = self.mapped.as_ref().map(|mapped| mapped.record.load32(CONSUMER, Ordering::Acquire));
        consumer.is_some_and(|consumer| consumer != self.head) && self.take_event(solicited)
    }

    /// Where the guest says that it is. `None` if it is broken because its memory was not there: it does not come back.
    pub fn layout(&self) -> Option<CqLayout> {
        self.mapped.as_ref().map(|_| self.layout.clone())
    }

    /// Follows a new memory table, in which its [`CqRing::layout`] has been mapped; without a new mapping it takes nothing from now on.
    /// The old mapping, which may take long to drop.
    pub fn install(&mut self, new: Option<CqMapping>) -> Option<CqMapping> {
        self.broken |= new.is_none();
        std::mem::replace(&mut self.mapped, new)
    }
}

/// Cuts the ring into equal chunks, each contiguous in this process: as large as the runs allow.
fn resolve(memory: &Arc<GuestMemory>, runs: &[Run], entries: u32) -> Option<CqMapping> {
    let ring_bytes = u64::from(entries) * Cqe::SIZE as u64;
    let mut pieces = Vec::new();
    for run in runs {
        memory.resolve(*run, &mut pieces)?;
    }
    // The largest power of two that divides the offset of each cut, and the ring's size.
    let mut cuts = ring_bytes;
    let mut offset = 0;
    for piece in &pieces {
        offset += piece.len;
        if offset < ring_bytes {
            cuts |= offset;
        }
    }
    let chunk = 1u64 << cuts.trailing_zeros();
    let chunk_shift = (chunk / Cqe::SIZE as u64).checked_ilog2()?;
    let mut cutter = Cutter { runs, rest: Run { gpa: 0, len: 0 } };
    let chunks: Option<Box<[Shared]>> =
        (0..ring_bytes / chunk).map(|_| Shared::new(memory, cutter.cut(chunk)?, 8)).collect();
    let chunks = chunks?;
    let record = Shared::new(memory, cutter.cut(CqRecord::SIZE as u64)?, 4)?;
    Some(CqMapping { chunks, chunk_shift, record })
}

/// Cuts pieces off runs that are known to be guest memory, from the first to the last.
struct Cutter<'a> {
    runs: &'a [Run],
    /// What is left of the run before those.
    rest: Run,
}

impl Cutter<'_> {
    /// The next `len` bytes, if they are one piece.
    fn cut(&mut self, len: u64) -> Option<Run> {
        while self.rest.len < len {
            let (next, runs) = self.runs.split_first()?;
            self.runs = runs;
            // Neighbouring runs that are adjacent in guest memory are one.
            match self.rest {
                Run { len: 0, .. } => self.rest = *next,
                Run { gpa, len } if gpa + len == next.gpa => self.rest.len += next.len,
                _ => return None,
            }
        }
        let piece = Run { gpa: self.rest.gpa, len };
        self.rest = Run { gpa: piece.gpa + len, len: self.rest.len - len };
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;

    fn cq(runs: &[(u64, u64)], entries: u32) -> (Arc<GuestMemory>, Option<CqRing>) {
        let memory = memory(&[(0, 0x10000)]);
        let runs: Vec<Run> = runs.iter().map(|&(gpa, len)| Run { gpa, len }).collect();
        let ring = CqRing::new(&memory, &runs, entries);
        (memory, ring)
    }

    fn cqe_at(memory: &Arc<GuestMemory>, gpa: u64) -> Cqe {
        let words = Shared::new(memory, Run { gpa, len: 32 }, 8).unwrap().read_words::<4>(0);
        vrdma_abi::zerocopy::transmute!(words)
    }

    fn number(n: u32) -> Cqe {
        Cqe { wqe_id: n.into(), vlan: 0x1234.into(), opcode: 1, status: 2, flags: 3, ..Cqe::default() }
    }

    #[test]
    fn phase_turns_with_each_lap_and_overrun_latches() {
        let (memory, ring) = cq(&[(0, CqRing::bytes(4))], 4);
        let mut ring = ring.unwrap();
        for n in 0..4 {
            ring.push(&number(n)).unwrap();
            let found = cqe_at(&memory, 32 * u64::from(n));
            assert_eq!((found.wqe_id.get(), found.vlan.get(), found.flags, found.phase), (n, 0x1234, 3, 1));
        }
        let consumer = Shared::new(&memory, Run { gpa: 128 + 64, len: 4 }, 4).unwrap();
        consumer.store32(0, 1, Ordering::Relaxed);
        ring.push(&number(4)).unwrap();
        assert_eq!(cqe_at(&memory, 0).phase, 0);
        assert_eq!(ring.push(&number(5)), Err(Overrun));
        consumer.store32(0, 5, Ordering::Relaxed);
        assert_eq!(ring.push(&number(5)), Err(Overrun), "a lost completion cannot be mended");
        assert_eq!(cqe_at(&memory, 32).wqe_id.get(), 1);
    }

    #[test]
    fn a_consumer_ahead_of_the_device_is_an_overrun() {
        let (memory, ring) = cq(&[(0, CqRing::bytes(2))], 2);
        let mut ring = ring.unwrap();
        let consumer = Shared::new(&memory, Run { gpa: 64 + 64, len: 4 }, 4).unwrap();
        consumer.store32(0, 100, Ordering::Relaxed);
        assert!(ring.push(&number(0)).is_ok() && ring.push(&number(1)).is_ok());
        assert_eq!(ring.push(&number(2)), Err(Overrun));
    }

    #[test]
    fn rings_may_be_scattered_between_cqes() {
        // 8 CQEs: 2, 2, 4, then the record on its own.
        let (memory, ring) = cq(&[(0x1000, 64), (0x3000, 64), (0x2000, 128), (0x5000, 128)], 8);
        let mut ring = ring.unwrap();
        for n in 0..8 {
            ring.push(&number(n)).unwrap();
        }
        for (n, gpa) in [(0, 0x1000), (1, 0x1020), (2, 0x3000), (3, 0x3020), (4, 0x2000), (7, 0x2060)] {
            assert_eq!(cqe_at(&memory, gpa).wqe_id.get(), n);
        }
        assert!(cq(&[(0x1000, 40), (0x3000, 24 + 128)], 2).1.is_none(), "a cut CQE");
        assert!(cq(&[(0x1000, 64 + 64), (0x3000, 64)], 2).1.is_none(), "a cut record");
        assert!(cq(&[(0x1004, CqRing::bytes(2))], 2).1.is_none(), "not aligned");
        assert!(cq(&[(0xffe0, CqRing::bytes(2))], 2).1.is_none(), "outside memory");
    }

    #[test]
    fn a_ring_whose_memory_is_gone_lets_go_of_the_old_table() {
        let (old, ring) = cq(&[(0, CqRing::bytes(2))], 2);
        let mut ring = ring.unwrap();
        let new = memory(&[(0x1000, 0x1000)]);
        let mapping = ring.layout().unwrap().map(&new);
        assert!(mapping.is_none());
        drop(ring.install(mapping));
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
        assert_eq!(ring.push(&number(0)), Err(Overrun));
        assert!(!ring.take_event(true) && !ring.take_late_event(true));
        assert!(ring.layout().is_none(), "it does not come back");
    }

    #[test]
    fn what_runs_cut_the_ring_into_is_counted() {
        let bytes = CqRing::bytes(1024);
        assert_eq!(cq(&[(0, bytes)], 1024).1.unwrap().runs(), 1);
        assert_eq!(cq(&[(0, 4096), (4096, bytes - 4096)], 1024).1.unwrap().runs(), 2);
        // Two runs that are apart by a CQE leave nothing but pieces of one CQE.
        assert_eq!(cq(&[(0, 32), (64, bytes - 32)], 1024).1.unwrap().runs(), 1024);
    }

    #[test]
    fn arm_words_are_seen_once_and_solicited_never_hides_next() {
        let (memory, ring) = cq(&[(0, CqRing::bytes(2))], 2);
        let mut ring = ring.unwrap();
        let arm = Shared::new(&memory, Run { gpa: 64, len: 8 }, 4).unwrap();
        assert!(!ring.take_event(true));
        arm.store32(4, 1, Ordering::Relaxed);
        assert!(!ring.take_event(false) && ring.take_event(true) && !ring.take_event(true));
        arm.store32(0, 1, Ordering::Relaxed);
        arm.store32(4, 2, Ordering::Relaxed);
        assert!(ring.take_event(false));
        assert!(!ring.take_event(true), "one event answers both");
    }
}
