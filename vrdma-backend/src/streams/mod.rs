//! The connections of iWARP functions, between the engine and a TCP.
//!
//! The TCP is the host's or vrdma's own. Only the [`stream_transport`] knows which one;
//! [`user_tcp`] adapts vrdma's.
//!
//! A connection begins with a command of the driver, or at a listener. First it carries MPA's
//! request and reply, which `transport` encodes and decodes. Then it is the stream of a QP.
//! Received bytes go to the engine. FPDUs of the engine are copied into the connection's
//! [`output`], which goes to TCP once a round. Nothing here blocks.
//!
//! The methods of [`Streams`] are in several files. Each uses only those before it:
//!
//! * this file has the state, [`outlet`] the engine's interface, and [`receiver`] the interface of
//!   vrdma's own TCP;
//! * [`end`] ends connections, and [`input`] handles received bytes;
//! * [`watch`] waits for events of connections and listeners, and [`expiry`] for deadlines;
//! * [`serve`] does all that can be done for a connection;
//! * [`accept`] and [`commands`] execute the driver's commands;
//! * [`turn`] is the worker's round.
//!
//! All of them identify connections and listeners by [`handle`]s. A handle does not outlive its
//! entry, while the number that the driver uses is reused.
//!
//! A connection is taken out of the [`table`] to be worked on, and put back. It has a QP
//! ([`bindings`]) from CM_CONNECT or CM_ACCEPT until it begins to end.

mod accept;
mod bindings;
mod buffers;
pub mod cm;
mod commands;
mod connection;
mod deadlines;
mod end;
mod expiry;
mod guest;
mod handle;
mod hash;
mod input;
mod listener;
mod outlet;
mod output;
mod pending;
mod ready;
mod receiver;
mod serve;
mod stream_transport;
mod table;
#[cfg(test)]
mod tests;
mod turn;
mod user_tcp;
mod watch;

use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::translate::event::AsyncEvent;
use bindings::Bindings;
use cm::{CmEvent, ConnectionId, What};
use connection::Connection;
use deadlines::Deadlines;
use guest::Guest;
pub use handle::Handle;
use hash::NumberMap;
pub use output::Output;
use ready::Ready;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use table::Table;
pub use user_tcp::{Came, SEGMENTS, SegmentReceiver, TURN_BYTES, UserSocket, UserTcp};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Engine, Error, Instant};

type Result<T> = std::result::Result<T, Error>;

/// The parts of the worker that streams use.
pub struct Host<'a> {
    /// The engine that has the QPs of the streams.
    pub engine: &'a mut Engine<MrMemory>,
    /// The destination of completions and events.
    pub outputs: &'a mut Outputs,
    /// The engine's time.
    pub now: Instant,
}

/// All connections and listeners of a worker.
pub struct Streams {
    /// Watches the epoll sets of all guests. The worker's epoll set watches it while the worker
    /// sleeps.
    epoll: Epoll,
    table: Table,
    guests: NumberMap<DeviceId, Guest>,
    bindings: Bindings,
    deadlines: Deadlines,
    /// Entries to be served: those with socket events, and connections with bytes that the engine
    /// did not take.
    ready: Ready,
    /// Number of entries served since one had an effect, or since the worker slept.
    in_vain: usize,
    /// Bytes moved for the connection that is being served.
    moved: usize,
    /// Connections of guests that were reset. Each round closes a few.
    leaving: VecDeque<Box<Connection>>,
    /// Connections that the engine used in this round.
    touched: Vec<Handle>,
    /// Bytes of FPDUs written in this round, for vrdma's own TCP and for loopback connections.
    put: usize,
    /// Bytes of FPDUs written in this round for the kernel's TCP.
    put_kernel: usize,
    scratch: Vec<u8>,
    /// vrdma's own TCP, of the guests that use it.
    pub user_tcp: UserTcp,
    /// Whether connections between guests of this worker are loopback connections instead of
    /// vrdma's own TCP.
    pub has_local_way: bool,
    /// Rounds since the sockets were polled.
    turns: u32,
}

impl Streams {
    /// Sets the weight of a guest, which multiplies its turns.
    pub fn set_weight(&mut self, device: DeviceId, weight: u32) {
        self.ready.set_weight(device, weight);
    }

    /// Returns an empty set.
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
            user_tcp: UserTcp::default(),
            has_local_way: true,
            turns: 0,
        })
    }

    /// Adds the epoll set of all sockets to the worker's epoll set.
    ///
    /// # Errors
    /// The system is out of memory.
    pub fn watch_in(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        epoll.ctl(ControlOperation::Add, self.epoll.as_raw_fd(), EpollEvent::new(EventSet::IN, token))
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next().into_iter().chain(self.user_tcp.next_deadline()).min()
    }

    /// Whether any entry is waiting to be served or closed.
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty() || !self.leaving.is_empty() || self.user_tcp.ready() != 0
    }

    /// Returns how many connections and listener sockets a guest has.
    ///
    /// Connections that are still to be closed count, too. A listener on any address has as many
    /// sockets as the guest has host addresses.
    pub fn count(&self, device: DeviceId) -> u32 {
        self.guests.get(&device).map_or(0, Guest::count)
    }

    /// Returns the ports on which a guest listens, in order.
    ///
    /// A port is there twice if the guest listens on it at two addresses.
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

    /// Checks that a guest may have `more` connections or sockets in addition.
    fn check_room(&self, device: DeviceId, more: u32, host: &mut Host<'_>) -> Result<()> {
        let most = host.outputs.device(device).limits().guest.connections;
        if self.count(device).saturating_add(more) <= most { Ok(()) } else { Err(Error::NoResources) }
    }

    /// Reserves a handle for a new entry of a guest.
    fn reserve(&mut self, device: DeviceId) -> Handle {
        let handle = self.table.reserve();
        self.guest(device).entries.insert(handle);
        handle
    }

    /// Frees the handle of an entry that is gone.
    fn release_handle(&mut self, device: DeviceId, handle: Handle) {
        self.guest(device).remove(handle);
        self.table.free(handle);
    }

    /// Lists an entry to be served in its guest's turn, if it still exists.
    fn list(&mut self, handle: Handle, events: EventSet) {
        if let Some(connection) = self.table.connection(handle) {
            connection.due |= events;
            if !std::mem::replace(&mut connection.is_listed, true) {
                self.ready.push(connection.device, handle);
                self.in_vain = 0;
            }
        } else if let Some(listener) = self.table.listener(handle)
            && !std::mem::replace(&mut listener.is_listed, true)
        {
            self.ready.push(listener.device, handle);
            self.in_vain = 0;
        }
    }

    /// Queues an event for the driver about a connection.
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
