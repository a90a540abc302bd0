//! Which QPs have work, and which QP has the next turn.
//!
//! Devices take turns by deficit round robin. Each round gives each device a quantum for each unit
//! of its weight, which pays for bytes and operations. What a device takes beyond that is missing
//! in its next round.
//!
//! Within a device, QPs that owe an answer have turns before QPs with requests, until answers have
//! cost a quantum more than requests. Then requests have turns until that is no longer so.
//!
//! An acknowledge therefore does not wait long for requests of other QPs. READ responses, which are
//! answers too, cannot delay requests for ever. A device with work waits for one turn of each other
//! device with work, which is at most a quantum more than that device's weight in quanta.
//!
//! Shows: fairness.

mod delays;
mod holds;
mod save;

use crate::agenda::deadlines::Deadlines;
use crate::agenda::rates::Rates;
use crate::agenda::reorder::ReorderMemory;
use crate::base::dcqcn::Dcqcn;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::collections::flush::Flushes;
use crate::collections::wakes::Wakes;
use crate::objects::qp::Direction;
use crate::objects::roce::early::EarlyMemory;
use core::mem;
use delays::{Delays, Restraints};
pub(crate) use holds::SentIn;
use std::collections::{BTreeSet, VecDeque};
use vrdma_wire::num::Qpn;

/// Cost of a turn: its bytes, and [`OPERATION`] for each operation.
pub(crate) type Cost = u64;

/// Cost of a request or a packet beside its bytes.
pub(crate) const OPERATION: Cost = 512;

/// Bytes after which a QP hands over to the next.
pub(crate) const QP_TURN: u32 = 256 << 10;

/// Long messages are copied in segments of a multiple of this, which is a multiple of every MTU.
pub(crate) const GRAIN: u32 = 4096;
const _: () = assert!(QP_TURN.is_multiple_of(GRAIN));

/// Bytes that posts of a device copy themselves between two calls of
/// [`Engine::poll`](crate::Engine::poll), approximately.
///
/// `poll` then takes over, so that a device that posts much does not delay others. While others
/// wait for a turn, the limit is one quantum.
pub(crate) const WITHIN_POSTS: Cost = 4 << 20;

/// Most packets that a QP of an unreliable service sends in its turn.
pub(crate) const TURN_PACKETS: usize = 64;

/// Credit of a device of weight 1 in each round.
///
/// No turn of a QP may cost more. A debt is then less than a quantum, and no device misses a round.
pub(crate) const QUANTUM: Cost = QP_TURN as Cost + OPERATION;

/// The lowest credit of a device of weight 1. A device with this debt still has a turn in each
/// round.
const DEBT: i64 = 1 - QUANTUM as i64;

/// QPs of a device that wait for a turn in one direction.
#[derive(Default)]
struct TurnQueue {
    /// The first QPs of the queue, which existed when they were last looked up.
    checked: VecDeque<Qpn>,
    /// The other QPs, behind these.
    rest: VecDeque<Qpn>,
    /// Upper bound of the number of destroyed QPs in the queue.
    stale: usize,
}

/// Entries that are looked up when a QP of the queue is destroyed, while many entries are stale.
const LOOKED_UP: usize = 16;

impl TurnQueue {
    fn len(&self) -> usize {
        self.checked.len() + self.rest.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, qpn: Qpn) {
        self.rest.push_back(qpn);
    }

    /// Puts an existing QP before all others.
    fn push_front(&mut self, qpn: Qpn) {
        self.checked.push_front(qpn);
    }

    fn pop(&mut self) -> Option<Qpn> {
        let qpn = self.checked.pop_front().or_else(|| self.rest.pop_front());
        self.stale = self.stale.min(self.len());
        qpn
    }

    fn iter(&self) -> impl Iterator<Item = &Qpn> {
        self.checked.iter().chain(&self.rest)
    }

    /// Removes some entries of destroyed QPs, and returns how many.
    fn forget_some(&mut self, is_there: impl Fn(Qpn) -> bool) -> usize {
        let before = self.len();
        for _ in 0..LOOKED_UP {
            if self.rest.is_empty() {
                // Start again with the first.
                mem::swap(&mut self.checked, &mut self.rest);
            }
            let Some(qpn) = self.rest.pop_front() else { break };
            if is_there(qpn) {
                self.checked.push_back(qpn);
            }
        }
        let forgotten = before - self.len();
        self.stale = self.stale.saturating_sub(forgotten);
        forgotten
    }
}

