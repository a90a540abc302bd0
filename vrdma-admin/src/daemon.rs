//! `org.vrdma.Daemon`: the daemon as a whole.

use crate::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The method Info.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GetDaemon {}

/// Describes the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DaemonInfo {
    /// Its version.
    pub version: String,
    /// Number of its process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime: u64,
    /// The uplink as the configuration names it, if there is one.
    pub uplink: Option<String>,
    /// The uplink's link.
    pub link: Option<LinkState>,
    /// Number of workers.
    pub workers: u64,
    /// Number of guests.
    pub guests: u64,
    /// Number of virtqueues of an RDMA function: QEMU's num_vqs.
    pub queues: u32,
    /// The configuration file that it was started with.
    pub config: Option<PathBuf>,
    /// Whether it takes no new front-ends.
    pub draining: bool,
}

/// The link of the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LinkState {
    /// Whether it is up.
    pub up: bool,
    /// Longest IP packet in bytes.
    pub mtu: u16,
}

/// The method Stats.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GetStats {
    /// Milliseconds from one reply to the next.
    #[serde(default)]
    pub interval: Option<u64>,
}

/// All counters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AllCounters {
    /// The counters, as `docs/monitoring.md` lists them.
    pub stats: Map<String, Value>,
}

impl Method for GetDaemon {
    const NAME: &'static str = "org.vrdma.Daemon.Info";
    type Output = DaemonInfo;
}

impl Method for GetStats {
    const NAME: &'static str = "org.vrdma.Daemon.Stats";
    type Output = AllCounters;
}
