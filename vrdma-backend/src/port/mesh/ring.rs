//! A bounded queue from one thread to another, without locks: neither end waits for the other.
//!
//! Each end keeps the other's index as it saw it last, and looks again only when that is not
//! enough. Indices count all values there ever were; the places of the ring are theirs modulo its
//! size.

use super::sync::{AtomicUsize, Ordering, UnsafeCell};
use std::sync::Arc;

/// Puts values in.
#[derive(Debug)]
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    /// Values put in so far, published or not.
    tail: usize,
    /// Values taken out, as seen last.
    head: usize,
}

/// Takes them out, in the same order.
#[derive(Debug)]
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// Values taken out so far, released or not.
    head: usize,
    /// Values published, as seen last.
    tail: usize,
}

#[derive(Debug)]
struct Ring<T> {
    places: Box<[UnsafeCell<Option<T>>]>,
    /// Values published by the sender.
    tail: Line,
    /// Values whose places the receiver has released.
    head: Line,
}

/// An index in a cache line of its own, and out of the way of the processor's prefetcher, which
/// fetches pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

// SAFETY: a place is touched by one end alone at any time: by the sender until its index is
// published, then by the receiver until it is released. Values go from one thread to another, so
// they have to be `Send`.
#[allow(unsafe_code, reason = "a queue between two threads without locks")]
unsafe impl<T: Send> Sync for Ring<T> {}

/// A queue for `depth` values, a power of two.
///
/// # Panics
/// It is none.
pub fn ring<T>(depth: usize) -> (Sender<T>, Receiver<T>) {
    assert!(depth.is_power_of_two(), "a depth that is a power of two");
    let places = (0..depth).map(|_| UnsafeCell::new(None)).collect();
    let line = || Line(AtomicUsize::new(0));
    let ring = Arc::new(Ring { places, tail: line(), head: line() });
    (Sender { ring: ring.clone(), tail: 0, head: 0 }, Receiver { ring, head: 0, tail: 0 })
}

impl<T> Ring<T> {
    /// Puts `value` into a place, and returns what was there.
    ///
    /// # Safety
    /// The place is this end's now.
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    unsafe fn replace(&self, index: usize, value: Option<T>) -> Option<T> {
        let place = &self.places[index & (self.places.len() - 1)];
        // SAFETY: nobody else touches the place, as the caller promises, and the pointer is to a
        // value that lives.
        place.with_mut(|place| std::mem::replace(unsafe { &mut *place }, value))
    }
}

impl<T> Sender<T> {
    /// Puts a value in; the receiver sees it when it is published.
    ///
    /// # Errors
    /// There is no room: the value comes back.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.tail - self.head == self.ring.places.len() {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            if self.tail - self.head == self.ring.places.len() {
                return Err(value);
            }
        }
        // SAFETY: the receiver has released the place (`head`), and sees it again only when it is
        // published.
        unsafe { self.ring.replace(self.tail, Some(value)) };
        self.tail += 1;
        Ok(())
    }

    /// Whether there is room for so many values.
    #[inline]
    pub fn has_room(&mut self, values: usize) -> bool {
        let size = self.ring.places.len();
        if size - (self.tail - self.head) < values {
            self.head = self.ring.head.0.load(Ordering::Acquire);
        }
        size - (self.tail - self.head) >= values
    }

    /// Lets the receiver see all that was put in.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.tail.0.store(self.tail, Ordering::Release);
    }
}

impl<T> Receiver<T> {
    /// Takes the next value out, if one was published.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        // SAFETY: the sender has published the place (`tail`), and touches it again only when it is
        // released.
        let value = unsafe { self.ring.replace(self.head, None) };
        self.head += 1;
        Some(value.expect("a published place has a value"))
    }

    /// Gives the places of all that was taken out back to the sender.
    #[inline]
    pub fn release(&mut self) {
        self.ring.head.0.store(self.head, Ordering::Release);
    }
}
