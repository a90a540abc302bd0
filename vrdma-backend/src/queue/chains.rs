//! Virtqueues of the Ethernet function, whose descriptor chains the device uses in order (virtio
//! 1.2, 2.7).

use super::{Call, Kick, Rings, VirtqueueSetup};
use crate::memory::{Buffers, Extent, GuestMemory, Shared};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Descriptor flags (virtio 1.2, 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Largest number of descriptors in an indirect table. It is more than any driver has, and what
/// other devices allow.
const MAX_INDIRECT: u32 = 1024;

/// The direction of the chains of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainDirection {
    /// The device reads them.
    FromDriver,
    /// The device writes them.
    ToDriver,
}

/// A virtqueue of descriptor chains.
///
/// Each chain that is taken is used before the queue stops. Used and available index are therefore
/// equal then.
#[derive(Debug)]
pub struct ChainQueue {
    /// `None` once the queue is broken and the memory table has changed. It keeps no old table
    /// mapped.
    mapped: Option<Mapped>,
    setup: VirtqueueSetup,
    indirect: bool,
    direction: ChainDirection,
    /// The buffers of the chains taken since it was cleared.
    pub buffers: Buffers,
    /// Number of descriptors read since the queue started. It measures the work that the driver
    /// causes.
    pub cost: u64,
    /// Free-running index of the next entry to take.
    next: u16,
    /// Index up to which entries are known to be available.
    available: u16,
    /// Free-running index of the next used entry to write.
    used: u16,
    /// The used index last published to the driver.
    published: u16,
    /// The first used index since the last interrupt or second look. `None` if nothing was
    /// published since.
    quiet_from: Option<u16>,
    broken: bool,
}

/// The mapping of a virtqueue in this process.
#[derive(Debug)]
struct Mapped {
    rings: Rings,
    desc: Shared,
}

/// The reason why a queue is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The driver made more entries available than the ring has.
    #[error("available index {available} is more than a ring ahead of {next}")]
    Index {
        /// The index that the driver published.
        available: u16,
        /// Index of the next entry to take.
        next: u16,
    },
    /// The descriptor number does not exist.
    #[error("descriptor {0} does not exist")]
    Descriptor(u16),
    /// The chain has more descriptors than its table: it is a loop.
    #[error("the chain at {0} has no end")]
    Endless(u16),
    /// The descriptor has flags that are invalid there.
    #[error("descriptor with flags {0:#x}")]
    Flags(u16),
    /// The indirect table is empty, no whole number of descriptors, or too large.
    #[error("indirect table of {0} bytes")]
    Table(u32),
    /// The extent is not guest memory.
    #[error("{len} bytes at {gpa:#x} are not guest memory")]
    NotMemory {
        /// Guest-physical address of the first byte.
        gpa: u64,
        /// Length in bytes.
        len: u32,
    },
    /// The buffers of a chain are too small even for a header.
    #[error("a buffer of {0} bytes")]
    Small(usize),
    /// The chain for one frame has so many descriptors that reading it takes too long.
    #[error("a chain of {0} descriptors")]
    Long(u64),
    /// The rings are not in guest memory any more.
    #[error("the rings are not in guest memory any more")]
    Rings,
}

struct Descriptor {
    gpa: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl ChainQueue {
    /// Makes a virtqueue that continues at `base`. `None` if its rings are outside guest memory or
    /// not aligned.
    pub fn new(
        memory: &Arc<GuestMemory>,
        setup: VirtqueueSetup,
        base: u16,
        indirect: bool,
        direction: ChainDirection,
    ) -> Option<ChainQueue> {
        let mapped = Mapped::new(memory, &setup)?;
        mapped.rings.refuse_kicks();
        let buffers = Buffers::new(memory);
        Some(ChainQueue {
            mapped: Some(mapped),
            setup,
            indirect,
            direction,
            buffers,
            cost: 0,
            next: base,
            available: base,
            used: base,
            published: base,
            quiet_from: None,
            broken: false,
        })
    }

    /// Returns the eventfd that the driver kicks.
    pub fn kick(&self) -> Option<&Arc<Kick>> {
        self.setup.kick.as_ref()
    }

    /// Replaces the eventfd that interrupts the driver.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.setup.call = call;
    }

    /// Returns the mapping, if chains are taken from the queue.
    #[inline]
    fn running(&self) -> Option<&Mapped> {
        self.mapped.as_ref().filter(|_| !self.broken)
    }

