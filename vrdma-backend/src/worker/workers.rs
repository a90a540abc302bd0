//! All workers of the daemon: how they start, which guests they serve, and how they end.

use super::members::{Members, frame_table, packet_table, worker_of};
use super::packets::{PacketPort, packet_ports};
use super::watch::{WatchedNames, WorkerWatch};
use super::{Stopped, Worker, WorkerHandle};
use crate::config::{Config, GuestConfig};
use crate::device::clock::Clock;
use crate::gids::Gids;
use crate::port::{Port, worker_ports};
use crate::service;
use anyhow::{Context, Result};
use std::thread::JoinHandle;
use vrdma_wire::num::Mtu;

/// The least MTU of the inter-worker rings.
///
/// Without an uplink, IP packets between workers have room for a RoCE packet of path MTU 4096.
const LEAST_MTU: u16 = 4200;

/// The workers. Dropping this ends them.
#[derive(Debug)]
pub struct Workers {
    watch: Option<WorkerWatch>,
    names: WatchedNames,
    handles: Vec<WorkerHandle>,
    threads: Vec<JoinHandle<()>>,
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
        let mut workers =
            Workers { watch: None, names: WatchedNames::default(), handles: Vec::new(), threads: Vec::new() };
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
        let (gids, clock, congestion) = (Gids::default(), Clock::default(), &config.congestion);
        for (number, (handle, (port, packet_port))) in workers.handles.iter().zip(ports).enumerate() {
            let is_other = |guest: &&GuestConfig| worker_of(guest) != number && !guest.is_beside;
            let others: Vec<_> = guests.iter().filter(is_other).cloned().collect();
            let view = (count > 1).then(|| gids.view(number));
            let congestion = congestion.clone();
            handle.call(move |worker| {
                worker.set_clock(clock);
                worker.congestion = congestion;
                if let Some(view) = view {
                    worker.set_others(&others, view);
                }
                worker.packet_port = packet_port;
                if let Some(port) = port {
                    worker.set_uplink(port);
                }
            })?;
        }
        for number in 0..count {
            let own: Vec<_> = guests.iter().filter(|guest| worker_of(guest) == number).cloned().collect();
            workers.names.add(number, &own);
        }
        let watchdog = service::watchdog();
        if count > 1 || service::is_heard() {
            let watch = WorkerWatch::start(workers.handles.clone(), workers.names.clone(), watchdog);
            workers.watch = Some(watch.context("a thread that watches the workers")?);
        }
        Ok(workers)
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

    /// Returns what adds guests to the workers, and removes guests.
    pub fn members(&self) -> Members {
        Members::new(self.handles.clone(), self.names.clone())
    }
}

/// Creates the ports that connect each worker with the others and with the uplink.
///
/// There are ports for frames, and inter-worker ports for packets that are passed without frames.
fn joined(guests: &[GuestConfig], count: usize, mtu: u16, uplink: Option<Port>) -> Result<Vec<Ports>> {
    let nic = uplink.map(Port::into_driver);
    let ports = worker_ports(count, frame_table(guests), mtu.max(LEAST_MTU), nic)
        .context("the rings between workers")?;
    let endpoints: Vec<_> = ports.iter().map(|worker_ports| worker_ports.endpoint().clone()).collect();
    let packet_port = packet_ports(&endpoints, packet_table(guests));
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
