//! `org.vrdma.Guest`: guests.

use crate::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The method List.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ListGuests {}

/// All guests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Guests {
    /// The guests in the order of the configuration.
    pub guests: Vec<Guest>,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: String,
    /// Number of its worker.
    pub worker: u64,
    /// Its functions.
    pub functions: Vec<GuestFunction>,
    /// Numbers of objects of its driver by kind; `None` if the worker is stuck.
    pub objects: Option<Map<String, Value>>,
}

/// A function of a guest, and its front-end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct GuestFunction {
    /// What it is.
    pub kind: FunctionKind,
    /// How it and its front-end meet.
    pub meets: Meeting,
    /// The path of the socket; `None` if the daemon inherited it.
    pub socket: Option<String>,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// The front-end's process.
    pub pid: Option<u32>,
    /// The front-end's user.
    pub uid: Option<u32>,
}

/// What a function of a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// RDMA over RoCE.
    Roce,
    /// RDMA over iWARP.
    Iwarp,
    /// virtio-net.
    Ethernet,
}

/// How a function and its front-end meet. The names are those of the configuration's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Meeting {
    /// The daemon listens at a path.
    Socket,
    /// The daemon inherited a socket that listens.
    Fd,
    /// The front-end listens at a path, and the daemon connects.
    Connect,
}

/// The method Show.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ShowGuest {
    /// Name of the guest.
    pub name: String,
}

/// Everything about a guest.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct GuestDetails {
    /// The guest.
    pub guest: Guest,
    /// Its keys, as the configuration file has them.
    pub keys: Map<String, Value>,
    /// Its counters.
    pub counters: Map<String, Value>,
}

/// The method Add.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AddGuest {
    /// Its keys, as in the daemon's option --guest.
    pub guest: String,
}

/// What Add returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GuestAdded {}

/// The method Remove.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RemoveGuest {
    /// Name of the guest.
    pub name: String,
    /// Whether it ends although a front-end is connected.
    pub force: Option<bool>,
}

/// What Remove returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GuestRemoved {}

/// The method Set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SetGuest {
    /// Name of the guest.
    pub name: String,
    /// The keys, as in the daemon's option --guest.
    pub keys: String,
}

/// What Set returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GuestSet {}

impl Method for AddGuest {
    const NAME: &'static str = "org.vrdma.Guest.Add";
    type Output = GuestAdded;
}

impl Method for RemoveGuest {
    const NAME: &'static str = "org.vrdma.Guest.Remove";
    type Output = GuestRemoved;
}

impl Method for SetGuest {
    const NAME: &'static str = "org.vrdma.Guest.Set";
    type Output = GuestSet;
}

impl Method for ListGuests {
    const NAME: &'static str = "org.vrdma.Guest.List";
    type Output = Guests;
}

impl Method for ShowGuest {
    const NAME: &'static str = "org.vrdma.Guest.Show";
    type Output = GuestDetails;
}
