//! The TCP of one guest.

use super::budget::Budget;
use super::end::{End, User};
use super::receive::WINDOW;
use super::taker::{Direct, Taker};
use crate::allowed::{AllowedGid, Vlans};
use crate::config::{GuestConfig, GuestLimits};
use crate::frames::sum;
use crate::streams::buffers::Buffers;
use crate::streams::handle::Handle;
use crate::streams::hash::NumberMap;
use crate::tcp::{Path, TrafficClass};
use std::collections::{HashMap, VecDeque};
use vrdma_tcp::{
    Config, ConnectionId, Event, Instant, NextHop, Origin, Ports, Refused, Stack, StackLimits, Tuple,
};
use vrdma_wire::head::{Head, Kind};
use vrdma_wire::icmp::TooLong;
use vrdma_wire::num::{Gid, Mac, VlanId};
use vrdma_wire::tcp::Packet;

/// Connections of a listener that wait for the worker to take them; and those that are half open.
pub(super) const BACKLOG: usize = 128;
/// Those that are half open, of all listeners of a guest.
const HALF_OPEN: usize = 4 * BACKLOG;
/// Least MTU of a path, by which no host may be forced to smaller segments (RFC 791, RFC 8200).
const LEAST_MTU: [u16; 2] = [576, 1280];
/// Headers of IP and TCP.
const HEADERS: [u16; 2] = [40, 60];
/// Where ports begin that are chosen here: behind those that Linux chooses.
const FIRST_PORT: u16 = 61_000;

/// Each address of the guest.
pub(super) const ANY: Gid = Gid([0; 16]);

/// Who may have something to be done for it.
pub(super) type Ready = VecDeque<Handle>;

/// A listener of a guest.
#[derive(Debug)]
pub(super) struct Door {
    pub at: (Gid, u16),
    pub waiting: VecDeque<ConnectionId>,
    pub is_watched: bool,
}

/// What happened to segments that came, or not, to a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeCounters {
    pub segments_in: u64,
    pub segments_out: u64,
    pub bad_checksum: u64,
    pub malformed: u64,
    /// Connections that had no place to wait for their listener.
    pub refused: u64,
    /// Segments that were not taken, or in part, since the guest uses as much memory as it may.
    pub short_of_memory: u64,
    /// Complaints of routers about segments that are not outstanding.
    pub too_long_ignored: u64,
    /// Connections that the guest began and that go to another one without TCP.
    pub local: u64,
}

/// See the module.
pub(super) struct Node {
    pub mac: Mac,
    mtu: u16,
    gids: Vec<AllowedGid>,
    vlans: Vlans,
    /// What all connections have in common.
    usual: Config,
    pub stack: Stack,
    pub ends: NumberMap<ConnectionId, End>,
    pub(super) doors: HashMap<Handle, Door>,
    /// Buffers for what is sent, and for what has come.
    pub outgoing: Buffers,
    pub(super) incoming: Buffers,
    pub counters: NodeCounters,
    /// What all connections take of the guest's memory for them.
    pub budget: Budget,
    /// Between whom the last segment was that came.
    pub(super) expected: Option<Tuple>,
}

impl Node {
    pub fn new(
        guest: &GuestConfig,
        (limits, budget): (&GuestLimits, Budget),
        usual: Config,
        mtu: u16,
        secret: [u64; 2],
    ) -> Node {
        // Those that are about to end, or to be, have room beside those that the guest may have.
        let most = limits.connections as usize;
        let limits = StackLimits { connections: 2 * most + HALF_OPEN, half_open: HALF_OPEN, time_wait: most };
        let stack = Stack::new(secret, limits);
        Node {
            mac: guest.mac,
            mtu,
            gids: guest.allowed_gids(),
            vlans: guest.member_of(),
            usual,
            stack,
            ends: NumberMap::default(),
            doors: HashMap::new(),
            outgoing: Buffers::default(),
            incoming: Buffers::default(),
            counters: NodeCounters::default(),
            budget,
            expected: None,
        }
    }

    /// For connections of an address, or of any.
    pub(super) fn config(&self, local: Gid, mtu: u16, traffic_class: TrafficClass) -> Config {
        let kind = usize::from(local.ipv4().is_none());
        let mtu = if mtu == 0 { self.mtu } else { mtu.min(self.mtu) };
        // Those to any address may go by either IP.
        let least = if local == ANY { LEAST_MTU[0] - HEADERS[0] } else { LEAST_MTU[kind] - HEADERS[kind] };
        let mss = mtu.max(LEAST_MTU[kind]) - HEADERS[kind];
        let traffic_class = traffic_class.number();
        Config { mss, min_mss: least, window: WINDOW, fpdus: true, traffic_class, ..self.usual }
    }

