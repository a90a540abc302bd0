//! The uplink: a NIC, or a substitute for one.
//!
//! A [`Port`] receives and sends frames in bursts. Each burst is one call of its [`Driver`].
//! Drivers are DPDK's ethdevs ([`Ethdev`]), this crate's packet sockets ([`PacketSocket`]), and a
//! pair of ports in memory ([`pair()`]). [`Capture`] and [`Faults`] are drivers that wrap another
//! driver.

mod capture;
mod devargs;
mod dma;
mod dpdk;
mod driver;
mod external;
mod faults;
mod frame;
mod offload;
mod open;
pub(crate) mod packet;
mod pair;
mod pins;
mod sizes;
mod worker_port;

pub use capture::{Capture, CaptureFile};
pub use devargs::UplinkDevice;
pub use dma::{Dma, DmaMapper, DmaMapping};
pub use dpdk::{Eal, Ethdev};
pub use driver::{Burst, Capabilities, Driver, Frames, Queues, Wakeup};
pub use external::External;
pub use faults::{Direction, Faults, FaultsConfig, PacketKind, PlannedLoss};
pub use frame::{Frame, Origin};
pub use offload::{Checksums, Offload};
pub use open::open;
pub use packet::PacketSocket;
pub use pair::{Cable, DEPTH, pair, pair_of_depth};
use sizes::BACKLOG;
pub(crate) use sizes::ETHERNET;
pub use sizes::{BURST, TURN};
pub use worker_port::{Endpoint, WorkerOf, WorkerPort, slots, worker_ports};

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use vrdma_transport::Way;
use vrdma_wire::num::Mac;

/// How often [`Port::poll_link`] is to be called.
pub const LINK_POLL: Duration = Duration::from_millis(20);
/// The longest sleep while no frames arrive and there is no link.
const LONG_SLEEP: Duration = Duration::from_secs(60);
/// The longest sleep between two polls of a driver that cannot wake its user.
const BLIND_SLEEP: Duration = Duration::from_micros(50);

/// Where a port's frames come from and go to.
#[derive(Debug)]
enum Source {
    /// A NIC.
    Nic(Box<dyn Driver>),
    /// The other workers of this process, and the NIC if there is one.
    Workers(Box<WorkerPort>),
}

impl Source {
    fn driver(&self) -> &dyn Driver {
        match self {
            Source::Nic(driver) => &**driver,
            Source::Workers(port) => &**port,
        }
    }

    fn driver_mut(&mut self) -> &mut dyn Driver {
        match self {
            Source::Nic(driver) => &mut **driver,
            Source::Workers(port) => &mut **port,
        }
    }

    /// Returns the inter-worker rings, if there are other workers.
    fn worker_port(&self) -> Option<&WorkerPort> {
        match self {
            Source::Nic(_) => None,
            Source::Workers(port) => Some(port),
        }
    }
}

/// A driver with what its user needs around it: a send queue, the link's state, and counters.
#[derive(Debug)]
pub struct Port {
    source: Source,
    capabilities: Capabilities,
    /// Buffers for frames to send.
    free: Vec<Frame>,
    /// Frames that wait for the next burst.
    queue: Vec<Frame>,
    queued_bytes: usize,
    up: bool,
    counters: PortCounters,
}

impl Port {
    /// Creates the port of a NIC.
    pub fn new(driver: Box<dyn Driver>) -> Port {
        Port::from_source(Source::Nic(driver))
    }

    /// Creates the port of a worker that is one of several.
    pub fn of_worker(port: WorkerPort) -> Port {
        Port::from_source(Source::Workers(Box::new(port)))
    }

    fn from_source(mut source: Source) -> Port {
        let driver = source.driver_mut();
        let (capabilities, up) = (driver.capabilities(), driver.link());
        let free = Vec::with_capacity(BURST);
        let queue = Vec::with_capacity(BACKLOG);
        Port { source, capabilities, free, queue, queued_bytes: 0, up, counters: PortCounters::default() }
    }

    /// Returns the driver alone.
    pub fn into_driver(self) -> Box<dyn Driver> {
        match self.source {
            Source::Nic(driver) => driver,
            Source::Workers(port) => port,
        }
    }

