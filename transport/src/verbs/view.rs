//! What an observer sees of QPs and regions. The device does not need it.

use crate::base::gid::GidEntry;
use crate::base::id::{OwnerId, PdId};
use crate::base::memory::Access;
use crate::base::transport_kind::TransportKind;
use crate::verbs::attr::{QpAttr, QpInit};
use core::time::Duration;
use vrdma_wire::num::Qpn;

/// A QP as an observer sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpView {
    /// Its number.
    pub qpn: Qpn,
    /// The parameters with which it was made.
    pub init: QpInit,
    /// Its attributes, with its state and the next PSNs.
    pub attr: QpAttr,
    /// The way to its peer, if it is connected.
    pub transport: Option<TransportKind>,
    /// Its own address.
    pub source: GidEntry,
    /// Number of sends that have not ended.
    pub sends: u32,
    /// Number of receives that have not ended. Those of a shared queue count once a message has
    /// taken them.
    pub receives: u32,
    /// Whether requests are still to be flushed.
    pub is_flushing: bool,
    /// What its first send waits for.
    pub waits_for: Option<WaitsFor>,
    /// Smoothed round-trip time to its peer, if the peer is on another host and has answered.
    pub srtt: Option<Duration>,
    /// The rate that congestion gave it, in bytes a second.
    pub rate: Option<u64>,
    /// Whether its peer holds what comes ahead of a gap, if it has shown that.
    pub peer_holds: Option<bool>,
    /// Memory in bytes of packets that it holds ahead of missing ones.
    pub held_bytes: u64,
}

/// What the first request of a send queue waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// A receive of the peer.
    Receive,
    /// An answer of the peer.
    Answer,
    /// Posts that the caller has not drained.
    Posts,
}

/// A region as an observer sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegionView {
    /// Its key.
    pub key: u32,
    /// Its protection domain.
    pub pd: PdId,
    /// The owner of the protection domain.
    pub owner: OwnerId,
    /// Its rights.
    pub access: Access,
    /// Address of the first byte, by which requests name it.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Whether it is for fast registration.
    pub is_fast: bool,
}
