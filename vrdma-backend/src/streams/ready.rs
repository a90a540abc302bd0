//! Entries to be served, fairly between guests.
//!
//! Guests take turns. A guest has a credit of bytes in each round, however many connections it has.

use super::handle::Handle;
use std::collections::VecDeque;
use vrdma_transport::DeviceId;

/// Bytes of a guest of weight 1 in one round, while other guests have work, too.
///
/// It is also the most that the engine is offered from one connection at a time: what one read of a
/// kernel socket returns. A guest that takes more has less in later rounds.
pub(super) const QUANTUM: usize = 64 << 10;
/// Cost in bytes of serving an entry, whatever it does, and of taking an already placed FPDU.
pub(super) const COST: usize = 512;
/// The largest debt of a guest: what the buffer of a connection holds.
const MOST_OWED: i64 = 2 << 20;
/// Entries of a guest of weight 1 that are served in one round.
pub(super) const ENTRIES: usize = 32;

/// The waiting entries of a guest.
#[derive(Debug)]
struct Queue {
    /// The guest's weight. It multiplies bytes and entries of a round.
    weight: u32,
    handles: VecDeque<Handle>,
    /// The credit of this round in bytes. If negative, it is a debt.
    credit: i64,
    /// The round for which `credit` was computed.
    turn: u64,
    is_listed: bool,
    /// The sum of all charges.
    #[cfg(test)]
    moved: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            weight: 1,
            handles: VecDeque::new(),
            credit: 0,
            turn: 0,
            is_listed: false,
            #[cfg(test)]
            moved: 0,
        }
    }
}

impl Queue {
    /// Returns the guest's credit in each round.
    fn quantum(&self) -> i64 {
        QUANTUM as i64 * i64::from(self.weight)
    }

    /// Adds the credit of the rounds since.
    fn refill(&mut self, turn: u64) {
        let turns = turn.saturating_sub(self.turn).min(MOST_OWED as u64);
        self.credit = (self.credit + turns as i64 * self.quantum()).min(self.quantum());
        self.turn = turn;
    }
}

/// The waiting entries of all guests.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// By the device's number.
    queues: Vec<Queue>,
    /// Guests with waiting entries, in the order of their turns.
    order: VecDeque<DeviceId>,
    /// Number of rounds so far.
    turn: u64,
    /// Number of entries of all guests.
    count: usize,
}

/// The turn of a guest.
#[derive(Debug)]
pub(super) struct Visit {
    pub device: DeviceId,
    /// How many more entries may be served. Those that come meanwhile wait for the next round.
    left: usize,
    /// Whether no entry was served yet. The first always is: otherwise a guest in debt for received
    /// frames could do nothing of its own.
    is_first: bool,
    is_shared: bool,
}

impl Ready {
    fn queue(&mut self, device: DeviceId) -> &mut Queue {
        let index = device.0 as usize;
        if index >= self.queues.len() {
            self.queues.resize_with(index + 1, Queue::default);
        }
        &mut self.queues[index]
    }

    /// Sets the weight of a guest.
    pub fn set_weight(&mut self, device: DeviceId, weight: u32) {
        self.queue(device).weight = weight;
    }

    /// Adds a waiting entry of a guest. The caller does not add an entry twice.
    pub fn push(&mut self, device: DeviceId, handle: Handle) {
        self.count += 1;
        let queue = self.queue(device);
        queue.handles.push_back(handle);
        if !std::mem::replace(&mut queue.is_listed, true) {
            self.order.push_back(device);
        }
    }

    /// Charges a guest for bytes that were moved.
    pub fn charge(&mut self, device: DeviceId, bytes: usize) {
        let turn = self.turn;
        let queue = self.queue(device);
        queue.refill(turn);
        queue.credit = (queue.credit - bytes as i64).max(-MOST_OWED);
        #[cfg(test)]
        (queue.moved += bytes as u64);
    }

    /// Returns the bytes that a guest was charged for.
    #[cfg(test)]
    pub fn moved(&self, device: DeviceId) -> u64 {
        self.queues.get(device.0 as usize).map_or(0, |queue| queue.moved)
    }

    /// Removes all entries and debts of a guest.
    pub fn forget(&mut self, device: DeviceId) {
        let queue = self.queue(device);
        let weight = queue.weight;
        let queue = std::mem::replace(queue, Queue { weight, ..Queue::default() });
        self.count -= queue.handles.len();
        self.order.retain(|&other| other != device);
    }

    /// Removes a guest. Another one may have its number later.
    pub fn remove(&mut self, device: DeviceId) {
        self.forget(device);
        *self.queue(device) = Queue::default();
    }

    /// Returns the number of waiting entries of all guests.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of waiting entries of a guest.
    #[cfg(test)]
    pub fn len_of(&self, device: DeviceId) -> usize {
        self.queues.get(device.0 as usize).map_or(0, |queue| queue.handles.len())
    }

    /// Begins a round. Returns the number of guests with waiting entries.
    pub fn begin(&mut self) -> usize {
        self.turn += 1;
        self.order.len()
    }

    /// Begins the turn of the next guest. A guest without competitors has no byte limit, and no
    /// debt.
    pub fn visit(&mut self, is_shared: bool) -> Option<Visit> {
        let device = self.order.pop_front()?;
        let turn = self.turn;
        let queue = self.queue(device);
        queue.refill(turn);
        if !is_shared {
            queue.credit = queue.quantum();
        }
        let left = queue.handles.len().min(ENTRIES * queue.weight as usize);
        Some(Visit { device, left, is_first: true, is_shared })
    }

