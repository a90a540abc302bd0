//! The responder's checks of a segment (IBTA 9.7.4 and 9.9.3): rights, receives and lengths.
//!
//! The transport kind checks whether the segment is the expected one.

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

/// The result of the responder's checks of a segment: where to execute it, or why not.
///
/// The rejection is a reference, so that it is a whole word, as the parts of a target are. A word
/// that shares its place with smaller fields is stored in parts. Reading it at once would wait
/// until the parts are in the cache.
pub(crate) type Verdict<'a, R> = Result<Target<'a, R>, &'static Rejection>;

/// Why not to execute a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    /// The segment is dropped, as if it had not arrived.
    Dropped(Reason),
    /// The segment needs a receive, and there is none. The requester is told to wait (RNR).
    NoReceive,
    /// A check of the responder refuses the segment. The QP goes to ERR.
    Refused(Refusal),
    /// The responder's memory, or that of its receive, cannot be used. The QP goes to ERR.
    Memory(Refusal),
    /// The requester's memory cannot be read or written, or was revoked.
    ///
    /// This never happens to data in a packet, nor to data that were placed out of order.
    Source,
}

/// The responder's memory for an accepted segment.
pub(crate) enum Target<'a, R> {
    /// None: the segment has no bytes.
    Nothing,
    /// The first receive.
    Receive(&'a RecvSlot),
    /// A region, from an offset on.
    Region(&'a R, u64),
}

/// Why a segment is refused: what the requester is told, and how the receive ends here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) nak: Nak,
    /// The status with which the first receive ends, if the receive is at fault.
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
    /// Returns the status with which the requester's request ends.
    pub(crate) fn status(self) -> WcStatus {
        match self {
            Nak::Invalid => WcStatus::RemInvReq,
            Nak::Access => WcStatus::RemAccess,
            Nak::Operational => WcStatus::RemOp,
        }
    }
}

/// Checks a segment from the peer, in the order of IBTA 9.7.4.1.
#[inline(always)]
pub(crate) fn verdict<'a, R>(receiver: &Receiver<'a, R>, segment: &Segment<'_>) -> Verdict<'a, R> {
    let Receiver { mrs, qp, .. } = *receiver;
    let row = segment.row;
    if !qp.is_receiving() {
        return Err(&Rejection::Dropped(Reason::State));
    }
    check_sequence(qp, segment, row)?;
    check_lengths(qp, segment, row)?;
    // The QP must allow its peer this kind of operation (IBTA 9.7.4.1.4).
    if !qp.access().contains(row.remote) {
        return Err(nak(Nak::Invalid));
    }
    let receive = check_resources(receiver, segment, row)?;
    match segment.op.remote() {
        None => {
            let receive = receive.ok_or(&Rejection::NoReceive)?;
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

/// Returns where `length` bytes of a WRITE go that arrived out of order.
///
/// Returns `None` if the WRITE is not allowed at present. The segment still gets all checks
/// ([`verdict`]) in its turn.
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

/// Returns a NAK that ends no receive.
fn nak(nak: Nak) -> &'static Rejection {
    match nak {
        Nak::Invalid => &Rejection::Refused(Refusal { nak: Nak::Invalid, receive: None }),
        Nak::Access => &Rejection::Refused(Refusal { nak: Nak::Access, receive: None }),
        Nak::Operational => &Rejection::Refused(Refusal { nak: Nak::Operational, receive: None }),
    }
}

/// Checks the order of segments (IBTA 9.7.4.1.2).
///
/// Only its continuation may follow a message in progress. A continuation may follow nothing else.
#[inline(always)]
fn check_sequence(qp: &Qp, segment: &Segment<'_>, row: &Row) -> Result<(), &'static Rejection> {
    let expected = if segment.first { Message::None } else { row.message };
    if qp.responder.in_progress == expected { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

/// Checks lengths (IBTA 9.7.4.1.6).
///
/// Path MTU and position in the message determine the length of a packet. A longer segment is wrong
/// if both ends would not cut the message into the same packets.
#[inline(always)]
fn check_lengths(qp: &Qp, segment: &Segment<'_>, row: &Row) -> Result<(), &'static Rejection> {
    let mtu = qp.path_mtu;
    let right = match segment.segmentation {
        Segmentation::Local(theirs) => theirs == mtu || segment.message <= mtu.min(theirs).bytes(),
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
        // Such a message is one packet.
        Message::None => {
            let exact = row.length.is_none_or(|exact| message == exact);
            exact && message <= MAX_MESSAGE && (row.data == DataDirection::Back || length == message)
        }
    }
}

/// Checks that there is a receive, if one is needed (IBTA 9.7.4.1.5).
///
/// An operation with a response, such as a READ, is refused if the QP allows none.
#[inline(always)]
fn check_resources<'a, R>(
    receiver: &Receiver<'a, R>,
    segment: &Segment<'_>,
    row: &Row,
) -> Result<Option<&'a RecvSlot>, &'static Rejection> {
    if row.has_response() && receiver.qp.max_dest_rd_atomic == 0 {
        return Err(nak(Nak::Invalid));
    }
    if !segment.needs_receive() {
        return Ok(None);
    }
    receiver.receive().ok_or(&Rejection::NoReceive).map(Some)
}

/// Checks that a SEND fits its receive (IBTA 9.7.4.1.6).
///
/// If not, the receive ends with a length error, and the sender learns of an invalid request.
#[inline(always)]
fn check_fits(qp: &Qp, segment: &Segment<'_>, receive: &RecvSlot) -> Result<(), &'static Rejection> {
    let needed = qp.responder.received.saturating_add(segment.length);
    if needed <= receive.length && needed <= MAX_MESSAGE {
        return Ok(());
    }
    Err(&Rejection::Refused(Refusal { nak: Nak::Invalid, receive: Some(WcStatus::LocLen) }))
}

/// Checks that the peer may invalidate the key that a SEND names.
///
/// If not, the receive ends as an invalid request, as it does with rdma_rxe. The sender learns that
/// it had no access.
#[inline(always)]
fn check_invalidation<R>(mrs: &Mrs<R>, qp: &Qp, segment: &Segment<'_>) -> Result<(), &'static Rejection> {
    match segment.op.invalidates() {
        Some(key) if segment.last && !mrs.peer_may_invalidate(key, qp.holder()) => {
            Err(&Rejection::Refused(Refusal { nak: Nak::Access, receive: Some(WcStatus::RemInvReq) }))
        }
        _ => Ok(()),
    }
}

/// Checks key, PD, range and rights for the rest of the message (IBTA 9.7.4.1.7).
///
/// Without bytes nothing is checked.
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

/// Checks key, PD, range and rights of a FLUSH.
///
/// As with rdma_rxe, the key must be right even if the FLUSH covers no bytes.
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
