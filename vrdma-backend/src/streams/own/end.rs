//! One end of a connection of our own TCP: what its user would ask a socket of.

use super::budget::{Budget, Purpose};
use super::receive::{Came, Received, Room, WINDOW};
use super::send::SendBuffer;
use crate::streams::buffers::Buffers;
use crate::streams::handle::Handle;
use std::io;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::Reason;

/// Bytes that are taken of a peer before anybody has taken the connection: more than a request of
/// MPA has.
const UNACCEPTED: usize = 4096;

/// Who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// A listener, which has not taken it yet.
    Listener(Handle),
    /// A connection.
    Connection(Handle),
    /// Nobody any more: what was put in is still sent, and it is over after that.
    Nobody,
}

/// See the module.
#[derive(Debug)]
pub(super) struct End {
    pub user: User,
    pub output: SendBuffer,
    pub input: Received,
    pub is_established: bool,
    /// The peer has ended its stream.
    pub peer_ended: bool,
    /// TCP has no such connection any more.
    pub closed: Option<Reason>,
    /// What its user wants to be told of.
    pub wants: Option<EventSet>,
    /// Its user is in the queue of those who are to be told.
    pub is_queued: bool,
    /// Bytes of memory that it has of its guest's.
    pub charged: u64,
}

impl End {
    pub fn new(user: User) -> End {
        End {
            user,
            output: SendBuffer::default(),
            input: Received::default(),
            is_established: false,
            peer_ended: false,
            closed: None,
            wants: None,
            is_queued: false,
            charged: 0,
        }
    }

    /// What may be kept of what the peer sends.
    pub fn room(&self, budget: &Budget) -> Room {
        let limit = match self.user {
            User::Listener(_) => UNACCEPTED,
            User::Connection(_) => 2 * WINDOW as usize,
            User::Nobody => 0,
        };
        let [in_order, beyond_hole] =
            [Purpose::InOrder, Purpose::BeyondHole].map(|purpose| budget.room(purpose));
        Room { limit, in_order, beyond_hole }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.input.memory() + self.output.memory()
    }

    /// Has its guest's budget know what it takes now.
    pub fn charge(&mut self, budget: &mut Budget) {
        let now = self.memory();
        let before = std::mem::replace(&mut self.charged, now);
        if before != now {
            budget.change(before, now);
        }
    }

    /// What its user is to be told, in the words of epoll.
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

    /// Takes what came in order, or why there is nothing; 0 bytes at the end of the stream.
    pub fn read(&mut self, buffer: &mut Vec<u8>, buffers: &mut Buffers) -> io::Result<Came> {
        if self.input.is_ready() {
            return Ok(self.input.read(buffer, buffers));
        }
        match self.closed {
            _ if self.peer_ended => Ok(Came::Bytes(0)),
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(reason) => Err(error(reason)),
        }
    }

    /// Whether it was connected, and why not.
    pub fn connected(&self) -> io::Result<()> {
        self.closed.map_or(Ok(()), |reason| Err(error(reason)))
    }
}

/// The same in the words of the kernel's sockets.
fn error(reason: Reason) -> io::Error {
    io::Error::from_raw_os_error(match reason {
        Reason::Refused => libc::ECONNREFUSED,
        Reason::TimedOut => libc::ETIMEDOUT,
        Reason::Reset => libc::ECONNRESET,
        Reason::Aborted | Reason::Finished => libc::ECONNABORTED,
    })
}
