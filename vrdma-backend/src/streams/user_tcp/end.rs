//! One end of a connection of vrdma's own TCP, as its user sees it.

use super::budget::{Budget, Purpose};
use super::receive::{Came, ReceiveBuffer, Room, WINDOW};
use super::send::SendBuffer;
use crate::streams::buffers::FreeBuffers;
use crate::streams::handle::Handle;
use std::io;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::Reason;

/// Bytes that are taken from a peer before the connection is accepted. An MPA request is shorter.
const UNACCEPTED: usize = 4096;

/// The user of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndUser {
    /// A listener. The connection is not accepted yet.
    Listener(Handle),
    /// A connection of [`Streams`](crate::streams::Streams).
    Connection(Handle),
    /// Nobody any more. Queued output is still sent, then the connection ends.
    Nobody,
}

/// One end of a connection: its buffers and its events.
#[derive(Debug)]
pub(super) struct End {
    pub user: EndUser,
    pub output: SendBuffer,
    pub input: ReceiveBuffer,
    pub is_established: bool,
    /// Whether the peer has ended its stream.
    pub peer_ended: bool,
    /// Why TCP has closed the connection, once it has.
    pub closed: Option<Reason>,
    /// The events that its user wants.
    pub wants: Option<EventSet>,
    /// Whether its user is in the queue of users with events.
    pub is_queued: bool,
    /// Bytes of memory charged to its guest.
    pub charged: u64,
}

impl End {
    pub fn new(user: EndUser) -> End {
        End {
            user,
            output: SendBuffer::default(),
            input: ReceiveBuffer::default(),
            is_established: false,
            peer_ended: false,
            closed: None,
            wants: None,
            is_queued: false,
            charged: 0,
        }
    }

    /// Returns how much received data may be kept.
    pub fn room(&self, budget: &Budget) -> Room {
        let limit = match self.user {
            EndUser::Listener(_) => UNACCEPTED,
            EndUser::Connection(_) => 2 * WINDOW as usize,
            EndUser::Nobody => 0,
        };
        let [in_order, out_of_order] =
            [Purpose::InOrder, Purpose::OutOfOrder].map(|purpose| budget.room(purpose));
        Room { limit, in_order, out_of_order }
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.input.memory() + self.output.memory()
    }

    /// Updates its guest's budget.
    pub fn charge(&mut self, budget: &mut Budget) {
        let now = self.memory();
        let before = std::mem::replace(&mut self.charged, now);
        if before != now {
            budget.change(before, now);
        }
    }

    /// Returns its pending events, as flags of epoll.
    pub fn events(&self, budget: &Budget) -> EventSet {
        let Some(wants) = self.wants else { return EventSet::empty() };
        let mut now = EventSet::empty();
        if self.input.is_ready() || self.peer_ended || self.closed.is_some() {
            now |= EventSet::IN;
        }
        if self.peer_ended {
            now |= EventSet::READ_HANG_UP;
        }
        if self.is_established && self.output.has_room(budget.is_short()) {
            now |= EventSet::OUT;
        }
        let mut told = now & wants;
        match self.closed {
            None => {}
            Some(Reason::Finished) => told |= EventSet::HANG_UP,
            Some(_) => told |= EventSet::HANG_UP | EventSet::ERROR,
        }
        told
    }

    /// Reads data that came in order. Returns 0 bytes at the end of the stream.
    pub fn read(&mut self, buffer: &mut Vec<u8>, buffers: &mut FreeBuffers) -> io::Result<Came> {
        if self.input.is_ready() {
            return Ok(self.input.read(buffer, buffers));
        }
        match self.closed {
            _ if self.peer_ended => Ok(Came::Bytes(0)),
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(reason) => Err(error(reason)),
        }
    }

    /// Checks that TCP has not closed the connection.
    pub fn connected(&self) -> io::Result<()> {
        self.closed.map_or(Ok(()), |reason| Err(error(reason)))
    }
}

/// Translates a reason to the error of a kernel socket.
fn error(reason: Reason) -> io::Error {
    io::Error::from_raw_os_error(match reason {
        Reason::Refused => libc::ECONNREFUSED,
        Reason::TimedOut => libc::ETIMEDOUT,
        Reason::Reset => libc::ECONNRESET,
        Reason::Aborted | Reason::Finished => libc::ECONNABORTED,
    })
}
