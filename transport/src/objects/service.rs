//! Transport kinds: how the messages of a connected QP get to its peer.
//!
//! A transport kind takes the requests of the send queue in order, and reports what became of them.
//! [`message`](crate::message) decides what a request does at the responder.
//!
//! Packets and streams have their own state, behind [`Service`]. For reliable connections it has
//! the outstanding PSNs, how many may be outstanding, and the deadline. For unreliable connections
//! it is the WRITE that the peer has begun. Between QPs of one engine nothing is outstanding. Their
//! state is that of every QP: the PSN, how much of the first request is done, and what it waits
//! for.
//!
//! Tasks of a transport kind, and the code that triggers them:
//!
//! | when | where |
//! |---|---|
//! | a QP is connected or connected again, starts, stops, sends again, has work | the methods of [`Service`] and [`ConnState`] |
//! | which transport kind the QP gets | `Engine::choose_transport` in `engine/wire.rs`; `Engine::connect_stream` in `engine/streams.rs` |
//! | a request is posted | [`Engine::post_send`](crate::Engine::post_send) in `engine/post.rs` executes it at once, if it can; [`Service::posted`] |
//! | a QP has its turn | `Engine::take_turn` in `engine/run.rs` for those that send no packets, `give_turns` in `engine/wire.rs` for the others |
//! | its deadline has come | `Engine::timed_out` in `engine/run.rs` |
//! | something comes from the peer | `Engine::deliver` in `engine/arrive.rs`, `Engine::handle_stream` in `engine/streams.rs` |
//! | the peer has a receive again | `Engine::wake_peer` in `engine/wake.rs` |
//! | the caller has drained the posts | `Engine::looked_for` in `engine/drains.rs` |

use crate::base::transport_kind::TransportKind;
use crate::collections::pool::List;
use crate::objects::iwarp::attr::StreamAttr;
use crate::objects::iwarp::state::RcTcp;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::roce::congestion::Congestion;
use crate::objects::roce::reorder::ReorderBuffer;
use crate::objects::roce::round_trip::Estimate;
use crate::objects::roce::selective::{Ahead, SelectiveRepeat};
use crate::objects::roce::state::RcRoce;
use crate::objects::uc::UcRoce;
use crate::save::{Violation, record};
use crate::verbs::attr::{QpState, QpType};
use core::time::Duration;
use vrdma_wire::num::Psn;

/// A QP's service, with its state on RoCE once that was its transport kind.
///
/// The state stays when the address vector changes, because the peer may continue what it had
/// begun. (The tag is one byte, so that the field with the most unused values is in [`Qp`]'s first
/// cache line.)
#[repr(u8)]
pub(crate) enum Service {
    /// Reliable connection, or half of one (XRC).
    Rc(Option<Box<RcRoce>>),
    /// Unreliable connection.
    Uc(Option<Box<UcRoce>>),
    /// Unreliable datagrams, which are routed one by one.
    Ud,
    /// Reliable connection in a stream, with its state. It stays until the QP is reset.
    Tcp(Box<RcTcp>),
}

impl Service {
    pub(crate) fn new(qp_type: QpType) -> Service {
        match qp_type {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => Service::Rc(None),
            QpType::Uc => Service::Uc(None),
            QpType::Ud | QpType::Gsi => Service::Ud,
        }
    }

