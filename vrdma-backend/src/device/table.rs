//! A table of objects by number.

/// Objects of one kind. A number is reused only after all other free numbers up to the highest so
/// far.
#[derive(Debug)]
pub struct ObjectTable<T> {
    slots: Vec<Option<T>>,
    free: std::collections::VecDeque<u32>,
    max: u32,
}

impl<T> ObjectTable<T> {
    /// Creates a table for up to `max` objects.
    pub fn new(max: u32) -> Self {
        ObjectTable { slots: Vec::new(), free: Default::default(), max }
    }

    /// Inserts an object. Returns its number, or `None` if the table is full.
    pub fn insert(&mut self, object: T) -> Option<u32> {
        let number = match self.free.pop_front() {
            Some(number) => number,
            None if (self.slots.len() as u64) < u64::from(self.max) => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        self.slots[number as usize] = Some(object);
        Some(number)
    }

    /// Removes an object.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let object = self.slots.get_mut(number as usize)?.take()?;
        self.free.push_back(number);
        Some(object)
    }

    /// Returns the object with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// Returns one more than the highest number so far.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the number of objects.
    pub fn len(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Returns whether one more object fits.
    pub fn has_room(&self) -> bool {
        self.len() < self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_last_and_never_twice() {
        let mut table = ObjectTable::new(3);
        let numbers: Vec<_> = (0..4).map(|n| table.insert(n)).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), None]);
        assert!(!table.has_room());
        assert_eq!(
            (table.remove(2), table.remove(0), table.remove(0), table.remove(9)),
            (Some(2), Some(0), None, None)
        );
        assert_eq!(
            (table.insert(7), table.get_mut(2).copied(), table.get_mut(0).copied(), table.len()),
            (Some(2), Some(7), None, 2)
        );
    }
}
