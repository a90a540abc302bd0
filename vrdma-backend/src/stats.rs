//! What an operator can see of a daemon.

use crate::device::counters::{DeviceCounters, ObjectCounts};
use crate::memory::sigbus;
use crate::net::{NetCounters, SwitchStats};
use crate::session::Presence;
use crate::worker::{Stopped, WorkerHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Version of the daemon.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What an operator can see.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Version of the daemon.
    pub version: &'static str,
    /// Seconds since it started.
    pub uptime: u64,
    /// The uplink's link; none without an uplink.
    pub link: Option<Link>,
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
    /// What the worker's time went to.
    #[cfg(feature = "cycles")]
    pub cycles: crate::cycles::Account,
}

/// The uplink's link.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// Longest IP packet in bytes.
    pub mtu: u16,
}

/// Which of a guest's functions a front-end is connected to; none where the guest has no such function.
#[derive(Clone, Debug, Serialize)]
pub struct Connected {
    /// The RDMA function.
    pub rdma: Option<bool>,
    /// The Ethernet function.
    pub net: Option<bool>,
}

/// What an operator can see of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestStats {
    /// Its name.
    pub name: String,
    /// Whether its VMM is there.
    pub connected: Connected,
    /// Objects that exist.
    pub objects: ObjectCounts,
    /// TCP ports at which it takes connections of iWARP.
    pub listening: Vec<u16>,
    /// What happened between guest and device.
    pub device: DeviceCounters,
    /// What happened between queue pairs.
    pub transport: BTreeMap<&'static str, u64>,
    /// What happened in its own TCP; empty without one.
    pub tcp: BTreeMap<&'static str, u64>,
    /// What happened at its Ethernet function.
    pub net: NetCounters,
}

/// Answers what an operator can see.
#[derive(Clone, Debug)]
pub struct Observer {
    /// The daemon's worker.
    pub worker: WorkerHandle,
    /// When the daemon started.
    pub started: Instant,
    /// Of each guest, in the order of the configuration: its RDMA function's session, its Ethernet function's.
    pub guests: Vec<[Option<Presence>; 2]>,
}

impl Observer {
    /// What an operator can see now.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        let uptime = self.started.elapsed().as_secs();
        let is_connected = |presence: &Option<Presence>| presence.as_ref().map(Presence::is_connected);
        let connected = self
            .guests
            .iter()
            .map(|[rdma, net]| Connected { rdma: is_connected(rdma), net: is_connected(net) });
        let connected: Vec<_> = connected.collect();
        self.worker.call(move |worker| {
            let ids: Vec<_> = worker.outputs.devices().map(|device| device.id).collect();
            // Devices and ports are added together, in the order of the configuration.
            let guests = ids.into_iter().zip(connected).enumerate().map(|(port, (id, connected))| {
                let objects = worker.counts(id);
                let listening = worker.streams.listening(id);
                let transport = worker.engine.counters(id).iter().collect();
                let device = worker.outputs.device(id);
                GuestStats {
                    name: device.guest.name.clone(),
                    connected,
                    objects,
                    listening,
                    device: device.counters.clone(),
                    transport,
                    tcp: worker.streams.own.stats(id),
                    net: worker.net.counters(port),
                }
            });
            let guests = guests.collect();
            Stats {
                version: VERSION,
                uptime,
                link: worker.link().map(|(up, mtu)| Link { up, mtu }),
                guests,
                uplink: worker.uplink_stats(),
                roce: worker.engine.port_counters().iter().collect(),
                malformed: worker.engine.malformed_frames().iter().collect(),
                switch: worker.net.stats(),
                worker_sleeps: worker.sleeps(),
                memory_faults: sigbus::faults(),
                #[cfg(feature = "cycles")]
                cycles: crate::cycles::tell(),
            }
        })
    }
}
