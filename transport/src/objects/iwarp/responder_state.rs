//! The state of answers that the responder owes its peer. Pure state, without I/O.

mod save;

use crate::base::id::PdId;
use std::collections::VecDeque;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::request::{AtomicResponse, ReadRequest};

/// A READ or an atomic that was accepted and is not fully answered.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Response {
    /// A READ, which is executed when it is answered.
    Read {
        request: ReadRequest,
        /// Its number, which a TERMINATE returns.
        msn: Msn,
        /// The PD in which it arrived.
        pd: PdId,
    },
    /// An atomic, which was executed.
    Atomic(AtomicResponse),
}

/// The responder's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponderState {
    /// Responses in order, at most as many as the QP takes at once.
    pending: VecDeque<Response>,
    /// Bytes of the first response that were sent.
    pub(crate) sent: u32,
    /// Number of responses to atomics so far.
    atomics: u32,
}

impl ResponderState {
    /// Whether it has room for another READ or atomic, if `most` may be pending.
    pub(crate) fn has_room(&self, most: u8) -> bool {
        self.pending.len() < usize::from(most)
    }

    /// Adds a response.
    pub(crate) fn respond(&mut self, response: Response) {
        self.pending.push_back(response);
    }

    /// Returns the response that is next.
    pub(crate) fn first(&self) -> Option<Response> {
        self.pending.front().copied()
    }

    /// Returns the number of the next response to an atomic.
    pub(crate) fn atomic_msn(&self) -> Msn {
        Msn::FIRST.add(self.atomics)
    }

    /// Records that `bytes` of the first response were sent. `last` is set if those were the last.
    pub(crate) fn response_sent(&mut self, bytes: u32, last: bool) {
        self.sent += bytes;
        if last {
            self.sent = 0;
            if let Some(Response::Atomic(_)) = self.pending.pop_front() {
                self.atomics = self.atomics.wrapping_add(1);
            }
        }
    }

    /// Forgets all responses.
    pub(crate) fn stop(&mut self) {
        self.pending.clear();
        self.sent = 0;
    }

    /// Whether no response is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}
