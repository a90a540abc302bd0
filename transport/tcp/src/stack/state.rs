//! The state of a stack, and the steps that several of its parts need.

use super::limits::{Refused, StackCounters, StackLimits};
use crate::config::Config;
use crate::connection::{Connection, Event, Reason, State};
use crate::counters::Totals;
use crate::initial::Secret;
use crate::output::Segment;
use crate::table::{ConnectionId, ConnectionLines, Table};
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple, is_unicast};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// With this many queued answers, no RST for a segment of no connection is added.
pub(super) const RESETS: usize = 64;
/// Maximum number of queued RSTs and cookies together.
pub(super) const ANSWERS: usize = 256;

/// A listener: it waits for connections at a port.
pub(super) struct Listener {
    pub(super) config: Arc<Config>,
    pub(super) backlog: usize,
    /// Its connections that are not set up, oldest first. Some may be gone.
    pub(super) half_open: VecDeque<ConnectionId>,
}

/// A segment to send, and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The connection; `None` for an answer to a segment of no connection.
    pub id: Option<ConnectionId>,
    /// The addresses and ports.
    pub tuple: Tuple,
    /// The next hop.
    pub hop: NextHop,
    /// The DS field of its packet ([`Config::traffic_class`]).
    pub traffic_class: u8,
    /// The segment.
    pub segment: Segment,
}

/// The TCP connections and listeners of a host, with their timers and events.
pub struct Stack {
    pub(super) secret: Secret,
    pub(super) limits: StackLimits,
    /// The most recent configuration, shared by connections with an equal one.
    pub(super) config: Arc<Config>,
    pub(super) table: Table,
    pub(super) listeners: BTreeMap<([u8; 16], u16), Listener>,
    /// Connections in TIME-WAIT, oldest first.
    pub(super) waiting: VecDeque<ConnectionId>,
    /// RSTs and cookies that answer segments of no connection.
    pub(super) answers: VecDeque<Outgoing>,
    /// When the last cookie was sent.
    pub(super) cookie_sent: Option<Instant>,
    pub(super) events: VecDeque<(ConnectionId, Event)>,
    pub(super) counters: StackCounters,
}

impl Stack {
    /// Creates a stack without connections. The secret must be random.
    #[must_use]
    pub fn new(secret: [u64; 2], limits: StackLimits) -> Stack {
        Stack {
            secret: Secret(secret),
            limits,
            config: Arc::default(),
            table: Table::new(Secret(secret)),
            listeners: BTreeMap::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            cookie_sent: None,
            events: VecDeque::new(),
            counters: StackCounters::default(),
        }
    }

    /// Returns the counters of segments that belong to no connection.
    pub fn counters(&self) -> StackCounters {
        self.counters
    }

    /// Returns the counters of all connections, including removed ones.
    pub fn totals(&self) -> Totals {
        self.table.totals()
    }

    /// Returns how many deadlines are filed.
    #[cfg(test)]
    pub(crate) fn filed(&self) -> usize {
        self.table.filed()
    }

    /// Returns the number of connections, including half-open ones and those in TIME-WAIT.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Returns a connection; `None` if it has ended and the user was told.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(id).map(|entry| &entry.connection)
    }

    /// Returns the memory of a connection, for prefetching only. It must not be read: the
    /// connection may go.
    pub fn lines(&self, id: ConnectionId) -> Option<ConnectionLines> {
        self.table.lines(id)
    }

    /// Returns the connection that most likely has this tuple, and its memory, for prefetching.
    ///
    /// It may be another connection, because the connection itself is not read.
    pub fn lines_of(&self, tuple: &Tuple) -> Option<(ConnectionId, ConnectionLines)> {
        let id = self.table.hint(tuple)?;
        Some((id, self.table.lines(id)?))
    }

    /// Returns the addresses and ports of a connection.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.table.get(id).map(|entry| entry.tuple)
    }

    /// Returns whether there is a connection with this tuple.
    pub fn has(&self, tuple: &Tuple) -> bool {
        self.table.find(tuple).is_some()
    }

    /// Takes over a connection that was saved and restored.
    pub fn adopt(
        &mut self,
        tuple: Tuple,
        hop: NextHop,
        connection: Connection,
    ) -> Result<ConnectionId, Refused> {
        if !is_unicast(tuple.remote) {
            return Err(Refused::Address);
        }
        if self.table.find(&tuple).is_some() {
            return Err(Refused::InUse);
        }
        if self.table.len() >= self.limits.connections {
            return Err(Refused::Full);
        }
        Ok(self.table.insert((tuple, hop), connection, false))
    }

    /// Changes a connection, for instance by [`Connection::close`]. Returns false if it does not
    /// exist.
    pub fn change(&mut self, id: ConnectionId, change: impl FnOnce(&mut Connection)) -> bool {
        let Some(entry) = self.table.get_mut(id) else { return false };
        change(&mut entry.connection);
        self.settle(id);
        true
    }

    /// Notes that a connection has more to send.
    pub fn post(&mut self, id: ConnectionId) {
        self.table.touched(id);
    }

    /// Returns a shared configuration. Most connections have equal ones.
    pub(super) fn share(&mut self, config: Config) -> Arc<Config> {
        if *self.config != config {
            self.config = Arc::new(config);
        }
        self.config.clone()
    }

    /// Takes a connection's events after a call of it, and updates the lists that it is in.
    pub(super) fn settle(&mut self, id: ConnectionId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let mut is_opened = false;
        while let Some(event) = entry.connection.poll_event() {
            is_opened |= event == Event::Established;
            // The user does not know a connection that was never set up.
            if !entry.half_open || is_opened {
                self.events.push_back((id, event));
            }
        }
        if is_opened {
            self.table.opened(id);
        }
        let Some(entry) = self.table.get_mut(id) else { return };
        let begins_to_wait = entry.connection.state() == State::TimeWait && !entry.waits;
        entry.waits |= begins_to_wait;
        let was_never_set_up = entry.half_open && entry.connection.state() == State::Closed;
        self.table.touched(id);
        if begins_to_wait {
            self.wait(id);
        }
        if was_never_set_up {
            self.drop_closed(id);
        }
    }

    fn wait(&mut self, id: ConnectionId) {
        self.waiting.push_back(id);
        if self.waiting.len() <= self.limits.time_wait {
            return;
        }
        let table = &self.table;
        self.waiting.retain(|id| table.get(*id).is_some_and(|entry| entry.waits));
        if self.waiting.len() > self.limits.time_wait
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.counters.short_wait += 1;
            self.change(oldest, |connection| connection.end(Reason::Finished));
        }
    }

    /// Removes a connection that has ended, but not before its RST was sent.
    pub(super) fn drop_closed(&mut self, id: ConnectionId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.forgotten = true;
        if entry.connection.due.reset.is_none() {
            self.table.remove(id);
        }
    }
}