/// A device's share of turns.
struct Share {
    answers: TurnQueue,
    requests: TurnQueue,
    /// What rates mean for its turns, since it first had to wait for one.
    restraints: Option<Box<Restraints>>,
    /// Whether the device is in the round.
    listed: bool,
    /// Credit per round, as a multiple of [`QUANTUM`].
    weight: u32,
    /// What the device may still spend in this round. A negative value is a debt.
    credit: i64,
    /// By how much its answers have cost more than its requests.
    lead: i64,
    /// Cost of messages that posts carried at once, since the poll with the number `carried_in`.
    carried: Cost,
    carried_in: u64,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            answers: TurnQueue::default(),
            requests: TurnQueue::default(),
            restraints: None,
            listed: false,
            weight: 1,
            credit: 0,
            lead: 0,
            carried: 0,
            carried_in: 0,
        }
    }
}

impl Share {
    /// Returns the direction whose turn is next, or `None` if no QP may have one.
    fn next(&self) -> Option<Direction> {
        let answers = self.answers.is_empty() || self.is_held(Direction::Answers);
        let requests = self.requests.is_empty() || self.is_held(Direction::Requests);
        match (answers, requests) {
            (true, true) => None,
            (true, false) => Some(Direction::Requests),
            (false, true) => Some(Direction::Answers),
            (false, false) if self.lead < QUANTUM as i64 => Some(Direction::Answers),
            (false, false) => Some(Direction::Requests),
        }
    }

    fn queue(&mut self, direction: Direction) -> &mut TurnQueue {
        match direction {
            Direction::Answers => &mut self.answers,
            Direction::Requests => &mut self.requests,
        }
    }

    /// Whether a rate keeps its QPs from turns in a direction.
    #[inline]
    fn is_held(&self, direction: Direction) -> bool {
        self.restraints.as_ref().is_some_and(|restraints| restraints.of(direction).hold.is_some())
    }

    /// Notes that this many entries of a direction have had their turn.
    ///
    /// Entries of destroyed QPs may have left the queue without one.
    #[inline]
    fn passed(&mut self, direction: Direction, count: usize) {
        if self.restraints.is_none() {
            return;
        }
        let left = self.queue(direction).len();
        let restraints = self.restraints.as_mut().expect("it was seen");
        let passes = &mut restraints.of_mut(direction).passes;
        *passes = passes.saturating_sub(count).min(left);
    }

    /// Returns how many entries may have a turn.
    fn entries(&self) -> usize {
        let answers = if self.is_held(Direction::Answers) { 0 } else { self.answers.len() };
        let requests = if self.is_held(Direction::Requests) { 0 } else { self.requests.len() };
        answers + requests
    }

    /// Returns the credit in each round.
    fn quantum(&self) -> Cost {
        QUANTUM * Cost::from(self.weight)
    }

    /// Returns the lowest credit. A device with this debt still has a turn in each round.
    fn debt(&self) -> i64 {
        1 - self.quantum() as i64
    }

    /// Takes a cost from the credit.
    ///
    /// Debt beyond that of a round is forgiven, so that no device misses more than a round.
    fn spend(&mut self, cost: Cost) {
        self.credit = self.credit.saturating_sub_unsigned(cost).max(self.debt());
    }
}

/// Queues of QPs that take turns. Each QP knows in which queues it is, and is in each at most once.
#[derive(Default)]
pub(crate) struct Turns {
    /// Shares by the device's index.
    shares: Vec<Share>,
    /// Devices with waiting QPs, in the order of their turns.
    round: VecDeque<u32>,
    /// Whether the turn of the first device has begun: it has its quantum.
    begun: bool,
    /// Number of entries in all queues that are not held.
    entries: usize,
    /// The holds of all devices, by their ends: device, and whether it is that of answers.
    holds: BTreeSet<(Instant, u32, bool)>,
    /// QPs that wait for a time before they go into their queue.
    later: Delays,
    /// Number of the current [`poll`](crate::Engine::poll), to which posts charge what they carry.
    poll: u64,
    /// Cost of messages that posts of all devices carried at once since that poll.
    carried: Cost,
}

