//! What the user calls of a stack: segments that arrive or are to be sent, timers and events.
//!
//! `stack/state.rs` has the state of a stack. The other files of `stack/` act on it.

mod cookies;
mod limits;
mod listeners;
mod state;
mod strangers;
mod time_wait;

pub use limits::{Refused, StackCounters, StackLimits};
pub use state::{Outgoing, Stack};

use crate::config::Config;
use crate::connection::{Connection, Event, Ports};
use crate::output::Source;
use crate::reassembly::Arrival;
use crate::table::ConnectionId;
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple, is_unicast};
use vrdma_wire::num::{Gid, VlanId};
use vrdma_wire::tcp::TcpHeader;

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

/// The source and destination of an arriving segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSource {
    /// The address of the peer.
    pub remote: Gid,
    /// The address of this end.
    pub local: Gid,
    /// The next hop of answers.
    pub hop: NextHop,
}

impl Stack {
    /// Returns whether a segment with this tuple and VLAN is for a connection or a listener of this
    /// stack.
    pub fn takes(&self, tuple: &Tuple, vlan: VlanId) -> bool {
        match self.table.find(tuple).and_then(|id| self.table.get(id)) {
            Some(entry) => VlanId::of(entry.hop.vlan) == vlan,
            None => self.listener_of(tuple).is_some(),
        }
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

    /// Handles a segment with a correct checksum; see [`Connection::handle_segment`].
    ///
    /// Returns the connection of the segment. A SYN that begins a connection has none yet.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        origin: SegmentSource,
        header: &TcpHeader,
        length: usize,
        take: &mut impl FnMut(ConnectionId, Arrival) -> usize,
    ) -> Option<ConnectionId> {
        let SegmentSource { remote, local, hop } = origin;
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
