//! The daemon as a whole: a worker, a session for each guest, and the admin socket.

use crate::admin::Admin;
use crate::config::Config;
use crate::device::{DeviceCounters, Limits, ObjectCounts, RdmaFunction};
use crate::memory::sigbus;
use crate::net::{EthernetFunction, NetCounters, SwitchStats};
use crate::port::{self, Port};
use crate::session::Session;
use crate::worker::{Stopped, Worker, WorkerHandle};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread::JoinHandle;

/// A running daemon; it stops when dropped.
#[derive(Debug)]
pub struct Daemon {
    // Sessions end first: they talk to the worker.
    admin: Option<Admin>,
    sessions: Vec<Session>,
    worker: WorkerHandle,
    thread: Option<JoinHandle<()>>,
}

/// What an operator can see.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Each guest, in the order of the configuration.
    pub guests: Vec<GuestStats>,
    /// Frames of the uplink; empty without one.
    pub uplink: BTreeMap<&'static str, u64>,
    /// RoCE packets that are no single guest's business.
    pub roce: BTreeMap<&'static str, u64>,
    /// Frames to the RoCE port that were no packets, by reason.
    pub malformed: BTreeMap<&'static str, u64>,
    /// What happened in the Ethernet switch.
    pub switch: SwitchStats,
    /// Times that the worker slept.
    pub worker_sleeps: u64,
    /// Memory regions whose file a front-end cut short.
    pub memory_faults: u64,
}

/// What an operator can see of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestStats {
    /// Its name.
    pub name: String,
    /// Objects that exist.
    pub objects: ObjectCounts,
    /// What happened between guest and device.
    pub device: DeviceCounters,
    /// What happened between queue pairs.
    pub transport: BTreeMap<&'static str, u64>,
    /// What happened at its Ethernet function.
    pub net: NetCounters,
}

impl Daemon {
    /// Starts everything; from now on front-ends can connect.
    ///
    /// # Errors
    /// A socket that cannot be had, or the system is out of something.
    pub fn start(config: Config) -> Result<Daemon> {
        config.check()?;
        let uplink = port::open(&config).context("uplink")?;
        Daemon::start_with(config, uplink)
    }

    /// The same with a port that is there already, whatever the configuration says of one.
    ///
    /// # Errors
    /// As of [`Daemon::start`].
    pub fn start_with(config: Config, uplink: Option<Port>) -> Result<Daemon> {
        config.check()?;
        let mtu = uplink.as_ref().map_or(config.mtu, |port| config.mtu.min(port.capabilities().mtu));
        let (worker, thread) = Worker::spawn(config.poll(), mtu)?;
        let mut daemon = Daemon { admin: None, sessions: Vec::new(), worker, thread: Some(thread) };
        let max_mtu = daemon.worker.call(move |worker| {
            if let Some(port) = uplink {
                worker.set_uplink(port);
            }
            worker.port.mtu
        })?;
        for guest in &config.guests {
            let (spec, limits) = (guest.clone(), Limits::new(&config));
            let (device, port) = daemon.worker.call(move |worker| worker.add_guest(spec, limits))?;
            let context = || format!("guest {}", guest.name);
            if let Some(socket) = &guest.socket {
                let function = RdmaFunction::new(daemon.worker.clone(), device, &config, guest.mac, max_mtu);
                daemon.sessions.push(Session::start(&guest.name, socket, function).with_context(context)?);
            }
            if let Some(socket) = &guest.net {
                let function = EthernetFunction::new(daemon.worker.clone(), port);
                daemon.sessions.push(Session::start(&guest.name, socket, function).with_context(context)?);
            }
        }
        if let Some(path) = &config.admin {
            daemon.admin = Some(Admin::start(path, daemon.worker.clone()).context("admin socket")?);
        }
        Ok(daemon)
    }

    /// What an operator can see now.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        stats(&self.worker)
    }
}

/// What an operator can see now.
pub fn stats(worker: &WorkerHandle) -> Result<Stats, Stopped> {
    worker.call(|worker| {
        let ids: Vec<_> = worker.outputs.devices().map(|device| device.id).collect();
        // Devices and ports are added together, in the order of the configuration.
        let guests = ids.into_iter().enumerate().map(|(port, id)| {
            let objects = worker.counts(id);
            let transport = worker.engine.counters(id).iter().collect();
            let device = worker.outputs.device(id);
            GuestStats {
                name: device.guest.name.clone(),
                objects,
                device: device.counters.clone(),
                transport,
                net: worker.net.counters(port),
            }
        });
        Stats {
            guests: guests.collect(),
            uplink: worker.uplink_stats(),
            roce: worker.engine.port_counters().iter().collect(),
            malformed: worker.engine.malformed_frames().iter().collect(),
            switch: worker.net.stats(),
            worker_sleeps: worker.sleeps(),
            memory_faults: sigbus::faults(),
        }
    })
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.admin = None;
        self.sessions.clear();
        let _ = self.worker.call(Worker::stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the worker panicked");
        }
    }
}
