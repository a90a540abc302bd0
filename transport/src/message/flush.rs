//! Flushing of a QP's requests.

use crate::base::memory::Region;
use crate::collections::flush::Flush;
use crate::message::ctx::QpCtx;
use crate::message::receive::recv_failure;
use crate::objects::service::ConnState;
use crate::verbs::attr::QpState;
use crate::verbs::completion::{Sink, WcStatus};

impl<R: Region, S: Sink, T: ConnState> QpCtx<'_, R, S, T> {
    /// Flushes all sends, and with `receives` all receives too.
    ///
    /// Requests beyond the current budget are flushed later, in slices.
    pub(crate) fn flush(&mut self, receives: bool) {
        let before = self.qp.flush.take();
        let is_listed = before.is_some();
        let mut flush = before.map(|flush| *flush).unwrap_or_default();
        self.requests.append_sends(&mut flush.sends, &mut self.qp.requester.queue);
        if receives {
            self.requests.append_receives(&mut flush.receives, &mut self.qp.responder.queue);
        }
        let mut left = self.schedule.flushes.left;
        self.end_some(&mut flush, &mut left);
        self.schedule.flushes.left = left;
        if !flush.is_over() {
            self.qp.flush = Some(Box::new(flush));
            if !is_listed {
                self.schedule.flushes.push(self.place);
            }
        }
    }

    /// Continues the QP's flush, if there is one, for up to `left` requests.
    pub(crate) fn flush_more(&mut self, left: &mut usize) {
        let Some(mut flush) = self.qp.flush.take() else { return };
        self.end_some(&mut flush, left);
        if !flush.is_over() {
            self.qp.flush = Some(flush);
        } else if self.qp.state == QpState::Err {
            self.tell_last_wqe();
        }
    }

    fn end_some(&mut self, flush: &mut Flush, left: &mut usize) {
        while *left > 0
            && let Some(taken) = self.requests.take_send(&mut flush.sends, |send| *send)
        {
            *left -= 1;
            self.counters.flushes += 1;
            self.complete_send(&taken.end().work().completion(self.place.qpn, WcStatus::Flush));
        }
        while *left > 0 && flush.num_receives() > 0 {
            *left -= 1;
            if let Some((id, 0)) = flush.broken {
                flush.broken = None;
                self.complete_receive(&recv_failure(self.qp, id, WcStatus::LocQpOp));
                continue;
            }
            let taken = self.requests.take_receive(&mut flush.receives);
            let id = taken.expect("so many receives are before the broken one").end();
            if let Some((_, before)) = &mut flush.broken {
                *before -= 1;
            }
            if self.receive_ended() {
                self.counters.flushes += 1;
                self.complete_receive(&recv_failure(self.qp, id, WcStatus::Flush));
            }
        }
    }

    /// Ends an invalid receive, which took the QP to ERR. It ends after the receives before it.
    pub(crate) fn end_broken_receive(&mut self, id: u32) {
        match &mut self.qp.flush {
            Some(flush) if !flush.receives.is_empty() => flush.broken = Some((id, flush.receives.len())),
            _ => self.complete_receive(&recv_failure(self.qp, id, WcStatus::LocQpOp)),
        }
    }
}
