//! Polling and arming a completion queue.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::barrier;
use vrdma_abi::cqe::{CqRecord, TimedCqe};
use vrdma_abi::zerocopy::transmute;

pub use vrdma_abi::cqe::Cqe;

/// Words of a CQE.
const CQE_WORDS: usize = Cqe::SIZE / 8;
/// Where the time stamp is in a CQE that has one.
const TIMESTAMP_OFFSET: usize = core::mem::offset_of!(TimedCqe, timestamp);
/// Where the phase byte is in a CQE.
const PHASE_OFFSET: usize = core::mem::offset_of!(Cqe, phase);
/// Where the QPN is in a CQE.
const QPN_OFFSET: usize = core::mem::offset_of!(Cqe, qpn);

/// Size and shape of a completion queue's memory: the CQEs, then the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqLayout {
    entries: u32,
    /// Bytes of a CQE.
    cqe_size: usize,
}

impl CqLayout {
    /// Alignment of the memory in bytes. Whole pages are the usual choice, as no line may straddle
    /// two runs.
    pub const ALIGN: usize = 64;

    /// Fewest CQEs: with one alone the record's lines would not be lines of the memory.
    const MIN_ENTRIES: u32 = 2;

    /// For at least `cqes` entries, rounded up to a power of two. `None` beyond 2^31.
    pub const fn for_entries(cqes: u32) -> Option<Self> {
        let least = if cqes < Self::MIN_ENTRIES { Self::MIN_ENTRIES } else { cqes };
        match least.checked_next_power_of_two() {
            Some(entries) => Some(Self { entries, cqe_size: Cqe::SIZE }),
            None => None,
        }
    }

    /// The same with CQEs that have a time stamp, if that is `timed`.
    pub const fn with_timestamps(self, timed: bool) -> Self {
        Self { cqe_size: if timed { TimedCqe::SIZE } else { Cqe::SIZE }, ..self }
    }

    /// Whether CQEs have a time stamp.
    pub const fn is_timed(self) -> bool {
        self.cqe_size == TimedCqe::SIZE
    }

    /// Bytes of a CQE.
    pub const fn cqe_size(self) -> usize {
        self.cqe_size
    }

    /// Number of CQEs, a power of two.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Where the record begins, in bytes.
    pub const fn record_offset(self) -> usize {
        self.entries as usize * self.cqe_size
    }

    /// Length of the memory in bytes.
    pub const fn size(self) -> usize {
        self.record_offset() + CqRecord::SIZE
    }
}

/// Which completions [`Cq::arm`] asks to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next one.
    Next,
    /// The next solicited or unsuccessful one.
    Solicited,
}

/// The driver's end of a completion queue.
#[derive(Debug)]
pub struct Cq {
    ring: Ring,
    /// Index of the CQE to come, free-running.
    next: u32,
    /// What the record says was consumed.
    published: u32,
    /// The ring that the device goes on in at some moment of a resize, which has not shown yet.
    successor: Option<Ring>,
}

/// CQEs and record in memory.
#[derive(Clone, Copy, Debug)]
struct Ring {
    cqes: NonNull<u64>,
    record: NonNull<u8>,
    layout: CqLayout,
}

// SAFETY: the pointers lead to memory that is not tied to a thread, and a Cq is the only one on the
// driver's side that uses it.
unsafe impl Send for Cq {}

impl Cq {
    /// The queue in `memory`, from its start. `None` if that is not aligned to [`CqLayout::ALIGN`].
    ///
    /// # Safety
    /// `memory` has [`CqLayout::size`] bytes, readable and writable, all zero before the device was
    /// told of them, and stays so as long as the value lives, or until it goes on in other memory;
    /// nobody else but the device writes it.
    pub unsafe fn new(memory: NonNull<u8>, layout: CqLayout) -> Option<Self> {
        // SAFETY: by this function's own contract.
        let ring = unsafe { Ring::new(memory, layout) }?;
        Some(Self { ring, next: 0, published: 0, successor: None })
    }