impl Turns {
    /// Sets the weight of a device: its credit in each round, in quanta.
    ///
    /// The round in which the device is goes on with the credit that it has.
    pub(crate) fn set_weight(&mut self, device: u32, weight: u32) {
        let index = device as usize;
        if index >= self.shares.len() {
            self.make_shares(index);
        }
        let share = &mut self.shares[index];
        share.weight = weight;
        share.credit = share.credit.clamp(share.debt(), share.quantum() as i64);
    }

    /// Adds a QP behind the others of its device.
    pub(crate) fn push(&mut self, place: QpRef, direction: Direction) {
        let index = place.device as usize;
        if index >= self.shares.len() {
            self.shares.resize_with(index + 1, Share::default);
        }
        let share = &mut self.shares[index];
        share.queue(direction).push(place.qpn);
        if share.is_held(direction) {
            return;
        }
        self.entries += 1;
        if !share.listed {
            share.listed = true;
            self.round.push_back(place.device);
        }
    }

    /// Removes the QP whose turn it is, and returns it with the direction.
    ///
    /// The QP may have been destroyed. The caller reports what the turn [cost](Turns::spend).
    pub(crate) fn pop(&mut self) -> Option<(QpRef, Direction)> {
        loop {
            let device = *self.round.front()?;
            let share = &mut self.shares[device as usize];
            let Some(direction) = share.next() else {
                // Unused credit is lost, debt is kept.
                share.credit = share.credit.min(0);
                share.listed = false;
                self.next_device();
                continue;
            };
            if !self.begun {
                share.credit = share.credit.saturating_add_unsigned(share.quantum());
                self.begun = true;
            } else if share.credit <= 0 {
                self.round.push_back(device);
                self.next_device();
                continue;
            }
            let qpn = share.queue(direction).pop().expect("a direction is next because somebody waits in it");
            share.passed(direction, 1);
            self.entries -= 1;
            return Some((QpRef { device, qpn }, direction));
        }
    }

    /// Returns the QP of a device that probably has the next turn in a direction.
    ///
    /// A turn in the other direction, or of another device, may come first.
    pub(crate) fn soon(&self, device: u32, direction: Direction) -> Option<Qpn> {
        let Share { answers, requests, .. } = self.shares.get(device as usize)?;
        let queue = if direction == Direction::Answers { answers } else { requests };
        queue.iter().next().copied()
    }

