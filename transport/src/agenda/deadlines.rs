//! Deadlines of QPs. Many QPs of one device with a due deadline do not delay those of another
//! device.

use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use core::mem;
use std::collections::BTreeSet;
use vrdma_wire::num::Qpn;

/// The deadlines of all QPs.
#[derive(Default)]
pub(crate) struct Deadlines {
    /// Deadlines by the device's index.
    of: Vec<BTreeSet<(Instant, Qpn)>>,
    /// How many of a device's deadlines have nothing that is waited for, by its index.
    idle: Vec<usize>,
    /// The first deadline of each device.
    first: BTreeSet<(Instant, u32)>,
    /// Devices that had a due deadline when the caller began to handle deadlines.
    due: BTreeSet<u32>,
    /// The device whose deadlines are handled next.
    turn: u32,
}

impl Deadlines {
    /// Returns the device whose deadlines are handled next.
    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Sets the device whose deadlines are handled next.
    pub(crate) fn set_turn(&mut self, device: u32) {
        self.turn = device;
    }

    pub(crate) fn arm(&mut self, at: Instant, place: QpRef) {
        let index = place.device as usize;
        if index >= self.of.len() {
            self.of.resize_with(index + 1, BTreeSet::new);
            self.idle.resize(index + 1, 0);
        }
        let before = self.of[index].first().copied();
        self.of[index].insert((at, place.qpn));
        self.follow(place.device, before);
    }

    /// Removes the deadline of a QP.
    pub(crate) fn disarm(&mut self, at: Instant, place: QpRef) {
        let deadlines = &mut self.of[place.device as usize];
        let before = deadlines.first().copied();
        let was_armed = deadlines.remove(&(at, place.qpn));
        assert!(was_armed, "a QP knows which deadline it has");
        self.follow(place.device, before);
    }

    /// Records that nothing is waited for any more until one of a device's deadlines, or that
    /// something is again.
    #[inline]
    pub(crate) fn note_idle(&mut self, device: u32, is_idle: bool) {
        let idle = &mut self.idle[device as usize];
        *idle = if is_idle { *idle + 1 } else { *idle - 1 };
    }

    /// Returns how many QPs of a device wait for something until their deadline.
    #[inline]
    pub(crate) fn waiting(&self, device: u32) -> usize {
        let index = device as usize;
        self.of.get(index).map_or(0, |deadlines| deadlines.len() - self.idle[index])
    }

    /// Updates `first` after a device's deadlines have changed. `before` was its first deadline.
    fn follow(&mut self, device: u32, before: Option<(Instant, Qpn)>) {
        let [before, now] = [before, self.of[device as usize].first().copied()].map(|it| it.map(|it| it.0));
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.first.remove(&(before, device));
        }
        if let Some(now) = now {
            self.first.insert((now, device));
        }
    }

    /// Begins to handle deadlines, of all devices that have a due deadline now.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due.clear();
        self.due.extend(self.first.range(..=(now, u32::MAX)).map(|first| first.1));
    }

    /// Returns the next of these devices in turn that still has a due deadline.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<u32> {
        loop {
            let device = *self.due.range(self.turn..).next().or_else(|| self.due.first())?;
            if self.of[device as usize].first().is_some_and(|deadline| deadline.0 <= now) {
                self.turn = device + 1;
                return Some(device);
            }
            self.due.remove(&device);
        }
    }

    /// Removes the device's first deadline if it is due, and returns its QP.
    pub(crate) fn due(&mut self, device: u32, now: Instant) -> Option<QpRef> {
        let deadlines = &mut self.of[device as usize];
        let first = deadlines.first().copied().filter(|deadline| deadline.0 <= now)?;
        deadlines.pop_first();
        self.follow(device, Some(first));
        Some(QpRef { device, qpn: first.1 })
    }

    /// Returns the first deadline of all.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.first.first().map(|first| first.0)
    }

    /// Returns the QP with the first deadline of all.
    pub(crate) fn first_place(&self) -> Option<QpRef> {
        let device = self.first.first()?.1;
        let (_, qpn) = *self.of[device as usize].first().expect("the device has a first deadline");
        Some(QpRef { device, qpn })
    }

    /// Removes a device, and returns its deadlines.
    pub(crate) fn forget(&mut self, device: u32) -> BTreeSet<(Instant, Qpn)> {
        let Some(deadlines) = self.of.get_mut(device as usize) else { return BTreeSet::new() };
        let forgotten = mem::take(deadlines);
        self.idle[device as usize] = 0;
        self.follow(device, forgotten.first().copied());
        forgotten
    }

    /// Returns the number of deadlines until which nothing is waited for.
    pub(crate) fn num_idle(&self) -> usize {
        self.idle.iter().sum()
    }

    /// Returns the number of deadlines.
    pub(crate) fn len(&self) -> usize {
        self.of.iter().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: u32, qpn: u32) -> QpRef {
        QpRef { device, qpn: Qpn::truncate(qpn) }
    }

    #[test]
    fn the_first_of_all_is_known_whatever_comes_and_goes() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.first(), None);
        deadlines.arm(Instant(5), place(1, 10));
        deadlines.arm(Instant(3), place(0, 10));
        deadlines.arm(Instant(3), place(0, 11));
        deadlines.arm(Instant(1), place(1, 11));
        assert_eq!(deadlines.first(), Some(Instant(1)));
        deadlines.disarm(Instant(1), place(1, 11));
        assert_eq!(deadlines.first(), Some(Instant(3)));
        deadlines.disarm(Instant(3), place(0, 10));
        assert_eq!((deadlines.first(), deadlines.len()), (Some(Instant(3)), 2));
        deadlines.forget(0);
        assert_eq!((deadlines.first(), deadlines.len()), (Some(Instant(5)), 1));
        deadlines.begin(Instant(4));
        assert_eq!(deadlines.next_due(Instant(4)), None);
        deadlines.begin(Instant(5));
        assert_eq!(deadlines.next_due(Instant(5)), Some(1));
        assert_eq!(deadlines.due(1, Instant(5)), Some(place(1, 10)));
        assert_eq!((deadlines.due(1, Instant(5)), deadlines.first()), (None, None));
    }

    #[test]
    fn devices_take_turns_whosever_deadlines_came_first() {
        let mut deadlines = Deadlines::default();
        (0..100).for_each(|qpn| deadlines.arm(Instant(qpn), place(0, qpn as u32)));
        deadlines.arm(Instant(200), place(2, 1));
        deadlines.arm(Instant(201), place(3, 1));
        let now = Instant(200);
        deadlines.begin(now);
        assert_eq!(deadlines.due, [0, 2].into());
        assert_eq!(deadlines.next_due(now), Some(0));
        assert_eq!(deadlines.next_due(now), Some(2));
        assert_eq!(deadlines.due(2, now), Some(place(2, 1)));
        assert_eq!(deadlines.next_due(now), Some(0));
        assert_eq!(deadlines.due(0, now), Some(place(0, 0)));
    }
}
