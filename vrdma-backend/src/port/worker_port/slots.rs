//! A bounded lock-free queue from one thread to another, for values that mostly fit a cache line.
//!
//! A number in each slot says whether the slot holds a value. So the cache line that announces a
//! value also carries it. Receivers only read slots. A line goes to the receiver once, and comes
//! back when the sender writes the slot in the next lap. Longer values have a second part (`B`) in
//! lines of its own, which few values need. Otherwise the queue works like the queue of frames
//! (`ring.rs`).

use super::sync::{Arc, AtomicU32, AtomicUsize, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// The sender's end.
#[derive(Debug)]
pub struct SlotSender<A, B> {
    ring: Arc<Ring<A, B>>,
    /// The number of values put in so far.
    tail: usize,
    /// The number of values whose slots are free again, as last seen.
    head: usize,
}

/// The receiver's end. It takes values out in the order in which they were put in.
#[derive(Debug)]
pub struct SlotReceiver<A, B> {
    ring: Arc<Ring<A, B>>,
    /// The number of values taken out so far, released or not.
    head: usize,
}

#[derive(Debug)]
struct Ring<A, B> {
    slots: Box<[Slot<A, B>]>,
    /// The number of values whose slots the receiver has released.
    head: Line,
}

/// A slot for a value. The first part of the value shares a cache line with the number.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot<A, B> {
    /// The [`number`] of the value in the slot, perhaps with [`HAS_REST`]. 0 before the first
    /// value.
    number: AtomicU32,
    first: UnsafeCell<MaybeUninit<A>>,
    rest: UnsafeCell<MaybeUninit<B>>,
}

/// An index in its own cache line.
///
/// The alignment is two lines, because the processor's prefetcher fetches pairs of lines.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

/// Set in the number of a value that has a second part.
const HAS_REST: u32 = 1;

/// Returns the number of the value at `index`, without [`HAS_REST`].
///
/// It differs from the number of the previous value in the same slot.
fn number(index: usize) -> u32 {
    (index as u32).wrapping_add(1) << 1
}

// SAFETY: only one end touches the parts of a slot at any time. That is the sender until it stores
// the slot's number, and then the receiver until it releases the slot. Values go from one thread to
// another, so they have to be `Send`.
#[allow(unsafe_code, reason = "a queue between two threads without locks")]
unsafe impl<A: Send, B: Send> Sync for Ring<A, B> {}

/// Creates a queue for `depth` values.
///
/// # Panics
/// `depth` is not a power of two, or is 2^30 or more.
pub fn slots<A, B>(depth: usize) -> (SlotSender<A, B>, SlotReceiver<A, B>) {
    assert!(depth.is_power_of_two() && depth < 1 << 30, "a depth that is a power of two");
    let slot = |_| Slot {
        number: AtomicU32::new(0),
        first: UnsafeCell::new(MaybeUninit::uninit()),
        rest: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let ring = Arc::new(Ring { slots: (0..depth).map(slot).collect(), head: Line(AtomicUsize::new(0)) });
    (SlotSender { ring: ring.clone(), tail: 0, head: 0 }, SlotReceiver { ring, head: 0 })
}

impl<A, B> Ring<A, B> {
    #[inline]
    fn slot(&self, index: usize) -> &Slot<A, B> {
        &self.slots[index & (self.slots.len() - 1)]
    }

    /// Takes the value at `index`, if it is there.
    ///
    /// # Safety
    /// The value was not taken before.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    unsafe fn take(&self, index: usize) -> Option<(A, Option<B>)> {
        let slot = self.slot(index);
        let found = slot.number.load(Ordering::Acquire);
        if found & !HAS_REST != number(index) {
            return None;
        }
        // SAFETY: the number says that the sender has written the value. The sender does not write
        // it again before the slot is released. The value was not taken before.
        let first = slot.first.with(|first| unsafe { (*first).assume_init_read() });
        let rest = (found & HAS_REST != 0).then(|| {
            // SAFETY: as for the first part.
            slot.rest.with(|rest| unsafe { (*rest).assume_init_read() })
        });
        Some((first, rest))
    }
}

impl<A, B> SlotSender<A, B> {
    /// Puts a value in, which the receiver sees at once. Returns false if it is lost for lack of
    /// room.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn push(&mut self, first: A, rest: Option<B>) -> bool {
        if !self.has_room(1) {
            return false;
        }
        let slot = self.ring.slot(self.tail);
        // SAFETY: the receiver has released the slot (`head`), and sees it again only by its
        // number. The previous value was taken out.
        slot.first.with_mut(|slot| unsafe { (*slot).write(first) });
        let mut tag = number(self.tail);
        if let Some(rest) = rest {
            // SAFETY: as for the first part.
            slot.rest.with_mut(|slot| unsafe { (*slot).write(rest) });
            tag |= HAS_REST;
        }
        slot.number.store(tag, Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Whether there is room for this number of values.
    #[inline]
    pub fn has_room(&mut self, values: usize) -> bool {
        let size = self.ring.slots.len();
        if size - self.tail.wrapping_sub(self.head) < values {
            self.head = self.ring.head.0.load(Ordering::Acquire);
        }
        size - self.tail.wrapping_sub(self.head) >= values
    }
}

impl<A, B> SlotReceiver<A, B> {
    /// Takes the next value out, if there is one.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn pop(&mut self) -> Option<(A, Option<B>)> {
        // SAFETY: the value at `head` was not taken before.
        let value = unsafe { self.ring.take(self.head) }?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Releases the slots of all values that were taken out.
    #[inline]
    pub fn release(&mut self) {
        self.ring.head.0.store(self.head, Ordering::Release);
    }
}

impl<A, B> Drop for SlotReceiver<A, B> {
    /// Releases the slots. The ring drops the values that were not taken.
    fn drop(&mut self) {
        self.release();
    }
}

impl<A, B> Drop for Ring<A, B> {
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    fn drop(&mut self) {
        let mut index = self.head.0.load(Ordering::Acquire);
        // SAFETY: the receiver is gone, and `head` is behind all values that it took.
        while unsafe { self.take(index) }.is_some() {
            index = index.wrapping_add(1);
        }
    }
}
