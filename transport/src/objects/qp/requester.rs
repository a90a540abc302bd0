//! The sending half of a QP: the progress of its first request, and the retry counters.

mod save;

use crate::base::time::{Instant, SLOW_CHECK, ack_timeout};
use crate::collections::pool::List;
use crate::verbs::completion::WcStatus;
use crate::verbs::segment::Segment;
use core::time::Duration;
use vrdma_wire::num::Psn;

/// What the first request of the send queue waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Nothing: it can be tried.
    No,
    /// A receive of the peer.
    Receive,
    /// An answer of the peer.
    Answer,
    /// The caller, to drain posts that may include the peer's receive.
    Drain,
    /// Nothing: the caller has drained the posts.
    Drained,
    /// Nothing: the peer had a receive.
    ///
    /// If another message has taken the receive, the request waits on until the same deadline.
    Woken,
}

/// The sending half of a QP.
#[derive(Debug)]
pub(crate) struct Requester {
    /// PSN of the next packet.
    pub(crate) psn: Psn,
    pub(crate) queue: List,
    /// Bytes of the first request that are done.
    pub(crate) offset: u32,
    /// Whether the first request was tried. It then has to be completed, also in SQD.
    pub(crate) started: bool,
    pub(crate) wait: Wait,
    /// Retries left until the peer counts as dead.
    retries: u8,
    /// RNR retries left until the peer counts as never ready.
    rnr_retries: u8,
    /// Whether the QP is in the queue of ready QPs.
    pub(crate) ready: bool,
    /// Whether to report when the send queue has drained.
    pub(crate) notify_drained: bool,
    /// The attribute from which `retries` starts.
    pub(crate) retry_cnt: u8,
    /// The attribute from which `rnr_retries` starts.
    pub(crate) rnr_retry: u8,
}

/// RNR retry counts from this value on mean for ever (IBTA 9.7.5.2.8).
const FOR_EVER: u8 = 7;

impl Requester {
    pub(crate) fn new() -> Requester {
        Requester {
            psn: Psn::default(),
            queue: List::EMPTY,
            offset: 0,
            started: false,
            wait: Wait::No,
            retries: 0,
            rnr_retries: 0,
            ready: false,
            notify_drained: false,
            retry_cnt: 0,
            rnr_retry: 0,
        }
    }

    /// Whether there is work now, if the QP's state allows it.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() && matches!(self.wait, Wait::No | Wait::Drained | Wait::Woken)
    }

    /// Sets how many retries the QP allows.
    ///
    /// A count that changes starts again, so that it also holds for the request that is under way.
    pub(crate) fn set_retries(&mut self, retry_cnt: u8, rnr_retry: u8) {
        if self.retry_cnt != retry_cnt {
            (self.retry_cnt, self.retries) = (retry_cnt, retry_cnt);
        }
        if self.rnr_retry != rnr_retry {
            (self.rnr_retry, self.rnr_retries) = (rnr_retry, rnr_retry);
        }
    }

    /// Restores the retry counters to the attributes: at start, and after each success.
    #[inline]
    pub(crate) fn refresh_retries(&mut self) {
        self.retries = self.retry_cnt;
        self.rnr_retries = self.rnr_retry;
    }

    /// Records that a segment arrived.
    #[inline]
    pub(crate) fn acknowledged(&mut self, segment: &Segment<'_>) {
        self.psn = self.psn.add(segment.packets);
        self.offset = segment.offset + segment.length;
        self.refresh_retries();
    }

    /// Records that the first request has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.offset = 0;
        self.started = false;
        self.wait = Wait::No;
    }

    /// Waits for `delay`, because the peer has no receive.
    ///
    /// Returns the time of the next try, or the error if no retry is left.
    pub(crate) fn not_ready(&mut self, now: Instant, delay: Duration) -> Result<Instant, WcStatus> {
        self.wait = Wait::Receive;
        self.spend_rnr_retry()?;
        // With unlimited retries, the peer's next receive wakes this QP. Rare checks suffice to
        // notice that there is no peer.
        Ok(now + if self.rnr_retries >= FOR_EVER { delay.max(SLOW_CHECK) } else { delay })
    }

    /// Spends an RNR retry, because the peer has no receive. Returns the error if none is left.
    pub(crate) fn spend_rnr_retry(&mut self) -> Result<(), WcStatus> {
        if self.rnr_retries < FOR_EVER {
            self.rnr_retries = self.rnr_retries.checked_sub(1).ok_or(WcStatus::RnrRetryExc)?;
        }
        Ok(())
    }

    /// Spends a retry, because the peer does not answer or has lost something. Returns the error if
    /// none is left.
    pub(crate) fn spend_retry(&mut self) -> Result<(), WcStatus> {
        self.retries = self.retries.checked_sub(1).ok_or(WcStatus::RetryExc)?;
        Ok(())
    }

    /// Waits for an answer to something that got lost, and returns when the timeout ends.
    pub(crate) fn lost(&mut self, now: Instant, timeout: u8) -> Instant {
        self.wait = Wait::Answer;
        now + ack_timeout(timeout).unwrap_or(SLOW_CHECK)
    }

    /// Ends a wait by timeout. Returns the error if no retry is left.
    pub(crate) fn timed_out(&mut self, timeout: u8) -> Result<(), WcStatus> {
        if self.wait == Wait::Answer && ack_timeout(timeout).is_some() {
            self.spend_retry()?;
        }
        self.wait = Wait::No;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(retry_cnt: u8, rnr_retry: u8) -> Requester {
        let mut requester = Requester { retry_cnt, rnr_retry, ..Requester::new() };
        requester.refresh_retries();
        requester
    }

    #[test]
    fn a_count_of_retries_that_changes_holds_at_once_and_one_that_does_not_goes_on() {
        let mut requester = requester(2, 1);
        assert_eq!((requester.spend_retry(), requester.spend_rnr_retry()), (Ok(()), Ok(())));
        requester.set_retries(2, 3);
        assert_eq!((requester.retries, requester.rnr_retries), (1, 3));
        requester.set_retries(0, 3);
        assert_eq!(requester.spend_retry(), Err(WcStatus::RetryExc));
    }

    #[test]
    fn rnr_retries_are_counted_and_seven_is_for_ever() {
        let delay = Duration::from_micros(10);
        let mut counted = requester(0, 2);
        for _ in 0..2 {
            assert_eq!(counted.not_ready(Instant(0), delay), Ok(Instant(10_000)));
            assert_eq!((counted.wait, counted.timed_out(1)), (Wait::Receive, Ok(())));
        }
        assert_eq!(counted.not_ready(Instant(0), delay), Err(WcStatus::RnrRetryExc));
        let mut patient = requester(0, 7);
        for _ in 0..100 {
            assert_eq!(patient.not_ready(Instant(0), delay), Ok(Instant(0) + SLOW_CHECK));
        }
    }

    #[test]
    fn timeouts_are_counted_and_without_a_timeout_they_are_not() {
        let mut counted = requester(1, 0);
        assert_eq!(counted.lost(Instant(5), 1), Instant(5 + 8192));
        assert_eq!(counted.timed_out(1), Ok(()));
        counted.lost(Instant(5), 1);
        assert_eq!(counted.timed_out(1), Err(WcStatus::RetryExc));
        let mut patient = requester(0, 0);
        for _ in 0..100 {
            assert_eq!(patient.lost(Instant(0), 0), Instant(0) + SLOW_CHECK);
            assert_eq!(patient.timed_out(0), Ok(()));
        }
    }
}