    /// Whether a segment that came is for this TCP: of a connection of it, or to a listener at an
    /// address that the guest may use.
    pub fn takes(&self, headers: &Head) -> bool {
        let Head { eth, kind: Kind::Tcp(ends) } = headers else { return false };
        let ports = Ports { local: ends.dst_port, remote: ends.src_port };
        let tuple = Tuple { local: ends.dst, remote: ends.src, ports };
        let vlan = VlanId::of(eth.vlan);
        eth.dst == self.mac
            && self.stack.takes(&tuple, vlan)
            && (self.stack.has(&tuple) || self.may_use(vlan, ends.dst))
    }

    /// Whether frames of the guest may be of this address in this VLAN.
    pub fn may_use(&self, vlan: VlanId, gid: Gid) -> bool {
        self.vlans.contains(vlan)
            && !gid.is_multicast()
            && (self.gids.is_empty() || self.gids.iter().any(|allowed| allowed.allows(vlan, gid)))
    }

    /// A connection's addresses with a port of this end: its own, or one that none has, if there is
    /// one.
    pub fn with_port(&self, tuple: Tuple, in_use: impl Fn(&Tuple) -> bool) -> Option<Tuple> {
        if tuple.ports.local != 0 {
            return Some(tuple);
        }
        let all = FIRST_PORT..=u16::MAX;
        let mut all = all.map(|local| Tuple { ports: Ports { local, ..tuple.ports }, ..tuple });
        all.find(|tuple| !self.stack.has(tuple) && !in_use(tuple))
    }

