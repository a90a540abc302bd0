//! What operators see of a worker and of its guests' objects.
//!
//! Each call does a bounded amount of work, because the guests wait meanwhile.

use super::Worker;
use crate::device::failures::QpFailure;
use rustix::thread::sched_getcpu;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::time::Duration;
use vrdma_transport::{DeviceId, Error, QpView, RegionView};
use vrdma_wire::num::Qpn;

/// Number of indices of a table that are looked at in one call.
const PAGE: usize = 256;

/// A part of a list, and the index where the next part begins. It is `None` at the end.
pub type Page<T> = (Vec<T>, Option<usize>);

/// What a worker has done since it started.
#[derive(Clone, Copy, Debug)]
pub struct WorkerAccount {
    /// The processor where it runs just now.
    pub processor: usize,
    /// The time of a processor that its thread has used.
    pub processor_time: Duration,
    /// The time of turns in which it found work.
    pub busy: Duration,
    /// The time of turns in which it found none.
    pub idle: Duration,
    /// The time that it waited to be woken.
    pub asleep: Duration,
    /// An upper bound of the longest turn.
    pub longest_turn: Duration,
    /// How many times it went to sleep.
    pub sleeps: u64,
    /// Turns in which it found work.
    pub busy_turns: u64,
    /// Turns in which it found none.
    pub idle_turns: u64,
    /// Requests that it took from channels.
    pub requests: u64,
}

impl Worker {
    /// Returns what it has done. The caller is its thread.
    pub fn account(&self) -> WorkerAccount {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        WorkerAccount {
            processor: sched_getcpu(),
            processor_time: Duration::try_from(time).unwrap_or_default(),
            busy: self.usage.busy(),
            idle: self.usage.idle(),
            asleep: self.asleep,
            longest_turn: self.usage.longest(),
            sleeps: self.sleeps,
            busy_turns: self.rounds.busy,
            idle_turns: self.rounds.idle,
            requests: self.requests,
        }
    }

    /// Returns how many turns have ended.
    pub fn turn_number(&self) -> u64 {
        self.rounds.busy + self.rounds.idle
    }

    /// Returns some QPs of a device, from this index on.
    pub fn qp_page(&self, id: DeviceId, from: usize) -> Page<QpView> {
        let (range, next) = page(from, self.engine.qp_indices(id));
        (self.engine.qps(id, range).collect(), next)
    }

    /// Returns some regions of a device, from this index on.
    pub fn region_page(&self, id: DeviceId, from: usize) -> Page<RegionView> {
        let (range, next) = page(from, self.engine.region_indices(id));
        (self.engine.region_views(id, range).collect(), next)
    }

    /// Returns a QP with its last errors.
    ///
    /// # Errors
    /// `NotFound`: there is no such QP.
    pub fn whole_qp(
        &mut self,
        id: DeviceId,
        qpn: Qpn,
    ) -> Result<(QpView, Vec<(QpFailure, Duration)>), Error> {
        let now = self.now();
        Ok((self.engine.qp_view(id, qpn)?, self.outputs.device(id).failures.of(qpn, now)))
    }
}

/// Returns the next indices of a table, and those after them.
fn page(from: usize, end: usize) -> (Range<usize>, Option<usize>) {
    let from = from.min(end);
    let next = end.min(from + PAGE);
    (from..next, (next < end).then_some(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_table_whatever_a_client_asks() {
        assert_eq!(page(0, 0), (0..0, None));
        assert_eq!(page(0, 256), (0..256, None));
        assert_eq!(page(0, 257), (0..256, Some(256)));
        assert_eq!(page(256, 257), (256..257, None));
        assert_eq!(page(usize::MAX, 257), (257..257, None));
    }
}
