//! Channels: virtqueues of work requests (see `vrdma_abi::wqe`).

use super::{Kick, Rings, VirtqueueSetup};
use crate::memory::{Extent, GuestMemory, Shared, SharedLine};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use vrdma_abi::wqe::unit;

const UNIT: usize = unit::UNIT_SIZE as usize;
const WORDS: usize = UNIT / 8;
const _: () = assert!(UNIT == SharedLine::SIZE);
/// Offset of the byte in a request's first unit that holds the number of units.
const UNITS_BYTE: usize = 1;

/// Number of slots that are prefetched ahead of the one being read.
///
/// Their cache lines are in the driver's processor. Several arrive in the time of one.
const AHEAD: u16 = 8;

/// The 64-byte units of a request, copied once from the slots. The driver cannot change the copy.
pub type RequestWords = [u64; WORDS * unit::MAX_UNITS_V1_1 as usize];

/// An empty buffer for a request.
pub const NO_WORDS: RequestWords = [0; WORDS * unit::MAX_UNITS_V1_1 as usize];

/// A channel of a user context: a virtqueue of work requests.
#[derive(Debug)]
pub struct Channel {
    /// `None` once the channel is broken and the memory table has changed. It keeps no old table
    /// mapped.
    mapped: Option<Mapped>,
    /// Guest-physical addresses of the slots, for a new memory table.
    slot_gpas: Box<[u64]>,
    setup: VirtqueueSetup,
    /// Free-running index of the next entry to take. It is also the used index, because entries are
    /// returned as they are taken.
    next: u16,
    /// Index up to which entries are known to be available.
    available: u16,
    copied: Copied,
    state: State,
}

/// The mapping of a channel in this process.
#[derive(Debug)]
struct Mapped {
    rings: Rings,
    slots: Box<[SharedLine]>,
    /// The slot number last written to each used entry since it was mapped, or [`NO_SLOT`].
    ///
    /// Slots mostly come back in the same order. Then no entry is ever written again.
    used: Box<[u16]>,
}

/// A number that no slot has: the size of a virtqueue is at most 2^15.
const NO_SLOT: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The front-end stopped the virtqueue.
    Stopped,
    /// The driver broke the rules. This is permanent.
    Broken,
}

impl Mapped {
    fn new(rings: Rings, slots: Box<[SharedLine]>) -> Mapped {
        let used = vec![NO_SLOT; slots.len()].into_boxed_slice();
        Mapped { rings, slots, used }
    }

    /// Marks an entry as used, unless the entry has the right contents from the last lap.
    #[inline]
    fn put_used(&mut self, index: u16, slot: u16) {
        let says = &mut self.used[self.rings.slot(index)];
        if *says != slot {
            *says = slot;
            self.rings.put_used(index, slot, 0);
        }
    }

    /// Prefetches a slot, if it exists.
    #[inline]
    fn prefetch(&self, slot: u16) {
        if let Some(line) = self.slots.get(usize::from(slot)) {
            line.prefetch();
        }
    }
}

/// The reason why a channel is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The driver made more entries available than the ring has, or took some back.
    #[error("available index {available} is more than a ring ahead of {next}, or was taken back")]
    Index {
        /// The index that the driver published.
        available: u16,
        /// Index of the next entry to take.
        next: u16,
    },
    /// The slot number does not exist.
    #[error("slot {0} does not exist")]
    Slot(u16),
    /// The request has no units, too many, or was published in part.
    #[error("request of {units} units with {available} available")]
    Units {
        /// Number of units that the request says.
        units: u8,
        /// Number of available entries, including the first one of the request.
        available: u16,
    },
    /// The rings or slots are not in guest memory any more.
    #[error("rings or slots are not in guest memory any more")]
    Memory,
}

/// The reason why a channel cannot be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The rings are not in guest memory, or not aligned.
    #[error("the rings are not in guest memory")]
    Rings,
    /// The descriptor is not a slot of the window.
    #[error("descriptor {0} is not a slot of the window")]
    Descriptor(u16),
    /// An index or flag of the rings is not zero.
    #[error("the ring has been used before and was not cleared")]
    NotClear,
}

