//! What has to wait until requests that were posted before it are taken: a message without a receive, a command that changes a QP or a
//! shared receive queue.
//!
//! A barrier marks how far the channels reach that can hold such requests. The channels are drained in ordinary turns, so nobody else waits
//! for it; and what is posted behind the marks does not put it off. In the same way commands wait for what the engine does in slices.

use crate::device::broken::step;
use std::time::Duration;

use super::{Barrier, BoundChannel, Mark, Then, Until, Worker};
use crate::device::command::{Command, CommandError, Reply};
use crate::device::objects::CqUser;
use vrdma_transport::{self as transport, CqId, DeviceId, OwnerId, SrqId};

/// For how long a CQ's resize waits at most for requests that complete without anybody else's doing.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// QPs that it looks at in a turn: others do not wait for one whose CQ very many share.
const QPS_AT_ONCE: usize = 64;

impl Mark {
    /// Whether the channel has been drained to the mark, or will never be: it is gone, stopped or broken.
    fn is_reached(&mut self, channels: &[BoundChannel]) -> bool {
        if channels.get(self.position).is_none_or(|bound| bound.serial != self.serial) {
            let Some(position) = channels.iter().position(|bound| bound.serial == self.serial) else {
                return true;
            };
            self.position = position;
        }
        channels[self.position].channel.has_taken(self.index)
    }
}

impl Worker {
    /// Whether anything waits for channels, so that the worker may not sleep.
    pub(super) fn has_barriers(&self) -> bool {
        !self.barriers.is_empty() || self.engine.has_questions()
    }

    /// Takes the engine's questions, and goes on with what has waited long enough. Once a turn, after channels were drained.
    #[inline]
    pub(super) fn pass_barriers(&mut self, now: transport::Instant) -> bool {
        self.has_barriers() && self.look_at_barriers(now)
    }

    #[cold]
    fn look_at_barriers(&mut self, now: transport::Instant) -> bool {
        while let Some(question) = self.engine.poll_question() {
            let marks = self.marks(question.device, question.owner);
            let (device, then) = (question.device, Then::Answer(question));
            self.barriers.push(Barrier { device, marks, until: Until::Now, then });
        }
        let mut waiting = std::mem::take(&mut self.barriers);
        for barrier in &mut waiting {
            barrier.marks.retain_mut(|mark| !mark.is_reached(&self.channels));
        }
        let is_passed = |barrier: &mut Barrier| {
            barrier.marks.is_empty() && self.has_done(barrier.device, &mut barrier.until)
        };
        let passed: Vec<_> = waiting.extract_if(.., is_passed).collect();
        self.barriers = waiting;
        for barrier in passed {
            let Barrier { device, then, .. } = barrier;
            // Those of a device that ended meanwhile find nothing of it.
            match then {
                Then::Answer(question) => self.step(step::ANSWER, device, |worker| {
                    worker.engine.answer(now, question, &mut worker.outputs);
                    #[cfg(feature = "hooks")]
                    crate::hooks::guest_step(&worker.outputs.device(device).guest.name);
                }),
                Then::Run(run) => self.step(step::COMMAND, device, |worker| run(worker)),
            };
        }
        true
    }

    /// How far those channels reach now that can hold requests for QPs of `owner`: its own, and the kernel's, which posts for all.
    fn marks(&mut self, device: DeviceId, owner: OwnerId) -> Vec<Mark> {
        let may = |bound: &BoundChannel| {
            bound.device == device && (bound.owner == owner || bound.owner == OwnerId::KERNEL)
        };
        let channels = self.channels.iter_mut().enumerate().filter(|(_, bound)| may(bound));
        channels.filter_map(|(position, bound)| bound.mark(position)).collect()
    }