    /// Returns whether the queue is broken for good.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Breaks the queue: no more chains are taken from it.
    pub fn latch_broken(&mut self) {
        self.broken = true;
    }

    /// Returns the index at which the virtqueue may continue.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Looks for new entries. Returns true if there are any.
    ///
    /// # Errors
    /// The available index is invalid. The queue is broken from then on.
    #[inline]
    pub fn refresh(&mut self) -> Result<bool, ChainError> {
        let Some(mapped) = self.running() else { return Ok(false) };
        let available = mapped.rings.avail_idx();
        if available.wrapping_sub(self.next) > self.setup.size {
            self.broken = true;
            return Err(ChainError::Index { available, next: self.next });
        }
        self.available = available;
        Ok(available != self.next)
    }

    /// Returns whether [`ChainQueue::refresh`] found entries that are not taken yet.
    pub fn has_found(&self) -> bool {
        self.available != self.next
    }

    /// Takes the next chain that [`ChainQueue::refresh`] found, and appends its buffers to
    /// `self.buffers`. Returns its head.
    ///
    /// # Errors
    /// The chain is invalid. The queue is broken from then on.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<u16>, ChainError> {
        let Some(mapped) = self.running().filter(|_| self.available != self.next) else { return Ok(None) };
        let head = mapped.rings.avail_entry(self.next);
        self.read_chain(head).inspect_err(|_| self.broken = true)?;
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// Puts back the last `chains` chains that were taken. They will be taken again.
    pub fn rewind(&mut self, chains: u16) {
        self.next = self.next.wrapping_sub(chains);
    }

    /// Returns the free-running index up to which [`ChainQueue::refresh`] found entries.
    pub fn available(&self) -> u16 {
        self.available
    }

