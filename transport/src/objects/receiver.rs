//! A QP as the receiving end of a message.

use crate::objects::mr::Mrs;
use crate::objects::outstanding::{RecvSlot, Requests};
use crate::objects::qp::Qp;
use crate::objects::srq::Srqs;

/// The receiving end: a QP as it is before the segment.
pub(crate) struct Receiver<'a, R> {
    pub(crate) mrs: &'a Mrs<R>,
    pub(crate) requests: &'a Requests,
    pub(crate) srqs: &'a Srqs,
    pub(crate) qp: &'a Qp,
}

impl<'a, R> Receiver<'a, R> {
    /// The receive of the message that the next segment is of: that which it has claimed, or the
    /// first that the QP can have.
    #[inline]
    pub(crate) fn receive(&self) -> Option<&'a RecvSlot> {
        let Receiver { requests, srqs, qp, .. } = *self;
        requests
            .front_receive(&qp.responder.queue)
            .or_else(|| requests.front_receive(&srqs.peek(qp)?.receives))
    }
}
