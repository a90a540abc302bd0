//! Carriers: how the messages of a connected QP get to its peer, and what each service keeps for it.
//!
//! A carrier takes the requests of the send queue from the cursor on, says what became of them, and keeps its own books of that (PSNs, windows,
//! deadlines). What a request does at the responder is none of its business: that is [`message`](crate::message)'s. The contract is
//! the methods of [`Service`] here, and for each service and carrier a turn ([`Engine::transmit`](crate::Engine::transmit) or
//! [`Engine::poll`](crate::Engine::poll)), a deadline, and what comes from the peer.

use crate::pool::List;
use crate::qp::Qp;
use crate::qp::attr::{QpState, QpType};
use crate::rc;
use crate::uc;
use vrdma_wire::num::Psn;

/// Which carrier the messages of a connected QP take: decided as it goes to RTR, and when its address vector changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Carrier {
    /// To a QP of this engine, without packets.
    Local,
    /// In packets of RoCEv2.
    Roce,
}

impl Carrier {
    /// Whether it is the port that gives turns.
    #[inline]
    pub(crate) fn needs_port(self) -> bool {
        self == Carrier::Roce
    }
}

/// A QP's service, with what its carrier keeps. [`Qp::carrier`] says the same where each message looks. (The small tag leaves it to
/// [`Qp`] to say whether there is a QP at all.)
#[repr(u8)]
pub(crate) enum Service {
    /// Reliable connection.
    Rc(Connection<rc::roce::Roce>),
    /// Unreliable connection.
    Uc(Connection<uc::roce::Roce>),
    /// Unreliable datagrams, which take their way one by one.
    Ud,
}

/// What the carrier of a connection keeps, `T` for RoCE.
pub(crate) enum Connection<T> {
    Local,
    Roce(Box<T>),
}

impl<T> Connection<T> {
    fn set(&mut self, carrier: Carrier, new: impl FnOnce() -> T) {
        match (carrier, &self) {
            (Carrier::Local, _) => *self = Connection::Local,
            (Carrier::Roce, Connection::Local) => *self = Connection::Roce(Box::new(new())),
            // Another address: what the peer may ask for again stays.
            (Carrier::Roce, Connection::Roce(_)) => {}
        }
    }
}

impl Service {
    pub(crate) fn new(qp_type: QpType) -> Service {
        match qp_type {
            QpType::Rc => Service::Rc(Connection::Local),
            QpType::Uc => Service::Uc(Connection::Local),
            QpType::Ud | QpType::Gsi => Service::Ud,
        }
    }

    /// The QP's messages take this carrier from now on; none of its requests is under way.
    pub(crate) fn set_carrier(&mut self, qp: &mut Qp, carrier: Carrier) {
        match self {
            Service::Rc(connection) => connection.set(carrier, || rc::roce::Roce::new(qp)),
            Service::Uc(connection) => connection.set(carrier, uc::roce::Roce::new),
            Service::Ud => return,
        }
        qp.carrier = carrier;
        self.start(qp.requester.psn, &qp.requester.queue);
    }

    /// The first request of `queue`, or the next to be posted, begins with `psn`; nothing of it was sent.
    pub(crate) fn start(&mut self, psn: Psn, queue: &List) {
        if let Service::Rc(Connection::Roce(roce)) = self {
            roce.start(psn, queue);
        }
    }

    /// A request was added to the end of the QP's send queue.
    #[inline]
    pub(crate) fn posted(&mut self, qp: &Qp) {
        if qp.carrier == Carrier::Roce
            && let Service::Rc(Connection::Roce(roce)) = self
        {
            roce.posted(&qp.requester.queue);
        }
    }

    /// Nothing more is sent: the QP goes to ERR. `psn` was to be the next.
    pub(crate) fn stop(&mut self, psn: Psn) {
        self.start(psn, &List::EMPTY);
    }

    /// What of `queue` was sent and is without an answer is to be sent again. False if the carrier has no such thing.
    pub(crate) fn send_again(&mut self, queue: &List) -> bool {
        match self {
            Service::Rc(Connection::Roce(roce)) => {
                roce.send_again(queue);
                true
            }
            Service::Rc(Connection::Local) | Service::Uc(_) | Service::Ud => false,
        }
    }

    /// The QP takes so many READs and atomics at once from now on.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        if let Service::Rc(Connection::Roce(roce)) = self {
            roce.resize(max_dest_rd_atomic);
        }
    }

    /// Whether there is a request to send, as far as the QP's state allows.
    #[inline]
    pub(crate) fn has_work(&self, qp: &Qp) -> bool {
        if qp.carrier == Carrier::Roce
            && let Service::Rc(Connection::Roce(roce)) = self
        {
            return roce.has_unsent() && matches!(qp.state, QpState::Rts | QpState::Sqd);
        }
        qp.can_send() && qp.requester.has_work()
    }

    /// What a reliable connection on RoCE keeps. Only its own code asks.
    #[inline]
    pub(crate) fn rc_roce(&mut self) -> &mut rc::roce::Roce {
        match self {
            Service::Rc(Connection::Roce(roce)) => roce,
            _ => unreachable!("turns, deadlines and packets of rc::roce are for its QPs alone"),
        }
    }

    /// What an unreliable connection on RoCE keeps. Only its own code asks.
    #[inline]
    pub(crate) fn uc_roce(&mut self) -> &mut uc::roce::Roce {
        match self {
            Service::Uc(Connection::Roce(roce)) => roce,
            _ => unreachable!("turns and packets of uc::roce are for its QPs alone"),
        }
    }
}
