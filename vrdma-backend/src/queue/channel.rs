//! Channels: streams of work requests (see `vrdma_abi::wqe`).

use super::entries::Copied;
use super::{Kick, Rings, VirtqueueSetup};
use crate::memory::{GuestMemory, Run, Shared, SharedLine};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use vrdma_abi::wqe::unit;

const UNIT: usize = unit::UNIT_SIZE as usize;
const WORDS: usize = UNIT / 8;
const _: () = assert!(UNIT == SharedLine::SIZE);
/// Where the first unit of a request says how many there are.
const UNITS_BYTE: usize = 1;

/// Slots that are fetched ahead of the one that is read: the driver's processor has them, and
/// several come in the time of one.
const AHEAD: u16 = 8;

/// A request as it was in the slots: copied once, so it holds still.
pub type RequestWords = [u64; WORDS * unit::MAX_UNITS_V1_1 as usize];

/// Room for a request.
pub const NO_WORDS: RequestWords = [0; WORDS * unit::MAX_UNITS_V1_1 as usize];

/// A channel that belongs to a user context.
#[derive(Debug)]
pub struct Channel {
    /// None once the channel is broken and the memory table has changed: it keeps no old table
    /// mapped.
    mapped: Option<Mapped>,
    /// Where the slots are, for a new memory table.
    slot_gpas: Box<[u64]>,
    setup: VirtqueueSetup,
    /// Free-running index of the next entry to take. The used index is the same: entries are
    /// returned as they are taken.
    next: u16,
    /// Entries up to here are known to be available.
    available: u16,
    copied: Copied,
    state: State,
}

/// Where a channel is in this process.
#[derive(Debug)]
struct Mapped {
    rings: Rings,
    slots: Box<[SharedLine]>,
    /// The slot that each used entry names, as we wrote it since this was mapped; [`NO_SLOT`] where
    /// we did not. Slots mostly come back in the order in which they are, and then no entry is ever
    /// written again.
    used: Box<[u16]>,
}

/// No channel has so many: the size of a virtqueue is at most 2^15.
const NO_SLOT: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The front-end stopped the virtqueue.
    Stopped,
    /// The driver broke the rules; for good.
    Broken,
}

impl Mapped {
    fn new(rings: Rings, slots: Box<[SharedLine]>) -> Mapped {
        let used = vec![NO_SLOT; slots.len()].into_boxed_slice();
        Mapped { rings, slots, used }
    }

    /// Notes an entry as used, if it does not say so from the last lap.
    #[inline]
    fn put_used(&mut self, index: u16, slot: u16) {
        let says = &mut self.used[self.rings.slot(index)];
        if *says != slot {
            *says = slot;
            self.rings.put_used(index, slot, 0);
        }
    }

    /// Fetches a slot, if it exists.
    #[inline]
    fn prefetch(&self, slot: u16) {
        if let Some(line) = self.slots.get(usize::from(slot)) {
            line.prefetch();
        }
    }
}

/// Why nothing can be taken from a channel any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// More entries available than the ring has.
    #[error("available index {available} is more than a ring ahead of {next}, or was taken back")]
    Index {
        /// What the driver published.
        available: u16,
        /// Next entry to take.
        next: u16,
    },
    /// A slot number that does not exist.
    #[error("slot {0} does not exist")]
    Slot(u16),
    /// A request of no units, of too many, or published in part.
    #[error("request of {units} units with {available} available")]
    Units {
        /// What the request says.
        units: u8,
        /// Entries available, its first one included.
        available: u16,
    },
    /// Its memory was taken away.
    #[error("rings or slots are not in guest memory any more")]
    Memory,
}

/// Why a channel cannot be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The rings are not in guest memory, or not aligned.
    #[error("the rings are not in guest memory")]
    Rings,
    /// A descriptor that is not a slot of the window.
    #[error("descriptor {0} is not a slot of the window")]
    Descriptor(u16),
    /// Indices or flags that are not zero.
    #[error("the ring has been used before and was not cleared")]
    NotClear,
}

