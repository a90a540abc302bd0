//! From a QPN to its QP, without a lock.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::errno::{Errno, boxed, boxed_slice};

/// Entries of a leaf.
const LEAF: usize = 512;

type Leaf<T> = [AtomicPtr<T>; LEAF];

/// What is registered under numbers no two of which are equal modulo the size. Grows by leaves.
pub struct Table<T> {
    leaves: Box<[AtomicPtr<Leaf<T>>]>,
    mask: u32,
    /// Held while an object is registered, and all the while that one is destroyed: a new object gets its number from the kernel after another
    /// of that number has gone there, and so is registered after that one is removed.
    pub control: Mutex<()>,
}

impl<T> Table<T> {
    /// For `size` numbers, a power of two.
    pub fn new(size: u32) -> Result<Self, Errno> {
        if !size.is_power_of_two() || size > 1 << 24 {
            return Err(libc::EPROTO);
        }
        let leaves = boxed_slice((size as usize).div_ceil(LEAF), || AtomicPtr::new(ptr::null_mut()))?;
        Ok(Self { leaves, mask: size - 1, control: Mutex::new(()) })
    }

    /// What is registered under `number`, or under one equal to it modulo the size; NULL if nothing.
    #[inline]
    pub fn find(&self, number: u32) -> *mut T {
        // Acquire: what the pointer leads to was written before it was registered.
        self.entry(number).map_or(ptr::null_mut(), |entry| entry.load(Ordering::Acquire))
    }

    /// Registers `object`. Only while `control` is held.
    pub fn insert(&self, number: u32, object: *mut T) -> Result<(), Errno> {
        let leaf = self.leaves.get((number & self.mask) as usize / LEAF).ok_or(libc::EINVAL)?;
        if leaf.load(Ordering::Relaxed).is_null() {
            let new = boxed([const { AtomicPtr::new(ptr::null_mut()) }; LEAF])?;
            leaf.store(Box::into_raw(new), Ordering::Release);
        }
        self.entry(number).ok_or(libc::EINVAL)?.store(object, Ordering::Release);
        Ok(())
    }

    /// Takes out what is registered under `number`. Only while `control` is held.
    pub fn remove(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.store(ptr::null_mut(), Ordering::Release);
        }
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&AtomicPtr<T>> {
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
                // SAFETY: made by insert(), and nobody looks any more.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}