    /// Carries a command out, as [`Worker::execute`] does, and hands the result to `done`: at once, or when the requests are taken that were
    /// posted before a command which changes what becomes of them.
    pub fn execute_in_order(
        &mut self,
        id: DeviceId,
        command: Command,
        done: impl FnOnce(Result<Reply, CommandError>) + Send + 'static,
    ) {
        if let Command::DeregMr { key } | Command::ReregMr { key, memory: Some(_), .. } = command {
            return self.execute_and_recall(id, key, command, done);
        }
        let (marks, until) = match command {
            Command::ModifyQp { qpn, .. } | Command::DestroyQp { qpn } => {
                let owner = self.engine.qp_owner(id, qpn);
                (owner.map(|owner| self.marks(id, owner)).unwrap_or_default(), Until::Flushed(qpn))
            }
            Command::ModifySrq { srqn, .. } | Command::DestroySrq { srqn } => {
                let owner = self.engine.srq_owner(id, SrqId(srqn));
                (owner.map(|owner| self.marks(id, owner)).unwrap_or_default(), Until::Now)
            }
            // What completes by itself has completed, so that a ring that is too small for it is refused.
            Command::ResizeCq { cqn, .. } => {
                let end = self.now() + LONGEST_WAIT;
                let device = self.outputs.device(id);
                let (owner, users) = (device.cq_owner(CqId(cqn)), device.users_of(CqId(cqn)));
                let qps = users.into_iter().filter_map(|user| match user {
                    CqUser::Qp(qpn) => Some(qpn),
                    CqUser::Srq(_) => None,
                });
                let until = Until::Settled(qps.collect(), end);
                (owner.map(|owner| self.marks(id, owner)).unwrap_or_default(), until)
            }
            Command::UnbindChannel { queue } => {
                let is_it =
                    |bound: &BoundChannel| bound.device == id && u32::from(bound.channel.index()) == queue;
                let position = self.channels.iter().position(is_it);
                (position.and_then(|at| self.channels[at].mark(at)).into_iter().collect(), Until::Now)
            }
            _ => (Vec::new(), Until::Now),
        };
        // Who is told that a QP is in ERR finds all that was flushed, and who is told that it was reset or destroyed that its windows are unbound.
        let told = match command {
            Command::ModifyQp { qpn, .. } | Command::DestroyQp { qpn } => Until::Flushed(qpn),
            Command::AddGid { .. } | Command::DelGid { .. } => Until::GidsSet,
            _ => Until::Now,
        };
        self.after(id, marks, until, move |worker| {
            let result = worker.execute_unless_ended(id, command);
            let is_of_gids = matches!(told, Until::GidsSet);
            worker.after(id, Vec::new(), told, move |worker| {
                if is_of_gids {
                    worker.settle_gids(id);
                }
                done(result);
            });
        });
    }

    /// Carries a command out. Who was to get loans back, and did not, is told nothing by which its driver would take its memory for its own.
    pub(super) fn execute_unless_ended(
        &mut self,
        id: DeviceId,
        command: Command,
    ) -> Result<Reply, CommandError> {
        let result = self.execute(id, command);
        if self.outputs.is_ending(id) {
            return Err(CommandError::Internal);
        }
        result.map_err(CommandError::from)
    }

    /// Does something when channels are drained to these marks and the engine has done this: now, or in a later turn.
    fn after(
        &mut self,
        device: DeviceId,
        marks: Vec<Mark>,
        mut until: Until,
        run: impl FnOnce(&mut Worker) + Send + 'static,
    ) {
        if marks.is_empty() && self.has_done(device, &mut until) {
            return run(self);
        }
        self.barriers.push(Barrier { device, marks, until, then: Then::Run(Box::new(run)) });
    }

    /// Whether that is done. What is not looked at again is taken off `until`.
    fn has_done(&self, device: DeviceId, until: &mut Until) -> bool {
        match until {
            Until::Now => true,
            Until::Flushed(qpn) => {
                !self.engine.is_flushing(device, *qpn) && !self.engine.is_unbinding(device)
            }
            Until::GidsSet => !self.engine.is_setting_gids(device),
            Until::Settled(qps, end) => {
                for _ in 0..QPS_AT_ONCE {
                    if qps.pop_if(|qpn| !self.engine.is_sending(device, *qpn)).is_none() {
                        break;
                    }
                }
                qps.is_empty() || self.now() >= *end
            }
        }
    }

    /// A device forgets everything: nothing of it waits any longer.
    pub(super) fn drop_barriers(&mut self, id: DeviceId) {
        self.barriers.retain(|barrier| barrier.device != id);
    }
}

impl BoundChannel {
    fn mark(&mut self, position: usize) -> Option<Mark> {
        let index = self.channel.reach()?;
        Some(Mark { serial: self.serial, position, index })
    }
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barrier").field("device", &self.device).finish_non_exhaustive()
    }
}
