//! A bounded queue from one thread to another, without locks, for values of which most fit a cache
//! line.
//!
//! Each place says by a number whether there is a value in it, so that the line which tells the
//! receiver that one came also carries it. Receivers only read places: a line goes to the receiver
//! once, and comes back when the sender writes it in the next lap. What is longer has lines of its
//! own behind (`B`), which few values need. Otherwise it is as the queue of frames (`ring.rs`).

use super::sync::{Arc, AtomicU32, AtomicUsize, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// Puts values in.
#[derive(Debug)]
pub struct Sender<A, B> {
    ring: Arc<Ring<A, B>>,
    /// Values put in so far.
    tail: usize,
    /// Values whose places are free again, as seen last.
    head: usize,
}

/// Takes them out, in the same order.
#[derive(Debug)]
pub struct Receiver<A, B> {
    ring: Arc<Ring<A, B>>,
    /// Values taken out so far, released or not.
    head: usize,
}

#[derive(Debug)]
struct Ring<A, B> {
    places: Box<[Place<A, B>]>,
    /// Values whose places the receiver has released.
    head: Line,
}

/// A value: its first part shares a line with the number.
#[derive(Debug)]
#[repr(C, align(64))]
struct Place<A, B> {
    /// What [`number`] says of the value in it; 0 before the first.
    number: AtomicU32,
    first: UnsafeCell<MaybeUninit<A>>,
    rest: UnsafeCell<MaybeUninit<B>>,
}

/// An index in a cache line of its own, and out of the way of the processor's prefetcher, which
/// fetches pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

/// Set in the number of a value that has a second part.
const HAS_REST: u32 = 1;

/// The number of the value at `index`, without [`HAS_REST`]: another than that of the value before
/// it in the same place.
fn number(index: usize) -> u32 {
    (index as u32).wrapping_add(1) << 1
}

// SAFETY: the parts of a place are touched by one end alone at any time: by the sender until it
// stores the place's number, then by the receiver until it releases the place. Values go from one
// thread to another, so they have to be `Send`.
#[allow(unsafe_code, reason = "a queue between two threads without locks")]
unsafe impl<A: Send, B: Send> Sync for Ring<A, B> {}

/// A queue for `depth` values, a power of two.
///
/// # Panics
/// It is none.
pub fn places<A, B>(depth: usize) -> (Sender<A, B>, Receiver<A, B>) {
    assert!(depth.is_power_of_two() && depth < 1 << 30, "a depth that is a power of two");
    let place = |_| Place {
        number: AtomicU32::new(0),
        first: UnsafeCell::new(MaybeUninit::uninit()),
        rest: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let ring = Arc::new(Ring { places: (0..depth).map(place).collect(), head: Line(AtomicUsize::new(0)) });
    (Sender { ring: ring.clone(), tail: 0, head: 0 }, Receiver { ring, head: 0 })
}

impl<A, B> Ring<A, B> {
    #[inline]
    fn place(&self, index: usize) -> &Place<A, B> {
        &self.places[index & (self.places.len() - 1)]
    }

    /// Takes the value at `index`, if it is there.
    ///
    /// # Safety
    /// It was not taken before.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    unsafe fn take(&self, index: usize) -> Option<(A, Option<B>)> {
        let place = self.place(index);
        let found = place.number.load(Ordering::Acquire);
        if found & !HAS_REST != number(index) {
            return None;
        }
        // SAFETY: the number says that the sender has written it, and it does not again before the
        // place is released; it was not taken before.
        let first = place.first.with(|first| unsafe { (*first).assume_init_read() });
        let rest = (found & HAS_REST != 0).then(|| {
            // SAFETY: likewise.
            place.rest.with(|rest| unsafe { (*rest).assume_init_read() })
        });
        Some((first, rest))
    }
}

impl<A, B> Sender<A, B> {
    /// Puts a value in, which the receiver sees at once; false if there is no room, and it is lost.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn push(&mut self, first: A, rest: Option<B>) -> bool {
        if !self.has_room(1) {
            return false;
        }
        let place = self.ring.place(self.tail);
        // SAFETY: the receiver has released the place (`head`), and sees it again only by its
        // number. What was in it was taken.
        place.first.with_mut(|place| unsafe { (*place).write(first) });
        let mut tag = number(self.tail);
        if let Some(rest) = rest {
            // SAFETY: likewise.
            place.rest.with_mut(|place| unsafe { (*place).write(rest) });
            tag |= HAS_REST;
        }
        place.number.store(tag, Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Whether there is room for so many values.
    #[inline]
    pub fn has_room(&mut self, values: usize) -> bool {
        let size = self.ring.places.len();
        if size - self.tail.wrapping_sub(self.head) < values {
            self.head = self.ring.head.0.load(Ordering::Acquire);
        }
        size - self.tail.wrapping_sub(self.head) >= values
    }
}

impl<A, B> Receiver<A, B> {
    /// Takes the next value out, if there is one.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn pop(&mut self) -> Option<(A, Option<B>)> {
        // SAFETY: `head` was not taken before.
        let value = unsafe { self.ring.take(self.head) }?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Gives the places of all that was taken out back to the sender.
    #[inline]
    pub fn release(&mut self) {
        self.ring.head.0.store(self.head, Ordering::Release);
    }
}

impl<A, B> Drop for Receiver<A, B> {
    /// What was not taken the ring drops.
    fn drop(&mut self) {
        self.release();
    }
}

impl<A, B> Drop for Ring<A, B> {
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    fn drop(&mut self) {
        let mut index = self.head.0.load(Ordering::Acquire);
        // SAFETY: the receiver is gone, and its head is behind all that it took.
        while unsafe { self.take(index) }.is_some() {
            index = index.wrapping_add(1);
        }
    }
}
