//! All connections of a host, its listeners, and segments of no connection.

mod cookies;
mod limits;
mod strangers;
mod time_wait;

pub use limits::{Refused, StackCounters, StackLimits};

use crate::config::Config;
use crate::connection::{Connection, Event, Ports, Reason, State};
use crate::counters::Totals;
use crate::initial::Secret;
use crate::output::{Segment, Source};
use crate::reassembly::Arrival;
use crate::table::{ConnectionId, ConnectionLines, Table};
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple, is_unicast};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vrdma_wire::num::{Gid, VlanId};
use vrdma_wire::tcp::Header;

/// With this many queued answers, no RST for a segment of no connection is added.
const RESETS: usize = 64;
/// Maximum number of queued RSTs and cookies together.
const ANSWERS: usize = 256;

/// A listener: it waits for connections at a port.
struct Listener {
    config: Arc<Config>,
    backlog: usize,
    /// Its connections that are not set up, oldest first. Some may be gone.
    half_open: VecDeque<ConnectionId>,
}

/// The streams of all connections; see [`Source`].
pub trait Sources {
    /// Returns [`Source::segment_at`] of a connection.
    fn segment_at(&mut self, id: ConnectionId, offset: u64, most: u32) -> u32;

    /// Returns [`Source::is_whole`] of a connection.
    fn is_whole(&mut self, id: ConnectionId, stretch: core::ops::Range<u64>) -> bool {
        let _ = (id, stretch);
        false
    }
}

struct SourceOf<'a, S>(ConnectionId, &'a mut S);

impl<S: Sources> Source for SourceOf<'_, S> {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        self.1.segment_at(self.0, offset, most)
    }

    fn is_whole(&mut self, stretch: core::ops::Range<u64>) -> bool {
        self.1.is_whole(self.0, stretch)
    }
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

/// The source and destination of an arriving segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The address of the peer.
    pub remote: Gid,
    /// The address of this end.
    pub local: Gid,
    /// The next hop of answers.
    pub hop: NextHop,
}

/// The TCP connections and listeners of a host, with their timers and events.
pub struct Stack {
    secret: Secret,
    limits: StackLimits,
    /// The most recent configuration, shared by connections with an equal one.
    config: Arc<Config>,
    table: Table,
    listeners: BTreeMap<([u8; 16], u16), Listener>,
    /// Connections in TIME-WAIT, oldest first.
    waiting: VecDeque<ConnectionId>,
    /// RSTs and cookies that answer segments of no connection.
    answers: VecDeque<Outgoing>,
    /// When the last cookie was sent.
    cookie_sent: Option<Instant>,
    events: VecDeque<(ConnectionId, Event)>,
    counters: StackCounters,
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

    /// Returns whether a segment with this tuple and VLAN is for a connection or a listener of this
    /// stack.
    pub fn takes(&self, tuple: &Tuple, vlan: VlanId) -> bool {
        match self.table.find(tuple).and_then(|id| self.table.get(id)) {
            Some(entry) => VlanId::of(entry.hop.vlan) == vlan,
            None => self.listener_of(tuple).is_some(),
        }
    }

    /// Returns whether there is a connection with this tuple.
    pub fn has(&self, tuple: &Tuple) -> bool {
        self.table.find(tuple).is_some()
    }

    /// Begins a connection.
    ///
    /// A connection in TIME-WAIT with the same tuple gives way if both it and the new one use
    /// timestamps.
    ///
    /// # Errors
    /// [`Refused::InUse`]: there is another connection with this tuple.
    /// [`Refused::Full`]: the limit of connections is reached.
    /// [`Refused::Address`]: the remote address is not a unicast address.
    pub fn connect(
        &mut self,
        tuple: Tuple,
        hop: NextHop,
        config: Config,
        now: Instant,
    ) -> Result<ConnectionId, Refused> {
        let (number, clock) = (self.secret.number(&tuple, now), self.secret.clock(&tuple));
        let config = self.share(config);
        let former = self.take_place_of_waiting(&tuple, &config);
        let initial = former.map_or(number, |former| former.initial);
        let mut connection = Connection::connect(config, tuple.ports, initial, clock, now);
        connection.former_stamp = former.map(|former| former.stamp);
        self.adopt(tuple, hop, connection)
    }

