//! Which QPs have work, and who has the next turn.
//!
//! Devices take turns by deficit round robin: each round gives each the same quantum, in which
//! bytes and operations are counted, and what one turn takes beyond its quantum is missing in the
//! next; within it the device's QPs take turns, those that owe an answer before those with
//! requests, until the answers have cost a quantum more than the requests; then requests, until
//! that is no longer so.
//!
//! So an acknowledge waits for no request of another QP for long, and READ responses, which are
//! answers too, delay no request for ever. A device with work waits for one turn of each other
//! device, which is at most two quanta, and if no other has work, not at all.

mod save;

use crate::agenda::deadlines::Deadlines;
use crate::base::place::Place;
use crate::base::time::Instant;
use crate::collections::flush::Flushes;
use crate::collections::wakes::Wakes;
use crate::objects::qp::Direction;
use core::mem;
use std::collections::{BTreeSet, VecDeque};
use vrdma_wire::num::Qpn;

/// What a turn costs: its bytes, and [`OPERATION`] for each operation.
pub(crate) type Cost = u64;

/// What a request or a packet costs beside its bytes.
pub(crate) const OPERATION: Cost = 512;

/// A QP hands over to the next after so many bytes.
pub(crate) const QP_TURN: u32 = 256 << 10;

/// Posts of a device copy about so many bytes between two calls of
/// [`Engine::poll`](crate::Engine::poll), which then takes over: a device that posts much shall not
/// delay others. While others wait for a turn, it is what one turn gives.
pub(crate) const WITHIN_POSTS: Cost = 4 << 20;

/// Most packets of a QP of an unreliable service in its turn: then others have theirs.
pub(crate) const TURN_PACKETS: usize = 64;

/// What a device of weight 1 gets in each round. No turn of a QP may cost more: then a debt is less
/// than a quantum, and no device misses a round.
pub(crate) const QUANTUM: Cost = QP_TURN as Cost + OPERATION;

/// The lowest credit there is: then a device has a turn in each round still.
const DEBT: i64 = 1 - QUANTUM as i64;

/// QPs of a device that wait for a turn.
#[derive(Default)]
struct TurnQueue {
    /// The first of them, which existed when they were looked up last.
    checked: VecDeque<Qpn>,
    /// The others, behind them.
    rest: VecDeque<Qpn>,
    /// How many of them were destroyed, at most.
    stale: usize,
}

