//! Sockets of the host's TCP, for iWARP (`tcp = "kernel"`): they never block.
//!
//! They are made where commands are parsed, in the guest's session, and used by the worker.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Connections that the kernel may keep until the worker takes them.
const BACKLOG: i32 = 128;

fn socket(address: SocketAddr) -> io::Result<Socket> {
    // It is made with SOCK_CLOEXEC.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A port is in use no longer than its listener or connection is, as far as the guest can see.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Listens there.
///
/// # Errors
/// Another has the port, the address is none of this host's, or the system is out of something.
pub fn listen(at: SocketAddr) -> io::Result<Socket> {
    let socket = socket(at)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Begins to connect; the socket is writable once it is connected, or not.
///
/// # Errors
/// As of [`listen`]; or the peer cannot be reached.
pub fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<Socket> {
    let socket = socket(from)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&from.into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Takes a connection of a listener, with the addresses of both ends; `None` if none has come.
///
/// # Errors
/// The system has no descriptor left.
pub fn accept(listener: &Socket) -> io::Result<Option<(Socket, SocketAddr, SocketAddr)>> {
    loop {
        let (socket, remote) = match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // It has gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let local = socket.local_addr()?;
        socket.set_tcp_nodelay(true)?;
        if let (Some(local), Some(remote)) = (local.as_socket(), remote.as_socket()) {
            return Ok(Some((socket, local, remote)));
        }
    }
}
