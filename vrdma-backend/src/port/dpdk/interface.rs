//! A network interface that a DPDK driver shares with the kernel (packet sockets, XDP).
//!
//! Those drivers report neither its link nor the arrival of frames.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use vrdma_wire::num::Mac;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GLINK: u32 = 0x0a;

/// An interface of the network namespace in which it was opened.
///
/// Its identity is its number, because it may be renamed. An interface that is deleted, or moved to
/// another namespace, is gone for good. Another interface may have its name or its number
/// afterwards.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The name by which it was found.
    name: String,
    index: i32,
    sockets: Arc<Sockets>,
}

#[derive(Debug)]
struct Sockets {
    /// Any socket, for requests about interfaces.
    requests: OwnedFd,
    /// A packet socket that receives nothing. The kernel unbinds it when the interface goes.
    anchor: OwnedFd,
}

/// A packet or XDP socket that a driver may use too.
#[derive(Debug)]
pub struct DriverSocket(OwnedFd);

impl Interface {
    /// Finds the interface of this name.
    ///
    /// # Errors
    /// There is none of this name, or the system denies access to it.
    pub fn open(name: &str) -> Result<Interface> {
        ensure!(name.len() < libc::IFNAMSIZ, "'{name}' is too long for an interface's name");
        let requests = socket(libc::AF_INET, libc::SOCK_DGRAM).context("a socket")?;
        let mut request = request_of(name);
        match ask(&requests, libc::SIOCGIFINDEX, &mut request) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                bail!(
                    "there is no interface {name} in this network namespace (`ip link` shows what there is)"
                )
            }
            Err(error) => return Err(anyhow!(error).context(format!("interface {name}"))),
        }
        // SAFETY: the kernel has set this field.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        let anchor = socket(libc::AF_PACKET, libc::SOCK_RAW).context("a packet socket")?;
        bind_packet(&anchor, index, 0).with_context(|| format!("interface {name}"))?;
        Ok(Interface { name: name.to_owned(), index, sockets: Arc::new(Sockets { requests, anchor }) })
    }

    /// Whether an interface of this name exists in the namespace where this one was found.
    pub fn is_back(&self) -> bool {
        ask(&self.sockets.requests, libc::SIOCGIFINDEX, &mut request_of(&self.name)).is_ok()
    }

    /// Whether the interface still exists.
    pub fn is_there(&self) -> bool {
        let bound = binding(self.sockets.anchor.as_raw_fd());
        bound.is_ok_and(|bound| bound.sll_ifindex == self.index)
    }

    /// Returns a request about the interface, with its current name.
    fn request(&self) -> io::Result<libc::ifreq> {
        if !self.is_there() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let mut request = request_of("");
        request.ifr_ifru.ifru_ifindex = self.index;
        self.ask(libc::SIOCGIFNAME, &mut request)?;
        Ok(request)
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        ask(&self.sockets.requests, what, request)
    }

    /// Returns its current name.
    pub fn current_name(&self) -> io::Result<String> {
        let request = self.request()?;
        let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8);
        Ok(String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned())
    }

    /// Returns its MTU.
    pub fn mtu(&self) -> io::Result<u16> {
        let mut request = self.request()?;
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has set this field. Only loopback has an MTU beyond 16 bits.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.try_into().unwrap_or(u16::MAX))
    }

    /// Returns its number.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Returns its own MAC address.
    pub fn mac(&self) -> io::Result<Mac> {
        let mut request = self.request()?;
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel has set this field, which has no invalid values.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        Ok(Mac([0, 1, 2, 3, 4, 5].map(|at| address.sa_data[at] as u8)))
    }

    /// Logs warnings about what makes it a poor uplink.
    pub fn warn(&self) {
        let name = &self.name;
        if self.flags() & libc::IFF_UP == 0 {
            log::warn!("uplink: the interface {name} is down: `ip link set {name} up`");
        }
        if let Some(address) = self.address() {
            log::warn!(
                "uplink: the interface {name} has the address {address} of this host, which would answer in guests' stead: `ip addr flush dev {name}`"
            );
        }
    }

    /// Returns an IP address that this host has on the interface.
    ///
    /// Link-local addresses do not count, because each interface has one.
    fn address(&self) -> Option<IpAddr> {
        let mut request = self.request().ok()?;
        if self.ask(libc::SIOCGIFADDR, &mut request).is_ok() {
            // SAFETY: the kernel has set this field, which has no invalid values.
            let address = unsafe { request.ifr_ifru.ifru_addr };
            // The address follows the port number (`sockaddr_in`).
            let bytes = [2, 3, 4, 5].map(|at| address.sa_data[at] as u8);
            return Some(IpAddr::from(bytes));
        }
        // Fields of a line: address, index, prefix length, scope, flags, name (procfs, "if_inet6").
        let all = std::fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
        all.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, index, _, scope, _, _] = words[..] else { return None };
            let global = scope != "20" && i32::from_str_radix(index, 16) == Ok(self.index);
            global.then(|| u128::from_str_radix(address, 16).ok().map(|bits| IpAddr::V6(bits.into())))?
        })
    }

    /// Sets its MTU.
    pub fn set_mtu(&self, mtu: u16) -> Result<()> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.ask(libc::SIOCSIFMTU, &mut request).with_context(|| format!("{}: MTU {mtu}", self.name))
    }

    /// Returns its speed in Mb/s, if it has one and reports it.
    pub fn speed(&self) -> Option<u32> {
        // `struct ethtool_cmd` has 44 bytes. The command comes first. The speed's low half is at
        // byte 12, its high half at byte 28.
        let mut value = [0u32; 11];
        value[0] = ETHTOOL_GSET;
        let mut request = self.request().ok()?;
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        self.ask(SIOCETHTOOL, &mut request).ok()?;
        let half = |word: u32| u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
        let mbps = half(value[7]) << 16 | half(value[3]);
        (mbps != 0 && mbps != u32::MAX && mbps != u32::from(u16::MAX)).then_some(mbps)
    }

    /// Whether it is up and has a carrier. An interface that is gone has none.
    pub fn carrier(&self) -> bool {
        let mut value = [ETHTOOL_GLINK, 0];
        let Ok(mut request) = self.request() else { return false };
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        match self.ask(SIOCETHTOOL, &mut request) {
            Ok(()) => value[1] != 0,
            // The interface does not support ethtool. Its flags lag behind a little.
            Err(_) => self.flags() & libc::IFF_RUNNING != 0,
        }
    }

    fn flags(&self) -> i32 {
        let Ok(mut request) = self.request() else { return 0 };
        match self.ask(libc::SIOCGIFFLAGS, &mut request) {
            // SAFETY: the kernel has set this field.
            Ok(()) => unsafe { request.ifr_ifru.ifru_flags }.into(),
            Err(_) => 0,
        }
    }
}

