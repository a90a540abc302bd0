//! A send request without its payload: as it is executed, and as its queue holds it.

use crate::verbs::attr::QpType;
use crate::verbs::caps::Caps;
use crate::verbs::completion::{Completion, WcStatus};
use crate::verbs::op::{DataDirection, Row, SendOp};
use crate::verbs::request::{MAX_MESSAGE, Payload, SendRequest};
use vrdma_wire::num::{Qpn, Srqn};

/// A send request without its payload, as it is executed.
///
/// The operation stays where the caller wrote it. The fields of the enum were just stored one by
/// one, and a copy would load them together. Such a load stalls until the processor's store buffer
/// has drained. Here the store buffer is full of cache lines shared with guests.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) op: &'a SendOp,
    /// The row of `op`.
    pub(crate) row: &'static Row,
    pub(crate) id: u32,
    /// Length of the message in bytes, at most [`MAX_MESSAGE`] unless `error` is set.
    pub(crate) length: u32,
    /// The status with which the request will end, if it is broken.
    pub(crate) error: Option<WcStatus>,
    pub(crate) flags: Flags,
    /// The peer's shared receive queue. Set for requests of an XRC initiator that go to the peer.
    pub(crate) srqn: Option<Srqn>,
}

/// Options of a request beside its operation.
///
/// They are in one byte. Compilers copy bytes by loading them together, and bytes that were just
/// stored one by one must not be loaded together (see [`Work`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flags(u8);

impl Flags {
    const SIGNALED: u8 = 1 << 0;
    const SOLICITED: u8 = 1 << 1;
    const FENCE: u8 = 1 << 2;
    const WATCHED: u8 = 1 << 3;

    /// Makes the flags of a request that is not watched.
    #[inline]
    pub(crate) fn new(signaled: bool, solicited: bool, fence: bool) -> Flags {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let two = flag(signaled, Self::SIGNALED) | flag(solicited, Self::SOLICITED);
        Flags(two | flag(fence, Self::FENCE))
    }

    /// Whether the request completes even if it succeeds.
    #[inline]
    pub(crate) fn signaled(self) -> bool {
        self.0 & Self::SIGNALED != 0
    }

    /// Whether the receive that it completes raises a solicited event.
    #[inline]
    pub(crate) fn solicited(self) -> bool {
        self.0 & Self::SOLICITED != 0
    }

    /// Whether the request starts only after all READs and atomics before it.
    ///
    /// Without packets, every request starts after all requests before it have ended.
    #[inline]
    pub(crate) fn fence(self) -> bool {
        self.0 & Self::FENCE != 0
    }

    /// Whether somebody waits for the request's end to measure its time.
    ///
    /// Only a request in a queue can be watched. It does not concern the request itself.
    #[inline]
    pub(crate) fn is_watched(self) -> bool {
        self.0 & Self::WATCHED != 0
    }

    /// Marks the request as watched.
    pub(crate) fn watch(&mut self) {
        self.0 |= Self::WATCHED;
    }
}

/// A send request without its payload, as its queue holds it until it ends.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OutstandingSend {
    pub(crate) op: SendOp,
    pub(crate) id: u32,
    pub(crate) length: u32,
    pub(crate) error: Option<WcStatus>,
    pub(crate) flags: Flags,
    pub(crate) srqn: Option<Srqn>,
}

impl Default for OutstandingSend {
    fn default() -> OutstandingSend {
        Work::invalid(0).outstanding()
    }
}

impl OutstandingSend {
    /// Returns the request as it is executed.
    #[inline]
    pub(crate) fn work(&self) -> Work<'_> {
        let OutstandingSend { ref op, id, length, error, flags, srqn } = *self;
        Work { op, row: op.row(), id, length, error, flags, srqn }
    }
}