    /// Returns the record of the state on RoCE.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> Option<record::Roce> {
        match self {
            Service::Rc(Some(roce)) => Some(roce.save(qp, requests)),
            Service::Uc(Some(roce)) => Some(roce.save()),
            Service::Rc(None) | Service::Uc(None) | Service::Ud | Service::Tcp(_) => None,
        }
    }

    /// Returns the record of the state in a stream.
    pub(crate) fn save_tcp(&self, qp: &Qp, requests: &Requests) -> Option<Box<record::Tcp>> {
        match self {
            Service::Tcp(tcp) => Some(Box::new(tcp.save(qp, requests))),
            Service::Rc(_) | Service::Uc(_) | Service::Ud => None,
        }
    }

    /// Restores the service, for a QP with its attributes, queues and transport kind.
    pub(crate) fn restore(record: &record::Qp, qp: &Qp, requests: &Requests) -> Result<Service, Violation> {
        if let Some(tcp) = &record.tcp {
            // A stream connects the QP until it is reset.
            let possible = matches!(qp.state, QpState::Rts | QpState::Sqd | QpState::Err);
            if qp.transport != TransportKind::Tcp
                || record.roce.is_some()
                || qp.service() != QpType::Rc
                || !possible
            {
                return Err(Violation::Carrier);
            }
            return Ok(Service::Tcp(Box::new(RcTcp::restore(tcp, qp, requests)?)));
        }
        if qp.transport == TransportKind::Tcp {
            return Err(Violation::Carrier);
        }
        // The transport kind is first chosen when the QP goes to RTR.
        let chosen = !matches!(qp.state, QpState::Reset | QpState::Init);
        match (&record.roce, qp.service()) {
            (None, qp_type) if qp.transport == TransportKind::Local => Ok(Service::new(qp_type)),
            (Some(record::Roce::Rc(roce)), service) if chosen && service.is_reliable() => {
                Ok(Service::Rc(Some(Box::new(RcRoce::restore(roce, qp, requests)?))))
            }
            (Some(record::Roce::Uc { write }), QpType::Uc) if chosen => {
                Ok(Service::Uc(Some(Box::new(UcRoce::restore(write)))))
            }
            _ => Err(Violation::Carrier),
        }
    }

    /// Sets the transport kind of a QP, none of whose requests is under way.
    pub(crate) fn set_transport(&mut self, qp: &mut Qp, transport: TransportKind) {
        qp.transport = transport;
        match self {
            Service::Rc(roce @ None) if transport == TransportKind::Roce => {
                *roce = Some(Box::new(RcRoce::new(qp)))
            }
            Service::Uc(roce @ None) if transport == TransportKind::Roce => {
                *roce = Some(Box::new(UcRoce::new()))
            }
            Service::Rc(_) | Service::Uc(_) => {}
            Service::Ud => unreachable!("a datagram QP has no transport kind"),
            Service::Tcp(_) => unreachable!("a stream stays until the QP is reset"),
        }
        self.start(qp.requester.psn, &qp.requester.queue);
    }

    /// Connects a QP by a stream. The QP has no connection so far.
    pub(crate) fn set_stream(&mut self, qp: &mut Qp, attr: &StreamAttr) {
        qp.transport = TransportKind::Tcp;
        *self = Service::Tcp(Box::new(RcTcp::new(attr)));
    }

    /// Sets the PSN of the first request of `queue`, or of the next request to be posted.
    ///
    /// Nothing of that request was sent.
    pub(crate) fn start(&mut self, psn: Psn, queue: &List) {
        if let Service::Rc(Some(roce)) = self {
            roce.start(psn, queue);
        }
    }

    /// Records a request that was added to the end of the QP's send queue.
    #[inline]
    pub(crate) fn posted(&mut self, qp: &Qp) {
        if !qp.transport.needs_port() {
            return;
        }
        match self {
            Service::Rc(Some(roce)) => roce.posted(&qp.requester.queue),
            Service::Tcp(tcp) => tcp.posted(&qp.requester.queue),
            Service::Rc(None) | Service::Uc(_) | Service::Ud => {}
        }
    }

    /// Retransmits everything outstanding. Returns false if the transport kind does not retransmit.
    pub(crate) fn send_again(&mut self, qp: &Qp) -> bool {
        match self {
            Service::Rc(Some(roce)) if qp.transport == TransportKind::Roce => {
                roce.send_again(qp.requester.psn, &qp.requester.queue);
                true
            }
            Service::Rc(_) | Service::Uc(_) | Service::Ud | Service::Tcp(_) => false,
        }
    }

    /// Returns the smoothed round-trip time of a reliable connection on RoCE, once it is known.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        match self {
            Service::Rc(Some(roce)) => roce.round_trip.estimate().map(Estimate::srtt),
            Service::Rc(None) | Service::Uc(_) | Service::Ud | Service::Tcp(_) => None,
        }
    }

    /// Whether the peer holds what comes ahead of a gap, if it has shown that.
    pub(crate) fn peer_holds(&self) -> Option<bool> {
        let Service::Rc(Some(roce)) = self else { return None };
        match roce.selective.ahead {
            Ahead::Unknown => None,
            Ahead::Held => Some(true),
            Ahead::Dropped => Some(false),
        }
    }

    /// Returns the memory in bytes of packets that are held ahead of missing ones.
    pub(crate) fn held_bytes(&self) -> u64 {
        let Service::Rc(Some(roce)) = self else { return 0 };
        let requests = roce.reorder.as_ref().map_or(0, |buffer| buffer.held().bytes);
        requests + roce.early.as_ref().map_or(0, |early| early.bytes())
    }

    /// Sets how many READs and atomics the QP takes at once.
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        if let Service::Rc(Some(roce)) = self {
            roce.resize(max_dest_rd_atomic);
        }
    }

    /// Returns the buffer of requests that came ahead of a gap, if the QP has had any.
    pub(crate) fn held_early(&self) -> Option<&ReorderBuffer> {
        match self {
            Service::Rc(Some(roce)) => roce.reorder.as_deref(),
            Service::Rc(None) | Service::Uc(_) | Service::Ud | Service::Tcp(_) => None,
        }
    }

    /// Returns the state of a reliable connection on RoCE. Only code of that transport kind calls
    /// it.
    #[inline]
    pub(crate) fn rc_roce(&mut self) -> &mut RcRoce {
        match self {
            Service::Rc(Some(roce)) => roce,
            _ => unreachable!("only a QP on RoCE is asked"),
        }
    }

    /// Returns what a reliable connection on RoCE knows of congestion.
    pub(crate) fn congestion(&self) -> Option<&Congestion> {
        match self {
            Service::Rc(Some(roce)) => roce.congestion.as_deref(),
            _ => None,
        }
    }

    /// Forgets what was known of the path and the peer. They are others now.
    pub(crate) fn forget_peer(&mut self) {
        if let Service::Rc(Some(roce)) = self {
            roce.congestion = None;
            (roce.selective, roce.losses) = (SelectiveRepeat::default(), None);
            roce.requester.is_new = true;
        }
    }

    /// Returns the state of a connection in a stream. Only code of that transport kind calls it.
    #[inline]
    pub(crate) fn tcp(&mut self) -> &mut RcTcp {
        match self {
            Service::Tcp(tcp) => tcp,
            _ => unreachable!("only a QP in a stream is asked"),
        }
    }

    /// Returns the state of an unreliable connection on RoCE. Only code of that transport kind
    /// calls it.
    #[inline]
    pub(crate) fn uc_roce(&mut self) -> &mut UcRoce {
        match self {
            Service::Uc(Some(roce)) => roce,
            _ => unreachable!("only a QP on RoCE is asked"),
        }
    }
}

