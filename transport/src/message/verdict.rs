//! What a responder does with a stretch of a message, as a value (IBTA 9.7.4 and 9.9.3): rights,
//! receives and lengths. Whether it is the one that is expected next is the carrier's business.

use crate::base::memory::Access;
use crate::objects::mr::Mrs;
use crate::objects::outstanding::RecvSlot;
use crate::objects::qp::Qp;
use crate::objects::receiver::Receiver;
use crate::verbs::completion::WcStatus;
use crate::verbs::op::{DataDirection, FlushScope, Message, Remote, Row, SendOp};
use crate::verbs::reason::Reason;
use crate::verbs::request::MAX_MESSAGE;
use crate::verbs::segment::{Segment, Segmentation};

/// What to do with a segment: execute it, there, or not. An objection comes by reference, a whole
/// word as the parts of a target are: words that share their place with smaller fields are stored
/// in parts, and to read one of these at once waits until its parts are in the cache.
pub(crate) type Verdict<'a, R> = Result<Target<'a, R>, &'static Objection>;

/// Why not to execute a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Objection {
    /// Tell the requester to wait for a receive.
    Rnr,
    /// Refuse it, and go to ERR.
    Nak(Refusal),
    /// Act as if it had not come.
    Drop(Reason),
}

/// Where an accepted segment takes place.
pub(crate) enum Target<'a, R> {
    /// Nowhere: it has no bytes.
    Nothing,
    /// In the first receive.
    Receive(&'a RecvSlot),
    /// In a region, from an offset on.
    Region(&'a R, u64),
}

/// Why a segment is refused, for the requester, and here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) nak: Nak,
    /// How the first receive ends because of it.
    pub(crate) receive: Option<WcStatus>,
}

/// Codes of NAKs (IBTA table 46) that end a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Nak {
    /// Invalid request.
    Invalid,
    /// Remote access error.
    Access,
    /// Remote operational error.
    Operational,
}

impl Nak {
    /// How the requester's request ends.
    pub(crate) fn status(self) -> WcStatus {
        match self {
            Nak::Invalid => WcStatus::RemInvReq,
            Nak::Access => WcStatus::RemAccess,
            Nak::Operational => WcStatus::RemOp,
        }
    }
}

/// What a responder does with a segment from its peer: the checks, in the order of IBTA 9.7.4.1.
#[inline(always)]
pub(crate) fn verdict<'a, R>(receiver: &Receiver<'a, R>, segment: &Segment<'_>) -> Verdict<'a, R> {
    let Receiver { mrs, qp, .. } = *receiver;
    let row = segment.row;
    if !qp.is_receiving() {
        return Err(&Objection::Drop(Reason::State));
    }
    check_sequence(qp, segment, row)?;
    check_lengths(qp, segment, row)?;
    // The QP lets its peer do this at all (IBTA 9.7.4.1.4).
    if !qp.access().contains(row.remote) {
        return Err(nak(Nak::Invalid));
    }
    let receive = check_resources(receiver, segment, row)?;
    match segment.op.remote() {
        None => {
            let receive = receive.ok_or(&Objection::Rnr)?;
            check_fits(qp, segment, receive)?;
            check_invalidation(mrs, qp, segment)?;
            Ok(Target::Receive(receive))
        }
        Some(remote) => {
            if let SendOp::Flush { scope, .. } = segment.op {
                return check_flush(mrs, qp, remote, scope, row.remote);
            }
            let target = check_memory(mrs, qp, segment, remote, row.remote)?;
            if remote.addr & row.unaligned == 0 { Ok(target) } else { Err(nak(Nak::Invalid)) }
        }
    }
}

/// Where so many bytes of a WRITE go that come before their turn; `None` if they may not, as things
/// are now. The verdict is still to be had in their turn.
pub(crate) fn placement<'a, R>(
    receiver: &Receiver<'a, R>,
    remote: Remote,
    length: u64,
) -> Option<(&'a R, u64)> {
    let Receiver { mrs, qp, .. } = *receiver;
    let right = SendOp::Write { remote, imm: None }.row().remote;
    let may_write = qp.is_receiving() && qp.access().contains(right);
    may_write.then(|| mrs.remote(remote.rkey, qp.holder(), right, remote.addr, length)).flatten()
}

/// A NAK that ends no receive.
fn nak(nak: Nak) -> &'static Objection {
    match nak {
        Nak::Invalid => &Objection::Nak(Refusal { nak: Nak::Invalid, receive: None }),
        Nak::Access => &Objection::Nak(Refusal { nak: Nak::Access, receive: None }),
        Nak::Operational => &Objection::Nak(Refusal { nak: Nak::Operational, receive: None }),
    }
}

