//! Replacement of connections in TIME-WAIT by new ones.

use super::{ConnectionId, Stack};
use crate::config::Config;
use crate::connection::{Reason, State};
use crate::time_wait::Former;
use crate::tuple::Tuple;

impl Stack {
    /// Returns whether there is a connection with this tuple that is not in TIME-WAIT.
    pub fn has_alive(&self, tuple: &Tuple) -> bool {
        let found = self.table.find(tuple).and_then(|id| self.get(id));
        found.is_some_and(|connection| connection.state() != State::TimeWait)
    }

    /// Ends a connection in TIME-WAIT with this tuple, if it may give way to one that this end
    /// begins.
    ///
    /// Returns what the new connection has to know of it.
    pub(super) fn take_place_of_waiting(&mut self, tuple: &Tuple, config: &Config) -> Option<Former> {
        let id = self.table.find(tuple)?;
        let former = self.get(id)?.may_give_way(config)?;
        self.give_way(id);
        Some(former)
    }

    /// Ends a connection in TIME-WAIT early.
    pub(super) fn give_way(&mut self, id: ConnectionId) {
        self.change(id, |connection| connection.end(Reason::Finished));
        self.drop_closed(id);
    }
}
