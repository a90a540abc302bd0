//! The record of an engine: plain data with names, for any encoding that serde has.
//!
//! Numbers in it are those that callers, guests and peers know (device ids, QPNs, keys, PSNs), and places in lists of the record itself. What follows
//! from the rest is not in it.
//!
//! # Versions
//!
//! [`VERSION`] goes up with every change of the format, and a newer engine reads what an older one wrote:
//!
//! * a new field has `#[serde(default)]`, and its default means what engines of older versions did;
//! * a field whose meaning changes gets a new name, and the old one stays, read and never written;
//! * names of fields, of enums' variants and of counters are never used again for something else; a counter that is gone keeps its name in
//!   a list of those that are read and forgotten.
//!
//! `transport/tests/golden` has records of each version, which a test restores and goes on with.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use super::names::{Carrier, Link, Message, Mtu, Pending, QpState, QpType, Task, Wait};

/// The version of the format that this engine writes. It reads this one and those before it.
pub const VERSION: u32 = 1;

/// Names and values of counters.
pub type Counts = BTreeMap<String, u64>;

/// Everything that an [`Engine`](crate::Engine) knows, but for the memory that it is lent.
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

/// A QP of a device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The device's id.
    pub device: u32,
    /// The QP's number.
    pub qpn: u32,
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
    /// Which QPNs were used.
    pub qp_numbers: Numbers,
    /// Its queue pairs.
    pub qps: Vec<Qp>,
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

/// Which numbers of a kind of objects were used: none is used again soon. A number has an index and a tag that changes with each use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Numbers {
    /// The tag of the last user of each index, from the first index on.
    pub tags: Vec<u16>,
    /// Which of these indices are free, the longest-free first.
    pub free: Vec<u32>,
}

/// A protection domain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pd {
    /// Its number.
    pub pd: u32,
    /// Who owns it.
    pub owner: u32,
}

/// A memory region. Its memory is lent anew.
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
}

/// A queue pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Qp {
    /// Its number.
    pub qpn: u32,
    /// What it was made with.
    pub init: QpInit,
    /// Its state.
    pub state: QpState,
    /// Its attributes.
    pub attr: QpAttr,
    /// Its sending half.
    pub requester: Requester,
    /// Its receiving half.
    pub responder: Responder,
    /// What carries its messages.
    pub carrier: Carrier,
    /// What its connection keeps for RoCE, once that was its carrier.
    pub roce: Option<Roce>,
    /// Its deadline: nanoseconds on the caller's clock.
    pub timer: Option<u64>,
    /// Frames for it that wait for the answer to a question.
    pub held: u16,
}

/// [`QpInit`](crate::QpInit).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QpInit {
    /// Who may post.
    pub owner: u32,
    /// Its protection domain.
    pub pd: u32,
    /// Its service.
    pub qp_type: QpType,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub recv_cq: u32,
    /// Most sends outstanding.
    pub max_send_wr: u32,
    /// Most receives outstanding.
    pub max_recv_wr: u32,
    /// Most elements of a send.
    pub max_send_sge: u32,
    /// Most elements of a receive.
    pub max_recv_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
}

/// [`QpAttr`](crate::QpAttr), but for states and PSNs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QpAttr {
    /// Tell when the send queue has drained.
    pub en_sqd_async_notify: bool,
    /// What peers may do.
    pub access: u32,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Port.
    pub port: u8,
    /// Most payload of a packet.
    pub path_mtu: Mtu,
    /// Q_Key.
    pub qkey: u32,
    /// The peer's QP.
    pub dest_qpn: u32,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR NAK timer.
    pub min_rnr_timer: u8,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Retries before giving up on a silent peer.
    pub retry_cnt: u8,
    /// Retries before giving up on a peer without a receive.
    pub rnr_retry: u8,
    /// The address vector, once there is one.
    pub av: Option<AddressVector>,
}

/// Where a connection's peer is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressVector {
    /// Service level.
    pub sl: u8,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// GID of the peer.
    pub dgid: [u8; 16],
    /// MAC address that leads to it.
    pub dmac: [u8; 6],
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// UDP source port, or 0.
    pub udp_sport: u16,
    /// VLAN id.
    pub vlan: Option<u16>,
}

/// The sending half of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Requester {
    /// PSN of the next packet that was never sent.
    pub psn: u32,
    /// Bytes of the first request that are done, if it goes without acknowledges.
    pub offset: u32,
    /// The first request was tried.
    pub started: bool,
    /// What the first request waits for.
    pub wait: Wait,
    /// Retries left until the peer counts as dead,
    pub retries: u8,
    /// and until it counts as never ready.
    pub rnr_retries: u8,
    /// Tell when drained.
    pub notify_drained: bool,
    /// Number with which its first request asked last.
    pub question: u32,
    /// Its pending sends, in order.
    pub queue: Vec<Send>,
}

/// The receiving half of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Responder {
    /// PSN expected next.
    pub psn: u32,
    /// Bytes that the message in progress has brought.
    pub received: u32,
    /// The message that has begun and not ended.
    pub in_progress: Message,
    /// The peer was told that there is no receive.
    pub sender_waits: bool,
    /// The first message has come.
    pub established: bool,
    /// Its pending receives, in order.
    pub queue: Vec<Receive>,
}

