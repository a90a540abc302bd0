//! Output of the engine: completions and events.

use crate::base::id::{CqId, DeviceId, SrqId};
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::verbs::attr::QpType;
use crate::verbs::mirror::Mirror;
use crate::verbs::op::WcOpcode;
use vrdma_wire::num::{Imm, Mac, Qpn, Rkey};

/// The receiver of the engine's output. Each call passes one.
pub trait Sink {
    /// Takes the completion of a request, for a CQ.
    fn complete(&mut self, device: DeviceId, cq: CqId, completion: &Completion);
    /// Takes an event of an object of `device`.
    fn event(&mut self, device: DeviceId, event: Event);

    /// Returns what takes the packets that messages within the engine would have been, if they are
    /// wanted.
    ///
    /// The engine asks for each segment that it has copied.
    #[inline(always)]
    fn mirror(&mut self) -> Option<&mut dyn Mirror> {
        None
    }

    /// Takes the end of a send that was watched ([`Engine::watch_last`](crate::Engine::watch_last))
    /// and succeeded. Its completion, if it has one, follows.
    ///
    /// The default is for sinks of callers that watch nothing.
    fn watched(&mut self, device: DeviceId, end: &WatchedEnd) {
        let _ = (device, end);
    }
}

/// The end of a watched send that succeeded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WatchedEnd {
    /// The service of its QP.
    pub service: QpType,
    /// The way of its QP's messages to the peer. It has no meaning for datagrams.
    pub transport: TransportKind,
    /// The time since when it was watched, as the caller told it.
    pub since: Instant,
}

/// A sink for calls that complete nothing.
pub(crate) struct NoSink;

impl Sink for NoSink {
    fn complete(&mut self, _: DeviceId, _: CqId, _: &Completion) {
        unreachable!("lent only where nothing completes");
    }

    fn event(&mut self, _: DeviceId, _: Event) {
        unreachable!("lent only where nothing happens");
    }
}

/// A completion: the end of a request (ibv_poll_cq(3), struct `ibv_wc`).
///
/// Fields that may be adjacent in what a sink makes of it are not adjacent here. Compilers would
/// load two such fields together. A load of values that were just stored one by one stalls until
/// the processor's store buffer has drained. The store buffer is full of cache lines shared with
/// guests.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Completion {
    /// The request's id.
    pub id: u32,
    /// Bytes received or read, or 8 for atomics. 0 for other requests, and unless successful.
    pub byte_len: u32,
    /// The QP of the request.
    pub qpn: Qpn,
    /// Immediate data (receives).
    pub imm: Option<Imm>,
    /// The operation of the request.
    pub opcode: WcOpcode,
    /// How it ended.
    pub status: WcStatus,
    /// The own key that the message invalidated (receives).
    pub invalidated: Option<Rkey>,
    /// The peer's QP (receives); 0 otherwise.
    pub src_qpn: Qpn,
    /// Whether the sender asked for a solicited event (receives).
    pub solicited: bool,
    /// The shared queue that the receive was posted to, if it is a queue of XRC.
    pub srq: Option<SrqId>,
    /// How a datagram arrived (receives of UD QPs).
    ///
    /// The first 40 bytes of the receive then hold its global route header.
    pub arrival: Option<Arrival>,
}

/// The Ethernet header of a datagram, without what its global route header already tells.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// MAC address of the sender.
    pub smac: Mac,
    /// VLAN of the frame.
    pub vlan: Option<u16>,
}

/// The status of a completion (enum `ibv_wc_status`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WcStatus {
    /// Success.
    Success,
    /// Local length error: the message is longer than 2^31 bytes or than the receive, or an atomic
    /// is not of 8 bytes.
    LocLen,
    /// Local QP operation error: the request cannot be parsed, or exceeds the QP's capabilities.
    LocQpOp,
    /// Local protection error: a key, range or right of the request's own elements. Also a fast
    /// registration of something that is no memory.
    LocProt,
    /// Flushed: the QP was in ERR, or entered it.
    Flush,
    /// Memory window bind error: the window, its region, the rights or the range.
    ///
    /// Also of a fast registration (IBTA's memory management operation error): the region, its
    /// state, the rights, or the number or size of pages.
    MwBind,
    /// Bad response of the peer.
    BadResp,
    /// Local access error.
    LocAccess,
    /// The peer refused the request as invalid.
    RemInvReq,
    /// The peer refused the access: key, range or right of its region.
    RemAccess,
    /// The peer failed to execute the request.
    RemOp,
    /// The peer did not answer.
    RetryExc,
    /// The peer posted no receive in time.
    RnrRetryExc,
    /// Anything else.
    General,
}

/// An asynchronous event of a QP or a shared receive queue (ibv_get_async_event(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An error that no completion reports. The QP is in ERR.
    QpFatal(Qpn),
    /// A peer's request was invalid. The QP is in ERR.
    QpRequestError(Qpn),
    /// A peer's request violated access rights. The QP is in ERR.
    QpAccessError(Qpn),
    /// The first message arrived while the QP was in RTR.
    CommEstablished(Qpn),
    /// The send queue has drained in state SQD.
    SqDrained(Qpn),
    /// A QP with a shared receive queue is in ERR, and takes no more receives from the queue.
    LastWqeReached(Qpn),
    /// Fewer receives are left than the armed limit. The limit is no longer armed.
    SrqLimitReached(SrqId),
    /// A receive was wrong, or one too many. The shared queue has lost its receives, and takes no
    /// more.
    SrqError(SrqId),
}
