//! The own TCP of one guest.

use super::budget::Budget;
use super::end::{End, EndUser};
use super::receive::WINDOW;
use super::receiver::SegmentReceiver;
use crate::allowed::{AllowedGid, Vlans};
use crate::config::{GuestConfig, GuestLimits};
use crate::memory::fetch_ahead;
use crate::streams::buffers::FreeBuffers;
use crate::streams::handle::Handle;
use crate::streams::hash::NumberMap;
use crate::tcp::{Path, TrafficClass};
use std::collections::{HashMap, VecDeque};
use vrdma_tcp::{Config, ConnectionId, Event, Instant, Ports, Refused, Stack, StackLimits, Tuple};
use vrdma_wire::head::{FrameKind, Head};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// Connections that may wait for the worker to accept them, and half-open ones, of each listener.
pub(super) const BACKLOG: usize = 128;
/// Half-open connections of all listeners of a guest.
const HALF_OPEN: usize = 4 * BACKLOG;
/// Smallest MTU that a path may be assumed to have (RFC 791, RFC 8200): IPv4, IPv6.
///
/// No ICMP message can force smaller segments.
const LEAST_MTU: [u16; 2] = [576, 1280];
/// Bytes of the IP and TCP headers: IPv4, IPv6.
pub(super) const HEADERS: [u16; 2] = [40, 60];
/// First of the ports that are chosen here. They are above those that Linux chooses.
const FIRST_PORT: u16 = 61_000;

/// Stands for every address of the guest.
pub(super) const ANY: Gid = Gid([0; 16]);

/// Users that may have events to handle, in order.
pub(super) type ReadyList = VecDeque<Handle>;

/// A listener of a guest.
#[derive(Debug)]
pub(super) struct ListenerEntry {
    pub at: (Gid, u16),
    pub waiting: VecDeque<ConnectionId>,
    pub is_watched: bool,
}

/// Counters of a guest's own TCP.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeCounters {
    pub segments_in: u64,
    pub segments_out: u64,
    pub bad_checksum: u64,
    pub malformed: u64,
    /// Connections that found no place in their listener's queue.
    pub refused: u64,
    /// Segments that were not taken, or not as a whole, because the guest's memory limit was
    /// reached.
    pub short_of_memory: u64,
    /// ICMP messages of routers about segments that are not outstanding.
    pub too_long_ignored: u64,
    /// Loopback connections that the guest started.
    pub local: u64,
}