/// Entries that are looked up when a QP of a queue is destroyed, while many of the queue are stale.
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

    fn pop(&mut self) -> Option<Qpn> {
        let qpn = self.checked.pop_front().or_else(|| self.rest.pop_front());
        self.stale = self.stale.min(self.len());
        qpn
    }

    fn iter(&self) -> impl Iterator<Item = &Qpn> {
        self.checked.iter().chain(&self.rest)
    }

    /// Forgets some of those that were destroyed; how many.
    fn forget_some(&mut self, is_there: impl Fn(Qpn) -> bool) -> usize {
        let before = self.len();
        for _ in 0..LOOKED_UP {
            if self.rest.is_empty() {
                // From the first again.
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

/// A device's share. Limits of rates, and weights other than 1, would change what it is credited
/// with, and when.
struct Share {
    answers: TurnQueue,
    requests: TurnQueue,
    /// It is in the round.
    listed: bool,
    /// Its part of a round, as a multiple of [`QUANTUM`].
    weight: u32,
    /// What it may still spend in this round; below zero, what it owes.
    credit: i64,
    /// What its answers have cost more than its requests.
    lead: i64,
    /// What posts carried at once since the poll with the number `carried_in`.
    carried: Cost,
    carried_in: u64,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            answers: TurnQueue::default(),
            requests: TurnQueue::default(),
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
    /// The direction that is next; `None` if nothing waits.
    fn next(&self) -> Option<Direction> {
        match (self.answers.is_empty(), self.requests.is_empty()) {
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

    /// Takes from its credit. What is beyond a quantum is forgiven, so that no device misses more
    /// than a round.
    fn spend(&mut self, cost: Cost) {
        self.credit = self.credit.saturating_sub_unsigned(cost).max(DEBT);
    }
}

/// QPs that take turns. Each knows in which queues it is, and is in each at most once.
#[derive(Default)]
pub(crate) struct Turns {
    /// By the device's index.
    shares: Vec<Share>,
    /// Devices with entries, in the order of their turns.
    round: VecDeque<u32>,
    /// The turn of the first of them has begun: it has its quantum.
    begun: bool,
    /// Entries of all queues.
    entries: usize,
    /// Number of this [`poll`](crate::Engine::poll), for what posts carry.
    poll: u64,
    /// What posts of all devices carried at once since then.
    carried: Cost,
}

impl Turns {
    /// Adds a QP behind the others of its device.
    pub(crate) fn push(&mut self, place: Place, direction: Direction) {
        let index = place.device as usize;
        if index >= self.shares.len() {
            self.shares.resize_with(index + 1, Share::default);
        }
        let share = &mut self.shares[index];
        share.queue(direction).push(place.qpn);
        self.entries += 1;
        if !share.listed {
            share.listed = true;
            self.round.push_back(place.device);
        }
    }

    /// Takes the QP whose turn it is, and what for; it may have been destroyed. The caller says
    /// what the turn [`cost`](Turns::spend).
    pub(crate) fn pop(&mut self) -> Option<(Place, Direction)> {
        loop {
            let device = *self.round.front()?;
            let share = &mut self.shares[device as usize];
            let Some(direction) = share.next() else {
                // What it did not use is lost, what it owes is not.
                share.credit = share.credit.min(0);
                share.listed = false;
                self.next_device();
                continue;
            };
            if !self.begun {
                share.credit = share.credit.saturating_add_unsigned(QUANTUM * u64::from(share.weight));
                self.begun = true;
            } else if share.credit <= 0 {
                self.round.push_back(device);
                self.next_device();
                continue;
            }
            let qpn = share.queue(direction).pop().expect("a direction is next because somebody waits in it");
            self.entries -= 1;
            return Some((Place { device, qpn }, direction));
        }
    }

    /// The QP of a device that has the next turn in a direction, unless the other direction, or
    /// another device, comes between.
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

    /// What the device whose turn it is may still spend.
    pub(crate) fn credit(&self, device: u32) -> Cost {
        self.shares[device as usize].credit.max(0) as Cost
    }

    /// The turn that a QP of this device had has cost so much.
    pub(crate) fn spend(&mut self, device: u32, direction: Direction, cost: Cost) {
        let share = &mut self.shares[device as usize];
        share.spend(cost);
        let cost = cost.min(QUANTUM) as i64;
        share.lead = match direction {
            Direction::Answers => (share.lead + cost).min(2 * QUANTUM as i64),
            Direction::Requests => (share.lead - cost).max(0),
        };
    }

    /// How many wait for their turn, or did and were destroyed.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// A QP of this queue was destroyed. True if so many were that [`Turns::sweep`] is due.
    pub(crate) fn removed(&mut self, device: u32, direction: Direction) -> bool {
        // It has a share since the QP was added.
        let queue = self.shares[device as usize].queue(direction);
        queue.stale = (queue.stale + 1).min(queue.len());
        queue.stale > 64 && queue.stale > queue.len() / 2
    }

    /// Forgets some of those of a device that were destroyed.
    pub(crate) fn sweep(&mut self, device: u32, direction: Direction, is_there: impl Fn(Qpn) -> bool) {
        self.entries -= self.shares[device as usize].queue(direction).forget_some(is_there);
    }

    /// Forgets a device.
    pub(crate) fn forget(&mut self, device: u32) {
        let Some(share) = self.shares.get_mut(device as usize) else { return };
        let gone = mem::take(share);
        self.entries -= gone.answers.len() + gone.requests.len();
        if self.round.front() == Some(&device) {
            self.begun = false;
        }
        self.round.retain(|&other| other != device);
    }

    /// Whether another device waits for its turn. One in the round whose last entry was taken does
    /// not.
    fn others_wait(&self, share: &Share) -> bool {
        self.entries > 0 && self.entries > share.answers.len() + share.requests.len()
    }

    /// Posts may carry anew: about `WITHIN_POSTS` bytes of each device until the next poll.
    pub(crate) fn begin_poll(&mut self) {
        self.poll += 1;
        self.carried = 0;
    }

    #[cold]
    fn make_shares(&mut self, index: usize) {
        self.shares.resize_with(index + 1, Share::default);
    }

    /// Whether a post of this device may carry its message at once, of `most` bytes between two
    /// polls. While others wait, or all devices together have carried as much, it is one quantum;
    /// while others wait, nothing once its debt is a round's.
    #[inline]
    pub(crate) fn may_carry(&self, device: u32, most: Cost) -> bool {
        let Some(share) = self.shares.get(device as usize) else { return true };
        let contended = self.others_wait(share);
        let most = if contended || self.carried >= most { most.min(QUANTUM) } else { most };
        let carried = if share.carried_in == self.poll { share.carried } else { 0 };
        carried < most && !(contended && share.credit <= DEBT)
    }

    /// A post of this device tried to carry its message at once, and moved so many bytes. While
    /// others wait, its device pays for it.
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

/// Which QPs have work, and which deadlines. QPs know of their entries here.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Those with work that needs no packets.
    pub(crate) local: Turns,
    /// Those with packets to send.
    pub(crate) wire: Turns,
    pub(crate) deadlines: Deadlines,
    /// Those whose requests end in slices.
    pub(crate) flushes: Flushes,
    /// Shared queues with receives for those who wait.
    pub(crate) wakes: Wakes,
}

impl Schedule {
    /// Forgets a device; returns the deadlines that it had.
    pub(crate) fn forget(&mut self, device: u32) -> BTreeSet<(Instant, Qpn)> {
        self.local.forget(device);
        self.wire.forget(device);
        self.flushes.forget(device);
        self.wakes.forget(device);
        self.deadlines.forget(device)
    }

    /// How many entries there are: ready and timers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.local.len() + self.wire.len(), self.deadlines.len())
    }
}

#[cfg(test)]
mod tests;
