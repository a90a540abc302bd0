//! The record of an engine: plain data with names, for any encoding that serde has.
//!
//! Numbers in it are those that callers, guests and peers know (device ids, QPNs, keys, PSNs), and
//! places in lists of the record itself. What follows from the rest is not in it.
//!
//! # Versions
//!
//! [`VERSION`] goes up with every change of the format, and a newer engine reads what an older one
//! wrote:
//!
//! * a new field has `#[serde(default)]`, and its default means what engines of older versions did;
//! * a field whose meaning changes gets a new name, and the old one stays, read and never written;
//! * names of fields, of enums' variants and of counters are never used again for something else;
//!   the name of a counter that was removed stays in a list of those that are read and forgotten.
//!
//! `transport/tests/golden` has records of each version, which a test restores and goes on with.

mod qp;
mod request;
mod shared;
mod tcp;

pub use super::names::{
    Carrier, Link, Message, Mtu, MwType, Pending, Placement, QpState, QpType, ReadyToReceive, Task, Wait,
};
pub use qp::*;
pub use request::*;
pub use shared::*;
pub use tcp::*;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format that this engine writes. It reads this one and those before it.
pub const VERSION: u32 = 4;

/// Names and values of counters.
pub type Counts = BTreeMap<String, u64>;

/// Everything that an [`Engine`](crate::Engine) knows, but for the memory of regions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format.
    pub version: u32,
    /// State of the generator of random numbers.
    pub rng: u64,
    /// Bytes that the pending requests of all devices together may take.
    pub request_memory: u64,
    /// The port to other hosts.
    pub port: Port,
    /// The devices by [`DeviceId`](crate::DeviceId); `None` where there is none.
    pub devices: Vec<Option<Device>>,
    /// Who waits for a turn.
    pub turns: Turns,
    /// What is being done to all QPs of a device, in order.
    pub sweeps: Vec<Sweep>,
    /// Questions that are open: first those that the caller has not taken, in order.
    pub questions: Vec<Question>,
    /// Number of the last one who asked.
    pub last_question: u32,
    /// Packets to multicast groups that not all members have had, by device, in order. (Older
    /// records have none.)
    #[serde(default)]
    pub fan_outs: Vec<FanOut>,
    /// Id of the device whose members get theirs next, if there are any such packets.
    #[serde(default)]
    pub fan_out_turn: u32,
}

/// The port to other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Whether there is one, and its link.
    pub link: Link,
    /// [`PortCounters`](crate::PortCounters).
    pub counters: Counts,
    /// [`MalformedFrames`](crate::MalformedFrames).
    pub malformed: Counts,
}

/// Who waits for a turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Turns {
    /// Turns of work that needs no packets.
    pub local: Round,
    /// Turns of the port.
    pub wire: Round,
    /// Id of the device whose deadlines are attended to next, if they are due.
    pub deadlines: u32,
    /// Devices with shared receive queues that have receives for those who wait, in the order of
    /// their turns. (Versions before 3 have none.)
    #[serde(default)]
    pub wakes: Vec<Wakes>,
}

/// Shared receive queues of a device that have receives for those who wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wakes {
    /// The device's id.
    pub device: u32,
    /// Their numbers, in the order of their turns.
    pub srqs: Vec<u32>,
}

/// Devices that take turns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Round {
    /// The shares of devices: first those that wait, in the order of their turns.
    pub shares: Vec<Share>,
    /// The turn of the first has begun.
    pub begun: bool,
}

/// A device's share of turns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The device's id.
    pub device: u32,
    /// It waits for a turn.
    pub listed: bool,
    /// QPNs of those that owe an answer, in order, each once.
    pub answers: Vec<u32>,
    /// QPNs of those with requests, in order, each once.
    pub requests: Vec<u32>,
    /// What it may still spend in this round; below zero, what it owes.
    pub credit: i64,
    /// What its answers have cost more than its requests.
    pub lead: i64,
    /// What posts carried at once since the last poll.
    pub carried: u64,
}

/// Something that is being done to all QPs of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// The device's id.
    pub device: u32,
    /// What is done.
    pub task: Task,
    /// QPs with an index (QPN modulo `max_qp`) below this one are done.
    pub next: u32,
}

/// A [`Question`](crate::Question).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Id of the device that a message came to.
    pub device: u32,
    /// The owner of the QP that has no receive for it.
    pub owner: u32,
    /// The caller has taken it, and owes the answer.
    pub taken: bool,
    /// Who waits for the answer.
    pub asked: Vec<Asker>,
    /// Who asked after the caller had taken it: the next question.
    pub later: Vec<Asker>,
}

