//! Work requests, as the caller posts them.

use crate::base::id::PdId;
use crate::verbs::op::SendOp;
use core::fmt;
use vrdma_wire::num::{Gid, Lkey, Mac, Qkey, Qpn};

/// A scatter/gather element. With length 0 it is nothing at all: its key is not looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// iova of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// Where a datagram goes: an address handle, and a QP there (ibv_create_ah(3), ibv_post_send(3)
/// `wr.ud`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Protection domain of the address handle, which has to be the QP's.
    pub pd: PdId,
    /// The receiver.
    pub qpn: Qpn,
    /// Q_Key of the receiver; with the highest bit set, the sender's own is used (IBTA 10.2.5).
    pub qkey: Qkey,
    /// GID of the receiver.
    pub dgid: Gid,
    /// MAC address that leads to it.
    pub dmac: Mac,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// Service level.
    pub sl: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label; the low 20 bits count.
    pub flow_label: u32,
    /// UDP source port, or 0 for the engine's choice.
    pub udp_sport: u16,
    /// VLAN id: that of the own GID; `None` outside VLANs.
    pub vlan: Option<u16>,
}

/// The local side of a send request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// The data themselves (of what goes out only: SEND, WRITE and ATOMIC WRITE). Copied before the
    /// post returns.
    Inline(&'a [u8]),
    /// Where the data are, or for READ and atomics go.
    Sges(&'a [Sge]),
}

impl Payload<'_> {
    /// Bytes of the message, as the request says.
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Payload::Inline(data) => data.len() as u64,
            // Most have one.
            Payload::Sges([sge]) => sge.length.into(),
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }
}

/// A request for a send queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion; no meaning here.
    pub id: u32,
    /// Complete on success too (errors always complete).
    pub signaled: bool,
    /// Ask the receiver for a solicited event.
    pub solicited: bool,
    /// Start after all READs and atomics before it are complete.
    pub fence: bool,
    /// What to do.
    pub op: SendOp,
    /// The local side.
    pub payload: Payload<'a>,
}

/// A request for a receive queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// Comes back in the completion; no meaning here.
    pub id: u32,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// Receives of one element each, to be posted one after the other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvList<'a> {
    ids: &'a [u32],
    sges: &'a [Sge],
}

impl<'a> RecvList<'a> {
    /// Receives with these ids ([`RecvRequest::id`]), each into the element of its place.
    ///
    /// # Panics
    /// If there are not as many of the one as of the other.
    #[inline]
    pub fn new(ids: &'a [u32], sges: &'a [Sge]) -> Self {
        assert_eq!(ids.len(), sges.len(), "each receive has an element");
        RecvList { ids, sges }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.ids.len() as u32
    }

    /// Each, with its element.
    #[inline]
    pub(crate) fn receives(self) -> impl Iterator<Item = (u32, &'a Sge)> {
        self.ids.iter().copied().zip(self.sges)
    }

    /// Each as a request of its own.
    pub(crate) fn requests(self) -> impl Iterator<Item = RecvRequest<'a>> {
        self.receives().map(|(id, sge)| RecvRequest { id, sges: core::slice::from_ref(sge) })
    }
}

/// A queue of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Its send queue.
    Send,
    /// Its receive queue.
    Recv,
}

/// Why a post was dropped: the request has ended, without a completion.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No such QP.
    NoSuchQp,
    /// No such shared receive queue.
    NoSuchSrq,
    /// The queue is another context's.
    NotOwner,
    /// The queue takes no such request in its state: a send in RESET, INIT or RTR, a receive in
    /// RESET or if the QP uses a shared queue, or anything if a shared queue failed.
    BadState,
    /// More requests than the queue holds: the QP went to ERR, with
    /// [`Event::QpFatal`](crate::Event::QpFatal), or the shared queue failed, with
    /// [`Event::SrqError`](crate::Event::SrqError).
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
