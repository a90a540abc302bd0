//! What an operation does to memory at its responder, whichever way it came.

use crate::completion::WcStatus;
use crate::memory::{Access, Fault, Region};
use crate::message::segment::Segment;
use crate::message::transfer::{Elements, Side, Span, Trouble, copy, scatter};
use crate::message::verdict::{Nak, Receiver, Refusal, Target};
use crate::mr::Mrs;
use crate::op::{Data, Receive, SendOp};
use crate::qp::Qp;
use crate::request::Scratch;
use crate::work::{Payload, Sge};

/// Why bytes did not arrive.
pub(crate) enum Failure {
    /// The requester's own doing.
    Local,
    /// The responder's.
    Remote(Refusal),
}

/// The requester's side of a segment.
pub(crate) enum Own<'a, R> {
    /// Its data, in a packet or inline. What an operation brings back goes with the response.
    Data(&'a [u8]),
    /// Its memory, for data in both directions.
    Memory(Elements<'a, R>, &'a [Sge]),
}

impl<'a, R> Own<'a, R> {
    /// Of a request of this QP.
    #[inline]
    pub(crate) fn new(mrs: &'a Mrs<R>, qp: &Qp, payload: Payload<'a>, segment: &Segment<'_>) -> Own<'a, R> {
        match payload {
            Payload::Inline(data) => {
                debug_assert!(
                    segment.op.row().data == Data::Out,
                    "nothing comes back inline: such a post is invalid"
                );
                Own::Data(data)
            }
            Payload::Sges(sges) => {
                let rights = segment.op.row().own;
                Own::Memory(Elements { mrs, pd: qp.pd, rights }, sges)
            }
        }
    }
}

/// Carries an accepted segment out; what an atomic found. Of a READ in a packet nothing is carried out until it is answered.
#[inline]
pub(crate) fn carry_out<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    target: Target<'_, R>,
    own: &Own<'_, R>,
    scratch: &mut Scratch,
) -> Result<Option<u64>, Failure> {
    let Some(there) = place(receiver, target, scratch) else { return Ok(None) };
    let before = match *segment.op {
        SendOp::Send { .. } | SendOp::Write { .. } => {
            let moved = match *own {
                Own::Data(data) => scatter(data, there),
                Own::Memory(elements, sges) => {
                    copy(Span::list(elements, sges, segment.offset), there, segment.length)
                }
            };
            return moved.map(|()| None).map_err(|trouble| failure(segment, trouble, Side::Source));
        }
        SendOp::Read { .. } => {
            let Own::Memory(elements, sges) = *own else { return Ok(None) };
            let moved = copy(there, Span::list(elements, sges, segment.offset), segment.length);
            return moved.map(|()| None).map_err(|trouble| failure(segment, trouble, Side::Destination));
        }
        SendOp::CompareSwap { compare, swap, .. } => {
            atomic(there, |region, offset| region.compare_swap(offset, compare, swap))?
        }
        SendOp::FetchAdd { add, .. } => atomic(there, |region, offset| region.fetch_add(offset, add))?,
    };
    if let Own::Memory(elements, sges) = *own {
        // In the byte order of guests, which is the host's.
        scatter(&before.to_ne_bytes(), Span::list(elements, sges, 0)).map_err(|_| Failure::Local)?;
    }
    Ok(Some(before))
}

/// Where the bytes of an accepted segment go, or come from; `None` if it has none.
#[inline]
fn place<'a, R>(
    receiver: &Receiver<'a, R>,
    target: Target<'a, R>,
    scratch: &'a mut Scratch,
) -> Option<Span<'a, R>> {
    let Receiver { mrs, requests, qp } = *receiver;
    match target {
        Target::Nothing => None,
        Target::Region(region, offset) => Some(Span::Flat(region, offset)),
        Target::Receive(receive) => {
            let elements = Elements { mrs, pd: qp.pd, rights: Access::LOCAL_WRITE };
            Some(Span::list(elements, requests.elements(receive, scratch), qp.responder.received))
        }
    }
}

/// Carries an atomic out; the value before.
fn atomic<R>(
    remote: Span<'_, R>,
    operation: impl FnOnce(&R, u64) -> Result<u64, Fault>,
) -> Result<u64, Failure> {
    let operational = Failure::Remote(Refusal { nak: Nak::Operational, receive: None });
    match remote {
        Span::Flat(region, offset) => operation(region, offset).map_err(|Fault| operational),
        Span::List(..) => Err(operational),
    }
}

/// Whose failure it is, when the requester's memory is on side `own`.
#[cold]
fn failure(segment: &Segment<'_>, trouble: Trouble, own: Side) -> Failure {
    if trouble.side == own {
        return Failure::Local;
    }
    let receive = (segment.op.row().receive == Receive::Always).then_some(WcStatus::LocProt);
    Failure::Remote(Refusal { nak: Nak::Operational, receive })
}
