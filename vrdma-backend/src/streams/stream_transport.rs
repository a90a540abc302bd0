//! The transport of a connection.
//!
//! It is a kernel socket of the host's TCP, vrdma's own TCP, or a loopback connection between
//! guests of this worker. All operations are defined here once, with the semantics of kernel
//! sockets.

use super::handle::Handle;
use super::output::Output;
use super::user_tcp::{Came, LOOPBACK_MSS, Loopback, UserSocket, UserTcp};
use crate::tcp;
use socket2::Socket;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Bytes read from a kernel socket in one call.
const READ: usize = 64 << 10;

/// The transport of a connection.
pub(super) enum StreamTransport {
    /// A socket of the host's TCP.
    Kernel(Socket),
    /// A connection of vrdma's own TCP.
    Own(UserSocket),
    /// A loopback connection, without TCP.
    Local(Loopback),
}

impl StreamTransport {
    /// Whether it is a kernel socket.
    pub(super) fn is_kernels(&self) -> bool {
        matches!(self, StreamTransport::Kernel(_))
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
        user_tcp: &mut UserTcp,
    ) -> io::Result<()> {
        let socket = match self {
            StreamTransport::Own(socket) => {
                // Events that are pending already are reported again, as epoll does.
                user_tcp.watch(socket, handle, wants);
                return Ok(());
            }
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                loopbacks.watch(loopback, handle, wants, ready);
                return Ok(());
            }
            StreamTransport::Kernel(_) if before == wants => return Ok(()),
            StreamTransport::Kernel(socket) => socket,
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
    pub(super) fn events(&self, user_tcp: &mut UserTcp) -> EventSet {
        match self {
            StreamTransport::Kernel(_) => EventSet::empty(),
            StreamTransport::Own(socket) => user_tcp.events(socket),
            StreamTransport::Local(loopback) => user_tcp.loopbacks().0.events(loopback),
        }
    }

    /// Checks that it is connected. Returns the local address if that may differ from the requested
    /// one.
    ///
    /// # Errors
    /// Why it is not connected.
    pub(super) fn connected(&self, user_tcp: &mut UserTcp) -> io::Result<Option<SocketAddr>> {
        match self {
            StreamTransport::Kernel(socket) => {
                socket.take_error()?.map_or(Ok(()), Err)?;
                Ok(socket.local_addr()?.as_socket())
            }
            StreamTransport::Own(socket) => user_tcp.connected(socket).map(|()| None),
            StreamTransport::Local(loopback) => user_tcp.loopbacks().0.connected(loopback).map(|()| None),
        }
    }

    /// Reads bytes into the front of a buffer, which grows as needed.
    ///
    /// # Errors
    /// The errors of a non-blocking socket.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>, user_tcp: &mut UserTcp) -> io::Result<Came> {
        match self {
            StreamTransport::Kernel(socket) => {
                buffer.resize(READ.max(buffer.len()), 0);
                socket.read(buffer).map(Came::Bytes)
            }
            StreamTransport::Own(socket) => user_tcp.read(socket, buffer),
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                loopbacks.read(loopback, buffer, ready)
            }
        }
    }

    /// Passes queued output to TCP, as far as there is room. `cut` is the length of a whole
    /// segment.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn send(&self, output: &mut Output, cut: usize, user_tcp: &mut UserTcp) -> io::Result<()> {
        match self {
            StreamTransport::Kernel(socket) => output.flush(socket, cut),
            StreamTransport::Own(_) | StreamTransport::Local(_) if output.is_empty() => Ok(()),
            StreamTransport::Own(socket) => {
                if user_tcp.has_room(socket)? {
                    user_tcp.send(socket, output.take(), cut);
                }
                Ok(())
            }
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                if loopbacks.has_room(loopback)? {
                    loopbacks.send(loopback, output.take(), ready);
                }
                Ok(())
            }
        }
    }

    /// Ends the outgoing stream. If the connection is over already, reading reports that.
    pub(super) fn finish(&self, user_tcp: &mut UserTcp) {
        match self {
            StreamTransport::Kernel(socket) => drop(socket.shutdown(Shutdown::Write)),
            StreamTransport::Own(socket) => user_tcp.finish(socket),
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                loopbacks.finish(loopback, ready);
            }
        }
    }

    /// Ends the connection with a RST.
    pub(super) fn reset(self, user_tcp: &mut UserTcp) {
        match self {
            StreamTransport::Kernel(socket) => tcp::reset(socket),
            StreamTransport::Own(socket) => user_tcp.reset(socket),
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                loopbacks.reset(loopback, ready);
            }
        }
    }

    /// Releases a connection that has ended in order.
    pub(super) fn leave(self, user_tcp: &mut UserTcp) {
        match self {
            StreamTransport::Kernel(socket) => drop(socket),
            StreamTransport::Own(socket) => user_tcp.leave(socket),
            StreamTransport::Local(loopback) => {
                let (loopbacks, ready) = user_tcp.loopbacks();
                loopbacks.leave(loopback, ready);
            }
        }
    }

    /// Returns the most data of a segment, in bytes.
    pub(super) fn mss(&self, user_tcp: &UserTcp) -> Option<u32> {
        match self {
            StreamTransport::Kernel(socket) => socket.tcp_mss().ok(),
            StreamTransport::Own(socket) => user_tcp.mss(socket),
            StreamTransport::Local(_) => Some(LOOPBACK_MSS),
        }
    }
}