    /// Begins a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        tuple: Tuple,
        path: Path,
        user: Handle,
    ) -> Result<ConnectionId, Refused> {
        let config = self.config(tuple.local, path.mtu, path.traffic_class);
        let id = self.stack.connect(tuple, path.hop, config, now)?;
        self.ends.insert(id, End::new(User::Connection(user)));
        Ok(id)
    }

    pub fn end(&mut self, id: ConnectionId) -> Option<&mut End> {
        self.ends.get_mut(&id)
    }

    /// The window that a connection's peer is told of at most.
    pub(super) fn window(&self) -> u32 {
        self.budget.window(self.ends.len(), WINDOW)
    }

    /// Nothing is left of a connection.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        if let Some(end) = self.ends.remove(&id) {
            self.budget.change(end.charged, 0);
        }
    }

    /// Most data of a segment.
    pub fn mss(&self, id: ConnectionId) -> Option<u32> {
        self.stack.get(id).map(vrdma_tcp::Connection::mss)
    }

    /// A frame came that this TCP [takes](Node::takes).
    pub fn handle_frame(
        &mut self,
        now: Instant,
        (headers, frame): (&Head, &[u8]),
        ready: &mut Ready,
        taker: &mut dyn Taker,
    ) {
        self.expect(headers, taker);
        let (packet, data) = match Packet::parse_behind(headers, frame, sum) {
            Ok(parsed) => parsed,
            Err(vrdma_wire::tcp::Bad::Checksum) => return self.counters.bad_checksum += 1,
            Err(_) => return self.counters.malformed += 1,
        };
        self.counters.segments_in += 1;
        let hop = NextHop { mac: packet.src_mac, vlan: packet.vlan };
        let origin = Origin { remote: packet.src, local: packet.dst, hop };
        let (ends, buffers) = (&mut self.ends, &mut self.incoming);
        let (budget, short) = (&self.budget, &mut self.counters.short_of_memory);
        let mut take = |id, arrival: vrdma_tcp::Arrival| {
            // The first data may come with what sets the connection up; who listens is known a
            // moment later.
            let end = ends.entry(id).or_insert_with(|| End::new(User::Listener(NO_DOOR)));
            let room = end.room(budget);
            let direct = match end.user {
                User::Connection(user) => Direct(Some((user, &mut *taker))),
                User::Listener(_) | User::Nobody => Direct(None),
            };
            let taken = end.input.take(&arrival, data, room, buffers, direct);
            // (Most are taken.)
            if taken < arrival.at.len() {
                let memory =
                    if arrival.offset == arrival.complete { room.in_order } else { room.beyond_hole };
                *short += u64::from(memory < arrival.at.len() as u64);
            }
            taken
        };
        let id = self.stack.handle_segment(now, origin, &packet.header, data.len(), &mut take);
        self.follow(ready);
        if let Some(id) = id {
            self.changed(id, ready);
        }
    }

    /// A router said that a segment was too long. Whether there is a connection, and the segment is
    /// under way, is all that tells it from what anybody can send (RFC 5927).
    pub fn handle_too_long(&mut self, told: &TooLong) {
        let ports = Ports { local: told.local_port, remote: told.remote_port };
        let tuple = Tuple { local: told.local, remote: told.remote, ports };
        let mss = told.mtu.saturating_sub(HEADERS[usize::from(told.local.ipv4().is_none())]);
        if !self.stack.handle_too_long(&tuple, VlanId::of(told.eth.vlan), told.seq, mss) {
            self.counters.too_long_ignored += 1;
        }
    }

    /// A segment of a connection came: what was acknowledged goes, and its user is told.
    fn changed(&mut self, id: ConnectionId, ready: &mut Ready) {
        let most = self.window();
        let Some(end) = self.ends.get_mut(&id) else { return };
        if let Some(connection) = self.stack.get(id) {
            end.output.acknowledge(connection.acknowledged(), &mut self.outgoing);
        }
        end.charge(&mut self.budget);
        if let Some(window) = end.input.window(most) {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        note(end, &self.budget, ready);
    }

    /// Takes what TCP says of connections.
    pub(super) fn follow(&mut self, ready: &mut Ready) {
        while let Some((id, event)) = self.stack.poll_event() {
            match event {
                Event::Established => self.established(id, ready),
                Event::EndOfStream => {
                    if let Some(end) = self.ends.get_mut(&id) {
                        end.peer_ended = true;
                        note(end, &self.budget, ready);
                    }
                }
                Event::Closed(reason) => self.closed(id, reason, ready),
            }
        }
    }

    fn established(&mut self, id: ConnectionId, ready: &mut Ready) {
        let tuple = self.stack.tuple(id).expect("it was established just now");
        let connections = self.ends.len() + 1;
        let of = |local| (local, tuple.ports.local);
        // That of the address itself goes before that of any.
        let is_listener = |at| self.doors.values().any(|door| door.at == at);
        let at = if is_listener(of(tuple.local)) { of(tuple.local) } else { of(ANY) };
        let door = self.doors.iter_mut().find(|(_, door)| door.at == at);
        let end = self.ends.entry(id).or_insert_with(|| End::new(User::Listener(NO_DOOR)));
        end.is_established = true;
        if let Some(window) = end.input.window(self.budget.window(connections, WINDOW)) {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        if !matches!(end.user, User::Listener(_)) {
            return note(end, &self.budget, ready);
        }
        match door {
            Some((&handle, door)) if door.waiting.len() < BACKLOG => {
                end.user = User::Listener(handle);
                door.waiting.push_back(id);
                if door.is_watched {
                    ready.push_back(handle);
                }
            }
            _ => {
                self.counters.refused += 1;
                end.user = User::Nobody;
                self.stack.change(id, vrdma_tcp::Connection::abort);
            }
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: vrdma_tcp::Reason, ready: &mut Ready) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        end.closed = Some(reason);
        end.output = super::send::SendBuffer::default();
        end.charge(&mut self.budget);
        match end.user {
            User::Connection(_) => note(end, &self.budget, ready),
            User::Nobody => self.forget(id),
            // Nobody will hear of it.
            User::Listener(handle) => {
                if let Some(door) = self.doors.get_mut(&handle) {
                    door.waiting.retain(|&other| other != id);
                }
                self.forget(id);
            }
        }
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    /// Does what is due of at most so many connections; of how many it was.
    pub fn expire(&mut self, now: Instant, most: usize, ready: &mut Ready) -> usize {
        if self.next_deadline().is_none_or(|at| at > now) {
            return 0;
        }
        let count = self.stack.handle_timeouts(now, most);
        self.follow(ready);
        count
    }
}

/// A listener that is none: of a connection about which nothing is known yet.
const NO_DOOR: Handle = Handle { number: u32::MAX, generation: u32::MAX };

/// The user of a connection is to be told, if there is something that it wants to know.
pub(super) fn note(end: &mut End, budget: &Budget, ready: &mut Ready) {
    if let User::Connection(handle) = end.user
        && !end.is_queued
        && !end.events(budget).is_empty()
    {
        end.is_queued = true;
        ready.push_back(handle);
    }
}
