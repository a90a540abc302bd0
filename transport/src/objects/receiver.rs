//! A QP as the receiving end of a message.

use crate::objects::mr::Mrs;
use crate::objects::outstanding::{RecvSlot, Requests};
use crate::objects::qp::Qp;
use crate::objects::srq::Srqs;

/// The receiving end of a message: a QP before it takes the next segment.
pub(crate) struct Receiver<'a, R> {
    pub(crate) mrs: &'a Mrs<R>,
    pub(crate) requests: &'a Requests,
    pub(crate) srqs: &'a Srqs,
    pub(crate) qp: &'a Qp,
}

impl<'a, R> Receiver<'a, R> {
    /// Returns the receive for the message of the next segment.
    ///
    /// This is the receive that the message has claimed, or else the first one that the QP can get.
    #[inline]
    pub(crate) fn receive(&self) -> Option<&'a RecvSlot> {
        let Receiver { requests, srqs, qp, .. } = *self;
        requests
            .front_receive(&qp.responder.queue)
            .or_else(|| requests.front_receive(&srqs.peek(qp)?.receives))
    }
}
