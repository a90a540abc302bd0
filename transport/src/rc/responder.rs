//! The receiving half of a reliable connection: what to do with a segment, as a value (IBTA 9.7.4 and 9.9.3).

use crate::completion::WcStatus;
use crate::device::Device;
use crate::memory::Access;
use crate::pool::List;
use crate::qp::Qp;
use crate::qp::attr::{QpState, QpType};
use crate::rc::segment::{Cut, Segment};
use crate::request::RecvSlot;
use crate::work::{MAX_MESSAGE, Remote, SendOp};
use vrdma_wire::num::Psn;

/// A message that has begun and not ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum InProgress {
    Nothing,
    Send,
    Write,
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN expected next.
    pub(crate) psn: Psn,
    pub(crate) queue: List,
    /// Bytes that the message in progress has brought.
    pub(crate) received: u32,
    pub(crate) in_progress: InProgress,
    /// The peer was told that there is no receive.
    pub(crate) sender_waits: bool,
    /// The first message has come.
    pub(crate) established: bool,
    /// The QP's, here because this cache line has room.
    pub(crate) service: QpType,
}

/// What to do with a segment: carry it out, there, or not.
pub(crate) type Verdict<'a, R> = Result<Target<'a, R>, Objection>;

/// Why not to carry a segment out.
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

/// Why a segment is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Nobody here has the address.
    NoRoute,
    /// There is no such QP.
    NoQp,
    /// The QP is connected to another.
    NotConnected,
    /// The QP is not ready to receive.
    State,
    /// Not the PSN expected.
    Psn,
    /// The QP is of another service.
    Service,
    /// Not the QP's Q_Key.
    Qkey,
    /// There is no receive, and no way to tell.
    NoReceive,
    /// It is longer than the receive, and there is no way to tell.
    Length,
    /// It may not touch the memory that it names, and there is no way to tell.
    Access,
    /// It is not allowed or makes no sense, and there is no way to tell.
    Invalid,
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

impl Responder {
    pub(crate) fn new(service: QpType) -> Responder {
        Responder {
            psn: Psn::default(),
            queue: List::EMPTY,
            received: 0,
            in_progress: InProgress::Nothing,
            sender_waits: false,
            established: false,
            service,
        }
    }

    /// A segment was carried out.
    #[inline]
    pub(crate) fn accepted(&mut self, segment: &Segment<'_>) {
        self.psn = self.psn.add(segment.packets);
        let message = message_kind(segment.op);
        if message == InProgress::Nothing {
            return;
        }
        if segment.last {
            self.in_progress = InProgress::Nothing;
            self.received = 0;
        } else {
            self.in_progress = message;
            self.received += segment.length;
        }
    }
}

fn message_kind(op: &SendOp) -> InProgress {
    match op {
        SendOp::Send { .. } => InProgress::Send,
        SendOp::Write { .. } => InProgress::Write,
        SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => InProgress::Nothing,
    }
}

/// What the responder of `qp` does with a segment from its peer: the checks, in the order of IBTA 9.7.4.1.
#[inline]
pub(crate) fn verdict<'a, R>(device: &'a Device<R>, qp: &Qp, segment: &Segment<'_>) -> Verdict<'a, R> {
    check_state(qp)?;
    check_psn(qp, segment)?;
    check_sequence(qp, segment)?;
    check_lengths(qp, segment)?;
    check_operation(qp, segment)?;
    let receive = check_resources(device, qp, segment)?;
    match *segment.op {
        SendOp::Send { .. } => {
            let receive = receive.ok_or(Objection::Rnr)?;
            check_fits(qp, segment, receive)?;
            Ok(Target::Receive(receive))
        }
        SendOp::Write { remote, .. } => check_memory(device, qp, segment, remote, Access::REMOTE_WRITE),
        SendOp::Read { remote } => check_memory(device, qp, segment, remote, Access::REMOTE_READ),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            let target = check_memory(device, qp, segment, remote, Access::REMOTE_ATOMIC)?;
            if remote.addr.is_multiple_of(8) { Ok(target) } else { Err(nak(Nak::Invalid)) }
        }
    }
}

fn nak(nak: Nak) -> Objection {
    Objection::Nak(Refusal { nak, receive: None })
}

#[inline]
fn check_state(qp: &Qp) -> Result<(), Objection> {
    match qp.state {
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => Ok(()),
        QpState::Reset | QpState::Init | QpState::Err => Err(Objection::Drop(Reason::State)),
    }
}

