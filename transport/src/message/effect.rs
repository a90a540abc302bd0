//! Execution of an operation in the responder's memory, for all transport kinds.

use crate::base::inter_worker::PinnedRegion;
use crate::base::memory::{Fault, Region};
use crate::message::transfer::{
    Elements, Side, Span, TransferError, collect, copy, gather, may_be_used, scatter,
};
use crate::message::verdict::{Nak, Refusal, Rejection, Target};
use crate::objects::mr::Mrs;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Qp;
use crate::objects::receiver::Receiver;
use crate::verbs::completion::WcStatus;
use crate::verbs::op::{DataDirection, OF_RECEIVES, Receive, Row, SendOp};
use crate::verbs::request::{Payload, Sge};
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;
use core::sync::atomic::Ordering::{Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};

/// The requester's buffer of a segment.
pub(crate) enum LocalBuffer<'a, R> {
    /// The data, in a packet or inline. A value that an operation returns goes with the response.
    Bytes(&'a [u8]),
    /// The whole message, from this offset of a region on, for data in both directions. The range
    /// was checked.
    Region(&'a R, u64),
    /// Elements, for data in both directions.
    Memory(Elements<'a, R>, &'a [Sge]),
}

impl<R> Clone for LocalBuffer<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for LocalBuffer<'_, R> {}

impl<'a, R> LocalBuffer<'a, R> {
    /// Returns the buffer of a request whose next segment is about to be executed.
    ///
    /// Returns `None` if the buffer may not be used. All elements are checked before the first
    /// segment. Each is checked again when its bytes move, unless both happen at once.
    #[inline(always)]
    pub(crate) fn checked(
        mrs: &'a Mrs<R>,
        qp: &Qp,
        work: &Work<'_>,
        payload: Payload<'a>,
    ) -> Option<LocalBuffer<'a, R>> {
        match LocalBuffer::new(mrs, qp, payload, work.row) {
            LocalBuffer::Memory(elements, sges) if qp.requester.offset == 0 => match sges {
                [sge] if sge.length != 0 => {
                    elements.find(sge, 0, sge.length).map(|(region, at)| LocalBuffer::Region(region, at))
                }
                _ => elements.check(sges).then_some(LocalBuffer::Memory(elements, sges)),
            },
            buffer => Some(buffer),
        }
    }

    /// Returns the buffer of a request, whose operation has this row. Does not check it.
    #[inline(always)]
    pub(crate) fn new(
        mrs: &'a Mrs<R>,
        qp: &Qp,
        payload: Payload<'a>,
        row: &'static Row,
    ) -> LocalBuffer<'a, R> {
        match payload {
            Payload::Inline(data) => {
                debug_assert!(
                    row.data == DataDirection::Out,
                    "nothing comes back inline: such a post is invalid"
                );
                LocalBuffer::Bytes(data)
            }
            Payload::Sges(sges) => LocalBuffer::Memory(Elements { mrs, pd: qp.pd, rights: row.local }, sges),
        }
    }
}

/// Executes an accepted segment. Returns the value that an atomic found.
///
/// A READ in a packet is executed when it is answered.
#[inline(always)]
pub(crate) fn execute<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    target: Target<'_, R>,
    local: LocalBuffer<'_, R>,
    scratch: &mut Scratch,
) -> Result<Option<u64>, &'static Rejection> {
    let Some(there) = place(receiver, segment, target, scratch) else {
        if let SendOp::Flush { .. } = segment.op {
            // Guest memory belongs to this host, so what was written is already there. The fence
            // makes it visible to all processors before the answer is.
            fence(SeqCst);
        }
        return Ok(None);
    };
    let before = match *segment.op {
        SendOp::Send { .. } | SendOp::SendInvalidate { .. } | SendOp::Write { .. } => {
            let moved = match local {
                LocalBuffer::Bytes(data) => scatter(data, there),
                LocalBuffer::Region(region, at) => {
                    copy(Span::Flat(region, at + u64::from(segment.offset)), there, segment.length)
                }
                LocalBuffer::Memory(elements, sges) => {
                    copy(Span::of(elements, sges, segment.offset, segment.length), there, segment.length)
                }
            };
            return moved.map(|()| None).map_err(|error| rejection(segment.row, error, Side::Source));
        }
        SendOp::Read { .. } => {
            let here = match local {
                LocalBuffer::Bytes(_) => return Ok(None),
                LocalBuffer::Region(region, at) => Span::Flat(region, at + u64::from(segment.offset)),
                LocalBuffer::Memory(elements, sges) => {
                    Span::of(elements, sges, segment.offset, segment.length)
                }
            };
            let moved = copy(there, here, segment.length);
            return moved.map(|()| None).map_err(|error| rejection(segment.row, error, Side::Destination));
        }
        SendOp::Atomic { op, .. } => atomic(there, |word| op.execute(word))?,
        SendOp::AtomicWrite { .. } => {
            let value = word(local)?;
            // A processor that sees this value also sees what was written before (IBTA annex A19).
            return atomic(there, |word| word.store(value, Release)).map(|()| None);
        }
        SendOp::Flush { .. } => unreachable!("it has no bytes"),
        SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } | SendOp::RegMr { .. } => {
            unreachable!("no message comes of it")
        }
    };
    let here = match local {
        LocalBuffer::Bytes(_) => return Ok(Some(before)),
        LocalBuffer::Region(region, at) => Span::Flat(region, at),
        LocalBuffer::Memory(elements, sges) => Span::list(elements, sges, 0),
    };
    // The value has the byte order of guests, which is the host's.
    scatter(&before.to_ne_bytes(), here).map_err(|_| &Rejection::Source)?;
    Ok(Some(before))
}

