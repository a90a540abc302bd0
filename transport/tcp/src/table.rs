//! Connections by number and by tuple, and when something is due at which.

use crate::connection::Connection;
use crate::counters::Totals;
use crate::time::{Instant, NEVER};
use crate::tuple::{NextHop, Tuple};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names a connection of a [`Stack`](crate::Stack). A name is not used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    /// How many had the index before.
    generation: u32,
}

/// A connection, and where it is listed.
pub(crate) struct Entry {
    pub tuple: Tuple,
    /// It stays that of the first segment, or of who began it.
    pub hop: NextHop,
    pub connection: Connection,
    /// It came to a listener and is not set up: the user does not know of it.
    pub half_open: bool,
    /// It is among those in TIME-WAIT.
    pub waits: bool,
    /// It is over, and nobody asks for it any more.
    pub forgotten: bool,
    is_ready: bool,
    /// The deadline under which it is filed: the next one is not before that.
    filed: Instant,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    entry: Option<Box<Entry>>,
}

/// Connections.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_tuple: BTreeMap<Tuple, ConnectionId>,
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// Those that may have something to send.
    ready: VecDeque<ConnectionId>,
    /// What happened to those that are gone.
    past: Totals,
}

impl Table {
    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    pub fn find(&self, tuple: &Tuple) -> Option<ConnectionId> {
        self.by_tuple.get(tuple).copied()
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Entry> {
        let slot = self.slots.get(id.index as usize)?;
        slot.entry.as_deref().filter(|_| slot.generation == id.generation)
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.entry.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    pub fn insert(
        &mut self,
        (tuple, hop): (Tuple, NextHop),
        connection: Connection,
        half_open: bool,
    ) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let id = ConnectionId { index, generation: slot.generation };
        let entry = Entry {
            tuple,
            hop,
            connection,
            half_open,
            waits: false,
            forgotten: false,
            is_ready: false,
            filed: NEVER,
        };
        slot.entry = Some(Box::new(entry));
        self.by_tuple.insert(tuple, id);
        self.touched(id);
        id
    }

    pub fn remove(&mut self, id: ConnectionId) {
        let Some(entry) = self.get(id) else { return };
        let (tuple, filed, counters) = (entry.tuple, entry.filed, *entry.connection.counters());
        self.past.add(&counters);
        self.by_tuple.remove(&tuple);
        self.deadlines.remove(&(filed, id));
        let slot = &mut self.slots[id.index as usize];
        slot.entry = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
    }

    /// What happened to all connections, those that are gone included.
    pub fn totals(&self) -> Totals {
        let mut totals = self.past;
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_deref());
        entries.for_each(|entry| totals.add(entry.connection.counters()));
        totals
    }

    /// Something was done to a connection: it may have something to send, and another deadline. One that is later than that under which it is filed
    /// is looked at when that has come: most deadlines move away with each segment, and are never reached.
    pub fn touched(&mut self, id: ConnectionId) {
        self.file(id);
        let Some(entry) = self.get_mut(id) else { return };
        if !core::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    /// Files a connection under its deadline, if that is before the one that it is filed under.
    pub fn file(&mut self, id: ConnectionId) {
        let Some(entry) = self.get_mut(id) else { return };
        let due = entry.connection.poll_timeout().unwrap_or(NEVER);
        let filed = entry.filed;
        if due < filed {
            entry.filed = due;
            self.deadlines.remove(&(filed, id));
            self.deadlines.insert((due, id));
        }
    }

    /// Takes one that may have something to send.
    pub fn pop_ready(&mut self) -> Option<ConnectionId> {
        loop {
            let id = self.ready.pop_front()?;
            if let Some(entry) = self.get_mut(id) {
                entry.is_ready = false;
                return Some(id);
            }
        }
    }

    /// The first deadline, or one before it.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes one whose deadline has come. It has to be [touched](Table::touched), or filed anew.
    pub fn pop_due(&mut self, now: Instant) -> Option<ConnectionId> {
        loop {
            let (at, id) = *self.deadlines.first().filter(|(at, _)| *at <= now)?;
            self.deadlines.remove(&(at, id));
            let entry = self.get_mut(id).expect("what is gone is not filed");
            let due = entry.connection.poll_timeout().unwrap_or(NEVER);
            entry.filed = if due <= now { NEVER } else { due };
            if due <= now {
                return Some(id);
            }
            if due != NEVER {
                self.deadlines.insert((due, id));
            }
        }
    }

    /// How many deadlines are filed.
    #[cfg(test)]
    pub fn filed(&self) -> usize {
        self.deadlines.len()
    }
}
