//! The sockets and addresses with which iWARP connections begin.
//!
//! With `tcp = "kernel"` these are non-blocking sockets of the host's TCP. With `tcp = "own"` they
//! are addresses and paths for vrdma's own TCP.
//!
//! The guest's session creates them while it parses commands. The worker uses them.

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use vrdma_tcp::NextHop;
use vrdma_transport::Error;

/// Most connections that the kernel queues until the worker accepts them.
const BACKLOG: i32 = 128;

/// Number of keep-alive probes.
const PROBES: u8 = 6;

/// Returns the keep-alive times of a connection; `None` if `seconds` is 0.
///
/// The first probe goes out after `seconds` without a word from the peer. A peer that does not
/// answer for as long again is considered gone.
pub fn asked_after(seconds: u16) -> Option<vrdma_tcp::KeepAlive> {
    (seconds > 0).then(|| {
        let probes = seconds.min(PROBES.into()) as u8;
        let [idle, interval] =
            [seconds, seconds / u16::from(probes)].map(|time| Duration::from_secs(time.into()));
        vrdma_tcp::KeepAlive { idle, interval, probes }
    })
}

/// How to detect peers that vanish while nothing is sent to them.
#[derive(Clone, Debug)]
pub struct KeepAlive(Option<TcpKeepalive>);

impl KeepAlive {
    /// Returns the setting for a keep-alive time in seconds, computed by [`asked_after`].
    pub fn after(seconds: u16) -> KeepAlive {
        KeepAlive(asked_after(seconds).map(|vrdma_tcp::KeepAlive { idle, interval, probes }| {
            TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes.into())
        }))
    }
}

fn socket(address: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    // `Socket::new` sets SOCK_CLOEXEC.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // For the guest, a port is in use only as long as its listener or connection is.
    socket.set_reuse_address(true)?;
    // Accepted connections inherit it from their listener.
    traffic_class.set(&socket, address)?;
    if let Some(keep_alive) = &keep_alive.0 {
        // Accepted connections inherit it from their listener.
        socket.set_tcp_keepalive(keep_alive)?;
    }
    Ok(socket)
}

/// Where a guest listens for connections.
#[derive(Debug)]
pub enum ListenAddrs {
    /// On kernel sockets.
    Kernel(Vec<Socket>),
    /// On an address of the guest's own TCP. If it is unspecified, on each of its addresses.
    Own {
        /// Address and port.
        at: SocketAddr,
        /// The traffic class of what its connections send.
        traffic_class: TrafficClass,
    },
}

impl ListenAddrs {
    /// Returns the number of sockets, at least 1.
    pub fn sockets(&self) -> u32 {
        match self {
            ListenAddrs::Kernel(sockets) => (sockets.len() as u32).max(1),
            ListenAddrs::Own { .. } => 1,
        }
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        let at = match self {
            // All sockets of a listener have the same port.
            ListenAddrs::Kernel(sockets) => {
                sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket())
            }
            ListenAddrs::Own { at, .. } => Some(*at),
        };
        at.map_or(0, |at| at.port())
    }
}

/// How a guest connects.
#[derive(Debug)]
pub enum Dial {
    /// By a kernel socket that is connecting.
    Kernel(Socket),
    /// By the guest's own TCP.
    Own(Path),
}

/// The path of a connection of vrdma's own TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The destination of its frames.
    pub hop: NextHop,
    /// Longest IP packet in bytes; 0 if unknown.
    pub mtu: u16,
    /// The traffic class of what is sent.
    pub traffic_class: TrafficClass,
}

/// The DS field of IP packets (RFC 2474): IPv4's type of service, IPv6's traffic class.
///
/// The two ECN bits are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(u8);

impl TrafficClass {
    /// Returns the class, or `None` if an ECN bit is set. TCP itself uses those bits (RFC 3168).
    pub fn new(value: u8) -> Option<TrafficClass> {
        (value & 3 == 0).then_some(TrafficClass(value))
    }

    /// Returns the value as it stands in the packet.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Sets the class of what a kernel socket sends.
    fn set(self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        match address {
            _ if self == TrafficClass::default() => Ok(()),
            SocketAddr::V4(_) => socket.set_tos_v4(self.0.into()),
            SocketAddr::V6(_) => socket.set_tclass_v6(self.0.into()),
        }
    }
}

/// Opens a listening kernel socket.
///
/// # Errors
/// The port is in use, the address does not belong to this host, or the system is out of a
/// resource.
pub fn listen(at: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    let socket = socket(at, keep_alive, traffic_class)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Opens a kernel socket with the local address of a connection that is to be started.
///
/// # Errors
/// The errors of [`listen`].
pub fn bind(from: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    let socket = socket(from, keep_alive, traffic_class)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&from.into())?;
    Ok(socket)
}

/// Starts to connect: the SYN is sent. The socket becomes writable once the attempt succeeds or
/// fails.
///
/// # Errors
/// The peer cannot be reached at all, or another connection has these addresses.
pub fn begin(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the driver's error if a socket cannot be created or cannot connect.
pub fn refusal(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => Error::Busy,
        Some(libc::EACCES | libc::EPERM) => Error::Denied,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => Error::NoResources,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT | libc::EINVAL) => Error::NotFound,
        _ => {
            log::debug!("a socket of a guest: {error}");
            Error::NoResources
        }
    }
}

/// An accepted connection, with the addresses of both ends.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, which does not block.
    pub socket: Socket,
    /// Address of the listener's end.
    pub local: SocketAddr,
    /// Address of the peer.
    pub remote: SocketAddr,
}

/// Accepts a connection; `None` if there is none, or if it has ended already.
///
/// # Errors
/// The system is out of what a connection needs. The connection waits in the queue until then.
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

/// Ends a connection with a RST.
pub fn reset(socket: Socket) {
    // Without this, closing sends a FIN, and queued data may still arrive.
    let _ = socket.set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn sockets_of_the_kernel_and_those_of_their_listeners_have_the_traffic_class() {
        let class = TrafficClass::new(0x68).unwrap();
        let none = KeepAlive::after(0);
        for at in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
            let of = |socket: &Socket| if at.is_ipv4() { socket.tos_v4() } else { socket.tclass_v6() };
            let listener = listen(at, &none, class).unwrap();
            let client = bind(at, &none, class).unwrap();
            begin(&client, listener.local_addr().unwrap().as_socket().unwrap()).unwrap();
            let accepted = crate::wait::until("the connection", || accept(&listener).unwrap());
            assert_eq!((of(&client).unwrap(), of(&accepted.socket).unwrap()), (0x68, 0x68), "{at}");
            assert_eq!(of(&bind(at, &none, TrafficClass::default()).unwrap()).unwrap(), 0);
        }
    }

    #[test]
    fn a_traffic_class_has_no_bits_of_ecn() {
        assert_eq!([1, 2, 3, 0xff].map(TrafficClass::new), [None; 4]);
        assert_eq!(TrafficClass::new(0xfc).map(TrafficClass::number), Some(0xfc));
    }
}
