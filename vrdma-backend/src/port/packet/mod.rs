//! A packet socket on an interface that the kernel keeps. TCP passes the kernel in pieces of up to
//! 64 KiB.
//!
//! DPDK's `net_af_packet` passes each frame to the kernel by itself. What the kernel does for one
//! frame takes longer than all work of this program. This driver exchanges more with the kernel at
//! once, by `PACKET_VNET_HDR` (the header of virtio-net):
//!
//! - TCP segments that follow each other are sent as one. The device cuts them if it can (TSO),
//!   otherwise the kernel does. Nobody cuts them if the interface is a veth whose other end is such
//!   a socket too.
//! - Frames that the kernel has coalesced (GRO), or has left without checksums, are cut and
//!   completed here.
//!
//! | module | question |
//! |---|---|
//! | `socket` | what passes between kernel and socket? |
//! | `header` | what does the header before each frame say? |
//! | `join`, `outbox` | which frames are sent as one? |
//! | `cut`, `inbox` | which frames are made of one? |
//! | `segment_checks` | are coalesced segments cut into what they were? |

mod cut;
mod header;
mod inbox;
mod join;
mod outbox;
#[cfg(any(test, feature = "fuzzing"))]
pub mod segment_checks;
mod socket;
#[cfg(test)]
mod tests;

use super::dpdk::{ClaimedInterface, Eal, InterfacePresence, MbufPool};
use super::{
    BURST, Capabilities, Checksums, Driver, ETHERNET, External, Frame, Frames, Offload, UplinkDevice, Wakeup,
};
use anyhow::{Context, Result};
use inbox::Inbox;
use outbox::Outbox;
use socket::RawSocket;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vrdma_wire::num::Mac;

/// The number of receive buffers, and that of send buffers.
///
/// The kernel copies what it takes. But each thread that used the port before may keep some
/// hundred.
const BUFFERS: u32 = 2047;

/// The shortest time between two requests to the kernel while nothing arrives.
///
/// Between guests, a round of the worker takes less time than the request.
const QUIET: Duration = Duration::from_micros(1);

/// A driver that sends and receives by a packet socket.
#[derive(Debug)]
pub struct PacketSocket {
    eal: Eal,
    socket: RawSocket,
    mac: Mac,
    capabilities: Capabilities,
    inbox: Inbox,
    outbox: Outbox,
    receive_pool: MbufPool,
    send_pool: MbufPool,
    counters: Counters,
    /// When the kernel was asked last, if it had nothing.
    quiet: Option<Instant>,
    presence: InterfacePresence,
    /// The claimed interface, while it exists. It is released last.
    claimed: Option<ClaimedInterface>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// How often a poll of the link found no free receive buffer.
    rx_pool_empty: u64,
    /// Frames for which the socket's receive buffer had no room.
    rx_ring_full: u64,
}

impl PacketSocket {
    /// Opens a packet socket.
    ///
    /// Without `mtu`, the interface keeps its MTU. If this changes the MTU, dropping the driver
    /// restores it.
    ///
    /// # Errors
    /// The socket or the interface cannot be opened. The message says why and what helps.
    pub fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<PacketSocket> {
        open(eal, device, mtu).with_context(|| format!("uplink {}", device.name))
    }
}

fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<PacketSocket> {
    device.check_host()?;
    let name = device.interface().context("the parameter iface is missing")?;
    let socket = RawSocket::open()?;
    let asked = mtu;
    let (claimed, mtu) = ClaimedInterface::take(name, asked)?;
    claimed.interface().warn();
    socket.bind(&claimed)?;
    let mac = claimed.interface().mac().context("its MAC address")?;
    let max_frame = usize::from(mtu) + ETHERNET;
    let room = u16::try_from(max_frame)?;
    let receive_pool = MbufPool::new(eal, BUFFERS, room)?;
    let send_pool = MbufPool::new(eal, BUFFERS, room)?;
    let checksums = Checksums { ipv4: false, udp: true, tcp: true };
    Ok(PacketSocket {
        eal,
        socket,
        mac,
        capabilities: Capabilities { mtu, max_frame, external: false, checksums },
        inbox: Inbox::new(receive_pool, mtu),
        outbox: Outbox::new(),
        receive_pool,
        send_pool,
        counters: Counters::default(),
        quiet: None,
        presence: InterfacePresence::of(claimed.interface(), asked, mtu),
        claimed: Some(claimed),
    })
}

impl Driver for PacketSocket {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn adopt(&mut self) {
        self.eal.adopt_thread();
    }

    fn link(&mut self) -> bool {
        self.counters.rx_ring_full += u64::from(self.socket.drops());
        if self.receive_pool.available() == 0 {
            self.counters.rx_pool_empty += 1;
        }
        self.look()
    }

    fn speed(&mut self) -> Option<u32> {
        self.claimed.as_ref()?.interface().speed()
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let (inbox, outbox) = (&self.inbox.counters, &self.outbox.counters);
        count("rx_pool_empty", self.counters.rx_pool_empty);
        count("rx_ring_full", self.counters.rx_ring_full);
        count("rx_cut", inbox.cut);
        count("rx_unfinished", inbox.unfinished);
        count("rx_too_long", inbox.oversize);
        count("tx_joined", outbox.joined);
        count("tx_refused", outbox.refused);
    }
}

impl Frames for PacketSocket {
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        self.inbox.take(frames);
        // Messages that are left found no room in this burst, or no buffers.
        let is_quiet = || self.quiet.is_some_and(|since| since.elapsed() < QUIET);
        if self.inbox.is_empty() && frames.len() < BURST && !is_quiet() {
            self.inbox.fetch(&self.socket);
            self.quiet = self.inbox.is_empty().then(Instant::now);
            self.inbox.take(frames);
        }
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        self.send_pool.allocate_most(BURST - frames.len(), |mbuf| frames.push(Frame::from_mbuf(mbuf)));
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        frames.iter_mut().take(BURST).for_each(Frame::own);
        self.outbox.send(&self.socket, frames);
    }

    fn attach(&mut self, _frame: &mut Frame, _external: External) -> bool {
        unreachable!("this port says that it copies all");
    }

    fn append(&mut self, _frame: &mut Frame, _bytes: &[u8]) -> bool {
        unreachable!("this port says that it copies all");
    }

    fn offload(&mut self, frame: &mut Frame, offload: Offload) {
        frame.ask(offload);
    }
}

impl Wakeup for PacketSocket {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.readiness())
    }

    fn arm(&mut self) -> bool {
        self.socket.clear_error();
        // Messages that wait in the inbox make nothing readable.
        self.inbox.is_empty()
    }
}

impl PacketSocket {
    /// Whether the link is up. It is down while the interface is gone.
    ///
    /// The next interface of the same name is taken.
    fn look(&mut self) -> bool {
        if self.claimed.as_ref().is_some_and(|claimed| !claimed.interface().is_there()) {
            self.claimed = None;
            self.presence.lost();
        }
        if self.claimed.is_none()
            && let Some(claimed) = self.presence.retake()
        {
            match self.socket.bind(&claimed) {
                Ok(()) => {
                    self.presence.has(claimed.interface());
                    self.claimed = Some(claimed);
                }
                Err(error) => self.presence.failed(&error),
            }
        }
        let Some(claimed) = &self.claimed else { return false };
        self.presence.look();
        claimed.interface().carrier()
    }
}
