//! The connections of iWARP functions, over the host's TCP: from a socket to the engine and back.
//!
//! A connection begins with a command of the driver, or by a listener of it; MPA's request and reply go through it (`transport` knows what they say), then it is the QP's stream:
//! what comes is handed to the engine, what the engine sends is copied into its [`output`], and goes to the kernel once a turn. Nothing here waits.
//!
//! [`turn`] is what the worker does, [`commands`] what drivers ask for, [`outlet`] what the engine does.

mod commands;
mod connection;
mod outlet;
mod output;
mod turn;

use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::translate::cm::{CmEvent, Failure, What};
use crate::translate::event::AsyncEvent;
use connection::{Connection, Phase};
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Engine, Instant};
use vrdma_wire::num::Qpn;

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
    /// Watches their sockets; it is watched by the worker's when that sleeps.
    epoll: Epoll,
    /// By number.
    entries: Vec<Option<Entry>>,
    free: VecDeque<u32>,
    guests: HashMap<DeviceId, Guest>,
    /// The connection that a QP has, or will have.
    of_qp: HashMap<(DeviceId, Qpn), u32>,
    /// Connections with bytes that the engine did not take.
    stalled: Vec<u32>,
    /// Connections to which the engine did something, in this turn.
    touched: Vec<u32>,
    /// No deadline is earlier.
    next_deadline: Option<Instant>,
    scratch: Box<[u8]>,
    /// Turns since the sockets were looked at.
    turns: u32,
}

enum Entry {
    Listener(Listener),
    Connection(Box<Connection>),
}

/// Listens for connections to a port of the guest, at each of its addresses.
struct Listener {
    device: DeviceId,
    sockets: Vec<Socket>,
    backlog: usize,
    /// Connections of its that wait for an answer of the driver.
    waiting: usize,
    is_watched: bool,
}

/// What a guest's driver was not told yet, and how much it has.
#[derive(Default)]
struct Guest {
    events: VecDeque<CmEvent>,
    /// Connections and listeners.
    entries: u32,
}

/// Bytes that are read of a connection in one go.
const READ: usize = 64 << 10;

impl Streams {
    /// None yet.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> io::Result<Streams> {
        Ok(Streams {
            epoll: Epoll::new()?,
            entries: Vec::new(),
            free: VecDeque::new(),
            guests: HashMap::new(),
            of_qp: HashMap::new(),
            stalled: Vec::new(),
            touched: Vec::new(),
            next_deadline: None,
            scratch: vec![0; READ].into(),
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
        self.next_deadline
    }

    /// Whether bytes wait for the engine, which is to be asked again soon.
    pub fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Connections and listeners of a guest.
    pub fn count(&self, device: DeviceId) -> u32 {
        self.guests.get(&device).map_or(0, |guest| guest.entries)
    }

    fn insert(&mut self, device: DeviceId, entry: Entry) -> u32 {
        self.guests.entry(device).or_default().entries += 1;
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[number as usize] = Some(entry);
        number
    }

    /// The number of an entry that was taken out is free.
    fn removed(&mut self, device: DeviceId, number: u32) {
        self.free.push_back(number);
        if let Some(guest) = self.guests.get_mut(&device) {
            guest.entries -= 1;
        }
    }

    /// Takes a connection out, to work on it; [`Streams::put_back`] follows.
    fn take(&mut self, number: u32) -> Option<Box<Connection>> {
        let entry = self.entries.get_mut(number as usize)?;
        match entry.take() {
            Some(Entry::Connection(connection)) => Some(connection),
            other => {
                *entry = other;
                None
            }
        }
    }

    /// Puts a connection back, or forgets it: one that is over and that no driver knows of.
    fn put_back(&mut self, number: u32, mut connection: Box<Connection>) {
        if !matches!(connection.phase, Phase::Requested(_) | Phase::AwaitsRequest(_))
            && let Some(listener) = connection.listener.take()
        {
            self.answered(listener);
        }
        if matches!(connection.phase, Phase::Over) {
            self.forget_qp(&connection, number);
            if !connection.is_known {
                return self.removed(connection.device, number);
            }
        }
        if connection.watch(&self.epoll, number.into()).is_err() {
            // The system has no memory for it: there is nothing that could be waited for.
            connection.abort();
        }
        self.arm(connection.deadline);
        self.entries[number as usize] = Some(Entry::Connection(connection));
    }

    fn forget_qp(&mut self, connection: &Connection, number: u32) {
        if let Some(qpn) = connection.qpn
            && self.of_qp.get(&(connection.device, qpn)) == Some(&number)
        {
            self.of_qp.remove(&(connection.device, qpn));
        }
    }

    fn arm(&mut self, deadline: Option<Instant>) {
        self.next_deadline = [self.next_deadline, deadline].into_iter().flatten().min();
    }

    /// A connection of a listener waits for the driver no more.
    fn answered(&mut self, listener: u32) {
        let entry = self.entries.get_mut(listener as usize).and_then(Option::as_mut);
        // Another may have its number by now, whose connections are fewer then than it thinks: which is no harm.
        if let Some(Entry::Listener(known)) = entry {
            known.waiting = known.waiting.saturating_sub(1);
            known.watch(&self.epoll, listener.into());
        }
    }

    /// The driver is told what happened.
    fn tell(
        &mut self,
        connection: &Connection,
        number: u32,
        what: What,
        private_data: Vec<u8>,
        host: &mut Host<'_>,
    ) {
        if !connection.is_known {
            return;
        }
        let (ird, ord) = connection.depths;
        let event = CmEvent {
            what,
            connection: number,
            local: connection.local,
            remote: connection.remote,
            ird,
            ord,
            private_data,
        };
        self.guests.entry(connection.device).or_default().events.push_back(event);
        host.outputs.async_event(connection.device, AsyncEvent::connections());
    }

    /// Ends a connection at once, whatever it is about, and tells of it.
    fn abort(&mut self, connection: &mut Connection, number: u32, why: Failure, host: &mut Host<'_>) {
        let told: &[What] = match connection.phase {
            Phase::Connecting(..) | Phase::AwaitsReply(_) => &[What::ConnectReply(Err(why))],
            // Who accepts it finds that it has gone.
            Phase::AwaitsRequest(_) | Phase::Requested(_) | Phase::Over => &[],
            Phase::Open => &[What::Disconnect, What::Close],
            Phase::Closing { .. } => &[What::Close],
        };
        connection.abort();
        for &what in told {
            self.tell(connection, number, what, Vec::new(), host);
        }
    }
}

impl Listener {
    /// Watches its sockets as long as it may have another connection.
    fn watch(&mut self, epoll: &Epoll, token: u64) {
        let wanted = self.waiting < self.backlog;
        if wanted == self.is_watched {
            return;
        }
        for socket in &self.sockets {
            let operation = if wanted { ControlOperation::Add } else { ControlOperation::Delete };
            if let Err(error) = epoll.ctl(operation, socket.as_raw_fd(), EpollEvent::new(EventSet::IN, token))
            {
                log::warn!("a listener cannot be watched: {error}");
            }
        }
        self.is_watched = wanted;
    }
}
