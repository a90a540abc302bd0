//! Which side of its socket the daemon is.

use super::admission::Admission;
use super::connector::AGAIN;
use super::{Connector, Listener};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Which side of its socket a function of a guest is.
#[derive(Debug)]
pub enum SocketSide {
    /// It listens, and front-ends connect.
    Server(Arc<Listener>),
    /// It connects, and the front-end listens.
    Client(Box<Connector>),
}

impl SocketSide {
    /// Returns the descriptor to wait for, if front-ends come by themselves.
    pub fn to_watch(&self) -> Option<RawFd> {
        match self {
            SocketSide::Server(listener) => Some(listener.as_raw_fd()),
            SocketSide::Client(_) => None,
        }
    }

    /// Whether it connects.
    pub fn is_client(&self) -> bool {
        matches!(self, SocketSide::Client(_))
    }

    /// Returns whether it lets new front-ends in, to be changed.
    pub fn admission(&self) -> &Admission {
        match self {
            SocketSide::Server(listener) => listener.admission(),
            SocketSide::Client(connector) => connector.admission(),
        }
    }

    /// Returns the listener, if it listens.
    pub fn listener(&self) -> Option<&Arc<Listener>> {
        match self {
            SocketSide::Server(listener) => Some(listener),
            SocketSide::Client(_) => None,
        }
    }

    /// Returns how long to wait before it is asked for a front-end again; `None`: until there is
    /// something to read at [`SocketSide::to_watch`].
    pub fn pause(&self) -> Option<Duration> {
        match self {
            SocketSide::Server(_) => None,
            SocketSide::Client(_) => Some(AGAIN),
        }
    }

    /// Returns the next front-end, as a blocking stream.
    ///
    /// # Errors
    /// There is none (`WouldBlock`), or the system is out of a resource.
    pub fn front_end(&self) -> io::Result<UnixStream> {
        match self {
            SocketSide::Server(listener) => listener.accept(),
            SocketSide::Client(connector) => connector.connect(),
        }
    }
}
