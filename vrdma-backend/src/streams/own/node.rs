//! The TCP of one guest.

use super::end::{End, User};
use super::receive::{Came, WINDOW};
use super::taker::{Direct, Taker};
use crate::allowed::{AllowedGid, Vlans};
use crate::config::{GuestConfig, GuestLimits};
use crate::frames::sum;
use crate::streams::buffers::Buffers;
use crate::streams::handle::Handle;
use crate::streams::hash::NumberMap;
use crate::streams::output::Taken;
use std::collections::{HashMap, VecDeque};
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::{
    Config, ConnectionId, Event, Instant, NextHop, Origin, Ports, Refused, Stack, StackLimits, Tuple,
};
use vrdma_wire::icmp::TooLong;
use vrdma_wire::num::{Gid, Mac, VlanId};
use vrdma_wire::tcp::{Ends, Packet};

/// Connections of a listener that wait for the worker to take them; and those that are half open.
const BACKLOG: usize = 128;
/// Least MTU of a path, by which no host may be forced to smaller segments (RFC 791, RFC 8200).
const LEAST_MTU: [u16; 2] = [576, 1280];
/// Headers of IP and TCP.
const HEADERS: [u16; 2] = [40, 60];
/// Where ports begin that are chosen here: behind those that Linux chooses.
const FIRST_PORT: u16 = 61_000;

/// Each address of the guest.
const ANY: Gid = Gid([0; 16]);

/// Who may have something to be done for it.
pub(super) type Ready = VecDeque<Handle>;

/// A listener of a guest.
#[derive(Debug)]
struct Door {
    at: (Gid, u16),
    waiting: VecDeque<ConnectionId>,
    is_watched: bool,
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
    doors: HashMap<Handle, Door>,
    /// Buffers for what is sent, and for what has come.
    pub outgoing: Buffers,
    incoming: Buffers,
    pub counters: NodeCounters,
    /// Between whom the last segment was that came.
    pub(super) expected: Option<Tuple>,
}

