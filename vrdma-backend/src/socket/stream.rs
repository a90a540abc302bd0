//! Unix stream sockets.

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// Opens a stream socket that never blocks.
pub fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