impl Channel {
    /// Binds a channel. It reads the descriptor table once, and checks each descriptor against the
    /// window.
    ///
    /// # Errors
    /// The rings break a rule of [`vrdma_abi::control::BindChannelReq`].
    pub fn bind(
        memory: &Arc<GuestMemory>,
        setup: VirtqueueSetup,
        window: &[Extent],
    ) -> Result<Channel, BindError> {
        let rings = Rings::new(memory, &setup).ok_or(BindError::Rings)?;
        let table = Extent { gpa: setup.desc, len: 16 * u64::from(setup.size) };
        let table = Shared::<16>::new(memory, table).ok_or(BindError::Rings)?;
        let window = merged(window);
        let mut slots = Vec::with_capacity(setup.size.into());
        let mut slot_gpas = Vec::with_capacity(setup.size.into());
        for index in 0..setup.size {
            let [gpa, rest] = table.read_words::<2>(16 * usize::from(index)).map(u64::from_le);
            // A valid descriptor has length 64, flags 0 and next 0.
            let last = window.partition_point(|extent| extent.begins_by(gpa)).checked_sub(1);
            let inside = last.is_some_and(|at| window[at].contains(gpa, UNIT as u64));
            let slot = (rest == UNIT as u64 && inside).then(|| SharedLine::new(memory, gpa)).flatten();
            slots.push(slot.ok_or(BindError::Descriptor(index))?);
            slot_gpas.push(gpa);
        }
        let used_event = 4 + 2 * usize::from(setup.size);
        let avail_clear = [0, 2, used_event].iter().all(|&at| rings.avail.load16(at, Ordering::Relaxed) == 0);
        let used_clear = [0, 2].iter().all(|&at| rings.used.load16(at, Ordering::Relaxed) == 0);
        if !avail_clear || !used_clear {
            return Err(BindError::NotClear);
        }
        rings.refuse_kicks();
        let mapped = Some(Mapped::new(rings, slots.into_boxed_slice()));
        let slot_gpas = slot_gpas.into_boxed_slice();
        Ok(Channel {
            mapped,
            slot_gpas,
            setup,
            next: 0,
            available: 0,
            copied: Copied::NONE,
            state: State::Running,
        })
    }

    /// Returns the virtqueue number.
    pub fn index(&self) -> u16 {
        self.setup.index
    }

    /// Returns the eventfd that the driver kicks.
    pub fn kick(&self) -> Option<&Arc<Kick>> {
        self.setup.kick.as_ref()
    }

    /// Returns the mapping, if entries are taken from the channel.
    #[inline]
    fn running(&self) -> Option<&Mapped> {
        self.mapped.as_ref().filter(|_| self.state == State::Running)
    }

    /// Returns whether the channel is broken for good.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Returns the index up to which entries are available, if there are any to take.
    pub fn reach(&mut self) -> Option<u16> {
        let available = self.running()?.rings.avail_idx();
        // An invalid index is left for `refresh` to report.
        if self.makes_sense(available) {
            self.available = available;
        }
        (self.available != self.next).then_some(self.available)
    }

    /// Returns whether an available index is at most a ring ahead, and not behind an earlier one.
    ///
    /// A driver must not take entries back: commands may wait until they are executed.
    #[inline]
    fn makes_sense(&self, available: u16) -> bool {
        let ahead = available.wrapping_sub(self.next);
        ahead <= self.setup.size && ahead >= self.available.wrapping_sub(self.next)
    }

    /// Returns whether all entries up to an index from [`Channel::reach`] are taken, or none will
    /// be any more.
    pub fn has_taken(&self, index: u16) -> bool {
        // The indices are at most a ring apart. An index that goes back breaks the channel.
        self.state != State::Running || index.wrapping_sub(self.next).wrapping_sub(1) >= self.setup.size
    }

    /// Looks for new entries. Returns true if there are any.
    ///
    /// # Errors
    /// The available index is invalid. The channel is broken from then on.
    #[inline]
    pub fn refresh(&mut self) -> Result<bool, ChannelError> {
        let Some(mapped) = self.running() else { return Ok(false) };
        let available = mapped.rings.avail_idx();
        if !self.makes_sense(available) {
            self.state = State::Broken;
            return Err(ChannelError::Index { available, next: self.next });
        }
        let found = available.wrapping_sub(self.next);
        if found == 0 {
            return Ok(false);
        }
        // These entries most likely name the same slots as a lap ago. Prefetching those need not
        // wait for the lines of the ring.
        for k in 0..found.min(AHEAD) {
            mapped.prefetch(mapped.used[mapped.rings.slot(self.next.wrapping_add(k))]);
        }
        self.available = available;
        self.look_up(self.next);
        Ok(true)
    }

    /// Copies entries from `index` on out of the available ring, and prefetches the first slots.
    fn look_up(&mut self, index: u16) {
        let Some(mapped) = &self.mapped else { return };
        self.copied.fill(&mapped.rings, index, self.available);
        self.copied.slots().iter().take(AHEAD.into()).for_each(|&slot| mapped.prefetch(slot));
    }

