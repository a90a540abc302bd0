//! Polling and arming a completion queue.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::barrier;
use vrdma_abi::cqe::{CqRecord, TimedCqe};
use vrdma_abi::zerocopy::transmute;

pub use vrdma_abi::cqe::Cqe;

/// The number of 64-bit words of a CQE.
const CQE_WORDS: usize = Cqe::SIZE / 8;
/// The offset of the time stamp in a CQE that has one.
const TIMESTAMP_OFFSET: usize = core::mem::offset_of!(TimedCqe, timestamp);
/// The offset of the phase byte in a CQE.
const PHASE_OFFSET: usize = core::mem::offset_of!(Cqe, phase);
/// The offset of the QPN in a CQE.
const QPN_OFFSET: usize = core::mem::offset_of!(Cqe, qpn);

/// The size and layout of a completion queue's memory: the CQEs, then the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqLayout {
    entries: u32,
    /// Bytes of a CQE.
    cqe_size: usize,
}

impl CqLayout {
    /// The alignment of the memory in bytes.
    ///
    /// Whole pages are the usual choice, because no cache line may straddle two extents.
    pub const ALIGN: usize = 64;

    /// The minimum number of CQEs. With one CQE, the lines of the record would not be lines of the
    /// memory.
    const MIN_ENTRIES: u32 = 2;

    /// Returns the layout for at least `cqes` entries, rounded up to a power of two; `None` beyond
    /// 2^31.
    pub const fn for_entries(cqes: u32) -> Option<Self> {
        let least = if cqes < Self::MIN_ENTRIES { Self::MIN_ENTRIES } else { cqes };
        match least.checked_next_power_of_two() {
            Some(entries) => Some(Self { entries, cqe_size: Cqe::SIZE }),
            None => None,
        }
    }

    /// Returns this layout with CQEs that have a time stamp, or without if `timed` is false.
    pub const fn with_timestamps(self, timed: bool) -> Self {
        Self { cqe_size: if timed { TimedCqe::SIZE } else { Cqe::SIZE }, ..self }
    }

    /// Returns whether CQEs have a time stamp.
    pub const fn is_timed(self) -> bool {
        self.cqe_size == TimedCqe::SIZE
    }

    /// Returns the bytes of a CQE.
    pub const fn cqe_size(self) -> usize {
        self.cqe_size
    }

    /// Returns the number of CQEs, a power of two.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Returns the offset of the record in bytes.
    pub const fn record_offset(self) -> usize {
        self.entries as usize * self.cqe_size
    }

    /// Returns the length of the memory in bytes.
    pub const fn size(self) -> usize {
        self.record_offset() + CqRecord::SIZE
    }
}

/// Which completions cause an event after [`Cq::arm`].
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
    /// The free-running index of the next CQE.
    next: u32,
    /// The consumer index in the record.
    published: u32,
    /// The new ring of a resize. The device switches to it at some moment, which was not seen yet.
    successor: Option<Ring>,
}

/// CQEs and record in memory.
#[derive(Clone, Copy, Debug)]
struct Ring {
    cqes: NonNull<u64>,
    record: NonNull<u8>,
    layout: CqLayout,
}

// SAFETY: the pointers lead to memory that is not tied to a thread. Nothing else on the driver's
// side uses that memory.
unsafe impl Send for Cq {}

