//! The responder of an unreliable connection.

use crate::base::memory::Region;
use crate::message::accept::{self, SegmentData};
use crate::message::ctx::QpCtx;
use crate::message::verdict::{Nak, Refusal, Rejection};
use crate::objects::outstanding::Scratch;
use crate::objects::receiver::Receiver;
use crate::objects::service::ConnState;
use crate::verbs::completion::Sink;
use crate::verbs::op::Message;
use crate::verbs::reason::Reason;
use crate::verbs::segment::Segment;
use vrdma_wire::num::Psn;

/// Why a segment of an unreliable connection was not executed.
pub(crate) enum UcRejection {
    /// The segment is dropped, and with it the rest of its message.
    Dropped(Reason),
    /// The responder's memory cannot be used.
    Memory(Refusal),
    /// The requester's memory cannot be used.
    Source,
}

/// Checks a segment and executes it.
///
/// The rules are those of reliable connections. A segment that would get a NAK there, or wait for a
/// receive, is dropped here (IBTA 9.9.3, classes D and E).
#[inline]
pub(crate) fn accept<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    data: SegmentData<'_, R>,
    scratch: &mut Scratch,
) -> Result<(), UcRejection> {
    // The segment continues a message whose beginning was dropped.
    let lost = !segment.first && receiver.qp.responder.in_progress == Message::None;
    let rejection = match accept::accept(receiver, segment, data, scratch) {
        Ok(_) => return Ok(()),
        Err(rejection) => rejection,
    };
    let reason = match *rejection {
        Rejection::Memory(refusal) => return Err(UcRejection::Memory(refusal)),
        Rejection::Source => return Err(UcRejection::Source),
        Rejection::Dropped(reason) => reason,
        Rejection::NoReceive => Reason::NoReceive,
        Rejection::Refused(Refusal { receive: Some(_), .. }) => Reason::Length,
        Rejection::Refused(Refusal { nak: Nak::Access, .. }) => Reason::Access,
        Rejection::Refused(_) if lost => Reason::Psn,
        Rejection::Refused(_) => Reason::Invalid,
    };
    Err(UcRejection::Dropped(reason))
}

/// Handles a gap before a segment that is about to be checked (IBTA 9.8.2).
///
/// A first segment always begins a new message. A message that is not continued where it stopped
/// has ended. Its receive takes the next message.
#[cold]
pub(crate) fn resync<R: Region, S: Sink, T: ConnState>(ctx: &mut QpCtx<'_, R, S, T>, segment: &Segment<'_>) {
    if !ctx.qp.is_receiving() {
        return;
    }
    let gap = segment.psn != ctx.qp.responder.psn;
    ctx.counters.uc_gaps += u64::from(gap);
    if gap || segment.first {
        let is_cut_off = ctx.qp.responder.in_progress != Message::None;
        ctx.qp.responder.abandon(segment.psn);
        if is_cut_off {
            ctx.give_back();
        }
    }
}

/// Drops a segment, and with it the rest of its message. `next` is the PSN that is expected then.
#[cold]
pub(crate) fn drop_message<R: Region, S: Sink, T: ConnState>(
    ctx: &mut QpCtx<'_, R, S, T>,
    reason: Reason,
    next: Psn,
) {
    ctx.counters.dropped(reason);
    ctx.qp.responder.abandon(next);
    ctx.give_back();
}

/// Takes the QP to ERR because the memory of a segment could not be written (IBTA 9.9.3, class A).
///
/// The sender is not at fault.
#[cold]
pub(crate) fn placement_failed<R: Region, S: Sink, T: ConnState>(
    ctx: &mut QpCtx<'_, R, S, T>,
    refusal: Refusal,
) {
    match refusal.receive {
        Some(_) => ctx.receive_failed(),
        None => ctx.enter_fatal(),
    }
}
