//! Tasks for all QPs of a device. There may be many QPs, and all devices wait meanwhile, so each
//! [`Engine::poll`] does some.

use crate::agenda::sweeps::{Sweep, Task};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::ctx::QpCtx;
use crate::objects::qp::Qp;
use crate::objects::qp::requester::Wait;
use crate::verbs::completion::Sink;

/// Most QPs that one call of [`Engine::poll`] handles for tasks.
pub(crate) const SWEPT: usize = 64;
/// Most QPs of one task that are handled before the next task has its turn.
const TURN: usize = 16;

impl<R: Region> Engine<R> {
    /// Begins a task for all QPs that a device has now.
    pub(crate) fn sweep(&mut self, device: u32, task: Task) {
        self.sweeps.begin(device, task);
    }

    /// Begins a task for all QPs that a device has now, and does its first slice.
    pub(crate) fn sweep_now(&mut self, device: u32, task: Task, sink: &mut impl Sink) {
        self.sweeps.begin(device, task);
        let sweep = self.sweeps.0.pop_back().expect("it was begun just now");
        self.sweep_on(sweep, SWEPT, sink);
    }

    /// Does a slice of the tasks.
    #[inline]
    pub(crate) fn sweep_some(&mut self, sink: &mut impl Sink) {
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

    /// Executes a task for up to `most` QPs. Returns for how many.
    ///
    /// If some are left, the task is then the last of all.
    fn sweep_on(&mut self, sweep: Sweep, most: usize, sink: &mut impl Sink) -> usize {
        let Sweep { device, task, next } = sweep;
        self.begin_step();
        let end = self.core.devices.known_device(device).qps.indices();
        let stop = end.min(next + most);
        for index in next..stop {
            let entry = self.core.devices.known_device(device).qps.at(index);
            if let Some(qpn) = entry.map(|entry| entry.qp.qpn) {
                self.run_task(task, QpRef { device, qpn }, sink);
            }
        }
        if stop < end {
            self.sweeps.0.push_back(Sweep { next: stop, ..sweep });
        } else if task == Task::Sources {
            self.core.devices.release_retired(device);
        }
        stop.saturating_sub(next)
    }

    fn run_task(&mut self, task: Task, place: QpRef, sink: &mut impl Sink) {
        match task {
            Task::GoOn => self.go_on(place, sink),
            Task::StartOver => start_over(self.core.known(place, sink)),
            Task::Sources => self.core.devices.refresh_source(place),
        }
    }
}

/// Retransmits at once what a connection sent without an answer. It was most likely lost while the
/// link was down.
fn start_over<R: Region, S: Sink>(mut ctx: QpCtx<'_, R, S>) {
    if ctx.qp.transport == TransportKind::Tcp {
        return ctx.stream().stream_has_room();
    }
    let Qp { requester, .. } = &*ctx.qp;
    if requester.started && requester.wait == Wait::No && ctx.conn.send_again(ctx.qp) {
        ctx.make_turn_due();
    }
}
