//! Failure of a QP: its first request ends with an error, and the QP goes to SQE or ERR.

use crate::base::memory::Region;
use crate::base::transport_kind::TransportKind;
use crate::message::ctx::QpCtx;
use crate::objects::service::ConnState;
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::completion::{Event, Sink, WcStatus};
use crate::verbs::work::Work;
use core::mem;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Ends `work`, the first request, with an error, and lets the QP fail.
    ///
    /// On an unreliable service only the send queue fails (SQE).
    #[cold]
    pub(crate) fn fail(&mut self, work: &Work<'_>, status: WcStatus) {
        self.counters.errors += 1;
        match status {
            WcStatus::RetryExc => self.counters.retry_exceeded += 1,
            WcStatus::RnrRetryExc => self.counters.rnr_exceeded += 1,
            _ => {}
        }
        self.end_send(work, status);
        match self.qp.service() {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => self.enter_error(),
            QpType::Uc | QpType::Ud | QpType::Gsi => self.enter_sqe(),
        }
    }

    /// Ends the first request in the send queue with an error, and lets the QP fail.
    pub(crate) fn fail_first(&mut self, status: WcStatus) {
        let first = self.requests.first_send(&self.qp.requester.queue);
        let send = *first.expect("what waits, or is outstanding, is in the send queue");
        self.fail(&send.work(), status);
    }

    /// Takes the QP to SQE: flushes later sends, and goes on receiving (IBTA 10.3.1).
    #[cold]
    fn enter_sqe(&mut self) {
        self.disarm();
        self.qp.state = QpState::Sqe;
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.flush(false);
    }

    /// Takes the QP to ERR: flushes sends in order, then receives.
    #[cold]
    pub(crate) fn enter_error(&mut self) {
        self.disarm();
        let before = mem::replace(&mut self.qp.state, QpState::Err);
        let was_flushed = before == QpState::Err && self.qp.flush.is_none();
        self.srqs.waits_no_longer(self.qp);
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.conn.stop(self.qp.requester.psn);
        self.drop_early();
        if self.qp.transport == TransportKind::Tcp {
            // The stream ends in the QP's turn.
            self.make_answer_due();
        }
        self.flush(true);
        if !was_flushed && self.qp.flush.is_none() {
            self.tell_last_wqe();
        }
    }

    /// Takes the QP to ERR for a reason that no completion reports, and reports an event.
    #[cold]
    pub(crate) fn enter_fatal(&mut self) {
        self.enter_error();
        self.event(Event::QpFatal(self.place.qpn));
    }

    /// Takes the QP to ERR because of a peer's request, and reports `event`.
    #[cold]
    pub(crate) fn enter_error_with(&mut self, event: Option<Event>) {
        self.enter_error();
        if let Some(event) = event {
            self.event(event);
        }
    }
}
