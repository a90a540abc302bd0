//! Guests that come and leave while the workers run.

use super::watch::WatchedNames;
use super::{Stopped, Worker, WorkerHandle};
use crate::config::{Config, GuestConfig, Qos, Transport};
use crate::device::DeviceLimits;
use crate::net::Member;
use crate::port::WorkerOf;
use std::collections::HashMap;
use std::sync::Arc;
use vrdma_transport::DeviceId;
use vrdma_wire::num::Mac;

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

/// All workers, for whoever adds guests to them and removes guests.
///
/// One thread at a time does that. Clones are for the same workers.
#[derive(Clone, Debug)]
pub struct Members {
    handles: Vec<WorkerHandle>,
    names: WatchedNames,
}

/// What each worker knows of the guests of all: which worker has a MAC address.
struct Tables {
    /// For frames: all addresses of a guest.
    frames: Arc<WorkerOf>,
    /// For packets that are passed without frames: the addresses of RoCE functions.
    packets: Arc<HashMap<Mac, usize>>,
}

impl Tables {
    fn of(guests: &[GuestConfig]) -> Tables {
        Tables { frames: Arc::new(frame_table(guests)), packets: Arc::new(packet_table(guests)) }
    }
}

/// Returns the worker of each MAC address of these guests.
pub(super) fn frame_table(guests: &[GuestConfig]) -> WorkerOf {
    let mut table = WorkerOf::default();
    for guest in guests {
        for &mac in guest.extra_macs.iter().chain([&guest.mac]) {
            table.insert(mac, worker_of(guest));
        }
    }
    table
}

/// Returns the worker of each MAC address of these guests' RoCE functions.
pub(super) fn packet_table(guests: &[GuestConfig]) -> HashMap<Mac, usize> {
    let has_engine =
        |guest: &&GuestConfig| guest.rdma_place().is_some() && guest.transport == Transport::Roce;
    guests.iter().filter(has_engine).map(|guest| (guest.mac, worker_of(guest))).collect()
}

/// Returns the worker of a guest of [`Config::resolved_guests`].
pub(super) fn worker_of(guest: &GuestConfig) -> usize {
    guest.worker.expect("each guest was given a worker").into()
}

/// Waits until a worker has ended the turn that it is in, or a later one.
fn wait_for_turn(handle: &WorkerHandle) -> Result<(), Stopped> {
    let turn = handle.call(|worker| worker.turn_number())?;
    // Several calls may be answered in one turn.
    while handle.call(|worker| worker.turn_number())? == turn {}
    Ok(())
}

impl Members {
    pub(super) fn new(handles: Vec<WorkerHandle>, names: WatchedNames) -> Members {
        Members { handles, names }
    }

    /// Returns the handles of all workers.
    pub fn handles(&self) -> &[WorkerHandle] {
        &self.handles
    }

    /// Adds the functions of a guest to its worker. Other workers are not told of it.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn place(&self, config: &Config, functions: &[GuestConfig]) -> Result<Vec<GuestPlacement>, Stopped> {
        let mut places: Vec<GuestPlacement> = Vec::new();
        for guest in functions {
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

    /// Adds a guest while others run, with all its functions. All workers know it afterwards.
    ///
    /// `all` are the functions of all guests, this one's among them.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn admit(
        &self,
        config: &Config,
        functions: &[GuestConfig],
        all: &[GuestConfig],
    ) -> Result<Vec<GuestPlacement>, Stopped> {
        let places = self.place(config, functions)?;
        let own = worker_of(&functions[0]);
        let first = Member::of(&functions[0]);
        for (_, other) in self.handles.iter().enumerate().filter(|(number, _)| *number != own) {
            let first = first.clone();
            other.call(move |worker| worker.net.add_peer(&first))?;
        }
        self.set_tables(all)?;
        self.names.add(own, functions);
        Ok(places)
    }

    /// Removes a guest whose sessions have ended, with all its functions.
    ///
    /// `rest` are the functions of all other guests.
    ///
    /// Peers see that iWARP connections end. To peers of RoCE it is a host that does not answer.
    ///
    /// Nobody sends to it before its worker forgets it, and what is on the way is dropped. So no
    /// guest that gets its numbers later gets anything that was meant for this one.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn dismiss(
        &self,
        functions: &[GuestConfig],
        places: &[GuestPlacement],
        rest: &[GuestConfig],
    ) -> Result<(), Stopped> {
        let own = worker_of(&functions[0]);
        let mac = functions[0].mac;
        let devices: Vec<DeviceId> = places.iter().map(|place| place.device).collect();
        // Peers of its connections hear of the end, if they are still reached.
        self.handles[own].call(Worker::close_streams)?;
        wait_for_turn(&self.handles[own])?;
        for (_, other) in self.handles.iter().enumerate().filter(|(number, _)| *number != own) {
            wait_for_turn(other)?;
        }
        for (_, other) in self.handles.iter().enumerate().filter(|(number, _)| *number != own) {
            other.call(move |worker| worker.net.remove_peer(mac))?;
        }
        self.set_tables(rest)?;
        let port = places[0].port;
        self.handles[own].call(move |worker| {
            devices.into_iter().for_each(|id| worker.remove_function(id));
            worker.remove_port(port);
        })?;
        self.names.remove(own, functions);
        Ok(())
    }

    /// Changes the quality of service of a guest's function.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn set_qos(&self, place: &GuestPlacement, qos: Qos) -> Result<(), Stopped> {
        let (device, port) = (place.device, place.port);
        place.worker.call(move |worker| worker.set_qos(device, port, qos))
    }

    fn set_tables(&self, guests: &[GuestConfig]) -> Result<(), Stopped> {
        if self.handles.len() == 1 {
            return Ok(());
        }
        let tables = Tables::of(guests);
        for handle in &self.handles {
            let (frames, packets) = (tables.frames.clone(), tables.packets.clone());
            handle.call(move |worker| worker.set_tables(frames, packets))?;
        }
        Ok(())
    }
}
