//! The transport of a connection.
//!
//! It is a kernel socket of the host's TCP, vrdma's own TCP, or a loopback connection between
//! guests of this worker. All operations are defined here once, with the semantics of kernel
//! sockets.

use super::handle::Handle;
use super::output::Output;
use super::own::{self, Came, Own, PIPE_MSS, Pipe};
use crate::tcp;
use socket2::Socket;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Bytes read from a kernel socket in one call.
const READ: usize = 64 << 10;

/// The transport of a connection.
pub(super) enum Carrier {
    /// A socket of the host's TCP.
    Kernel(Socket),
    /// A connection of vrdma's own TCP.
    Own(own::Socket),
    /// A loopback connection, without TCP.
    Local(Pipe),
}

impl Carrier {
    /// Whether it is a kernel socket.
    pub(super) fn is_kernels(&self) -> bool {
        matches!(self, Carrier::Kernel(_))
    }

    /// Watches for the events that the connection wants now. Only kernel sockets need an epoll set.
    ///
    /// `before` are the events that it wanted until now.
    ///
    /// # Errors
    /// The system is out of memory, or this user has no watches left.
    pub(super) fn watch<'a>(
        &self,
        handle: Handle,
        (before, wants): (Option<EventSet>, Option<EventSet>),
        epoll: impl FnOnce() -> io::Result<&'a Epoll>,
        own: &mut Own,
    ) -> io::Result<()> {
        let socket = match self {
            Carrier::Own(socket) => {
                // Events that are pending already are reported again, as epoll does.
                own.watch(socket, handle, wants);
                return Ok(());
            }
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                pipes.watch(pipe, handle, wants, ready);
                return Ok(());
            }
            Carrier::Kernel(_) if before == wants => return Ok(()),
            Carrier::Kernel(socket) => socket,
        };
        let operation = match (before, wants) {
            (None, _) => ControlOperation::Add,
            (Some(_), Some(_)) => ControlOperation::Modify,
            (Some(_), None) => ControlOperation::Delete,
        };
        let event = EpollEvent::new(wants.unwrap_or(EventSet::empty()), handle.token());
        epoll()?.ctl(operation, socket.as_raw_fd(), event)?;
        Ok(())
    }

    /// Returns the pending events of the connection. Those of a kernel socket come from epoll.
    pub(super) fn events(&self, own: &mut Own) -> EventSet {
        match self {
            Carrier::Kernel(_) => EventSet::empty(),
            Carrier::Own(socket) => own.events(socket),
            Carrier::Local(pipe) => own.pipes().0.events(pipe),
        }
    }

    /// Checks that it is connected. Returns the local address if that may differ from the requested
    /// one.
    ///
    /// # Errors
    /// Why it is not connected.
    pub(super) fn connected(&self, own: &mut Own) -> io::Result<Option<SocketAddr>> {
        match self {
            Carrier::Kernel(socket) => {
                socket.take_error()?.map_or(Ok(()), Err)?;
                Ok(socket.local_addr()?.as_socket())
            }
            Carrier::Own(socket) => own.connected(socket).map(|()| None),
            Carrier::Local(pipe) => own.pipes().0.connected(pipe).map(|()| None),
        }
    }

    /// Reads bytes into the front of a buffer, which grows as needed.
    ///
    /// # Errors
    /// The errors of a non-blocking socket.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>, own: &mut Own) -> io::Result<Came> {
        match self {
            Carrier::Kernel(socket) => {
                buffer.resize(READ.max(buffer.len()), 0);
                socket.read(buffer).map(Came::Bytes)
            }
            Carrier::Own(socket) => own.read(socket, buffer),
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                pipes.read(pipe, buffer, ready)
            }
        }
    }

    /// Passes queued output to TCP, as far as there is room. `cut` is the length of a whole
    /// segment.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn send(&self, output: &mut Output, cut: usize, own: &mut Own) -> io::Result<()> {
        match self {
            Carrier::Kernel(socket) => output.flush(socket, cut),
            Carrier::Own(_) | Carrier::Local(_) if output.is_empty() => Ok(()),
            Carrier::Own(socket) => {
                if own.has_room(socket)? {
                    own.send(socket, output.take(), cut);
                }
                Ok(())
            }
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                if pipes.has_room(pipe)? {
                    pipes.send(pipe, output.take(), ready);
                }
                Ok(())
            }
        }
    }

    /// Ends the outgoing stream. If the connection is over already, reading reports that.
    pub(super) fn finish(&self, own: &mut Own) {
        match self {
            Carrier::Kernel(socket) => drop(socket.shutdown(Shutdown::Write)),
            Carrier::Own(socket) => own.finish(socket),
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                pipes.finish(pipe, ready);
            }
        }
    }

    /// Ends the connection with a RST.
    pub(super) fn reset(self, own: &mut Own) {
        match self {
            Carrier::Kernel(socket) => tcp::reset(socket),
            Carrier::Own(socket) => own.reset(socket),
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                pipes.reset(pipe, ready);
            }
        }
    }

    /// Releases a connection that has ended in order.
    pub(super) fn leave(self, own: &mut Own) {
        match self {
            Carrier::Kernel(socket) => drop(socket),
            Carrier::Own(socket) => own.leave(socket),
            Carrier::Local(pipe) => {
                let (pipes, ready) = own.pipes();
                pipes.leave(pipe, ready);
            }
        }
    }

    /// Returns the most data of a segment, in bytes.
    pub(super) fn mss(&self, own: &Own) -> Option<u32> {
        match self {
            Carrier::Kernel(socket) => socket.tcp_mss().ok(),
            Carrier::Own(socket) => own.mss(socket),
            Carrier::Local(_) => Some(PIPE_MSS),
        }
    }
}
