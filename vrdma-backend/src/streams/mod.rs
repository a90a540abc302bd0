//! The connections of iWARP functions, over the host's TCP or our own: from a socket to the engine
//! and back.
//!
//! A connection begins with a command of the driver, or by a listener of it; MPA's request and
//! reply go through it (`transport` knows what they say), then it is the QP's stream: what comes is
//! handed to the engine, what the engine sends is copied into its [`output`], and goes to TCP once
//! a turn. Nothing here waits. Whose TCP it is knows the [`carrier`] alone; [`own`] is ours.
//!
//! [`turn`] is what the worker does, [`input`] takes what comes, [`end`] ends connections,
//! [`commands`] and [`accept`] are what drivers ask for, [`outlet`] what the engine does. All of it
//! names connections and listeners by [`handle`]s, which outlive no entry: the number by which the
//! driver knows one is used again.
//!
//! A connection is taken out of the [`table`] to be worked on, and put back. It has a QP
//! ([`bindings`]) from CM_CONNECT or CM_ACCEPT until it begins to end.

mod accept;
mod bindings;
mod buffers;
mod carrier;
pub mod cm;
mod commands;
mod connection;
mod deadlines;
mod end;
mod guest;
mod handle;
mod hash;
mod input;
mod listener;
mod outlet;
mod output;
mod own;
mod pending;
mod ready;
mod table;
mod taker;
#[cfg(test)]
mod tests;
mod turn;

use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::translate::event::AsyncEvent;
use bindings::Bindings;
use cm::{CmEvent, ConnectionId, What};
use connection::{Connection, Phase};
use deadlines::Deadlines;
use guest::Guest;
pub use handle::Handle;
use hash::NumberMap;
pub use output::Output;
pub use own::{Came, Own, SEGMENTS, Socket, TURN_BYTES, Taker};
use ready::Ready;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use table::Table;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Engine, Error, Instant};

type Result<T> = std::result::Result<T, Error>;

/// What streams do needs of the worker.
pub struct Host<'a> {
    /// Whose streams these are.
    pub engine: &'a mut Engine<MrMemory>,
    /// Where completions and events go.
    pub outputs: &'a mut Outputs,
    /// The engine's time.
    pub now: Instant,
}

/// All connections and listeners of a worker.
pub struct Streams {
    /// Watches what watches the sockets of each guest; it is watched by the worker's when that
    /// sleeps.
    epoll: Epoll,
    table: Table,
    guests: NumberMap<DeviceId, Guest>,
    bindings: Bindings,
    deadlines: Deadlines,
    /// Who is to be served: those of which something came, and connections with bytes that the
    /// engine did not take.
    ready: Ready,
    /// So many of these were served since anything came of one, or the worker slept.
    in_vain: usize,
    /// Bytes that were moved for the connection that is served now.
    moved: usize,
    /// Connections of guests that were reset, which are closed a few in each turn.
    leaving: VecDeque<Box<Connection>>,
    /// Connections to which the engine did something, in this turn.
    touched: Vec<Handle>,
    /// Bytes that were put together for our own TCP in this turn.
    put: usize,
    /// The same for the kernel's.
    put_kernel: usize,
    scratch: Vec<u8>,
    /// The TCP of those guests that have our own.
    pub own: Own,
    /// Those go without it from one guest of this worker to another.
    pub has_local_way: bool,
    /// Turns since the sockets were looked at.
    turns: u32,
}

