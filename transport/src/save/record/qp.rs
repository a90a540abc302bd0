//! A queue pair in the record: attributes, and the state of its transport kind.

use super::{
    AddressVector, EarlyResponses, Lateness, LossInterval, Message, Mtu, Pending, Place, Probes, QpState,
    QpType, ReadAgain, Receive, RoundTrip, SelectiveRepeat, Send, Tcp, TransportKind, Wait,
};
use serde::{Deserialize, Serialize};

/// A queue pair.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Qp {
    /// Its number.
    pub qpn: u32,
    /// Parameters with which it was made.
    pub init: QpInit,
    /// Its state.
    pub state: QpState,
    /// Its attributes.
    pub attr: QpAttr,
    /// Its sending half.
    pub requester: Requester,
    /// Its receiving half.
    pub responder: Responder,
    /// The transport kind.
    pub carrier: TransportKind,
    /// State of the connection on RoCE, once that was the transport kind.
    pub roce: Option<Roce>,
    /// State of the connection in a stream, if that is the transport kind. (Older records have
    /// none.)
    #[serde(default)]
    pub tcp: Option<Box<Tcp>>,
    /// Deadline in nanoseconds on the caller's clock.
    pub timer: Option<u64>,
    /// Whether nothing is waited for until then. (Versions before 5 do not tell.)
    #[serde(default)]
    pub timer_is_idle: bool,
    /// Number of frames for the QP that wait for the answer to a question.
    pub held: u16,
}

/// [`QpInit`](crate::QpInit).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QpInit {
    /// The context that may post.
    pub owner: u32,
    /// Its protection domain. (XRC targets have none.)
    pub pd: Option<u32>,
    /// Its service.
    pub qp_type: QpType,
    /// The CQ in which sends complete.
    pub send_cq: u32,
    /// The CQ in which receives complete.
    pub recv_cq: u32,
    /// The shared queue that it takes receives from. (Versions before 3 have none.)
    #[serde(default)]
    pub srq: Option<u32>,
    /// The XRC domain whose shared queues it takes receives from, if it is an XRC target. (Older
    /// records have none.)
    #[serde(default)]
    pub xrcd: Option<u32>,
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

/// [`QpAttr`](crate::QpAttr), except states and PSNs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QpAttr {
    /// Whether to report when the send queue has drained.
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

/// The sending half of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Requester {
    /// PSN of the next packet that was never sent.
    pub psn: u32,
    /// Bytes of the first request that are done, if the transport kind has no acknowledges.
    pub offset: u32,
    /// Whether the first request was tried.
    pub started: bool,
    /// The last served member on this host, if the first request is a datagram to a multicast
    /// group. (Older records have none.)
    #[serde(default)]
    pub served: Option<Place>,
    /// What the first request waits for.
    pub wait: Wait,
    /// Retries left until the peer counts as dead.
    pub retries: u8,
    /// RNR retries left until the peer counts as never ready.
    pub rnr_retries: u8,
    /// Whether to report when the send queue has drained.
    pub notify_drained: bool,
    /// Number with which the first request asked last.
    pub question: u32,
    /// Its pending sends, in order.
    pub queue: Vec<Send>,
}

/// The receiving half of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Responder {
    /// PSN expected next.
    pub psn: u32,
    /// Bytes received of the message in progress.
    pub received: u32,
    /// The kind of message that has begun and not ended.
    pub in_progress: Message,
    /// Whether the peer was told that there is no receive.
    pub sender_waits: bool,
    /// The shared queue that the last message named, for an XRC target. `None` if the queue was
    /// destroyed. (Older records have none.)
    #[serde(default)]
    pub srq: Option<u32>,
    /// Whether the first message has arrived.
    pub established: bool,
    /// Its pending receives, in order.
    pub queue: Vec<Receive>,
}

/// A connection's state on RoCE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roce {
    /// Of a reliable connection.
    Rc(Box<RcRoce>),
    /// Of an unreliable connection.
    Uc {
        /// The WRITE that the peer's next packet continues.
        write: Reth,
    },
}

