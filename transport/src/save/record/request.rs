//! Outstanding requests in the record.

use super::Placement;
use serde::{Deserialize, Serialize};

/// A reference to a QP of a device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The device's id.
    pub device: u32,
    /// The QP's number.
    pub qpn: u32,
}

/// A pending send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Send {
    /// Returned in the completion.
    pub id: u32,
    /// Whether to complete even on success.
    pub signaled: bool,
    /// Whether to ask the receiver for a solicited event.
    pub solicited: bool,
    /// Whether to start only after all READs and atomics before it.
    pub fence: bool,
    /// The operation.
    pub operation: Operation,
    /// The local side.
    pub payload: Payload,
    /// The peer's shared receive queue, for requests of XRC. (Older records have none.)
    #[serde(default)]
    pub srqn: Option<u32>,
    /// The destination, if it is a datagram.
    pub destination: Option<Destination>,
}

/// [`SendOp`](crate::SendOp).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Sends into the peer's next receive.
    Send {
        /// Immediate data.
        imm: Option<[u8; 4]>,
    },
    /// Writes into the peer's memory.
    Write {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Immediate data.
        imm: Option<[u8; 4]>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
    },
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Adds to the value.
    FetchAdd {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
        /// Value to add.
        add: u64,
    },
    /// Stores 8 bytes at once. Since version 2.
    AtomicWrite {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
    },
    /// Flushes bytes that were written. Since version 3.
    Flush {
        /// Address in the peer's memory.
        addr: u64,
        /// Key.
        rkey: u32,
        /// How far.
        placement: Placement,
        /// Whether the whole region is flushed, whatever address and length are.
        whole: bool,
        /// Length in bytes.
        length: u32,
    },
    /// Sends into the peer's next receive, and then invalidates a key of the peer. Since version 3.
    SendInvalidate {
        /// The key.
        key: u32,
    },
    /// Binds or unbinds a memory window. Since version 3.
    BindMw {
        /// The window's key before the bind.
        rkey: u32,
        /// The window's key after the bind.
        new_rkey: u32,
        /// The region's key.
        lkey: u32,
        /// Rights.
        access: u32,
        /// Address of the first byte, as the region's owner names it.
        addr: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Invalidates a key of the own device. Since version 3.
    LocalInvalidate {
        /// The key.
        key: u32,
    },
    /// Registers memory with a region. Since version 3.
    RegMr {
        /// The region's key afterwards.
        key: u32,
        /// Rights.
        access: u32,
        /// Address of the first byte, by which requests will name it.
        iova: u64,
        /// Length in bytes.
        length: u64,
        /// Address of the list of pages in the guest's memory.
        list: u64,
        /// Page size, as a power of 2.
        page_shift: u8,
    },
}

/// The local side of a send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The data themselves.
    Inline(Vec<u8>),
    /// Source of the data, or their destination.
    Sges(Vec<Sge>),
    /// None: the request cannot be parsed, and ends with `LocQpOp`.
    NotUnderstood,
    /// None: the request has an invalid length, and ends with `LocLen`.
    WrongLength,
}

/// A scatter/gather element.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key.
    pub lkey: u32,
}

/// The address of a connection's peer, or of a datagram's receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressVector {
    /// Service level.
    pub sl: u8,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// GID of the peer.
    pub dgid: [u8; 16],
    /// MAC address that leads to the peer.
    pub dmac: [u8; 6],
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// UDP source port, or 0 for the engine's choice.
    pub udp_sport: u16,
    /// VLAN id.
    pub vlan: Option<u16>,
}

/// [`Destination`](crate::Destination).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Destination {
    /// Protection domain of the address handle.
    pub pd: u32,
    /// QPN of the receiver.
    pub qpn: u32,
    /// Q_Key of the receiver.
    pub qkey: u32,
    /// The address vector.
    pub av: AddressVector,
}

/// A pending receive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receive {
    /// Returned in the completion.
    pub id: u32,
    /// Where the message goes.
    pub sges: Vec<Sge>,
    /// Whether it could not be parsed.
    ///
    /// The QP is in ERR because of it. It ends after the receives before it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub not_understood: bool,
}