#[inline]
fn check_psn(qp: &Qp, segment: &Segment<'_>) -> Result<(), Objection> {
    if segment.psn == qp.responder.psn { Ok(()) } else { Err(Objection::Drop(Reason::Psn)) }
}

/// Nothing but its continuation follows a message in progress, and a continuation follows nothing else (IBTA 9.7.4.1.2).
#[inline]
fn check_sequence(qp: &Qp, segment: &Segment<'_>) -> Result<(), Objection> {
    let message = message_kind(segment.op);
    let expected = if segment.first { InProgress::Nothing } else { message };
    if qp.responder.in_progress == expected { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

/// Packets have the lengths that the path MTU and their place in the message demand (IBTA 9.7.4.1.6); what both ends would not cut into
/// the same packets has wrong ones.
#[inline]
fn check_lengths(qp: &Qp, segment: &Segment<'_>) -> Result<(), Objection> {
    let mtu = qp.path_mtu;
    let right = match segment.cut {
        Cut::Stretch(theirs) => theirs == mtu || segment.message <= mtu.min(theirs).bytes(),
        Cut::Packet => packet_is_right(mtu.bytes(), segment),
    };
    if right { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

fn packet_is_right(mtu: u32, segment: &Segment<'_>) -> bool {
    let Segment { first, last, length, message, .. } = *segment;
    let so_far = u64::from(segment.offset) + u64::from(length);
    let size = match (first, last) {
        (_, false) => length == mtu,
        (false, true) => (1..=mtu).contains(&length),
        (true, true) => length <= mtu,
    };
    match *segment.op {
        SendOp::Send { .. } => size,
        SendOp::Write { .. } => {
            let total = if last { so_far == u64::from(message) } else { so_far < u64::from(message) };
            size && total && message <= MAX_MESSAGE
        }
        SendOp::Read { .. } => message <= MAX_MESSAGE,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => true,
    }
}

/// The QP lets its peer do this at all (IBTA 9.7.4.1.4).
#[inline]
fn check_operation(qp: &Qp, segment: &Segment<'_>) -> Result<(), Objection> {
    let right = match *segment.op {
        SendOp::Send { .. } => Access::NONE,
        SendOp::Write { .. } => Access::REMOTE_WRITE,
        SendOp::Read { .. } => Access::REMOTE_READ,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => Access::REMOTE_ATOMIC,
    };
    if qp.access().contains(right) { Ok(()) } else { Err(nak(Nak::Invalid)) }
}

/// There is a receive, if one is needed, or room for a READ or atomic (IBTA 9.7.4.1.5).
#[inline]
fn check_resources<'a, R>(
    device: &'a Device<R>,
    qp: &Qp,
    segment: &Segment<'_>,
) -> Result<Option<&'a RecvSlot>, Objection> {
    match *segment.op {
        SendOp::Send { .. } => {}
        SendOp::Write { imm: Some(_), .. } if segment.last => {}
        SendOp::Write { .. } => return Ok(None),
        SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
            return if qp.max_dest_rd_atomic > 0 { Ok(None) } else { Err(nak(Nak::Invalid)) };
        }
    }
    device.requests.front_receive(&qp.responder.queue).ok_or(Objection::Rnr).map(Some)
}

/// A SEND fits its receive (IBTA 9.7.4.1.6; the receive ends with a length error, the sender learns of an invalid request).
#[inline]
fn check_fits(qp: &Qp, segment: &Segment<'_>, receive: &RecvSlot) -> Result<(), Objection> {
    let needed = qp.responder.received.saturating_add(segment.length);
    if needed <= receive.length && needed <= MAX_MESSAGE {
        return Ok(());
    }
    Err(Objection::Nak(Refusal { nak: Nak::Invalid, receive: Some(WcStatus::LocLen) }))
}

/// Key, PD, range and rights for all that is left of the message (IBTA 9.7.4.1.7); none for no bytes.
#[inline]
fn check_memory<'a, R>(
    device: &'a Device<R>,
    qp: &Qp,
    segment: &Segment<'_>,
    remote: Remote,
    right: Access,
) -> Result<Target<'a, R>, Objection> {
    let rest = u64::from(segment.message - segment.offset);
    if rest == 0 {
        return Ok(Target::Nothing);
    }
    let found = remote
        .addr
        .checked_add(u64::from(segment.offset))
        .and_then(|addr| device.mrs.check(remote.rkey.0, qp.pd, right, addr, rest));
    match found {
        Some((region, offset)) => Ok(Target::Region(region, offset)),
        None => Err(nak(Nak::Access)),
    }
}
