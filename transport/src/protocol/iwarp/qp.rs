//! The view of a QP with its state as a connection in a stream.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::iwarp::state::RcTcp;
use crate::verbs::completion::Sink;

/// A reliable connection in a stream.
pub(crate) type StreamQp<'a, R, S> = QpCtx<'a, R, S, RcTcp>;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Schedules what waits for room, or for the end of a message of the other direction.
    pub(crate) fn try_stream_again(&mut self) {
        self.make_answer_due();
        self.make_ready();
    }
}