    /// Returns a shared configuration. Most connections have equal ones.
    fn share(&mut self, config: Config) -> Arc<Config> {
        if *self.config != config {
            self.config = Arc::new(config);
        }
        self.config.clone()
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

    /// Handles a segment with a correct checksum; see [`Connection::handle_segment`].
    ///
    /// Returns the connection of the segment. A SYN that begins a connection has none yet.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        origin: Origin,
        header: &Header,
        length: usize,
        take: &mut impl FnMut(ConnectionId, Arrival) -> usize,
    ) -> Option<ConnectionId> {
        let Origin { remote, local, hop } = origin;
        let tuple = Tuple { local, remote, ports: Ports { local: header.dst_port, remote: header.src_port } };
        if !is_unicast(remote) {
            self.counters.bad_address += 1;
            return None;
        }
        let mut found = self.table.find(&tuple);
        let mut initial = None;
        if let Some(id) = found {
            initial = self.get(id).and_then(|connection| connection.may_begin_anew(header));
            if initial.is_some() && self.listener_of(&tuple).is_some() {
                self.give_way(id);
                found = None;
            }
        }
        match found {
            Some(id) => {
                let entry = self.table.get_mut(id).expect("what has a tuple is there");
                entry.connection.handle_segment(now, header, length, &mut |arrival| take(id, arrival));
                self.settle(id);
            }
            None => {
                found = self.take_cookie(now, (tuple, hop), header);
                match found {
                    Some(id) => self.handle_first(now, id, header, length, take),
                    None => self.handle_for_nobody(now, (tuple, hop), header, length, initial),
                }
            }
        }
        found
    }

    /// Takes a connection's events after a call of it, and updates the lists that it is in.
    fn settle(&mut self, id: ConnectionId) {
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

    /// Calls [`Connection::handle_too_long`] of the connection with this tuple and VLAN.
    ///
    /// Returns false if there is none, too.
    pub fn handle_too_long(&mut self, tuple: &Tuple, vlan: VlanId, number: u32, mss: u16) -> bool {
        let is_its =
            |id: &ConnectionId| self.table.get(*id).is_some_and(|entry| VlanId::of(entry.hop.vlan) == vlan);
        let Some(id) = self.table.find(tuple).filter(is_its) else { return false };
        let mut counts = false;
        self.change(id, |connection| counts = connection.handle_too_long(number, mss));
        counts
    }

    /// Returns when [`handle_timeout`](Stack::handle_timeout) is due. It may find nothing to do
    /// then.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeouts(now, usize::MAX);
    }

    /// Handles timers of at most `most` connections, and returns of how many it did.
    ///
    /// If more are due, [`poll_timeout`](Stack::poll_timeout) returns a time that has come.
    pub fn handle_timeouts(&mut self, now: Instant, most: usize) -> usize {
        for done in 0..most {
            let Some(id) = self.table.pop_due(now) else { return done };
            self.change(id, |connection| connection.handle_timeout(now));
        }
        most
    }

    /// Takes the next event, in order. A connection is removed after its [`Event::Closed`] was
    /// taken.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        let (id, event) = self.events.pop_front()?;
        if matches!(event, Event::Closed(_)) {
            self.drop_closed(id);
        }
        Some((id, event))
    }

    /// Removes a connection that has ended, but not before its RST was sent.
    fn drop_closed(&mut self, id: ConnectionId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.forgotten = true;
        if entry.connection.due.reset.is_none() {
            self.table.remove(id);
        }
    }

    /// Takes the next segment to send, from the connections in turn.
    pub fn poll_transmit(&mut self, now: Instant, sources: &mut impl Sources) -> Option<Outgoing> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        while let Some(id) = self.table.pop_ready() {
            let entry = self.table.get_mut(id).expect("what is ready is there");
            let (tuple, hop) = (entry.tuple, entry.hop);
            let traffic_class = entry.connection.config.traffic_class;
            let segment = entry.connection.poll_transmit(now, &mut SourceOf(id, sources));
            if let Some(segment) = segment {
                self.settle(id);
                return Some(Outgoing { id: Some(id), tuple, hop, traffic_class, segment });
            }
            // The connection may have a new deadline, although it sent nothing.
            self.table.rests(id);
            if self.table.get(id).is_some_and(|entry| entry.forgotten) {
                self.table.remove(id);
            }
        }
        None
    }
}