    /// Returns what the port can do.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Returns the device that has to know memory before frames may carry it.
    ///
    /// `None` if the driver reads any memory of this process.
    pub fn dma(&self) -> Option<Dma> {
        self.source.driver().dma()
    }

    /// Returns the port's own MAC address. The port receives frames to all other addresses too.
    pub fn mac(&self) -> Mac {
        self.source.driver().mac()
    }

    /// Makes the calling thread the user of the port. It is called once, because threads cache
    /// buffers.
    pub fn adopt(&mut self) {
        self.source.driver_mut().adopt();
    }

    /// Releases the buffers of received frames, which have been read.
    pub fn recycle(&mut self, burst: &mut Burst) {
        self.source.driver_mut().recycle(&mut burst.0);
    }

    /// Sets the workers of all guests. A port that leads to no other workers does not need them.
    pub fn set_table(&mut self, table: Arc<WorkerOf>) {
        if let Source::Workers(port) = &mut self.source {
            port.set_table(table);
        }
    }

    /// Whether the port leads to other workers. They are reached while the link is down, too.
    pub fn reaches_workers(&self) -> bool {
        self.source.worker_port().is_some()
    }

    /// Whether the port leads to other hosts.
    pub fn leads_out(&self) -> bool {
        self.source.worker_port().is_none_or(WorkerPort::leads_out)
    }

    /// Whether the port has a queue pair of the NIC. Otherwise another worker's port sends and
    /// receives for it.
    pub fn has_queue(&self) -> bool {
        self.source.worker_port().is_none_or(WorkerPort::has_queue)
    }

    /// Whether the last [`Port::receive`] moved a frame of other workers that is not for its
    /// caller.
    pub fn has_relayed(&self) -> bool {
        self.source.worker_port().is_some_and(WorkerPort::has_relayed)
    }

