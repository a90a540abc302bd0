//! Updates the requester's QP when a segment has ended.
//!
//! A segment ends when the peer has executed it, or, on an unreliable service, when it was sent.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::service::ConnState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Records that a segment of `work`, the first request, has ended. Returns whether the request
    /// has ended.
    ///
    /// This advances the PSN. The last segment ends the request.
    #[inline(always)]
    pub(crate) fn departed(&mut self, work: &Work<'_>, segment: &Segment<'_>) -> bool {
        let requester = &mut self.qp.requester;
        requester.acknowledged(segment);
        segment.row.count_bytes(self.counters, segment.length.into());
        if !segment.last {
            requester.started = true;
            return false;
        }
        segment.row.count(self.counters);
        requester.ended();
        self.end_send(work, WcStatus::Success);
        self.tell_if_drained();
        true
    }
}