    /// Takes the next request that [`Channel::refresh`] found. Returns its number of units.
    ///
    /// # Errors
    /// An entry is invalid. The channel is broken from then on.
    #[inline]
    pub fn pop(&mut self, out: &mut RequestWords) -> Result<Option<usize>, ChannelError> {
        let available = self.available.wrapping_sub(self.next);
        if available == 0 || self.state != State::Running {
            return Ok(None);
        }
        self.take(0, out)?;
        let units = out[0].to_ne_bytes()[UNITS_BYTE];
        if units == 0 || u32::from(units) > unit::MAX_UNITS_V1_1 || u16::from(units) > available {
            self.state = State::Broken;
            return Err(ChannelError::Units { units, available });
        }
        for k in 1..u16::from(units) {
            self.take(k, out)?;
        }
        self.next = self.next.wrapping_add(units.into());
        Ok(Some(units.into()))
    }

    /// Copies out the entry `k` after the next one, and marks it as used.
    #[inline(always)]
    fn take(&mut self, k: u16, out: &mut RequestWords) -> Result<(), ChannelError> {
        let index = self.next.wrapping_add(k);
        let slot = match self.copied.get(index) {
            Some(slot) => slot,
            None => {
                self.look_up(index);
                self.copied.slots()[0]
            }
        };
        let Some(mapped) = &mut self.mapped else { return Err(ChannelError::Memory) };
        // Only published slots are prefetched. The driver may be writing the others.
        if let Some(ahead) = self.copied.get(index.wrapping_add(AHEAD)) {
            mapped.prefetch(ahead);
        }
        let Some(line) = mapped.slots.get(usize::from(slot)) else {
            self.state = State::Broken;
            return Err(ChannelError::Slot(slot));
        };
        line.read(&mut out.as_chunks_mut().0[usize::from(k)]);
        mapped.put_used(index, slot);
        Ok(())
    }

    /// Returns all taken entries to the driver.
    #[inline]
    pub fn publish_used(&self) {
        if let Some(mapped) = &self.mapped {
            mapped.rings.publish_used(self.next);
        }
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

    /// Stops the virtqueue for the front-end. Returns the index at which it may continue.
    pub fn stop(&mut self) -> u16 {
        if self.state == State::Running {
            self.state = State::Stopped;
        }
        self.next
    }

    /// Starts the stopped virtqueue again for the front-end.
    ///
    /// Returns false if it does not continue where it stopped, or if its descriptors have moved.
    pub fn resume(&mut self, memory: &Arc<GuestMemory>, setup: VirtqueueSetup, base: u16) -> bool {
        let same = setup.desc == self.setup.desc && setup.size == self.setup.size && base == self.next;
        if !same || self.state != State::Stopped {
            return false;
        }
        self.setup = setup;
        self.state = State::Running;
        self.remap(memory)
    }

    /// Switches to a new memory table, and releases the old one.
    ///
    /// Returns false if the channel is broken, or if its rings or slots are not in the new table.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) -> bool {
        self.mapped = if self.is_broken() { None } else { self.map(memory) };
        self.copied = Copied::NONE;
        if self.mapped.is_none() {
            self.state = State::Broken;
        }
        !self.is_broken()
    }

    fn map(&self, memory: &Arc<GuestMemory>) -> Option<Mapped> {
        let slot = |&gpa| SharedLine::new(memory, gpa);
        let slots = self.slot_gpas.iter().map(slot).collect::<Option<_>>()?;
        Some(Mapped::new(Rings::new(memory, &self.setup)?, slots))
    }
}

/// Sorts extents and merges those that overlap. Each slot's extent is then found by one binary
/// search.
fn merged(extents: &[Extent]) -> Vec<Extent> {
    let mut extents = extents.to_vec();
    extents.sort_unstable_by_key(|extent| extent.gpa);
    extents.dedup_by(|next, extent| {
        let overlaps = next.gpa - extent.gpa < extent.len;
        if overlaps {
            extent.len = extent.len.max((next.gpa - extent.gpa).saturating_add(next.len));
        }
        overlaps
    });
    extents
}

impl Extent {
    /// Returns whether the first byte is at or before `gpa`.
    fn begins_by(&self, gpa: u64) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.gpa <= gpa
    }

    /// Returns whether the extent contains all `len` bytes at `gpa`.
    fn contains(&self, gpa: u64, len: u64) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        gpa.checked_sub(self.gpa).is_some_and(|offset| offset <= self.len && self.len - offset >= len)
    }
}