/// Methods of the state of a connection that all transport kinds have.
pub(crate) trait ConnState {
    /// Sends nothing more, because the QP goes to ERR. `psn` was to be the next one.
    fn stop(&mut self, psn: Psn);

    /// Whether there is a request to send, if the QP's state allows it.
    fn has_work(&self, qp: &Qp) -> bool;

    /// Returns the buffer of requests that came ahead of a gap, if the QP has had any.
    fn reorder(&mut self) -> Option<&mut ReorderBuffer> {
        None
    }
}

/// Whether the QP's first request may be sent, and waits for nothing.
#[inline]
fn may_send_first(qp: &Qp) -> bool {
    qp.can_send() && qp.requester.has_work()
}

/// Whether the QP may send what it has not sent so far.
#[inline]
fn may_send_rest(qp: &Qp) -> bool {
    matches!(qp.state, QpState::Rts | QpState::Sqd)
}

impl ConnState for RcRoce {
    fn stop(&mut self, psn: Psn) {
        self.start(psn, &List::EMPTY);
    }

    fn reorder(&mut self) -> Option<&mut ReorderBuffer> {
        self.reorder.as_deref_mut()
    }

    #[inline]
    fn has_work(&self, qp: &Qp) -> bool {
        self.has_unsent() && may_send_rest(qp)
    }
}

impl ConnState for UcRoce {
    fn stop(&mut self, _: Psn) {}

    #[inline]
    fn has_work(&self, qp: &Qp) -> bool {
        may_send_first(qp)
    }
}

impl ConnState for RcTcp {
    fn stop(&mut self, _: Psn) {
        self.stop();
    }

    #[inline]
    fn has_work(&self, qp: &Qp) -> bool {
        self.has_unsent() && may_send_rest(qp)
    }
}

impl ConnState for Service {
    fn stop(&mut self, psn: Psn) {
        match self {
            Service::Rc(Some(roce)) => ConnState::stop(&mut **roce, psn),
            Service::Tcp(tcp) => ConnState::stop(&mut **tcp, psn),
            Service::Rc(None) | Service::Uc(_) | Service::Ud => {}
        }
    }

    fn reorder(&mut self) -> Option<&mut ReorderBuffer> {
        match self {
            Service::Rc(Some(roce)) => roce.reorder.as_deref_mut(),
            Service::Rc(None) | Service::Uc(_) | Service::Ud | Service::Tcp(_) => None,
        }
    }

    #[inline]
    fn has_work(&self, qp: &Qp) -> bool {
        match self {
            Service::Rc(Some(roce)) if qp.transport.needs_port() => roce.has_work(qp),
            Service::Tcp(tcp) if qp.transport.needs_port() => tcp.has_work(qp),
            Service::Rc(_) | Service::Uc(_) | Service::Ud | Service::Tcp(_) => may_send_first(qp),
        }
    }
}
