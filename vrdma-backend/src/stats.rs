//! The counters that an operator can see.

use crate::config::{GuestConfig, GuestLimits, Qos};
use crate::device::counters::{DeviceCounters, ObjectCounts};
use crate::device::latency::Histogram;
use crate::device::peaks::Peaks;
use crate::memory::sigbus;
use crate::net::{NetCounters, SwitchStats};
use crate::session::Presence;
use crate::socket::{Admission, Listener};
use crate::worker::{GuestPlacement, Stopped, Worker, WorkerHandle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use std::time::Instant;

/// Version of the daemon.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The counters of the daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Version of the daemon.
    pub version: &'static str,
    /// Seconds since the daemon started.
    pub uptime: u64,
    /// The uplink's link; `None` without an uplink.
    pub link: Option<Link>,
    /// The guests, in the order of the configuration.
    pub guests: Vec<GuestStats>,
    /// Frame counters of the uplink; empty without one.
    pub uplink: BTreeMap<&'static str, u64>,
    /// RoCE packet counters that belong to no single guest.
    pub roce: BTreeMap<&'static str, u64>,
    /// Frames to the RoCE port that were not valid packets, by reason.
    pub malformed: BTreeMap<&'static str, u64>,
    /// Counters of the Ethernet switch.
    pub switch: SwitchStats,
    /// The workers, in order of their numbers.
    pub workers: Vec<WorkerStats>,
    /// Number of times that workers slept.
    pub worker_sleeps: u64,
    /// Memory regions whose file a front-end truncated.
    pub memory_faults: u64,
    /// How the first worker's time is spent.
    #[cfg(feature = "cycles")]
    pub cycles: crate::cycles::Account,
}

/// State of the uplink's link.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
}

/// Whether a front-end is connected to each of a guest's functions; `None` if the guest lacks the
/// function.
#[derive(Clone, Debug, Serialize)]
pub struct Connected {
    /// The RDMA function.
    pub rdma: Option<bool>,
    /// The Ethernet function.
    pub net: Option<bool>,
}

/// Whether front-ends can connect to the socket of each of a guest's functions.
///
/// `None` if the guest lacks the function, or the daemon connects to its front-end.
#[derive(Clone, Debug, Serialize)]
pub struct Reachable {
    /// The RDMA function.
    pub rdma: Option<bool>,
    /// The Ethernet function.
    pub net: Option<bool>,
}

/// The counters of a guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestStats {
    /// Its name.
    pub name: String,
    /// Whether its VMM is connected.
    pub connected: Connected,
    /// Whether its VMM can connect, as far as the daemon knows.
    pub reachable: Reachable,
    /// Objects that exist now.
    pub objects: ObjectCounts,
    /// Objects that may exist.
    pub object_limits: ObjectLimits,
    /// TCP ports on which it accepts iWARP connections.
    pub listening: Vec<u16>,
    /// Counters of what happened between guest and device.
    pub device: DeviceCounters,
    /// How long some of its requests took, by service.
    pub latency: BTreeMap<&'static str, Histogram>,
    /// Its largest numbers of the last minute.
    pub peaks: Peaks,
    /// Counters of what happened between queue pairs.
    pub transport: BTreeMap<&'static str, u64>,
    /// Counters of its own TCP; empty without one.
    pub tcp: BTreeMap<&'static str, u64>,
    /// Counters of its Ethernet function.
    pub net: NetCounters,
}

/// Most objects that a guest may have, by kind. The names are those of [`ObjectCounts`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "each field is named after its kind of object")]
pub struct ObjectLimits {
    pub contexts: u32,
    pub pds: u32,
    pub cqs: u32,
    pub mrs: u32,
    pub qps: u32,
    pub srqs: u32,
    pub ahs: u32,
    pub connections: u32,
    pub runs: u64,
}

/// The counters of a worker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerStats {
    /// Names of its guests.
    pub guests: Vec<String>,
    /// Whether the worker is stuck. Its guests wait then, and their counters are missing.
    pub stuck: bool,
    /// Number of times that it slept.
    pub sleeps: u64,
    /// Frames sent to other workers.
    pub frames_sent: u64,
    /// Frames received from other workers.
    pub frames_received: u64,
    /// Frames to other workers that found no room in the ring.
    pub frames_lost: u64,
    /// Frames sent by this worker's own queue pair of the uplink.
    pub uplink_sent: u64,
    /// Frames received by this worker's own queue pair of the uplink, including those passed to
    /// other workers.
    pub uplink_received: u64,
    /// Inter-worker packets that its engine sent to other engines without building frames.
    pub packets_sent: u64,
    /// Inter-worker packets received from other engines.
    pub packets_received: u64,
    /// Inter-worker packets sent with a pinned region of its guest instead of a copy.
    pub packets_pinned: u64,
    /// Inter-worker packets that found no room in the ring.
    pub packets_lost: u64,
    /// Buffers made for frames to other workers, each as long as the longest frame.
    pub buffers: u64,
    /// Spoofed RoCE packets: their source is a GID of another worker's guest, but they did not come
    /// from that worker's engine.
    pub drop_spoofed: u64,
}

