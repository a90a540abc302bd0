//! Our own TCP (`tcp = "own"`), as the connections of iWARP see it: what the kernel's sockets and
//! epoll are to the others.
//!
//! Each guest has a [`node`] of its own, so what one does takes nothing from another: its
//! connections are from its own addresses, and its segments go by the switch. An [`end`] is what a
//! socket is: what is to be sent ([`send`]) stays until the peer has it, what came ([`receive`])
//! until it is read. Whoever may have something to do is queued, and told what in the words of
//! epoll.

mod budget;
mod doors;
mod end;
mod fetch;
mod node;
mod pipe;
mod receive;
mod send;
mod stats;
mod taker;
mod transmit;
mod user;

use super::handle::Handle;
use super::output::Taken;
use crate::config::{GuestConfig, GuestLimits};
use crate::port::{Checksums, Offload};
use crate::tcp::{Path, asked_after};
use budget::{Budget, Pool};
use node::{Node, Ready};
use pipe::Pipes;
pub use pipe::{MSS as PIPE_MSS, Pipe};
pub use receive::Came;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
pub use taker::Taker;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::{Config, ConnectionId, NextHop, Outgoing, Ports, Refused, Tuple};
use vrdma_transport::{DeviceId, Error, Instant};
use vrdma_wire::head::Head;
use vrdma_wire::icmp::TooLong;
use vrdma_wire::num::{Gid, VlanId};

/// Segments that a worker sends in one turn, and FPDUs that it puts together: more of them would
/// leave the caches between the one and the other.
pub const SEGMENTS: usize = 64;
/// Bytes of FPDUs, after which no more are put together in a turn: these and their frames fit the
/// caches.
pub const TURN_BYTES: usize = 128 << 10;
/// Connections with something due that are looked at in one turn, and those of one guest.
const EXPIRED: usize = 128;
const EXPIRED_OF_ONE: usize = 32;
/// Segments that a guest sends before the next guest's turn.
const QUANTUM: u32 = 32;

/// Names a connection until its user [leaves](Own::leave) it.
#[derive(Debug)]
pub struct Socket {
    node: usize,
    id: ConnectionId,
}

/// A segment to send.
#[derive(Debug)]
pub struct Segment {
    node: usize,
    outgoing: Outgoing,
}

/// See the module.
#[derive(Default)]
pub struct Own {
    nodes: Vec<Node>,
    of_devices: HashMap<DeviceId, usize>,
    of_ports: BTreeMap<usize, usize>,
    ready: Ready,
    /// What their connections use of the memory that all have together.
    memory: Arc<Pool>,
    /// Connections that are no TCP's: both guests are this worker's.
    pipes: Pipes,
    /// Whose deadlines were looked at last.
    expiring: usize,
    /// Whose turn it is to send,
    turn: usize,
    /// and how many segments it has left.
    left: u32,
}