impl Node {
    pub fn new(guest: &GuestConfig, limits: &GuestLimits, usual: Config, mtu: u16, secret: [u64; 2]) -> Node {
        // Those that are about to end, or to be, have room beside those that the guest may have.
        let most = limits.connections as usize;
        let stack = Stack::new(secret, StackLimits { connections: 2 * most + BACKLOG, time_wait: most });
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
            expected: None,
        }
    }

    /// For connections of an address, or of any.
    fn config(&self, local: Gid, mtu: u16) -> Config {
        let kind = usize::from(local.ipv4().is_none());
        let mtu = if mtu == 0 { self.mtu } else { mtu.min(self.mtu) };
        // Those to any address may go by either IP.
        let least = if local == ANY { LEAST_MTU[0] - HEADERS[0] } else { LEAST_MTU[kind] - HEADERS[kind] };
        let mss = mtu.max(LEAST_MTU[kind]) - HEADERS[kind];
        Config { mss, min_mss: least, window: WINDOW, fpdus: true, ..self.usual }
    }

    /// Whether a segment that came is for this TCP: of a connection of it, or to a listener at an address that the guest may use.
    pub fn takes(&self, ends: &Ends) -> bool {
        let ports = Ports { local: ends.dst_port, remote: ends.src_port };
        let tuple = Tuple { local: ends.dst, remote: ends.src, ports };
        let vlan = VlanId::of(ends.eth.vlan);
        ends.eth.dst == self.mac
            && self.stack.takes(&tuple, vlan)
            && (self.stack.has(&tuple) || self.may_use(vlan, ends.dst))
    }

    /// Whether frames of the guest may be of this address in this VLAN.
    pub fn may_use(&self, vlan: VlanId, gid: Gid) -> bool {
        self.vlans.contains(vlan)
            && !gid.is_multicast()
            && (self.gids.is_empty() || self.gids.iter().any(|allowed| allowed.allows(vlan, gid)))
    }

    /// A connection's addresses with a port of this end: its own, or one that none has, if there is one.
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
        (hop, mtu): (NextHop, u16),
        user: Handle,
    ) -> Result<ConnectionId, Refused> {
        let config = self.config(tuple.local, mtu);
        let id = self.stack.connect(tuple, hop, config, now)?;
        self.ends.insert(id, End::new(User::Connection(user)));
        Ok(id)
    }

    /// The listener that takes connections to this address, if the guest may use it.
    pub fn listener_at(&self, vlan: VlanId, gid: Gid, port: u16) -> Option<Handle> {
        let at = |at| self.doors.iter().find(|(_, door)| door.at == at).map(|(&handle, _)| handle);
        // That of the address itself goes before that of any.
        at((gid, port)).or_else(|| at((ANY, port))).filter(|_| self.may_use(vlan, gid))
    }

    /// Takes connections at an address, or at any, and a port.
    pub fn listen(&mut self, handle: Handle, (gid, port): (Gid, u16)) -> Result<(), Refused> {
        self.stack.listen(gid, port, BACKLOG, self.config(gid, 0))?;
        let door = Door { at: (gid, port), waiting: VecDeque::new(), is_watched: false };
        self.doors.insert(handle, door);
        Ok(())
    }

    /// Takes no more, nor those that wait.
    pub fn unlisten(&mut self, handle: Handle, ready: &mut Ready) {
        let Some(door) = self.doors.remove(&handle) else { return };
        self.stack.unlisten(door.at.0, door.at.1);
        door.waiting.into_iter().for_each(|id| self.reset(id, ready));
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, handle: Handle) -> Option<(ConnectionId, Tuple)> {
        let door = self.doors.get_mut(&handle)?;
        let (stack, ends) = (&self.stack, &mut self.ends);
        loop {
            let id = door.waiting.pop_front()?;
            match stack.tuple(id) {
                Some(tuple) => return Some((id, tuple)),
                // It is over before anybody has heard of it.
                None => drop(ends.remove(&id)),
            }
        }
    }

    /// Whether a listener is to be told of connections.
    pub fn watch_door(&mut self, handle: Handle, is_watched: bool, ready: &mut Ready) {
        let Some(door) = self.doors.get_mut(&handle) else { return };
        door.is_watched = is_watched;
        if is_watched && !door.waiting.is_empty() {
            ready.push_back(handle);
        }
    }

    pub fn end(&mut self, id: ConnectionId) -> Option<&mut End> {
        self.ends.get_mut(&id)
    }

    /// Says what the user of a connection wants to be told of.
    pub fn watch(&mut self, id: ConnectionId, user: Handle, wants: Option<EventSet>, ready: &mut Ready) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (User::Connection(user), wants);
        note(end, ready);
    }

    /// Puts in what a connection has to send.
    pub fn send(&mut self, id: ConnectionId, taken: Taken, cut: usize) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.output.put(taken, cut, &mut self.outgoing);
            self.stack.post(id);
        }
    }

    /// Reads of a connection; its peer is told of the room.
    pub fn read(&mut self, id: ConnectionId, buffer: &mut Vec<u8>) -> std::io::Result<Came> {
        let end = self.ends.get_mut(&id).expect("it is there until its user leaves it");
        let result = end.read(buffer, &mut self.incoming);
        if let Some(window) = end.input.window() {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        result
    }

    /// No more is put in: a FIN follows.
    pub fn finish(&mut self, id: ConnectionId, ready: &mut Ready) {
        self.stack.change(id, vrdma_tcp::Connection::close);
        self.follow(ready);
    }

    /// Gives a connection up: a RST.
    pub fn reset(&mut self, id: ConnectionId, ready: &mut Ready) {
        self.leave(id);
        self.stack.change(id, vrdma_tcp::Connection::abort);
        self.follow(ready);
    }

    /// Its user is gone: what was put in is still sent, and then the connection ends by itself, at the latest after half a minute.
    pub fn leave(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (User::Nobody, None);
        end.input.clear();
        if end.closed.is_some() {
            self.ends.remove(&id);
        } else {
            self.stack.change(id, vrdma_tcp::Connection::leave);
        }
    }

    /// Most data of a segment.
    pub fn mss(&self, id: ConnectionId) -> Option<u32> {
        self.stack.get(id).map(vrdma_tcp::Connection::mss)
    }

    /// A frame came that this TCP [takes](Node::takes).
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8], ready: &mut Ready, taker: &mut dyn Taker) {
        self.expect(frame, taker);
        let (packet, data) = match Packet::parse_summed(frame, sum) {
            Ok(parsed) => parsed,
            Err(vrdma_wire::tcp::Bad::Checksum) => return self.counters.bad_checksum += 1,
            Err(_) => return self.counters.malformed += 1,
        };
        self.counters.segments_in += 1;
        let hop = NextHop { mac: packet.src_mac, vlan: packet.vlan };
        let origin = Origin { remote: packet.src, local: packet.dst, hop };
        let (ends, buffers) = (&mut self.ends, &mut self.incoming);
        let mut take = |id, arrival: vrdma_tcp::Arrival| {
            // The first data may come with what sets the connection up; who listens is known a moment later.
            let end = ends.entry(id).or_insert_with(|| End::new(User::Listener(NO_DOOR)));
            let limit = end.limit();
            let direct = match end.user {
                User::Connection(user) => Direct(Some((user, &mut *taker))),
                User::Listener(_) | User::Nobody => Direct(None),
            };
            end.input.take(&arrival, data, limit, buffers, direct)
        };
        let id = self.stack.handle_segment(now, origin, &packet.header, data.len(), &mut take);
        self.follow(ready);
        if let Some(id) = id {
            self.changed(id, ready);
        }
    }

    /// A router said that a segment was too long. Whether there is a connection, and the segment is under way, is all that tells it from what anybody can send (RFC 5927).
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
        let Some(end) = self.ends.get_mut(&id) else { return };
        if let Some(connection) = self.stack.get(id) {
            end.output.acknowledge(connection.acknowledged(), &mut self.outgoing);
        }
        if let Some(window) = end.input.window() {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        note(end, ready);
    }

    /// Takes what TCP says of connections.
    fn follow(&mut self, ready: &mut Ready) {
        while let Some((id, event)) = self.stack.poll_event() {
            match event {
                Event::Established => self.established(id, ready),
                Event::EndOfStream => {
                    if let Some(end) = self.ends.get_mut(&id) {
                        end.peer_ended = true;
                        note(end, ready);
                    }
                }
                Event::Closed(reason) => self.closed(id, reason, ready),
            }
        }
    }

    fn established(&mut self, id: ConnectionId, ready: &mut Ready) {
        let tuple = self.stack.tuple(id).expect("it was established just now");
        let of = |local| (local, tuple.ports.local);
        // That of the address itself goes before that of any.
        let is_listener = |at| self.doors.values().any(|door| door.at == at);
        let at = if is_listener(of(tuple.local)) { of(tuple.local) } else { of(ANY) };
        let door = self.doors.iter_mut().find(|(_, door)| door.at == at);
        let end = self.ends.entry(id).or_insert_with(|| End::new(User::Listener(NO_DOOR)));
        end.is_established = true;
        if !matches!(end.user, User::Listener(_)) {
            return note(end, ready);
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
        match end.user {
            User::Connection(_) => note(end, ready),
            User::Nobody => drop(self.ends.remove(&id)),
            // Nobody will hear of it.
            User::Listener(handle) => {
                if let Some(door) = self.doors.get_mut(&handle) {
                    door.waiting.retain(|&other| other != id);
                }
                self.ends.remove(&id);
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
pub(super) fn note(end: &mut End, ready: &mut Ready) {
    if let User::Connection(handle) = end.user
        && !end.is_queued
        && !end.events().is_empty()
    {
        end.is_queued = true;
        ready.push_back(handle);
    }
}
