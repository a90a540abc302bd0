//! All workers of the daemon: how they start, which guests they serve, and how they end.

use super::packets::{PacketPort, packet_ports};
use super::watch::WorkerWatch;
use super::{Stopped, Worker, WorkerHandle};
use crate::config::{Config, GuestConfig, Transport};
use crate::device::DeviceLimits;
use crate::device::clock::Clock;
use crate::gids::Gids;
use crate::port::{Port, WorkerOf, worker_ports};
use crate::service;
use anyhow::{Context, Result};
use std::thread::JoinHandle;
use vrdma_transport::DeviceId;
use vrdma_wire::num::Mtu;

/// The least MTU of the inter-worker rings.
///
/// Without an uplink, IP packets between workers have room for a RoCE packet of path MTU 4096.
const LEAST_MTU: u16 = 4200;

/// The workers. Dropping this ends them.
#[derive(Debug)]
pub struct Workers {
    watch: Option<WorkerWatch>,
    handles: Vec<WorkerHandle>,
    threads: Vec<JoinHandle<()>>,
}

/// Where a guest is served.
#[derive(Clone, Debug)]
pub struct GuestPlacement {
    /// The number of its worker.
    pub number: usize,
    /// Its worker.
    pub worker: WorkerHandle,
    /// Its device at that worker.
    pub device: DeviceId,
    /// Its port of the switch at that worker.
    pub port: usize,
}

impl Workers {
    /// Starts the workers. The first one has the uplink.
    ///
    /// IP packets of guests' Ethernet functions have up to `mtu` bytes.
    ///
    /// # Errors
    /// The system has no resources left, or a worker may not run on its processor.
    pub fn start(config: &Config, mtu: u16, uplink: Option<Port>) -> Result<Workers> {
        let count = usize::from(config.workers);
        let mut workers = Workers { watch: None, handles: Vec::new(), threads: Vec::new() };
        for number in 0..count {
            let name = if count == 1 { "worker".to_owned() } else { format!("worker {number}") };
            let cpu = config.cpus.get(number).copied();
            let (handle, thread) = Worker::spawn(&name, cpu, config.poll(), mtu)?;
            workers.handles.push(handle);
            workers.threads.push(thread);
        }
        let guests = config.resolved_guests();
        let ports = match count {
            1 => vec![(uplink, None)],
            _ => joined(&guests, count, mtu, uplink)?,
        };
        let (gids, clock) = (Gids::default(), Clock::default());
        for (number, (handle, (port, packet_port))) in workers.handles.iter().zip(ports).enumerate() {
            let is_other = |guest: &&GuestConfig| worker_of(guest) != number && !guest.is_beside;
            let others: Vec<_> = guests.iter().filter(is_other).cloned().collect();
            let view = (count > 1).then(|| gids.view(number));
            handle.call(move |worker| {
                worker.set_clock(clock);
                if let Some(view) = view {
                    worker.set_others(&others, view);
                }
                worker.packet_port = packet_port;
                if let Some(port) = port {
                    worker.set_uplink(port);
                }
            })?;
        }
        let watchdog = service::watchdog();
        if count > 1 || service::is_heard() {
            let names = |number| {
                let own = guests.iter().filter(|guest| worker_of(guest) == number);
                own.map(|guest| guest.name.clone()).collect()
            };
            let watched = workers.handles.iter().cloned().enumerate();
            let watched = watched.map(|(number, handle)| (handle, names(number))).collect();
            let watch = WorkerWatch::start(watched, watchdog);
            workers.watch = Some(watch.context("a thread that watches the workers")?);
        }
        Ok(workers)
    }

    /// Adds each guest to its worker, in the order of the configuration.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn add(&self, config: &Config, guests: &[GuestConfig]) -> Result<Vec<GuestPlacement>, Stopped> {
        let mut places: Vec<GuestPlacement> = Vec::new();
        for guest in guests {
            let number = worker_of(guest);
            let worker = self.handles[number].clone();
            let (spec, limits) = (guest.clone(), DeviceLimits::of(config, guest));
            // A guest's second function follows its first one, and is on the same worker.
            let port = places.last().filter(|_| guest.is_beside).map(|first| first.port);
            let (device, port) = worker.call(move |worker| match port {
                Some(port) => (worker.add_function(spec, limits, port), port),
                None => worker.add_guest(spec, limits),
            })?;
            places.push(GuestPlacement { number, worker, device, port });
        }
        Ok(places)
    }

    /// Returns the largest path MTU of guests' RDMA functions.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn path_mtu(&self) -> Result<Mtu, Stopped> {
        self.handles[0].call(|worker| worker.port.mtu)
    }

    /// Returns the handles of all workers.
    pub fn handles(&self) -> &[WorkerHandle] {
        &self.handles
    }
}

/// Returns the worker of a guest of [`Config::resolved_guests`].
fn worker_of(guest: &GuestConfig) -> usize {
    guest.worker.expect("each guest was given a worker").into()
}

/// Creates the ports that connect each worker with the others and with the uplink.
///
/// There are ports for frames, and inter-worker ports for packets that are passed without frames.
fn joined(guests: &[GuestConfig], count: usize, mtu: u16, uplink: Option<Port>) -> Result<Vec<Ports>> {
    let mut table = WorkerOf::default();
    for guest in guests {
        for &mac in guest.extra_macs.iter().chain([&guest.mac]) {
            table.insert(mac, worker_of(guest));
        }
    }
    let nic = uplink.map(Port::into_driver);
    let ports = worker_ports(count, table, mtu.max(LEAST_MTU), nic).context("the rings between workers")?;
    let endpoints: Vec<_> = ports.iter().map(|worker_ports| worker_ports.endpoint().clone()).collect();
    let has_engine =
        |guest: &&GuestConfig| guest.rdma_place().is_some() && guest.transport == Transport::Roce;
    let homes = guests.iter().filter(has_engine).map(|guest| (guest.mac, worker_of(guest))).collect();
    let packet_port = packet_ports(&endpoints, homes);
    Ok(ports.into_iter().map(Port::of_worker).map(Some).zip(packet_port.into_iter().map(Some)).collect())
}

/// A worker's ports: for frames, and for inter-worker packets.
type Ports = (Option<Port>, Option<PacketPort>);

impl Drop for Workers {
    fn drop(&mut self) {
        self.watch = None;
        // All are told to stop before this waits for any.
        self.handles.iter().for_each(|handle| handle.tell(Worker::stop));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a worker panicked");
            }
        }
    }
}
