//! A QP with its state as a connection in a stream.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::iwarp::state::RcTcp;
use crate::verbs::completion::Sink;

/// A reliable connection in a stream.
pub(crate) type StreamQp<'a, R, S> = QpCtx<'a, R, S, RcTcp>;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// What waits for room, or for a message of the other direction to end, is tried in its turn.
    pub(crate) fn try_stream_again(&mut self) {
        self.make_answer_due();
        self.make_ready();
    }
}
