//! Asynchronous events.

use vrdma_abi::event::EventKind;
use vrdma_transport::{CqId, Event};

/// A CQ has a new CQE. Its queue is that of the CQ's vector, so it is no [`AsyncEvent`].
pub const COMPLETION: EventKind = EventKind::COMPLETION;
/// Kinds of events that name a QP.
pub const OF_QP: [EventKind; 6] = [
    EventKind::QP_FATAL,
    EventKind::QP_REQ_ERR,
    EventKind::QP_ACCESS_ERR,
    EventKind::COMM_EST,
    EventKind::SQ_DRAINED,
    EventKind::QP_LAST_WQE_REACHED,
];
/// Kinds of events that name a shared receive queue.
pub const OF_SRQ: [EventKind; 2] = [EventKind::SRQ_LIMIT_REACHED, EventKind::SRQ_ERR];

/// Number of the port in events.
const PORT: u32 = 1;

/// An event as the driver is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// To which object.
    pub object: u32,
}

impl AsyncEvent {
    /// A CQ overran, or its memory is gone.
    pub fn cq_error(cq: CqId) -> AsyncEvent {
        AsyncEvent { kind: EventKind::CQ_ERR, object: cq.0 }
    }

    /// The channel of this virtqueue is broken.
    pub fn channel_error(queue: u16) -> AsyncEvent {
        AsyncEvent { kind: EventKind::CHANNEL_ERR, object: queue.into() }
    }

    /// Something happened to connections: the driver is to ask what.
    pub fn connections() -> AsyncEvent {
        AsyncEvent { kind: EventKind::CM, object: 0 }
    }

    /// The port went up or down.
    pub fn port(is_up: bool) -> AsyncEvent {
        AsyncEvent { kind: if is_up { EventKind::PORT_ACTIVE } else { EventKind::PORT_ERR }, object: PORT }
    }
}

impl From<Event> for AsyncEvent {
    fn from(event: Event) -> AsyncEvent {
        let (kind, object) = match event {
            Event::QpFatal(qpn) => (EventKind::QP_FATAL, qpn.number()),
            Event::QpRequestError(qpn) => (EventKind::QP_REQ_ERR, qpn.number()),
            Event::QpAccessError(qpn) => (EventKind::QP_ACCESS_ERR, qpn.number()),
            Event::CommEstablished(qpn) => (EventKind::COMM_EST, qpn.number()),
            Event::SqDrained(qpn) => (EventKind::SQ_DRAINED, qpn.number()),
            Event::LastWqeReached(qpn) => (EventKind::QP_LAST_WQE_REACHED, qpn.number()),
            Event::SrqLimitReached(srq) => (EventKind::SRQ_LIMIT_REACHED, srq.0),
            Event::SrqError(srq) => (EventKind::SRQ_ERR, srq.0),
        };
        AsyncEvent { kind, object }
    }
}
