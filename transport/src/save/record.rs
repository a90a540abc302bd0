//! The record of an engine: plain data with names, for any encoding that serde has.
//!
//! Numbers in it are those that callers, guests and peers know (device ids, QPNs, keys, PSNs), and
//! positions in lists of the record itself. State that follows from other state is not in it.
//!
//! # Versions
//!
//! [`VERSION`] goes up with each change of the format. A newer engine reads the records of older
//! ones:
//!
//! * A new field has `#[serde(default)]`. Its default stands for the behaviour of older engines.
//! * A field whose meaning changes gets a new name. The old field stays; it is read and never
//!   written.
//! * Names of fields, enum variants and counters are never reused for something else. The name of a
//!   removed counter stays in a list of names that are read and ignored.
//!
//! `transport/tests/golden` has records of each version. A test restores them and continues.

mod probes;
mod qp;
mod request;
mod shared;
mod tcp;

pub use super::names::{
    Link, Message, Mtu, MwType, Pending, Placement, QpState, QpType, ReadyToReceive, Task, TransportKind,
    Wait,
};
pub use probes::*;
pub use qp::*;
pub use request::*;
pub use shared::*;
pub use tcp::*;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format that this engine writes. It also reads all versions before it.
pub const VERSION: u32 = 5;

/// Names and values of counters.
pub type Counts = BTreeMap<String, u64>;

/// The whole state of an [`Engine`](crate::Engine), except the memory of regions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format.
    pub version: u32,
    /// State of the random number generator.
    pub rng: u64,
    /// Most bytes that the pending requests of all devices together may take.
    pub request_memory: u64,
    /// The port to other hosts.
    pub port: Port,
    /// The devices by [`DeviceId`](crate::DeviceId); `None` at an unused id.
    pub devices: Vec<Option<Device>>,
    /// QPs and devices that wait for a turn.
    pub turns: Turns,
    /// Tasks under way for all QPs of a device, in order.
    pub sweeps: Vec<Sweep>,
    /// Open questions. Questions that the caller has not taken come first, in order.
    pub questions: Vec<Question>,
    /// Number of the last asker.
    pub last_question: u32,
    /// Packets to multicast groups that some members have not received, by device, in order.
    ///
    /// (Older records have none.)
    #[serde(default)]
    pub fan_outs: Vec<FanOut>,
    /// Id of the device whose members receive next, if there are any such packets.
    #[serde(default)]
    pub fan_out_turn: u32,
}

/// The port to other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Whether there is a port, and its link.
    pub link: Link,
    /// [`PortCounters`](crate::PortCounters).
    pub counters: Counts,
    /// [`MalformedFrames`](crate::MalformedFrames).
    pub malformed: Counts,
}

/// QPs and devices that wait for a turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Turns {
    /// Turns of work that needs no packets.
    pub local: Round,
    /// Turns of the port.
    pub wire: Round,
    /// Id of the device whose due deadlines are handled next.
    pub deadlines: u32,
    /// Devices with shared receive queues that have receives for waiting senders, in the order of
    /// their turns. (Versions before 3 have none.)
    #[serde(default)]
    pub wakes: Vec<Wakes>,
}

/// Shared receive queues of a device that have receives for waiting senders.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wakes {
    /// The device's id.
    pub device: u32,
    /// Numbers of the queues, in the order of their turns.
    pub srqs: Vec<u32>,
}

/// Devices that take turns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Shares of the devices. Devices that wait come first, in the order of their turns.
    pub shares: Vec<Share>,
    /// Whether the turn of the first device has begun.
    pub begun: bool,
}

/// A device's share of turns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The device's id.
    pub device: u32,
    /// Whether the device waits for a turn.
    pub listed: bool,
    /// QPNs of QPs that owe an answer, in order, each once.
    pub answers: Vec<u32>,
    /// QPNs of QPs with requests, in order, each once.
    pub requests: Vec<u32>,
    /// What the device may still spend in this round. A negative value is a debt.
    pub credit: i64,
    /// By how much its answers have cost more than its requests.
    pub lead: i64,
    /// Cost of messages that posts carried at once since the last poll.
    pub carried: u64,
}

/// A task under way for all QPs of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// The device's id.
    pub device: u32,
    /// The task.
    pub task: Task,
    /// All QPs with a lower index (QPN modulo `max_qp`) are done.
    pub next: u32,
}

