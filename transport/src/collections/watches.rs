//! Nodes of a pool that are watched: somebody measures the time until they leave their list.
//!
//! The notes are apart from the nodes, because a node has no room for a time.

use crate::base::time::Instant;
use crate::collections::pool::At;

/// Most nodes that are watched at the same time.
pub(crate) const MOST: usize = 64;

/// The watched nodes of a pool, each with the time since when it is watched.
#[derive(Default)]
pub(crate) struct Watches(Vec<(At, Instant)>);

impl Watches {
    /// Notes a node that is not watched yet. Returns false if there is no room.
    pub(crate) fn begin(&mut self, at: At, since: Instant) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push((at, since));
        }
        has_room
    }

    /// Forgets a watched node, which leaves its list. Returns since when it was watched.
    #[cold]
    pub(crate) fn end(&mut self, at: At) -> Instant {
        let position = self.0.iter().position(|(node, _)| *node == at);
        self.0.swap_remove(position.expect("each node with the mark is noted, once")).1
    }

    /// Returns how many nodes are watched.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
