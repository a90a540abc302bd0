//! Lookup of an object by its number, without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::cq::Cq;
use crate::errno::{Errno, boxed, boxed_slice};

/// Entries of a leaf.
const LEAF: usize = 512;

type Leaf<T> = [Entry<T>; LEAF];

/// The entry of a number.
struct Entry<T> {
    /// The object, or NULL if none can be found here.
    object: AtomicPtr<T>,
    /// The CQs of the object. The entry is free if the first one is NULL.
    cqs: [AtomicPtr<Cq>; 2],
}

impl<T> Entry<T> {
    const fn new() -> Self {
        let cqs = [const { AtomicPtr::new(ptr::null_mut()) }; 2];
        Self { object: AtomicPtr::new(ptr::null_mut()), cqs }
    }
}

/// An object with a number and CQs, which can be registered.
pub trait Numbered {
    /// Returns the number.
    fn number(&self) -> u32;
    /// Returns the CQs. The first is never NULL; the second may be equal to it, or NULL.
    fn cqs(&self) -> [*const Cq; 2];
}

/// A table of objects by number, of which no two are equal modulo the size. It grows by leaves.
///
/// An object is destroyed in three steps. Other threads may do anything between them:
/// 1. The object is destroyed in the kernel, which may give its number to a new object at once.
/// 2. [`Self::hide`]: the object is not found any more. Then its completions are removed, under the
///    lock of each of its CQs.
/// 3. [`Self::free`]: a new object may get its entry. Until then [`Self::register`] makes another
///    one.
///
/// No lock is held from one step to the next. The kernel's answer waits until the program has
/// acknowledged the object's events. A thread of the program may hold the lock of a CQ, from
/// ibv_start_poll() to ibv_end_poll(), while it makes or destroys other objects.
pub struct Table<T> {
    leaves: Box<[AtomicPtr<Leaf<T>>]>,
    mask: u32,
}

impl<T: Numbered> Table<T> {
    /// Makes a table of `size` numbers, a power of two.
    pub fn new(size: u32) -> Result<Self, Errno> {
        if !size.is_power_of_two() || size > 1 << 24 {
            return Err(libc::EPROTO);
        }
        let leaves = boxed_slice((size as usize).div_ceil(LEAF), || AtomicPtr::new(ptr::null_mut()))?;
        Ok(Self { leaves, mask: size - 1 })
    }

    /// Returns the object that has `cq`, and a number equal to `number` modulo the size. NULL if
    /// there is none.
    ///
    /// While the caller holds the lock of that CQ, the object is not freed.
    #[inline]
    pub fn find(&self, number: u32, cq: &Cq) -> *mut T {
        let Some(entry) = self.entry(number) else { return ptr::null_mut() };
        // Acquire: the object was written before it was registered.
        let object = entry.object.load(Ordering::Acquire);
        // Acquire: if the entry has another object by now, the former object is not seen below.
        let is_its = entry.cqs.iter().any(|of| ptr::eq(of.load(Ordering::Acquire), cq));
        // The CQs belong to this object only if it is still there.
        if is_its && entry.object.load(Ordering::Acquire) == object { object } else { ptr::null_mut() }
    }

    /// Registers an object that `make` makes in the kernel.
    ///
    /// If the entry of the object is not free yet, the object is kept until another one is
    /// registered. Then `undo` destroys it.
    pub fn register(
        &self,
        mut make: impl FnMut() -> Result<Box<T>, Errno>,
        undo: impl Fn(Box<T>),
    ) -> Result<Box<T>, Errno> {
        let mut kept = Vec::new();
        let made = loop {
            let mut object = match make() {
                Ok(object) => object,
                Err(errno) => break Err(errno),
            };
            match self.insert(&mut object) {
                Ok(true) => break Ok(object),
                Ok(false) if kept.try_reserve(1).is_ok() => kept.push(object),
                refused => {
                    undo(object);
                    break Err(refused.err().unwrap_or(libc::ENOMEM));
                }
            }
        };
        kept.into_iter().for_each(undo);
        made
    }

    /// Hides the registered object of this number, so that it is not found any more.
    pub fn hide(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.object.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Lets a new object register under this number. The former object is hidden, and has no
    /// completions in a CQ.
    pub fn free(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            let [first, second] = &entry.cqs;
            second.store(ptr::null_mut(), Ordering::Relaxed);
            first.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Registers an object. Returns false if its entry is not free.
    fn insert(&self, object: &mut T) -> Result<bool, Errno> {
        let (number, [first, second]) = (object.number(), object.cqs());
        self.grow(number)?;
        let entry = self.entry(number).filter(|_| !first.is_null()).ok_or(libc::EINVAL)?;
        let [of_first, of_second] = &entry.cqs;
        // Acquire: the former object of this entry is hidden. Release: a thread that sees one of
        // these CQs sees that as well.
        let claimed =
            of_first.compare_exchange(ptr::null_mut(), first.cast_mut(), Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return Ok(false);
        }
        of_second.store(second.cast_mut(), Ordering::Release);
        entry.object.store(object, Ordering::Release);
        Ok(true)
    }

    /// Makes the leaf of this number.
    fn grow(&self, number: u32) -> Result<(), Errno> {
        let leaf = self.leaves.get((number & self.mask) as usize / LEAF).ok_or(libc::EINVAL)?;
        if leaf.load(Ordering::Relaxed).is_null() {
            let new = Box::into_raw(boxed([const { Entry::new() }; LEAF])?);
            let grown = leaf.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
            if grown.is_err() {
                // SAFETY: made just now; another thread was faster, and nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
        Ok(())
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&Entry<T>> {
        let index = (number & self.mask) as usize;
        let leaf = self.leaves.get(index / LEAF)?.load(Ordering::Acquire);
        // SAFETY: NULL or a leaf, which lives as long as the table.
        unsafe { leaf.as_ref() }?.get(index % LEAF)
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        for leaf in &mut self.leaves {
            let leaf = *leaf.get_mut();
            if !leaf.is_null() {
                // SAFETY: made by grow(), and used by nobody any more.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}
