//! Parameters of a new QP, and attributes of QPs.

use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::base::memory::Access;
use core::ops::BitOr;
use vrdma_wire::num::{Gid, Mac, Mtu, Psn, Qkey, Qpn};

/// The service of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// General services: QP1, a datagram QP of the kernel.
    Gsi,
    /// XRC initiator (annex A14): the sending half of a reliable connection.
    ///
    /// Each request names a shared receive queue of the peer.
    XrcSend,
    /// XRC target: the receiving half of a reliable connection.
    ///
    /// It takes a message's receive from the queue that the message names, in the target's XRC
    /// domain.
    XrcRecv,
}

impl QpType {
    /// Whether each send names its own [`Destination`](crate::Destination).
    #[inline]
    pub const fn is_datagram(self) -> bool {
        matches!(self, QpType::Ud | QpType::Gsi)
    }

    /// Whether the rules of reliable connections apply.
    #[inline]
    pub(crate) const fn is_reliable(self) -> bool {
        matches!(self, QpType::Rc | QpType::XrcSend | QpType::XrcRecv)
    }

    /// Returns the service that the peer of a QP of this service must have.
    #[inline]
    pub(crate) const fn peer(self) -> QpType {
        match self {
            QpType::XrcSend => QpType::XrcRecv,
            QpType::XrcRecv => QpType::XrcSend,
            same => same,
        }
    }
}

/// State of a QP (IBTA 10.3.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum QpState {
    /// Nothing can be posted.
    #[default]
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drains: requests that were started end, the rest waits.
    Sqd,
    /// Send queue in error (not with RC, which goes to ERR).
    Sqe,
    /// All requests are flushed.
    Err,
}

/// Where a QP takes its receives from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Receives {
    /// From a queue of its own.
    Own,
    /// From a shared queue.
    Shared(SrqId),
    /// From the shared queue of this domain that each message names. Only XRC targets have this.
    Xrc(XrcdId),
}

impl From<Option<SrqId>> for Receives {
    fn from(shared: Option<SrqId>) -> Receives {
        shared.map_or(Receives::Own, Receives::Shared)
    }
}

/// Parameters of a new QP (ibv_create_qp(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// The context that may post.
    pub owner: OwnerId,
    /// The protection domain. Only XRC targets have none.
    ///
    /// Peers of a target reach memory of the PD of the queue that they name.
    pub pd: Option<PdId>,
    /// Its service.
    pub qp_type: QpType,
    /// The CQ in which sends complete.
    pub send_cq: CqId,
    /// The CQ in which receives complete. (Receives of an XRC target complete in the CQ of the
    /// shared queue.)
    pub recv_cq: CqId,
    /// Where it takes its receives from.
    pub receives: Receives,
    /// Most sends outstanding. An XRC target has none; the value is ignored.
    pub max_send_wr: u32,
    /// Most receives outstanding. With a shared queue or XRC the QP has no queue of its own; the
    /// value is ignored.
    pub max_recv_wr: u32,
    /// Most elements of a send.
    pub max_send_sge: u32,
    /// Most elements of a receive.
    pub max_recv_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
}

