//! The parts of requests that packets carry.

use crate::base::memory::Region;
use crate::message::outlet::Pieces;
use crate::message::transfer::{Elements, Span};
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::objects::roce::packet::RequestSlice;
use crate::verbs::op::DataDirection;
use crate::verbs::request::Payload;
use crate::verbs::work::Work;

/// Returns which part of a request its next packet carries, after `sent` of its `psns` PSNs.
///
/// The part has at most `most` times the path MTU.
pub(super) fn next_slice(work: &Work<'_>, sent: u32, psns: u32, (mtu, most): (u32, u32)) -> RequestSlice {
    // Less than the message's length, which is within 2^31.
    let offset = sent * mtu;
    let rest = work.length.saturating_sub(offset);
    match work.row.data {
        DataDirection::Out => {
            let (first, count) = (sent == 0, most.min(psns - sent));
            let length = rest.min(count * mtu);
            RequestSlice { first, last: sent + count == psns, offset, length, psns: count }
        }
        // The request asks for everything that has not arrived.
        DataDirection::Back => {
            RequestSlice { first: true, last: true, offset, length: rest, psns: psns - sent }
        }
    }
}

/// Returns the payload of a packet, or `None` if the request's own memory may not be read.
pub(super) fn packet_payload<'a, R: Region>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
    slice: &RequestSlice,
) -> Option<Pieces<'a, R>> {
    let row = work.row;
    if row.data == DataDirection::Back {
        return Some(Pieces::bytes(&[]));
    }
    match payload {
        Payload::Inline(data) => {
            let from = slice.offset as usize;
            data.get(from..from + slice.length as usize).map(Pieces::bytes)
        }
        Payload::Sges(sges) => {
            let elements = Elements { mrs, pd: qp.pd, rights: row.local };
            Pieces::memory(Span::list(elements, sges, slice.offset), slice.length)
        }
    }
}
