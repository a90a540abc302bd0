//! Executes control commands. `command/` defines what each of them does. What applies to all is
//! here.

use super::Worker;
use crate::device::Result;
use crate::panics;
use vrdma_transport::{CqId, DeviceId, Error, SrqId};
use vrdma_wire::num::{Lkey, Qpn};

/// What a command waits for before it is executed, and what its driver waits for before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Neither waits.
    Now,
    /// The command changes a QP.
    ///
    /// It waits for requests of this QP that were posted before. It also waits for what earlier
    /// commands flush and unbind. The driver waits for what this command flushes and unbinds.
    Qp(Qpn),
    /// The command waits for requests of this shared receive queue that were posted before.
    Srq(SrqId),
    /// The command waits for requests of the CQ's context that were posted before.
    ///
    /// It also waits for those that complete by themselves, for at most 10 ms.
    Cq(CqId),
    /// The command waits for requests in the channel of this virtqueue.
    Channel(u16),
    /// The driver waits until all QPs use the GID table.
    Gids,
    /// The driver waits until the uplink has released the memory that this region has at present.
    Region(Lkey),
}

/// Executes a command for a device. If it refuses, nothing has changed.
type Run<R> = Box<dyn FnOnce(&mut Worker, DeviceId) -> Result<R> + Send>;

/// A command as a worker takes it. `R` is what the command returns.
pub struct Job<R> {
    /// What the command and its driver wait for.
    pub order: Order,
    /// Whether the guest may reuse memory afterwards that was pinned for other workers.
    pub revokes_pins: bool,
    /// Whether the command changes what several guests share. A panic within it ends the process.
    pub is_shared: bool,
    /// Executes the command.
    pub run: Run<R>,
}

impl<R: 'static> Job<R> {
    /// Returns a job for the same command that applies `f` to its result.
    pub fn map<S>(self, f: impl FnOnce(R) -> S + Send + 'static) -> Job<S> {
        let Job { order, revokes_pins, is_shared, run } = self;
        Job { order, revokes_pins, is_shared, run: Box::new(|worker, id| run(worker, id).map(f)) }
    }
}

/// Why a command was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The command is not allowed. Nothing has changed.
    Refused(Error),
    /// The device failed. The driver is not at fault.
    Internal,
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::Refused(error)
    }
}

impl Worker {
    /// Executes a command at once, whatever its order is.
    ///
    /// # Errors
    /// The command is refused, and nothing has changed.
    pub fn execute<R>(&mut self, id: DeviceId, job: Job<R>) -> Result<R> {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.outputs.device(id).guest.name);
        if job.is_shared { panics::shared(|| self.carry_out(id, job)) } else { self.carry_out(id, job) }
    }

    fn carry_out<R>(&mut self, id: DeviceId, job: Job<R>) -> Result<R> {
        let result = (job.run)(self, id);
        if job.revokes_pins {
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

    /// Executes a command, and returns `Internal` if its device is about to end.
    ///
    /// Other workers may not have released memory of the driver in time. The driver must not reuse
    /// that memory, so it gets an error.
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
