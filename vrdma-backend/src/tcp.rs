//! What connections of iWARP begin with: sockets of the host's TCP (`tcp = "kernel"`), which never
//! block, or where ours (`tcp = "own"`) is to go.
//!
//! They are made where commands are parsed, in the guest's session, and used by the worker.

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use vrdma_tcp::NextHop;
use vrdma_transport::Error;

/// Connections that the kernel may keep until the worker takes them.
const BACKLOG: i32 = 128;

/// Times that a peer is asked whether it is still there.
const PROBES: u8 = 6;

/// After so many seconds without a word the peer is asked; one that does not answer for as long
/// again has vanished. 0: it is never asked.
pub fn asked_after(seconds: u16) -> Option<vrdma_tcp::KeepAlive> {
    (seconds > 0).then(|| {
        let probes = seconds.min(PROBES.into()) as u8;
        let [idle, interval] =
            [seconds, seconds / u16::from(probes)].map(|time| Duration::from_secs(time.into()));
        vrdma_tcp::KeepAlive { idle, interval, probes }
    })
}

/// How peers are noticed that vanish without a word, while there is nothing to send to them.
#[derive(Clone, Debug)]
pub struct KeepAlive(Option<TcpKeepalive>);

impl KeepAlive {
    /// See [`asked_after`].
    pub fn after(seconds: u16) -> KeepAlive {
        KeepAlive(asked_after(seconds).map(|vrdma_tcp::KeepAlive { idle, interval, probes }| {
            TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes.into())
        }))
    }
}

fn socket(address: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    // It is made with SOCK_CLOEXEC.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A port is in use no longer than its listener or connection is, as far as the guest can see.
    socket.set_reuse_address(true)?;
    // Connections of a listener have it of that, too.
    traffic_class.set(&socket, address)?;
    if let Some(keep_alive) = &keep_alive.0 {
        // Connections of a listener have it of that.
        socket.set_tcp_keepalive(keep_alive)?;
    }
    Ok(socket)
}

/// Where a guest listens.
#[derive(Debug)]
pub enum Doors {
    /// At sockets of the kernel.
    Kernel(Vec<Socket>),
    /// At an address of its own TCP; if unspecified, at each.
    Own {
        /// The address, and the port.
        at: SocketAddr,
        /// Of what its connections send.
        traffic_class: TrafficClass,
    },
}

impl Doors {
    /// How many sockets these are.
    pub fn sockets(&self) -> u32 {
        match self {
            Doors::Kernel(sockets) => (sockets.len() as u32).max(1),
            Doors::Own { .. } => 1,
        }
    }

    /// At which port.
    pub fn port(&self) -> u16 {
        let at = match self {
            // All of a listener's sockets have the same.
            Doors::Kernel(sockets) => {
                sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket())
            }
            Doors::Own { at, .. } => Some(*at),
        };
        at.map_or(0, |at| at.port())
    }
}

/// How a guest connects.
#[derive(Debug)]
pub enum Way {
    /// By a socket of the kernel, which is on its way.
    Kernel(Socket),
    /// By its own TCP.
    Own(Path),
}

/// The path of a connection of our TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// To whom frames go.
    pub hop: NextHop,
    /// Longest IP packet; 0: nobody knows.
    pub mtu: u16,
    /// Of what is sent.
    pub traffic_class: TrafficClass,
}

/// The DS field of IP packets (RFC 2474): type of service of IPv4, traffic class of IPv6. The two
/// bits of ECN are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(u8);

impl TrafficClass {
    /// None if a bit of ECN is set: those are TCP's own (RFC 3168).
    pub fn new(value: u8) -> Option<TrafficClass> {
        (value & 3 == 0).then_some(TrafficClass(value))
    }

    /// As it stands in the packet.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Has what a socket of the kernel sends be of this class.
    fn set(self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        match address {
            _ if self == TrafficClass::default() => Ok(()),
            SocketAddr::V4(_) => socket.set_tos_v4(self.0.into()),
            SocketAddr::V6(_) => socket.set_tclass_v6(self.0.into()),
        }
    }
}

/// Listens there.
///
/// # Errors
/// Another has the port, the address is none of this host's, or the system is out of something.
pub fn listen(at: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    let socket = socket(at, keep_alive, traffic_class)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A socket with this end's address, of a connection that is to begin.
///
/// # Errors
/// As of [`listen`].
pub fn bind(from: SocketAddr, keep_alive: &KeepAlive, traffic_class: TrafficClass) -> io::Result<Socket> {
    let socket = socket(from, keep_alive, traffic_class)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&from.into())?;
    Ok(socket)
}

/// Begins to connect: the SYN goes out. The socket is writable once it is connected, or not.
///
/// # Errors
/// The peer cannot be reached at all, or another connection has these addresses.
pub fn begin(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// What the driver is told if a socket cannot be had, or cannot connect.
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
