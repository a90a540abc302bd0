//! Connections and listeners by number, each with a generation: a number is used again, a handle
//! never is.

use super::connection::Connection;
use super::handle::Handle;
use super::listener::Listener;
use std::collections::VecDeque;

/// See the module.
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
    /// Its number is in use: it is about to be put in, or was taken out to be worked on.
    Out,
    Listener(Box<Listener>),
    Connection(Box<Connection>),
}

impl Table {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// A handle for a new entry, which is to be put in.
    pub(super) fn reserve(&mut self) -> Handle {
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, content: Content::Free });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        slot.content = Content::Out;
        Handle { number, generation: slot.generation }
    }

    /// The entry that has this number now.
    pub(super) fn find(&self, number: u32) -> Option<Handle> {
        let slot = self.slots.get(number as usize)?;
        let is_used = !matches!(slot.content, Content::Free);
        is_used.then_some(Handle { number, generation: slot.generation })
    }

    fn get_mut(&mut self, handle: Handle) -> Option<&mut Content> {
        let slot = self.slots.get_mut(handle.number as usize)?;
        (slot.generation == handle.generation).then_some(&mut slot.content)
    }

    pub(super) fn listener(&mut self, handle: Handle) -> Option<&mut Listener> {
        match self.get_mut(handle)? {
            Content::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        match self.get_mut(handle)? {
            Content::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Takes a connection out, to work on it. It is put back, or its handle freed.
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

    pub(super) fn put_listener(&mut self, listener: Box<Listener>) {
        self.fill(listener.handle, Content::Listener(listener));
    }

    fn fill(&mut self, handle: Handle, content: Content) {
        let place = self.get_mut(handle).expect("its handle is in use until it is freed");
        assert!(matches!(place, Content::Out), "it was taken out, or is new");
        *place = content;
    }

    /// Forgets an entry, in the table or out of it: nothing has its handle any more.
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
        table.put_listener(Box::new(Listener::for_tests(first)));
        assert_eq!((table.find(0), Handle::of_token(first.token())), (Some(first), first));
        table.free(first);
        assert!(table.is_empty() && table.find(0).is_none() && table.listener(first).is_none());
        let second = table.reserve();
        table.put_listener(Box::new(Listener::for_tests(second)));
        assert_eq!(second.number, first.number);
        assert!(table.listener(first).is_none() && table.listener(second).is_some());
        assert_ne!(first.token(), second.token());
        assert!(table.find(1).is_none() && table.take(second).is_none() && table.listener(second).is_some());
    }
}
