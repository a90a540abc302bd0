//! Connections by number and by tuple, and when something is due at which.

use crate::connection::Connection;
use crate::counters::Totals;
use crate::initial::Secret;
use crate::time::{Instant, NEVER};
use crate::tuple::{NextHop, Tuple};
use crate::wheel::Wheel;
use core::ptr;
use hashbrown::HashTable;
use std::collections::VecDeque;

/// Names a connection of a [`Stack`](crate::Stack). A name is not used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    /// How many had the index before.
    generation: u32,
}

/// A connection, and where it is listed: a cache line of that, and then the connection.
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub tuple: Tuple,
    /// It stays that of the first segment, or of who began it.
    pub hop: NextHop,
    /// It came to a listener and is not set up: the user does not know of it.
    pub half_open: bool,
    /// It is among those in TIME-WAIT.
    pub waits: bool,
    /// It is over, and nobody asks for it any more.
    pub forgotten: bool,
    is_ready: bool,
    /// The deadline under which it is filed: the next one is not before that.
    filed: Instant,
    pub connection: Connection,
}

/// Bytes of it that most segments touch.
const FETCHED: usize = 768;
/// Those of a connection. To be fetched, not read: it may have gone.
pub type ConnectionLines = *const [u8; FETCHED];

const _: () = assert!(core::mem::offset_of!(Entry, connection) == 64 && size_of::<Entry>() >= FETCHED);

#[derive(Default)]
struct Slot {
    generation: u32,
    entry: Option<Box<Entry>>,
}

/// A connection in the list by tuples.
#[derive(Debug)]
struct Listed {
    index: u32,
    /// A part of the hash: others with the same are rare, and none is looked at for nothing.
    tag: u32,
}

impl Listed {
    fn new(index: u32, hash: u64) -> Listed {
        Listed { index, tag: tag(hash) }
    }
}

/// The bits that the list itself uses least.
fn tag(hash: u64) -> u32 {
    (hash >> 16) as u32
}

impl Slot {
    fn has(&self, tuple: &Tuple) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.tuple == *tuple)
    }
}

/// Connections.
pub(crate) struct Table {
    secret: Secret,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By the hash of the tuple.
    by_tuple: HashTable<Listed>,
    /// Of indices.
    deadlines: Wheel,
    /// Those that may have something to send.
    ready: VecDeque<ConnectionId>,
    /// How many are half open.
    half_open: usize,
    /// What happened to those that are gone.
    past: Totals,
}

impl Table {
    pub fn new(secret: Secret) -> Table {
        Table {
            secret,
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: HashTable::new(),
            deadlines: Wheel::default(),
            ready: VecDeque::new(),
            half_open: 0,
            past: Totals::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    /// How many came to a listener and are not set up.
    pub fn half_open(&self) -> usize {
        self.half_open
    }

    /// One is set up.
    pub fn opened(&mut self, id: ConnectionId) {
        if let Some(entry) = self.get_mut(id)
            && std::mem::take(&mut entry.half_open)
        {
            self.half_open -= 1;
        }
    }

    pub fn find(&self, tuple: &Tuple) -> Option<ConnectionId> {
        let hash = self.secret.place(tuple);
        let is_its =
            |listed: &Listed| listed.tag == tag(hash) && self.slots[listed.index as usize].has(tuple);
        Some(self.id(self.by_tuple.find(hash, is_its)?.index))
    }

    /// Where the connection between these is, most likely: it is not looked at.
    pub fn hint(&self, tuple: &Tuple) -> Option<ConnectionId> {
        let hash = self.secret.place(tuple);
        self.by_tuple.find(hash, |listed| listed.tag == tag(hash)).map(|listed| self.id(listed.index))
    }

    /// Where a connection is.
    pub fn lines(&self, id: ConnectionId) -> Option<ConnectionLines> {
        self.get(id).map(|entry| ptr::from_ref(entry).cast())
    }

    fn id(&self, index: u32) -> ConnectionId {
        ConnectionId { index, generation: self.slots[index as usize].generation }
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
        self.half_open += usize::from(half_open);
        self.slots[index as usize].entry = Some(Box::new(entry));
        let Table { slots, secret, .. } = self;
        let place = |listed: &Listed| {
            let entry = slots[listed.index as usize].entry.as_ref();
            secret.place(&entry.expect("what is listed is there").tuple)
        };
        let hash = secret.place(&tuple);
        self.by_tuple.insert_unique(hash, Listed::new(index, hash), place);
        let id = self.id(index);
        self.touched(id);
        id
    }

    pub fn remove(&mut self, id: ConnectionId) {
        let Some(entry) = self.get(id) else { return };
        let (tuple, counters) = (entry.tuple, *entry.connection.counters());
        self.half_open -= usize::from(entry.half_open);
        self.past.add(&counters);
        let listed = self.by_tuple.find_entry(self.secret.place(&tuple), |listed| listed.index == id.index);
        listed.expect("what is there is listed").remove();
        self.deadlines.remove(id.index);
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

    /// Something was done to a connection: it may have something to send, and another deadline. One
    /// that is later than that under which it is filed is looked at when that has come: most
    /// deadlines move away with each segment, and are never reached.
    pub fn touched(&mut self, id: ConnectionId) {
        self.file(id);
        let Some(entry) = self.get_mut(id) else { return };
        if !core::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    /// A connection has nothing to do for now. If it waits for nothing, it is filed no more: so
    /// that it need not be looked at when it has long left the caches.
    pub fn rests(&mut self, id: ConnectionId) {
        self.file(id);
        let Some(entry) = self.get_mut(id) else { return };
        if entry.filed != NEVER && entry.connection.poll_timeout().is_none() {
            entry.filed = NEVER;
            self.deadlines.remove(id.index);
        }
    }

    /// Files a connection under its deadline, if that is before the one that it is filed under.
    pub fn file(&mut self, id: ConnectionId) {
        let Some(entry) = self.get_mut(id) else { return };
        let due = entry.connection.poll_timeout().unwrap_or(NEVER);
        if due < entry.filed {
            entry.filed = due;
            self.deadlines.file(id.index, due);
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
        self.deadlines.next()
    }

    /// Takes one whose deadline has come. It has to be [touched](Table::touched), or filed anew.
    pub fn pop_due(&mut self, now: Instant) -> Option<ConnectionId> {
        loop {
            let index = self.deadlines.pop(now)?;
            let id = self.id(index);
            let entry = self.get_mut(id).expect("what is gone is not filed");
            entry.filed = NEVER;
            if entry.connection.poll_timeout().is_some_and(|due| due <= now) {
                return Some(id);
            }
            self.file(id);
        }
    }

    /// How many deadlines are filed.
    #[cfg(test)]
    pub fn filed(&self) -> usize {
        self.deadlines.len()
    }
}
