//! The state of a QP whose peer is reached by a stream.

mod save;

use crate::base::qp_ref::QpRef;
use crate::collections::pool::List;
use crate::objects::iwarp::attr::{Role, StreamAttr};
use crate::objects::iwarp::input::Input;
use crate::objects::iwarp::requester_state::StreamRequester;
use crate::objects::iwarp::responder_state::StreamResponder;
use crate::objects::iwarp::stream::{Loopback, Stream};
use vrdma_wire::iwarp::num::Msn;

/// The state of a QP whose peer is reached by a stream.
pub(crate) struct RcTcp {
    pub(crate) stream: Stream,
    pub(crate) requester: StreamRequester,
    pub(crate) responder: StreamResponder,
    pub(crate) input: Input,
}

/// The progress at the receiving end of a loopback connection.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// FPDUs that were taken.
    pub(crate) taken: u64,
    /// Number of the next SEND.
    pub(crate) send_msn: Msn,
    /// READs whose answers have not arrived: token of the first, and how many.
    pub(crate) reads: (u32, u32),
}

impl RcTcp {
    pub(crate) fn new(attr: &StreamAttr) -> RcTcp {
        let is_initiator = attr.role == Role::Initiator;
        let (own, peers) = if is_initiator { (attr.ready, None) } else { (None, attr.ready) };
        RcTcp {
            stream: Stream::new(attr.framing_out, attr.mss, is_initiator, own),
            requester: StreamRequester::new(),
            responder: StreamResponder::default(),
            input: Input::new(attr.framing_in, peers),
        }
    }

    /// Records a request that was added to the end of `queue`.
    #[inline]
    pub(crate) fn posted(&mut self, queue: &List) {
        self.requester.posted(queue.tail());
    }

    /// Returns the peer if this is a loopback connection, to a QP of this engine.
    pub(crate) fn joined(&self) -> Option<Loopback> {
        self.stream.joined
    }

    /// Makes this stream a loopback connection to `peer`. Both ends have the same `number`.
    pub(crate) fn join(&mut self, peer: QpRef, number: u64) {
        self.stream.joined = Some(Loopback { peer, number, whole: self.stream.fpdus, goes_on: false });
    }

    /// Returns the progress of the stream from `peer`.
    ///
    /// Returns `None` if this is not the loopback connection `number` to it, if a message waits, or
    /// if there are markers.
    pub(crate) fn progress_from(&self, peer: QpRef, number: u64) -> Option<Progress> {
        let joined = self.stream.joined.filter(|joined| joined.peer == peer && joined.number == number);
        let is_quiet = self.input.waiting.is_none() && !self.input.deframer.framing().markers;
        joined.filter(|_| is_quiet).map(|_| Progress {
            taken: self.input.fpdus,
            send_msn: self.input.send_msn,
            reads: (self.requester.token(), self.requester.reads),
        })
    }

    /// Sends nothing more into the stream for now.
    pub(crate) fn block(&mut self) {
        self.stream.block();
    }

    /// Stops all messages except a TERMINATE, because the QP goes to ERR.
    pub(crate) fn stop(&mut self) {
        self.stream.ready = None;
        self.requester.stop();
        self.responder.stop();
    }

    /// Whether there is a request to send now, if the QP's state allows it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        !self.stream.is_blocked() && (self.requester.cursor.is_some() || self.stream.ready.is_some())
    }

    /// Whether no request, response or TERMINATE is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let RcTcp { stream, requester, responder, .. } = self;
        !requester.is_outstanding() && responder.is_idle() && stream.terminate.is_none()
    }
}
