//! The responder's side of a segment, for all transport kinds: check, execute, update the QP.

use crate::base::inter_worker::{InterWorkerPayload, PinnedRegion};
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::effect::{LocalBuffer, check_placed, execute, execute_pinned};
use crate::message::verdict::{Rejection, verdict};
use crate::objects::outstanding::Scratch;
use crate::objects::receiver::Receiver;
use crate::objects::service::ConnState;
use crate::verbs::completion::Sink;
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

/// Checks a segment and executes it. Returns the value that an atomic found.
///
/// The data of a READ in a packet move later, with its responses.
#[inline(always)]
pub(crate) fn accept<R: Region>(
    receiver: &Receiver<'_, R>,
    segment: &Segment<'_>,
    data: SegmentData<'_, R>,
    scratch: &mut Scratch,
) -> Result<Option<u64>, &'static Rejection> {
    let target = verdict(receiver, segment)?;
    match data {
        SegmentData::Buffer(buffer) => execute(receiver, segment, target, buffer, scratch),
        SegmentData::Pinned(pinned) => {
            execute_pinned(receiver, segment, target, pinned, scratch).map(|()| None)
        }
        SegmentData::Placed => check_placed(receiver, segment, target, scratch).map(|()| None),
    }
}

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Checks and executes a segment from the peer, and updates this QP. Returns the value that an
    /// atomic found.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        segment: &Segment<'_>,
        data: SegmentData<'_, R>,
    ) -> Result<Option<u64>, &'static Rejection> {
        let QpCtx { qp, mrs, requests, srqs, recv_scratch, .. } = self;
        let receiver = Receiver { mrs, requests, srqs, qp };
        let found = accept(&receiver, segment, data, recv_scratch)?;
        self.arrived(self.qp.dest_qpn, segment);
        Ok(found)
    }
}
