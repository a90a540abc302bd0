//! A listener: its sockets, in turns, and who came from it.

use super::deadlines::Armed;
use super::handle::Handle;
use crate::tcp::{self, Accepted};
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Instant};

/// Listens for connections to a port of the guest, at each of its addresses.
pub(super) struct Listener {
    pub(super) handle: Handle,
    pub(super) device: DeviceId,
    sockets: Vec<Socket>,
    /// The socket whose turn it is.
    next: usize,
    backlog: usize,
    /// Connections of its that the driver has not answered.
    pub(super) waiting: BTreeSet<Handle>,
    is_watched: bool,
    /// It is not watched until then.
    pub(super) paused: Option<Instant>,
    pub(super) armed: Armed,
}

impl Listener {
    pub(super) fn new(handle: Handle, device: DeviceId, sockets: Vec<Socket>, backlog: usize) -> Listener {
        Listener {
            handle,
            device,
            sockets,
            next: 0,
            backlog,
            waiting: BTreeSet::new(),
            is_watched: false,
            paused: None,
            armed: Armed::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(handle: Handle) -> Listener {
        Listener::new(handle, DeviceId(0), Vec::new(), 1)
    }

    /// Whether it may have another connection now.
    pub(super) fn takes_more(&self) -> bool {
        self.waiting.len() < self.backlog && self.paused.is_none()
    }

    /// The next connection, of one socket after the other.
    pub(super) fn accept(&mut self) -> io::Result<Option<Accepted>> {
        for _ in 0..self.sockets.len() {
            let socket = &self.sockets[self.next];
            self.next = (self.next + 1) % self.sockets.len();
            if let Some(accepted) = tcp::accept(socket)? {
                return Ok(Some(accepted));
            }
        }
        Ok(None)
    }

    /// Watches its sockets as long as it may have another connection.
    pub(super) fn watch(&mut self, epoll: &Epoll) -> io::Result<()> {
        let wanted = self.takes_more();
        if wanted == self.is_watched {
            return Ok(());
        }
        self.is_watched = wanted;
        let operation = || if wanted { ControlOperation::Add } else { ControlOperation::Delete };
        let event = EpollEvent::new(EventSet::IN, self.handle.token());
        for at in 0..self.sockets.len() {
            if let Err(error) = epoll.ctl(operation(), self.sockets[at].as_raw_fd(), event) {
                // Those that are watched are so no longer.
                for socket in &self.sockets[..at] {
                    let _ = epoll.ctl(ControlOperation::Delete, socket.as_raw_fd(), event);
                }
                self.is_watched = false;
                return Err(error);
            }
        }
        Ok(())
    }
}