/// Attributes of a QP, with the meaning, units and encodings of ibv_modify_qp(3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct QpAttr {
    /// The state to go to (modify), or the current state (query).
    pub state: QpState,
    /// The state that the caller believes the QP to be in.
    pub cur_state: QpState,
    /// Whether to raise [`Event::SqDrained`](crate::Event::SqDrained) when the queue has drained.
    pub en_sqd_async_notify: bool,
    /// Query only: in SQD, the send queue is still draining.
    pub sq_draining: bool,
    /// What peers may do. Only the bits of remote rights count.
    pub access: Access,
    /// Index of the P_Key: 0.
    pub pkey_index: u16,
    /// Port: 1.
    pub port: u8,
    /// Most payload of a packet.
    pub path_mtu: Mtu,
    /// Q_Key (not with RC).
    pub qkey: Qkey,
    /// PSN expected next from the peer.
    pub rq_psn: Psn,
    /// PSN sent next.
    pub sq_psn: Psn,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
    /// How long senders that find no receive have to wait, 0..31 (IBTA table 45).
    pub min_rnr_timer: u8,
    /// Local ACK timeout, 0..31: 4.096 us times 2 to the power of the value. 0 is for ever.
    pub timeout: u8,
    /// Retries before giving up on a silent peer, 0..7.
    pub retry_cnt: u8,
    /// Retries before giving up on a peer that posts no receive, 0..7; 7 is for ever.
    pub rnr_retry: u8,
    /// Service level.
    pub sl: u8,
    /// Index of the QP's own GID.
    pub sgid_index: u8,
    /// GID of the peer.
    pub dgid: Gid,
    /// MAC address that leads to the peer.
    pub dmac: Mac,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// UDP source port, or 0 for the engine's choice.
    pub udp_sport: u16,
    /// VLAN id. It has to be that of the own GID; `None` is outside VLANs.
    pub vlan: Option<u16>,
}

/// Selection of attributes. Bits as in enum `ibv_qp_attr_mask`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AttrMask(pub u32);

impl AttrMask {
    /// No attribute.
    pub const NONE: AttrMask = AttrMask(0);
    /// `state`
    pub const STATE: AttrMask = AttrMask(1 << 0);
    /// `cur_state`
    pub const CUR_STATE: AttrMask = AttrMask(1 << 1);
    /// `en_sqd_async_notify`
    pub const EN_SQD_ASYNC_NOTIFY: AttrMask = AttrMask(1 << 2);
    /// `access`
    pub const ACCESS_FLAGS: AttrMask = AttrMask(1 << 3);
    /// `pkey_index`
    pub const PKEY_INDEX: AttrMask = AttrMask(1 << 4);
    /// `port`
    pub const PORT: AttrMask = AttrMask(1 << 5);
    /// `qkey`
    pub const QKEY: AttrMask = AttrMask(1 << 6);
    /// The address vector: `sl`, and all fields from `sgid_index` on.
    pub const AV: AttrMask = AttrMask(1 << 7);
    /// `path_mtu`
    pub const PATH_MTU: AttrMask = AttrMask(1 << 8);
    /// `timeout`
    pub const TIMEOUT: AttrMask = AttrMask(1 << 9);
    /// `retry_cnt`
    pub const RETRY_CNT: AttrMask = AttrMask(1 << 10);
    /// `rnr_retry`
    pub const RNR_RETRY: AttrMask = AttrMask(1 << 11);
    /// `rq_psn`
    pub const RQ_PSN: AttrMask = AttrMask(1 << 12);
    /// `max_rd_atomic`
    pub const MAX_RD_ATOMIC: AttrMask = AttrMask(1 << 13);
    /// Alternate path: refused.
    pub const ALT_PATH: AttrMask = AttrMask(1 << 14);
    /// `min_rnr_timer`
    pub const MIN_RNR_TIMER: AttrMask = AttrMask(1 << 15);
    /// `sq_psn`
    pub const SQ_PSN: AttrMask = AttrMask(1 << 16);
    /// `max_dest_rd_atomic`
    pub const MAX_DEST_RD_ATOMIC: AttrMask = AttrMask(1 << 17);
    /// Path migration state: ignored.
    pub const PATH_MIG_STATE: AttrMask = AttrMask(1 << 18);
    /// Capabilities: refused.
    pub const CAP: AttrMask = AttrMask(1 << 19);
    /// `dest_qpn`
    pub const DEST_QPN: AttrMask = AttrMask(1 << 20);

    /// Whether this mask includes all of `mask`.
    pub const fn contains(self, mask: AttrMask) -> bool {
        self.0 & mask.0 == mask.0
    }

    /// Returns the union of both masks.
    #[must_use]
    pub const fn with(self, mask: AttrMask) -> AttrMask {
        AttrMask(self.0 | mask.0)
    }
}

impl BitOr for AttrMask {
    type Output = AttrMask;

    fn bitor(self, other: AttrMask) -> AttrMask {
        self.with(other)
    }
}
