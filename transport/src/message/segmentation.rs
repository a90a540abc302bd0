//! Choice of the next segment of a request, after a check whether the request can be sent.

use crate::message::effect::LocalBuffer;
use crate::message::transfer::Elements;
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::verbs::completion::WcStatus;
use crate::verbs::request::Payload;
use crate::verbs::segment::{Segment, Segmentation};
use crate::verbs::work::Work;

/// Checks whether a request can be sent. Returns the status with which it ends if not.
///
/// All elements are checked before anything is sent. Each is checked again when its bytes are sent.
#[inline]
pub(crate) fn check_request<R>(
    mrs: &Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<(), WcStatus> {
    check_work(qp, work)?;
    match payload {
        Payload::Sges(sges) if !(Elements { mrs, pd: qp.pd, rights: work.row.local }).check(sges) => {
            Err(WcStatus::LocProt)
        }
        _ => Ok(()),
    }
}

/// Checks whether a request can be sent, without its elements.
#[inline(always)]
pub(crate) fn check_work(qp: &Qp, work: &Work<'_>) -> Result<(), WcStatus> {
    match work.error {
        Some(status) => Err(status),
        None if work.row.has_response() && qp.max_rd_atomic == 0 => Err(WcStatus::LocQpOp),
        None => Ok(()),
    }
}

/// Returns the buffer of a request whose next segment is about to be sent, or the status with which
/// the request ends.
#[inline(always)]
pub(crate) fn local_buffer<'a, R>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
) -> Result<LocalBuffer<'a, R>, WcStatus> {
    check_work(qp, work)?;
    LocalBuffer::checked(mrs, qp, work, payload).ok_or(WcStatus::LocProt)
}

/// Returns the next segment of `work`, of at most `limit` bytes (a multiple of the path MTU).
///
/// Returns the status with which the request ends if it cannot be sent.
#[inline]
pub(crate) fn next_segment<'a, R>(
    mrs: &Mrs<R>,
    qp: &Qp,
    work: &Work<'a>,
    payload: Payload<'_>,
    limit: u32,
) -> Result<Segment<'a>, WcStatus> {
    check_begin(mrs, qp, work, payload)?;
    Ok(segment_of(qp, work, limit))
}

/// Checks a request by [`check_request`], if nothing of it was sent.
#[inline]
pub(crate) fn check_begin<R>(
    mrs: &Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<(), WcStatus> {
    if qp.requester.offset == 0 { check_request(mrs, qp, work, payload) } else { Ok(()) }
}

/// Returns the next segment of a request that was checked.
///
/// It is not in a `Result`, because unpacking that would cost a copy (see [`Work`]).
#[inline(always)]
pub(crate) fn segment_of<'a>(qp: &Qp, work: &Work<'a>, limit: u32) -> Segment<'a> {
    let first = qp.requester.offset == 0;
    let offset = qp.requester.offset;
    let rest = work.length.saturating_sub(offset);
    let length = rest.min(limit);
    let mtu = qp.path_mtu;
    let packets = work.row.psns_of_segment(mtu, first, length, work.length);
    Segment {
        op: work.op,
        row: work.row,
        solicited: work.flags.solicited(),
        first,
        last: length == rest,
        psn: qp.requester.psn,
        packets,
        offset,
        length,
        message: work.length,
        segmentation: Segmentation::Local(mtu),
    }
}
