//! What a caller does with an engine of which a call panicked: those devices go that the call had
//! at hand, the others go on.
//!
//! A call is a sequence of steps. Each changes the device of one QP, those of its peers, and what
//! devices share: lists of who has a turn, deadlines, questions. Which devices a step had is known
//! ([`Devices::reached`](crate::objects::device::Devices::reached)). An entry that it took out of a
//! list and did not put back is one of them.

use crate::base::id::DeviceId;
use crate::base::memory::{Fault, Region};
use crate::base::time::NEVER;
use crate::engine::Engine;
use crate::message::core::Core;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Qp;
use crate::save::{RestoreError, Violation, record};
use core::sync::atomic::AtomicU64;

impl<R: Region> Engine<R> {
    /// A step begins, within which the caller may find out what it [reached](Engine::reached).
    /// Calls that are several steps begin each by themselves.
    #[inline]
    pub fn begin_step(&mut self) {
        self.core.devices.begin_step();
    }

    /// The devices that the last step had, to change them. If it panicked, they may be anything.
    pub fn reached(&self) -> Vec<DeviceId> {
        self.core.devices.reached().map(DeviceId).collect()
    }

    /// After a call that panicked, and after the devices that it [reached](Engine::reached) were
    /// [reset](Engine::reset_device): whether the others can go on. What they share is compared
    /// with what they are, by way of a [record](Engine::save), which takes time and memory as they
    /// have objects.
    ///
    /// # Errors
    /// What devices share was changed in part. The engine is not to be used any more.
    pub fn check_after_panic(&mut self) -> Result<(), RestoreError> {
        let Engine { core: Core { send_scratch, recv_scratch, .. }, place_scratch, fpdu, .. } = self;
        for scratch in [send_scratch, recv_scratch, place_scratch] {
            *scratch = Scratch::default();
        }
        *fpdu = Vec::new();
        let record = self.save();
        drop(Engine::restore(&record, |_, _, _| Some(NoMemory))?);
        self.check_lists(&record.turns).map_err(RestoreError::from)
    }

    /// Whether each QP that waits, as it says, is in the list of those that do.
    fn check_lists(&self, turns: &record::Turns) -> Result<(), Violation> {
        let devices = (0..self.core.devices.indices()).filter_map(|index| self.core.devices.get(index));
        let qps: Vec<&Qp> = devices.flat_map(|device| device.qps.iter().map(|entry| &entry.qp)).collect();
        let waiting = |waits: fn(&Qp) -> bool| qps.iter().filter(|qp| waits(qp)).count();
        let listed = |round: &record::Round, list: fn(&record::Share) -> &Vec<u32>| {
            round.shares.iter().map(|share| list(share).len()).sum::<usize>()
        };
        let are_all = waiting(|qp| qp.requester.ready) == listed(&turns.local, |share| &share.requests)
            && waiting(|qp| qp.answer_due) == listed(&turns.wire, |share| &share.answers)
            && waiting(|qp| qp.turn_due) == listed(&turns.wire, |share| &share.requests)
            && waiting(|qp| qp.timer != NEVER) == self.core.schedule.deadlines.len();
        if are_all { Ok(()) } else { Err(Violation::Lost) }
    }
}

/// Memory of the regions of an engine that is made for the sake of its checks alone.
struct NoMemory;

impl Region for NoMemory {
    fn copy_to(&self, _: u64, _: &Self, _: u64, _: u64) -> Result<(), Fault> {
        Err(Fault)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        Err(Fault)
    }
}
