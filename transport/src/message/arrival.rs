//! Updates the responder's QP when a segment has arrived or was refused, for all transport kinds.

use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::message::verdict::{Nak, Refusal};
use crate::objects::service::ConnState;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Completion, Event, Sink, WcStatus};
use crate::verbs::op::{Answer, DataDirection, Receive, WcOpcode};
use crate::verbs::segment::Segment;
use vrdma_wire::num::{Qpn, Rkey};

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Records that a segment of QP `from` arrived: updates the PSN and the receive, and completes
    /// it.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, from: Qpn, segment: &Segment<'_>) {
        let QpCtx { qp, counters, .. } = self;
        if qp.state == QpState::Rtr && !qp.responder.established {
            qp.responder.established = true;
            let event = Event::CommEstablished(qp.qpn);
            self.sink.event(self.place.id(), event);
        }
        let message = qp.responder.received.saturating_add(segment.length);
        qp.responder.accepted(segment);
        let row = segment.row;
        if row.data != DataDirection::Out {
            // The data of a READ over the wire move with its responses, and are counted then.
            counters.bytes_served += if row.answer == Answer::Data { u64::from(segment.length) } else { 0 };
            return;
        }
        counters.bytes_in += u64::from(segment.length);
        if !segment.needs_receive() {
            return;
        }
        if !segment.last {
            self.again().claim_receive();
            return;
        }
        let (opcode, byte_len) = match row.receive {
            Receive::Always => (WcOpcode::Recv, message),
            Receive::WithImm | Receive::Never => (WcOpcode::RecvWriteImm, segment.message),
        };
        let qpn = self.place.qpn;
        let invalidated = segment.op.invalidates();
        if let Some(key) = invalidated {
            self.again().invalidate_for_peer(key);
        }
        let srq = self.qp.xrc_queue();
        self.complete_claimed(|id| Completion {
            id,
            qpn,
            opcode,
            status: WcStatus::Success,
            byte_len,
            imm: segment.op.imm(),
            invalidated,
            src_qpn: from,
            solicited: segment.solicited,
            srq,
            arrival: None,
        });
    }

    /// Invalidates a key for the peer's message, before its receive completes.
    ///
    /// From then on no byte moves by the key.
    fn invalidate_for_peer(&mut self, key: Rkey) {
        let done = self.mrs.invalidate(key, self.qp.holder());
        assert!(done, "the verdict found that it may be invalidated");
        self.counters.peer_invalidations += 1;
    }

    /// Records that a segment is refused. Returns the event to report once the QP is in ERR.
    ///
    /// If the receive is at fault, the receive ends here.
    #[cold]
    pub(crate) fn refuse(&mut self, refusal: Refusal) -> Option<Event> {
        let QpCtx { counters, .. } = self;
        match refusal.nak {
            Nak::Invalid => counters.naks_invalid += 1,
            Nak::Access => counters.naks_access += 1,
            Nak::Operational => counters.naks_operational += 1,
        }
        let qpn = self.place.qpn;
        if let Some(status) = refusal.receive {
            self.fail_claimed(status);
        }
        // A completion with an error tells the program. Without one, an event has to.
        match refusal {
            Refusal { receive: Some(_), .. } => None,
            Refusal { nak: Nak::Invalid, .. } => Some(Event::QpRequestError(qpn)),
            Refusal { nak: Nak::Access, .. } => Some(Event::QpAccessError(qpn)),
            Refusal { nak: Nak::Operational, .. } => Some(Event::QpFatal(qpn)),
        }
    }

    /// Ends the first receive because its memory may not be written. The QP goes to ERR.
    #[cold]
    pub(crate) fn receive_failed(&mut self) {
        self.fail_claimed(WcStatus::LocProt);
        self.enter_error();
    }
}
