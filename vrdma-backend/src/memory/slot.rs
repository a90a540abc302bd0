//! One entry of the table of guarded mappings ([`super::sigbus`]): a sequence lock whose reader is
//! a signal handler, so it never waits.

use super::sync::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

/// A mapping of guest memory, as the signal handler needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of its first byte.
    pub start: usize,
    /// Length in bytes; 0 is no mapping.
    pub len: usize,
    /// The connection that ends if its file is cut short; -1 if there is none.
    pub socket: i32,
}

const NONE: Mapping = Mapping { start: 0, len: 0, socket: -1 };

/// Room for one mapping.
#[derive(Debug)]
pub struct Slot {
    /// Whether it belongs to somebody, who alone writes the rest.
    pub taken: AtomicBool,
    /// Odd while the mapping is being written.
    pub sequence: AtomicUsize,
    /// [`Mapping::start`]
    pub start: AtomicUsize,
    /// [`Mapping::len`]
    pub len: AtomicUsize,
    /// [`Mapping::socket`]
    pub socket: AtomicI32,
}

impl Slot {
    /// Takes the slot for a mapping; false if it is taken.
    pub fn take(&self, mapping: Mapping) -> bool {
        let free = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if free {
            self.write(mapping);
        }
        free
    }

    /// Gives the slot back. Whoever took it calls this, once, while the mapping is still there.
    pub fn release(&self) {
        self.write(NONE);
        self.taken.store(false, Ordering::Release);
    }

    fn write(&self, mapping: Mapping) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees any of what follows sees the odd number, too.
        fence(Ordering::Release);
        self.start.store(mapping.start, Ordering::Relaxed);
        self.len.store(mapping.len, Ordering::Relaxed);
        self.socket.store(mapping.socket, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// The mapping, all of it as of one moment. `None` if it is being written: it is not the
    /// reader's then, who holds its own mapping.
    pub fn read(&self) -> Option<Mapping> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let mapping = Mapping {
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            socket: self.socket.load(Ordering::Relaxed),
        };
        // What was read comes before the second look at the sequence number.
        fence(Ordering::Acquire);
        let same = self.sequence.load(Ordering::Relaxed) == sequence;
        (same && sequence.is_multiple_of(2)).then_some(mapping)
    }
}
