//! What the end of a segment means to the requester's QP: it was executed at the peer, or sent on
//! an unreliable service.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::service::ConnState;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// A segment of `work`, the first request, has ended: its PSNs, and if it was the last, the end
    /// of the request. True if it was.
    #[inline(always)]
    pub(crate) fn departed(&mut self, work: &Work<'_>, segment: &Segment<'_>) -> bool {
        let requester = &mut self.qp.requester;
        requester.acknowledged(segment);
        let count = segment.op.moved(self.counters, segment.length.into());
        if !segment.last {
            requester.started = true;
            return false;
        }
        *count += 1;
        requester.ended();
        self.end_send(work, WcStatus::Success);
        self.tell_if_drained();
        true
    }
}
