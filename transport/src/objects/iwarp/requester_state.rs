//! The state of requests in a stream: which were sent, and which were answered. Pure state, without
//! I/O.
//!
//! Requests go into the stream in the order of the queue. A request that needs no answer is then
//! complete, but waits in the queue for a READ or an atomic before it. If the first request of the
//! queue is before the cursor, it therefore is a READ or an atomic.

mod save;

use crate::collections::pool::At;
use crate::verbs::work::Work;
use vrdma_wire::iwarp::num::Msn;

/// The requester's state.
#[derive(Clone, Debug)]
pub(crate) struct RequesterState {
    /// The request that is sent next, or continued; `None` if all have been sent.
    pub(crate) cursor: Option<At>,
    /// Bytes of that request that were sent.
    pub(crate) sent: u32,
    /// Whether a part of that request was sent.
    pub(crate) begun: bool,
    /// Number of requests in the queue before the cursor.
    behind: u32,
    /// Number of READs and atomics among them.
    pub(crate) reads: u32,
    /// Number of the first of these READs and atomics.
    first_answer: Msn,
    /// Bytes of the first request that were answered.
    pub(crate) answered: u32,
    /// Number of the next SEND or immediate data.
    pub(crate) send_msn: Msn,
    /// Number of the next READ or atomic.
    pub(crate) request_msn: Msn,
    /// Number of the next response to an atomic.
    pub(crate) response_msn: Msn,
    /// Whether the READ that allows the peer to send is still without an answer.
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

    /// Records a request that was added to the end of the queue.
    pub(crate) fn posted(&mut self, last: Option<At>) {
        if self.cursor.is_none() {
            self.cursor = last;
        }
    }

    /// Forgets all requests: nothing more is sent, and no answer expected.
    pub(crate) fn stop(&mut self) {
        *self = RequesterState::new();
    }

    /// Whether the request at the cursor is the first of the queue.
    pub(crate) fn cursor_is_first(&self) -> bool {
        self.behind == 0
    }

    /// Whether any request was sent, wholly or in part, and has not ended.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.begun || self.behind > 0
    }

    /// Returns the token of the next READ or atomic, by which its response is recognized.
    ///
    /// For a READ it is the STag of the buffer for the data. The peer only returns it.
    pub(crate) fn next_token(&self) -> u32 {
        self.request_msn.0
    }

    /// Returns the token that the response to the first request has.
    pub(crate) fn token(&self) -> u32 {
        self.first_answer.0
    }

    /// Records that the READ that allows the peer to send was sent.
    pub(crate) fn ready_sent(&mut self) {
        self.ready_awaited = true;
        self.request_msn = self.request_msn.add(1);
        self.first_answer = self.request_msn;
    }

    /// Returns the number of READs and atomics that the peer has not answered.
    ///
    /// The peer's limit for them is IRD. The READ that allows the peer to send is included.
    pub(crate) fn unanswered(&self) -> u32 {
        self.reads + u32::from(self.ready_awaited)
    }

    /// Records that `work`, the request at the cursor, was sent in full. `after` is the one behind
    /// it.
    pub(crate) fn request_sent(&mut self, work: &Work<'_>, after: Option<At>) {
        (self.cursor, self.sent, self.begun) = (after, 0, false);
        self.behind += 1;
        if work.row.has_response() {
            self.reads += 1;
            self.request_msn = self.request_msn.add(1);
        }
    }

    /// Records that the first request, at the cursor, ended without a message. `after` is the one
    /// behind it.
    pub(crate) fn first_ended_alone(&mut self, after: Option<At>) {
        debug_assert!(self.cursor_is_first() && !self.begun, "all before it have ended");
        self.cursor = after;
    }

    /// Records that the first request was answered.
    pub(crate) fn first_answered(&mut self) {
        self.reads -= 1;
        self.first_answer = self.first_answer.add(1);
        self.answered = 0;
    }

    /// Records that the first request, which was sent, leaves the queue.
    pub(crate) fn first_ended(&mut self) {
        self.behind -= 1;
    }

    /// Whether the first request was sent in full. It is then complete if it needs no answer.
    pub(crate) fn first_is_sent(&self) -> bool {
        self.behind > 0
    }
}
