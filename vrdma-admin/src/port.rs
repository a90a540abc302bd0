//! `org.vrdma.Port`: ports of the switch.

use crate::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The name of the uplink's port.
pub const UPLINK: &str = "uplink";

/// The method List.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ListPorts {}

/// All ports.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ports {
    /// The uplink first, then those of guests in the order of the configuration.
    pub ports: Vec<Port>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Port {
    /// Name of the guest, or [`UPLINK`].
    pub name: String,
    /// What it is.
    pub kind: PortKind,
    /// Whether the link is up, or a front-end is connected.
    pub up: bool,
    /// Longest IP packet in bytes.
    pub mtu: Option<u64>,
    /// Its counters; `None` if its worker is stuck.
    pub counters: Option<Map<String, Value>>,
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// The NIC to other hosts.
    Uplink,
    /// The Ethernet function of a guest.
    Guest,
}

/// The method Show.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ShowPort {
    /// Name of the port.
    pub name: String,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct OnePort {
    /// The port.
    pub port: Port,
}

impl Method for ListPorts {
    const NAME: &'static str = "org.vrdma.Port.List";
    type Output = Ports;
}

impl Method for ShowPort {
    const NAME: &'static str = "org.vrdma.Port.Show";
    type Output = OnePort;
}
