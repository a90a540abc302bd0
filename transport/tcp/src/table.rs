//! The table of connections, by number and by tuple, with their deadlines.

use crate::connection::Connection;
use crate::counters::Totals;
use crate::initial::Secret;
use crate::time::{Instant, NEVER};
use crate::tuple::{NextHop, Tuple};
use crate::wheel::Wheel;
use core::ptr;
use hashbrown::HashTable;
use std::collections::VecDeque;

/// Names a connection of a [`Stack`](crate::Stack). A name is never reused for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    index: u32,
    /// How many connections had the index before.
    generation: u32,
}

/// A connection and its administration, which takes one cache line before the connection.
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub tuple: Tuple,
    /// The next hop of the first segment, or the one that `connect` was given. It does not change.
    pub hop: NextHop,
    /// The connection came to a listener and is not set up. The user does not know it.
    pub half_open: bool,
    /// The connection is in the list of those in TIME-WAIT.
    pub waits: bool,
    /// The connection has ended, and the user does not need it any more.
    pub forgotten: bool,
    is_ready: bool,
    /// The deadline under which it is filed. Its next deadline is not before that.
    filed: Instant,
    pub connection: Connection,
}

/// The bytes of an entry that most segments touch.
const FETCHED: usize = 768;
/// The memory of a connection, for prefetching only. It must not be read: the connection may be
/// gone.
pub type ConnectionLines = *const [u8; FETCHED];

const _: () = assert!(core::mem::offset_of!(Entry, connection) == 64 && size_of::<Entry>() >= FETCHED);

#[derive(Default)]
struct Slot {
    generation: u32,
    entry: Option<Box<Entry>>,
}

/// A connection in the hash table of tuples.
#[derive(Debug)]
struct Listed {
    index: u32,
    /// Further bits of the hash. Others with equal bits are rare, so hardly any entry is read in
    /// vain.
    tag: u32,
}

impl Listed {
    fn new(index: u32, hash: u64) -> Listed {
        Listed { index, tag: tag(hash) }
    }
}

/// Returns the bits of the hash that the hash table uses least.
fn tag(hash: u64) -> u32 {
    (hash >> 16) as u32
}

impl Slot {
    fn has(&self, tuple: &Tuple) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.tuple == *tuple)
    }
}

/// The connections of a stack.
pub(crate) struct Table {
    secret: Secret,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Indices by the hash of the tuple.
    by_tuple: HashTable<Listed>,
    /// The deadlines, by index.
    deadlines: Wheel,
    /// Connections that may have something to send.
    ready: VecDeque<ConnectionId>,
    /// The number of half-open connections.
    half_open: usize,
    /// The counters of removed connections.
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

    /// Returns how many connections came to a listener and are not set up.
    pub fn half_open(&self) -> usize {
        self.half_open
    }

    /// Notes that a connection is set up.
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

    /// Returns the connection that most likely has this tuple, without reading the connection.
    pub fn hint(&self, tuple: &Tuple) -> Option<ConnectionId> {
        let hash = self.secret.place(tuple);
        self.by_tuple.find(hash, |listed| listed.tag == tag(hash)).map(|listed| self.id(listed.index))
    }

    /// Returns the memory of a connection.
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

    /// Returns the counters of all connections, including removed ones.
    pub fn totals(&self) -> Totals {
        let mut totals = self.past;
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_deref());
        entries.for_each(|entry| totals.add(entry.connection.counters()));
        totals
    }

    /// Notes that a connection changed: it may have something to send, and another deadline.
    ///
    /// A later deadline is not filed again; it is checked when the filed one comes. Most deadlines
    /// move away with each segment, and are never reached.
    pub fn touched(&mut self, id: ConnectionId) {
        self.file(id);
        let Some(entry) = self.get_mut(id) else { return };
        if !core::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    /// Notes that a connection has nothing to do for the moment.
    ///
    /// If it has no deadline, it is removed from the wheel. So it need not be visited after it has
    /// left the caches.
    pub fn rests(&mut self, id: ConnectionId) {
        self.file(id);
        let Some(entry) = self.get_mut(id) else { return };
        if entry.filed != NEVER && entry.connection.poll_timeout().is_none() {
            entry.filed = NEVER;
            self.deadlines.remove(id.index);
        }
    }

    /// Files a connection under its deadline, if that is earlier than the filed one.
    pub fn file(&mut self, id: ConnectionId) {
        let Some(entry) = self.get_mut(id) else { return };
        let due = entry.connection.poll_timeout().unwrap_or(NEVER);
        if due < entry.filed {
            entry.filed = due;
            self.deadlines.file(id.index, due);
        }
    }

    /// Takes a connection that may have something to send.
    pub fn pop_ready(&mut self) -> Option<ConnectionId> {
        loop {
            let id = self.ready.pop_front()?;
            if let Some(entry) = self.get_mut(id) {
                entry.is_ready = false;
                return Some(id);
            }
        }
    }

    /// Returns the first deadline, or an earlier time.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes a connection whose deadline has come. It must be [touched](Table::touched), or filed
    /// again.
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

    /// Returns how many deadlines are filed.
    #[cfg(test)]
    pub fn filed(&self) -> usize {
        self.deadlines.len()
    }
}
