//! A queue pair in the record: attributes, and its carrier's state.

use super::{
    AddressVector, Carrier, Message, Mtu, Pending, Place, QpState, QpType, Receive, Send, Tcp, Wait,
};
use serde::{Deserialize, Serialize};

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
    /// Its connection's state on RoCE, once that was its carrier.
    pub roce: Option<Roce>,
    /// Its connection's state in a stream, if that carries its messages. (Older records have none.)
    #[serde(default)]
    pub tcp: Option<Box<Tcp>>,
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
    /// Its protection domain. (XRC targets have none.)
    pub pd: Option<u32>,
    /// Its service.
    pub qp_type: QpType,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
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

/// The sending half of a QP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Requester {
    /// PSN of the next packet that was never sent.
    pub psn: u32,
    /// Bytes of the first request that are done, if it goes without acknowledges.
    pub offset: u32,
    /// The first request was tried.
    pub started: bool,
    /// It is a datagram to a multicast group, and the members on this host up to here have had
    /// theirs. (Older records have none.)
    #[serde(default)]
    pub served: Option<Place>,
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
    /// Bytes received of the message in progress.
    pub received: u32,
    /// The message that has begun and not ended.
    pub in_progress: Message,
    /// The peer was told that there is no receive.
    pub sender_waits: bool,
    /// The shared queue that the last message named, of an XRC target, unless it was destroyed.
    /// (Older records have none.)
    #[serde(default)]
    pub srq: Option<u32>,
    /// The first message has come.
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
    /// About its requests.
    pub requester: RcRequester,
    /// About its responses.
    pub responder: RcResponder,
    /// When to do something about what has not happened until then.
    pub deadline: Option<u64>,
}

/// The requester's state. While RoCE is not the carrier, it is number, window, `acknowledged` and
/// `went_back` alone.
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
    pub window: u16,
    /// Packets that were acknowledged since the window, if it is wider than that of a new
    /// connection, grew. (Older records have none.)
    #[serde(default)]
    pub acknowledged: u16,
    /// Packets since the last that asked for an acknowledge.
    pub unasked: u8,
    /// The packets from the oldest PSN on were retransmitted already, because of a NAK or a gap in
    /// the responses.
    pub went_back: bool,
    /// MSN of the last request that the peer has a receive for, if it tells.
    pub limit: Option<u32>,
}

/// What the responder is to send, and may have to send again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RcResponder {
    /// Messages executed.
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
    /// Of a READ that came to an XRC target, the PD of what it reads. (Older records have none.)
    #[serde(default)]
    pub pd: Option<u32>,
    /// Response packet with which this response begins.
    pub from: u32,
    /// Response packet that is next.
    pub next: u32,
}

/// What a [`Resource`] was for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A READ of this: executed when it is answered.
    Data(Reth),
    /// Carried out once; an atomic found this.
    Once(Option<u64>),
}