/// Nothing but its continuation follows a message in progress, and a continuation follows nothing
/// else (IBTA 9.7.4.1.2).
#[inline(always)]
fn check_sequence(qp: &Qp, segment: &Segment<'_>, row: &Row) -> Result<(), &'static Objection> {
    let expected = if segment.first { Message::None } else { row.message };
    if qp.responder.in_progress == expected { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

/// Packets have the lengths that the path MTU and their place in the message demand (IBTA
/// 9.7.4.1.6); what both ends would not segment into the same packets has wrong ones.
#[inline(always)]
fn check_lengths(qp: &Qp, segment: &Segment<'_>, row: &Row) -> Result<(), &'static Objection> {
    let mtu = qp.path_mtu;
    let right = match segment.segmentation {
        Segmentation::Stretch(theirs) => theirs == mtu || segment.message <= mtu.min(theirs).bytes(),
        Segmentation::Packet => packet_is_right(mtu.bytes(), segment, row),
        Segmentation::Ddp => {
            let so_far = u64::from(qp.responder.received) + u64::from(segment.length);
            let exact = row.length.is_none_or(|exact| segment.message == exact);
            exact && segment.message <= MAX_MESSAGE && so_far <= u64::from(MAX_MESSAGE)
        }
    };
    if right { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

fn packet_is_right(mtu: u32, segment: &Segment<'_>, row: &Row) -> bool {
    let Segment { first, last, length, message, .. } = *segment;
    let so_far = u64::from(segment.offset) + u64::from(length);
    let size = match (first, last) {
        (_, false) => length == mtu,
        (false, true) => (1..=mtu).contains(&length),
        (true, true) => length <= mtu,
    };
    match row.message {
        Message::Send => size,
        Message::Write => {
            let total = if last { so_far == u64::from(message) } else { so_far < u64::from(message) };
            size && total && message <= MAX_MESSAGE
        }
        // What goes out in one packet is all of it.
        Message::None => {
            let exact = row.length.is_none_or(|exact| message == exact);
            exact && message <= MAX_MESSAGE && (row.data == DataDirection::Back || length == message)
        }
    }
}

/// There is a receive, if one is needed, or room for a READ or atomic (IBTA 9.7.4.1.5).
#[inline(always)]
fn check_resources<'a, R>(
    receiver: &Receiver<'a, R>,
    segment: &Segment<'_>,
    row: &Row,
) -> Result<Option<&'a RecvSlot>, &'static Objection> {
    if row.has_response() && receiver.qp.max_dest_rd_atomic == 0 {
        return Err(nak(Nak::Invalid));
    }
    if !segment.needs_receive() {
        return Ok(None);
    }
    receiver.receive().ok_or(&Objection::Rnr).map(Some)
}

/// A SEND fits its receive (IBTA 9.7.4.1.6; the receive ends with a length error, the sender learns
/// of an invalid request).
#[inline(always)]
fn check_fits(qp: &Qp, segment: &Segment<'_>, receive: &RecvSlot) -> Result<(), &'static Objection> {
    let needed = qp.responder.received.saturating_add(segment.length);
    if needed <= receive.length && needed <= MAX_MESSAGE {
        return Ok(());
    }
    Err(&Objection::Nak(Refusal { nak: Nak::Invalid, receive: Some(WcStatus::LocLen) }))
}

/// What a SEND is to invalidate is the peer's to invalidate. Else the receive ends as an invalid
/// request, as it does with rdma_rxe, and the sender learns that it had no access.
#[inline(always)]
fn check_invalidation<R>(mrs: &Mrs<R>, qp: &Qp, segment: &Segment<'_>) -> Result<(), &'static Objection> {
    match segment.op.invalidates() {
        Some(key) if segment.last && !mrs.peer_may_invalidate(key, qp.holder()) => {
            Err(&Objection::Nak(Refusal { nak: Nak::Access, receive: Some(WcStatus::RemInvReq) }))
        }
        _ => Ok(()),
    }
}

/// Key, PD, range and rights for all that is left of the message (IBTA 9.7.4.1.7); none for no
/// bytes.
#[inline(always)]
fn check_memory<'a, R>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    segment: &Segment<'_>,
    remote: Remote,
    right: Access,
) -> Verdict<'a, R> {
    let rest = u64::from(segment.message - segment.offset);
    if rest == 0 {
        return Ok(Target::Nothing);
    }
    let found = remote
        .addr
        .checked_add(u64::from(segment.offset))
        .and_then(|addr| mrs.remote(remote.rkey, qp.holder(), right, addr, rest));
    match found {
        Some((region, offset)) => Ok(Target::Region(region, offset)),
        None => Err(nak(Nak::Access)),
    }
}

/// The same of a FLUSH, whose key has to be right even if it is of no bytes, as with rdma_rxe.
fn check_flush<'a, R>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    remote: Remote,
    scope: &FlushScope,
    right: Access,
) -> Verdict<'a, R> {
    let allowed = match scope.whole {
        true => mrs.allows(remote.rkey, qp.holder(), right),
        false => mrs.remote(remote.rkey, qp.holder(), right, remote.addr, scope.length.into()).is_some(),
    };
    if allowed { Ok(Target::Nothing) } else { Err(nak(Nak::Access)) }
}
