//! A timer wheel. Filing, removing and finding the first deadline take constant time.
//!
//! Time advances in ticks. Each level has a slot for each value of six bits of a deadline's tick.
//! The first level has the lowest six bits. A deadline is compared with the wheel's current tick,
//! and filed at the level of the highest bits that differ. So all deadlines of a lower level come
//! before those of a higher one. When the first tick of a slot of a higher level comes, its entries
//! are filed again at lower levels.

use crate::time::Instant;

/// A tick is 4096 ns: no deadline expires later by more than that.
const TICK_BITS: u32 = 12;
/// The number of bits of a tick for one level.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// The number of levels for all bits that a tick may have.
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(LEVEL_BITS) as usize;
/// The value for no index.
const NONE: u32 = u32::MAX;

/// A slot of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    level: u8,
    slot: u8,
}

/// An entry of the doubly linked list of a slot.
#[derive(Clone, Copy, Debug)]
struct Link {
    place: Option<Place>,
    tick: u64,
    before: u32,
    after: u32,
}

/// The deadlines of indices, at most one each.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// All entries before this tick were taken.
    tick: u64,
    /// For each level, which slots are not empty.
    occupied: [u64; LEVELS],
    /// The first entry of each slot.
    first: [[u32; SLOTS]; LEVELS],
    /// The entries by index.
    links: Vec<Link>,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel { tick: 0, occupied: [0; LEVELS], first: [[NONE; SLOTS]; LEVELS], links: Vec::new() }
    }
}

impl Wheel {
    /// Files an index under a deadline, and replaces its former deadline.
    pub fn file(&mut self, index: u32, at: Instant) {
        self.remove(index);
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, Link { place: None, tick: 0, before: NONE, after: NONE });
        }
        self.insert(index, at.0.div_ceil(1 << TICK_BITS).min(u64::MAX >> TICK_BITS));
    }

    fn insert(&mut self, index: u32, tick: u64) {
        let place = self.place(tick.max(self.tick));
        let first = &mut self.first[usize::from(place.level)][usize::from(place.slot)];
        let after = core::mem::replace(first, index);
        self.links[index as usize] = Link { place: Some(place), tick, before: NONE, after };
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = index;
        }
        self.occupied[usize::from(place.level)] |= 1 << place.slot;
    }

    /// Removes the deadline of an index.
    pub fn remove(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index as usize) else { return };
        let Link { place: Some(place), before, after, .. } = *link else { return };
        link.place = None;
        match self.links.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => {
                self.first[usize::from(place.level)][usize::from(place.slot)] = after;
                if after == NONE {
                    self.occupied[usize::from(place.level)] &= !(1 << place.slot);
                }
            }
        }
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = before;
        }
    }

    /// Returns when [`pop`](Wheel::pop) may return something: at the first deadline, or before it.
    pub fn next(&self) -> Option<Instant> {
        self.first_place().map(|place| Instant(self.start(place) << TICK_BITS))
    }

    /// Takes an index whose deadline has come.
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let now = now.0 >> TICK_BITS;
        loop {
            let Some(place) = self.first_place().filter(|place| self.start(*place) <= now) else {
                self.tick = self.tick.max(now);
                return None;
            };
            self.tick = self.start(place);
            if place.level == 0 {
                let index = self.first[0][usize::from(place.slot)];
                self.remove(index);
                return Some(index);
            }
            self.spread(place);
        }
    }

    /// Files all entries of a slot again, at lower levels. Its first tick is the wheel's.
    fn spread(&mut self, place: Place) {
        let first = &mut self.first[usize::from(place.level)][usize::from(place.slot)];
        let mut index = core::mem::replace(first, NONE);
        self.occupied[usize::from(place.level)] &= !(1 << place.slot);
        while let Some(Link { tick, after, .. }) = self.links.get(index as usize).copied() {
            self.insert(index, tick);
            index = after;
        }
    }

    /// Returns the slot of a tick that is not before the wheel's.
    fn place(&self, tick: u64) -> Place {
        let level = (tick ^ self.tick).checked_ilog2().unwrap_or(0) / LEVEL_BITS;
        Place { level: level as u8, slot: slot_of(tick, level) }
    }

    /// Returns the first slot that is not empty.
    fn first_place(&self) -> Option<Place> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        Some(Place { level: level as u8, slot: self.occupied[level].trailing_zeros() as u8 })
    }

    /// Returns the first tick of a slot. Its higher bits are those of the wheel's tick.
    fn start(&self, place: Place) -> u64 {
        let shift = u32::from(place.level) * LEVEL_BITS;
        let above = shift + LEVEL_BITS;
        self.tick >> above << above | u64::from(place.slot) << shift
    }

    /// Returns how many deadlines are filed.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.links.iter().filter(|link| link.place.is_some()).count()
    }
}