/// Number of entries of the available ring that are copied out at once.
///
/// The driver meanwhile writes the cache lines of later entries, so each access would cost a miss.
const LOOK: usize = 64;

/// Entries of the available ring that were copied out.
#[derive(Debug)]
struct Copied {
    slots: [u16; LOOK],
    /// Free-running index of the first entry.
    first: u16,
    /// Number of entries.
    count: u16,
}

impl Copied {
    /// No entries.
    const NONE: Copied = Copied { slots: [0; LOOK], first: 0, count: 0 };

    /// Returns the slot of an entry, if the entry is among the copied ones.
    #[inline]
    fn get(&self, index: u16) -> Option<u16> {
        let at = index.wrapping_sub(self.first);
        if at < self.count { self.slots.get(usize::from(at)).copied() } else { None }
    }

    /// Copies out the entries from `first` up to `end`, or as many as there is room for.
    #[inline(never)]
    fn fill(&mut self, rings: &Rings, first: u16, end: u16) {
        self.first = first;
        self.count = end.wrapping_sub(first).min(LOOK as u16);
        for (k, slot) in (0..self.count).zip(&mut self.slots) {
            *slot = rings.avail_entry(first.wrapping_add(k));
        }
    }

    /// Returns the slots of all copied entries, in order.
    #[inline]
    fn slots(&self) -> &[u16] {
        &self.slots[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;
    use std::cell::Cell;

    thread_local! {
        /// How often an extent of a window was examined.
        pub static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// Makes a channel of two slots at 0x400, whose rings are at 0x100 and 0x200.
    fn channel(memory: &Arc<GuestMemory>) -> Channel {
        let words = Shared::<16>::new(memory, Extent { gpa: 0, len: 0x1000 }).unwrap();
        for slot in 0..2 {
            words.store64(16 * slot, 0x400 + 64 * slot as u64, Ordering::Relaxed);
            words.store64(16 * slot + 8, UNIT as u64, Ordering::Relaxed);
        }
        let (desc, avail, used) = (0, 0x100, 0x200);
        let setup =
            VirtqueueSetup { index: 5, size: 2, desc, avail, used, event_idx: false, kick: None, call: None };
        Channel::bind(memory, setup, &[Extent { gpa: 0x400, len: 128 }]).unwrap()
    }

    #[test]
    fn a_broken_channel_lets_go_of_the_old_table() {
        // The memory of this channel is gone.
        let (old, new) = (memory(&[(0, 0x1000)]), memory(&[(0x1000, 0x1000)]));
        let mut lost = channel(&old);
        assert!(!lost.remap(&new) && lost.is_broken());
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
        // This channel broke the rules first, and its memory is still there.
        let (old, new) = (memory(&[(0, 0x1000)]), memory(&[(0, 0x1000)]));
        let mut wrong = channel(&old);
        let words = Shared::<4>::new(&old, Extent { gpa: 0x100, len: 4 }).unwrap();
        words.store16(2, 7, Ordering::Release);
        drop(words);
        assert_eq!(wrong.refresh(), Err(ChannelError::Index { available: 7, next: 0 }));
        assert!(!wrong.remap(&new));
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
        for mut channel in [lost, wrong] {
            assert_eq!(channel.refresh(), Ok(false));
            assert!(channel.reach().is_none() && !channel.arm() && channel.has_taken(1));
            channel.disarm();
            channel.publish_used();
        }
    }

    #[test]
    fn used_entries_say_what_was_taken_and_are_written_when_that_changes() {
        let memory = memory(&[(0, 0x1000)]);
        let mut channel = channel(&memory);
        let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x1000 }).unwrap();
        let mut out = super::NO_WORDS;
        for slot in 0..2 {
            words.store64(0x400 + 64 * slot, 1 << 8, Ordering::Relaxed);
        }
        let (entry, used) = (|i: usize| 0x104 + 2 * i, |i: usize| 0x204 + 8 * i);
        let laps: [[u16; 2]; 5] = [[0, 1], [0, 1], [1, 0], [1, 1], [0, 1]];
        let mut before = [u16::MAX; 2];
        for (lap, slots) in laps.into_iter().enumerate() {
            // These marks stay in the entries that are not written again.
            (0..2).for_each(|i| words.store32(used(i), 0x77, Ordering::Relaxed));
            (0..2).for_each(|i| words.store16(entry(i), slots[i], Ordering::Relaxed));
            words.store16(0x102, 2 * (lap as u16 + 1), Ordering::Release);
            assert_eq!(channel.refresh(), Ok(true));
            while channel.pop(&mut out).unwrap().is_some() {}
            channel.publish_used();
            assert_eq!(words.load16(0x202, Ordering::Relaxed), 2 * (lap as u16 + 1));
            for (i, slot) in slots.into_iter().enumerate() {
                let expected = if slot == before[i] { 0x77 } else { u32::from(slot) };
                assert_eq!(words.load32(used(i), Ordering::Relaxed), expected, "lap {lap}, entry {i}");
            }
            before = slots;
        }
        // After mapping it again, no entry is known to be written.
        assert!(channel.remap(&memory));
        words.store16(0x102, 12, Ordering::Release);
        assert_eq!(channel.refresh(), Ok(true));
        while channel.pop(&mut out).unwrap().is_some() {}
        assert_eq!([0, 1].map(|i| words.load32(used(i), Ordering::Relaxed)), [0, 1]);
    }

    #[test]
    fn entries_that_became_available_later_are_looked_up_then() {
        let memory = memory(&[(0, 0x1000)]);
        let mut channel = channel(&memory);
        let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x1000 }).unwrap();
        let mut out = super::NO_WORDS;
        (0..2).for_each(|slot| {
            words.store64(0x400 + 64 * slot, 1 << 8 | (slot as u64) << 32, Ordering::Relaxed)
        });
        words.store16(0x104, 1, Ordering::Relaxed);
        words.store16(0x102, 1, Ordering::Release);
        assert_eq!(channel.refresh(), Ok(true));
        words.store16(0x106, 0, Ordering::Relaxed);
        words.store16(0x102, 2, Ordering::Release);
        assert_eq!(channel.reach(), Some(2));
        for slot in [1, 0] {
            assert_eq!(channel.pop(&mut out), Ok(Some(1)));
            assert_eq!(out[0] >> 32, slot);
        }
        assert_eq!(channel.pop(&mut out), Ok(None));
        // The index wraps around, past the values of the entries that were copied earlier.
        for turn in 1..=40_000u16 {
            let slot = u16::from(turn % 3 == 0);
            words.store16(0x104, slot, Ordering::Relaxed);
            words.store16(0x106, 1 - slot, Ordering::Relaxed);
            words.store16(0x102, 2u16.wrapping_mul(turn).wrapping_add(2), Ordering::Release);
            assert_eq!(channel.refresh(), Ok(true));
            for slot in [slot, 1 - slot] {
                assert_eq!(channel.pop(&mut out), Ok(Some(1)));
                assert_eq!(out[0] >> 32, u64::from(slot));
            }
        }
    }

    #[test]
    fn runs_that_overlap_are_one_and_neighbours_are_not() {
        let extents = [(300, 50), (100, 100), (150, 20), (180, 40), (220, 80), (0, 0), (u64::MAX - 1, 1)];
        let extents = extents.map(|(gpa, len)| Extent { gpa, len });
        let merged: Vec<_> = merged(&extents).iter().map(|extent| (extent.gpa, extent.len)).collect();
        assert_eq!(merged, [(0, 0), (100, 120), (220, 80), (300, 50), (u64::MAX - 1, 1)]);
    }

    #[test]
    fn a_window_of_many_runs_is_not_searched_from_its_start_for_each_slot() {
        const SLOTS: u16 = 1024;
        // Each slot has a page, so that no extents are merged. Three times as many pages have no
        // slot.
        const RUNS: u64 = 4096;
        let first = 0x10_0000;
        let memory = memory(&[(0, first + 4096 * RUNS)]);
        let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: first }).unwrap();
        for slot in 0..usize::from(SLOTS) {
            words.store64(16 * slot, first + 4096 * (RUNS - 1 - slot as u64), Ordering::Relaxed);
            words.store64(16 * slot + 8, UNIT as u64, Ordering::Relaxed);
        }
        let (desc, avail, used) = (0, 0x8000, 0xa000);
        let setup = VirtqueueSetup {
            index: 5,
            size: SLOTS,
            desc,
            avail,
            used,
            event_idx: false,
            kick: None,
            call: None,
        };
        let window: Vec<_> =
            (0..RUNS).map(|extent| Extent { gpa: first + 4096 * extent, len: UNIT as u64 }).collect();
        LOOKS.set(0);
        Channel::bind(&memory, setup, &window).unwrap();
        let looks = LOOKS.get();
        assert!((1..=16 * usize::from(SLOTS)).contains(&looks), "{looks} looks for {SLOTS} slots");
    }
}
