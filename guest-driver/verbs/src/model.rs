//! A small device in plain memory, for the tests.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::vec::Vec;

use crate::channel::ChannelParts;
use crate::cq::{CqLayout, Cqe};
use crate::unit::Unit;
use vrdma_abi::zerocopy::transmute;

/// Zeroed memory that driver and device share.
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory. The users of its pointers are responsible for their accesses.
unsafe impl Send for Memory {}
// SAFETY: plain memory. The users of its pointers are responsible for their accesses.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(len: usize) -> Arc<Self> {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: the layout is not empty in any test.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Arc::new(Self { start, layout })
    }

    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.layout.size());
        // SAFETY: just checked.
        unsafe { self.start.add(offset) }
    }

    pub fn u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside, and aligned for even offsets.
        unsafe { AtomicU16::from_ptr(self.at(offset).cast().as_ptr()) }
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside, and aligned for offsets that are multiples of 4.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast().as_ptr()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the Arcs of all users are gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The device's end of a channel.
pub struct DeviceChannel {
    pub memory: Arc<Memory>,
    entries: u16,
    event_idx: bool,
    /// Whether it takes lists.
    pub lists: bool,
    pub taken: u16,
    used: usize,
    slots: usize,
}

impl DeviceChannel {
    pub fn new(entries: u16, event_idx: bool) -> Self {
        let count = usize::from(entries);
        let used = (4 + 2 * count + 2).next_multiple_of(64);
        let slots = (used + 4 + 8 * count + 2).next_multiple_of(64);
        let memory = Memory::new(slots + 64 * count);
        Self { memory, entries, event_idx, lists: false, taken: 0, used, slots }
    }

    /// Returns the parts of the driver's end.
    pub fn parts<D>(&self, doorbell: D) -> ChannelParts<D> {
        ChannelParts {
            avail: self.memory.at(0),
            used: self.memory.at(self.used),
            slots: self.memory.at(self.slots).cast(),
            entries: self.entries,
            event_idx: self.event_idx,
            lists: self.lists,
            doorbell,
        }
    }

    /// Takes an entry, and returns it to the driver.
    pub fn take(&mut self) -> Option<Unit> {
        if !self.has_work() {
            return None;
        }
        let position = usize::from(self.taken & (self.entries - 1));
        let slot = usize::from(self.memory.u16(4 + 2 * position).load(Ordering::Relaxed));
        assert!(slot < usize::from(self.entries), "slot {slot} does not exist");
        // SAFETY: the slot belongs to the device until it is returned.
        let unit = unsafe { self.memory.at(self.slots + 64 * slot).cast::<Unit>().read() };
        self.memory.u32(self.used + 4 + 8 * position).store(slot as u32, Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        self.memory.u16(self.used + 2).store(self.taken, Ordering::Release);
        Some(unit)
    }

    pub fn has_work(&self) -> bool {
        self.memory.u16(2).load(Ordering::Acquire) != self.taken
    }

    /// Asks to be kicked for the next entry. The caller looks once more before it sleeps.
    pub fn arm(&self) {
        self.set_notify(self.taken, 0);
        fence(Ordering::SeqCst);
    }

    /// Asks not to be kicked.
    pub fn disarm(&self) {
        self.set_notify(self.taken.wrapping_sub(1), 1);
    }

    /// Makes the device start at index `start`, as after many laps. The test sets the driver's end
    /// itself.
    pub fn start_at(&mut self, start: u16) {
        self.taken = start;
        self.memory.u16(2).store(start, Ordering::Relaxed);
        self.memory.u16(self.used + 2).store(start, Ordering::Relaxed);
        self.disarm();
    }

    pub fn set_used_idx(&self, index: u16) {
        self.memory.u16(self.used + 2).store(index, Ordering::Relaxed);
    }

    fn set_notify(&self, avail_event: u16, used_flags: u16) {
        let offset = self.used + 4 + 8 * usize::from(self.entries);
        if self.event_idx {
            self.memory.u16(offset).store(avail_event, Ordering::Relaxed);
        } else {
            self.memory.u16(self.used).store(used_flags, Ordering::Relaxed);
        }
    }
}

/// The device's end of a completion queue.
pub struct DeviceCq {
    pub memory: Arc<Memory>,
    layout: CqLayout,
    pub next: u32,
    seen: [u32; 2],
}

impl DeviceCq {
    pub fn new(layout: CqLayout) -> Self {
        Self { memory: Memory::new(layout.size()), layout, next: 0, seen: [0; 2] }
    }

    /// Continues in the ring of `next`, which is new. The former ring stays in memory.
    pub fn followed_by(self, next: Self, former: &mut Vec<Self>) -> Self {
        let seen = self.seen;
        former.push(self);
        Self { seen, ..next }
    }

    /// Makes the device start at `start`, a multiple of twice the entries. The test sets the
    /// driver's end itself.
    pub fn start_at(&mut self, start: u32) {
        self.next = start;
        self.memory.u32(self.layout.record_offset() + 64).store(start, Ordering::Relaxed);
    }

    /// Writes a CQE. Returns false if the queue is full.
    pub fn put(&mut self, cqe: Cqe) -> bool {
        self.put_timed(cqe, 0)
    }

    /// Writes a CQE with a time stamp, if the CQEs have one. Returns false if the queue is full.
    pub fn put_timed(&mut self, mut cqe: Cqe, timestamp: u64) -> bool {
        let consumer = self.memory.u32(self.layout.record_offset() + 64).load(Ordering::Acquire);
        let entries = self.layout.entries();
        if self.next.wrapping_sub(consumer) >= entries {
            return false;
        }
        cqe.phase = u8::from(self.next & entries == 0);
        let bytes: [u8; Cqe::SIZE] = transmute!(cqe);
        let at = self.memory.at((self.next & (entries - 1)) as usize * self.layout.cqe_size());
        // SAFETY: inside the ring. The entry belongs to the device until the phase is written.
        unsafe {
            if self.layout.is_timed() {
                at.add(Cqe::SIZE).cast::<u64>().write(timestamp.to_le());
            }
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr(), Cqe::SIZE - 1);
            AtomicU8::from_ptr(at.add(Cqe::SIZE - 1).as_ptr()).store(bytes[Cqe::SIZE - 1], Ordering::Release);
        }
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Returns whether the driver asked for an event, after CQEs were put.
    pub fn wants_event(&mut self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        let record = self.layout.record_offset();
        let now = [0, 4].map(|offset| self.memory.u32(record + offset).load(Ordering::Relaxed));
        let wanted = now[0] != self.seen[0] || solicited && now[1] != self.seen[1];
        if wanted {
            self.seen = now;
        }
        wanted
    }
}