/// The state of a reliable connection on RoCE.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcRoce {
    /// State of its requests.
    pub requester: RcRequester,
    /// State of its responses.
    pub responder: RcResponder,
    /// Requests that came ahead of a gap. (Older records have none.)
    #[serde(default)]
    pub reorder: Option<ReorderBuffer>,
    /// Deadline of the connection.
    pub deadline: Option<u64>,
    /// What is left of the local ACK timeout once packets are sent again, in nanoseconds. (Versions
    /// before 5 have none.)
    #[serde(default)]
    pub left: Option<u64>,
    /// Its round-trip time. (Versions before 5 have none.)
    #[serde(default)]
    pub round_trip: RoundTrip,
    /// Its probes. (Versions before 5 have none.)
    #[serde(default)]
    pub probes: Probes,
    /// What it knows of the way in which its peer handles losses. (Versions before 5 have none.)
    #[serde(default)]
    pub selective: SelectiveRepeat,
    /// Whether its first request was sent again, if it is a READ.
    #[serde(default)]
    pub read_again: ReadAgain,
    /// The PSN before which all was sent again, if `read_again` says that.
    #[serde(default)]
    pub again_end: u32,
    /// Responses that came ahead of a missing one. (Versions before 5 have none.)
    #[serde(default)]
    pub early: Option<EarlyResponses>,
    /// How often its path loses packets, if it has lost any. (Versions before 5 have none.)
    #[serde(default)]
    pub losses: Option<LossInterval>,
    /// What it knows of congestion. (Versions before 5 have none.)
    #[serde(default)]
    pub congestion: Option<Congestion>,
}

/// What a connection knows of congestion on its path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Congestion {
    /// Whether a notification is to be sent.
    pub cnp_due: bool,
    /// When the last notification became due, in nanoseconds.
    pub last_cnp: Option<u64>,
    /// When the last notification came, in nanoseconds.
    #[serde(default)]
    pub notified_at: Option<u64>,
    /// Its rate, if it has one.
    pub rate: Option<Rate>,
}

/// The rate of a connection that was notified of congestion. Times are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rate {
    /// The rate in bytes a second.
    pub current: u64,
    /// The rate to which it recovers.
    pub target: u64,
    /// How congested the path is, in units of 2 to the power of -30.
    pub alpha: u32,
    /// When the period of alpha began.
    pub alpha_since: u64,
    /// When the rate fell last.
    pub fell_at: u64,
    /// When the period of the timer began.
    pub timer_since: u64,
    /// Periods of the timer since the rate fell.
    pub timer_steps: u32,
    /// Bytes sent in the period of the counter of bytes.
    pub bytes: u64,
    /// Periods of that counter since the rate fell.
    pub byte_steps: u32,
    /// When the next packet may be sent.
    pub next_at: u64,
    /// What got through to the peer, in bytes a second, when that was measured last.
    pub delivered: u64,
    /// When the current time of measurement began.
    pub measured_at: u64,
    /// Bytes that had got through then.
    pub through: u64,
}

/// Requests that came ahead of a gap, and what is known of the gap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReorderBuffer {
    /// PSN that was expected when the buffer was last looked at.
    pub base: u32,
    /// The frames, from that PSN on.
    pub frames: Vec<Vec<u8>>,
    /// Number of its place in the line of its device's buffers, or 0 without frames.
    pub place: u64,
    /// Packets that came ahead of the gap.
    pub extent: u16,
    /// When the first of them came.
    pub since: u64,
    /// Whether there was a NAK for the gap.
    pub asked: bool,
    /// PSN with which the peer's present repetition began.
    pub round: Option<u32>,
    /// Packets of that repetition.
    pub again: u16,
    /// When a NAK for the gap is due.
    pub nak_at: Option<u64>,
    /// By how much a NAK is delayed.
    pub tolerance: Lateness,
    /// By how much it would be delayed because of the present second.
    pub seen: Lateness,
    /// When that second began.
    pub period: u64,
    /// PSN of the last gap for which there was a NAK, and how late its packet came.
    pub suspect: Option<(u32, Lateness)>,
    /// Whether the packet of the gap before that one came again.
    pub was_late: bool,
    /// Duplicates since the last NAK.
    pub repeats: u8,
    /// Whether the peer sends everything again after a NAK.
    pub goes_back: bool,
}