    fn read_chain(&mut self, head: u16) -> Result<(), ChainError> {
        let mut index = head;
        for _ in 0..self.setup.size {
            if index >= self.setup.size {
                return Err(ChainError::Descriptor(index));
            }
            let Some(Mapped { desc, .. }) = &self.mapped else { return Err(ChainError::Rings) };
            let descriptor = Descriptor::new(desc.read_words(16 * usize::from(index)));
            if descriptor.flags & INDIRECT != 0 {
                return self.read_table(&descriptor);
            }
            self.add(&descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err(ChainError::Endless(head))
    }

    /// Reads the chain in an indirect table (virtio 1.2, 2.7.5.3).
    fn read_table(&mut self, table: &Descriptor) -> Result<(), ChainError> {
        let count = table.len / 16;
        if !self.indirect || table.flags & NEXT != 0 {
            return Err(ChainError::Flags(table.flags));
        }
        if !table.len.is_multiple_of(16) || count == 0 || count > MAX_INDIRECT {
            return Err(ChainError::Table(table.len));
        }
        let mut index = 0;
        for _ in 0..count {
            if u32::from(index) >= count {
                return Err(ChainError::Descriptor(index));
            }
            let gpa = table.gpa.wrapping_add(16 * u64::from(index));
            let words = self.buffers.read_pair(gpa).ok_or(ChainError::NotMemory { gpa, len: 16 })?;
            let descriptor = Descriptor::new(words);
            if descriptor.flags & INDIRECT != 0 {
                return Err(ChainError::Flags(descriptor.flags));
            }
            self.add(&descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err(ChainError::Endless(index))
    }

    #[inline]
    fn add(&mut self, descriptor: &Descriptor) -> Result<(), ChainError> {
        self.cost += 1;
        let writable = descriptor.flags & WRITE != 0;
        if writable != (self.direction == ChainDirection::ToDriver) {
            return Err(ChainError::Flags(descriptor.flags));
        }
        let (gpa, len) = (descriptor.gpa, descriptor.len);
        self.buffers.push(Extent { gpa, len: len.into() }).ok_or(ChainError::NotMemory { gpa, len })
    }

    /// Marks a chain as used, with `written` bytes written to it.
    ///
    /// [`ChainQueue::publish`] publishes that to the driver.
    #[inline]
    pub fn put_used(&mut self, head: u16, written: u32) {
        if let Some(mapped) = &self.mapped {
            mapped.rings.put_used(self.used, head, written);
        }
        self.used = self.used.wrapping_add(1);
    }

    /// Publishes the used entries, and interrupts the driver if it asks for that.
    #[inline]
    pub fn publish(&mut self) {
        if self.used == self.published {
            return;
        }
        let Some(mapped) = &self.mapped else { return };
        mapped.rings.publish_used(self.used);
        // This side publishes, then checks for a requested interrupt. The driver requests an
        // interrupt, then checks for used entries.
        fence(Ordering::SeqCst);
        let from = self.quiet_from.unwrap_or(self.published);
        // A request for an interrupt concerns entries that the driver has not seen, at most a ring
        // of them. The limit also keeps the difference from wrapping around.
        let from = if self.used.wrapping_sub(from) > self.setup.size {
            self.used.wrapping_sub(self.setup.size)
        } else {
            from
        };
        self.quiet_from = Some(from);
        self.published = self.used;
        self.ring_if_wanted(from);
    }

    /// Checks again whether the driver asks for an interrupt for what was published since the last
    /// one.
    ///
    /// Its request may not have been visible before.
    pub fn look_again(&mut self) {
        if let Some(from) = self.quiet_from.filter(|_| !self.broken) {
            self.ring_if_wanted(from);
            self.quiet_from = None;
        }
    }

    fn ring_if_wanted(&mut self, from: u16) {
        if self.mapped.as_ref().is_some_and(|mapped| mapped.rings.wants_interrupt(from, self.used)) {
            self.quiet_from = None;
            if let Some(call) = &self.setup.call {
                call.ring();
            }
        }
    }

    /// Returns whether there are chains to take.
    pub fn has_entries(&self) -> bool {
        self.running().is_some_and(|mapped| mapped.rings.avail_idx() != self.next)
    }

    /// Asks for a kick, before the worker sleeps. Returns true if entries have come, so that there
    /// may be no kick.
    pub fn arm(&self) -> bool {
        let Some(Mapped { rings, .. }) = self.running() else { return false };
        rings.ask_for_kick(self.next);
        // The driver publishes, then checks whether a kick is wanted. This side asks for a kick,
        // then checks for entries.
        fence(Ordering::SeqCst);
        rings.avail_idx() != self.next
    }

    /// Withdraws the request for a kick, after the worker slept.
    pub fn disarm(&self) {
        if let Some(mapped) = self.running() {
            mapped.rings.refuse_kicks();
        }
    }

    /// Switches to a new memory table, and releases the old one.
    ///
    /// # Errors
    /// The rings are not in the new table. The queue is broken from then on.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) -> Result<(), ChainError> {
        self.buffers = Buffers::new(memory);
        self.mapped = if self.broken { None } else { Mapped::new(memory, &self.setup) };
        let was_broken = std::mem::replace(&mut self.broken, self.mapped.is_none());
        if self.broken && !was_broken { Err(ChainError::Rings) } else { Ok(()) }
    }
}

impl Mapped {
    /// Maps the rings. `None` if they are not in this memory, or not aligned.
    fn new(memory: &Arc<GuestMemory>, setup: &VirtqueueSetup) -> Option<Mapped> {
        let desc = Extent { gpa: setup.desc, len: 16 * u64::from(setup.size) };
        Some(Mapped { rings: Rings::new(memory, setup)?, desc: Shared::<16>::new(memory, desc)? })
    }
}

impl Descriptor {
    #[inline]
    fn new(words: [u64; 2]) -> Descriptor {
        let [gpa, rest] = words.map(u64::from_le);
        Descriptor { gpa, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;

    const SIZE: u16 = 8;
    const AVAIL: usize = 0x100;
    const USED: usize = 0x200;

    struct Driver {
        memory: Arc<GuestMemory>,
        words: Shared,
        queue: ChainQueue,
        next: u16,
    }

    /// Makes a queue at the start of memory from 0 to 0x4000.
    fn driver(direction: ChainDirection, indirect: bool, event_idx: bool) -> Driver {
        let memory = memory(&[(0, 0x4000)]);
        let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x4000 }).unwrap();
        let (avail, used) = (AVAIL as u64, USED as u64);
        let setup =
            VirtqueueSetup { index: 0, size: SIZE, desc: 0, avail, used, event_idx, kick: None, call: None };
        let queue = ChainQueue::new(&memory, setup, 0, indirect, direction).unwrap();
        Driver { memory, words, queue, next: 0 }
    }

    impl Driver {
        fn describe(&self, at: usize, gpa: u64, len: u32, flags: u16, next: u16) {
            self.words.store64(at, gpa, Ordering::Relaxed);
            let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
            self.words.store64(at + 8, rest, Ordering::Relaxed);
        }

        fn offer(&mut self, head: u16) {
            let slot = usize::from(self.next % SIZE);
            self.words.store16(AVAIL + 4 + 2 * slot, head, Ordering::Relaxed);
            self.next = self.next.wrapping_add(1);
            self.words.store16(AVAIL + 2, self.next, Ordering::Release);
        }

        fn take(&mut self) -> Result<Option<u16>, ChainError> {
            self.queue.refresh()?;
            self.queue.buffers.clear();
            self.queue.pop()
        }
    }

    #[test]
    fn chains_direct_and_indirect_are_read_and_used_in_order() {
        let mut driver = driver(ChainDirection::FromDriver, true, false);
        driver.describe(0x00, 0x1000, 10, NEXT, 3);
        driver.describe(0x30, 0x2000, 5, 0, 0);
        driver.describe(0x10, 0x800, 3 * 16, INDIRECT, 0);
        driver.describe(0x800, 0x3000, 1, NEXT, 2);
        driver.describe(0x820, 0x3100, 2, 0, 0);
        driver.words.store64(0x3000, 0x77, Ordering::Relaxed);
        for (head, len) in [(0, 15), (1, 3), (0, 15)] {
            driver.offer(head);
            assert_eq!(driver.take(), Ok(Some(head)));
            assert_eq!(driver.queue.buffers.len(), len);
            driver.queue.put_used(head, 9);
            driver.queue.publish();
        }
        assert_eq!(driver.take(), Ok(None));
        let used = |at: usize| driver.words.load32(USED + at, Ordering::Relaxed);
        assert_eq!((used(0) >> 16, [used(4), used(8), used(12), used(16)]), (3, [0, 9, 1, 9]));
    }

    #[test]
    fn what_was_rewound_is_taken_again() {
        let mut driver = driver(ChainDirection::ToDriver, false, true);
        for head in 0..3u16 {
            driver.describe(16 * usize::from(head), 0x1000, 100, WRITE, 0);
            driver.offer(head);
        }
        driver.queue.refresh().unwrap();
        assert_eq!([driver.queue.pop(), driver.queue.pop()], [Ok(Some(0)), Ok(Some(1))]);
        driver.queue.rewind(2);
        driver.queue.buffers.clear();
        assert_eq!((driver.queue.pop(), driver.queue.buffers.len()), (Ok(Some(0)), 100));
    }

    #[test]
    fn nonsense_breaks_the_queue_for_good() {
        type Spoil = fn(&Driver);
        let cases: [(Spoil, ChainError); 13] = [
            (|d| d.describe(0, 0x1000, 1, NEXT, 0), ChainError::Endless(0)),
            (|d| d.describe(0, 0x1000, 1, NEXT, 8), ChainError::Descriptor(8)),
            (|d| d.describe(0, 0x1000, 1, WRITE, 0), ChainError::Flags(WRITE)),
            (|d| d.describe(0, 0x4000, 1, 0, 0), ChainError::NotMemory { gpa: 0x4000, len: 1 }),
            (|d| d.describe(0, 0x3fff, u32::MAX, 0, 0), ChainError::NotMemory { gpa: 0x3fff, len: u32::MAX }),
            (|d| d.describe(0, u64::MAX, 2, 0, 0), ChainError::NotMemory { gpa: u64::MAX, len: 2 }),
            (|d| d.describe(0, 0x800, 0, INDIRECT, 0), ChainError::Table(0)),
            (|d| d.describe(0, 0x800, 17, INDIRECT, 0), ChainError::Table(17)),
            (|d| d.describe(0, 0x800, 16 * 1025, INDIRECT, 0), ChainError::Table(16 * 1025)),
            (|d| d.describe(0, 0x800, 16, INDIRECT | NEXT, 0), ChainError::Flags(INDIRECT | NEXT)),
            (|d| d.describe(0, 0x3ff8, 16, INDIRECT, 0), ChainError::NotMemory { gpa: 0x3ff8, len: 16 }),
            (
                |d| {
                    d.describe(0, 0x800, 32, INDIRECT, 0);
                    d.describe(0x800, 0x1000, 1, NEXT, 2);
                },
                ChainError::Descriptor(2),
            ),
            (
                |d| {
                    d.describe(0, 0x800, 32, INDIRECT, 0);
                    d.describe(0x800, 0x800, 16, INDIRECT, 0);
                },
                ChainError::Flags(INDIRECT),
            ),
        ];
        for (spoil, reason) in cases {
            let mut driver = driver(ChainDirection::FromDriver, true, false);
            spoil(&driver);
            driver.offer(0);
            assert_eq!(driver.take(), Err(reason));
            driver.describe(0, 0x1000, 1, 0, 0);
            assert_eq!((driver.take(), driver.queue.is_broken()), (Ok(None), true));
        }
        let mut unindirect = driver(ChainDirection::FromDriver, false, false);
        unindirect.describe(0, 0x800, 16, INDIRECT, 0);
        unindirect.offer(0);
        assert_eq!(unindirect.take(), Err(ChainError::Flags(INDIRECT)));
        let mut ahead = driver(ChainDirection::FromDriver, false, false);
        ahead.next = SIZE;
        ahead.offer(0);
        assert_eq!(ahead.take(), Err(ChainError::Index { available: SIZE + 1, next: 0 }));
    }

    #[test]
    fn the_driver_is_interrupted_when_it_asks_for_it() {
        let driver = driver(ChainDirection::FromDriver, false, true);
        let used_event = AVAIL + 4 + 2 * usize::from(SIZE);
        for (event, old, new, wanted) in
            [(0, 0, 1, true), (1, 0, 1, false), (1, 0, 2, true), (0, 1, 2, false), (0xffff, 0xfffe, 3, true)]
        {
            driver.words.store16(used_event, event, Ordering::Relaxed);
            assert_eq!(
                driver.queue.mapped.as_ref().unwrap().rings.wants_interrupt(old, new),
                wanted,
                "{event} {old} {new}"
            );
        }
    }

    #[test]
    fn a_wish_that_moves_ahead_all_the_time_is_still_seen() {
        let mut driver = driver(ChainDirection::FromDriver, false, true);
        let used_event = AVAIL + 4 + 2 * usize::from(SIZE);
        driver.describe(0, 0x1000, 1, 0, 0);
        let mut use_one = |wish: u16| {
            driver.words.store16(used_event, wish, Ordering::Relaxed);
            driver.offer(0);
            assert_eq!(driver.take(), Ok(Some(0)));
            driver.queue.put_used(0, 0);
            driver.queue.publish();
            driver.queue.quiet_from.is_none()
        };
        // A polling driver does this: each time it asks to be told of the entry after the next.
        for index in 0..0xffff {
            assert!(!use_one(index + 1), "entry {index}");
        }
        assert!(use_one(0xffff), "the one that it waits for");
    }

    #[test]
    fn a_broken_queue_lets_go_of_the_old_table() {
        let new = memory(&[(0x8000, 0x1000)]);
        let mut lost = driver(ChainDirection::FromDriver, false, false);
        drop(lost.words);
        assert_eq!(lost.queue.remap(&new), Err(ChainError::Rings));
        assert_eq!(Arc::strong_count(&lost.memory), 1);
        // Its buffers refer to the new table.
        assert_eq!(Arc::strong_count(&new), 2);
        // This queue broke the rules first, and its memory is still there.
        let mut wrong = driver(ChainDirection::FromDriver, false, false);
        wrong.words.store16(AVAIL + 2, SIZE + 1, Ordering::Release);
        assert!(wrong.queue.refresh().is_err());
        let same = memory(&[(0, 0x4000)]);
        assert_eq!(wrong.queue.remap(&same), Ok(()), "it is told once");
        drop(wrong.words);
        assert_eq!(Arc::strong_count(&wrong.memory), 1);
        assert_eq!(Arc::strong_count(&same), 2);
        for mut queue in [lost.queue, wrong.queue] {
            assert!(queue.is_broken() && queue.refresh() == Ok(false) && queue.pop() == Ok(None));
            assert!(!queue.has_entries() && !queue.arm());
            queue.disarm();
            queue.publish();
            queue.look_again();
            assert_eq!(queue.remap(&memory(&[(0, 0x4000)])), Ok(()));
        }
        assert_eq!((Arc::strong_count(&new), Arc::strong_count(&same)), (1, 1));
    }
}
