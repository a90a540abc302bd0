//! What comes out of the engine: completions and events.

use crate::base::id::{CqId, DeviceId, SrqId};
use crate::verbs::op::WcOpcode;
use vrdma_wire::num::{Imm, Mac, Qpn, Rkey};

/// Where the engine's results go; passed in each call.
pub trait Sink {
    /// A request ended.
    fn complete(&mut self, device: DeviceId, cq: CqId, completion: &Completion);
    /// Something happened to an object of `device`.
    fn event(&mut self, device: DeviceId, event: Event);
}

/// For what completes nothing.
pub(crate) struct NoSink;

impl Sink for NoSink {
    fn complete(&mut self, _: DeviceId, _: CqId, _: &Completion) {
        unreachable!("lent only where nothing completes");
    }

    fn event(&mut self, _: DeviceId, _: Event) {
        unreachable!("lent only where nothing happens");
    }
}

/// The end of a request (ibv_poll_cq(3), struct ibv_wc).
///
/// No two fields lie side by side that may do so in what a sink makes of it: compilers load those
/// together, and to load together what was just stored one by one stalls until the processor's
/// store buffer has drained, which is full of lines that guests have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Completion {
    /// The request's.
    pub id: u32,
    /// Bytes received or read, 8 for atomics, 0 for others and unless successful.
    pub byte_len: u32,
    /// The own QP.
    pub qpn: Qpn,
    /// Immediate data (receives).
    pub imm: Option<Imm>,
    /// What the request was.
    pub opcode: WcOpcode,
    /// How it ended.
    pub status: WcStatus,
    /// The own key that the message invalidated (receives).
    pub invalidated: Option<Rkey>,
    /// The peer's QP (receives), else 0.
    pub src_qpn: Qpn,
    /// The sender asked for a solicited event (receives).
    pub solicited: bool,
    /// The shared queue that the receive was posted to, if it is one of XRC.
    pub srq: Option<SrqId>,
    /// How a datagram came (receives of UD QPs). The first 40 bytes of the receive hold its global
    /// route header then.
    pub arrival: Option<Arrival>,
}

/// What a datagram's Ethernet header said, beside the addresses in its global route header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Who sent the frame.
    pub smac: Mac,
    /// The VLAN that it was in.
    pub vlan: Option<u16>,
}

/// How a request ended (enum ibv_wc_status).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WcStatus {
    /// Successfully.
    Success,
    /// Local length error: the message is longer than 2^31 bytes or than the receive, or an atomic
    /// is not of 8 bytes.
    LocLen,
    /// Local QP operation error: a request that cannot be understood or is beyond the QP's
    /// capabilities.
    LocQpOp,
    /// Local protection error: a key, range or right of the request's own elements, or what a fast
    /// registration names is no memory.
    LocProt,
    /// Flushed: the QP was in ERR, or entered it.
    Flush,
    /// Memory window bind error: the window, its region, the rights or the range. Of a fast
    /// registration too (IBTA's memory management operation error): the region, its state, the
    /// rights, or the number or size of pages.
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

/// What happened to a QP or a shared receive queue (ibv_get_async_event(3)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An error that no completion tells of; the QP is in ERR.
    QpFatal(Qpn),
    /// A peer's request was invalid; the QP is in ERR.
    QpRequestError(Qpn),
    /// A peer's request violated access rights; the QP is in ERR.
    QpAccessError(Qpn),
    /// The first message came while the QP was in RTR.
    CommEstablished(Qpn),
    /// In state SQD, the send queue has drained.
    SqDrained(Qpn),
    /// A QP with a shared receive queue is in ERR, and takes no more receives from it.
    LastWqeReached(Qpn),
    /// Fewer receives are left than the limit that was armed; it is not armed any more.
    SrqLimitReached(SrqId),
    /// A receive was wrong, or one too many: the shared queue has none any more, and takes none.
    SrqError(SrqId),
}
