//! vrdma's own TCP (`tcp = "own"`), with an interface like that of kernel sockets and epoll.
//!
//! Each guest has a [`node`] of its own, so guests take nothing from each other. Its connections
//! have its own addresses, and its segments go through the switch. An [`end`] is like a socket.
//! Data to send ([`send`]) stays until the peer has acknowledged it. Received data ([`receive`])
//! stays until it is read. Users of connections that may have work are queued, and get events like
//! those of epoll.

mod arrivals;
mod budget;
mod end;
mod listeners;
mod loopback;
mod node;
mod receive;
mod receiver;
mod send;
mod stats;
mod transmit;
mod user;

use super::handle::Handle;
use super::output::TakenOutput;
use crate::config::{GuestConfig, GuestLimits};
use crate::port::{Checksums, Offload};
use crate::tcp::{Path, TrafficClass, asked_after};
use budget::{Budget, SharedBudget};
use loopback::Loopbacks;
pub use loopback::{Loopback, MSS as LOOPBACK_MSS};
use node::{Node, ReadyList};
pub use receive::Came;
pub use receiver::SegmentReceiver;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::{Config, ConnectionId, NextHop, Outgoing, Ports, Refused, Tuple};
use vrdma_transport::{DeviceId, Error, Instant};
use vrdma_wire::head::Head;
use vrdma_wire::icmp::PacketTooBig;
use vrdma_wire::num::{Gid, VlanId};

/// Segments that a worker sends in one round, and FPDUs that it writes. With more, an FPDU would
/// leave the caches before it is sent.
pub const SEGMENTS: usize = 64;
/// Bytes of FPDUs after which no more are written in a round. These and their frames fit into the
/// caches.
pub const TURN_BYTES: usize = 128 << 10;
/// Connections with passed deadlines that are handled in one round: of all guests, and of one.
const EXPIRED: usize = 128;
const EXPIRED_OF_ONE: usize = 32;
/// Segments that a guest sends before the next guest's turn.
const QUANTUM: u32 = 32;

/// Identifies a connection until its user [leaves](UserTcp::leave) it.
#[derive(Debug)]
pub struct UserSocket {
    node: usize,
    id: ConnectionId,
}

/// A segment to be sent.
#[derive(Debug)]
pub struct Segment {
    node: usize,
    outgoing: Outgoing,
}

/// vrdma's own TCP, of all guests of a worker that use it.
#[derive(Default)]
pub struct UserTcp {
    nodes: Vec<Node>,
    /// Indices of nodes of removed guests. Each is taken by the next guest.
    free: Vec<usize>,
    of_devices: HashMap<DeviceId, usize>,
    of_ports: BTreeMap<usize, usize>,
    ready: ReadyList,
    /// The memory that the connections of all guests use together.
    memory: Arc<SharedBudget>,
    /// Loopback connections: both guests belong to this worker.
    loopbacks: Loopbacks,
    /// The node whose deadlines were handled last.
    expiring: usize,
    /// The node whose turn it is to send.
    turn: usize,
    /// How many more segments it may send in this turn.
    left: u32,
}