/// Returns an empty request about the interface of this name.
fn request_of(name: &str) -> libc::ifreq {
    // SAFETY: zero is a valid value for all fields.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = name.bytes().map(|b| b as libc::c_char).take(libc::IFNAMSIZ - 1);
    request.ifr_name.iter_mut().zip(name).for_each(|(to, from)| *to = from);
    request
}

fn ask(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests made here take an `ifreq`. The pointers of SIOCETHTOOL point to buffers
    // that are large enough.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a socket without a protocol. A packet socket receives nothing before it is bound.
fn socket(family: i32, kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call. The new descriptor is ours alone.
    unsafe {
        match libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) {
            fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Opens a packet socket that is not yet bound.
pub fn packet_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_PACKET, libc::SOCK_RAW)
}

/// Binds a packet socket to an interface, for frames of a protocol (`ETH_P_ALL`) or for none (0).
///
/// This replaces an earlier binding.
pub fn bind_packet(socket: &OwnedFd, index: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: zero is a valid value of this structure.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address has the length that is given.
    let result = unsafe {
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the interface to which a packet socket is bound, and the protocol.
///
/// Once the interface is gone, its number is -1.
fn binding(socket: RawFd) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: zero is a valid value of this structure, whose length is given. A number that is no
    // descriptor, or no socket's, gives an error.
    unsafe {
        let mut address: libc::sockaddr_ll = zeroed();
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        match libc::getsockname(socket, (&raw mut address).cast(), &mut len) {
            0 => Ok(address),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns this process's descriptors of packet sockets and XDP sockets.
pub fn driver_sockets() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|fd| {
            matches!(option(*fd, libc::SOL_SOCKET, libc::SO_DOMAIN), Some(libc::AF_PACKET | libc::AF_XDP))
        })
        .collect()
}

/// Whether a driver receives from an interface by this socket.
///
/// That is a packet socket bound to the interface with a protocol, or any XDP socket. An XDP socket
/// does not tell its interface.
pub fn receives_from(fd: RawFd, index: i32) -> bool {
    match option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Some(libc::AF_XDP) => true,
        Some(libc::AF_PACKET) => binding(fd).is_ok_and(|to| to.sll_ifindex == index && to.sll_protocol != 0),
        _ => false,
    }
}

/// Reads a socket option that is an int.
fn option(fd: RawFd, level: i32, name: i32) -> Option<i32> {
    let (mut value, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: value and length are as large as given. A number that is no descriptor, or no
    // socket's, gives an error.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) };
    (result == 0).then_some(value)
}

impl From<OwnedFd> for DriverSocket {
    fn from(fd: OwnedFd) -> DriverSocket {
        DriverSocket(fd)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl DriverSocket {
    /// Duplicates a socket's descriptor.
    pub fn of(fd: RawFd) -> io::Result<DriverSocket> {
        // SAFETY: a plain system call. The new descriptor is ours alone.
        unsafe {
            match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) {
                new @ 0.. => Ok(DriverSocket(OwnedFd::from_raw_fd(new))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Returns the descriptor to wait for.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Clears a pending error, for example that the interface went down.
    ///
    /// Otherwise the socket would stay readable.
    pub fn clear_error(&self) {
        option(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// Makes a packet socket receive only what comes from the wire, not what this host's kernel
    /// sends.
    pub fn ignore_own_host(&self) -> io::Result<()> {
        const PACKET_OUTGOING: u32 = 4;
        const SKF_AD_PKTTYPE: u32 = (-0x1000i32 + 4) as u32;
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, SKF_AD_PKTTYPE),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, PACKET_OUTGOING),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program has the length that is given. The kernel copies it.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns how many frames found a packet socket's ring full since the last call.
    pub fn drops(&self) -> u32 {
        #[repr(C)]
        struct Statistics {
            packets: u32,
            drops: u32,
        }
        let mut statistics = Statistics { packets: 0, drops: 0 };
        let mut len = size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the structure is as large as given.
        let result = unsafe {
            let to = (&raw mut statistics).cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &mut len)
        };
        if result == 0 { statistics.drops } else { 0 }
    }
}
