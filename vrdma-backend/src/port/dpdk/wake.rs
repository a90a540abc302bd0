//! How a sleeping thread learns that a device has received frames.

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
    /// The driver's own socket. It is `None` while the interface is gone.
    Socket {
        socket: Option<DriverSocket>,
        /// An epoll set that contains the current socket. A waiting thread need not know the
        /// socket.
        gate: OwnedFd,
    },
    /// The interrupt of a receive queue. It has to be enabled each time.
    Interrupt {
        /// Readable after an interrupt.
        fd: OwnedFd,
        /// Whether `fd` is an eventfd, which counts until it is read. The driver handles other
        /// kinds.
        counts: bool,
    },
}

impl Wake {
    /// Finds what wakes the user of a queue. Its port is started and ours alone.
    ///
    /// `interrupt` says whether interrupts could be configured. `before` lists the sockets that
    /// existed before the driver opened its own. The driver opens one socket for each queue.
    pub fn find(
        port: u16,
        queue: u16,
        device: &UplinkDevice,
        interface: Option<&Interface>,
        interrupt: bool,
        before: &[i32],
    ) -> Wake {
        if let Some(interface) = interface {
            // Other threads open sockets too. Descriptor numbers are given from the lowest on.
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
            // Virtual drivers may have other descriptors (`net_vhost` has an epoll set), which stay
            // readable.
            if counts || device.is_pci() {
                return Wake::Interrupt { fd, counts };
            }
        }
        Wake::Blind
    }

    /// Returns the descriptor to wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Wake::Blind => None,
            Wake::Socket { gate, .. } => Some(gate.as_fd()),
            Wake::Interrupt { fd, .. } => Some(fd.as_fd()),
        }
    }

    /// Prepares for a sleep. Returns false if nothing will wake the sleeper.
    pub fn arm(&self, port: u16, queue: u16) -> bool {
        match self {
            Wake::Blind => false,
            Wake::Socket { socket, .. } => {
                socket.iter().for_each(DriverSocket::clear_error);
                true
            }
            Wake::Interrupt { fd, counts } => {
                drain(fd, *counts);
                // SAFETY: the port is ours and has this queue.
                unsafe { dpdk::rte_eth_dev_rx_intr_enable(port, queue) >= 0 }
            }
        }
    }

    /// Clears what the device signalled last. The device is gone and signals nothing any more.
    pub fn silence(&self) {
        if let Wake::Interrupt { fd, counts } = self {
            drain(fd, *counts);
        }
    }

    /// Drops the driver's socket, because the interface is gone. The driver may then close the
    /// socket.
    pub fn let_go(&mut self) {
        if let Wake::Socket { socket, .. } = self {
            *socket = None;
        }
    }

    /// Takes over the socket of `other`. It then wakes the thread that waits here.
    pub fn follow(&mut self, mut other: Wake) {
        if let (Wake::Socket { socket, gate }, Wake::Socket { socket: new, .. }) = (self, &mut other) {
            *socket = new.take();
            if let Some(Err(error)) = socket.as_ref().map(|socket| watch(gate, socket)) {
                log::warn!("uplink: frames that come wake nobody: {error}");
            }
        }
    }

    /// Ends the preparations for a sleep.
    pub fn disarm(&self, port: u16, queue: u16) {
        if let Wake::Interrupt { fd, counts } = self {
            // SAFETY: the port is ours and has this queue.
            unsafe { dpdk::rte_eth_dev_rx_intr_disable(port, queue) };
            drain(fd, *counts);
        }
    }
}

/// Creates an epoll set that contains a socket.
fn gate(socket: &DriverSocket) -> rustix::io::Result<OwnedFd> {
    let gate = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&gate, socket)?;
    Ok(gate)
}

/// Adds a socket to the epoll set. Closing the socket removes it.
fn watch(gate: &OwnedFd, socket: &DriverSocket) -> rustix::io::Result<()> {
    epoll::add(gate, socket.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

/// Returns the descriptor of a queue's interrupt. It is duplicated, because the driver owns the
/// original.
fn interrupt_fd(port: u16, queue: u16) -> Option<OwnedFd> {
    // SAFETY: the port is ours and started. The new descriptor is ours alone.
    unsafe {
        // A virtual device without interrupts is not an error.
        let fd = expecting_failure(|| dpdk::rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue));
        let own = if fd >= 0 { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } else { -1 };
        (own >= 0).then(|| OwnedFd::from_raw_fd(own))
    }
}

fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.to_string_lossy().contains("eventfd"))
}

/// Resets the counter of an eventfd. Whether a read may block depends on the descriptor's creator.
fn drain(fd: &OwnedFd, counts: bool) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if counts && poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready != 0) {
        let _ = rustix::io::read(fd, &mut [0; 8]);
    }
}