/// A pending send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Send {
    /// Comes back in the completion.
    pub id: u32,
    /// Complete on success too.
    pub signaled: bool,
    /// Ask the receiver for a solicited event.
    pub solicited: bool,
    /// Start after all READs and atomics before it.
    pub fence: bool,
    /// What to do.
    pub operation: Operation,
    /// The local side.
    pub payload: Payload,
    /// Where it goes, if it is a datagram.
    pub destination: Option<Destination>,
}

/// [`SendOp`](crate::SendOp).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Into the peer's next receive.
    Send {
        /// Immediate data.
        imm: Option<[u8; 4]>,
    },
    /// Into the peer's memory.
    Write {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Immediate data.
        imm: Option<[u8; 4]>,
    },
    /// Out of the peer's memory.
    Read {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
    },
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Compared with.
        compare: u64,
        /// Stored when equal.
        swap: u64,
    },
    /// Adds to the value.
    FetchAdd {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Added.
        add: u64,
    },
}

/// The local side of a send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The data themselves.
    Inline(Vec<u8>),
    /// Where the data are, or go.
    Sges(Vec<Sge>),
    /// None: the request cannot be understood, and ends as `LocQpOp`.
    NotUnderstood,
    /// None: the request has a length that cannot be, and ends as `LocLen`.
    WrongLength,
}

/// A scatter/gather element.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key.
    pub lkey: u32,
}

/// [`Destination`](crate::Destination).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Destination {
    /// Protection domain of the address handle.
    pub pd: u32,
    /// The receiver.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// The address vector.
    pub av: AddressVector,
}

/// A pending receive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receive {
    /// Comes back in the completion.
    pub id: u32,
    /// Where the message goes.
    pub sges: Vec<Sge>,
}

/// What a connection keeps for RoCE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roce {
    /// Of a reliable connection.
    Rc(Box<RcRoce>),
    /// Of an unreliable connection.
    Uc {
        /// The WRITE in whose midst the peer's packets are.
        write: Reth,
    },
}

/// What a reliable connection keeps whose peer is reached in packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcRoce {
    /// About its requests.
    pub requester: RcRequester,
    /// About its responses.
    pub responder: RcResponder,
    /// When to do something about what has not happened until then.
    pub deadline: Option<u64>,
    /// In its next turn requests go before responses.
    pub requests_first: bool,
}

/// How far the requests have got. While RoCE is not the carrier, it is number, window and `went_back` alone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RcRequester {
    /// First PSN of the first request.
    pub base: u32,
    /// Number of the first request: the responder's MSN before it.
    pub ssn: u32,
    /// The oldest PSN without an answer.
    pub una: u32,
    /// How many requests of the queue are before the cursor: the request there is sent next.
    pub cursor: u32,
    /// PSNs of that request that were sent.
    pub sent: u32,
    /// Responses that are outstanding.
    pub awaited: u32,
    /// Request packets that may be without an acknowledge.
    pub window: u8,
    /// Packets since the last that asked for an acknowledge.
    pub unasked: u8,
    /// It went back already because the peer said that it lacks the oldest PSN.
    pub went_back: bool,
    /// MSN of the last request that the peer has a receive for, if it tells.
    pub limit: Option<u32>,
}

/// What the responder is to send, and may have to send again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcResponder {
    /// Messages carried out.
    pub msn: u32,
    /// The WRITE in progress.
    pub write: Reth,
    /// An acknowledge is due.
    pub ack: bool,
    /// Packets since the last acknowledge was due.
    pub unacknowledged: u8,
    /// A NAK for the PSN that is expected was sent.
    pub nak_sent: bool,
    /// A NAK that is to be sent.
    pub nak: Option<PendingNak>,
    /// The last READs and atomics, the oldest first.
    pub resources: Vec<Resource>,
}

/// A NAK that is to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingNak {
    /// For this PSN.
    pub psn: u32,
    /// What it says.
    pub nak: Nak,
}

/// What a NAK says.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nak {
    /// There is no receive: wait as long as this code of an RNR NAK timer says.
    Rnr(u8),
    /// A packet before this PSN is missing.
    Sequence,
    /// The request is invalid.
    InvalidRequest,
    /// Key, range or rights do not allow it.
    RemoteAccess,
    /// The responder failed at it.
    RemoteOperational,
}

/// Where a WRITE or READ is in memory (IBTA 9.3.3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reth {
    /// Address.
    pub va: u64,
    /// Key.
    pub rkey: u32,
    /// Bytes.
    pub length: u32,
}

/// A READ or atomic that was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Its first PSN.
    pub psn: u32,
    /// The MSN that goes with its response.
    pub msn: u32,
    /// What it was.
    pub kind: ResourceKind,
    /// What is to be sent of its response.
    pub pending: Pending,
    /// Response packet with which this response begins.
    pub from: u32,
    /// Response packet that is next.
    pub next: u32,
}

/// What a [`Resource`] was for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A READ of this: carried out when it is answered.
    Data(Reth),
    /// Carried out once; an atomic found this.
    Once(Option<u64>),
}
