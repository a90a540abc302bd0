//! `org.vrdma.Daemon`: the daemon as a whole.

use crate::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    pub config: Option<String>,
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

/// The method Save.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct SaveConfig {}

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ConfigText {
    /// The text of the configuration file.
    pub toml: String,
}

/// The method Drain.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Drain {}

/// What a daemon that drains waits for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Drained {
    /// Names of the guests that have sends that have not ended.
    pub busy: Vec<String>,
}

/// The method Resume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Resume {}

/// What Resume returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Resumed {}

/// The method Reload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Reload {}

/// What Reload returns: names of guests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reloaded {
    /// Guests that came.
    pub added: Vec<String>,
    /// Guests that left.
    pub removed: Vec<String>,
    /// Guests that changed, or were made anew.
    pub changed: Vec<String>,
}

impl Method for Reload {
    const NAME: &'static str = "org.vrdma.Daemon.Reload";
    type Output = Reloaded;
}

impl Method for SaveConfig {
    const NAME: &'static str = "org.vrdma.Daemon.Save";
    type Output = ConfigText;
}

impl Method for Drain {
    const NAME: &'static str = "org.vrdma.Daemon.Drain";
    type Output = Drained;
}

impl Method for Resume {
    const NAME: &'static str = "org.vrdma.Daemon.Resume";
    type Output = Resumed;
}

impl Method for GetDaemon {
    const NAME: &'static str = "org.vrdma.Daemon.Info";
    type Output = DaemonInfo;
}

impl Method for GetStats {
    const NAME: &'static str = "org.vrdma.Daemon.Stats";
    type Output = AllCounters;
}
