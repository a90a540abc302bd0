//! Unix stream sockets.

#![allow(unsafe_code, reason = "an option of sockets that no library knows")]

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsRawFd, OwnedFd};

/// Opens a stream socket that never blocks.
pub fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The option by which a socket takes no descriptors (Linux 6.16, `asm-generic/socket.h`).
const SO_PASSRIGHTS: i32 = 83;

/// Has the connections of a listening socket take no descriptors, if the kernel can do that.
///
/// A descriptor that nobody takes is closed where the message is read, and that may take long: a
/// TCP socket waits as long as its sender says (`SO_LINGER`).
pub fn take_no_descriptors(socket: &impl AsRawFd) {
    let off: i32 = 0;
    // SAFETY: the value is an integer that lives during the call, and the length is its own.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
}
