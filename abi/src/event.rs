//! Entries of the event virtqueues.
//!
//! The driver keeps device-writable buffers of [`Event::SIZE`] bytes available. The device fills
//! one buffer per event. While there is no buffer, events wait in the device, at most one per
//! object and kind. So only repetitions are lost.
//!
//! # Driver requirements
//!
//! * Each buffer MUST have at least [`Event::SIZE`] device-writable bytes. The device gives a
//!   smaller one back unused.
//! * The driver SHOULD make a buffer available again as soon as it has read it.
//! * An event may name an object that was destroyed meanwhile. The driver MUST ignore such an
//!   event.
//!
//! # Device requirements
//!
//! * The device MUST NOT drop an event of an existing object, unless an event of that object and
//!   kind already waits.
//! * It MUST NOT raise an event of an object after it answered the command that destroyed the
//!   object.

use crate::layout::Item;
use zerocopy::little_endian::{U16, U32, U64};

/// Declarations for the C header.
pub const ITEMS: &[Item] = &[Item::Consts(EventKind::INFO), Item::Struct(Event::INFO)];

layout! {
    /// An event.
    pub struct Event = "vrdma_event" {
        /// `VRDMA_EVENT_*`.
        kind: U16,
        /// Written as zero.
        reserved0: U16,
        /// Number of the object: CQN, QPN, SRQN, virtqueue, or port.
        object: U32,
        /// Written as zero.
        reserved1: U64,
    }
}

open_enum! {
    /// [`Event::kind`]. Each entry begins with its object.
    pub enum EventKind: u16 = "VRDMA_EVENT" {
        /// CQN: an armed CQ has a new CQE. Only completion event queues have this kind, and they
        /// have no other.
        COMPLETION = 0,
        /// CQN: the CQ overran, or the ring's memory is gone (IBV_EVENT_CQ_ERR).
        CQ_ERR = 1,
        /// QPN: the QP went to ERR for a reason that no completion reports (IBV_EVENT_QP_FATAL).
        QP_FATAL = 2,
        /// QPN: the peer's request was invalid (IBV_EVENT_QP_REQ_ERR).
        QP_REQ_ERR = 3,
        /// QPN: the peer violated access rights (IBV_EVENT_QP_ACCESS_ERR).
        QP_ACCESS_ERR = 4,
        /// QPN: a message came in state RTR (IBV_EVENT_COMM_EST).
        COMM_EST = 5,
        /// QPN: the send queue is drained (IBV_EVENT_SQ_DRAINED).
        SQ_DRAINED = 6,
        /// SRQN: fewer receives are left than the limit that was armed
        /// (IBV_EVENT_SRQ_LIMIT_REACHED).
        SRQ_LIMIT_REACHED = 7,
        /// SRQN: a receive was malformed, or one too many was posted. The queue has no receives any
        /// more, and takes none (IBV_EVENT_SRQ_ERR).
        SRQ_ERR = 8,
        /// QPN: a QP with a shared receive queue is in ERR, and takes no more receives from the
        /// queue (IBV_EVENT_QP_LAST_WQE_REACHED).
        QP_LAST_WQE_REACHED = 9,
        /// Port 1 is up (IBV_EVENT_PORT_ACTIVE).
        PORT_ACTIVE = 16,
        /// Port 1 is down (IBV_EVENT_PORT_ERR).
        PORT_ERR = 17,
        /// 0: the device is lost until it is reset (IBV_EVENT_DEVICE_FATAL).
        DEVICE_FATAL = 18,
        /// Virtqueue number: the channel is broken (see [`crate::wqe`]) until it is bound again.
        CHANNEL_ERR = 19,
        /// 0: CM_GET_EVENT has an event to return. Transport iWARP only.
        CM = 20,
    }
}
