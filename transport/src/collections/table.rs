//! Objects by number. A number has an index, and a tag that tells successive users of the index
//! apart.

use crate::save::Violation;
use crate::save::record::Numbers;
use core::mem;
use std::collections::VecDeque;
use std::ops::Range;

/// An object that knows its number.
pub(crate) trait Numbered {
    /// Returns its number in its [`Table`].
    fn number(&self) -> u32;
}

/// Where a number has its index and its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    pub(crate) index_shift: u32,
    pub(crate) index_bits: u32,
    pub(crate) tag_shift: u32,
    pub(crate) tag_bits: u32,
}

impl Numbering {
    /// Returns the index of a number, whatever its tag.
    #[inline]
    pub(crate) fn index(self, number: u32) -> usize {
        ((number >> self.index_shift) & self.index_mask()) as usize
    }

    fn index_mask(self) -> u32 {
        (1 << self.index_bits) - 1
    }

    /// Returns the number with an index and a tag.
    pub(crate) fn number(self, index: u32, tag: u16) -> u32 {
        (index << self.index_shift) | (self.mask(tag) << self.tag_shift)
    }

    /// Returns the number with the index of `number` and the tag of `other`.
    pub(crate) fn with_tag(self, number: u32, other: u32) -> u32 {
        self.number(self.index(number) as u32, self.tag(other))
    }

    fn tag(self, number: u32) -> u16 {
        self.mask((number >> self.tag_shift) as u16) as u16
    }

    fn mask(self, tag: u16) -> u32 {
        u32::from(tag) & ((1 << self.tag_bits) - 1)
    }
}

/// How many indices have to be free before one is used again, unless no unused index is left.
const REST: usize = 64;

/// A table with more slots than this frees its memory when it becomes empty.
const KEEP: usize = 1024;

/// Objects by number.
///
/// A look-up is an index and a comparison. The number of a removed object is not soon valid again.
pub(crate) struct Table<T> {
    slots: Vec<Option<T>>,
    /// The tag of the last user, of each index that was ever used. It outlives everything else.
    tags: Vec<u16>,
    /// Free indices below `tags.len()` that have not been used since the table was cleared.
    cleared: Range<u32>,
    /// All other free indices below `tags.len()`, the longest-free first.
    free: VecDeque<u32>,
    live: u32,
    /// The first index.
    first: u32,
    /// The end of the indices.
    end: u32,
    numbering: Numbering,
    /// The mask of a shifted number that leaves its index.
    mask: u32,
}

impl<T: Numbered> Table<T> {
    /// Makes an empty table with indices from `first` up to but not including `end`.
    pub(crate) fn new(numbering: Numbering, first: u32, end: u32) -> Self {
        let end = end.min(1 << numbering.index_bits);
        let (slots, tags, cleared, free) = (Vec::new(), Vec::new(), 0..0, VecDeque::new());
        let mask = numbering.index_mask();
        Table { slots, tags, cleared, free, live: 0, first, end, numbering, mask }
    }

    /// Returns which numbers were used.
    pub(crate) fn save_numbers(&self) -> Numbers {
        let Table { slots: _, tags, cleared, free, live: _, first, end: _, numbering: _, mask: _ } = self;
        let tags = tags.get(*first as usize..).unwrap_or_default().to_vec();
        Numbers { tags, free: cleared.clone().chain(free.iter().copied()).collect() }
    }

    /// Restores which numbers were used, into an empty table.
    ///
    /// The caller then [puts](Table::put) the objects of all numbers that are not free.
    pub(crate) fn restore_numbers(&mut self, numbers: &Numbers) -> Result<(), Violation> {
        if numbers.tags.is_empty() && numbers.free.is_empty() {
            return Ok(());
        }
        let used = self.first as usize + numbers.tags.len();
        if used > self.end as usize {
            return Err(Violation::Numbers);
        }
        let mut is_free = vec![false; used];
        for &index in &numbers.free {
            let seen = is_free.get_mut(index as usize).filter(|_| index >= self.first);
            if mem::replace(seen.ok_or(Violation::Numbers)?, true) {
                return Err(Violation::Numbers);
            }
        }
        self.tags = vec![0; self.first as usize];
        self.tags.extend_from_slice(&numbers.tags);
        self.free = numbers.free.iter().copied().collect();
        Ok(())
    }

    /// Adds an object that already has its number, behind all others.
    ///
    /// A `special` object has an index below `first`.
    pub(crate) fn put(&mut self, item: T, special: bool) -> Result<(), Violation> {
        let number = item.number();
        let at = self.numbering.index(number);
        let tag = if special { Some(0) } else { self.tags.get(at).copied() };
        let fits = tag.is_some_and(|tag| self.numbering.number(at as u32, tag) == number);
        if !fits || special != (at < self.first as usize) || at < self.slots.len() {
            return Err(Violation::Number);
        }
        self.slots.resize_with(at, || None);
        self.slots.push(Some(item));
        self.live += 1;
        Ok(())
    }

