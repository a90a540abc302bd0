//! How a QP fails: its first request ends with an error, and the QP goes to SQE or ERR.

use crate::base::carrier::Carrier;
use crate::base::memory::Region;
use crate::message::ctx::QpCtx;
use crate::objects::service::ConnState;
use crate::verbs::attr::{QpState, QpType};
use crate::verbs::completion::{Event, Sink, WcStatus};
use crate::verbs::work::Work;
use core::mem;

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Its first request fails, and with it the QP; of an unreliable service its send queue alone.
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

    /// The first request fails, and with it the QP.
    pub(crate) fn fail_first(&mut self, status: WcStatus) {
        let first = self.requests.first_send(&self.qp.requester.queue);
        let send = *first.expect("what waits, or is outstanding, is in the send queue");
        self.fail(&send.work(), status);
    }

    /// To SQE: what was posted after the send that failed is flushed, and receiving goes on (IBTA
    /// 10.3.1).
    #[cold]
    fn enter_sqe(&mut self) {
        self.disarm();
        self.qp.state = QpState::Sqe;
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.flush(false);
    }

    /// To ERR: sends are flushed in order, then receives.
    #[cold]
    pub(crate) fn enter_error(&mut self) {
        self.disarm();
        let before = mem::replace(&mut self.qp.state, QpState::Err);
        let was_flushed = before == QpState::Err && self.qp.flush.is_none();
        self.srqs.waits_no_longer(self.qp);
        self.qp.requester.ended();
        self.qp.requester.notify_drained = false;
        self.conn.stop(self.qp.requester.psn);
        if self.qp.carrier == Carrier::Tcp {
            // Its stream ends in its turn.
            self.make_answer_due();
        }
        self.flush(true);
        if !was_flushed && self.qp.flush.is_none() {
            self.tell_last_wqe();
        }
    }

    /// To ERR for a reason that no completion tells.
    #[cold]
    pub(crate) fn enter_fatal(&mut self) {
        self.enter_error();
        self.event(Event::QpFatal(self.place.qpn));
    }

    /// To ERR because of a peer's request, with the event that tells of it.
    #[cold]
    pub(crate) fn enter_error_with(&mut self, event: Option<Event>) {
        self.enter_error();
        if let Some(event) = event {
            self.event(event);
        }
    }
}
