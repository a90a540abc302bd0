//! What an operator can see of a daemon.

use crate::device::counters::{DeviceCounters, ObjectCounts};
use crate::memory::sigbus;
use crate::net::{NetCounters, SwitchStats};
use crate::session::Presence;
use crate::worker::{Place, Stopped, Worker, WorkerHandle};
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
    /// Each worker.
    pub workers: Vec<WorkerStats>,
    /// Times that workers slept.
    pub worker_sleeps: u64,
    /// Memory regions whose file a front-end cut short.
    pub memory_faults: u64,
    /// What the first worker's time went to.
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

/// Which of a guest's functions a front-end is connected to; none where the guest has no such
/// function.
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

/// What an operator can see of a worker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerStats {
    /// Names of its guests.
    pub guests: Vec<String>,
    /// It takes no turns: its guests wait, and are left out.
    pub stuck: bool,
    /// Times that it slept.
    pub sleeps: u64,
    /// Frames that it sent to other workers.
    pub frames_sent: u64,
    /// Frames of theirs that it took.
    pub frames_received: u64,
    /// Frames to others that found no room in the ring.
    pub frames_lost: u64,
    /// Frames that it sent by its own queue pair of the uplink.
    pub uplink_sent: u64,
    /// Frames that came there, also those that it handed over.
    pub uplink_received: u64,
    /// Packets that its engine gave to those of other workers as they are.
    pub packets_sent: u64,
    /// Packets of theirs that it took.
    pub packets_received: u64,
    /// Packets that it sent with memory of their guest.
    pub packets_lent: u64,
    /// Packets to others that found no room in the ring.
    pub packets_lost: u64,
    /// Buffers for frames to others that it has made, each as long as the longest frame.
    pub buffers: u64,
    /// RoCE packets under a GID of a guest of another worker that were not from its engine.
    pub drop_spoofed: u64,
}

/// Answers what an operator can see.
#[derive(Clone, Debug)]
pub struct Observer {
    /// The daemon's workers.
    pub workers: Vec<WorkerHandle>,
    /// When the daemon started.
    pub started: Instant,
    /// The guests, in the order of the configuration.
    pub guests: Vec<Observed>,
}

/// A guest that is seen.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Where it is served.
    pub place: Place,
    /// Its RDMA function's session, its Ethernet function's.
    pub presence: [Option<Presence>; 2],
    /// It is the second RDMA function of the one before, which has the Ethernet function.
    pub is_beside: bool,
}

/// What one worker says.
struct Part {
    /// Its guests, in the order of the configuration.
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
    /// What an operator can see now. Of a worker that is stuck, and of its guests, nothing else.
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
        let mut guests: Vec<(usize, GuestStats)> = Vec::new();
        for (number, handle) in self.workers.iter().enumerate() {
            let own = self.guests.iter().enumerate().filter(|(_, guest)| guest.place.number == number);
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
            // The first worker looks at the link.
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
        let near = worker.near_counters();
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
            packets_sent: near.sent,
            packets_received: near.received,
            packets_lent: near.lent,
            packets_lost: near.lost,
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
    let objects = worker.counts(id);
    let listening = worker.streams.listening(id);
    let transport = worker.engine.counters(id).iter().collect();
    GuestStats {
        name: guest.name.clone(),
        connected: Connected { rdma, net },
        objects,
        listening,
        device: worker.outputs.device(id).counters.clone(),
        transport,
        tcp: worker.streams.own.stats(id),
        net: if guest.is_beside { NetCounters::default() } else { worker.net.counters(guest.place.port) },
    }
}

/// Adds up what several count.
fn add(sum: &mut BTreeMap<&'static str, u64>, part: BTreeMap<&'static str, u64>) {
    for (name, count) in part {
        *sum.entry(name).or_default() += count;
    }
}
