//! Inter-worker rings: they connect the workers of one process.
//!
//! Each worker has a port that leads to the guests of all other workers and to the NIC. Each worker
//! has a queue pair of the NIC, or the first worker has the only one.
//!
//! Between each two workers are two channels, one in each direction. If only the first worker has
//! the NIC, each other worker has one more channel to it. A worker that does not take its frames
//! loses what is sent to it, like a NIC with a full ring. It delays nobody else. A frame for
//! another worker's switch goes straight to that worker, which does not forward it. So there are no
//! loops. The configuration tells which worker serves which guest.
//!
//! Flow rules of the NIC steer frames to the queue of the worker that they are for. A frame may
//! still come to another worker's queue. It may be for all, no rule may match it, or the rules may
//! not be in force yet. Then that worker passes it on.
//!
//! A frame is written once, in a buffer of its sender, and is read from there. A frame from the NIC
//! for another worker is copied once, and so is a frame to the NIC.

mod channel;
mod driver;
mod nic;
pub mod ring;
mod sleeper;
pub mod slots;
mod sync;
mod table;

pub use channel::Endpoint;
pub use table::WorkerOf;

use super::Queues;
use super::frame::{Buffer, Frame, Origin};
use super::{Capabilities, Checksums, Driver, ETHERNET};
use channel::{FrameReceiver, FrameSender, channel};
use nic::Nic;
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use table::Destination;
use vrdma_wire::num::Mac;

/// The port of one worker.
#[derive(Debug)]
pub struct WorkerPort {
    worker: usize,
    table: Arc<WorkerOf>,
    capabilities: Capabilities,
    mac: Mac,
    /// The channels to each other worker.
    outward: Vec<Option<FrameSender>>,
    /// The channels from each other worker.
    inward: Vec<Option<FrameReceiver>>,
    /// The NIC, if this worker has a queue pair of it.
    nic: Option<Nic>,
    /// The channel to the NIC, if only the first worker has a queue pair and this is another
    /// worker.
    to_nic: Option<FrameSender>,
    rules: Rules,
    /// The state of the NIC's link. `None` if there is no NIC.
    link: Option<Arc<Link>>,
    endpoint: Arc<Endpoint>,
    /// An epoll set with the endpoint's eventfd and the NIC's descriptor, if there are both.
    both: Option<OwnedFd>,
    /// Buffers for frames to other workers. As many are made as were ever in use at once.
    free: Vec<Buffer>,
    /// The worker whose turn is next.
    next: usize,
    has_relayed: bool,
    counters: Counters,
}

/// The state of the NIC's link, which the first worker publishes for the others.
#[derive(Debug)]
struct Link {
    up: AtomicBool,
    /// Speed in Mb/s, or 0 if it is not known.
    speed: AtomicU32,
}

#[derive(Debug, Default)]
struct Counters {
    sent: u64,
    received: u64,
    lost: u64,
    buffers: u64,
}

