//! How one learns, asleep, that a device has frames.

use super::eal::expecting_failure;
use super::interface::{DriverSocket, Interface, driver_sockets, receives_from};
use crate::port::UplinkDevice;
use dpdk_sys as dpdk;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What wakes the user of a port.
#[derive(Debug)]
pub enum Wake {
    /// Nothing.
    Blind,
    /// The driver's own socket; gone while its interface is.
    Socket {
        socket: Option<DriverSocket>,
        /// An epoll set with the socket of the moment, which whoever waits need not know.
        gate: OwnedFd,
    },
    /// The interrupt of a receive queue, which has to be asked for each time.
    Interrupt {
        /// Readable after it.
        fd: OwnedFd,
        /// An eventfd, which counts until it is read. Other kinds are the driver's business.
        counts: bool,
    },
}

impl Wake {
    /// What there is for a queue of a port that was started, ours alone: `interrupt` says whether
    /// interrupts could be configured, and `before` which sockets there were before the driver
    /// opened its own, one for each queue.
    pub fn find(
        port: u16,
        queue: u16,
        device: &UplinkDevice,
        interface: Option<&Interface>,
        interrupt: bool,
        before: &[i32],
    ) -> Wake {
        if let Some(interface) = interface {
            // Other threads open sockets, too. Numbers are given from the lowest on.
            let is_ours = |fd: &i32| !before.contains(fd) && receives_from(*fd, interface.index());
            let mut found: Vec<i32> = driver_sockets().into_iter().filter(is_ours).collect();
            found.sort_unstable();
            let found = found.get(usize::from(queue)).copied();
            if let Some(socket) = found.and_then(|fd| DriverSocket::of(fd).ok()) {
                if device.is_af_packet()
                    && let Err(error) = socket.ignore_own_host()
                {
                    log::warn!("{}: what this host sends cannot be kept out: {error}", device.name);
                }
                match gate(&socket) {
                    Ok(gate) => return Wake::Socket { socket: Some(socket), gate },
                    Err(error) => log::warn!("{}: frames that come wake nobody: {error}", device.name),
                }
            }
        }
        if interrupt && let Some(fd) = interrupt_fd(port, queue) {
            let counts = is_eventfd(&fd);
            // What virtual drivers have instead (`net_vhost` an epoll set) stays readable.
            if counts || device.is_pci() {
                return Wake::Interrupt { fd, counts };
            }
        }
        Wake::Blind
    }

    /// What to wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Wake::Blind => None,
            Wake::Socket { gate, .. } => Some(gate.as_fd()),
            Wake::Interrupt { fd, .. } => Some(fd.as_fd()),
        }
    }

    /// Before a sleep; false if nothing will wake the sleeper.
    pub fn arm(&self, port: u16, queue: u16) -> bool {
        match self {
            Wake::Blind => false,
            Wake::Socket { socket, .. } => {
                socket.iter().for_each(DriverSocket::clear_error);
                true
            }
            Wake::Interrupt { fd, counts } => {
                drain(fd, *counts);
                // SAFETY: the port is ours, and has the queue.
                unsafe { dpdk::rte_eth_dev_rx_intr_enable(port, queue) >= 0 }
            }
        }
    }

    /// Its device is gone, and makes nothing readable any more: nor is what it did last.
    pub fn silence(&self) {
        if let Wake::Interrupt { fd, counts } = self {
            drain(fd, *counts);
        }
    }

    /// The interface is gone: the driver's socket may be closed.
    pub fn let_go(&mut self) {
        if let Wake::Socket { socket, .. } = self {
            *socket = None;
        }
    }

    /// From now on the socket of `other` wakes who waits here.
    pub fn follow(&mut self, mut other: Wake) {
        if let (Wake::Socket { socket, gate }, Wake::Socket { socket: new, .. }) = (self, &mut other) {
            *socket = new.take();
            if let Some(Err(error)) = socket.as_ref().map(|socket| watch(gate, socket)) {
                log::warn!("uplink: frames that come wake nobody: {error}");
            }
        }
    }

    /// After it.
    pub fn disarm(&self, port: u16, queue: u16) {
        if let Wake::Interrupt { fd, counts } = self {
            // SAFETY: the port is ours, and has the queue.
            unsafe { dpdk::rte_eth_dev_rx_intr_disable(port, queue) };
            drain(fd, *counts);
        }
    }
}

/// An epoll set with a socket in it.
fn gate(socket: &DriverSocket) -> rustix::io::Result<OwnedFd> {
    let gate = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&gate, socket)?;
    Ok(gate)
}

/// Puts a socket into the set. It leaves it when it is closed.
fn watch(gate: &OwnedFd, socket: &DriverSocket) -> rustix::io::Result<()> {
    epoll::add(gate, socket.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

/// The descriptor of a queue's interrupt: the driver's, so with a number of our own.
fn interrupt_fd(port: u16, queue: u16) -> Option<OwnedFd> {
    // SAFETY: the port is ours and started; the new descriptor is ours alone.
    unsafe {
        // A virtual device without interrupts is no error of anybody's.
        let fd = expecting_failure(|| dpdk::rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue));
        let own = if fd >= 0 { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } else { -1 };
        (own >= 0).then(|| OwnedFd::from_raw_fd(own))
    }
}

fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.to_string_lossy().contains("eventfd"))
}

/// Takes away what was counted. Whether reading may block is up to who made it.
fn drain(fd: &OwnedFd, counts: bool) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if counts && poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready != 0) {
        let _ = rustix::io::read(fd, &mut [0; 8]);
    }
}