impl ObjectLimits {
    fn of(limits: &GuestLimits) -> ObjectLimits {
        ObjectLimits {
            contexts: limits.contexts,
            pds: limits.pds,
            cqs: limits.cqs,
            mrs: limits.mrs,
            qps: limits.qps,
            srqs: limits.srqs,
            ahs: limits.ahs,
            connections: limits.connections,
            runs: limits.total_runs,
        }
    }
}

/// Collects the counters for the operator.
#[derive(Clone, Debug)]
pub struct Observer {
    /// The daemon's workers.
    pub workers: Vec<WorkerHandle>,
    /// When the daemon started.
    pub started: Instant,
    /// The guests, in the order in which they came.
    pub guests: Arc<Mutex<Vec<Observed>>>,
    /// Held for reading from a look at the guests to the last question about one of them, and for
    /// writing while workers forget a guest.
    pub membership: Arc<RwLock<()>>,
}

/// A guest whose counters are collected.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Name of the guest.
    pub name: String,
    /// Its keys. `transport = "both"` makes two of it ([`GuestConfig::functions`]).
    pub config: Arc<GuestConfig>,
    /// The worker, device and port that serve it.
    pub place: GuestPlacement,
    /// Presence of front-ends: of its RDMA function, then of its Ethernet function.
    pub presence: [Option<Presence>; 2],
    /// The sockets that listen: of its RDMA function, then of its Ethernet function.
    pub listeners: [Option<Weak<Listener>>; 2],
    /// Whether its functions let new front-ends in, to be changed.
    pub admissions: Vec<Admission>,
    /// Whether it is a second RDMA function of the guest before, which has the Ethernet function.
    pub is_beside: bool,
}

/// The counters that one worker reports.
struct Part {
    /// The worker's guests, in the order of the configuration.
    guests: Vec<GuestStats>,
    worker: WorkerStats,
    link: Option<Link>,
    uplink: BTreeMap<&'static str, u64>,
    roce: BTreeMap<&'static str, u64>,
    malformed: BTreeMap<&'static str, u64>,
    switch: SwitchStats,
    #[cfg(feature = "cycles")]
    cycles: crate::cycles::Account,
}

impl Observer {
    /// Begins with no guest.
    pub fn new(workers: Vec<WorkerHandle>) -> Observer {
        Observer { workers, started: Instant::now(), guests: Arc::default(), membership: Arc::default() }
    }

    /// Keeps all guests in place while the result lives.
    pub fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.membership.read().expect("no thread panics with it")
    }

    /// Removes a guest with all its functions, by its name in the configuration.
    pub fn remove(&self, name: &str) {
        let mut guests = self.guests.lock().expect("no thread panics with it");
        guests.retain(|guest| guest.config.configured_name() != name);
    }

    /// Sets what others see of the quality of service of a guest's function.
    pub fn set_qos(&self, name: &str, qos: &Qos) {
        let mut guests = self.guests.lock().expect("no thread panics with it");
        for guest in guests.iter_mut().filter(|guest| guest.name == name) {
            Arc::make_mut(&mut guest.config).set_qos(qos);
        }
    }

    /// Returns the number of functions of all guests. Each may have a front-end.
    pub fn functions(&self) -> usize {
        let guests = self.guests.lock().expect("no thread panics with it");
        guests.iter().map(|guest| guest.presence.iter().flatten().count()).sum()
    }

    /// Returns the guests, in the order in which they came.
    pub fn guests(&self) -> Vec<Observed> {
        self.guests.lock().expect("no thread panics with it").clone()
    }

    /// Adds a guest at the end.
    pub fn add(&self, guest: Observed) {
        self.guests.lock().expect("no thread panics with it").push(guest);
    }

    /// Returns the counters of a guest, or `None` if its worker is stuck.
    ///
    /// # Errors
    /// The worker has stopped.
    pub fn of_guest(&self, guest: &Observed) -> Result<Option<GuestStats>, Stopped> {
        let own = guest.clone();
        guest.place.worker.call_unless_stuck(move |worker| guest_stats(worker, &own))
    }

    /// Collects the counters of all workers.
    ///
    /// A stuck worker is marked as stuck. Its other counters and its guests are missing.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn stats(&self) -> Result<Stats, Stopped> {
        let mut stats = Stats {
            version: VERSION,
            uptime: self.started.elapsed().as_secs(),
            link: None,
            guests: Vec::new(),
            uplink: BTreeMap::new(),
            roce: BTreeMap::new(),
            malformed: BTreeMap::new(),
            switch: SwitchStats::default(),
            workers: Vec::new(),
            worker_sleeps: 0,
            memory_faults: sigbus::faults(),
            #[cfg(feature = "cycles")]
            cycles: crate::cycles::Account::default(),
        };
        let (all, mut guests): (_, Vec<(usize, GuestStats)>) = (self.guests(), Vec::new());
        for (number, handle) in self.workers.iter().enumerate() {
            let own = all.iter().enumerate().filter(|(_, guest)| guest.place.number == number);
            let own: Vec<(usize, Observed)> = own.map(|(at, guest)| (at, guest.clone())).collect();
            let names = own.iter().map(|(_, guest)| guest.name.clone()).collect();
            let positions: Vec<usize> = own.iter().map(|(at, _)| *at).collect();
            let part = handle
                .call_unless_stuck(move |worker| Part::of(worker, own.iter().map(|(_, guest)| guest)))?;
            let Some(part) = part else {
                stats.workers.push(WorkerStats { guests: names, stuck: true, ..WorkerStats::default() });
                continue;
            };
            stats.worker_sleeps += part.worker.sleeps;
            stats.workers.push(WorkerStats { guests: names, ..part.worker });
            guests.extend(positions.into_iter().zip(part.guests));
            add(&mut stats.uplink, part.uplink);
            // Only the first worker watches the link.
            if number == 0 {
                stats.link = part.link;
                #[cfg(feature = "cycles")]
                {
                    stats.cycles = part.cycles;
                }
            }
            add(&mut stats.roce, part.roce);
            add(&mut stats.malformed, part.malformed);
            stats.switch.add(&part.switch);
        }
        guests.sort_by_key(|(position, _)| *position);
        stats.guests = guests.into_iter().map(|(_, guest)| guest).collect();
        Ok(stats)
    }
}

