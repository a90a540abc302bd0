//! Translates asynchronous events.

use vrdma_abi::event::EventKind;
use vrdma_transport::{CqId, Event};

/// A CQ has a new CQE. This goes to the event queue of the CQ's vector, so it is no [`AsyncEvent`].
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

/// The port number in events.
const PORT: u32 = 1;

/// An asynchronous event in the form the driver receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// Number of the object concerned.
    pub object: u32,
}

impl AsyncEvent {
    /// Makes the event for a CQ that overran, or whose memory is gone.
    pub fn cq_error(cq: CqId) -> AsyncEvent {
        AsyncEvent { kind: EventKind::CQ_ERR, object: cq.0 }
    }

    /// Makes the event for a broken channel, named by its virtqueue.
    pub fn channel_error(queue: u16) -> AsyncEvent {
        AsyncEvent { kind: EventKind::CHANNEL_ERR, object: queue.into() }
    }

    /// Makes the event that connections have news, which the driver has to fetch.
    pub fn connections() -> AsyncEvent {
        AsyncEvent { kind: EventKind::CM, object: 0 }
    }

    /// Makes the event that the device is lost until it is reset.
    pub fn device_lost() -> AsyncEvent {
        AsyncEvent { kind: EventKind::DEVICE_FATAL, object: 0 }
    }

    /// Makes the event that the port went up or down.
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
