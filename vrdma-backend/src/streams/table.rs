//! The table of connections and listeners by number. Each entry has a generation.
//!
//! A number is reused. A handle, which includes the generation, is not.

use super::connection::Connection;
use super::handle::Handle;
use super::listener::StreamListener;
use std::collections::VecDeque;

/// The table of connections and listeners.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
}

struct Slot {
    /// How many entries have had the number.
    generation: u32,
    content: Content,
}

enum Content {
    Free,
    /// The number is in use. Its entry is about to be put in, or was taken out to be worked on.
    Out,
    StreamListener(Box<StreamListener>),
    Connection(Box<Connection>),
}

impl Table {
    /// Whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Reserves a handle for a new entry, which is to be put in.
    pub(super) fn reserve(&mut self) -> Handle {
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, content: Content::Free });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        slot.content = Content::Out;
        Handle { number, generation: slot.generation }
    }

    /// Returns the handle of the entry that has this number now.
    pub(super) fn find(&self, number: u32) -> Option<Handle> {
        let slot = self.slots.get(number as usize)?;
        let is_used = !matches!(slot.content, Content::Free);
        is_used.then_some(Handle { number, generation: slot.generation })
    }

    fn get_mut(&mut self, handle: Handle) -> Option<&mut Content> {
        let slot = self.slots.get_mut(handle.number as usize)?;
        (slot.generation == handle.generation).then_some(&mut slot.content)
    }

    pub(super) fn listener(&mut self, handle: Handle) -> Option<&mut StreamListener> {
        match self.get_mut(handle)? {
            Content::StreamListener(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        match self.get_mut(handle)? {
            Content::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Takes a connection out to work on it. It is to be put back, or its handle freed.
    pub(super) fn take(&mut self, handle: Handle) -> Option<Box<Connection>> {
        let content = self.get_mut(handle)?;
        match std::mem::replace(content, Content::Out) {
            Content::Connection(connection) => Some(connection),
            other => {
                *content = other;
                None
            }
        }
    }

    pub(super) fn put(&mut self, connection: Box<Connection>) {
        self.fill(connection.handle, Content::Connection(connection));
    }

    pub(super) fn put_listener(&mut self, listener: Box<StreamListener>) {
        self.fill(listener.handle, Content::StreamListener(listener));
    }

    fn fill(&mut self, handle: Handle, content: Content) {
        let place = self.get_mut(handle).expect("its handle is in use until it is freed");
        assert!(matches!(place, Content::Out), "it was taken out, or is new");
        *place = content;
    }

    /// Removes an entry, whether it is in the table or taken out. Its handle becomes invalid.
    pub(super) fn free(&mut self, handle: Handle) {
        let content = self.get_mut(handle).expect("it is freed once");
        *content = Content::Free;
        let slot = &mut self.slots[handle.number as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(handle.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_does_not_name_who_has_the_number_later() {
        let mut table = Table::default();
        let first = table.reserve();
        table.put_listener(Box::new(StreamListener::for_tests(first)));
        assert_eq!((table.find(0), Handle::of_token(first.token())), (Some(first), first));
        table.free(first);
        assert!(table.is_empty() && table.find(0).is_none() && table.listener(first).is_none());
        let second = table.reserve();
        table.put_listener(Box::new(StreamListener::for_tests(second)));
        assert_eq!(second.number, first.number);
        assert!(table.listener(first).is_none() && table.listener(second).is_some());
        assert_ne!(first.token(), second.token());
        assert!(table.find(1).is_none() && table.take(second).is_none() && table.listener(second).is_some());
    }
}
