//! The last errors of a guest's queue pairs, for the operator.

use std::collections::VecDeque;
use std::time::Duration;
use vrdma_transport::{Event, Instant, WcStatus};
use vrdma_wire::num::Qpn;

/// Number of errors that are kept for a guest.
const KEPT: usize = 64;

/// The last errors of a guest's queue pairs, the oldest first.
#[derive(Debug, Default)]
pub struct Failures(VecDeque<QpFailure>);

/// An error of a queue pair, or several equal ones in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpFailure {
    /// The queue pair.
    pub qpn: Qpn,
    /// The name of the status or event in rdma-core.
    pub what: &'static str,
    /// When the last of them came.
    pub at: Instant,
    /// How many there were.
    pub times: u64,
}

impl Failures {
    /// Notes a completion with an error. Flushed requests are no errors.
    pub fn completed(&mut self, now: Instant, qpn: Qpn, status: WcStatus) {
        if let Some(what) = status_name(status) {
            self.note(now, qpn, what);
        }
    }

    /// Notes an event, if it says that a queue pair is in ERR.
    pub fn happened(&mut self, now: Instant, event: Event) {
        match event {
            Event::QpFatal(qpn) => self.note(now, qpn, "IBV_EVENT_QP_FATAL"),
            Event::QpRequestError(qpn) => self.note(now, qpn, "IBV_EVENT_QP_REQ_ERR"),
            Event::QpAccessError(qpn) => self.note(now, qpn, "IBV_EVENT_QP_ACCESS_ERR"),
            Event::CommEstablished(_)
            | Event::SqDrained(_)
            | Event::LastWqeReached(_)
            | Event::SrqLimitReached(_)
            | Event::SrqError(_) => {}
        }
    }

    /// Returns the errors of a queue pair, the oldest first, each with the time since then.
    pub fn of(&self, qpn: Qpn, now: Instant) -> Vec<(QpFailure, Duration)> {
        let own = self.0.iter().filter(|failure| failure.qpn == qpn);
        own.map(|failure| (*failure, Duration::from_nanos(now.0.saturating_sub(failure.at.0)))).collect()
    }

    fn note(&mut self, at: Instant, qpn: Qpn, what: &'static str) {
        match self.0.back_mut() {
            Some(last) if last.qpn == qpn && last.what == what => {
                (last.at, last.times) = (at, last.times + 1);
            }
            _ => {
                if self.0.len() == KEPT {
                    self.0.pop_front();
                }
                self.0.push_back(QpFailure { qpn, what, at, times: 1 });
            }
        }
    }
}

/// Returns the name of a status in rdma-core (ibv_poll_cq(3)), if it is an error of its own.
fn status_name(status: WcStatus) -> Option<&'static str> {
    Some(match status {
        WcStatus::Success | WcStatus::Flush => return None,
        WcStatus::LocLen => "IBV_WC_LOC_LEN_ERR",
        WcStatus::LocQpOp => "IBV_WC_LOC_QP_OP_ERR",
        WcStatus::LocProt => "IBV_WC_LOC_PROT_ERR",
        WcStatus::MwBind => "IBV_WC_MW_BIND_ERR",
        WcStatus::BadResp => "IBV_WC_BAD_RESP_ERR",
        WcStatus::LocAccess => "IBV_WC_LOC_ACCESS_ERR",
        WcStatus::RemInvReq => "IBV_WC_REM_INV_REQ_ERR",
        WcStatus::RemAccess => "IBV_WC_REM_ACCESS_ERR",
        WcStatus::RemOp => "IBV_WC_REM_OP_ERR",
        WcStatus::RetryExc => "IBV_WC_RETRY_EXC_ERR",
        WcStatus::RnrRetryExc => "IBV_WC_RNR_RETRY_EXC_ERR",
        WcStatus::General => "IBV_WC_GENERAL_ERR",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qpn(number: u32) -> Qpn {
        Qpn::new(number).unwrap()
    }

    #[test]
    fn the_last_errors_are_kept_and_equal_ones_counted() {
        let mut failures = Failures::default();
        failures.completed(Instant(5), qpn(1), WcStatus::RetryExc);
        for at in 6..9 {
            failures.completed(Instant(at), qpn(1), WcStatus::Flush);
            failures.completed(Instant(at), qpn(2), WcStatus::RemAccess);
        }
        failures.happened(Instant(10), Event::QpAccessError(qpn(1)));
        failures.happened(Instant(10), Event::SqDrained(qpn(1)));
        let of_one = failures.of(qpn(1), Instant(15));
        let shown: Vec<_> =
            of_one.iter().map(|(failure, ago)| (failure.what, failure.times, ago.as_nanos())).collect();
        assert_eq!(shown, [("IBV_WC_RETRY_EXC_ERR", 1, 10), ("IBV_EVENT_QP_ACCESS_ERR", 1, 5)]);
        assert_eq!(failures.of(qpn(2), Instant(8))[0].0.times, 3);
        for at in 0..KEPT as u64 {
            failures.completed(Instant(at), qpn(3 + at as u32), WcStatus::General);
        }
        assert_eq!((failures.of(qpn(1), Instant(99)).len(), failures.0.len()), (0, KEPT));
    }
}