    /// The next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let cqe = self.take()?;
        self.publish();
        Some(cqe)
    }

    /// Hands up to `max` completions to `each`, and gives their room back to the device in one
    /// step; says how many.
    #[inline]
    pub fn poll_batch(&mut self, max: usize, mut each: impl FnMut(Cqe)) -> usize {
        let mut count = 0;
        while count < max
            && let Some(cqe) = self.take()
        {
            each(cqe);
            count += 1;
        }
        if count != 0 {
            self.publish();
        }
        count
    }

    /// Like [`Self::poll`], but the device gets the room back only at [`Self::publish`].
    #[inline]
    pub fn take(&mut self) -> Option<Cqe> {
        self.take_timed().map(|(cqe, _)| cqe)
    }

    /// Like [`Self::take`], with the time stamp; that is 0 in a queue without.
    #[inline]
    pub fn take_timed(&mut self) -> Option<(Cqe, u64)> {
        if !self.ring.is_new(self.next) && !self.find_in_successor() {
            return None;
        }
        let found = (self.ring.read(self.next), self.ring.timestamp(self.next));
        self.next = self.next.wrapping_add(1);
        Some(found)
    }

    /// Gives the room of everything taken back to the device.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.next {
            self.published = self.next;
            // Release: the CQEs were read before.
            let consumer = self.ring.word(core::mem::offset_of!(CqRecord, consumer));
            consumer.store(self.next.to_le(), Ordering::Release);
        }
    }

    /// Whether [`Self::poll`] would find something.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_new(self.next) || self.successor.is_some_and(|ring| ring.is_new(0))
    }

    /// Asks for an event. The caller must poll once more before it waits: what came before is not
    /// told.
    pub fn arm(&mut self, kind: Arm) {
        let offset = match kind {
            Arm::Next => core::mem::offset_of!(CqRecord, arm_next),
            Arm::Solicited => core::mem::offset_of!(CqRecord, arm_solicited),
        };
        // This side alone writes the word.
        let count = u32::from_le(self.ring.word(offset).load(Ordering::Relaxed)).wrapping_add(1);
        // The device looks at one of them, and it does not show which.
        for ring in [Some(self.ring), self.successor].into_iter().flatten() {
            ring.word(offset).store(count.to_le(), Ordering::Release);
        }
        // The word is out before the caller looks for completions; the device has the mirror image
        // of this.
        barrier::full();
    }

    /// Renames the completions that are waiting here and are of what is gone to those of QP `to`,
    /// so that they can't be taken for those of something new with the same number, and hands each
    /// to `renamed`. For after DESTROY_QP, DESTROY_SRQ, or a modify to RESET; `to` should be a QPN
    /// that never exists.
    pub fn rename(&mut self, is_gone: impl Fn(&Cqe) -> bool, to: u32, mut renamed: impl FnMut(Cqe)) {
        self.ring.rename(self.next, &is_gone, to, &mut renamed);
        if let Some(successor) = &self.successor {
            successor.rename(0, &is_gone, to, &mut renamed);
        }
    }

    /// Begins to resize it: for before RESIZE_CQ. The queue goes on in `memory` as soon as it shows
    /// that the device does. False, and nothing happens, if the memory is not aligned to
    /// [`CqLayout::ALIGN`], its CQEs are of another kind, or a resize is under way.
    ///
    /// # Safety
    /// As for [`Self::new`]. Both memories stay until [`Self::end_resize`] or
    /// [`Self::cancel_resize`]; if neither is called, as long as the value lives.
    pub unsafe fn begin_resize(&mut self, memory: NonNull<u8>, layout: CqLayout) -> bool {
        // SAFETY: by this function's own contract.
        let Some(ring) = (unsafe { Ring::new(memory, layout) }) else { return false };
        if self.is_resizing() || layout.is_timed() != self.layout().is_timed() {
            return false;
        }
        for offset in
            [core::mem::offset_of!(CqRecord, arm_next), core::mem::offset_of!(CqRecord, arm_solicited)]
        {
            let count = self.ring.word(offset).load(Ordering::Relaxed);
            ring.word(offset).store(count, Ordering::Relaxed);
        }
        self.successor = Some(ring);
        true
    }

    /// The device has answered that it resized the queue: what is left in the former ring, the
    /// oldest first, is handed to `left` as by [`Self::take_timed`], and that memory is not used
    /// any more.
    pub fn end_resize(&mut self, mut left: impl FnMut((Cqe, u64))) {
        let Some(successor) = self.successor else { return };
        // The device has written its last here, so this ends within the ring.
        for _ in 0..self.ring.layout.entries {
            if !self.ring.is_new(self.next) {
                break;
            }
            left((self.ring.read(self.next), self.ring.timestamp(self.next)));
            self.next = self.next.wrapping_add(1);
        }
        self.go_on_in(successor);
    }

    /// The device has refused to resize the queue: the new memory is not used.
    pub fn cancel_resize(&mut self) {
        self.successor = None;
    }

    /// Whether it was begun to resize it, and the device has not been seen to go on in the new
    /// ring.
    pub fn is_resizing(&self) -> bool {
        self.successor.is_some()
    }

    /// Shape of the queue.
    pub fn layout(&self) -> CqLayout {
        self.ring.layout
    }

    /// After nothing new was found: whether there is something all the same, since the device goes
    /// on in another ring.
    #[inline]
    fn find_in_successor(&mut self) -> bool {
        match self.successor {
            Some(successor) if successor.is_new(0) => {
                // The device had its last CQE here visible before that one, but maybe after the
                // look here.
                if !self.ring.is_new(self.next) {
                    self.go_on_in(successor);
                }
                true
            }
            _ => false,
        }
    }

    #[cold]
    fn go_on_in(&mut self, ring: Ring) {
        *self = Self { ring, next: 0, published: 0, successor: None };
    }
}