    /// Replaces the contents of `burst` by received frames, and returns their number.
    ///
    /// They are up to [`BURST`] frames from the NIC, and as many from other workers.
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        self.source.driver_mut().recycle(&mut burst.0);
        self.source.driver_mut().receive(&mut burst.0);
        let (max, counters) = (self.capabilities.max_frame, &mut self.counters);
        if burst.0.is_empty() {
            return 0;
        }
        counters.frames_received += burst.0.len() as u64;
        counters.bytes_received += burst.0.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if burst.0.iter().any(|frame| frame.len() > max) {
            // Such a frame is too long for the link. It may be cut to the size of a buffer, or the
            // host may have reassembled it from fragments.
            let before = burst.0.len();
            burst.0.retain(|frame| frame.len() <= max);
            counters.rx_oversize += (before - burst.0.len()) as u64;
        }
        burst.0.len()
    }

    /// Whether the next [`Port::transmit`] will return a buffer.
    pub fn has_room(&mut self) -> bool {
        if self.queue.len() >= BURST {
            self.flush();
        }
        if self.free.is_empty() {
            self.source.driver_mut().allocate(&mut self.free);
        }
        self.is_open() && self.queue.len() < BACKLOG && !self.free.is_empty()
    }

    /// Describes the way to this address.
    ///
    /// It has room if the packets that one round sends would not be lost on it.
    pub fn way_to(&mut self, dst: Mac) -> Way {
        match &mut self.source {
            Source::Nic(_) => Way::default(),
            Source::Workers(port) => port.way_to(dst),
        }
    }

    /// Returns how many frames the port takes at the moment. `None` if the link is down and all are
    /// lost.
    pub fn room(&mut self) -> Option<usize> {
        let room = if self.has_room() { BACKLOG - self.queue.len() } else { 0 };
        self.is_open().then_some(room)
    }

    /// Whether the port takes any frames.
    fn is_open(&self) -> bool {
        self.up || self.reaches_workers()
    }

    /// Returns a buffer for a frame of `len` bytes.
    ///
    /// `None` if the frame would be lost, which is counted. The link is down, the driver takes no
    /// more, there are no buffers, or the frame is too long.
    #[inline]
    pub fn transmit(&mut self, len: usize) -> Option<Transmit<'_>> {
        let counters = &mut self.counters;
        if !(self.up || self.source.worker_port().is_some()) {
            counters.tx_link_down += 1;
        } else if len > self.capabilities.max_frame {
            counters.tx_oversize += 1;
        } else if self.has_room() {
            return Some(Transmit { port: self, origin: Origin::Guest });
        } else if self.queue.len() >= BACKLOG {
            self.counters.tx_full += 1;
        } else {
            self.counters.tx_no_buffer += 1;
        }
        None
    }

    /// Queues the last free buffer, with `len` bytes used.
    ///
    /// The frame is changed in its final place. To copy a structure that was just stored in parts
    /// would have to wait for these stores.
    fn enqueue(&mut self, len: usize, origin: Origin) {
        self.queue.push(self.free.pop().expect(HAS_BUFFER));
        let frame = self.queue.last_mut().expect("it was just put there");
        frame.set_len(len);
        frame.set_origin(origin);
    }

    /// Gives the committed frames to the driver. Frames that it does not take wait for the next
    /// call.
    pub fn flush(&mut self) {
        let mut before = self.queue.len();
        while before != 0 {
            self.source.driver_mut().send(&mut self.queue);
            let sent = before - self.queue.len();
            self.counters.frames_sent += sent as u64;
            if sent < BURST {
                break;
            }
            before -= sent;
        }
        let left = self.queue.iter().map(Frame::total_len).sum();
        self.counters.bytes_sent += (self.queued_bytes - left) as u64;
        self.queued_bytes = left;
    }

    /// Releases external memory as soon as possible.
    ///
    /// Queued frames get copies of it, and the driver is asked to release what it has.
    pub fn reclaim(&mut self) {
        self.queue.iter_mut().for_each(Frame::own);
        self.source.driver_mut().reclaim();
    }

    /// Returns the number of committed frames that the driver has not taken yet.
    pub fn backlog(&self) -> usize {
        self.queue.len()
    }

    /// Returns a descriptor that is readable when frames have arrived, if the driver has one.
    ///
    /// It is level-triggered, and is added to an epoll set once and for all.
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.source.driver().readiness()
    }

    /// Prepares for a sleep, and returns how long it may last.
    ///
    /// The caller polls for frames once more before it sleeps.
    pub fn arm(&mut self) -> Duration {
        let is_woken = self.source.driver_mut().arm() && self.queue.is_empty();
        let limit = match is_woken {
            false => BLIND_SLEEP,
            true if self.leads_out() => LINK_POLL,
            // Without an uplink there is no link to poll.
            true => LONG_SLEEP,
        };
        self.source.driver().held().map_or(limit, |held| held.min(limit))
    }

    /// Returns when the next frame is due that the driver holds back, from now.
    pub fn held(&self) -> Option<Duration> {
        self.source.driver().held()
    }

    /// Ends the preparations for a sleep.
    pub fn disarm(&mut self) {
        self.source.driver_mut().disarm();
    }

    /// Returns the speed of the link in Mb/s, if it is known. This may take a system call.
    pub fn speed(&mut self) -> Option<u32> {
        self.source.driver_mut().speed()
    }

    /// Whether the link was up at the last check.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Checks the link, and returns its state if that has changed.
    ///
    /// It is called every [`LINK_POLL`], and may take a system call.
    pub fn poll_link(&mut self) -> Option<bool> {
        let up = self.source.driver_mut().link();
        if up == self.up {
            return None;
        }
        self.up = up;
        self.counters.link_changes += 1;
        if !self.is_open() {
            // The driver might keep these frames until the link is up again. They would be out of
            // date then.
            self.counters.tx_link_down += self.queue.len() as u64;
            self.queue.clear();
            self.queued_bytes = 0;
        }
        Some(up)
    }

    /// Returns all counters by name.
    pub fn stats(&self) -> BTreeMap<&'static str, u64> {
        let mut stats = self.counters.by_name();
        self.source.driver().counters(&mut |name, value| {
            stats.insert(name, value);
        });
        stats
    }

    /// Returns the counters for frames between workers, by name.
    pub fn worker_stats(&self) -> BTreeMap<&'static str, u64> {
        let mut stats = BTreeMap::new();
        if let Some(port) = self.source.worker_port() {
            port.worker_counters(&mut |name, value| {
                stats.insert(name, value);
            });
        }
        stats
    }
}