/// Creates the ports of `workers` workers, with the NIC of this driver.
///
/// Each worker gets a queue pair of the NIC if there are as many. Otherwise the first worker gets
/// the only one. Without a NIC, IP packets have up to `mtu` bytes.
///
/// # Errors
/// The system has no descriptors left.
pub fn worker_ports(
    workers: usize,
    table: WorkerOf,
    mtu: u16,
    nic: Option<Box<dyn Driver>>,
) -> io::Result<Vec<WorkerPort>> {
    let table = Arc::new(table);
    let endpoints = (0..workers).map(|_| Ok(Arc::new(Endpoint::new()?))).collect::<io::Result<Vec<_>>>()?;
    let max_frame = usize::from(mtu) + ETHERNET;
    let none = Capabilities { mtu, max_frame, external: false, checksums: Checksums::default() };
    let capabilities = nic.as_ref().map_or(none, |nic| nic.capabilities());
    // A frame that goes to another worker has to be complete. Its sender does not yet know where it
    // goes.
    let capabilities = Capabilities { checksums: Checksums::default(), ..capabilities };
    let mac = nic.as_ref().map_or(Mac([2, 0, 0, 0, 0, 0]), |nic| nic.mac());
    let link = nic.as_ref().map(|_| Arc::new(Link { up: AtomicBool::new(false), speed: AtomicU32::new(0) }));
    let mut ports: Vec<WorkerPort> = (0..workers)
        .map(|worker| WorkerPort {
            worker,
            table: table.clone(),
            capabilities: Capabilities { external: false, ..capabilities },
            mac,
            outward: (0..workers).map(|_| None).collect(),
            inward: (0..workers).map(|_| None).collect(),
            nic: None,
            to_nic: None,
            rules: Rules::default(),
            link: link.clone(),
            endpoint: endpoints[worker].clone(),
            both: None,
            free: Vec::new(),
            next: 0,
            has_relayed: false,
            counters: Counters::default(),
        })
        .collect();
    for (from, to) in (0..workers).flat_map(|from| (0..workers).map(move |to| (from, to))) {
        if from != to {
            let (outward, inward) = channel(&endpoints[to]);
            ports[from].outward[to] = Some(outward);
            ports[to].inward[from] = Some(inward);
        }
    }
    let Some(mut driver) = nic else { return Ok(ports) };
    let mut queues = driver.queues();
    let others = queues.as_mut().map(|queues| queues.split()).unwrap_or_default();
    if let Some(queues) = queues
        && !others.is_empty()
    {
        assert_eq!(others.len() + 1, workers, "a NIC was opened for all workers");
        ports[0].rules = Rules::make(queues, &table);
    }
    if others.is_empty() {
        let channels = ports[1..].iter_mut().map(|port| {
            let (outward, inward) = channel(&endpoints[0]);
            port.to_nic = Some(outward);
            inward
        });
        let nic = Nic::new(driver, true, channels.collect());
        ports[0].add_nic(nic)?;
        return Ok(ports);
    }
    ports[0].add_nic(Nic::new(driver, true, Vec::new()))?;
    for (port, driver) in ports[1..].iter_mut().zip(others) {
        port.add_nic(Nic::new(driver, false, Vec::new()))?;
    }
    Ok(ports)
}

impl WorkerPort {
    /// Sets the workers of all guests, because a guest came or left.
    ///
    /// The NIC's flow rules stay. A frame for which none fits is handed over to its worker.
    pub fn set_table(&mut self, table: Arc<WorkerOf>) {
        self.table = table;
    }

    /// Returns the endpoint, which wakes the worker.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    fn add_nic(&mut self, nic: Nic) -> io::Result<()> {
        self.capabilities.external = nic.driver.capabilities().external;
        if let Some(fd) = nic.driver.readiness() {
            let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for fd in [fd, self.endpoint.bell.as_fd()] {
                epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            self.both = Some(both);
        }
        self.nic = Some(nic);
        self.look();
        Ok(())
    }

    /// Receives from the NIC, and passes frames for other workers' guests on to them.
    fn receive_from_nic(&mut self, frames: &mut Vec<Frame>) {
        let Some(nic) = &mut self.nic else { return };
        let mut received = std::mem::take(&mut nic.received);
        nic.driver.receive(&mut received);
        nic.counters.frames_received += received.len() as u64;
        nic.counters.bytes_received += received.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let mut handed_over = 0;
        for frame in received.drain(..) {
            match self.table.place(&frame) {
                Destination::Worker(to) if to != self.worker => {
                    self.has_relayed = true;
                    handed_over += 1;
                    self.copy(to, &frame, frame.origin());
                }
                // The frame is for a guest of this worker, or for an unknown address. The switch
                // decides.
                Destination::Worker(_) | Destination::Out => frames.push(frame),
                Destination::All => {
                    // A frame under the address of one of our guests is spoofed. Only this worker's
                    // switch gets it, which drops and counts it.
                    if !self.table.has_source(&frame) {
                        self.copy_to_all(&frame, Origin::WireCopy);
                    }
                    frames.push(frame);
                }
            }
        }
        if let Some(nic) = &mut self.nic {
            nic.received = received;
            nic.counters.handed_over += handed_over;
        }
    }

    /// Sends a frame of this worker to its destination.
    fn forward(&mut self, frame: Frame) {
        match self.table.place(&frame) {
            Destination::Worker(to) => self.hand_over(to, frame),
            Destination::Out => self.send_out(frame),
            Destination::All => {
                if frame.origin() != Origin::Flooder {
                    self.copy_to_all(&frame, frame.origin());
                }
                self.send_out(frame);
            }
        }
    }