/// Who waits for an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asker {
    /// The first request of a send queue.
    Send {
        /// Its QP.
        place: Place,
        /// The number with which it asked.
        number: u32,
    },
    /// A frame, from the Ethernet header on, for a QP of the question's device.
    Frame(Vec<u8>),
    /// One to a multicast group, for this member of it.
    GroupFrame {
        /// The member.
        qpn: u32,
        /// From the Ethernet header on.
        frame: Vec<u8>,
    },
    /// A message in a stream.
    Stream {
        /// The stream's QP.
        qpn: u32,
        /// The number with which it asked.
        number: u32,
    },
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// What it may have.
    pub limits: Limits,
    /// Bytes that a packet of its guest may carry.
    pub active_mtu: Mtu,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its guest does not run.
    pub suspended: bool,
    /// Its GID table, as long as the limits say; `None` for an empty entry.
    pub gids: Vec<Option<Gid>>,
    /// [`Counters`](crate::Counters).
    pub counters: Counts,
    /// State of the generator of random numbers.
    pub rng: u64,
    /// Tag of the first QP of an index.
    pub first_generation: u16,
    /// Which numbers of PDs were used.
    pub pd_numbers: Numbers,
    /// Its protection domains.
    pub pds: Vec<Pd>,
    /// Which keys were used.
    pub mr_numbers: Numbers,
    /// Its memory regions.
    pub mrs: Vec<MemoryRegion>,
    /// Its memory windows, whose keys are among those that were used. (Versions 1 and 2 have none.)
    #[serde(default)]
    pub windows: Vec<MemoryWindow>,
    /// Which numbers of shared receive queues were used. (Versions before 3 have none.)
    #[serde(default)]
    pub srq_numbers: Numbers,
    /// Its shared receive queues. (Versions before 3 have none.)
    #[serde(default)]
    pub srqs: Vec<Srq>,
    /// Which numbers of XRC domains were used. (Older records have none.)
    #[serde(default)]
    pub xrcd_numbers: Numbers,
    /// The numbers of its XRC domains. (Older records have none.)
    #[serde(default)]
    pub xrcds: Vec<u32>,
    /// Which QPNs were used.
    pub qp_numbers: Numbers,
    /// Its queue pairs.
    pub qps: Vec<Qp>,
    /// Its multicast groups, in order. (Older records have none.)
    #[serde(default)]
    pub groups: Vec<Group>,
}

/// [`Limits`](crate::Limits).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Most PDs.
    pub max_pd: u32,
    /// Most MRs.
    pub max_mr: u32,
    /// Range of QP indices.
    pub max_qp: u32,
    /// Most requests of one queue.
    pub max_qp_wr: u32,
    /// Most shared receive queues. (Versions before 3 have none.)
    #[serde(default)]
    pub max_srq: u32,
    /// Most XRC domains. (Older records have none.)
    #[serde(default)]
    pub max_xrcd: u32,
    /// Most elements of a send.
    pub max_send_sge: u32,
    /// Most elements of a receive.
    pub max_recv_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
    /// Most READs and atomics outstanding as requester.
    pub max_rd_atomic: u32,
    /// Most READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u32,
    /// Entries of the GID table.
    pub gid_table_len: u32,
    /// Most multicast groups with members. (Older records have none.)
    #[serde(default)]
    pub max_mcast_grp: u32,
    /// Most QPs of one multicast group.
    #[serde(default)]
    pub max_mcast_qp_attach: u32,
    /// Most QPs of all multicast groups together.
    #[serde(default)]
    pub max_total_mcast_qp_attach: u32,
    /// Path MTU of the port.
    pub max_mtu: Mtu,
    /// Most bytes that pending requests may take.
    pub max_request_memory: u64,
}

/// An entry of a GID table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gid {
    /// The address.
    pub gid: [u8; 16],
    /// The VLAN, 0 for frames without a tag.
    pub vlan: u16,
}

/// Which numbers of a kind of objects were used: none is used again soon. A number has an index and
/// a tag that changes with each use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// The tag of the last user of each index, from the first index on.
    pub tags: Vec<u16>,
    /// Which of these indices are free, the longest-free first.
    pub free: Vec<u32>,
}

/// A multicast group with members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its address.
    pub mgid: [u8; 16],
    /// QPNs of its members, in order.
    pub members: Vec<u32>,
}

/// A packet that members of its multicast group are still to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FanOut {
    /// Id of the members' device.
    pub device: u32,
    /// QPN of the last member that has had it.
    pub served: Option<u32>,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

/// A protection domain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pd {
    /// Its number.
    pub pd: u32,
    /// Who owns it.
    pub owner: u32,
}

/// A memory region. Its memory is registered anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRegion {
    /// Its key.
    pub key: u32,
    /// Its PD.
    pub pd: u32,
    /// Rights: bits as in enum ibv_access_flags.
    pub access: u32,
    /// Address of the first byte, as requests name it.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// It is one for fast registration. (Older records have none.)
    #[serde(default)]
    pub fast: Option<FastRegion>,
}

/// What a region for fast registration is beside what others are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FastRegion {
    /// Most pages of a registration.
    pub max_pages: u32,
    /// It names nothing, until a request registers memory with it.
    pub is_free: bool,
}

/// A memory window.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryWindow {
    /// Its key.
    pub key: u32,
    /// Its PD.
    pub pd: u32,
    /// Who may use it.
    pub mw_type: MwType,
    /// What it shows, if it is bound.
    pub bound: Option<Binding>,
}

/// What a memory window shows of a region.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Binding {
    /// The region's key.
    pub lkey: u32,
    /// What it was bound with: bits as in enum ibv_access_flags.
    pub access: u32,
    /// Address of the first byte, as the region's owner names it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// The QP that bound it, if peers of that one alone may use it.
    pub qpn: Option<u32>,
}
