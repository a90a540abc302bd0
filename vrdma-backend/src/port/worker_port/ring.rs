//! A bounded lock-free queue from one thread to another. Neither end waits for the other.
//!
//! Each end keeps the other's index as it saw it last, and reads it again only if that is not
//! enough. Indices count all values ever put in. The slot of a value is its index modulo the ring's
//! size.

use super::sync::{AtomicUsize, Ordering, UnsafeCell};
use std::sync::Arc;

/// The sender's end.
#[derive(Debug)]
pub struct RingSender<T> {
    ring: Arc<Ring<T>>,
    /// The number of values put in so far, published or not.
    tail: usize,
    /// The number of values taken out, as last seen.
    head: usize,
}

/// The receiver's end. It takes values out in the order in which they were put in.
#[derive(Debug)]
pub struct RingReceiver<T> {
    ring: Arc<Ring<T>>,
    /// The number of values taken out so far, released or not.
    head: usize,
    /// The number of values published, as last seen.
    tail: usize,
}

#[derive(Debug)]
struct Ring<T> {
    places: Box<[UnsafeCell<Option<T>>]>,
    /// The number of values that the sender has published.
    tail: Line,
    /// The number of values whose slots the receiver has released.
    head: Line,
}

/// An index in its own cache line.
///
/// The alignment is two lines, because the processor's prefetcher fetches pairs of lines.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

// SAFETY: only one end touches a slot at any time. That is the sender until it publishes the slot's
// index, and then the receiver until it releases the slot. Values go from one thread to another, so
// they have to be `Send`.
#[allow(unsafe_code, reason = "a queue between two threads without locks")]
unsafe impl<T: Send> Sync for Ring<T> {}

/// Creates a queue for `depth` values.
///
/// # Panics
/// `depth` is not a power of two.
pub fn ring<T>(depth: usize) -> (RingSender<T>, RingReceiver<T>) {
    assert!(depth.is_power_of_two(), "a depth that is a power of two");
    let places = (0..depth).map(|_| UnsafeCell::new(None)).collect();
    let line = || Line(AtomicUsize::new(0));
    let ring = Arc::new(Ring { places, tail: line(), head: line() });
    (RingSender { ring: ring.clone(), tail: 0, head: 0 }, RingReceiver { ring, head: 0, tail: 0 })
}

impl<T> Ring<T> {
    /// Puts `value` into a slot, and returns the slot's previous contents.
    ///
    /// # Safety
    /// The slot belongs to this end at the moment.
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    unsafe fn replace(&self, index: usize, value: Option<T>) -> Option<T> {
        let place = &self.places[index & (self.places.len() - 1)];
        // SAFETY: nobody else touches the slot, as the caller promises. The pointer is to a value
        // that is alive.
        place.with_mut(|place| std::mem::replace(unsafe { &mut *place }, value))
    }
}

impl<T> RingSender<T> {
    /// Puts a value in. The receiver sees it after [`RingSender::publish`].
    ///
    /// # Errors
    /// There is no room. The value is returned.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.tail - self.head == self.ring.places.len() {
            self.head = self.ring.head.0.load(Ordering::Acquire);
            if self.tail - self.head == self.ring.places.len() {
                return Err(value);
            }
        }
        // SAFETY: the receiver has released the slot (`head`), and touches it again only after it
        // is published.
        unsafe { self.ring.replace(self.tail, Some(value)) };
        self.tail += 1;
        Ok(())
    }

    /// Whether there is room for this number of values.
    #[inline]
    pub fn has_room(&mut self, values: usize) -> bool {
        let size = self.ring.places.len();
        if size - (self.tail - self.head) < values {
            self.head = self.ring.head.0.load(Ordering::Acquire);
        }
        size - (self.tail - self.head) >= values
    }

    /// Makes all values that were put in visible to the receiver.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.tail.0.store(self.tail, Ordering::Release);
    }
}

impl<T> RingReceiver<T> {
    /// Takes the next published value out, if there is one.
    #[inline]
    #[allow(unsafe_code, reason = "a queue between two threads without locks")]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            self.tail = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        // SAFETY: the sender has published the slot (`tail`), and touches it again only after it is
        // released.
        let value = unsafe { self.ring.replace(self.head, None) };
        self.head += 1;
        Some(value.expect("a published place has a value"))
    }

    /// Releases the slots of all values that were taken out.
    #[inline]
    pub fn release(&mut self) {
        self.ring.head.0.store(self.head, Ordering::Release);
    }
}
