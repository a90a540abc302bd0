//! The address handle table that the driver keeps in guest memory (see `vrdma_abi::ah`).

use crate::memory::{Extent, GuestMemory, Shared};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use vrdma_abi::ah::AhEntry;
use vrdma_abi::zerocopy::transmute;

/// Number of 8-byte words of an entry.
const WORDS: usize = AhEntry::SIZE / 8;

/// The driver's table of address handles, in guest memory.
#[derive(Debug)]
pub struct AhTable {
    entries: u32,
    extent: Extent,
    memory: Option<Shared<{ AhEntry::SIZE }>>,
}

impl AhTable {
    /// Returns the size in bytes of a table.
    pub fn bytes(entries: u32) -> u64 {
        u64::from(entries) * AhEntry::SIZE as u64
    }

    /// Makes a table in one extent of [`AhTable::bytes`].
    ///
    /// `None` if it is not all guest memory, not contiguous in this process, or not aligned to an
    /// entry.
    pub fn new(memory: &Arc<GuestMemory>, extent: Extent, entries: u32) -> Option<AhTable> {
        let mut table = AhTable { entries, extent, memory: None };
        table.remap(memory);
        table.memory.is_some().then_some(table)
    }

    /// Switches to a new memory table. If the table's memory is gone, so are the handles, until it
    /// returns.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) {
        self.memory = Shared::<{ AhEntry::SIZE }>::new(memory, self.extent);
    }

    /// Returns an entry, as of one moment. `None` if it is empty, does not exist, or was being
    /// written.
    pub fn get(&self, index: u32) -> Option<AhEntry> {
        let memory = self.memory.as_ref().filter(|_| index < self.entries)?;
        let offset = index as usize * AhEntry::SIZE;
        let generation = memory.load32(offset, Ordering::Acquire);
        let entry: AhEntry = transmute!(memory.read_words::<WORDS>(offset));
        // The first load of the generation precedes the reads of the entry. The fence makes these
        // precede the second load.
        fence(Ordering::Acquire);
        let after = memory.load32(offset, Ordering::Relaxed);
        let still = generation != 0 && generation == after && entry.valid.get() == generation;
        still.then_some(entry)
    }

    /// Counts the entries in use.
    pub fn in_use(&self) -> u32 {
        let Some(memory) = &self.memory else { return 0 };
        let valid = |index: u32| memory.load32(index as usize * AhEntry::SIZE, Ordering::Relaxed) != 0;
        (0..self.entries).filter(|&index| valid(index)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;

    #[test]
    fn handles_are_counted_while_their_memory_is_there() {
        let guest = memory(&[(0, 0x1000)]);
        let extent = Extent { gpa: 0x100, len: AhTable::bytes(4) };
        let mut table = AhTable::new(&guest, extent, 4).unwrap();
        let words = Shared::<64>::new(&guest, extent).unwrap();
        words.store32(64, 7, Ordering::Relaxed);
        words.store32(192, 1, Ordering::Relaxed);
        assert_eq!(table.in_use(), 2);
        table.remap(&memory(&[(0x1000, 0x1000)]));
        assert_eq!(table.in_use(), 0);
        table.remap(&guest);
        assert_eq!(table.in_use(), 2);
        assert_eq!(table.get(1).map(|entry| entry.valid.get()), Some(7));
        assert!([0, 2, 4, u32::MAX].iter().all(|&index| table.get(index).is_none()), "empty or none");
        assert!(AhTable::new(&guest, Extent { gpa: 0xf80, len: AhTable::bytes(4) }, 4).is_none());
    }
}