impl Work<'_> {
    /// Writes the request to a node of its queue.
    #[inline]
    pub(crate) fn put(&self, to: &mut OutstandingSend) {
        let Work { op, row: _, id, length, error, flags, srqn } = *self;
        (to.op, to.id, to.length) = (*op, id, length);
        (to.error, to.flags, to.srqn) = (error, flags, srqn);
    }

    /// Returns the request as its queue holds it.
    #[inline]
    pub(crate) fn outstanding(&self) -> OutstandingSend {
        let Work { op, row: _, id, length, error, flags, srqn } = *self;
        OutstandingSend { op: *op, id, length, error, flags, srqn }
    }
}

impl<'a> Work<'a> {
    /// Checks a request against the capabilities of a QP. The result may have `error` set.
    #[inline]
    pub(crate) fn new(request: &'a SendRequest<'_>, caps: &Caps) -> Work<'a> {
        let row = request.op.row();
        let length = request.payload.length();
        let understood = match request.payload {
            Payload::Inline(data) => row.data == DataDirection::Out && data.len() <= usize::from(caps.inline),
            Payload::Sges(sges) => sges.len() <= usize::from(caps.send_sge),
        };
        let error = if !understood {
            Some(WcStatus::LocQpOp)
        } else if length > u64::from(MAX_MESSAGE)
            || row.length.is_some_and(|exact| length != u64::from(exact))
        {
            Some(WcStatus::LocLen)
        } else {
            None
        };
        let SendRequest { id, signaled, solicited, fence, ref op, payload: _ } = *request;
        let flags = Flags::new(signaled, solicited, fence);
        let length = length.min(u64::from(u32::MAX)) as u32;
        Work { op, row, id, length, error, flags, srqn: None }
    }

    /// Sets the shared receive queue that the request names, on a QP of that service.
    ///
    /// XRC initiators require one for every request that goes to the peer. All other QPs refuse it.
    /// The request changes in place, because a copy costs a stall (see [`Work`]).
    #[inline]
    pub(crate) fn name_queue(&mut self, srqn: Option<Srqn>, service: QpType) {
        if service == QpType::XrcSend && (srqn.is_some() || self.row.alone) {
            self.srqn = srqn;
        } else if service == QpType::XrcSend || srqn.is_some() {
            self.error = Some(WcStatus::LocQpOp);
        }
    }

    /// Returns a copy in which `row` follows from `op`, for code where the compiler knows the
    /// operation. It then knows the row too.
    #[inline(always)]
    pub(crate) fn of_known(&self) -> Work<'a> {
        Work { row: self.op.row(), ..*self }
    }

    /// Returns a copy for a rare path.
    ///
    /// A function that is not inlined needs the whole value in memory. By the copy it is stored
    /// only on that path.
    #[inline(always)]
    pub(crate) fn again(&self) -> Work<'a> {
        *self
    }

    /// Makes a request that could not be parsed.
    pub(crate) fn invalid(id: u32) -> Work<'static> {
        let flags = Flags::new(true, false, false);
        Work { error: Some(WcStatus::LocQpOp), ..Work::plain(&SendOp::Send { imm: None }, id, flags) }
    }

    /// Makes a request of no bytes.
    pub(crate) fn plain(op: &SendOp, id: u32, flags: Flags) -> Work<'_> {
        Work { op, row: op.row(), id, length: 0, error: None, flags, srqn: None }
    }

    /// Makes the completion of the request on QP `qpn`.
    #[inline]
    pub(crate) fn completion(&self, qpn: Qpn, status: WcStatus) -> Completion {
        let row = self.row;
        let came_back = status == WcStatus::Success && row.data == DataDirection::Back;
        let byte_len = if came_back { self.length } else { 0 };
        let id = self.id;
        Completion {
            id,
            qpn,
            opcode: row.opcode,
            status,
            byte_len,
            imm: None,
            invalidated: None,
            src_qpn: Qpn::default(),
            solicited: false,
            srq: None,
            arrival: None,
        }
    }
}
