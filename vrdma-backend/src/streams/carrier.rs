//! What a connection goes over: the host's TCP, by a socket of the kernel, our own, or none,
//! between guests of this worker. What can be done with it is said here once, in the words of the
//! kernel's sockets.

use super::handle::Handle;
use super::output::Output;
use super::own::{self, Came, Own, PIPE_MSS, Pipe};
use crate::tcp;
use socket2::Socket;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// Bytes that are read of a kernel's socket in one go.
const READ: usize = 64 << 10;

/// See the module.
pub(super) enum Carrier {
    /// The host's.
    Kernel(Socket),
    /// Ours.
    Own(own::Socket),
    /// None.
    Local(Pipe),
}

impl Carrier {
    /// Whether it is the kernel's.
    pub(super) fn is_kernels(&self) -> bool {
        matches!(self, Carrier::Kernel(_))
    }

    /// Has it watched for what its connection wants now, which was something else before. Only the
    /// host's TCP needs an epoll.
    ///
    /// # Errors
    /// The system is out of memory, or of watches of this user.
    pub(super) fn watch<'a>(
        &self,
        handle: Handle,
        (before, wants): (Option<EventSet>, Option<EventSet>),
        epoll: impl FnOnce() -> io::Result<&'a Epoll>,
        own: &mut Own,
    ) -> io::Result<()> {
        let socket = match self {
            Carrier::Own(socket) => {
                // What is so already is told once more, as epoll does.
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

    /// What its connection is to be told, if it is no socket of the kernel.
    pub(super) fn events(&self, own: &mut Own) -> EventSet {
        match self {
            Carrier::Kernel(_) => EventSet::empty(),
            Carrier::Own(socket) => own.events(socket),
            Carrier::Local(pipe) => own.pipes().0.events(pipe),
        }
    }

    /// Whether it is connected: the address of this end, if it is another than was said.
    ///
    /// # Errors
    /// Why it is not.
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

    /// Reads: bytes to the front of a buffer, which grows as is needed.
    ///
    /// # Errors
    /// Those of a socket that does not block.
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

    /// Hands over what is to be sent, as far as there is room; `cut`: so long is a whole segment.
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

    /// No more is sent. It may be over already, which shows.
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

    /// Ends it by a RST.
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

    /// It has ended in order.
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

    /// Most data of a segment.
    pub(super) fn mss(&self, own: &Own) -> Option<u32> {
        match self {
            Carrier::Kernel(socket) => socket.tcp_mss().ok(),
            Carrier::Own(socket) => own.mss(socket),
            Carrier::Local(_) => Some(PIPE_MSS),
        }
    }
}
