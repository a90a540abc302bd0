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
    /// The peer to post a receive.
    Receive,
    /// The peer to answer.
    Answer,
    /// The caller to look whether the peer's receive has been posted.
    Look,
    /// Nothing: the caller has looked.
    Looked,
    /// Nothing: the peer had a receive. If another message has taken it, this waits on until the
    /// same deadline.
    Woken,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Requester {
    /// PSN of the next packet.
    pub(crate) psn: Psn,
    pub(crate) queue: List,
    /// Bytes of the first request that are done.
    pub(crate) offset: u32,
    /// The first request was tried: it has to be completed, also in SQD.
    pub(crate) started: bool,
    pub(crate) wait: Wait,
    /// Retries left until the peer counts as dead,
    retries: u8,
    /// and until it counts as never ready.
    rnr_retries: u8,
    /// It is in the list of what is ready.
    pub(crate) ready: bool,
    /// Tell when drained.
    pub(crate) notify_drained: bool,
    /// What `retries` begins with: an attribute,
    pub(crate) retry_cnt: u8,
    /// and `rnr_retries`.
    pub(crate) rnr_retry: u8,
}

/// RNR retry counts from here on mean for ever (IBTA 9.7.5.2.8).
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

    /// Whether there is something to do now, if the state lets it.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() && matches!(self.wait, Wait::No | Wait::Looked | Wait::Woken)
    }

    /// Sets how many retries the QP allows. A count that changes begins anew, so that it holds for
    /// the request that is under way too.
    pub(crate) fn set_retries(&mut self, retry_cnt: u8, rnr_retry: u8) {
        if self.retry_cnt != retry_cnt {
            (self.retry_cnt, self.retries) = (retry_cnt, retry_cnt);
        }
        if self.rnr_retry != rnr_retry {
            (self.rnr_retry, self.rnr_retries) = (rnr_retry, rnr_retry);
        }
    }

    /// Sets the counts of retries to what the QP allows: at start, and after each success.
    #[inline]
    pub(crate) fn refresh_retries(&mut self) {
        self.retries = self.retry_cnt;
        self.rnr_retries = self.rnr_retry;
    }

    /// A segment arrived.
    #[inline]
    pub(crate) fn acknowledged(&mut self, segment: &Segment<'_>) {
        self.psn = self.psn.add(segment.packets);
        self.offset = segment.offset + segment.length;
        self.refresh_retries();
    }

    /// The first request has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.offset = 0;
        self.started = false;
        self.wait = Wait::No;
    }

    /// The peer has no receive and asks to wait for `delay`. When to try again, or that it was
    /// often enough.
    pub(crate) fn not_ready(&mut self, now: Instant, delay: Duration) -> Result<Instant, WcStatus> {
        self.wait = Wait::Receive;
        self.spend_rnr_retry()?;
        // If this may go on for ever, the peer's next receive wakes us; look rarely whether there
        // is a peer at all.
        Ok(now + if self.rnr_retries >= FOR_EVER { delay.max(SLOW_CHECK) } else { delay })
    }

    /// The peer has no receive: one more retry, if there is one left.
    pub(crate) fn spend_rnr_retry(&mut self) -> Result<(), WcStatus> {
        if self.rnr_retries < FOR_EVER {
            self.rnr_retries = self.rnr_retries.checked_sub(1).ok_or(WcStatus::RnrRetryExc)?;
        }
        Ok(())
    }

    /// The peer does not answer, or did not get something: one more retry, if there is one left.
    pub(crate) fn spend_retry(&mut self) -> Result<(), WcStatus> {
        self.retries = self.retries.checked_sub(1).ok_or(WcStatus::RetryExc)?;
        Ok(())
    }

    /// What was sent got lost. When to notice.
    pub(crate) fn lost(&mut self, now: Instant, timeout: u8) -> Instant {
        self.wait = Wait::Answer;
        now + ack_timeout(timeout).unwrap_or(SLOW_CHECK)
    }

    /// The time to wait is over. Whether to try again, or that it was often enough.
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