/// The requester's state.
///
/// While RoCE is not the transport kind, only `ssn`, `window`, `acknowledged` and `went_back` are
/// set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RcRequester {
    /// First PSN of the first request.
    pub base: u32,
    /// Number of the first request: the responder's MSN before it.
    pub ssn: u32,
    /// The oldest PSN without an answer.
    pub una: u32,
    /// Number of requests in the queue before the cursor. The request at the cursor is sent next.
    pub cursor: u32,
    /// PSNs of the request at the cursor that were sent.
    pub sent: u32,
    /// Number of outstanding responses.
    pub awaited: u32,
    /// Most request packets without an acknowledge.
    pub window: u16,
    /// Packets that were acknowledged since the window grew, if it is wider than that of a new
    /// connection. (Older records have none.)
    #[serde(default)]
    pub acknowledged: u16,
    /// Packets since the last one that asked for an acknowledge.
    pub unasked: u8,
    /// Whether nothing was answered since it began, or since it was idle.
    #[serde(default)]
    pub is_new: bool,
    /// Whether the packets from the oldest PSN on were already retransmitted, because of a NAK or a
    /// gap in the responses.
    pub went_back: bool,
    /// MSN of the last request that the peer has a receive for, if it tells.
    pub limit: Option<u32>,
    /// Bytes of frames with requests that were acknowledged, modulo 2 to the power of 64. (Versions
    /// before 5 have none.)
    #[serde(default)]
    pub carried: u64,
}

/// What the responder has to send, and may have to send again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcResponder {
    /// Messages executed.
    pub msn: u32,
    /// The WRITE in progress.
    pub write: Reth,
    /// Whether an acknowledge is due.
    pub ack: bool,
    /// Packets since the last acknowledge was due.
    pub unacknowledged: u8,
    /// Whether a NAK for the expected PSN was sent.
    pub nak_sent: bool,
    /// Whether that was an RNR NAK. (Older records do not tell.)
    #[serde(default)]
    pub peer_waits: bool,
    /// A NAK that is to be sent.
    pub nak: Option<PendingNak>,
    /// The last READs and atomics, the oldest first.
    pub resources: Vec<Resource>,
    /// Bytes of frames with data for which READs asked the first time, modulo 2 to the power of 64.
    /// (Versions before 5 have none.)
    #[serde(default)]
    pub asked: u64,
}

/// A NAK that is to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingNak {
    /// The PSN.
    pub psn: u32,
    /// The code.
    pub nak: Nak,
}

/// The code of a NAK.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nak {
    /// There is no receive. The sender has to wait according to this RNR NAK timer code.
    Rnr(u8),
    /// A packet before this PSN is missing.
    Sequence,
    /// The request is invalid.
    InvalidRequest,
    /// Key, range or rights do not allow the access.
    RemoteAccess,
    /// The responder failed to execute the request.
    RemoteOperational,
}

/// The memory of a WRITE or READ (IBTA 9.3.3).
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
    /// The MSN of its response.
    pub msn: u32,
    /// The operation.
    pub kind: ResourceKind,
    /// What is still to be sent of its response.
    pub pending: Pending,
    /// PD of the memory that it reads, for a READ that came to an XRC target. (Older records have
    /// none.)
    #[serde(default)]
    pub pd: Option<u32>,
    /// Number of the response packet with which this response begins.
    pub from: u32,
    /// Number of the next response packet.
    pub next: u32,
    /// Number of the response packet behind the last one. (Versions before 5 have none. All of the
    /// response is sent.)
    #[serde(default)]
    pub to: Option<u32>,
    /// Number of the response packet with which the rest goes on after that, or 0.
    #[serde(default)]
    pub then: u32,
}

/// The operation of a [`Resource`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A READ of this memory. It is executed when it is answered.
    Data(Reth),
    /// An operation that is executed once. An atomic found this value.
    Once(Option<u64>),
}