fn slot_of(tick: u64, level: u32) -> u8 {
    (tick >> (level * LEVEL_BITS)) as u8 & (SLOTS as u8 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_BITS;

    /// A wheel, and its deadlines in a map, as a table keeps them.
    #[derive(Default)]
    struct Pair {
        wheel: Wheel,
        deadlines: BTreeMap<u32, u64>,
    }

    impl Pair {
        fn file(&mut self, index: u32, at: u64) {
            self.wheel.file(index, Instant(at));
            self.deadlines.insert(index, at);
        }

        fn remove(&mut self, index: u32) {
            self.wheel.remove(index);
            self.deadlines.remove(&index);
        }

        /// Takes all that are due, and checks that each is less than a tick late.
        fn pop_due(&mut self, now: u64) -> Vec<u32> {
            let mut due = Vec::new();
            while let Some(index) = self.wheel.pop(Instant(now)) {
                let at = self.deadlines.remove(&index).expect("what was taken is not there");
                assert!(at <= now, "it is early");
                due.push(index);
            }
            assert!(self.deadlines.values().all(|at| at.saturating_add(TICK) > now), "one was forgotten");
            assert_eq!(self.wheel.len(), self.deadlines.len());
            // The next call is no later than the first deadline, and later than this one.
            let (first, next) = (self.deadlines.values().min(), self.wheel.next());
            assert_eq!(first.is_some(), next.is_some());
            if let (Some(first), Some(next)) = (first, next) {
                assert!(next.0 < first.saturating_add(TICK) && next.0 > now, "{first} {next:?} {now}");
            }
            due
        }
    }

    #[test]
    fn what_is_due_comes_when_its_tick_does() {
        let mut pair = Pair::default();
        let far = u64::MAX - 1;
        for (index, at) in [(3, 5 * TICK), (0, 5 * TICK - 1), (7, 5 * TICK + 1), (1, 64 * TICK), (2, far)] {
            pair.file(index, at);
        }
        assert_eq!(pair.wheel.next(), Some(Instant(5 * TICK)));
        assert_eq!(pair.pop_due(5 * TICK - 1), []);
        assert_eq!(pair.pop_due(5 * TICK), [0, 3]);
        pair.remove(7);
        assert_eq!(pair.wheel.next(), Some(Instant(64 * TICK)));
        assert_eq!(pair.pop_due(1_000_000 * TICK), [1]);
        // A deadline in the past is due at once.
        pair.file(1, 3);
        assert_eq!(pair.pop_due(1_000_000 * TICK), [1]);
        assert_eq!(pair.pop_due(far + 1), [2]);
        assert_eq!(pair.wheel.next(), None);
    }

    #[test]
    fn any_deadlines_come_in_time_in_whatever_order_they_are_filed() {
        // A linear congruential generator, so that each run is equal.
        let mut state = 1u64;
        let mut random = |bits: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) & ((1 << bits) - 1)
        };
        let mut pair = Pair::default();
        let mut now = 0;
        let mut taken = 0;
        for _ in 0..20_000 {
            let (index, bits) = (random(7) as u32, random(5) as u32);
            match random(2) {
                0 => pair.remove(index),
                1 => {
                    now += random(TICK_BITS + bits / 2);
                    taken += pair.pop_due(now).len();
                }
                _ => pair.file(index, now + random(TICK_BITS + bits)),
            }
        }
        assert!(taken > 1000, "{taken}");
    }

    #[test]
    fn to_go_from_next_to_next_reaches_each_in_few_steps() {
        let mut pair = Pair::default();
        for index in 0..1000 {
            pair.file(index, u64::from(index) * 7_777_777);
        }
        let (mut steps, mut due) = (0, Vec::new());
        while let Some(next) = pair.wheel.next() {
            due.extend(pair.pop_due(next.0));
            steps += 1;
        }
        assert_eq!(due, (0..1000).collect::<Vec<_>>());
        assert!(steps <= 1000 * LEVELS, "{steps}");
    }
}