/// The right to send a frame, with the port's last free buffer for it. Dropping it sends nothing.
#[derive(Debug)]
pub struct Transmit<'a> {
    port: &'a mut Port,
    origin: Origin,
}

/// The panic message for a port of a [`Transmit`] that has no free buffer.
const HAS_BUFFER: &str = "there is none without a free buffer";

impl Transmit<'_> {
    /// Returns the buffer. It has room for the longest frame, and arbitrary contents.
    #[inline]
    pub fn buf(&mut self) -> &mut [u8] {
        let max = self.port.capabilities.max_frame;
        &mut self.port.free.last_mut().expect(HAS_BUFFER).room()[..max]
    }

    /// Sets who made the frame. The default is [`Origin::Guest`].
    #[inline]
    pub fn made_by(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Requests checksums. The caller knows that the port supports them.
    pub fn offload(&mut self, offload: Offload) {
        let Port { source, free, .. } = &mut *self.port;
        source.driver_mut().offload(free.last_mut().expect(HAS_BUFFER), offload);
    }

    /// Sends the first `len` bytes of the buffer with the next burst.
    ///
    /// # Panics
    /// `len` is more than the longest frame.
    #[inline]
    pub fn commit(self, len: usize) {
        assert!(len <= self.port.capabilities.max_frame, "a frame that fits its buffer");
        self.port.enqueue(len, self.origin);
        self.port.queued_bytes += len;
    }

    /// Sends bytes of the buffer, then external memory, then a short tail, with the next burst.
    ///
    /// `head` is the number of bytes from the buffer. `tail` has at most 16 bytes. The memory may
    /// be read at any time until its owner is dropped. It is copied here if the driver can only
    /// send copies.
    ///
    /// # Panics
    /// All together is more than the longest frame.
    pub fn commit_with(mut self, head: usize, payload: impl IntoIterator<Item = External>, tail: &[u8]) {
        let max = self.port.capabilities.max_frame;
        let mut len = head;
        if !self.port.capabilities.external {
            for piece in payload {
                let end = len + piece.len();
                piece.copy_to(&mut self.buf()[len..end]);
                len = end;
            }
            self.buf()[len..len + tail.len()].copy_from_slice(tail);
            return self.commit(len + tail.len());
        }
        self.port.enqueue(head, self.origin);
        let Port { source, queue, counters, queued_bytes, .. } = self.port;
        let driver = source.driver_mut();
        let frame = queue.last_mut().expect("it was just put there");
        let mut whole = true;
        for piece in payload {
            len += piece.len();
            whole = whole && driver.attach(frame, piece);
        }
        assert!(len + tail.len() <= max, "a frame that fits the link");
        if whole && (tail.is_empty() || driver.append(frame, tail)) {
            *queued_bytes += len + tail.len();
        } else {
            queue.pop();
            counters.tx_no_buffer += 1;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PortCounters {
    frames_received: u64,
    bytes_received: u64,
    frames_sent: u64,
    bytes_sent: u64,
    rx_oversize: u64,
    tx_oversize: u64,
    tx_no_buffer: u64,
    tx_full: u64,
    tx_link_down: u64,
    link_changes: u64,
}

impl PortCounters {
    /// Returns the counters with their names.
    fn by_name(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("frames_received", self.frames_received),
            ("bytes_received", self.bytes_received),
            ("frames_sent", self.frames_sent),
            ("bytes_sent", self.bytes_sent),
            ("rx_oversize", self.rx_oversize),
            ("tx_oversize", self.tx_oversize),
            ("tx_no_buffer", self.tx_no_buffer),
            ("tx_full", self.tx_full),
            ("tx_link_down", self.tx_link_down),
            ("link_changes", self.link_changes),
        ])
    }
}
