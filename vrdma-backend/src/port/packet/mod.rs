//! A packet socket of ours: an interface that the kernel keeps, where TCP passes the kernel in
//! pieces of up to 64 KiB.
//!
//! DPDK's `net_af_packet` hands the kernel each frame by itself, and what the kernel does for one
//! frame takes longer than all that we do. This driver says more to the kernel (`PACKET_VNET_HDR`,
//! the header of virtio-net): segments of TCP that follow each other go as one, which the device
//! cuts if it can (TSO), the kernel if not, or nobody, if it is a veth whose other end is such a
//! socket too; and what the kernel has put together (GRO), or left open, is cut and completed here.
//!
//! | module | question |
//! |---|---|
//! | `socket` | what does the kernel get and give? |
//! | `header` | what does it say before each frame? |
//! | `join`, `outbox` | which frames go as one? |
//! | `cut`, `inbox` | which frames come of one? |
//! | `judged` | does what goes as one come out as it was? |

mod cut;
mod header;
mod inbox;
mod join;
#[cfg(any(test, feature = "fuzzing"))]
pub mod judged;
mod outbox;
mod socket;
#[cfg(test)]
mod tests;

use super::dpdk::{Eal, Held, Pool, Presence};
use super::{
    BURST, Capabilities, Checksums, Driver, ETHERNET, External, Frame, Frames, Offload, UplinkDevice, Wakeup,
};
use anyhow::{Context, Result};
use inbox::Inbox;
use outbox::Outbox;
use socket::Socket;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vrdma_wire::num::Mac;

/// Buffers for frames to come, and for those to go. The kernel copies what it takes, but each
/// thread that had the port before may keep some hundred.
const BUFFERS: u32 = 2047;

/// The kernel is asked no more often while nothing comes: between guests a turn of the worker takes
/// less than the question.
const QUIET: Duration = Duration::from_micros(1);

/// See the module.
#[derive(Debug)]
pub struct PacketSocket {
    eal: Eal,
    socket: Socket,
    mac: Mac,
    capabilities: Capabilities,
    inbox: Inbox,
    outbox: Outbox,
    receive_pool: Pool,
    send_pool: Pool,
    counters: Counters,
    /// When the kernel was asked last, if it had nothing.
    quiet: Option<Instant>,
    presence: Presence,
    /// While it is there. Given back last.
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Looks at the link that found no buffer left for frames to come.
    rx_pool_empty: u64,
    /// Frames that found too much waiting in the socket.
    rx_ring_full: u64,
}

impl PacketSocket {
    /// Opens one. Without `mtu` the interface's stays; an interface whose MTU this changes gets its
    /// own back when this is dropped.
    ///
    /// # Errors
    /// It cannot be had; the message says why and what helps.
    pub fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<PacketSocket> {
        open(eal, device, mtu).with_context(|| format!("uplink {}", device.name))
    }
}

fn open(eal: Eal, device: &UplinkDevice, mtu: Option<u16>) -> Result<PacketSocket> {
    device.check_host()?;
    let name = device.interface().context("the parameter iface is missing")?;
    let socket = Socket::open()?;
    let asked = mtu;
    let (held, mtu) = Held::take(name, asked)?;
    held.interface().warn();
    socket.bind(&held)?;
    let mac = held.interface().mac().context("its MAC address")?;
    let max_frame = usize::from(mtu) + ETHERNET;
    let room = u16::try_from(max_frame)?;
    let receive_pool = Pool::new(eal, BUFFERS, room)?;
    let send_pool = Pool::new(eal, BUFFERS, room)?;
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
        presence: Presence::of(held.interface(), asked, mtu),
        held: Some(held),
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
        self.held.as_ref()?.interface().speed()
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
        // What is left has no room in this burst, or no buffers.
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
        // What waits here makes nothing readable.
        self.inbox.is_empty()
    }
}

impl PacketSocket {
    /// Whether the link is up. An interface that is gone has none, and the next that has its name
    /// is taken.
    fn look(&mut self) -> bool {
        if self.held.as_ref().is_some_and(|held| !held.interface().is_there()) {
            self.held = None;
            self.presence.lost();
        }
        if self.held.is_none()
            && let Some(held) = self.presence.retake()
        {
            match self.socket.bind(&held) {
                Ok(()) => {
                    self.presence.has(held.interface());
                    self.held = Some(held);
                }
                Err(error) => self.presence.failed(&error),
            }
        }
        let Some(held) = &self.held else { return false };
        self.presence.look();
        held.interface().carrier()
    }
}
