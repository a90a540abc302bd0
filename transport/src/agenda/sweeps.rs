//! Tasks for all QPs of a device, which are done in slices.

use crate::save::{Violation, record};
use std::collections::VecDeque;

/// A task for each QP of a device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// The device resumes: everything that waited is tried at once.
    GoOn,
    /// The link is up again: everything without an answer is retransmitted.
    StartOver,
    /// The GID table has changed, and with it the QPs' own addresses.
    Sources,
}

/// The rest of a task.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sweep {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) task: Task,
    /// All QPs with a lower index are done.
    pub(crate) next: usize,
}

/// All tasks under way, in the order of their turns. Each is in it at most once for a device.
#[derive(Default)]
pub(crate) struct Sweeps(pub(crate) VecDeque<Sweep>);

impl Sweeps {
    /// Returns the record of the tasks.
    pub(crate) fn save(&self) -> Vec<record::Sweep> {
        let save = |sweep: &Sweep| {
            let Sweep { device, task, next } = *sweep;
            record::Sweep { device, task: task.into(), next: next as u32 }
        };
        self.0.iter().map(save).collect()
    }

    /// Restores a task from a record. `end` is the end of the device's QP indices.
    pub(crate) fn restore(&mut self, record: &record::Sweep, end: u32) -> Result<(), Violation> {
        let sweep = Sweep { device: record.device, task: record.task.into(), next: record.next as usize };
        let same = |other: &Sweep| (other.device, other.task) == (sweep.device, sweep.task);
        if record.next > end || self.0.iter().any(same) {
            return Err(Violation::Sweep);
        }
        self.0.push_back(sweep);
        Ok(())
    }

    /// Begins a task, or begins it again.
    pub(crate) fn begin(&mut self, device: u32, task: Task) {
        self.0.retain(|sweep| (sweep.device, sweep.task) != (device, task));
        self.0.push_back(Sweep { device, task, next: 0 });
    }

    /// Ends all tasks of a device.
    pub(crate) fn forget(&mut self, device: u32) {
        self.0.retain(|sweep| sweep.device != device);
    }

    /// Ends all tasks of a device that make its QPs go on.
    pub(crate) fn suspend(&mut self, device: u32) {
        self.0.retain(|sweep| sweep.device != device || sweep.task == Task::Sources);
    }

    /// Whether this task is under way.
    pub(crate) fn has(&self, device: u32, task: Task) -> bool {
        self.0.iter().any(|sweep| (sweep.device, sweep.task) == (device, task))
    }

    /// Ends all tasks of a kind.
    pub(crate) fn end(&mut self, task: Task) {
        self.0.retain(|sweep| sweep.task != task);
    }

    /// Whether any task is under way.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }
}
