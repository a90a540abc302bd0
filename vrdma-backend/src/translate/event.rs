//! Asynchronous events.

use vrdma_abi::event::EventKind;
use vrdma_transport::{CqId, Event};

/// A CQ has a new CQE. Its queue is that of the CQ's vector, so it is no [`AsyncEvent`].
pub const COMPLETION: EventKind = EventKind::COMPLETION;
/// Kinds of events that name a QP.
pub const OF_QP: [EventKind; 5] = [
    EventKind::QP_FATAL,
    EventKind::QP_REQ_ERR,
    EventKind::QP_ACCESS_ERR,
    EventKind::COMM_EST,
    EventKind::SQ_DRAINED,
];

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

    /// The port went up or down.
    pub fn port(is_up: bool) -> AsyncEvent {
        AsyncEvent { kind: if is_up { EventKind::PORT_ACTIVE } else { EventKind::PORT_ERR }, object: PORT }
    }
}

impl From<Event> for AsyncEvent {
    fn from(event: Event) -> AsyncEvent {
        let (kind, qpn) = match event {
            Event::QpFatal(qpn) => (EventKind::QP_FATAL, qpn),
            Event::QpRequestError(qpn) => (EventKind::QP_REQ_ERR, qpn),
            Event::QpAccessError(qpn) => (EventKind::QP_ACCESS_ERR, qpn),
            Event::CommEstablished(qpn) => (EventKind::COMM_EST, qpn),
            Event::SqDrained(qpn) => (EventKind::SQ_DRAINED, qpn),
        };
        AsyncEvent { kind, object: qpn.number() }
    }
}