    /// Whether [`Turns::pop`] would find nothing, and change nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.round.is_empty()
    }

    fn next_device(&mut self) {
        self.round.pop_front();
        self.begun = false;
    }

    /// Returns what the device whose turn it is may still spend.
    pub(crate) fn credit(&self, device: u32) -> Cost {
        self.shares[device as usize].credit.max(0) as Cost
    }

    /// Charges the cost of a QP's turn to its device.
    pub(crate) fn spend(&mut self, device: u32, direction: Direction, cost: Cost) {
        let share = &mut self.shares[device as usize];
        share.spend(cost);
        let cost = cost.min(QUANTUM) as i64;
        share.lead = match direction {
            Direction::Answers => (share.lead + cost).min(2 * QUANTUM as i64),
            Direction::Requests => (share.lead - cost).max(0),
        };
    }

    /// Returns the number of entries that may have a turn, including those of destroyed QPs.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Counts a destroyed QP of this queue. Returns true if [`Turns::sweep`] is due.
    pub(crate) fn removed(&mut self, device: u32, direction: Direction) -> bool {
        // The device has a share since the QP was added.
        let queue = self.shares[device as usize].queue(direction);
        queue.stale = (queue.stale + 1).min(queue.len());
        queue.stale > 64 && queue.stale > queue.len() / 2
    }

    /// Removes some entries of destroyed QPs of a device.
    pub(crate) fn sweep(&mut self, device: u32, direction: Direction, is_there: impl Fn(Qpn) -> bool) {
        let share = &mut self.shares[device as usize];
        let forgotten = share.queue(direction).forget_some(is_there);
        share.passed(direction, 0);
        if !share.is_held(direction) {
            self.entries -= forgotten;
        }
    }

    /// Removes a device.
    pub(crate) fn forget(&mut self, device: u32) {
        let Some(share) = self.shares.get_mut(device as usize) else { return };
        self.entries -= share.entries();
        let (restraints, weight) = (share.restraints.take(), share.weight);
        *share = Share { restraints, weight, ..Share::default() };
        self.later.forget(device);
        if self.round.front() == Some(&device) {
            self.begun = false;
        }
        self.round.retain(|&other| other != device);
    }

    /// Whether another device waits for its turn. A device in the round whose last entry was taken
    /// does not wait.
    fn others_wait(&self, share: &Share) -> bool {
        self.entries > 0 && self.entries > share.entries()
    }

    /// Begins a new accounting period. Posts of each device may again carry about `WITHIN_POSTS`
    /// bytes.
    pub(crate) fn begin_poll(&mut self) {
        self.poll += 1;
        self.carried = 0;
    }

    #[cold]
    fn make_shares(&mut self, index: usize) {
        self.shares.resize_with(index + 1, Share::default);
    }

    /// Whether a post of this device may carry its message at once, with `most` bytes allowed
    /// between two polls.
    ///
    /// While others wait, or all devices together have carried `most` bytes, the limit is what the
    /// device has in a round. While others wait, a device with a debt of a round may carry nothing.
    #[inline]
    pub(crate) fn may_carry(&self, device: u32, most: Cost) -> bool {
        let Some(share) = self.shares.get(device as usize) else { return true };
        let contended = self.others_wait(share);
        let most = if contended || self.carried >= most { most.min(share.quantum()) } else { most };
        let carried = if share.carried_in == self.poll { share.carried } else { 0 };
        carried < most && !(contended && share.credit <= share.debt())
    }

    /// Charges a post of this device for the bytes that it moved at once.
    ///
    /// While others wait, the cost is taken from the device's credit.
    #[inline]
    pub(crate) fn carry(&mut self, device: u32, bytes: u32) {
        let index = device as usize;
        if index >= self.shares.len() {
            self.make_shares(index);
        }
        let contended = self.others_wait(&self.shares[index]);
        let share = &mut self.shares[index];
        if share.carried_in != self.poll {
            (share.carried, share.carried_in) = (0, self.poll);
        }
        let cost = Cost::from(bytes) + OPERATION;
        share.carried += cost;
        self.carried += cost;
        if contended {
            share.spend(cost);
        }
    }
}

/// Which QPs have work, and which have deadlines. QPs know of their entries here.
#[derive(Default)]
pub(crate) struct Schedule {
    /// QPs with work that needs no packets.
    pub(crate) local: Turns,
    /// QPs with packets to send.
    pub(crate) wire: Turns,
    pub(crate) deadlines: Deadlines,
    pub(crate) rates: Rates,
    /// Parameters of congestion control, if it is on.
    pub(crate) dcqcn: Option<Dcqcn>,
    /// Memory of packets that came ahead of gaps.
    pub(crate) reorder: ReorderMemory,
    /// Memory of responses that came ahead of missing ones.
    pub(crate) early: EarlyMemory,
    /// QPs whose requests end in slices.
    pub(crate) flushes: Flushes,
    /// Shared queues with receives for waiting senders.
    pub(crate) wakes: Wakes,
}

impl Schedule {
    /// Sets the weight of a device.
    pub(crate) fn set_weight(&mut self, device: u32, weight: u32) {
        self.local.set_weight(device, weight);
        self.wire.set_weight(device, weight);
    }

    /// Removes a device, and returns its deadlines.
    pub(crate) fn forget(&mut self, device: u32) -> BTreeSet<(Instant, Qpn)> {
        self.rates.forget_qps(device);
        self.reorder.forget(device);
        self.local.forget(device);
        self.wire.forget(device);
        self.flushes.forget(device);
        self.wakes.forget(device);
        self.deadlines.forget(device)
    }

    /// Returns the numbers of entries: ready QPs and timers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.local.len() + self.wire.len(), self.deadlines.len())
    }
}

#[cfg(test)]
mod tests;