impl Cq {
    /// Takes over the queue at the start of `memory`.
    ///
    /// Returns `None` if that is not aligned to [`CqLayout::ALIGN`].
    ///
    /// # Safety
    /// `memory` has [`CqLayout::size`] bytes, readable and writable. They were all zero before the
    /// device was told of them. The memory stays as long as the value lives, or until the queue
    /// switches to other memory. Nobody writes it except this value and the device.
    pub unsafe fn new(memory: NonNull<u8>, layout: CqLayout) -> Option<Self> {
        // SAFETY: by this function's own contract.
        let ring = unsafe { Ring::new(memory, layout) }?;
        Some(Self { ring, next: 0, published: 0, successor: None })
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Cqe> {
        let cqe = self.take()?;
        self.publish();
        Some(cqe)
    }

    /// Passes up to `max` completions to `each`, then returns their room to the device in one step.
    ///
    /// Returns how many there were.
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

    /// Takes the next completion, but returns its room to the device only at [`Self::publish`].
    #[inline]
    pub fn take(&mut self) -> Option<Cqe> {
        self.take_timed().map(|(cqe, _)| cqe)
    }

    /// Takes the next completion as [`Self::take`] does, with its time stamp.
    ///
    /// The time stamp is 0 in a queue without time stamps.
    #[inline]
    pub fn take_timed(&mut self) -> Option<(Cqe, u64)> {
        if !self.ring.is_new(self.next) && !self.find_in_successor() {
            return None;
        }
        let found = (self.ring.read(self.next), self.ring.timestamp(self.next));
        self.next = self.next.wrapping_add(1);
        Some(found)
    }

    /// Returns the room of all taken completions to the device.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.next {
            self.published = self.next;
            // Release: the CQEs were read before.
            let consumer = self.ring.word(core::mem::offset_of!(CqRecord, consumer));
            consumer.store(self.next.to_le(), Ordering::Release);
        }
    }

    /// Returns whether [`Self::poll`] would find a completion.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_new(self.next) || self.successor.is_some_and(|ring| ring.is_new(0))
    }

    /// Asks for an event. The caller must poll once more before it waits, because earlier
    /// completions cause no event.
    pub fn arm(&mut self, kind: Arm) {
        let offset = match kind {
            Arm::Next => core::mem::offset_of!(CqRecord, arm_next),
            Arm::Solicited => core::mem::offset_of!(CqRecord, arm_solicited),
        };
        // Only this side writes the word.
        let count = u32::from_le(self.ring.word(offset).load(Ordering::Relaxed)).wrapping_add(1);
        // The device reads one of the two records, and does not show which.
        for ring in [Some(self.ring), self.successor].into_iter().flatten() {
            ring.word(offset).store(count.to_le(), Ordering::Release);
        }
        // The word is visible before the caller looks for completions. The device has the mirrored
        // barrier.
        barrier::full();
    }

    /// Renames waiting completions of destroyed objects to those of QP `to`, and passes each to
    /// `renamed`.
    ///
    /// So they cannot be taken for those of a new object with the same number. This is for use
    /// after DESTROY_QP, DESTROY_SRQ, or a modify to RESET. `to` should be a QPN that never exists.
    pub fn rename(&mut self, is_gone: impl Fn(&Cqe) -> bool, to: u32, mut renamed: impl FnMut(Cqe)) {
        self.ring.rename(self.next, &is_gone, to, &mut renamed);
        if let Some(successor) = &self.successor {
            successor.rename(0, &is_gone, to, &mut renamed);
        }
    }

    /// Begins a resize, before RESIZE_CQ. The queue continues in `memory` when the device is seen
    /// to do so.
    ///
    /// Returns false, without effect, if the memory is not aligned to [`CqLayout::ALIGN`], or its
    /// CQEs are of another kind. It does so too if a resize is in progress.
    ///
    /// # Safety
    /// As for [`Self::new`]. Both memories stay until [`Self::end_resize`] or
    /// [`Self::cancel_resize`]. If neither is called, they stay as long as the value lives.
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

    /// Ends a resize after the device has answered that it resized the queue.
    ///
    /// The rest of the former ring, the oldest first, is passed to `left` as by
    /// [`Self::take_timed`]. The former memory is not used any more.
    pub fn end_resize(&mut self, mut left: impl FnMut((Cqe, u64))) {
        let Some(successor) = self.successor else { return };
        // The device has written its last CQE here, so this ends within the ring.
        for _ in 0..self.ring.layout.entries {
            if !self.ring.is_new(self.next) {
                break;
            }
            left((self.ring.read(self.next), self.ring.timestamp(self.next)));
            self.next = self.next.wrapping_add(1);
        }
        self.go_on_in(successor);
    }

    /// Cancels a resize that the device has refused. The new memory is not used.
    pub fn cancel_resize(&mut self) {
        self.successor = None;
    }

    /// Returns whether a resize was begun, and the device was not yet seen to use the new ring.
    pub fn is_resizing(&self) -> bool {
        self.successor.is_some()
    }

    /// Returns the layout of the queue.
    pub fn layout(&self) -> CqLayout {
        self.ring.layout
    }

    /// Returns whether there is a completion, if a first look found none, because the device uses
    /// another ring.
    #[inline]
    fn find_in_successor(&mut self) -> bool {
        match self.successor {
            Some(successor) if successor.is_new(0) => {
                // The device made its last CQE of this ring visible before that of the new ring,
                // but perhaps after the first look here.
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
    /// Returns the ring in `memory`; `None` if that is not aligned.
    ///
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

    /// Renames completions from index `first` on.
    fn rename(&self, first: u32, is_gone: impl Fn(&Cqe) -> bool, to: u32, mut renamed: impl FnMut(Cqe)) {
        let mut index = first;
        // At most one lap: beyond it, the phases would say "new" again.
        for _ in 0..self.layout.entries {
            if !self.is_new(index) {
                break;
            }
            let cqe = self.read(index);
            if is_gone(&cqe) {
                renamed(cqe);
                // SAFETY: the field is inside the CQE, and aligned for 4 bytes. A CQE belongs to
                // this side until it is consumed.
                unsafe {
                    let field = self.cqe(index).cast::<u8>().add(QPN_OFFSET).cast::<u32>();
                    field.write_volatile(to.to_le());
                }
            }
            index = index.wrapping_add(1);
        }
    }

    /// Returns whether the CQE at `index` was written in this lap.
    #[inline]
    fn is_new(&self, index: u32) -> bool {
        // SAFETY: it is the phase byte of a CQE, which this side reads by atomics.
        let phase = unsafe { AtomicU8::from_ptr(self.cqe(index).cast::<u8>().add(PHASE_OFFSET).as_ptr()) };
        // Acquire: the device wrote the rest of the CQE before.
        let phase = phase.load(Ordering::Acquire) & 1;
        let lap = (index & self.layout.entries) != 0;
        (phase != 0) != lap
    }

    /// Returns the CQE at `index`, which was written.
    #[inline]
    fn read(&self, index: u32) -> Cqe {
        let words = self.cqe(index);
        // SAFETY: a whole CQE lies there. The device wrote it before the phase, and must not write
        // it again before publish(). If it does so anyway, volatile reads give some value.
        let words: [u64; CQE_WORDS] = core::array::from_fn(|i| unsafe { words.add(i).read_volatile() });
        transmute!(words)
    }

    /// Returns the time stamp of the CQE at `index`, which was written; 0 if it has none.
    #[inline]
    fn timestamp(&self, index: u32) -> u64 {
        if !self.layout.is_timed() {
            return 0;
        }
        // SAFETY: it lies in the CQE, and is aligned. What holds for the rest of the CQE holds
        // here.
        u64::from_le(unsafe { self.cqe(index).byte_add(TIMESTAMP_OFFSET).read_volatile() })
    }

    #[inline]
    fn cqe(&self, index: u32) -> NonNull<u64> {
        let slot = (index & (self.layout.entries - 1)) as usize;
        // SAFETY: the index is masked, so the CQE is inside the ring.
        unsafe { self.cqes.byte_add(slot * self.layout.cqe_size) }
    }

    /// Returns a word of the record.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `offset` is a field of the record, which is 64-byte aligned. It is accessed by
        // atomics only.
        unsafe { AtomicU32::from_ptr(self.record.add(offset).cast().as_ptr()) }
    }
}

#[cfg(test)]
mod tests;
