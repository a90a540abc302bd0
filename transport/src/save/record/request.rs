//! Outstanding requests in the record.

use super::Placement;
use serde::{Deserialize, Serialize};

/// A QP of a device.
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
    /// The peer's shared receive queue, of requests of XRC. (Older records have none.)
    #[serde(default)]
    pub srqn: Option<u32>,
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
    /// Stores 8 bytes at once. Since version 2.
    AtomicWrite {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
    },
    /// Has what was written be where it is to be. Since version 3.
    Flush {
        /// Address there.
        addr: u64,
        /// Key.
        rkey: u32,
        /// How far.
        placement: Placement,
        /// All of the region, whatever address and length are.
        whole: bool,
        /// Bytes.
        length: u32,
    },
    /// Into the peer's next receive; then a key of the peer names nothing. Since version 3.
    SendInvalidate {
        /// The key.
        key: u32,
    },
    /// Binds or unbinds a memory window. Since version 3.
    BindMw {
        /// The window's key before,
        rkey: u32,
        /// and afterwards.
        new_rkey: u32,
        /// The region's key.
        lkey: u32,
        /// Rights.
        access: u32,
        /// Address of the first byte, as the region's owner names it.
        addr: u64,
        /// Bytes.
        length: u64,
    },
    /// Makes an own key name nothing. Since version 3.
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
        /// Address of the first byte, as requests are to name it.
        iova: u64,
        /// Bytes.
        length: u64,
        /// Where the list of pages is in the guest's memory.
        list: u64,
        /// Size of a page, as a power of 2.
        page_shift: u8,
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

/// Where a connection's peer, or a datagram's receiver, is.
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
    /// It could not be understood: the QP is in ERR because of it, and it ends after those before
    /// it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub not_understood: bool,
}
