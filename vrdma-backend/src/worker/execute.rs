//! Carries out control commands. `command/` says what each of them does; what holds for all of them
//! is here.

use super::Worker;
use crate::device::Result;
use crate::panics;
use vrdma_transport::{CqId, DeviceId, Error, SrqId};
use vrdma_wire::num::{Lkey, Qpn};

/// What a command waits for, and what its driver waits for before it is told the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Neither waits.
    Now,
    /// The command changes a QP. It waits for requests of this QP that were posted before, and for
    /// what earlier commands flush and unbind. The driver waits for what this one flushes and
    /// unbinds.
    Qp(Qpn),
    /// The command waits for requests of this shared receive queue that were posted before.
    Srq(SrqId),
    /// The command waits for requests of the CQ's context that were posted before. For at most 10
    /// ms it waits for those, too, that complete by themselves.
    Cq(CqId),
    /// The command waits for requests in the channel of this virtqueue.
    Channel(u16),
    /// The driver waits until the GID table is in force.
    Gids,
    /// The driver waits until the uplink has given back the memory that this region has now.
    Region(Lkey),
}

/// Carries a command out for a device. If it refuses, nothing has changed.
type Run<R> = Box<dyn FnOnce(&mut Worker, DeviceId) -> Result<R> + Send>;

/// A command as a worker takes it. `R` is what it returns.
pub struct Job<R> {
    /// What it waits for, and its driver.
    pub order: Order,
    /// The guest may use memory again afterwards that it had lent to other workers.
    pub ends_loans: bool,
    /// It changes what several guests share: a panic within ends the process.
    pub is_shared: bool,
    /// Carries it out.
    pub run: Run<R>,
}

impl<R: 'static> Job<R> {
    /// The same command, which returns `f` of what it returns.
    pub fn map<S>(self, f: impl FnOnce(R) -> S + Send + 'static) -> Job<S> {
        let Job { order, ends_loans, is_shared, run } = self;
        Job { order, ends_loans, is_shared, run: Box::new(|worker, id| run(worker, id).map(f)) }
    }
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// It may not be; nothing has changed.
    Refused(Error),
    /// The device failed; it is not the driver's fault.
    Internal,
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::Refused(error)
    }
}

impl Worker {
    /// Carries out a command at once, whatever its order is.
    ///
    /// # Errors
    /// Why it is refused. Nothing has changed then.
    pub fn execute<R>(&mut self, id: DeviceId, job: Job<R>) -> Result<R> {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.outputs.device(id).guest.name);
        if job.is_shared { panics::shared(|| self.carry_out(id, job)) } else { self.carry_out(id, job) }
    }

    fn carry_out<R>(&mut self, id: DeviceId, job: Job<R>) -> Result<R> {
        let result = (job.run)(self, id);
        if job.ends_loans {
            self.outputs.take_loans_back(id);
        }
        if let Order::Qp(qpn) = job.order {
            self.look_at_stream(id, qpn);
        }
        let counters = &mut self.outputs.device(id).counters;
        match result {
            Ok(_) => counters.commands += 1,
            Err(_) => counters.refused_commands += 1,
        }
        result
    }

    /// Carries out a command, unless its device ends. A driver whose memory other workers did not
    /// give back in time must not take that memory for its own, so it hears of a failure.
    pub(super) fn execute_unless_ended<R>(
        &mut self,
        id: DeviceId,
        job: Job<R>,
    ) -> std::result::Result<R, CommandError> {
        let result = self.execute(id, job);
        if self.outputs.is_ending(id) {
            return Err(CommandError::Internal);
        }
        result.map_err(CommandError::from)
    }
}
