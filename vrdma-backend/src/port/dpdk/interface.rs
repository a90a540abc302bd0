//! A network interface that a DPDK driver shares with the kernel (packet sockets, XDP): those drivers tell neither of its link, nor
//! when frames came.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use vrdma_wire::num::Mac;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GLINK: u32 = 0x0a;

/// An interface of the network namespace in which this was opened.
#[derive(Debug)]
pub struct Interface {
    name: String,
    /// Any socket: what requests of interfaces go through.
    socket: OwnedFd,
}

/// A packet or XDP socket, which some driver has too.
#[derive(Debug)]
pub struct DriverSocket(OwnedFd);

/// An MTU that is not the interface's own: it gets that back when this is dropped.
#[derive(Debug)]
pub struct MtuChange {
    interface: Interface,
    was: u16,
    now: u16,
}

impl Drop for MtuChange {
    fn drop(&mut self) {
        // Unless somebody else has changed it meanwhile, or the interface is gone.
        if self.interface.mtu().is_ok_and(|mtu| mtu == self.now)
            && let Err(error) = self.interface.set_mtu(self.was)
        {
            log::warn!("uplink: the interface keeps MTU {}: {error:#}", self.now);
        }
    }
}

impl Interface {
    /// Finds it.
    pub fn open(name: &str) -> Result<Interface> {
        ensure!(name.len() < libc::IFNAMSIZ, "'{name}' is too long for an interface's name");
        // SAFETY: a plain system call; the new descriptor is ours alone.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            ensure!(fd >= 0, "socket: {}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        let interface = Interface { name: name.to_owned(), socket };
        match interface.ask(libc::SIOCGIFINDEX, &mut interface.request()) {
            Ok(()) => Ok(interface),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                bail!(
                    "there is no interface {name} in this network namespace (`ip link` shows what there is)"
                )
            }
            Err(error) => Err(anyhow!(error).context(format!("interface {name}"))),
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: zero is a value of all its fields.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let name = self.name.bytes().map(|b| b as libc::c_char);
        request.ifr_name.iter_mut().zip(name).for_each(|(to, from)| *to = from);
        request
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: all requests made here take an ifreq, whose pointers (of SIOCETHTOOL) lead to what they have to.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), what, request) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its MTU.
    pub fn mtu(&self) -> io::Result<u16> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has set this field. Loopback alone has an MTU beyond 16 bits.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.try_into().unwrap_or(u16::MAX))
    }

    /// Its number.
    pub fn index(&self) -> io::Result<i32> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the kernel has set this field.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    /// Its own address.
    pub fn mac(&self) -> io::Result<Mac> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel has set this field, which has no invalid values.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        Ok(Mac([0, 1, 2, 3, 4, 5].map(|at| address.sa_data[at] as u8)))
    }

    /// Warns of what keeps it from being a good uplink.
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

    /// An address of this host; link-local ones, which each interface has, do not count.
    fn address(&self) -> Option<IpAddr> {
        let mut request = self.request();
        if self.ask(libc::SIOCGIFADDR, &mut request).is_ok() {
            // SAFETY: the kernel has set this field, which has no invalid values.
            let address = unsafe { request.ifr_ifru.ifru_addr };
            // Behind the port (sockaddr_in).
            let bytes = [2, 3, 4, 5].map(|at| address.sa_data[at] as u8);
            return Some(IpAddr::from(bytes));
        }
        // address, index, length of prefix, scope, flags, name (procfs, "if_inet6").
        let all = std::fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
        all.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, _, _, scope, _, name] = words[..] else { return None };
            let global = scope != "20" && name == self.name;
            global.then(|| u128::from_str_radix(address, 16).ok().map(|bits| IpAddr::V6(bits.into())))?
        })
    }

    /// Changes its MTU, until the change is dropped.
    pub fn change_mtu(&self, mtu: u16) -> Result<MtuChange> {
        let was = self.mtu()?;
        self.set_mtu(mtu)?;
        let again = Interface { name: self.name.clone(), socket: self.socket.try_clone()? };
        Ok(MtuChange { interface: again, was, now: mtu })
    }

    fn set_mtu(&self, mtu: u16) -> Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.ask(libc::SIOCSIFMTU, &mut request).with_context(|| format!("{}: MTU {mtu}", self.name))
    }

    /// Its speed in Mb/s, if it has one and tells.
    pub fn speed(&self) -> Option<u32> {
        // struct ethtool_cmd, 44 bytes: the command first, the speed's low half at byte 12 and its high half at byte 28.
        let mut value = [0u32; 11];
        value[0] = ETHTOOL_GSET;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        self.ask(SIOCETHTOOL, &mut request).ok()?;
        let half = |word: u32| u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
        let mbps = half(value[7]) << 16 | half(value[3]);
        (mbps != 0 && mbps != u32::MAX && mbps != u32::from(u16::MAX)).then_some(mbps)
    }

    /// Whether it is up and has a carrier. An interface that is gone has none.
    pub fn carrier(&self) -> bool {
        let mut value = [ETHTOOL_GLINK, 0];
        let mut request = self.request();
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        match self.ask(SIOCETHTOOL, &mut request) {
            Ok(()) => value[1] != 0,
            // An interface without ethtool. Its flags lag behind a little.
            Err(_) => self.flags() & libc::IFF_RUNNING != 0,
        }
    }

    fn flags(&self) -> i32 {
        let mut request = self.request();
        match self.ask(libc::SIOCGIFFLAGS, &mut request) {
            // SAFETY: the kernel has set this field.
            Ok(()) => unsafe { request.ifr_ifru.ifru_flags }.into(),
            Err(_) => 0,
        }
    }
}

/// Descriptors of this process that are packet sockets and XDP sockets.
pub fn driver_sockets() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|fd| {
            matches!(option(*fd, libc::SOL_SOCKET, libc::SO_DOMAIN), Some(libc::AF_PACKET | libc::AF_XDP))
        })
        .collect()
}

/// A socket option that is an int.
fn option(fd: RawFd, level: i32, name: i32) -> Option<i32> {
    let (mut value, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: value and length are as large as said. A descriptor that is none or no socket gives an error.
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
    /// The same socket, with a descriptor of our own.
    pub fn of(fd: RawFd) -> io::Result<DriverSocket> {
        // SAFETY: a plain system call; the new descriptor is ours alone.
        unsafe {
            match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) {
                new @ 0.. => Ok(DriverSocket(OwnedFd::from_raw_fd(new))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// What to wait for.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Takes an error (the interface went down) away, which would make the socket look ready for ever.
    pub fn clear_error(&self) {
        option(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// Of a packet socket: makes it receive what comes from the wire only, not what this host's kernel sends to it.
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
        // SAFETY: the program is as long as it says; the kernel copies it.
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

    /// Of a packet socket: frames that found the ring full since this was last asked.
    pub fn drops(&self) -> u32 {
        #[repr(C)]
        struct Statistics {
            packets: u32,
            drops: u32,
        }
        let mut statistics = Statistics { packets: 0, drops: 0 };
        let mut len = size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the structure is as large as said.
        let result = unsafe {
            let to = (&raw mut statistics).cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &mut len)
        };
        if result == 0 { statistics.drops } else { 0 }
    }
}
