//! What has to wait until requests that were posted before it are taken: a message without a
//! receive, a command that changes a QP or a shared receive queue.
//!
//! A barrier marks how far the channels reach that can hold such requests. The channels are drained
//! in ordinary turns, so nobody else waits for it; and what is posted behind the marks does not put
//! it off. In the same way commands wait for what the engine does in slices.

use crate::device::broken::step;
use std::time::Duration;

use super::{Barrier, BoundChannel, CommandError, Job, Mark, Order, Then, Until, Worker};
use crate::device::objects::CqUser;
use vrdma_transport::{self as transport, DeviceId, OwnerId};

/// For how long a CQ's resize waits at most for requests that complete without anybody else's
/// doing.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// QPs that it looks at in a turn: others do not wait for one whose CQ very many share.
const QPS_AT_ONCE: usize = 64;

impl Mark {
    /// Whether the channel has been drained to the mark, or will never be: it is gone, stopped or
    /// broken.
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

    /// Takes the engine's questions, and goes on with what has waited long enough. Once a turn,
    /// after channels were drained.
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

    /// How far those channels reach now that can hold requests for QPs of `owner`: its own, and the
    /// kernel's, which posts for all.
    fn marks(&mut self, device: DeviceId, owner: OwnerId) -> Vec<Mark> {
        let may = |bound: &BoundChannel| {
            bound.device == device && (bound.owner == owner || bound.owner == OwnerId::KERNEL)
        };
        let channels = self.channels.iter_mut().enumerate().filter(|(_, bound)| may(bound));
        channels.filter_map(|(position, bound)| bound.mark(position)).collect()
    }

    /// Carries a command out in its order, and hands the result to `done`: at once, or in a later
    /// turn.
    pub fn execute_in_order<R: Send + 'static>(
        &mut self,
        id: DeviceId,
        job: Job<R>,
        done: impl FnOnce(Result<R, CommandError>) + Send + 'static,
    ) {
        let order = job.order;
        if let Order::Region(key) = order {
            return self.execute_and_recall(id, key, job, done);
        }
        let (marks, until) = self.before(id, order);
        let told = match order {
            Order::Qp(qpn) => Until::Flushed(qpn),
            Order::Gids => Until::GidsSet,
            _ => Until::Now,
        };
        self.after(id, marks, until, move |worker| {
            let result = worker.execute_unless_ended(id, job);
            worker.after(id, Vec::new(), told, move |worker| {
                if order == Order::Gids {
                    worker.settle_gids(id);
                }
                done(result);
            });
        });
    }

    /// How far channels have to be drained before a command of this order, and what the engine has
    /// to have done.
    fn before(&mut self, id: DeviceId, order: Order) -> (Vec<Mark>, Until) {
        let (owner, until) = match order {
            Order::Qp(qpn) => (self.engine.qp_owner(id, qpn).ok(), Until::Flushed(qpn)),
            Order::Srq(srq) => (self.engine.srq_owner(id, srq).ok(), Until::Now),
            // What completes by itself has completed, so that a ring that is too small is refused.
            Order::Cq(cq) => {
                let end = self.now() + LONGEST_WAIT;
                let device = self.outputs.device(id);
                let (owner, users) = (device.cq_owner(cq), device.users_of(cq));
                let qps = users.into_iter().filter_map(|user| match user {
                    CqUser::Qp(qpn) => Some(qpn),
                    CqUser::Srq(_) => None,
                });
                (owner, Until::Settled(qps.collect(), end))
            }
            Order::Channel(queue) => {
                let is_it = |bound: &BoundChannel| bound.device == id && bound.channel.index() == queue;
                let position = self.channels.iter().position(is_it);
                let mark = position.and_then(|at| self.channels[at].mark(at));
                return (mark.into_iter().collect(), Until::Now);
            }
            Order::Now | Order::Gids | Order::Region(_) => (None, Until::Now),
        };
        (owner.map(|owner| self.marks(id, owner)).unwrap_or_default(), until)
    }

    /// Does something when channels are drained to these marks and the engine has done this: now,
    /// or in a later turn.
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
