//! Memory budgets of the connections of vrdma's own TCP, for each guest and for all of a worker.
//!
//! Each connection reports the memory of its buffers whenever that changes. How much more it may
//! keep depends on the purpose. What is cheaper to get again is refused sooner. Each connection has
//! a small guaranteed amount, so that it makes progress. (docs/design/streams.md, "Memory")

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of received data, in order and not read, that a connection may always keep.
///
/// A segment of any MTU fits.
pub(super) const LEAST_INPUT: u64 = 16 << 10;
/// Bytes of unacknowledged output up to which a connection may always add more.
pub(super) const LEAST_OUTPUT: u64 = 32 << 10;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Received out of order. The peer retransmits it.
    OutOfOrder,
    /// Not acknowledged by the peer. The guest's requests wait.
    Unacknowledged,
    /// Received in order. The peer was told that there is room for it.
    InOrder,
}

impl Purpose {
    /// Returns up to how many eighths of a guest's memory may be in use when more is kept for this.
    fn eighths(self) -> u64 {
        match self {
            Purpose::OutOfOrder => 4,
            Purpose::Unacknowledged => 6,
            Purpose::InOrder => 8,
        }
    }
}

/// The memory that the guests of a worker use together. One thread changes it.
#[derive(Debug, Default)]
pub(super) struct SharedBudget {
    used: AtomicU64,
}

/// The memory that a guest uses and may use.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    used: u64,
    all_limit: u64,
    all: Arc<SharedBudget>,
}

impl Budget {
    /// Returns the budget of a guest that may use `limit` bytes. All guests together may use
    /// `all_limit`.
    pub fn new(limit: u64, all_limit: u64, all: Arc<SharedBudget>) -> Budget {
        Budget { limit, used: 0, all_limit, all }
    }

    /// Returns the bytes that the guest's connections use now.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the bytes that the guest may use now: no more than all guests together leave.
    ///
    /// So a single guest has at most half of the total, two guests a third each, and there is
    /// always some left for one more.
    fn allowed(&self) -> u64 {
        self.limit.min(self.all_limit.saturating_sub(self.all.used.load(Ordering::Relaxed)))
    }

    /// Returns how many more bytes may be kept for this purpose.
    pub fn room(&self, purpose: Purpose) -> u64 {
        (self.allowed() / 8 * purpose.eighths()).saturating_sub(self.used)
    }

    /// Whether output has to wait.
    pub fn is_short(&self) -> bool {
        self.room(Purpose::Unacknowledged) == 0
    }

    /// Returns the window of each of `connections` connections, at most `most` bytes.
    ///
    /// Together they are half of what the guest may use. A window is a power of two, so it changes
    /// seldom.
    pub fn window(&self, connections: usize, most: u32) -> u32 {
        let share = self.allowed() / 2 / (connections.max(1) as u64).next_power_of_two();
        let share = share.clamp(LEAST_INPUT, most.into());
        1 << share.ilog2()
    }

    /// Notes that a connection uses `now` bytes instead of `before`.
    pub fn change(&mut self, before: u64, now: u64) {
        self.used = self.used - before + now;
        let all = self.all.used.load(Ordering::Relaxed);
        self.all.used.store(all - before + now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets<const N: usize>(limit: u64, all: u64) -> [Budget; N] {
        let pool = Arc::new(SharedBudget::default());
        [(); N].map(|()| Budget::new(limit, all, pool.clone()))
    }

    /// Uses all that a purpose may have, in small steps.
    fn fill(budget: &mut Budget, purpose: Purpose) {
        while budget.room(purpose) > 0 {
            budget.change(0, 1);
        }
    }

    #[test]
    fn what_is_sent_again_is_refused_first_and_what_was_promised_last() {
        let [mut budget] = budgets(8000, 1 << 30);
        for (purpose, used) in
            [(Purpose::OutOfOrder, 4000), (Purpose::Unacknowledged, 6000), (Purpose::InOrder, 8000)]
        {
            assert!(budget.room(purpose) > 0);
            fill(&mut budget, purpose);
            assert_eq!(budget.used(), used);
        }
        assert!(budget.is_short());
        budget.change(8000, 100);
        assert!(!budget.is_short() && budget.room(Purpose::OutOfOrder) == 3900);
    }

    #[test]
    fn guests_that_take_all_they_can_leave_some_to_one_more() {
        let [mut a, mut b, c] = budgets(1 << 30, 6000);
        fill(&mut a, Purpose::InOrder);
        assert!((2990..=3000).contains(&a.used()), "{}", a.used());
        fill(&mut b, Purpose::InOrder);
        // The second has half of what the first left. When the first frees some, the second may
        // have more.
        assert!((1490..=1500).contains(&b.used()) && c.room(Purpose::InOrder) >= 1490, "{}", b.used());
        a.change(a.used(), 0);
        assert!(b.room(Purpose::InOrder) > 1490);
    }

    #[test]
    fn windows_together_are_no_more_than_there_is() {
        let [budget] = budgets(64 << 20, 1 << 40);
        assert_eq!(
            [1, 32, 33, 64, 1024, 5000].map(|n| budget.window(n, 1 << 20) >> 10),
            [1024, 1024, 512, 512, 32, 16]
        );
        let [tiny] = budgets(1, 1);
        assert_eq!(u64::from(tiny.window(3, 1 << 20)), LEAST_INPUT);
    }
}