    fn send_out(&mut self, frame: Frame) {
        if let Some(nic) = &mut self.nic {
            return nic.send(frame);
        }
        // Without a NIC there are no other hosts.
        let refused = match &mut self.to_nic {
            Some(channel) => channel.push(frame).inspect_err(|_| self.counters.lost += 1).err(),
            None => Some(frame),
        };
        self.free.extend(refused.and_then(|frame| frame.into_buffer().ok()));
    }

    /// Passes a frame on to another worker.
    fn hand_over(&mut self, to: usize, frame: Frame) {
        let origin = frame.origin();
        match frame.into_buffer() {
            Ok(buffer) => self.push(to, Frame::from_buffer(buffer, origin)),
            Err(frame) => self.copy(to, &frame, origin),
        }
    }

    fn copy_to_all(&mut self, frame: &Frame, origin: Origin) {
        for to in 0..self.outward.len() {
            self.copy(to, frame, origin);
        }
    }

    /// Passes a copy of a frame on to another worker, with this origin.
    fn copy(&mut self, to: usize, frame: &Frame, origin: Origin) {
        if to == self.worker {
            return;
        }
        if frame.total_len() > self.capabilities.max_frame {
            // It came from the NIC and is too long for the link.
            self.counters.lost += 1;
            return;
        }
        let mut buffer = self.buffer();
        buffer.len = frame.copy_into(&mut buffer.bytes);
        self.push(to, Frame::from_buffer(buffer, origin));
    }

    fn push(&mut self, to: usize, frame: Frame) {
        // There is no channel to this worker itself. The switch returns no frame to where it came
        // from (hairpin).
        let Some(channel) = &mut self.outward[to] else { return };
        match channel.push(frame) {
            Ok(()) => self.counters.sent += 1,
            Err(frame) => {
                self.counters.lost += 1;
                self.free.extend(frame.into_buffer().ok());
            }
        }
    }

    /// Returns a buffer for the longest frame.
    fn buffer(&mut self) -> Buffer {
        if self.free.is_empty() {
            for channel in self.outward.iter_mut().flatten().chain(&mut self.to_nic) {
                channel.take_empty(&mut self.free);
            }
        }
        self.free.pop().unwrap_or_else(|| {
            self.counters.buffers += 1;
            let bytes = vec![0; self.capabilities.max_frame].into_boxed_slice();
            Buffer { bytes, len: 0, home: self.worker }
        })
    }

    fn publish(&mut self) {
        self.outward.iter_mut().flatten().chain(&mut self.to_nic).for_each(FrameSender::publish);
    }

    /// Checks the NIC's link, and publishes its state for the other workers.
    fn look(&mut self) -> bool {
        let Some(link) = &self.link else { return true };
        match &mut self.nic {
            Some(nic) if nic.is_first => {
                let was_up = link.up.swap(nic.look(true), Ordering::Relaxed);
                // Reading the speed may take a system call.
                if was_up != nic.up {
                    link.speed.store(nic.driver.speed().unwrap_or(0), Ordering::Relaxed);
                }
                nic.up
            }
            Some(nic) => nic.look(link.up.load(Ordering::Relaxed)),
            None => link.up.load(Ordering::Relaxed),
        }
    }
}

/// The numbers of flow rules that were made and refused.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    made: u64,
    refused: u64,
}

impl Rules {
    /// Requests a rule for each MAC address of each guest.
    ///
    /// Refusals are logged once, with the driver's words for the first.
    fn make(queues: &mut dyn Queues, table: &WorkerOf) -> Rules {
        let (mut rules, mut why) = (Rules::default(), None);
        for (mac, worker) in table.addresses() {
            match queues.steer(mac, worker) {
                Ok(()) => rules.made += 1,
                Err(error) => {
                    rules.refused += 1;
                    why.get_or_insert(error);
                }
            }
        }
        if let Some(error) = why {
            log::warn!(
                "uplink: {} of {} flow rules are refused ({error:#}): frames to those addresses that come to the queue of another worker are handed over",
                rules.refused,
                rules.made + rules.refused
            );
        }
        rules
    }
}

#[cfg(test)]
mod tests;
