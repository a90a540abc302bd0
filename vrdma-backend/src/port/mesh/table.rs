//! Which worker has whom.

use std::collections::HashMap;
use vrdma_wire::num::Mac;

/// The workers of all guests, by their MAC addresses: all are in the configuration.
#[derive(Clone, Debug, Default)]
pub struct WorkerOf(HashMap<Mac, usize>);

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To guests of this worker.
    Worker(usize),
    /// To other hosts.
    Out,
    /// To all of them.
    All,
}

impl WorkerOf {
    /// Adds an address of a guest of this worker.
    pub fn insert(&mut self, mac: Mac, worker: usize) {
        self.0.insert(mac, worker);
    }

    /// All addresses with their workers, in their order.
    pub(super) fn addresses(&self) -> Vec<(Mac, usize)> {
        let mut all: Vec<_> = self.0.iter().map(|(mac, worker)| (*mac, *worker)).collect();
        all.sort_unstable_by_key(|(mac, _)| mac.0);
        all
    }

    /// Where a frame goes, by its destination.
    pub(super) fn place(&self, frame: &[u8]) -> Place {
        // What is shorter is no frame; nobody takes it.
        let Some(&dst) = frame.first_chunk::<6>() else { return Place::Out };
        self.place_of(Mac(dst))
    }

    /// Whether a frame says that a guest of any worker sent it.
    pub(super) fn has_source(&self, frame: &[u8]) -> bool {
        let src = frame.get(6..).and_then(|rest| rest.first_chunk::<6>());
        src.is_some_and(|&src| self.0.contains_key(&Mac(src)))
    }

    /// Where frames to this address go.
    pub(super) fn place_of(&self, dst: Mac) -> Place {
        if dst.0[0] & 1 != 0 {
            return Place::All;
        }
        self.0.get(&dst).map_or(Place::Out, |&worker| Place::Worker(worker))
    }
}