/// Checks that the memory of a segment of a SEND or WRITE may be used.
///
/// The data were placed there out of order.
pub(crate) fn check_placed<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    target: Target<'_, R>,
    scratch: &mut Scratch,
) -> Result<(), &'static Rejection> {
    let Some(there) = place(receiver, segment, target, scratch) else { return Ok(()) };
    if may_be_used(there, segment.length) {
        return Ok(());
    }
    Err(rejection_of_memory(segment.row))
}

/// Executes an accepted segment of a SEND or WRITE whose data are in a pinned region of another
/// engine.
///
/// Returns `Rejection::Source` if the pinned region was revoked.
pub(crate) fn execute_pinned<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    target: Target<'_, R>,
    pinned: &dyn PinnedRegion<R>,
    scratch: &mut Scratch,
) -> Result<(), &'static Rejection> {
    let Some(there) = place(receiver, segment, target, scratch) else { return Ok(()) };
    collect(pinned, there, segment.length).map_err(|error| rejection(segment.row, error, Side::Source))
}

/// Returns the responder's memory for the bytes of an accepted segment, or `None` if there are no
/// bytes.
#[inline(always)]
fn place<'a, R>(
    receiver: &Receiver<'a, R>,
    segment: &Segment<'_>,
    target: Target<'a, R>,
    scratch: &'a mut Scratch,
) -> Option<Span<'a, R>> {
    let Receiver { mrs, requests, qp, .. } = *receiver;
    match target {
        Target::Nothing => None,
        Target::Region(region, offset) => Some(Span::Flat(region, offset)),
        Target::Receive(receive) => {
            let elements = Elements { mrs, pd: qp.pd_of_receives(), rights: OF_RECEIVES };
            let sges = requests.elements(receive, scratch);
            Some(Span::of(elements, sges, qp.responder.received, segment.length))
        }
    }
}

/// Returns the 8 bytes of an operation's data, in the byte order of guests, which is the host's.
fn word<R: Region>(local: LocalBuffer<'_, R>) -> Result<u64, &'static Rejection> {
    let mut bytes = [0; 8];
    match local {
        // The requester, and the responder's checks, have checked the length.
        LocalBuffer::Bytes(data) => bytes.copy_from_slice(data),
        LocalBuffer::Region(region, at) => {
            gather(Span::Flat(region, at), &mut bytes).map_err(|_| &Rejection::Source)?;
        }
        LocalBuffer::Memory(elements, sges) => {
            gather(Span::list(elements, sges, 0), &mut bytes).map_err(|_| &Rejection::Source)?;
        }
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Executes an atomic operation on the responder's 8 bytes.
fn atomic<R: Region, T>(
    remote: Span<'_, R>,
    operation: impl FnOnce(&AtomicU64) -> T,
) -> Result<T, &'static Rejection> {
    match remote {
        Span::Flat(region, offset) => region.with_word(offset, operation).map_err(|Fault| OPERATIONAL),
        Span::List(..) => Err(OPERATIONAL),
    }
}

/// The rejection of a segment whose memory may not be used. It ends no receive.
const OPERATIONAL: &Rejection = &Rejection::Memory(Refusal { nak: Nak::Operational, receive: None });

/// Returns the rejection for an error of a transfer. The requester's memory is on side `local`.
#[cold]
fn rejection(row: &Row, error: TransferError, local: Side) -> &'static Rejection {
    if error.side == local { &Rejection::Source } else { rejection_of_memory(row) }
}

/// Returns the rejection of a segment because the responder's memory may not be used.
#[cold]
fn rejection_of_memory(row: &Row) -> &'static Rejection {
    const OF_RECEIVE: &Rejection =
        &Rejection::Memory(Refusal { nak: Nak::Operational, receive: Some(WcStatus::LocProt) });
    if row.receive == Receive::Always { OF_RECEIVE } else { OPERATIONAL }
}
