//! What a QP has whose peer is reached in a stream.

mod save;

use crate::pool::List;
use crate::rc::tcp::attr::{Role, StreamAttr};
use crate::rc::tcp::input::Input;
use crate::rc::tcp::requester_state::RequesterState;
use crate::rc::tcp::responder_state::ResponderState;
use crate::rc::tcp::stream::Stream;

/// What a QP has whose peer is reached in a stream.
pub(crate) struct RcTcp {
    pub(super) stream: Stream,
    pub(super) requester: RequesterState,
    pub(super) responder: ResponderState,
    pub(super) input: Input,
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
    pub(super) fn is_idle(&self) -> bool {
        let RcTcp { stream, requester, responder, .. } = self;
        !requester.is_outstanding() && responder.is_idle() && stream.terminate.is_none()
    }
}
