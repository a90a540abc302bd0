//! The order in which messages are stored at the receiver.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The stores to some memories, in the order in which they happened.
pub type Journal = Rc<RefCell<Vec<Store>>>;

/// A store to memory.
pub struct Store {
    pub place: Place,
    /// The offsets of the bytes.
    pub range: Range<u64>,
}

/// A memory of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What the peer writes.
    Target,
    /// Where messages are received.
    Slots,
}

/// Checks that each message was stored once and in order, and each after the one before it.
///
/// So no byte of a message is stored before the last byte of the message before it. Returns the
/// number of further stores.
///
/// # Errors
/// The index of the first message for which this is not true, and how.
pub fn check<'a>(
    stores: &[Store],
    messages: impl Iterator<Item = Option<&'a (Place, Range<u64>)>>,
) -> Result<usize, (usize, String)> {
    let mut stores = stores.iter().filter(|store| !store.range.is_empty());
    for (number, message) in messages.enumerate() {
        let Some((place, range)) = message else { continue };
        let mut next = range.start;
        while next < range.end {
            let missing = || (number, format!("{place:?} {next:#x} of {range:x?} was not stored"));
            let store = stores.next().ok_or_else(missing)?;
            let is_next = store.place == *place && store.range.start == next && store.range.end <= range.end;
            if !is_next {
                let instead = format!(", but {:?} {:x?}", store.place, store.range);
                return Err((number, missing().1 + &instead));
            }
            next = store.range.end;
        }
    }
    Ok(stores.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks two messages, of 20 bytes in slots and of 8 bytes in the target.
    fn after(stores: &[(Place, Range<u64>)]) -> Result<usize, usize> {
        let messages = [(Place::Slots, 0..20), (Place::Target, 40..48)];
        let store = |(place, range): &(Place, Range<u64>)| Store { place: *place, range: range.clone() };
        let stores: Vec<Store> = stores.iter().map(store).collect();
        check(&stores, messages.iter().map(Some)).map_err(|(number, _)| number)
    }

    #[test]
    fn messages_are_stored_one_after_the_other() {
        use Place::{Slots, Target};
        assert_eq!(after(&[(Slots, 0..12), (Slots, 12..20), (Target, 40..48)]), Ok(0));
        assert_eq!(after(&[(Slots, 0..20), (Target, 40..40), (Target, 40..48), (Target, 0..1)]), Ok(1));
        assert_eq!(after(&[(Slots, 0..12), (Target, 40..48), (Slots, 12..20)]), Err(0));
        assert_eq!(after(&[(Slots, 12..20), (Slots, 0..12), (Target, 40..48)]), Err(0));
        assert_eq!(after(&[(Slots, 0..12), (Slots, 0..12), (Slots, 12..20), (Target, 40..48)]), Err(0));
        assert_eq!(after(&[(Slots, 0..20), (Slots, 40..48)]), Err(1));
        assert_eq!(after(&[(Slots, 0..20), (Target, 40..47)]), Err(1));
    }
}
