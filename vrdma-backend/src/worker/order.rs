//! Makes work wait for requests that were posted before it.
//!
//! A message without a receive waits for receives. A command that changes a QP or a shared receive
//! queue waits for requests.
//!
//! A barrier marks how far those channels reach that can hold such requests. The channels are
//! drained in ordinary rounds, so nobody else waits for the barrier. Requests behind the marks do
//! not delay it. Commands also wait for what the engine does in slices.

use crate::device::broken::step;
use std::time::Duration;

use super::{Barrier, BoundChannel, CommandError, Job, Mark, Order, Then, Until, Worker};
use crate::device::objects::CqUser;
use vrdma_transport::{self as transport, DeviceId, OwnerId};

/// The longest time that a CQ's resize waits for requests that complete by themselves.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// The most QPs that it checks in one round. Others do not wait while very many QPs share the CQ.
const QPS_AT_ONCE: usize = 64;

impl Mark {
    /// Whether the channel has been drained to the mark, or never will be.
    ///
    /// A channel that is gone, stopped or broken never will be.
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

    /// Takes the engine's questions, and continues work that has waited long enough.
    ///
    /// It is called once a round, after channels were drained.
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
            // If the device ended meanwhile, the closure finds nothing of it.
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

    /// Marks how far those channels reach that can hold requests for QPs of `owner`.
    ///
    /// They are the owner's channels and the kernel's, because the kernel posts for all.
    fn marks(&mut self, device: DeviceId, owner: OwnerId) -> Vec<Mark> {
        let may = |bound: &BoundChannel| {
            bound.device == device && (bound.owner == owner || bound.owner == OwnerId::KERNEL)
        };
        let channels = self.channels.iter_mut().enumerate().filter(|(_, bound)| may(bound));
        channels.filter_map(|(position, bound)| bound.mark(position)).collect()
    }

    /// Executes a command in its order, and passes the result to `done`, perhaps in a later round.
    pub fn execute_in_order<R: Send + 'static>(
        &mut self,
        id: DeviceId,
        job: Job<R>,
        done: impl FnOnce(Result<R, CommandError>) + Send + 'static,
    ) {
        let order = job.order;
        if let Order::Region(key) = order {
            return self.execute_and_revoke(id, key, job, done);
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

    /// Returns how far channels have to be drained before a command of this order.
    ///
    /// It also returns what the engine has to finish before the command.
    fn before(&mut self, id: DeviceId, order: Order) -> (Vec<Mark>, Until) {
        let (owner, until) = match order {
            Order::Qp(qpn) => (self.engine.qp_owner(id, qpn).ok(), Until::Flushed(qpn)),
            Order::Srq(srq) => (self.engine.srq_owner(id, srq).ok(), Until::Now),
            // Requests that complete by themselves complete first. So the command refuses a ring
            // that is too small for them.
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

    /// Calls `run` once channels are drained to these marks and the engine has finished `until`.
    ///
    /// That is at once, or in a later round.
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

    /// Whether that is finished. QPs that need not be checked again are removed from `until`.
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
