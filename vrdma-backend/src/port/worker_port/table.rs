//! Finds the worker of a MAC address.

use std::collections::HashMap;
use vrdma_wire::num::Mac;

/// The workers of all guests by MAC address. It is replaced when a guest comes or leaves.
#[derive(Clone, Debug, Default)]
pub struct WorkerOf(HashMap<Mac, usize>);

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The guests of this worker.
    Worker(usize),
    /// Other hosts.
    Out,
    /// All workers, and other hosts.
    All,
}

impl WorkerOf {
    /// Adds an address of a guest that this worker serves.
    pub fn insert(&mut self, mac: Mac, worker: usize) {
        self.0.insert(mac, worker);
    }

    /// Returns all addresses with their workers, sorted by address.
    pub(super) fn addresses(&self) -> Vec<(Mac, usize)> {
        let mut all: Vec<_> = self.0.iter().map(|(mac, worker)| (*mac, *worker)).collect();
        all.sort_unstable_by_key(|(mac, _)| mac.0);
        all
    }

    /// Returns where a frame goes, by its destination address.
    pub(super) fn place(&self, frame: &[u8]) -> Destination {
        // Anything shorter is no frame, and nobody takes it.
        let Some(&dst) = frame.first_chunk::<6>() else { return Destination::Out };
        self.place_of(Mac(dst))
    }

    /// Whether the frame's source address is that of a guest of any worker.
    pub(super) fn has_source(&self, frame: &[u8]) -> bool {
        let src = frame.get(6..).and_then(|rest| rest.first_chunk::<6>());
        src.is_some_and(|&src| self.0.contains_key(&Mac(src)))
    }

    /// Returns where frames to this address go.
    pub(super) fn place_of(&self, dst: Mac) -> Destination {
        if dst.0[0] & 1 != 0 {
            return Destination::All;
        }
        self.0.get(&dst).map_or(Destination::Out, |&worker| Destination::Worker(worker))
    }
}