/// The own TCP of one guest.
pub(super) struct Node {
    pub mac: Mac,
    mtu: u16,
    gids: Vec<AllowedGid>,
    vlans: Vlans,
    /// The common settings of all connections.
    usual: Config,
    pub stack: Stack,
    pub ends: NumberMap<ConnectionId, End>,
    pub(super) listeners: HashMap<Handle, ListenerEntry>,
    /// Used buffers for output, and for received data.
    pub outgoing: FreeBuffers,
    pub(super) incoming: FreeBuffers,
    pub counters: NodeCounters,
    /// The memory that all connections of the guest use.
    pub budget: Budget,
    /// The addresses of the last received segment.
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
        // Connections that are ending or being set up have room in addition to those that the guest
        // may have.
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
            listeners: HashMap::new(),
            outgoing: FreeBuffers::default(),
            incoming: FreeBuffers::default(),
            counters: NodeCounters::default(),
            budget,
            expected: None,
        }
    }

    /// Ends all connections without a word, and takes no more segments.
    pub fn retire(&mut self) {
        self.mac = Mac::default();
        (self.gids, self.vlans) = (Vec::new(), Vlans::from_iter([]));
        for end in std::mem::take(&mut self.ends).into_values() {
            self.budget.change(end.charged, 0);
        }
        self.listeners.clear();
        (self.outgoing, self.incoming) = (FreeBuffers::default(), FreeBuffers::default());
        // Nobody learns the secrets of a stack without connections.
        self.stack = Stack::new([0; 2], StackLimits { connections: 0, half_open: 0, time_wait: 0 });
        self.expected = None;
    }

    /// Returns the settings of connections with a local address, or with any address.
    pub(super) fn config(&self, local: Gid, mtu: u16, traffic_class: TrafficClass) -> Config {
        let kind = usize::from(local.ipv4().is_none());
        let mtu = if mtu == 0 { self.mtu } else { mtu.min(self.mtu) };
        // With any address, connections may use IPv4 or IPv6.
        let least = if local == ANY { LEAST_MTU[0] - HEADERS[0] } else { LEAST_MTU[kind] - HEADERS[kind] };
        let mss = mtu.max(LEAST_MTU[kind]) - HEADERS[kind];
        let traffic_class = traffic_class.number();
        Config { mss, min_mss: least, window: WINDOW, fpdus: true, traffic_class, ..self.usual }
    }

    /// Whether a received segment is for this TCP.
    ///
    /// It is for a connection, or for a listener at an address that the guest may use.
    pub fn takes(&self, headers: &Head) -> bool {
        let Head { eth, kind: FrameKind::Tcp(ends) } = headers else { return false };
        let ports = Ports { local: ends.dst_port, remote: ends.src_port };
        let tuple = Tuple { local: ends.dst, remote: ends.src, ports };
        let vlan = VlanId::of(eth.vlan);
        eth.dst == self.mac
            && self.stack.takes(&tuple, vlan)
            && (self.stack.has(&tuple) || self.may_use(vlan, ends.dst))
    }

    /// Whether frames of the guest may have this address in this VLAN.
    pub fn may_use(&self, vlan: VlanId, gid: Gid) -> bool {
        self.vlans.contains(vlan)
            && !gid.is_multicast()
            && (self.gids.is_empty() || self.gids.iter().any(|allowed| allowed.allows(vlan, gid)))
    }

    /// Returns the addresses with a local port: the requested one, or a free one if that is 0.
    pub fn with_port(&self, tuple: Tuple, in_use: impl Fn(&Tuple) -> bool) -> Option<Tuple> {
        if tuple.ports.local != 0 {
            return Some(tuple);
        }
        let all = FIRST_PORT..=u16::MAX;
        let mut all = all.map(|local| Tuple { ports: Ports { local, ..tuple.ports }, ..tuple });
        all.find(|tuple| !self.stack.has(tuple) && !in_use(tuple))
    }

    /// Starts a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        tuple: Tuple,
        path: Path,
        user: Handle,
    ) -> Result<ConnectionId, Refused> {
        let config = self.config(tuple.local, path.mtu, path.traffic_class);
        let id = self.stack.connect(tuple, path.hop, config, now)?;
        self.ends.insert(id, End::new(EndUser::Connection(user)));
        Ok(id)
    }

    pub fn end(&mut self, id: ConnectionId) -> Option<&mut End> {
        self.ends.get_mut(&id)
    }

    /// Returns the largest window that the peer of a connection is told.
    pub(super) fn window(&self) -> u32 {
        self.budget.window(self.ends.len(), WINDOW)
    }

    /// Removes a connection that has ended.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        if let Some(end) = self.ends.remove(&id) {
            self.budget.change(end.charged, 0);
        }
    }

    /// Returns the most data of a segment, in bytes.
    pub fn mss(&self, id: ConnectionId) -> Option<u32> {
        self.stack.get(id).map(vrdma_tcp::Connection::mss)
    }

    /// Handles the events that TCP reports of connections.
    pub(super) fn follow(&mut self, ready: &mut ReadyList) {
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

    fn established(&mut self, id: ConnectionId, ready: &mut ReadyList) {
        let tuple = self.stack.tuple(id).expect("it was established just now");
        let connections = self.ends.len() + 1;
        let of = |local| (local, tuple.ports.local);
        // A listener at the address itself takes precedence over one at any address.
        let is_listener = |at| self.listeners.values().any(|entry| entry.at == at);
        let at = if is_listener(of(tuple.local)) { of(tuple.local) } else { of(ANY) };
        let entry = self.listeners.iter_mut().find(|(_, entry)| entry.at == at);
        let end = self.ends.entry(id).or_insert_with(|| End::new(EndUser::Listener(NO_LISTENER)));
        end.is_established = true;
        if let Some(window) = end.input.window(self.budget.window(connections, WINDOW)) {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        if !matches!(end.user, EndUser::Listener(_)) {
            return note(end, &self.budget, ready);
        }
        match entry {
            Some((&handle, entry)) if entry.waiting.len() < BACKLOG => {
                end.user = EndUser::Listener(handle);
                entry.waiting.push_back(id);
                if entry.is_watched {
                    ready.push_back(handle);
                }
            }
            _ => {
                self.counters.refused += 1;
                end.user = EndUser::Nobody;
                self.stack.change(id, vrdma_tcp::Connection::abort);
            }
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: vrdma_tcp::Reason, ready: &mut ReadyList) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        end.closed = Some(reason);
        end.output = super::send::SendBuffer::default();
        end.charge(&mut self.budget);
        match end.user {
            EndUser::Connection(_) => note(end, &self.budget, ready),
            EndUser::Nobody => self.forget(id),
            // Nobody knows of this connection.
            EndUser::Listener(handle) => {
                if let Some(entry) = self.listeners.get_mut(&handle) {
                    entry.waiting.retain(|&other| other != id);
                }
                self.forget(id);
            }
        }
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    /// Handles passed deadlines of at most `most` connections. Returns of how many.
    pub fn expire(&mut self, now: Instant, most: usize, ready: &mut ReadyList) -> usize {
        if self.next_deadline().is_none_or(|at| at > now) {
            return 0;
        }
        let count = self.stack.handle_timeouts(now, most);
        self.follow(ready);
        count
    }
}

/// The listener of a connection whose listener is not known yet. No listener has this handle.
pub(super) const NO_LISTENER: Handle = Handle { number: u32::MAX, generation: u32::MAX };

/// Queues the user of a connection if there are events that it wants.
pub(super) fn note(end: &mut End, budget: &Budget, ready: &mut ReadyList) {
    if let EndUser::Connection(handle) = end.user
        && !end.is_queued
        && !end.events(budget).is_empty()
    {
        end.is_queued = true;
        ready.push_back(handle);
    }
}

impl Node {
    /// Prefetches the connection of a frame, while the frame's checksum is computed.
    ///
    /// Frames of one connection mostly come in a row. The first one is enough.
    pub(super) fn expect(&mut self, headers: &Head, receiver: &mut dyn SegmentReceiver) {
        let Some(ends) = headers.ends() else { return };
        let ports = Ports { local: ends.dst_port, remote: ends.src_port };
        let tuple = Tuple { local: ends.dst, remote: ends.src, ports };
        if self.expected.replace(tuple) == Some(tuple) {
            return;
        }
        let Some((id, lines)) = self.stack.lines_of(&tuple) else { return };
        fetch_ahead(lines);
        let Some(end) = self.ends.get(&id) else { return };
        fetch_ahead(lines_of(end));
        if let EndUser::Connection(user) = end.user {
            receiver.fetch(user);
        }
    }

    /// Prefetches a connection that is about to send.
    pub(super) fn fetch(&self, id: ConnectionId) {
        if let Some(lines) = self.stack.lines(id) {
            fetch_ahead(lines);
        }
        if let Some(end) = self.ends.get(&id) {
            fetch_ahead(lines_of(end));
        }
    }
}

fn lines_of(end: &End) -> *const [u8; size_of::<End>()] {
    std::ptr::from_ref(end).cast()
}
