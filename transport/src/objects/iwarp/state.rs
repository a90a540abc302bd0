//! What a QP has whose peer is reached in a stream.

mod save;

use crate::base::place::Place;
use crate::collections::pool::List;
use crate::objects::iwarp::attr::{Role, StreamAttr};
use crate::objects::iwarp::input::Input;
use crate::objects::iwarp::requester_state::RequesterState;
use crate::objects::iwarp::responder_state::ResponderState;
use crate::objects::iwarp::stream::{Joined, Stream};
use vrdma_wire::iwarp::num::Msn;

/// What a QP has whose peer is reached in a stream.
pub(crate) struct RcTcp {
    pub(crate) stream: Stream,
    pub(crate) requester: RequesterState,
    pub(crate) responder: ResponderState,
    pub(crate) input: Input,
}

/// How far the stream to a QP is.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// FPDUs that were taken.
    pub(crate) taken: u64,
    /// The SEND that is next.
    pub(crate) send_msn: Msn,
    /// READs whose answers have not come: token of the first, and how many.
    pub(crate) reads: (u32, u32),
}

impl RcTcp {
    pub(crate) fn new(attr: &StreamAttr) -> RcTcp {
        let is_initiator = attr.role == Role::Initiator;
        let (own, peers) = if is_initiator { (attr.ready, None) } else { (None, attr.ready) };
        RcTcp {
            stream: Stream::new(attr.framing_out, attr.mss, is_initiator, own),
            requester: RequesterState::new(),
            responder: ResponderState::default(),
            input: Input::new(attr.framing_in, peers),
        }
    }

    /// A request was added to the end of `queue`.
    #[inline]
    pub(crate) fn posted(&mut self, queue: &List) {
        self.requester.posted(queue.tail());
    }

    /// The peer that is a QP of this engine, if it is one.
    pub(crate) fn joined(&self) -> Option<Joined> {
        self.stream.joined
    }

    /// From now on it is known that the peer is at this place; `number` is that of both ends.
    pub(crate) fn join(&mut self, peer: Place, number: u64) {
        self.stream.joined = Some(Joined { peer, number, whole: self.stream.fpdus, goes_on: false });
    }

    /// How far the stream from there is, if it is this one and nothing waits in it.
    pub(crate) fn progress_from(&self, peer: Place, number: u64) -> Option<Progress> {
        let joined = self.stream.joined.filter(|joined| joined.peer == peer && joined.number == number);
        let is_quiet = self.input.waiting.is_none() && !self.input.deframer.framing().markers;
        joined.filter(|_| is_quiet).map(|_| Progress {
            taken: self.input.fpdus,
            send_msn: self.input.send_msn,
            reads: (self.requester.token(), self.requester.reads),
        })
    }

    /// Nothing more goes into the stream for now.
    pub(crate) fn block(&mut self) {
        self.stream.block();
    }

    /// The QP goes to ERR: nothing is sent but a TERMINATE.
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

    /// Whether nothing that was begun is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let RcTcp { stream, requester, responder, .. } = self;
        !requester.is_outstanding() && responder.is_idle() && stream.terminate.is_none()
    }
}
