//! What is to be done to all QPs of a device: to some of them in each [`Engine::poll`], for there may be many, and all devices wait meanwhile.

use crate::completion::Sink;
use crate::engine::Engine;
use crate::engine::borrowed::BorrowedQp;
use crate::memory::Region;
use crate::qp::Qp;
use crate::qp::requester::Wait;
use crate::save::{Violation, record};
use crate::schedule::Place;
use std::collections::VecDeque;

/// QPs that one call of [`Engine::poll`] attends to in this way,
pub(crate) const SWEPT: usize = 64;
/// and those of one task before the next has its turn.
const TURN: usize = 16;

/// What is to be done to each.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// The device goes on: what waited is tried at once.
    GoOn,
    /// The link is up again: what was not answered is sent again.
    StartOver,
    /// The GID table has changed, and with it QPs' own addresses.
    Sources,
}

/// What is left of a task.
#[derive(Copy, Clone, Debug)]
struct Sweep {
    /// Index of the device.
    device: u32,
    task: Task,
    /// QPs below this index are done.
    next: usize,
}

/// All tasks under way, each at most once for a device, in the order of their turns.
#[derive(Default)]
pub(crate) struct Sweeps(VecDeque<Sweep>);

impl Sweeps {
    /// The record of them.
    pub(super) fn save(&self) -> Vec<record::Sweep> {
        let save = |sweep: &Sweep| {
            let Sweep { device, task, next } = *sweep;
            record::Sweep { device, task: task.into(), next: next as u32 }
        };
        self.0.iter().map(save).collect()
    }

    /// Adds one from the record; `end` is the end of the device's QP indices.
    pub(super) fn restore(&mut self, record: &record::Sweep, end: u32) -> Result<(), Violation> {
        let sweep = Sweep { device: record.device, task: record.task.into(), next: record.next as usize };
        let same = |other: &Sweep| (other.device, other.task) == (sweep.device, sweep.task);
        if record.next > end || self.0.iter().any(same) {
            return Err(Violation::Sweep);
        }
        self.0.push_back(sweep);
        Ok(())
    }

    /// Begins a task, or begins it again.
    fn begin(&mut self, device: u32, task: Task) {
        self.0.retain(|sweep| (sweep.device, sweep.task) != (device, task));
        self.0.push_back(Sweep { device, task, next: 0 });
    }

    /// Ends the tasks of a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.0.retain(|sweep| sweep.device != device);
    }

    /// Ends those tasks of a device by which its QPs go on.
    pub(crate) fn suspend(&mut self, device: u32) {
        self.0.retain(|sweep| sweep.device != device || sweep.task == Task::Sources);
    }

    /// Whether a task is under way.
    pub(super) fn has(&self, device: u32, task: Task) -> bool {
        self.0.iter().any(|sweep| (sweep.device, sweep.task) == (device, task))
    }

    /// Ends tasks of a kind.
    pub(super) fn end(&mut self, task: Task) {
        self.0.retain(|sweep| sweep.task != task);
    }

    /// Whether anything is left to do.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<R: Region> Engine<R> {
    /// Begins a task for all QPs that a device has now.
    pub(super) fn sweep(&mut self, device: u32, task: Task) {
        self.sweeps.begin(device, task);
    }

    /// The same, and does the first slice of it.
    pub(super) fn sweep_now(&mut self, device: u32, task: Task, sink: &mut impl Sink) {
        self.sweeps.begin(device, task);
        let sweep = self.sweeps.0.pop_back().expect("it was begun just now");
        self.sweep_on(sweep, SWEPT, sink);
    }

    /// Does a slice of what is to be done.
    #[inline]
    pub(super) fn sweep_some(&mut self, sink: &mut impl Sink) {
        if self.sweeps.any() {
            self.sweep_slice(sink);
        }
    }

    #[cold]
    fn sweep_slice(&mut self, sink: &mut impl Sink) {
        let mut left = SWEPT;
        // Indices without a QP cost little, but are not free.
        while left > 0
            && let Some(sweep) = self.sweeps.0.pop_front()
        {
            left -= self.sweep_on(sweep, left.min(TURN), sink);
        }
    }

    /// Attends to up to `most` QPs; to how many. What is left of the task is then last of all.
    fn sweep_on(&mut self, sweep: Sweep, most: usize, sink: &mut impl Sink) -> usize {
        let Sweep { device, task, next } = sweep;
        let end = self.devices.get(device).map_or(0, |device| device.qps.indices());
        let stop = end.min(next + most);
        for index in next..stop {
            let entry = self.devices.get(device).and_then(|device| device.qps.at(index));
            if let Some(qpn) = entry.map(|entry| entry.qp.qpn) {
                self.run_task(task, Place { device, qpn }, sink);
            }
        }
        if stop < end {
            self.sweeps.0.push_back(Sweep { next: stop, ..sweep });
        } else if task == Task::Sources {
            self.devices.release_retired(device);
        }
        stop.saturating_sub(next)
    }

    fn run_task(&mut self, task: Task, place: Place, sink: &mut impl Sink) {
        match task {
            Task::GoOn => self.go_on(place, sink),
            Task::StartOver => self.known(place, sink).start_over(),
            Task::Sources => self.devices.refresh_source(place),
        }
    }
}

impl<R: Region, S: Sink> BorrowedQp<'_, R, S> {
    /// What a connection sent and was not answered got lost, most likely: it is sent again now, not when its time is over.
    fn start_over(&mut self) {
        let Qp { requester, .. } = &*self.qp;
        if requester.started && requester.wait == Wait::No && self.service.send_again(self.qp) {
            self.make_turn_due();
        }
    }
}