impl Ring {
    /// # Safety
    /// As for [`Cq::new`].
    unsafe fn new(memory: NonNull<u8>, layout: CqLayout) -> Option<Self> {
        if !memory.as_ptr().addr().is_multiple_of(CqLayout::ALIGN) {
            return None;
        }
        // SAFETY: the record is inside the memory.
        let record = unsafe { memory.add(layout.record_offset()) };
        Some(Self { cqes: memory.cast(), record, layout })
    }

    /// Renames completions from that of index `first` on.
    fn rename(&self, first: u32, is_gone: impl Fn(&Cqe) -> bool, to: u32, mut renamed: impl FnMut(Cqe)) {
        let mut index = first;
        // At most one lap: beyond it the phases would say "new" again.
        for _ in 0..self.layout.entries {
            if !self.is_new(index) {
                break;
            }
            let cqe = self.read(index);
            if is_gone(&cqe) {
                renamed(cqe);
                // SAFETY: inside the CQE, aligned for 4 bytes; until it is consumed it is this
                // side's.
                unsafe {
                    let field = self.cqe(index).cast::<u8>().add(QPN_OFFSET).cast::<u32>();
                    field.write_volatile(to.to_le());
                }
            }
            index = index.wrapping_add(1);
        }
    }

    /// Whether the CQE of `index` has been written in this lap.
    #[inline]
    fn is_new(&self, index: u32) -> bool {
        // SAFETY: the phase byte of a CQE; this side reads it by atomics.
        let phase = unsafe { AtomicU8::from_ptr(self.cqe(index).cast::<u8>().add(PHASE_OFFSET).as_ptr()) };
        // Acquire: the device wrote the rest of the CQE before.
        let phase = phase.load(Ordering::Acquire) & 1;
        let lap = (index & self.layout.entries) != 0;
        (phase != 0) != lap
    }

    /// The CQE of `index`, which has been written.
    #[inline]
    fn read(&self, index: u32) -> Cqe {
        let words = self.cqe(index);
        // SAFETY: a whole CQE lies there. The device wrote it before the phase and won't again
        // before publish(); should it do so all the same, volatile reads give some value.
        let words: [u64; CQE_WORDS] = core::array::from_fn(|i| unsafe { words.add(i).read_volatile() });
        transmute!(words)
    }

    /// The time stamp of the CQE of `index`, which has been written; 0 if it has none.
    #[inline]
    fn timestamp(&self, index: u32) -> u64 {
        if !self.layout.is_timed() {
            return 0;
        }
        // SAFETY: it lies in the CQE, aligned; as for the rest of it.
        u64::from_le(unsafe { self.cqe(index).byte_add(TIMESTAMP_OFFSET).read_volatile() })
    }

    #[inline]
    fn cqe(&self, index: u32) -> NonNull<u64> {
        let slot = (index & (self.layout.entries - 1)) as usize;
        // SAFETY: masked, so inside the ring.
        unsafe { self.cqes.byte_add(slot * self.layout.cqe_size) }
    }

    /// A word of the record.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `offset` is a field of the record, which is 64-byte aligned; accessed by atomics
        // only.
        unsafe { AtomicU32::from_ptr(self.record.add(offset).cast().as_ptr()) }
    }
}

#[cfg(test)]
mod tests;
