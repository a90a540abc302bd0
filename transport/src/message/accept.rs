//! The responder's side of a segment, for all transport kinds: check, execute, update the QP.

use crate::base::inter_worker::{InterWorkerPayload, PinnedRegion};
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::effect::{Failure, LocalBuffer, check_placed, execute, execute_pinned};
use crate::message::verdict::{Objection, Refusal, verdict};
use crate::objects::outstanding::Scratch;
use crate::objects::receiver::Receiver;
use crate::objects::service::ConnState;
use crate::verbs::completion::Sink;
use crate::verbs::reason::Reason;
use crate::verbs::segment::Segment;

/// Where the data of a segment are.
pub(crate) enum SegmentData<'a, R> {
    /// In the requester's buffer, or in a packet.
    Buffer(LocalBuffer<'a, R>),
    /// In a pinned region of an engine of this process.
    Pinned(&'a dyn PinnedRegion<R>),
    /// At their destination: they were placed out of order.
    Placed,
}

impl<'a, R> SegmentData<'a, R> {
    /// The data of a packet.
    pub(crate) fn packet(bytes: &'a [u8]) -> SegmentData<'a, R> {
        SegmentData::Buffer(LocalBuffer::Bytes(bytes))
    }
}

impl<'a, R> From<InterWorkerPayload<'a, R>> for SegmentData<'a, R> {
    fn from(payload: InterWorkerPayload<'a, R>) -> SegmentData<'a, R> {
        match payload {
            InterWorkerPayload::Bytes(bytes) => SegmentData::packet(bytes),
            InterWorkerPayload::Pinned(pinned, _) => SegmentData::Pinned(pinned),
        }
    }
}

/// Why a segment was not executed.
pub(crate) enum Rejection {
    /// The segment is dropped, as if it had not arrived.
    Dropped(Reason),
    /// The segment needs a receive, and there is none.
    NoReceive,
    /// A check of the responder refuses the segment.
    Refused(Refusal),
    /// The responder's memory, or that of its receive, cannot be used.
    Memory(Refusal),
    /// The requester's memory cannot be read or written, or was revoked.
    ///
    /// This never happens to data in a packet, nor to data that were placed out of order.
    Source,
}

/// Checks a segment and executes it. Returns the value that an atomic found.
///
/// The data of a READ in a packet move later, with its responses.
#[inline(always)]
pub(crate) fn accept<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    data: SegmentData<'_, R>,
    scratch: &mut Scratch,
) -> Result<Option<u64>, Rejection> {
    let target = match verdict(receiver, segment) {
        Ok(target) => target,
        Err(&Objection::Drop(reason)) => return Err(Rejection::Dropped(reason)),
        Err(&Objection::Nak(refusal)) => return Err(Rejection::Refused(refusal)),
        Err(Objection::Rnr) => return Err(Rejection::NoReceive),
    };
    let executed = match data {
        SegmentData::Buffer(buffer) => execute(receiver, segment, target, buffer, scratch),
        SegmentData::Pinned(pinned) => {
            execute_pinned(receiver, segment, target, pinned, scratch).map(|()| None)
        }
        SegmentData::Placed => check_placed(receiver, segment, target, scratch).map(|()| None),
    };
    executed.map_err(|failure| match failure {
        Failure::Local => Rejection::Source,
        Failure::Remote(refusal) => Rejection::Memory(refusal),
    })
}

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Checks and executes a segment from the peer, and updates this QP. Returns the value that an
    /// atomic found.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        segment: &Segment<'_>,
        data: SegmentData<'_, R>,
    ) -> Result<Option<u64>, Rejection> {
        let QpCtx { qp, mrs, requests, srqs, recv_scratch, .. } = self;
        let receiver = Receiver { mrs, requests, srqs, qp };
        let found = accept(&receiver, segment, data, recv_scratch)?;
        self.arrived(self.qp.dest_qpn, segment);
        Ok(found)
    }
}
