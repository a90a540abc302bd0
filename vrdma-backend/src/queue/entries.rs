//! Entries of the available ring, copied out together.

use super::Rings;

/// Entries of the available ring that are copied out together: the driver writes the lines of those
/// behind them meanwhile, so that each look costs a miss.
const LOOK: usize = 64;

/// Entries of the available ring that were copied out.
#[derive(Debug)]
pub(super) struct Copied {
    slots: [u16; LOOK],
    /// Free-running index of the first,
    first: u16,
    /// and how many there are.
    count: u16,
}

impl Copied {
    /// None.
    pub(super) const NONE: Copied = Copied { slots: [0; LOOK], first: 0, count: 0 };

    /// The slot of an entry, if it is among them.
    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<u16> {
        let at = index.wrapping_sub(self.first);
        if at < self.count { self.slots.get(usize::from(at)).copied() } else { None }
    }

    /// Copies out those from an entry up to `end`, or as many as there is room for.
    #[inline(never)]
    pub(super) fn fill(&mut self, rings: &Rings, first: u16, end: u16) {
        self.first = first;
        self.count = end.wrapping_sub(first).min(LOOK as u16);
        for (k, slot) in (0..self.count).zip(&mut self.slots) {
            *slot = rings.avail_entry(first.wrapping_add(k));
        }
    }

    /// The slots of all, in order.
    #[inline]
    pub(super) fn slots(&self) -> &[u16] {
        &self.slots[..usize::from(self.count)]
    }
}
