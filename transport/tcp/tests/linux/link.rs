//! A simulated link to a host, with the faults of networks.

use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The properties of a path. Probabilities are in 100,000ths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub loss: u32,
    /// The probability that a packet is delayed by up to `late` more than others.
    pub reordering: u32,
    pub late: Duration,
    pub duplication: u32,
    /// The delay of each packet.
    pub delay: Duration,
    /// The rate of the slowest link, in bytes per second; 0 for any.
    pub rate: u64,
    /// The bytes that may be queued for it. Packets beyond that are lost.
    pub queue: u64,
    /// Longer packets are silently dropped; 0 for none.
    pub longest: usize,
}

/// A packet in flight: the time of its arrival, its number, and its bytes.
type Due = Reverse<(u64, u64, Vec<u8>)>;

/// A link in one direction. Times are in nanoseconds.
pub struct Link {
    path: Path,
    rng: Rng,
    on_their_way: BinaryHeap<Due>,
    /// When all queued packets have left.
    busy_until: u64,
    /// The number of the latest packet.
    number: u64,
}

impl Link {
    pub fn new(path: Path, seed: u64) -> Link {
        Link { path, rng: Rng(seed), on_their_way: BinaryHeap::new(), busy_until: 0, number: 0 }
    }

    pub fn push(&mut self, now: u64, packet: &[u8]) {
        let Path { loss, reordering, late, duplication, delay, rate, queue, longest } = self.path;
        if self.rng.chance(loss) || longest > 0 && packet.len() > longest {
            return;
        }
        for _ in 0..1 + u32::from(self.rng.chance(duplication)) {
            let length = packet.len() as u64;
            let nanoseconds = |bytes: u64| (bytes * 1_000_000_000).checked_div(rate).unwrap_or(0);
            let begin = self.busy_until.max(now);
            if rate > 0 && begin - now > nanoseconds(queue) {
                return;
            }
            self.busy_until = begin + nanoseconds(length);
            let mut due = self.busy_until + delay.as_nanos() as u64;
            if self.rng.chance(reordering) {
                due += self.rng.next() % late.as_nanos() as u64;
            }
            self.number += 1;
            self.on_their_way.push(Reverse((due, self.number, packet.to_vec())));
        }
    }

    /// Takes a packet that has arrived.
    pub fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.on_their_way.pop().map(|Reverse((_, _, packet))| packet)
    }

    /// Returns when the next packet arrives.
    pub fn next(&self) -> Option<u64> {
        self.on_their_way.peek().map(|Reverse((due, ..))| *due)
    }
}