impl Channel {
    /// Reads the descriptor table, once and for all, and checks each descriptor against the window.
    ///
    /// # Errors
    /// Anything that [`vrdma_abi::control::BindChannelReq`] does not allow.
    pub fn bind(
        memory: &Arc<GuestMemory>,
        setup: VirtqueueSetup,
        window: &[Run],
    ) -> Result<Channel, BindError> {
        let rings = Rings::new(memory, &setup).ok_or(BindError::Rings)?;
        let table = Run { gpa: setup.desc, len: 16 * u64::from(setup.size) };
        let table = Shared::<16>::new(memory, table).ok_or(BindError::Rings)?;
        let window = merged(window);
        let mut slots = Vec::with_capacity(setup.size.into());
        let mut slot_gpas = Vec::with_capacity(setup.size.into());
        for index in 0..setup.size {
            let [gpa, rest] = table.read_words::<2>(16 * usize::from(index)).map(u64::from_le);
            // Length 64, flags 0, next 0.
            let last = window.partition_point(|run| run.begins_by(gpa)).checked_sub(1);
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

    /// Virtqueue number.
    pub fn index(&self) -> u16 {
        self.setup.index
    }

    /// What the driver kicks.
    pub fn kick(&self) -> Option<&Arc<Kick>> {
        self.setup.kick.as_ref()
    }

    /// Where it is, if entries are taken from it.
    #[inline]
    fn running(&self) -> Option<&Mapped> {
        self.mapped.as_ref().filter(|_| self.state == State::Running)
    }

    /// Whether nothing will ever be taken from it.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// The index up to which entries are available, if there are any to take.
    pub fn reach(&mut self) -> Option<u16> {
        let available = self.running()?.rings.avail_idx();
        // Another is for `refresh` to find.
        if self.makes_sense(available) {
            self.available = available;
        }
        (self.available != self.next).then_some(self.available)
    }

    /// Whether an available index is no more than a ring ahead, and behind no earlier one: entries
    /// are not taken back, for others may wait until they are worked on.
    #[inline]
    fn makes_sense(&self, available: u16) -> bool {
        let ahead = available.wrapping_sub(self.next);
        ahead <= self.setup.size && ahead >= self.available.wrapping_sub(self.next)
    }

    /// Whether all entries up to an index that [`Channel::reach`] returned are taken, or none will
    /// be any more.
    pub fn has_taken(&self, index: u16) -> bool {
        // No more than a ring lies between the two, and an index that is taken back breaks the
        // channel.
        self.state != State::Running || index.wrapping_sub(self.next).wrapping_sub(1) >= self.setup.size
    }

    /// Looks for new entries; true if there are any.
    ///
    /// # Errors
    /// The available index makes no sense; the channel is broken from now on.
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
        // The slots that these entries named a lap ago: most likely they do so again, and need not
        // wait for the lines of the ring.
        for k in 0..found.min(AHEAD) {
            mapped.prefetch(mapped.used[mapped.rings.slot(self.next.wrapping_add(k))]);
        }
        self.available = available;
        self.look_up(self.next);
        Ok(true)
    }

    /// Copies entries from this one on out of the available ring, and fetches the first slots.
    fn look_up(&mut self, index: u16) {
        let Some(mapped) = &self.mapped else { return };
        self.copied.fill(&mapped.rings, index, self.available);
        self.copied.slots().iter().take(AHEAD.into()).for_each(|&slot| mapped.prefetch(slot));
    }

    /// Takes the next request out of those that [`Channel::refresh`] found; returns its number of
    /// units.
    ///
    /// # Errors
    /// An entry makes no sense; the channel is broken from now on.
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

    /// Copies the entry `k` after the next one out and notes it as used.
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
        // What is not published yet the driver may be writing.
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

    /// Returns what was taken since the last time to the driver.
    #[inline]
    pub fn publish_used(&self) {
        if let Some(mapped) = &self.mapped {
            mapped.rings.publish_used(self.next);
        }
    }

    /// Before sleep: asks for a kick. True if entries came meanwhile, so there will not be one.
    pub fn arm(&self) -> bool {
        let Some(Mapped { rings, .. }) = self.running() else { return false };
        rings.ask_for_kick(self.next);
        // The driver publishes, then looks whether we ask; we ask, then look whether it published.
        fence(Ordering::SeqCst);
        rings.avail_idx() != self.next
    }

    /// After sleep: takes the request for a kick back.
    pub fn disarm(&self) {
        if let Some(mapped) = self.running() {
            mapped.rings.refuse_kicks();
        }
    }

    /// The front-end stops the virtqueue: returns the index at which it may go on.
    pub fn stop(&mut self) -> u16 {
        if self.state == State::Running {
            self.state = State::Stopped;
        }
        self.next
    }

    /// The front-end starts the virtqueue again. False if it does not go on where it stopped, or
    /// moved the descriptors.
    pub fn resume(&mut self, memory: &Arc<GuestMemory>, setup: VirtqueueSetup, base: u16) -> bool {
        let same = setup.desc == self.setup.desc && setup.size == self.setup.size && base == self.next;
        if !same || self.state != State::Stopped {
            return false;
        }
        self.setup = setup;
        self.state = State::Running;
        self.remap(memory)
    }

    /// Follows a new memory table, and lets go of the old one. False if the channel is broken, be
    /// it because rings or slots are not there any more.
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

/// The runs in order, those that overlap made one: so that one look finds the run of a slot,
/// however many there are.
fn merged(runs: &[Run]) -> Vec<Run> {
    let mut runs = runs.to_vec();
    runs.sort_unstable_by_key(|run| run.gpa);
    runs.dedup_by(|next, run| {
        let overlaps = next.gpa - run.gpa < run.len;
        if overlaps {
            run.len = run.len.max((next.gpa - run.gpa).saturating_add(next.len));
        }
        overlaps
    });
    runs
}

impl Run {
    /// Whether its first byte is at `gpa` or before.
    fn begins_by(&self, gpa: u64) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        self.gpa <= gpa
    }

    /// Whether `len` bytes at `gpa` are wholly in this run.
    fn contains(&self, gpa: u64, len: u64) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        gpa.checked_sub(self.gpa).is_some_and(|offset| offset <= self.len && self.len - offset >= len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;
    use std::cell::Cell;

    thread_local! {
        /// How often a run of a window was looked at.
        pub static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// A channel of two slots at 0x400, whose rings are at 0x100 and 0x200.
    fn channel(memory: &Arc<GuestMemory>) -> Channel {
        let words = Shared::<16>::new(memory, Run { gpa: 0, len: 0x1000 }).unwrap();
        for slot in 0..2 {
            words.store64(16 * slot, 0x400 + 64 * slot as u64, Ordering::Relaxed);
            words.store64(16 * slot + 8, UNIT as u64, Ordering::Relaxed);
        }
        let (desc, avail, used) = (0, 0x100, 0x200);
        let setup =
            VirtqueueSetup { index: 5, size: 2, desc, avail, used, event_idx: false, kick: None, call: None };
        Channel::bind(memory, setup, &[Run { gpa: 0x400, len: 128 }]).unwrap()
    }

    #[test]
    fn a_broken_channel_lets_go_of_the_old_table() {
        // Its memory is gone.
        let (old, new) = (memory(&[(0, 0x1000)]), memory(&[(0x1000, 0x1000)]));
        let mut lost = channel(&old);
        assert!(!lost.remap(&new) && lost.is_broken());
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
        // It broke the rules before, and its memory is still there.
        let (old, new) = (memory(&[(0, 0x1000)]), memory(&[(0, 0x1000)]));
        let mut wrong = channel(&old);
        let words = Shared::<4>::new(&old, Run { gpa: 0x100, len: 4 }).unwrap();
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
        let words = Shared::<16>::new(&memory, Run { gpa: 0, len: 0x1000 }).unwrap();
        let mut out = super::NO_WORDS;
        for slot in 0..2 {
            words.store64(0x400 + 64 * slot, 1 << 8, Ordering::Relaxed);
        }
        let (entry, used) = (|i: usize| 0x104 + 2 * i, |i: usize| 0x204 + 8 * i);
        let laps: [[u16; 2]; 5] = [[0, 1], [0, 1], [1, 0], [1, 1], [0, 1]];
        let mut before = [u16::MAX; 2];
        for (lap, slots) in laps.into_iter().enumerate() {
            // What somebody else writes there stays if it is not written again.
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
        // Where it is mapped anew, nothing is known to be written.
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
        let words = Shared::<16>::new(&memory, Run { gpa: 0, len: 0x1000 }).unwrap();
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
        // The index goes all the way around, past where the same entries were looked up.
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
        let runs = [(300, 50), (100, 100), (150, 20), (180, 40), (220, 80), (0, 0), (u64::MAX - 1, 1)];
        let runs = runs.map(|(gpa, len)| Run { gpa, len });
        let merged: Vec<_> = merged(&runs).iter().map(|run| (run.gpa, run.len)).collect();
        assert_eq!(merged, [(0, 0), (100, 120), (220, 80), (300, 50), (u64::MAX - 1, 1)]);
    }

    #[test]
    fn a_window_of_many_runs_is_not_searched_from_its_start_for_each_slot() {
        const SLOTS: u16 = 1024;
        // A page for each slot, so that no two become one, and as many that have none.
        const RUNS: u64 = 4096;
        let first = 0x10_0000;
        let memory = memory(&[(0, first + 4096 * RUNS)]);
        let words = Shared::<16>::new(&memory, Run { gpa: 0, len: first }).unwrap();
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
        let window: Vec<_> = (0..RUNS).map(|run| Run { gpa: first + 4096 * run, len: UNIT as u64 }).collect();
        LOOKS.set(0);
        Channel::bind(&memory, setup, &window).unwrap();
        let looks = LOOKS.get();
        assert!((1..=16 * usize::from(SLOTS)).contains(&looks), "{looks} looks for {SLOTS} slots");
    }
}