impl UserTcp {
    /// Adds a guest and its port of the switch.
    ///
    /// Its peers are probed after `tcp_keepalive` seconds of silence; 0 is never.
    pub fn add(
        &mut self,
        (device, port): (DeviceId, usize),
        guest: &GuestConfig,
        limits: &GuestLimits,
        tcp_keepalive: u16,
        mtu: u16,
    ) {
        // With random secrets, sequence numbers are as hard to guess as the kernel's.
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .expect("random numbers are there once the system has started");
        let [first, second] =
            [&secret[..8], &secret[8..]].map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        let usual = Config { keep_alive: asked_after(tcp_keepalive), ..Config::default() };
        let memory = Budget::new(limits.stream_memory, limits.all_stream_memory, self.memory.clone());
        let node = Node::new(guest, (limits, memory), usual, mtu, [first, second]);
        let index = self.free.pop().unwrap_or(self.nodes.len());
        self.of_devices.insert(device, index);
        self.of_ports.insert(port, index);
        if index == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[index] = node;
        }
    }

    /// Removes a guest. Its users have left all sockets.
    ///
    /// What its connections have not sent yet is lost, as if the guest's machine were switched off.
    pub fn remove(&mut self, device: DeviceId) {
        let Some(index) = self.of_devices.remove(&device) else { return };
        self.of_ports.retain(|_, node| *node != index);
        self.nodes[index].retire();
        self.free.push(index);
    }

    fn index(&self, device: DeviceId) -> usize {
        *self.of_devices.get(&device).expect("its commands are for its own TCP")
    }

    /// Whether a segment to the guest of this port is for its own TCP.
    pub fn takes(&self, port: usize, headers: &Head) -> bool {
        self.of_ports.get(&port).is_some_and(|&node| self.nodes[node].takes(headers))
    }

    /// Handles a frame with such a segment: its headers and all of its bytes.
    ///
    /// Payload that `receiver` takes is not stored.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        port: usize,
        frame: (&Head, &[u8]),
        receiver: &mut dyn SegmentReceiver,
    ) {
        if let Some(&node) = self.of_ports.get(&port) {
            self.nodes[node].handle_frame(at(now), frame, &mut self.ready, receiver);
        }
    }

    /// Handles a router's ICMP message that a segment of this port's guest was too long.
    pub fn handle_too_long(&mut self, port: usize, frame: &[u8]) {
        if let Some(&node) = self.of_ports.get(&port)
            && let Some(told) = PacketTooBig::parse(frame)
        {
            self.nodes[node].handle_too_long(&told);
        }
    }

    /// Starts a connection. If the local port is 0, it chooses one that no other connection has.
    ///
    /// # Errors
    /// `Busy`: there is such a connection. `NoResources`: there are too many. `NotFound`: the
    /// peer's address cannot be that of a host.
    pub fn connect(
        &mut self,
        now: Instant,
        device: DeviceId,
        (local, remote): (SocketAddr, SocketAddr),
        path: Path,
        user: Handle,
    ) -> Result<(UserSocket, SocketAddr), Error> {
        let node = self.index(device);
        let ports = Ports { local: local.port(), remote: remote.port() };
        let tuple = Tuple { local: gid(local.ip()), remote: gid(remote.ip()), ports };
        let in_use = |tuple: &Tuple| self.loopbacks.has(device, tuple);
        let tuple = self.nodes[node].with_port(tuple, in_use).ok_or(Error::NoResources)?;
        if in_use(&tuple) {
            return Err(Error::Busy);
        }
        let id = self.nodes[node].connect(at(now), tuple, path, user).map_err(refused)?;
        Ok((UserSocket { node, id }, address(tuple.local, tuple.ports.local)))
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// `Busy`: there is such a listener already.
    pub fn listen(
        &mut self,
        device: DeviceId,
        handle: Handle,
        at: SocketAddr,
        traffic_class: TrafficClass,
    ) -> Result<(), Error> {
        let gid = if at.ip().is_unspecified() { Gid([0; 16]) } else { gid(at.ip()) };
        let node = self.index(device);
        self.nodes[node].listen(handle, (gid, at.port()), traffic_class).map_err(refused)
    }

    /// Stops listening.
    pub fn unlisten(&mut self, device: DeviceId, handle: Handle) {
        let node = self.index(device);
        self.nodes[node].unlisten(handle, &mut self.ready);
    }

    /// Accepts the next connection of a listener. Returns it with the addresses of both ends.
    pub fn accept(
        &mut self,
        device: DeviceId,
        handle: Handle,
    ) -> Option<(UserSocket, SocketAddr, SocketAddr)> {
        let node = self.index(device);
        let (id, tuple) = self.nodes[node].accept(handle)?;
        let remote = address(tuple.remote, tuple.ports.remote);
        Some((UserSocket { node, id }, address(tuple.local, tuple.ports.local), remote))
    }

    /// Sets whether a listener is to be told of connections.
    pub fn watch_listener(&mut self, device: DeviceId, handle: Handle, is_watched: bool) {
        let node = self.index(device);
        self.nodes[node].watch_listener(handle, is_watched, &mut self.ready);
    }

    /// Returns the listener of another guest of this worker that a connection would reach.
    ///
    /// `hop` is the connection's next hop. Frames of this guest must be able to reach the listener.
    pub fn local_listener(
        &self,
        device: DeviceId,
        (local, remote): (SocketAddr, SocketAddr),
        hop: &NextHop,
    ) -> Option<Handle> {
        let vlan = VlanId::of(hop.vlan);
        let from = &self.nodes[self.index(device)];
        let to = self.nodes.iter().find(|node| node.mac == hop.mac)?;
        let listener = to.listener_at(vlan, gid(remote.ip()), remote.port());
        listener.filter(|_| from.may_use(vlan, gid(local.ip())))
    }

    /// Creates a loopback connection of this guest. Returns its two ends and the local address.
    ///
    /// If the local port is 0, it chooses one.
    ///
    /// # Errors
    /// `Busy`: there is such a connection. `NoResources`: no port is free.
    pub fn pair(
        &mut self,
        device: DeviceId,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(Loopback, Loopback, SocketAddr), Error> {
        let ports = Ports { local: local.port(), remote: remote.port() };
        let tuple = Tuple { local: gid(local.ip()), remote: gid(remote.ip()), ports };
        let node = self.index(device);
        let node = &mut self.nodes[node];
        let in_use = |tuple: &Tuple| self.loopbacks.has(device, tuple);
        let tuple = node.with_port(tuple, in_use).ok_or(Error::NoResources)?;
        if in_use(&tuple) || node.stack.has_alive(&tuple) {
            return Err(Error::Busy);
        }
        node.counters.local += 1;
        let (near, far) = self.loopbacks.pair(device, tuple);
        Ok((near, far, address(tuple.local, tuple.ports.local)))
    }

    /// Returns all loopback connections, and the queue of users with events.
    pub fn loopbacks(&mut self) -> (&mut Loopbacks, &mut ReadyList) {
        (&mut self.loopbacks, &mut self.ready)
    }

    /// Sets the events that the user of a socket wants. Pending events are reported, too.
    pub fn watch(&mut self, socket: &UserSocket, user: Handle, wants: Option<EventSet>) {
        self.nodes[socket.node].watch(socket.id, user, wants, &mut self.ready);
    }

    /// Returns the next user that has events.
    pub fn next_ready(&mut self) -> Option<Handle> {
        self.ready.pop_front()
    }

    /// Returns the pending events of a socket.
    pub fn events(&mut self, socket: &UserSocket) -> EventSet {
        self.nodes[socket.node].events(socket.id)
    }

    /// Returns the number of queued users.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Checks that a socket is not closed.
    ///
    /// # Errors
    /// Why it is closed.
    pub fn connected(&mut self, socket: &UserSocket) -> io::Result<()> {
        self.nodes[socket.node].end(socket.id).map_or(Ok(()), |end| end.connected())
    }

    /// Returns the most data of a segment, in bytes.
    pub fn mss(&self, socket: &UserSocket) -> Option<u32> {
        self.nodes[socket.node].mss(socket.id)
    }

    /// Reads data that came in order. Bytes come in a buffer that replaces `buffer`.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing yet. Other errors: the connection is over.
    pub fn read(&mut self, socket: &UserSocket, buffer: &mut Vec<u8>) -> io::Result<Came> {
        self.nodes[socket.node].read(socket.id, buffer)
    }

    /// Whether a socket takes more output.
    ///
    /// # Errors
    /// The connection is over.
    pub fn has_room(&mut self, socket: &UserSocket) -> io::Result<bool> {
        let node = &mut self.nodes[socket.node];
        let is_short = node.budget.is_short();
        let end = node.end(socket.id).expect("it is there until its user leaves it");
        end.connected().map(|()| end.output.has_room(is_short))
    }

    /// Whether the guest of a socket has little memory left for output.
    pub fn is_short(&self, socket: &UserSocket) -> bool {
        self.nodes[socket.node].budget.is_short()
    }

    /// Sets the bytes of memory that the socket's user needs for this connection.
    ///
    /// That is data that was read and waits for the engine, and output that waits to be sent.
    pub fn set_pending(&mut self, socket: &UserSocket, bytes: u64) {
        self.nodes[socket.node].set_pending(socket.id, bytes);
    }

    /// Prefetches a socket that is about to be used into the processor's caches.
    pub fn fetch(&self, socket: &UserSocket) {
        self.nodes[socket.node].fetch(socket.id);
    }

    /// Returns a buffer in which to put output together.
    pub fn buffer(&mut self, socket: &UserSocket) -> Vec<u8> {
        self.nodes[socket.node].outgoing.take()
    }

    /// Sends output, in segments of `cut` bytes or less. No segment extends beyond a piece, unless
    /// the next pieces fit into it whole.
    pub fn send(&mut self, socket: &UserSocket, taken: TakenOutput, cut: usize) {
        self.nodes[socket.node].send(socket.id, taken, cut);
    }

    /// Ends the outgoing stream.
    pub fn finish(&mut self, socket: &UserSocket) {
        self.nodes[socket.node].finish(socket.id, &mut self.ready);
    }

    /// Ends a connection with a RST.
    pub fn reset(&mut self, socket: UserSocket) {
        self.nodes[socket.node].reset(socket.id, &mut self.ready);
    }

    /// Releases a socket. If both ends have ended their streams, the connection ends by itself.
    pub fn leave(&mut self, socket: UserSocket) {
        self.nodes[socket.node].leave(socket.id);
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(Node::next_deadline).min().map(|at| Instant(at.0))
    }

    /// Handles passed deadlines, of a few connections in each round, and of guests in turns.
    ///
    /// Returns true if there may be more.
    pub fn expire(&mut self, now: Instant) -> bool {
        let mut left = EXPIRED;
        for _ in 0..self.nodes.len() {
            self.expiring = (self.expiring + 1) % self.nodes.len();
            let most = left.min(EXPIRED_OF_ONE);
            left -= self.nodes[self.expiring].expire(at(now), most, &mut self.ready);
            if left == 0 {
                break;
            }
        }
        left != EXPIRED && self.next_deadline().is_some_and(|at| at <= now)
    }

    /// Returns the next segment to be sent, of guests and their connections in turns.
    ///
    /// It counts as sent.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        for _ in 0..=self.nodes.len() {
            let node = self.turn;
            let ready = &mut self.ready;
            if self.left > 0
                && let Some(outgoing) = self.nodes.get_mut(node).and_then(|n| n.poll_transmit(at(now), ready))
            {
                self.left -= 1;
                return Some(Segment { node, outgoing });
            }
            self.turn = (node + 1) % self.nodes.len().max(1);
            self.left = QUANTUM;
        }
        None
    }

    /// Returns the length of a segment's frame.
    pub fn len(&self, segment: &Segment) -> usize {
        let data = &segment.outgoing.segment.data;
        self.nodes[segment.node].packet(&segment.outgoing).len() + (data.end - data.start) as usize
    }

    /// Writes a segment's frame to the front of a buffer. Returns the headers.
    ///
    /// If the port can compute these checksums, one may be left to it. That offload is returned,
    /// too.
    pub fn write(&mut self, segment: &Segment, buffer: &mut [u8], can: Checksums) -> (Head, Option<Offload>) {
        self.nodes[segment.node].write(&segment.outgoing, buffer, can)
    }

    /// Returns the counters of a guest's own TCP by name; empty if it has none.
    pub fn stats(&self, device: DeviceId) -> BTreeMap<&'static str, u64> {
        let mut stats = BTreeMap::new();
        if let Some(&node) = self.of_devices.get(&device) {
            self.nodes[node].stats(&mut |name, value| {
                stats.insert(name, value);
            });
        }
        stats
    }
}

/// Converts to the time type of `vrdma-tcp`. The clock is the same.
fn at(now: Instant) -> vrdma_tcp::Instant {
    vrdma_tcp::Instant(now.0)
}

fn gid(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => Gid(v6.octets()),
    }
}

fn address(gid: Gid, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(gid.0).to_canonical(), port)
}

fn refused(refused: Refused) -> Error {
    match refused {
        Refused::Full => Error::NoResources,
        Refused::InUse => Error::Busy,
        Refused::Address => Error::NotFound,
    }
}
