//! `org.vrdma.Qp`: queue pairs.

use crate::Method;
use serde::{Deserialize, Serialize};

/// The method List.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ListQps {
    /// Name of the guest.
    pub guest: String,
    /// Where the list goes on; `None` for its beginning.
    #[serde(default)]
    pub from: Option<u64>,
}

/// Some queue pairs of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct QpPage {
    /// The queue pairs.
    pub qps: Vec<Qp>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<u64>,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Qp {
    /// Name of its guest.
    pub guest: String,
    /// Its number.
    pub qpn: u32,
    /// Its service.
    pub service: QpService,
    /// Its state.
    pub state: QpState,
    /// The process in the guest that made it; 0: the guest's kernel.
    pub context: u32,
    /// The way to its peer, if it is connected.
    pub transport: Option<QpTransport>,
    /// The peer's number, if it is connected.
    pub peer_qpn: Option<u32>,
    /// The peer's address, if it is connected.
    pub peer_gid: Option<String>,
    /// Sends that have not ended.
    pub sends: u32,
    /// Receives that have not ended.
    pub receives: u32,
}

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are the names of the specification")]
pub enum QpService {
    Rc,
    Uc,
    Ud,
    Gsi,
    XrcSend,
    XrcRecv,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are the names of the specification")]
pub enum QpState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

/// The way of a queue pair's messages to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QpTransport {
    /// A copy in memory.
    Copy,
    /// RoCE packets.
    Roce,
    /// An iWARP stream.
    Iwarp,
}

/// What the first request of a send queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QpWait {
    /// A receive of the peer.
    Receive,
    /// An answer of the peer.
    Answer,
    /// Posts that the daemon has not read, which may be the peer's receive.
    Posts,
}

/// The method Show.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ShowQp {
    /// Name of the guest.
    pub guest: String,
    /// Number of the queue pair.
    pub qpn: u32,
}

/// Everything about a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WholeQp {
    /// The queue pair.
    pub qp: Qp,
    /// What rarely matters.
    pub details: QpDetails,
    /// Its last errors, from the oldest to the newest.
    pub failures: Vec<Failure>,
}

/// What rarely matters of a queue pair. Some have the encodings of ibv_modify_qp(3).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "they are the names of ibv_create_qp(3) and ibv_modify_qp(3)")]
pub struct QpDetails {
    pub pd: Option<u32>,
    pub send_cq: u32,
    pub recv_cq: u32,
    /// The shared receive queue, if it has one.
    pub srq: Option<u32>,
    pub max_sends: u32,
    pub max_receives: u32,
    /// In bytes.
    pub path_mtu: u32,
    /// Its own address.
    pub gid: String,
    pub vlan: Option<u16>,
    /// `None` for those who may only look.
    pub sq_psn: Option<u32>,
    /// `None` for those who may only look.
    pub rq_psn: Option<u32>,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// Whether requests are still to be flushed.
    pub is_flushing: bool,
    pub waits_for: Option<QpWait>,
    /// Smoothed round-trip time in nanoseconds, if its peer is on another host and has answered.
    #[serde(default)]
    pub srtt_ns: Option<u64>,
    /// Bytes a second that congestion lets it send. `None` if there is no congestion.
    pub rate: Option<u64>,
    /// Whether its peer holds what comes ahead of a gap. `None` if it has not shown that.
    #[serde(default)]
    pub peer_holds: Option<bool>,
    /// Memory in bytes of packets that are held ahead of missing ones.
    #[serde(default)]
    pub held_bytes: u64,
}

/// An error of a queue pair, or several equal ones in a row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Failure {
    /// Milliseconds since the last of them.
    pub ago: u64,
    /// The status of a completion, or the name of an event.
    pub what: String,
    /// How many there were.
    pub times: u64,
}

impl Method for ListQps {
    const NAME: &'static str = "org.vrdma.Qp.List";
    type Output = QpPage;
}

impl Method for ShowQp {
    const NAME: &'static str = "org.vrdma.Qp.Show";
    type Output = WholeQp;
}
