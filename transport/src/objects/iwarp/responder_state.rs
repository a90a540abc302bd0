//! What the responder owes its peer. Pure state.

mod save;

use crate::base::id::PdId;
use std::collections::VecDeque;
use vrdma_wire::iwarp::num::Msn;
use vrdma_wire::iwarp::request::{AtomicResponse, ReadRequest};

/// A READ or an atomic that was accepted and is not answered in full.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Response {
    /// A READ: carried out when it is answered.
    Read {
        request: ReadRequest,
        /// Its number, which a TERMINATE gives back,
        msn: Msn,
        /// and the PD in which it came.
        pd: PdId,
    },
    /// An atomic, carried out.
    Atomic(AtomicResponse),
}

/// The responder's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponderState {
    /// In order; at most as many as the QP takes at once.
    pending: VecDeque<Response>,
    /// Bytes of the first that were sent.
    pub(crate) sent: u32,
    /// Responses to atomics so far.
    atomics: u32,
}

impl ResponderState {
    /// Whether it takes another READ or atomic if it takes so many at once.
    pub(crate) fn has_room(&self, most: u8) -> bool {
        self.pending.len() < usize::from(most)
    }

    /// A READ or an atomic is to be answered.
    pub(crate) fn respond(&mut self, response: Response) {
        self.pending.push_back(response);
    }

    /// What is to be answered next.
    pub(crate) fn first(&self) -> Option<Response> {
        self.pending.front().copied()
    }

    /// Number of the next response to an atomic.
    pub(crate) fn atomic_msn(&self) -> Msn {
        Msn::FIRST.add(self.atomics)
    }

    /// So many bytes of the first response were sent; `last`: all.
    pub(crate) fn response_sent(&mut self, bytes: u32, last: bool) {
        self.sent += bytes;
        if last {
            self.sent = 0;
            if let Some(Response::Atomic(_)) = self.pending.pop_front() {
                self.atomics = self.atomics.wrapping_add(1);
            }
        }
    }

    /// Nothing is answered any more.
    pub(crate) fn stop(&mut self) {
        self.pending.clear();
        self.sent = 0;
    }

    /// Whether nothing is to be answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}