impl Part {
    fn of<'a>(worker: &mut Worker, guests: impl Iterator<Item = &'a Observed>) -> Part {
        let guests = guests.map(|guest| guest_stats(worker, guest)).collect();
        let between = worker.worker_stats();
        let ports = worker.packet_counters();
        let count = |name| between.get(name).copied().unwrap_or_default();
        let of_worker = WorkerStats {
            guests: Vec::new(),
            stuck: false,
            sleeps: worker.sleeps(),
            frames_sent: count("frames_sent"),
            frames_received: count("frames_received"),
            frames_lost: count("frames_lost"),
            uplink_sent: count("uplink_sent"),
            uplink_received: count("uplink_received"),
            packets_sent: ports.sent,
            packets_received: ports.received,
            packets_pinned: ports.pinned,
            packets_lost: ports.lost,
            buffers: count("buffers"),
            drop_spoofed: worker.spoofed(),
        };
        Part {
            guests,
            worker: of_worker,
            link: worker.link().map(|(up, mtu)| Link { up, mtu }),
            uplink: worker.uplink_stats(),
            roce: worker.engine.port_counters().iter().collect(),
            malformed: worker.engine.malformed_frames().iter().collect(),
            switch: worker.net.stats(),
            #[cfg(feature = "cycles")]
            cycles: crate::cycles::tell(),
        }
    }
}

fn guest_stats(worker: &mut Worker, guest: &Observed) -> GuestStats {
    let id = guest.place.device;
    let [rdma, net] = guest.presence.each_ref().map(|presence| presence.as_ref().map(Presence::is_connected));
    let is_reachable = |listener: &Option<Weak<Listener>>| listener.as_ref()?.upgrade()?.is_reachable();
    let [rdma_listens, net_listens] = guest.listeners.each_ref().map(is_reachable);
    let objects = worker.counts(id);
    let listening = worker.streams.listening(id);
    let mut transport: BTreeMap<&'static str, u64> = worker.engine.counters(id).iter().collect();
    let held = worker.engine.rate_counters(id);
    transport.extend([
        ("tx_held", held.tx_held),
        ("tx_held_us", held.tx_held_ns / 1000),
        ("rx_held", held.rx_held),
        ("rx_held_us", held.rx_held_ns / 1000),
        ("rx_limited", held.rx_limited),
    ]);
    GuestStats {
        name: guest.name.clone(),
        connected: Connected { rdma, net },
        reachable: Reachable { rdma: rdma_listens, net: net_listens },
        objects,
        object_limits: ObjectLimits::of(&worker.outputs.device(id).limits().guest),
        listening,
        device: worker.outputs.device(id).counters.clone(),
        latency: worker.outputs.device(id).latencies.by_service().clone(),
        peaks: worker.peaks(id),
        transport,
        tcp: worker.streams.user_tcp.stats(id),
        net: if guest.is_beside { NetCounters::default() } else { worker.net.counters(guest.place.port) },
    }
}

/// Adds counters to sums by name.
fn add(sum: &mut BTreeMap<&'static str, u64>, part: BTreeMap<&'static str, u64>) {
    for (name, count) in part {
        *sum.entry(name).or_default() += count;
    }
}
