//! Which requests of a send queue are sent, and answered. Pure state, without I/O.
//!
//! Requests go into the stream in order. One without an answer is complete then; those behind a
//! READ or an atomic wait for it in the queue. So the first request of the queue, if it is before
//! the cursor, is a READ or an atomic.

mod save;

use crate::collections::pool::At;
use crate::verbs::work::Work;
use vrdma_wire::iwarp::num::Msn;

/// The requester's state.
#[derive(Clone, Debug)]
pub(crate) struct RequesterState {
    /// The request that is sent next, or goes on; `None` if all have been sent.
    pub(crate) cursor: Option<At>,
    /// Its bytes that were sent.
    pub(crate) sent: u32,
    /// A part of it was sent.
    pub(crate) begun: bool,
    /// Requests of the queue before the cursor.
    behind: u32,
    /// READs and atomics among them,
    pub(crate) reads: u32,
    /// and the number of the first of these.
    first_answer: Msn,
    /// Bytes of the first request that were answered.
    pub(crate) answered: u32,
    /// Number of the next SEND or immediate data,
    pub(crate) send_msn: Msn,
    /// of the next READ or atomic,
    pub(crate) request_msn: Msn,
    /// and of the next response to an atomic.
    pub(crate) response_msn: Msn,
    /// The READ that tells the peer that it may send is not answered.
    pub(crate) ready_awaited: bool,
}

impl RequesterState {
    pub(crate) fn new() -> RequesterState {
        RequesterState {
            cursor: None,
            sent: 0,
            begun: false,
            behind: 0,
            reads: 0,
            first_answer: Msn::FIRST,
            answered: 0,
            send_msn: Msn::FIRST,
            request_msn: Msn::FIRST,
            response_msn: Msn::FIRST,
            ready_awaited: false,
        }
    }

    /// A request was added, at the queue's end.
    pub(crate) fn posted(&mut self, last: Option<At>) {
        if self.cursor.is_none() {
            self.cursor = last;
        }
    }

    /// Nothing more is sent, and nothing awaited.
    pub(crate) fn stop(&mut self) {
        *self = RequesterState::new();
    }

    /// Whether the request at the cursor is the first of the queue.
    pub(crate) fn cursor_is_first(&self) -> bool {
        self.behind == 0
    }

    /// Whether a request was sent and has not ended.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.begun || self.behind > 0
    }

    /// The name of the buffer for what the next READ returns, which says to which READ a response
    /// is: the peer but gives it back.
    pub(crate) fn next_token(&self) -> u32 {
        self.request_msn.0
    }

    /// The name that a response to the first request has.
    pub(crate) fn token(&self) -> u32 {
        self.first_answer.0
    }

    /// The READ that tells the peer that it may send was sent.
    pub(crate) fn ready_sent(&mut self) {
        self.ready_awaited = true;
        self.request_msn = self.request_msn.add(1);
        self.first_answer = self.request_msn;
    }

    /// READs and atomics that the peer has not answered: so many it keeps at a time (IRD), the one
    /// that tells it that it may send among them.
    pub(crate) fn unanswered(&self) -> u32 {
        self.reads + u32::from(self.ready_awaited)
    }

    /// The request at the cursor, `work`, was sent as a whole. `after` is the one after it.
    pub(crate) fn request_sent(&mut self, work: &Work<'_>, after: Option<At>) {
        (self.cursor, self.sent, self.begun) = (after, 0, false);
        self.behind += 1;
        if work.row.has_response() {
            self.reads += 1;
            self.request_msn = self.request_msn.add(1);
        }
    }

    /// The first request, at the cursor, ended without a message. `after` is the one after it.
    pub(crate) fn first_ended_alone(&mut self, after: Option<At>) {
        debug_assert!(self.cursor_is_first() && !self.begun, "all before it have ended");
        self.cursor = after;
    }

    /// The first request is answered.
    pub(crate) fn first_answered(&mut self) {
        self.reads -= 1;
        self.first_answer = self.first_answer.add(1);
        self.answered = 0;
    }

    /// The first request, which was sent, leaves the queue.
    pub(crate) fn first_ended(&mut self) {
        self.behind -= 1;
    }

    /// Whether the first request is complete, if it needs an answer or not.
    pub(crate) fn first_is_sent(&self) -> bool {
        self.behind > 0
    }
}