impl Own {
    /// Adds a guest, with its port of the switch. Its peers are asked after so many seconds of
    /// silence; 0 is never.
    pub fn add(
        &mut self,
        (device, port): (DeviceId, usize),
        guest: &GuestConfig,
        limits: &GuestLimits,
        tcp_keepalive: u16,
        mtu: u16,
    ) {
        // Others guess sequence numbers no better than those of the kernel.
        let mut secret = [0; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
            .expect("random numbers are there once the system has started");
        let [first, second] =
            [&secret[..8], &secret[8..]].map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        let usual = Config { keep_alive: asked_after(tcp_keepalive), ..Config::default() };
        self.of_devices.insert(device, self.nodes.len());
        self.of_ports.insert(port, self.nodes.len());
        let memory = Budget::new(limits.stream_memory, limits.all_stream_memory, self.memory.clone());
        self.nodes.push(Node::new(guest, (limits, memory), usual, mtu, [first, second]));
    }

    fn index(&self, device: DeviceId) -> usize {
        *self.of_devices.get(&device).expect("its commands are for its own TCP")
    }

    /// Whether a segment to the guest of this port is for its TCP.
    pub fn takes(&self, port: usize, headers: &Head) -> bool {
        self.of_ports.get(&port).is_some_and(|&node| self.nodes[node].takes(headers))
    }

    /// Brings a frame with such a segment: its headers, and all of its bytes. What `taker` takes of
    /// it is not kept.
    pub fn handle_frame(&mut self, now: Instant, port: usize, frame: (&Head, &[u8]), taker: &mut dyn Taker) {
        if let Some(&node) = self.of_ports.get(&port) {
            self.nodes[node].handle_frame(at(now), frame, &mut self.ready, taker);
        }
    }

    /// Brings a router's complaint that a segment of this port's guest was too long.
    pub fn handle_too_long(&mut self, port: usize, frame: &[u8]) {
        if let Some(&node) = self.of_ports.get(&port)
            && let Some(told) = TooLong::parse(frame)
        {
            self.nodes[node].handle_too_long(&told);
        }
    }

    /// Begins a connection. Without a port of this end, from one that no other connection has.
    ///
    /// # Errors
    /// `Busy`: there is such a connection. `NoResources`: there are too many. `NotFound`: the
    /// peer's address is none of a host.
    pub fn connect(
        &mut self,
        now: Instant,
        device: DeviceId,
        (local, remote): (SocketAddr, SocketAddr),
        path: Path,
        user: Handle,
    ) -> Result<(Socket, SocketAddr), Error> {
        let node = self.index(device);
        let ports = Ports { local: local.port(), remote: remote.port() };
        let tuple = Tuple { local: gid(local.ip()), remote: gid(remote.ip()), ports };
        let in_use = |tuple: &Tuple| self.pipes.has(device, tuple);
        let tuple = self.nodes[node].with_port(tuple, in_use).ok_or(Error::NoResources)?;
        if in_use(&tuple) {
            return Err(Error::Busy);
        }
        let id = self.nodes[node].connect(at(now), tuple, path, user).map_err(refused)?;
        Ok((Socket { node, id }, address(tuple.local, tuple.ports.local)))
    }

    /// The listener of another guest of this worker that a connection by this hop would come to, if
    /// this guest's frames reach it.
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

    /// The two ends of a new connection of this guest without TCP, and its address; its port is
    /// chosen if it is 0.
    ///
    /// # Errors
    /// `Busy`: there is such a connection. `NoResources`: no port is free.
    pub fn pair(
        &mut self,
        device: DeviceId,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> Result<(Pipe, Pipe, SocketAddr), Error> {
        let ports = Ports { local: local.port(), remote: remote.port() };
        let tuple = Tuple { local: gid(local.ip()), remote: gid(remote.ip()), ports };
        let node = self.index(device);
        let node = &mut self.nodes[node];
        let in_use = |tuple: &Tuple| self.pipes.has(device, tuple);
        let tuple = node.with_port(tuple, in_use).ok_or(Error::NoResources)?;
        if in_use(&tuple) || node.stack.has_alive(&tuple) {
            return Err(Error::Busy);
        }
        node.counters.local += 1;
        let (near, far) = self.pipes.pair(device, tuple);
        Ok((near, far, address(tuple.local, tuple.ports.local)))
    }

    /// All connections without TCP, and the queue of those who are to be told.
    pub fn pipes(&mut self) -> (&mut Pipes, &mut Ready) {
        (&mut self.pipes, &mut self.ready)
    }

    /// Says what the user of a socket is to be told of; what is so now is told too.
    pub fn watch(&mut self, socket: &Socket, user: Handle, wants: Option<EventSet>) {
        self.nodes[socket.node].watch(socket.id, user, wants, &mut self.ready);
    }

    /// The next who is to be told, and what.
    pub fn next_ready(&mut self) -> Option<Handle> {
        self.ready.pop_front()
    }

    /// What the user of a socket is to be told now.
    pub fn events(&mut self, socket: &Socket) -> EventSet {
        self.nodes[socket.node].events(socket.id)
    }

    /// How many are to be told.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether it is connected.
    ///
    /// # Errors
    /// Why it is not.
    pub fn connected(&mut self, socket: &Socket) -> io::Result<()> {
        self.nodes[socket.node].end(socket.id).map_or(Ok(()), |end| end.connected())
    }

    /// Most data of a segment.
    pub fn mss(&self, socket: &Socket) -> Option<u32> {
        self.nodes[socket.node].mss(socket.id)
    }

    /// Reads what came in order: bytes into a buffer, which is replaced.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing yet. Or the connection is over.
    pub fn read(&mut self, socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<Came> {
        self.nodes[socket.node].read(socket.id, buffer)
    }

    /// Whether a socket takes more.
    ///
    /// # Errors
    /// The connection is over.
    pub fn has_room(&mut self, socket: &Socket) -> io::Result<bool> {
        let node = &mut self.nodes[socket.node];
        let is_short = node.budget.is_short();
        let end = node.end(socket.id).expect("it is there until its user leaves it");
        end.connected().map(|()| end.output.has_room(is_short))
    }

    /// Whether the guest of a socket has little memory left for what is sent.
    pub fn is_short(&self, socket: &Socket) -> bool {
        self.nodes[socket.node].budget.is_short()
    }

    /// So many bytes of memory are taken by what was read of a socket and waits for the engine, or
    /// waits to be sent.
    pub fn set_pending(&mut self, socket: &Socket, bytes: u64) {
        self.nodes[socket.node].set_pending(socket.id, bytes);
    }

    /// Has the processor fetch what belongs to a socket that is about to be used.
    pub fn fetch(&self, socket: &Socket) {
        self.nodes[socket.node].fetch(socket.id);
    }

    /// A buffer in which to put together what is sent.
    pub fn buffer(&mut self, socket: &Socket) -> Vec<u8> {
        self.nodes[socket.node].outgoing.take()
    }

    /// Has it sent, in segments of `cut` bytes or less, of which none goes beyond a piece.
    pub fn send(&mut self, socket: &Socket, taken: Taken, cut: usize) {
        self.nodes[socket.node].send(socket.id, taken, cut);
    }

    /// No more is sent.
    pub fn finish(&mut self, socket: &Socket) {
        self.nodes[socket.node].finish(socket.id, &mut self.ready);
    }

    /// Ends a connection by a RST.
    pub fn reset(&mut self, socket: Socket) {
        self.nodes[socket.node].reset(socket.id, &mut self.ready);
    }

    /// Its user has done with it. It ends by itself, if both ends have said so.
    pub fn leave(&mut self, socket: Socket) {
        self.nodes[socket.node].leave(socket.id);
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(Node::next_deadline).min().map(|at| Instant(at.0))
    }

    /// Does what is due, of a few connections in each turn, of guests by turns; true if there may
    /// be more.
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

    /// The next segment to send, of guests and their connections by turns. It counts as sent.
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

    /// How long its frame is.
    pub fn len(&self, segment: &Segment) -> usize {
        let data = &segment.outgoing.segment.data;
        self.nodes[segment.node].packet(&segment.outgoing).len() + (data.end - data.start) as usize
    }

    /// Writes its frame to the front of a buffer, and returns the headers. A port that can do these
    /// checksums may have to fill one in: then that is returned, too.
    pub fn write(&mut self, segment: &Segment, buffer: &mut [u8], can: Checksums) -> (Head, Option<Offload>) {
        self.nodes[segment.node].write(&segment.outgoing, buffer, can)
    }

    /// What the TCP of a guest counted, by name; nothing without one.
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

/// The same clock in the words of TCP.
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