/// A [`Question`](crate::DrainRequest).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Id of the device that a message arrived at.
    pub device: u32,
    /// The owner of the QP that has no receive for the message.
    pub owner: u32,
    /// Whether the caller has taken the question, and owes the answer.
    pub taken: bool,
    /// Askers that wait for the answer.
    pub asked: Vec<Asker>,
    /// Askers from after the caller took the question. They are the next question.
    pub later: Vec<Asker>,
}

/// Work that waits for an answer.
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
    /// A frame to a multicast group, for one member.
    GroupFrame {
        /// QPN of the member.
        qpn: u32,
        /// The frame, from the Ethernet header on.
        frame: Vec<u8>,
    },
    /// The next message in a stream.
    Stream {
        /// QPN of the stream's QP.
        qpn: u32,
        /// The number with which it asked.
        number: u32,
    },
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its limits.
    pub limits: Limits,
    /// Most payload bytes of a packet of its guest.
    pub active_mtu: Mtu,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Whether its guest is stopped.
    pub suspended: bool,
    /// Its GID table, as long as the limits say; `None` for an empty entry.
    pub gids: Vec<Option<Gid>>,
    /// [`Counters`](crate::Counters).
    pub counters: Counts,
    /// State of the random number generator.
    pub rng: u64,
    /// Tag of the first QP of an index.
    pub first_generation: u16,
    /// Used numbers of PDs.
    pub pd_numbers: Numbers,
    /// Its protection domains.
    pub pds: Vec<Pd>,
    /// Used keys.
    pub mr_numbers: Numbers,
    /// Its memory regions.
    pub mrs: Vec<MemoryRegion>,
    /// Its memory windows. Their keys are among the used keys. (Versions 1 and 2 have none.)
    #[serde(default)]
    pub windows: Vec<MemoryWindow>,
    /// Used numbers of shared receive queues. (Versions before 3 have none.)
    #[serde(default)]
    pub srq_numbers: Numbers,
    /// Its shared receive queues. (Versions before 3 have none.)
    #[serde(default)]
    pub srqs: Vec<Srq>,
    /// Used numbers of XRC domains. (Older records have none.)
    #[serde(default)]
    pub xrcd_numbers: Numbers,
    /// The numbers of its XRC domains. (Older records have none.)
    #[serde(default)]
    pub xrcds: Vec<u32>,
    /// Used QPNs.
    pub qp_numbers: Numbers,
    /// Its queue pairs.
    pub qps: Vec<Qp>,
    /// Its multicast groups, in order. (Older records have none.)
    #[serde(default)]
    pub groups: Vec<Group>,
    /// What it knows of its peers, in the order of their places. (Versions before 5 have none.)
    #[serde(default)]
    pub peers: Vec<Peer>,
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

/// Used numbers of one kind of object, none of which is soon used again.
///
/// A number has an index, and a tag that changes with each use.
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

/// A packet that some members of its multicast group have not received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FanOut {
    /// Id of the members' device.
    pub device: u32,
    /// QPN of the last member that has received it.
    pub served: Option<u32>,
    /// The packet, from the Ethernet header on.
    pub frame: Vec<u8>,
}

/// A protection domain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pd {
    /// Its number.
    pub pd: u32,
    /// The owner.
    pub owner: u32,
}

/// A memory region. The caller registers its memory again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRegion {
    /// Its key.
    pub key: u32,
    /// Its PD.
    pub pd: u32,
    /// Rights. Bits as in enum `ibv_access_flags`.
    pub access: u32,
    /// Address of the first byte, as requests name it.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Set for a region for fast registration. (Older records have none.)
    #[serde(default)]
    pub fast: Option<FastRegion>,
}

/// The additional state of a region for fast registration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FastRegion {
    /// Most pages of a registration.
    pub max_pages: u32,
    /// Whether the key names no memory. A request then may register some.
    pub is_free: bool,
}

/// A memory window.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryWindow {
    /// Its key.
    pub key: u32,
    /// Its PD.
    pub pd: u32,
    /// Which peers may use it.
    pub mw_type: MwType,
    /// The part of a region that it shows, if it is bound.
    pub bound: Option<Binding>,
}

/// The part of a region that a memory window shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Binding {
    /// The region's key.
    pub lkey: u32,
    /// Rights of the window. Bits as in enum `ibv_access_flags`.
    pub access: u32,
    /// Address of the first byte, as the region's owner names it.
    pub addr: u64,
    /// Length in bytes.
    pub length: u64,
    /// The QP that bound it, if only peers of that QP may use it.
    pub qpn: Option<u32>,
}
