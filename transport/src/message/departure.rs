//! What it means to the requester's QP that a segment is done with: it was carried out at the peer, or left on an unreliable service.

use crate::completion::{Sink, WcStatus};
use crate::engine::turn::Turn;
use crate::memory::Region;
use crate::message::segment::Segment;
use crate::request::Work;

impl<R: Region, S: Sink> Turn<'_, R, S> {
    /// A segment of `work`, the first request, is done with: its PSNs, and if it was the last, the end of the request. True if it was.
    #[inline]
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