impl Streams {
    /// None yet.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> io::Result<Streams> {
        Ok(Streams {
            epoll: Epoll::new()?,
            table: Table::default(),
            guests: NumberMap::default(),
            bindings: Bindings::default(),
            deadlines: Deadlines::default(),
            ready: Ready::default(),
            in_vain: 0,
            moved: 0,
            leaving: VecDeque::new(),
            touched: Vec::new(),
            put: 0,
            put_kernel: 0,
            scratch: Vec::new(),
            own: Own::default(),
            has_local_way: true,
            turns: 0,
        })
    }

    /// Has the worker's epoll watch all of it.
    ///
    /// # Errors
    /// The system is out of memory.
    pub fn watch_in(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        epoll.ctl(ControlOperation::Add, self.epoll.as_raw_fd(), EpollEvent::new(EventSet::IN, token))
    }

    /// When something is to be done by itself.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next().into_iter().chain(self.own.next_deadline()).min()
    }

    /// Whether somebody is to be served, or closed, soon.
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty() || !self.leaving.is_empty() || self.own.ready() != 0
    }

    /// Connections of a guest, those included that are still to be closed, and sockets of its
    /// listeners, of which one at any address has as many as the guest has host addresses.
    pub fn count(&self, device: DeviceId) -> u32 {
        self.guests.get(&device).map_or(0, Guest::count)
    }

    /// Ports at which a guest listens, in order; one twice if it does at two addresses.
    pub fn listening(&mut self, device: DeviceId) -> Vec<u16> {
        let entries = self.guests.get(&device).map(|guest| &guest.entries).into_iter().flatten();
        let mut ports: Vec<u16> =
            entries.filter_map(|&handle| Some(self.table.listener(handle)?.port)).collect();
        ports.sort_unstable();
        ports
    }

    fn guest(&mut self, device: DeviceId) -> &mut Guest {
        self.guests.entry(device).or_default()
    }

    fn is_suspended(&self, device: DeviceId) -> bool {
        self.guests.get(&device).is_some_and(|guest| guest.is_suspended)
    }

    /// Whether a guest may have so many more.
    fn check_room(&self, device: DeviceId, more: u32, host: &mut Host<'_>) -> Result<()> {
        let most = host.outputs.device(device).limits().guest.connections;
        if self.count(device).saturating_add(more) <= most { Ok(()) } else { Err(Error::NoResources) }
    }

    /// A handle for a new entry of a guest.
    fn reserve(&mut self, device: DeviceId) -> Handle {
        let handle = self.table.reserve();
        self.guest(device).entries.insert(handle);
        handle
    }

    /// An entry is gone.
    fn release_handle(&mut self, device: DeviceId, handle: Handle) {
        self.guest(device).remove(handle);
        self.table.free(handle);
    }

    /// Puts a connection back that was worked on, or forgets it: one that is over and that no
    /// driver knows of.
    fn put_back(&mut self, mut connection: Box<Connection>, host: &mut Host<'_>) {
        connection.charge(&mut self.own);
        let (guests, all, device) = (&mut self.guests, &self.epoll, connection.device);
        let watched =
            connection.watch(|| guests.entry(device).or_default().epoll(device, all), &mut self.own);
        if let Err(error) = watched {
            log::warn!("a connection cannot be watched: {error}");
            // Nothing would tell of what comes. Without a socket there is nothing to watch.
            self.lose(&mut connection, host);
        }
        let phase = &connection.phase;
        assert_eq!(connection.bound.qpn().is_some(), phase.has_qp(), "it has a QP as long as it needs one");
        let is_gone = matches!(phase, Phase::Over) && !connection.is_known;
        let deadline = connection.deadline.filter(|_| !is_gone);
        self.deadlines.set(connection.handle, &mut connection.armed, deadline);
        if !is_gone {
            return self.table.put(connection);
        }
        self.answered(&mut connection, host);
        self.guest(connection.device).forget(&mut connection.told);
        self.release_handle(connection.device, connection.handle);
    }

    /// The driver is told what happened.
    fn tell(&mut self, connection: &mut Connection, what: What, private_data: Vec<u8>, host: &mut Host<'_>) {
        if !connection.is_known {
            return;
        }
        let (ird, ord) = connection.depths;
        let event = CmEvent {
            what,
            connection: ConnectionId(connection.handle.number),
            local: connection.local,
            remote: connection.remote,
            ird,
            ord,
            private_data,
        };
        self.guest(connection.device).tell(&mut connection.told, event);
        host.outputs.async_event(connection.device, AsyncEvent::connections());
    }
}
