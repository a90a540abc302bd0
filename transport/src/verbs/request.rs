//! Work requests, as the caller posts them.

use crate::base::id::PdId;
use crate::verbs::op::SendOp;
use core::fmt;
use vrdma_wire::num::{Gid, Lkey, Mac, Qkey, Qpn};

/// A scatter/gather element. With length 0 the engine ignores it, and does not check its key.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address (iova) of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// The destination of a datagram: an address handle, and a QP there (ibv_create_ah(3),
/// ibv_post_send(3) `wr.ud`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Protection domain of the address handle. It has to be the QP's.
    pub pd: PdId,
    /// QPN of the receiver.
    pub qpn: Qpn,
    /// Q_Key of the receiver. If its highest bit is set, the sender's own is used (IBTA 10.2.5).
    pub qkey: Qkey,
    /// GID of the receiver.
    pub dgid: Gid,
    /// MAC address that leads to the receiver.
    pub dmac: Mac,
    /// Index of the sender's own GID.
    pub sgid_index: u8,
    /// Service level.
    pub sl: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label. The low 20 bits count.
    pub flow_label: u32,
    /// UDP source port, or 0 for the engine's choice.
    pub udp_sport: u16,
    /// VLAN id. It has to be that of the own GID; `None` is outside VLANs.
    pub vlan: Option<u16>,
}

/// The local side of a send request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// The data themselves, copied before the post returns. Only for SEND, WRITE and ATOMIC WRITE.
    Inline(&'a [u8]),
    /// Source of the data, or their destination for READ and atomics.
    Sges(&'a [Sge]),
}

impl Payload<'_> {
    /// Returns the length of the message in bytes, as the request gives it.
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Payload::Inline(data) => data.len() as u64,
            // Most requests have one element.
            Payload::Sges([sge]) => sge.length.into(),
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }
}

/// A request for a send queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Returned in the completion. It has no meaning to the engine.
    pub id: u32,
    /// Whether to complete even on success. (Errors always complete.)
    pub signaled: bool,
    /// Whether to ask the receiver for a solicited event.
    pub solicited: bool,
    /// Whether to start only after all READs and atomics before it are complete.
    pub fence: bool,
    /// The operation.
    pub op: SendOp,
    /// The local side.
    pub payload: Payload<'a>,
}

/// A request for a receive queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// Returned in the completion. It has no meaning to the engine.
    pub id: u32,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// Receives of one element each, which are posted one after the other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvList<'a> {
    ids: &'a [u32],
    sges: &'a [Sge],
}

impl<'a> RecvList<'a> {
    /// Makes receives with these ids ([`RecvRequest::id`]), the n-th with the n-th element.
    ///
    /// # Panics
    /// If the numbers of ids and of elements differ.
    #[inline]
    pub fn new(ids: &'a [u32], sges: &'a [Sge]) -> Self {
        assert_eq!(ids.len(), sges.len(), "each receive has an element");
        RecvList { ids, sges }
    }

    /// Returns the number of receives.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.ids.len() as u32
    }

    /// Iterates over ids and elements.
    #[inline]
    pub(crate) fn receives(self) -> impl Iterator<Item = (u32, &'a Sge)> {
        self.ids.iter().copied().zip(self.sges)
    }

    /// Iterates over the receives as separate requests.
    pub(crate) fn requests(self) -> impl Iterator<Item = RecvRequest<'a>> {
        self.receives().map(|(id, sge)| RecvRequest { id, sges: core::slice::from_ref(sge) })
    }
}

/// One of the two queues of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Its send queue.
    Send,
    /// Its receive queue.
    Recv,
}

/// Why a post was dropped. The request has ended, without a completion.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The QP does not exist.
    NoSuchQp,
    /// The shared receive queue does not exist.
    NoSuchSrq,
    /// The queue belongs to another context.
    NotOwner,
    /// The queue's state does not allow the request.
    ///
    /// A send is refused in RESET, INIT or RTR, a receive in RESET or on a QP with a shared queue.
    /// A shared queue that failed refuses everything.
    BadState,
    /// The queue is full. The QP went to ERR, with [`Event::QpFatal`](crate::Event::QpFatal). A
    /// shared queue failed, with [`Event::SrqError`](crate::Event::SrqError).
    Overflow,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::NoSuchQp => "no such queue pair",
            PostError::NoSuchSrq => "no such shared receive queue",
            PostError::NotOwner => "another context's queue",
            PostError::BadState => "not in this state of the queue",
            PostError::Overflow => "queue overflow",
        })
    }
}

impl core::error::Error for PostError {}

/// Most elements of any request.
pub const MAX_SGE: usize = 32;
/// Most bytes of inline data of any request.
pub const MAX_INLINE: usize = 512;
/// Longest message: 2^31 bytes (IBTA 9.7.1).
pub const MAX_MESSAGE: u32 = 1 << 31;
