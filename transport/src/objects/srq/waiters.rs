//! QPs whose peers wait for a receive of a shared queue or were woken by one, in the order in which
//! they began to wait.

use std::collections::BTreeMap;
use vrdma_wire::num::Qpn;

/// QPs whose peers on this host wait for a receive. Each is in here once, woken or not.
#[derive(Default)]
pub(crate) struct Waiters {
    /// QPs that were not woken, by the number of their place in the order.
    waiting: BTreeMap<u64, Qpn>,
    /// QPs that were woken, and whose peers will try.
    woken: BTreeMap<u64, Qpn>,
    /// The number of each QP.
    numbers: BTreeMap<Qpn, u64>,
    last: u64,
}

impl Waiters {
    /// Makes a QP wait. It is behind all others, or in the place that it had before it was woken.
    pub(crate) fn wait(&mut self, qpn: Qpn) {
        let number = *self.numbers.entry(qpn).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.woken.remove(&number);
        self.waiting.insert(number, qpn);
    }

    /// Wakes the first QP that waits.
    pub(crate) fn wake_first(&mut self) -> Option<Qpn> {
        let (number, qpn) = self.waiting.pop_first()?;
        self.woken.insert(number, qpn);
        Some(qpn)
    }

    /// Removes a QP, woken or not.
    pub(crate) fn leave(&mut self, qpn: Qpn) {
        if let Some(number) = self.numbers.remove(&qpn) {
            self.waiting.remove(&number);
            self.woken.remove(&number);
        }
    }

    /// Whether any QP waits that was not woken.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns how many QPs were woken and have not tried.
    pub(crate) fn num_woken(&self) -> usize {
        self.woken.len()
    }

    /// Returns the first woken QP with a number above this one, and its number.
    pub(crate) fn woken_after(&self, number: u64) -> Option<(u64, Qpn)> {
        self.woken.range(number + 1..).next().map(|(&number, &qpn)| (number, qpn))
    }

    /// Returns all QPs in order, and the woken ones in order.
    pub(crate) fn in_order(&self) -> (Vec<Qpn>, Vec<Qpn>) {
        let Waiters { waiting, woken, numbers: _, last: _ } = self;
        let mut all: Vec<_> = waiting.iter().chain(woken).collect();
        all.sort_unstable();
        (all.into_iter().map(|(_, &qpn)| qpn).collect(), woken.values().copied().collect())
    }

    /// Restores the QPs in order, some of which were woken.
    ///
    /// Returns `None` if a QP occurs twice, or if a woken QP is not in its place.
    pub(crate) fn restore(all: &[Qpn], woken: &[Qpn]) -> Option<Waiters> {
        let mut waiters = Waiters::default();
        let mut woken = woken.iter().peekable();
        for &qpn in all {
            if waiters.numbers.contains_key(&qpn) {
                return None;
            }
            waiters.wait(qpn);
            if woken.next_if_eq(&&qpn).is_some() {
                waiters.waiting.remove(&waiters.last);
                waiters.woken.insert(waiters.last, qpn);
            }
        }
        woken.next().is_none().then_some(waiters)
    }
}