    /// Returns the next entry of a guest in its turn.
    pub fn next(&mut self, visit: &mut Visit) -> Option<Handle> {
        let queue = self.queue(visit.device);
        let owes = visit.is_shared && queue.credit <= 0;
        if visit.left == 0 || owes && !visit.is_first {
            return None;
        }
        visit.left -= 1;
        visit.is_first = false;
        queue.credit -= COST as i64;
        let handle = queue.handles.pop_front();
        self.count -= usize::from(handle.is_some());
        handle
    }

    /// Ends the turn of a guest.
    pub fn leave(&mut self, visit: &Visit) {
        let queue = self.queue(visit.device);
        queue.is_listed = !queue.handles.is_empty();
        if queue.is_listed {
            self.order.push_back(visit.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DeviceId = DeviceId(0);
    const B: DeviceId = DeviceId(1);

    fn handle(number: u32) -> Handle {
        Handle { number, generation: 0 }
    }

    /// Runs rounds in which each entry moves `bytes` and waits again. Returns each guest's sum.
    fn turns(ready: &mut Ready, count: usize, bytes: impl Fn(DeviceId) -> usize) -> [usize; 2] {
        let mut had = [0; 2];
        for _ in 0..count {
            let guests = ready.begin();
            for _ in 0..guests {
                let Some(mut visit) = ready.visit(guests > 1) else { break };
                while let Some(handle) = ready.next(&mut visit) {
                    let bytes = bytes(visit.device);
                    ready.charge(visit.device, bytes);
                    had[visit.device.0 as usize] += bytes;
                    ready.push(visit.device, handle);
                }
                ready.leave(&visit);
            }
        }
        had
    }

    fn of(guests: [u32; 2]) -> Ready {
        let mut ready = Ready::default();
        for (device, count) in guests.into_iter().enumerate() {
            (0..count).for_each(|n| ready.push(DeviceId(device as u32), handle(n)));
        }
        ready
    }

    #[test]
    fn a_guest_with_a_thousand_entries_has_what_one_with_one_has() {
        for bytes in [QUANTUM, QUANTUM / 2 + 1, 20_000] {
            // The single connection moves what one read returns.
            let had = turns(&mut of([1024, 1]), 1000, |device| if device == A { bytes } else { QUANTUM });
            assert!(had[0] * 10 <= had[1] * 11 && had[1] * 10 <= had[0] * 11, "{bytes}: {had:?}");
        }
    }

    #[test]
    fn a_guest_of_weight_3_has_three_times_what_one_of_weight_1_has() {
        for bytes in [QUANTUM, QUANTUM / 2 + 1, 20_000, 1] {
            let mut ready = of([1024, 1024]);
            ready.set_weight(B, 3);
            let had = turns(&mut ready, 1000, |_| bytes);
            assert!((had[0] * 3).abs_diff(had[1]) * 20 <= had[1], "{bytes}: {had:?}");
            // The weight stays while the guest's connections go.
            ready.forget(B);
            (0..1024).for_each(|n| ready.push(B, handle(n)));
            let had = turns(&mut ready, 1000, |_| bytes);
            assert!((had[0] * 3).abs_diff(had[1]) * 20 <= had[1], "{bytes}: {had:?}");
        }
    }

    #[test]
    fn who_is_alone_has_no_limit_of_bytes_and_owes_nothing() {
        let mut ready = of([1024, 0]);
        assert_eq!(turns(&mut ready, 10, |_| QUANTUM), [10 * ENTRIES * QUANTUM, 0]);
        ready.push(B, handle(0));
        let had = turns(&mut ready, 100, |_| QUANTUM);
        assert!(had[0].abs_diff(had[1]) <= MOST_OWED as usize, "{had:?}");
    }

    #[test]
    fn who_owes_has_one_entry_a_turn_until_it_has_paid_and_idle_turns_pay() {
        let mut ready = of([100, 1]);
        // Received frames are charged without a check of the credit.
        ready.charge(A, 100 << 20);
        let few = |_: DeviceId| 1;
        assert_eq!(turns(&mut ready, 20, few), [20, 20]);
        assert_eq!(turns(&mut ready, 12, few)[1], 12);
        assert_eq!(turns(&mut ready, 1, few)[0], ENTRIES);
        ready.charge(A, 100 << 20);
        for _ in 0..40 {
            ready.begin();
        }
        assert_eq!(turns(&mut ready, 1, few)[0], ENTRIES);
    }

    #[test]
    fn each_entry_has_its_turn() {
        let mut ready = of([100, 100]);
        let mut seen = [[0; 100]; 2];
        for _ in 0..10 {
            for _ in 0..ready.begin() {
                let mut visit = ready.visit(true).unwrap();
                while let Some(handle) = ready.next(&mut visit) {
                    seen[visit.device.0 as usize][handle.number as usize] += 1;
                }
                ready.leave(&visit);
            }
            if ready.is_empty() {
                break;
            }
        }
        assert_eq!(seen, [[1; 100]; 2]);
        assert_eq!((ready.is_empty(), ready.len_of(A)), (true, 0));
    }

    #[test]
    fn a_guest_that_is_forgotten_leaves_nothing_and_begins_anew() {
        let mut ready = of([100, 1]);
        ready.charge(A, 100 << 20);
        ready.forget(A);
        assert_eq!((ready.len_of(A), ready.begin()), (0, 1));
        ready.forget(B);
        assert!(ready.is_empty() && ready.visit(true).is_none());
        (0..100).for_each(|n| ready.push(A, handle(n)));
        ready.push(B, handle(0));
        assert_eq!(turns(&mut ready, 1, |_| 1), [ENTRIES, 1]);
    }
}
