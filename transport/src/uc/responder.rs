//! The receiving half of an unreliable connection.

use crate::completion::Sink;
use crate::device::Device;
use crate::engine::Engine;
use crate::memory::Region;
use crate::message::segment::Segment;
use crate::message::verdict::{Nak, Objection, Reason, Refusal, Target, verdict};
use crate::op::Message;
use crate::qp::Qp;
use crate::qp::responder::Responder;
use crate::schedule::Place;
use vrdma_wire::num::Psn;

/// Where an accepted segment takes place, or why it is dropped: the rules of reliable connections, but what they would answer with
/// a NAK is dropped here, and so is what they would have wait for a receive (IBTA 9.9.3, classes D and E).
#[inline]
pub(crate) fn accept<'a, R>(
    device: &'a Device<R>,
    qp: &Qp,
    segment: &Segment<'_>,
) -> Result<Target<'a, R>, Reason> {
    // The rest of a message whose beginning was dropped.
    let lost = !segment.first && qp.responder.in_progress == Message::None;
    verdict(device, qp, segment).map_err(|objection| match objection {
        Objection::Drop(reason) => reason,
        Objection::Rnr => Reason::NoReceive,
        Objection::Nak(Refusal { receive: Some(_), .. }) => Reason::Length,
        Objection::Nak(Refusal { nak: Nak::Access, .. }) => Reason::Access,
        Objection::Nak(_) if lost => Reason::Psn,
        Objection::Nak(_) => Reason::Invalid,
    })
}

impl<R: Region> Engine<R> {
    /// A segment is about to come to the QP at `place`: what a gap before it means (IBTA 9.8.2). A message begins anew, whatever came
    /// before; one that does not go on where it stopped has ended, and the receive that it was in takes the next.
    pub(crate) fn resync(&mut self, place: Place, segment: &Segment<'_>) {
        let Some(device) = self.devices.get_mut(place.device) else { return };
        let Some(qp) = device.qps.get_mut(place.qpn.number()) else { return };
        if !qp.is_receiving() {
            return;
        }
        let gap = segment.psn != qp.responder.psn;
        device.counters.uc_gaps += u64::from(gap);
        if gap || segment.first {
            qp.responder.abandon(segment.psn);
        }
    }

    /// A segment for the QP at `place` is dropped, and with it the rest of its message. `next` is expected then.
    #[cold]
    pub(crate) fn drop_message(&mut self, place: Place, reason: Reason, next: Psn) {
        self.devices.count_drop(place.device, reason);
        if let Some(qp) = self.devices.qp_mut(place) {
            qp.responder.abandon(next);
        }
    }

    /// The memory that a segment was to go to could not be written, which is not its sender's fault: the QP goes to ERR (IBTA 9.9.3, class A).
    #[cold]
    pub(crate) fn landing_failed(&mut self, place: Place, refusal: Refusal, sink: &mut impl Sink) {
        match refusal.receive {
            Some(_) => self.receive_failed(place, sink),
            None => self.enter_fatal(place, sink),
        }
    }
}

impl Responder {
    /// The message in progress ends here, though its receive stays; `next` is expected.
    fn abandon(&mut self, next: Psn) {
        self.psn = next;
        self.received = 0;
        self.in_progress = Message::None;
    }
}
