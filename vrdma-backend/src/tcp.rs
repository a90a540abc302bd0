//! What connections of iWARP begin with: sockets of the host's TCP (`tcp = "kernel"`), which never block, or where ours (`tcp = "own"`) is to go.
//!
//! They are made where commands are parsed, in the guest's session, and used by the worker.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use vrdma_tcp::NextHop;

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

/// Where a guest listens.
#[derive(Debug)]
pub enum Doors {
    /// At sockets of the kernel.
    Kernel(Vec<Socket>),
    /// At an address of its own TCP; if unspecified, at each.
    Own(SocketAddr),
}

/// How a guest connects.
#[derive(Debug)]
pub enum Way {
    /// By a socket of the kernel, which is on its way.
    Kernel(Socket),
    /// By its own TCP: through this host, with this MTU of the path (0: nobody knows).
    Own {
        /// To whom frames go.
        hop: NextHop,
        /// Longest IP packet.
        mtu: u16,
    },
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

/// A connection of a listener, with the addresses of both ends.
#[derive(Debug)]
pub struct Accepted {
    /// It does not block.
    pub socket: Socket,
    /// The listener's end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// Takes a connection of a listener; `None` if none has come, or it has gone already.
///
/// # Errors
/// The system is out of what a connection needs. It waits until there is some.
pub fn accept(listener: &Socket) -> io::Result<Option<Accepted>> {
    let (socket, remote) = match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        Ok(accepted) => accepted,
        Err(error) => {
            use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
            let is_nothing = matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted);
            return if is_nothing { Ok(None) } else { Err(error) };
        }
    };
    let local = socket.local_addr().ok().and_then(|address| address.as_socket());
    let is_ready = socket.set_tcp_nodelay(true).is_ok();
    let ends = local.zip(remote.as_socket()).filter(|_| is_ready);
    Ok(ends.map(|(local, remote)| Accepted { socket, local, remote }))
}

/// Ends a connection by a RST.
pub fn reset(socket: Socket) {
    // Without that it ends by a FIN, and what was sent may still arrive.
    let _ = socket.set_linger(Some(Duration::ZERO));
}
