//! The memory of a region.

use crate::journal::{Journal, Place, Store};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use vrdma_transport::{Fault, Region};

/// Bytes that all clones share. Accesses outside of them panic, because the engine must have
/// checked.
#[derive(Clone)]
pub struct Mem(Rc<Shared>);

struct Shared {
    bytes: RefCell<Vec<u8>>,
    /// Where stores are noted, and the name of this memory there.
    journal: RefCell<Option<(Journal, Place)>>,
}

impl Mem {
    pub fn new(bytes: Vec<u8>) -> Mem {
        Mem(Rc::new(Shared { bytes: RefCell::new(bytes), journal: RefCell::new(None) }))
    }

    /// Notes all later stores, except for [`Mem::fill`].
    pub fn log_to(&self, journal: &Journal, place: Place) {
        *self.0.journal.borrow_mut() = Some((journal.clone(), place));
    }

    pub fn len(&self) -> usize {
        self.0.bytes.borrow().len()
    }

    pub fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        self.0.bytes.borrow()[at..at + length].to_vec()
    }

    pub fn fill(&self, range: Range<usize>, value: u8) {
        self.0.bytes.borrow_mut()[range].fill(value);
    }

    pub fn with<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.0.bytes.borrow())
    }

    fn note(&self, offset: u64, length: u64) {
        if let Some((journal, place)) = &*self.0.journal.borrow() {
            journal.borrow_mut().push(Store { place: *place, range: offset..offset + length });
        }
    }
}

fn range(offset: u64, len: u64) -> Range<usize> {
    offset as usize..(offset + len) as usize
}

impl Region for Mem {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        let bytes = self.bytes(offset as usize, len as usize);
        dst.write(dst_offset, &bytes)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0.bytes.borrow()[range(offset, buf.len() as u64)]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.note(offset, data.len() as u64);
        self.0.bytes.borrow_mut()[range(offset, data.len() as u64)].copy_from_slice(data);
        Ok(())
    }

    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        self.note(offset, 8);
        let bytes = &mut self.0.bytes.borrow_mut()[range(offset, 8)];
        let word = AtomicU64::new(u64::from_ne_bytes(bytes.try_into().unwrap()));
        let result = operation(&word);
        bytes.copy_from_slice(&word.into_inner().to_ne_bytes());
        Ok(result)
    }
}
