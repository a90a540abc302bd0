//! Outstanding receives of a shared receive queue.

use crate::errno::Errno;

/// Index that means no slot.
const NONE: u32 = u32::MAX;

/// Outstanding receives of a shared receive queue.
///
/// The device names a receive by the index of its slot. Receives complete in any order, and free
/// slots are used again.
pub struct Slots {
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
    /// The slot taken last.
    last: u32,
    /// Number of taken slots.
    taken: u32,
    /// Most slots that may be taken.
    limit: u32,
}

struct Slot {
    wr_id: u64,
    /// The next free slot. For a taken slot: the slot taken before it.
    link: u32,
    is_taken: bool,
}

impl Slots {
    /// Makes slots for up to `limit` receives.
    pub fn new(limit: u32) -> Result<Self, Errno> {
        let mut slots = Self { slots: Vec::new(), free: NONE, last: NONE, taken: 0, limit: 0 };
        slots.set_limit(limit)?;
        Ok(slots)
    }

    /// Returns the largest number of outstanding receives.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the largest number of outstanding receives.
    ///
    /// If more are outstanding, there is room for another one when enough of them have completed.
    ///
    /// # Errors
    /// ENOMEM. Then nothing has changed.
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Errno> {
        let before = self.slots.len() as u32;
        if limit > before {
            self.slots.try_reserve_exact((limit - before) as usize).map_err(|_| libc::ENOMEM)?;
            // The lowest index is taken first.
            let link = |index| if index + 1 == limit { self.free } else { index + 1 };
            self.slots.extend((before..limit).map(|index| Slot {
                wr_id: 0,
                link: link(index),
                is_taken: false,
            }));
            self.free = before;
        }
        self.limit = limit;
        Ok(())
    }

    /// Takes a slot for a receive. Returns `None` if as many as allowed are outstanding.
    #[inline]
    pub fn take(&mut self, wr_id: u64) -> Option<u32> {
        if self.taken >= self.limit {
            return None;
        }
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.link;
        *slot = Slot { wr_id, link: self.last, is_taken: true };
        self.last = index;
        self.taken += 1;
        Some(index)
    }

    /// Forgets the `count` youngest receives, which the device has never seen.
    pub fn take_back(&mut self, count: u32) {
        for _ in 0..count {
            let index = self.last;
            let Some(slot) = self.slots.get(index as usize) else { return };
            self.last = slot.link;
            self.complete(index);
        }
    }

    /// Completes the receive in this slot, and returns its wr_id. Returns `None` if none is
    /// outstanding there.
    #[inline]
    pub fn complete(&mut self, index: u32) -> Option<u64> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.is_taken)?;
        (slot.link, slot.is_taken) = (self.free, false);
        self.free = index;
        self.taken -= 1;
        Some(slot.wr_id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::Slots;

    #[test]
    fn receives_complete_in_any_order_and_their_slots_are_used_again() {
        let mut slots = Slots::new(3).unwrap();
        let taken: Vec<_> = (10..13).map(|wr_id| slots.take(wr_id).unwrap()).collect();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(slots.take(13), None);
        assert_eq!(slots.complete(1), Some(11));
        assert_eq!(slots.complete(1), None, "it has completed");
        assert_eq!(slots.take(13), Some(1));
        assert_eq!([2, 0, 1].map(|index| slots.complete(index)), [Some(12), Some(10), Some(13)]);
        assert_eq!([3, u32::MAX].map(|index| slots.complete(index)), [None; 2], "there are no such slots");
    }

    #[test]
    fn what_the_device_has_not_seen_is_taken_back() {
        let mut slots = Slots::new(4).unwrap();
        (0..3).for_each(|wr_id| assert!(slots.take(wr_id).is_some()));
        // Meanwhile an older receive completes.
        assert_eq!(slots.complete(0), Some(0));
        slots.take_back(2);
        assert_eq!([1, 2].map(|index| slots.complete(index)), [None; 2]);
        let taken = (0..4).filter_map(|wr_id| slots.take(wr_id)).count();
        assert_eq!((taken, slots.take(9)), (4, None));
    }

    #[test]
    fn the_limit_moves_both_ways() {
        let mut slots = Slots::new(2).unwrap();
        (0..2).for_each(|wr_id| assert!(slots.take(wr_id).is_some()));
        slots.set_limit(4).unwrap();
        assert_eq!([2, 3, 4].map(|wr_id| slots.take(wr_id)), [Some(2), Some(3), None]);
        slots.set_limit(1).unwrap();
        for index in [0, 3, 1] {
            assert_eq!((slots.complete(index).is_some(), slots.take(5)), (true, None));
        }
        assert_eq!((slots.complete(2), slots.take(6).is_some(), slots.take(7)), (Some(2), true, None));
        slots.set_limit(3).unwrap();
        assert!(slots.take(7).is_some() && slots.take(8).is_some() && slots.take(9).is_none());
    }
}
