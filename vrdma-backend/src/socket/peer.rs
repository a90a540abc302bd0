//! The process at the other end of a socket.

use rustix::net::sockopt::socket_peercred;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

/// The process at the other end of a socket, as the kernel tells it (SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    process: i32,
    /// Number of its user.
    pub user: u32,
}

impl Peer {
    /// Returns the process that connected; where this one connected, the process that called
    /// listen(2).
    ///
    /// The socket may have been passed to another process since.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let peer = socket_peercred(stream)?;
        Ok(Peer { process: peer.pid.as_raw_pid(), user: peer.uid.as_raw() })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}
