//! Entries of the available ring that are copied out together.

use super::Rings;

/// Number of entries of the available ring that are copied out at once.
///
/// The driver meanwhile writes the cache lines of later entries, so each access would cost a miss.
const LOOK: usize = 64;

/// Entries of the available ring that were copied out.
#[derive(Debug)]
pub(super) struct Copied {
    slots: [u16; LOOK],
    /// Free-running index of the first entry.
    first: u16,
    /// Number of entries.
    count: u16,
}

impl Copied {
    /// No entries.
    pub(super) const NONE: Copied = Copied { slots: [0; LOOK], first: 0, count: 0 };

    /// Returns the slot of an entry, if the entry is among the copied ones.
    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<u16> {
        let at = index.wrapping_sub(self.first);
        if at < self.count { self.slots.get(usize::from(at)).copied() } else { None }
    }

    /// Copies out the entries from `first` up to `end`, or as many as there is room for.
    #[inline(never)]
    pub(super) fn fill(&mut self, rings: &Rings, first: u16, end: u16) {
        self.first = first;
        self.count = end.wrapping_sub(first).min(LOOK as u16);
        for (k, slot) in (0..self.count).zip(&mut self.slots) {
            *slot = rings.avail_entry(first.wrapping_add(k));
        }
    }

    /// Returns the slots of all copied entries, in order.
    #[inline]
    pub(super) fn slots(&self) -> &[u16] {
        &self.slots[..usize::from(self.count)]
    }
}
