//! All connections of a host: whose a segment is, listeners, and what belongs to no connection.

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

/// Most RSTs that wait to be sent to those who have no connection,
const RESETS: usize = 64;
/// and most of these and of cookies.
const ANSWERS: usize = 256;

/// Who waits for connections at a port.
struct Listener {
    config: Arc<Config>,
    backlog: usize,
    /// Those that came and are not set up, oldest first; some may be gone.
    half_open: VecDeque<ConnectionId>,
}

/// Where the streams of connections come from; see [`Source`].
pub trait Sources {
    /// [`Source::segment_at`] of a connection.
    fn segment_at(&mut self, id: ConnectionId, offset: u64, most: u32) -> u32;

    /// [`Source::is_whole`] of a connection.
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

/// A segment to send, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The connection; none for an answer to a stranger.
    pub id: Option<ConnectionId>,
    /// Between whom.
    pub tuple: Tuple,
    /// By whom.
    pub hop: NextHop,
    /// The DS field of its packet ([`Config::traffic_class`]).
    pub traffic_class: u8,
    /// The segment.
    pub segment: Segment,
}

/// Where a segment came from, and whom it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address of the peer.
    pub remote: Gid,
    /// Address of this end.
    pub local: Gid,
    /// The way back.
    pub hop: NextHop,
}

/// Connections, listeners, and what is due.
pub struct Stack {
    secret: Secret,
    limits: StackLimits,
    /// What the last one was told that began here.
    config: Arc<Config>,
    table: Table,
    listeners: BTreeMap<([u8; 16], u16), Listener>,
    /// Those in TIME-WAIT, oldest first.
    waiting: VecDeque<ConnectionId>,
    /// RSTs and cookies for those who have no connection.
    answers: VecDeque<Outgoing>,
    /// When a cookie was sent last.
    cookie_sent: Option<Instant>,
    events: VecDeque<(ConnectionId, Event)>,
    counters: StackCounters,
}

impl Stack {
    /// A stack without connections. The secret is random.
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

    /// Its counters.
    pub fn counters(&self) -> StackCounters {
        self.counters
    }

    /// What happened to its connections, those that are gone included.
    pub fn totals(&self) -> Totals {
        self.table.totals()
    }

    /// How many deadlines are filed.
    #[cfg(test)]
    pub(crate) fn filed(&self) -> usize {
        self.table.filed()
    }

    /// How many connections there are, half open and in TIME-WAIT too.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// A connection; none if it is over and the user knows.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(id).map(|entry| &entry.connection)
    }

    /// Where a connection is in memory, to be fetched ahead, not read: it may go.
    pub fn lines(&self, id: ConnectionId) -> Option<ConnectionLines> {
        self.table.lines(id)
    }

    /// The same of the connection between these. It may be another one, since it is not looked at.
    pub fn lines_of(&self, tuple: &Tuple) -> Option<(ConnectionId, ConnectionLines)> {
        let id = self.table.hint(tuple)?;
        Some((id, self.table.lines(id)?))
    }

    /// Between whom a connection is.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.table.get(id).map(|entry| entry.tuple)
    }

    /// Whether a segment between these, in this VLAN, is for a connection or a listener of this
    /// stack.
    pub fn takes(&self, tuple: &Tuple, vlan: VlanId) -> bool {
        match self.table.find(tuple).and_then(|id| self.table.get(id)) {
            Some(entry) => VlanId::of(entry.hop.vlan) == vlan,
            None => self.listener_of(tuple).is_some(),
        }
    }

    /// Whether there is a connection between these.
    pub fn has(&self, tuple: &Tuple) -> bool {
        self.table.find(tuple).is_some()
    }

    /// Begins a connection. One in TIME-WAIT between the same ends gives way if it has timestamps,
    /// and the new one offers them.
    ///
    /// # Errors
    /// [`Refused::InUse`]: there is another connection between these. [`Refused::Full`]: there are
    /// as many as there may be. [`Refused::Address`]: no host has the remote address.
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

    /// What connections are told, mostly all the same.
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

    /// Does something to a connection, such as [`Connection::close`]. False if there is none.
    pub fn change(&mut self, id: ConnectionId, change: impl FnOnce(&mut Connection)) -> bool {
        let Some(entry) = self.table.get_mut(id) else { return false };
        change(&mut entry.connection);
        self.settle(id);
        true
    }

    /// A connection has more to send.
    pub fn post(&mut self, id: ConnectionId) {
        self.table.touched(id);
    }

    /// A segment with a right checksum arrived; see [`Connection::handle_segment`]. Returns the
    /// connection that it was for; one that a SYN begins is none yet.
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

    /// After a call of a connection: its events, and where it is listed.
    fn settle(&mut self, id: ConnectionId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let mut is_opened = false;
        while let Some(event) = entry.connection.poll_event() {
            is_opened |= event == Event::Established;
            // Nobody knows of one that was never set up.
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

    /// [`Connection::handle_too_long`] of the connection between these, in this VLAN. False if
    /// there is none, too.
    pub fn handle_too_long(&mut self, tuple: &Tuple, vlan: VlanId, number: u32, mss: u16) -> bool {
        let is_its =
            |id: &ConnectionId| self.table.get(*id).is_some_and(|entry| VlanId::of(entry.hop.vlan) == vlan);
        let Some(id) = self.table.find(tuple).filter(is_its) else { return false };
        let mut counts = false;
        self.change(id, |connection| counts = connection.handle_too_long(number, mss));
        counts
    }

    /// When [`handle_timeout`](Stack::handle_timeout) is due; it may be called for nothing then.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Does all that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeouts(now, usize::MAX);
    }

    /// Does what is due of at most so many connections; of how many it was. If there are more,
    /// [`poll_timeout`](Stack::poll_timeout) says so.
    pub fn handle_timeouts(&mut self, now: Instant, most: usize) -> usize {
        for done in 0..most {
            let Some(id) = self.table.pop_due(now) else { return done };
            self.change(id, |connection| connection.handle_timeout(now));
        }
        most
    }

    /// What a user has to know, in order. A connection is forgotten after its [`Event::Closed`] was
    /// taken.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        let (id, event) = self.events.pop_front()?;
        if matches!(event, Event::Closed(_)) {
            self.drop_closed(id);
        }
        Some((id, event))
    }

    /// Forgets a connection that is over, but not before its RST was sent.
    fn drop_closed(&mut self, id: ConnectionId) {
        let Some(entry) = self.table.get_mut(id) else { return };
        entry.forgotten = true;
        if entry.connection.due.reset.is_none() {
            self.table.remove(id);
        }
    }

    /// The next segment to send, of the connections by turns.
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
            // It may wait for something now, though it has sent nothing.
            self.table.rests(id);
            if self.table.get(id).is_some_and(|entry| entry.forgotten) {
                self.table.remove(id);
            }
        }
        None
    }
}
