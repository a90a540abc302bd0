//! An entry in the table of guarded mappings ([`super::sigbus`]).
//!
//! It is a sequence lock. Its reader is a signal handler, so the reader never waits.

use super::sync::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

/// A mapping of guest memory, as far as the signal handler needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of its first byte.
    pub start: usize,
    /// Length in bytes. 0 means no mapping.
    pub len: usize,
    /// Descriptor of the connection to shut down if the file is cut short. -1 if there is none.
    pub socket: i32,
}

const NONE: Mapping = Mapping { start: 0, len: 0, socket: -1 };

/// A table entry for one mapping.
#[derive(Debug)]
pub struct Slot {
    /// Whether the entry has an owner. Only the owner writes the other fields.
    pub taken: AtomicBool,
    /// An odd number while the mapping is being written.
    pub sequence: AtomicUsize,
    /// [`Mapping::start`]
    pub start: AtomicUsize,
    /// [`Mapping::len`]
    pub len: AtomicUsize,
    /// [`Mapping::socket`]
    pub socket: AtomicI32,
}

impl Slot {
    /// Takes the entry for a mapping. Returns false if it is taken.
    pub fn take(&self, mapping: Mapping) -> bool {
        let free = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if free {
            self.write(mapping);
        }
        free
    }

    /// Frees the entry. Its owner calls this once, before the mapping ends.
    pub fn release(&self) {
        self.write(NONE);
        self.taken.store(false, Ordering::Release);
    }

    fn write(&self, mapping: Mapping) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the following stores also sees the odd number.
        fence(Ordering::Release);
        self.start.store(mapping.start, Ordering::Relaxed);
        self.len.store(mapping.len, Ordering::Relaxed);
        self.socket.store(mapping.socket, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Returns the mapping as of one moment. `None` while it is being written.
    ///
    /// The reader holds its own mapping, so an entry that is being written is another's.
    pub fn read(&self) -> Option<Mapping> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let mapping = Mapping {
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            socket: self.socket.load(Ordering::Relaxed),
        };
        // All reads precede the second read of the sequence number.
        fence(Ordering::Acquire);
        let same = self.sequence.load(Ordering::Relaxed) == sequence;
        (same && sequence.is_multiple_of(2)).then_some(mapping)
    }
}
