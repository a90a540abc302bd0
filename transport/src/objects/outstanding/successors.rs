//! Access to requests behind the first of a queue.

use super::{RecvSlot, Requests};
use crate::collections::pool::At;

impl Requests {
    /// Returns the send behind a send.
    #[inline]
    pub(crate) fn send_after(&self, at: At) -> Option<At> {
        self.sends.after(at)
    }

    /// Whether a send has a response.
    pub(crate) fn is_answered(&self, at: At) -> bool {
        self.sends.get(at).send.op.row().has_response()
    }

    /// Returns the receive behind a receive.
    #[inline]
    pub(crate) fn receive_after(&self, at: At) -> Option<At> {
        self.receives.after(at)
    }

    /// Returns an outstanding receive.
    pub(crate) fn receive_at(&self, at: At) -> &RecvSlot {
        self.receives.get(at)
    }
}
