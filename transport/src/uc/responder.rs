//! The receiving half of an unreliable connection.

use crate::completion::Sink;
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::message::reason::Reason;
use crate::message::segment::Segment;
use crate::message::verdict::{Nak, Objection, Receiver, Refusal, Target, verdict};
use crate::op::Message;
use crate::qp::responder::Responder;
use vrdma_wire::num::Psn;

/// Where an accepted segment takes place, or why it is dropped: the rules of reliable connections, but what they would answer with
/// a NAK is dropped here, and so is what they would have wait for a receive (IBTA 9.9.3, classes D and E).
#[inline]
pub(crate) fn accept<'a, R>(
    receiver: &Receiver<'a, R>,
    segment: &Segment<'_>,
) -> Result<Target<'a, R>, Reason> {
    // The rest of a message whose beginning was dropped.
    let lost = !segment.first && receiver.qp.responder.in_progress == Message::None;
    verdict(receiver, segment).map_err(|objection| match *objection {
        Objection::Drop(reason) => reason,
        Objection::Rnr => Reason::NoReceive,
        Objection::Nak(Refusal { receive: Some(_), .. }) => Reason::Length,
        Objection::Nak(Refusal { nak: Nak::Access, .. }) => Reason::Access,
        Objection::Nak(_) if lost => Reason::Psn,
        Objection::Nak(_) => Reason::Invalid,
    })
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// A segment is about to come: what a gap before it means (IBTA 9.8.2). A message begins anew, whatever came
    /// before; one that does not go on where it stopped has ended, and the receive that it was in takes the next.
    #[cold]
    pub(super) fn resync(&mut self, segment: &Segment<'_>) {
        if !self.qp.is_receiving() {
            return;
        }
        let gap = segment.psn != self.qp.responder.psn;
        self.counters.uc_gaps += u64::from(gap);
        if gap || segment.first {
            let is_cut_off = self.qp.responder.in_progress != Message::None;
            self.qp.responder.abandon(segment.psn);
            if is_cut_off {
                self.give_back();
            }
        }
    }

    /// A segment is dropped, and with it the rest of its message. `next` is expected then.
    #[cold]
    pub(super) fn drop_message(&mut self, reason: Reason, next: Psn) {
        self.counters.dropped(reason);
        self.qp.responder.abandon(next);
        self.give_back();
    }

    /// The memory of a segment could not be written, which is not its sender's fault: the QP goes to ERR (IBTA 9.9.3, class A).
    #[cold]
    pub(super) fn placement_failed(&mut self, refusal: Refusal) {
        match refusal.receive {
            Some(_) => self.receive_failed(),
            None => self.enter_fatal(),
        }
    }
}

impl Responder {
    /// Whether a segment is the one that is expected: no gap is before it, and no message is cut off by it.
    #[inline]
    pub(super) fn is_in_step(&self, segment: &Segment<'_>) -> bool {
        let goes_on = !segment.first || self.in_progress == Message::None && self.received == 0;
        segment.psn == self.psn && goes_on
    }

    /// The message in progress ends here, though its receive stays; `next` is expected.
    fn abandon(&mut self, next: Psn) {
        self.psn = next;
        self.received = 0;
        self.in_progress = Message::None;
    }
}
