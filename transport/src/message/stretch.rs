//! Which stretch of a request is next, and whether it can be sent at all.

use crate::message::effect::LocalBuffer;
use crate::message::transfer::Elements;
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::verbs::completion::WcStatus;
use crate::verbs::request::Payload;
use crate::verbs::segment::{Segment, Segmentation};
use crate::verbs::work::Work;

/// Whether a request can be sent at all, or how it ends. All elements are looked at before anything
/// leaves, and each again when its bytes do.
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

/// The same, but for its elements.
#[inline(always)]
pub(crate) fn check_work(qp: &Qp, work: &Work<'_>) -> Result<(), WcStatus> {
    match work.error {
        Some(status) => Err(status),
        None if work.row.has_response() && qp.max_rd_atomic == 0 => Err(WcStatus::LocQpOp),
        None => Ok(()),
    }
}

/// The buffer of a request whose next stretch is about to leave, or how it ends here.
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

/// The next stretch of `work`, of at most `limit` bytes (a multiple of every MTU), or how the
/// request ends here.
#[inline]
pub(crate) fn next_segment<'a, R>(
    mrs: &Mrs<R>,
    qp: &Qp,
    work: &Work<'a>,
    payload: Payload<'_>,
    limit: u32,
) -> Result<Segment<'a>, WcStatus> {
    check_begin(mrs, qp, work, payload)?;
    Ok(stretch(qp, work, limit))
}

/// [`check_request`] before the first stretch.
#[inline]
pub(crate) fn check_begin<R>(
    mrs: &Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<(), WcStatus> {
    if qp.requester.offset == 0 { check_request(mrs, qp, work, payload) } else { Ok(()) }
}

/// The next stretch of a request that was checked. By itself, and not in a `Result`: to take it out
/// of that costs a copy (see [`Work`]).
#[inline(always)]
pub(crate) fn stretch<'a>(qp: &Qp, work: &Work<'a>, limit: u32) -> Segment<'a> {
    let first = qp.requester.offset == 0;
    let offset = qp.requester.offset;
    let rest = work.length.saturating_sub(offset);
    let length = rest.min(limit);
    let mtu = qp.path_mtu;
    let packets = work.row.psns_of_stretch(mtu, first, length, work.length);
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
        segmentation: Segmentation::Stretch(mtu),
    }
}
