//! Requests behind the first of a queue.

use super::{RecvSlot, Requests};
use crate::collections::pool::At;

impl Requests {
    /// The send behind another.
    #[inline]
    pub(crate) fn send_after(&self, at: At) -> Option<At> {
        self.sends.after(at)
    }

    /// Whether this send has a response.
    pub(crate) fn is_answered(&self, at: At) -> bool {
        self.sends.get(at).send.op.row().has_response()
    }

    /// The receive behind another.
    #[inline]
    pub(crate) fn receive_after(&self, at: At) -> Option<At> {
        self.receives.after(at)
    }

    /// An outstanding receive.
    pub(crate) fn receive_at(&self, at: At) -> &RecvSlot {
        self.receives.get(at)
    }
}