    /// Checks that each index that was ever used is either free or has its object.
    ///
    /// It is called after all objects were put.
    pub(crate) fn check_restored(&self) -> Result<(), Violation> {
        let ordinary = self.slots.iter().skip(self.first as usize).flatten().count();
        let used = self.tags.len().saturating_sub(self.first as usize);
        let all_free = self.free.iter().all(|&index| self.at(index as usize).is_none());
        if all_free && ordinary + self.free.len() == used { Ok(()) } else { Err(Violation::Numbers) }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// Returns the slot of a number, or `None` beyond the last slot.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> Option<&Option<T>> {
        self.slots.get(self.index(number))
    }

    /// Returns the index of a number, like [`Numbering::index`] but with the stored mask.
    #[inline]
    fn index(&self, number: u32) -> usize {
        ((number >> self.numbering.index_shift) & self.mask) as usize
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.index(number))?.as_ref().filter(|item| item.number() == number)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number);
        self.slots.get_mut(index)?.as_mut().filter(|item| item.number() == number)
    }

    /// Returns two objects at once, or `None` if one does not exist or both have the same index.
    #[inline]
    pub(crate) fn two_mut(&mut self, one: u32, other: u32) -> Option<(&mut T, &mut T)> {
        let indices = [self.index(one), self.index(other)];
        let [first, second] = self.slots.get_disjoint_mut(indices).ok()?;
        let first = first.as_mut().filter(|item| item.number() == one)?;
        let second = second.as_mut().filter(|item| item.number() == other)?;
        Some((first, second))
    }

    /// Adds the object that `make` makes of its number; `None` if the table is full.
    ///
    /// `next_tag` makes the new tag of the last tag of the index. An index that was never used has
    /// 0 as its last tag.
    pub(crate) fn insert(
        &mut self,
        next_tag: impl FnOnce(u16) -> u16,
        make: impl FnOnce(u32) -> T,
    ) -> Option<u32> {
        let unused = self.first.max(self.tags.len() as u32);
        let index = match self.cleared.len() + self.free.len() >= REST || unused >= self.end {
            true => self.cleared.next().or_else(|| self.free.pop_front())?,
            false => unused,
        };
        let at = index as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, 0);
        }
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.tags[at] = next_tag(self.tags[at]);
        let number = self.numbering.number(index, self.tags[at]);
        self.slots[at] = Some(make(number));
        self.live += 1;
        Some(number)
    }

    /// Adds a special object, at an index below the first, with tag 0.
    ///
    /// The number is valid again at once after the object is removed. Returns `None` if the index
    /// is in use.
    pub(crate) fn insert_special(&mut self, index: u32, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let at = index as usize;
        assert!(index < self.first, "special objects have the indices below the others");
        if self.at(at).is_some() {
            return None;
        }
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        let number = self.numbering.number(index, 0);
        self.slots[at] = Some(make(number));
        self.live += 1;
        Some(number)
    }

    /// Gives an object another tag. Its number becomes `new`, which has the same index.
    ///
    /// `set` stores the number in the object.
    pub(crate) fn renumber(&mut self, old: u32, new: u32, set: impl FnOnce(&mut T)) -> &mut T {
        let at = self.numbering.index(old);
        assert_eq!(self.numbering.index(new), at, "an object keeps its index");
        self.tags[at] = self.numbering.tag(new);
        let item = self.slots[at].as_mut().filter(|item| item.number() == old);
        let item = item.expect("an object that was looked up before");
        set(item);
        debug_assert_eq!(item.number(), new, "it was told");
        item
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let at = self.numbering.index(number);
        let item = self.slots[at].take()?;
        self.set_free(at);
        self.live -= 1;
        if self.live == 0 && self.slots.len() > KEEP {
            self.slots = Vec::new();
        }
        Some(item)
    }

    /// Removes all objects in constant time. Their numbers still do not soon become valid again.
    pub(crate) fn clear(&mut self) -> Vec<Option<T>> {
        self.cleared = self.first..self.first.max(self.tags.len() as u32);
        self.free.clear();
        self.live = 0;
        mem::take(&mut self.slots)
    }

    /// Makes an index free, unless it is a special one.
    fn set_free(&mut self, at: usize) {
        if at >= self.first as usize {
            self.free.push_back(at as u32);
        }
    }

    /// Returns the end of the indices for [`Table::at`], for a caller that removes objects on the
    /// way.
    pub(crate) fn indices(&self) -> usize {
        self.slots.len()
    }

    /// Returns the object at an index.
    pub(crate) fn at(&self, index: usize) -> Option<&T> {
        self.slots.get(index)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// Returns the objects at these indices, each with its index. Indices beyond the last slot are
    /// skipped.
    pub(crate) fn range_mut(&mut self, indices: Range<usize>) -> impl Iterator<Item = (usize, &mut T)> {
        let end = indices.end.min(self.slots.len());
        let start = indices.start.min(end);
        let slots = self.slots[start..end].iter_mut().zip(start..);
        slots.filter_map(|(slot, at)| Some((at, slot.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Item(u32);

    impl Numbered for Item {
        fn number(&self) -> u32 {
            self.0
        }
    }

    const LIKE_QPN: Numbering = Numbering { index_shift: 0, index_bits: 8, tag_shift: 8, tag_bits: 16 };

    fn insert(table: &mut Table<Item>) -> Option<u32> {
        table.insert(|tag| tag.wrapping_add(1), Item)
    }

    #[test]
    fn a_full_table_refuses_and_first_indices_are_kept_out() {
        let mut table = Table::new(LIKE_QPN, 2, 1 << 8);
        let numbers: Vec<_> = std::iter::from_fn(|| insert(&mut table)).collect();
        assert_eq!(numbers.len(), 254);
        assert!(numbers.iter().all(|n| n & 0xff >= 2 && table.get(*n).unwrap().0 == *n));
        assert!(table.remove(numbers[7]).is_some());
        let again = insert(&mut table).unwrap();
        assert_eq!(again & 0xff, numbers[7] & 0xff);
        assert_ne!(again, numbers[7]);
        assert!(table.get(numbers[7]).is_none());
    }

    #[test]
    fn two_objects_are_had_at_once_if_they_are_two() {
        let mut table = Table::new(LIKE_QPN, 2, 1 << 8);
        let [one, other] = [(); 2].map(|()| insert(&mut table).unwrap());
        for (first, second) in [(one, other), (other, one)] {
            let found = table.two_mut(first, second).map(|(first, second)| (first.0, second.0));
            assert_eq!(found, Some((first, second)));
        }
        for wrong in [one, one ^ 1 << 8, other ^ 1 << 8, 0, 255] {
            assert!(table.two_mut(one, wrong).is_none() && table.two_mut(wrong, one).is_none());
        }
    }

    #[test]
    fn numbers_rest_long_before_they_come_back() {
        let mut table = Table::new(LIKE_QPN, 2, 1 << 8);
        let mut seen = BTreeMap::new();
        for turn in 0..10_000 {
            let number = insert(&mut table).unwrap();
            assert!(seen.insert(number, turn).is_none(), "{number} after {turn}");
            assert!(table.remove(number).is_some() && table.remove(number).is_none());
        }
        assert!(table.indices() <= 2 + REST + 1);
    }

    #[test]
    fn clear_forgets_objects_but_not_tags() {
        let mut table = Table::new(LIKE_QPN, 0, 4);
        let old: Vec<_> = (0..4).map(|_| insert(&mut table).unwrap()).collect();
        table.clear();
        assert_eq!((table.len(), table.indices(), table.cleared.clone()), (0, 0, 0..4));
        let new: Vec<_> = (0..4).map(|_| insert(&mut table).unwrap()).collect();
        assert!(new.iter().all(|n| !old.contains(n)) && insert(&mut table).is_none());
    }

    #[test]
    fn special_numbers_are_nobody_elses() {
        let mut table = Table::new(LIKE_QPN, 2, 4);
        assert_eq!(table.insert_special(1, Item), Some(1));
        assert_eq!(table.insert_special(1, Item), None);
        let others: Vec<_> = std::iter::from_fn(|| insert(&mut table)).collect();
        assert!(others.len() == 2 && others.iter().all(|n| n & 0xff >= 2));
        assert!(table.remove(1).is_some() && insert(&mut table).is_none());
        assert_eq!(table.insert_special(1, Item), Some(1));
        table.clear();
        assert_eq!((table.insert_special(1, Item), table.len()), (Some(1), 1));
    }

    #[test]
    fn big_tables_give_memory_back() {
        let wide = Numbering { index_shift: 8, index_bits: 24, tag_shift: 0, tag_bits: 8 };
        let mut table = Table::new(wide, 1, 1 << 14);
        let numbers: Vec<_> = std::iter::from_fn(|| insert(&mut table)).collect();
        assert_eq!(numbers.len(), (1 << 14) - 1);
        for number in numbers {
            table.remove(number);
        }
        assert_eq!(table.indices(), 0);
        assert!(insert(&mut table).is_some());
    }
}
