//! Recovery after a call of the engine that panicked.
//!
//! The devices that the call was working on are removed. The others go on.
//!
//! A call is a sequence of steps. Each step changes the device of one QP, those of its peers, and
//! what devices share: lists of turns, deadlines, questions. The engine records which devices a
//! step has reached ([`Devices::reached`](crate::objects::device::Devices::reached)). If a step has
//! taken an entry out of a list and not put it back, the entry's device is one of them.

use crate::base::id::DeviceId;
use crate::base::memory::{Fault, Region};
use crate::base::time::NEVER;
use crate::engine::Engine;
use crate::message::core::Core;
use crate::objects::outstanding::Scratch;
use crate::objects::qp::Qp;
use crate::objects::roce::reorder::ReorderBuffer;
use crate::save::{RestoreError, Violation, record};
use core::sync::atomic::AtomicU64;

impl<R: Region> Engine<R> {
    /// Begins a step, so that the caller can find out what it [reached](Engine::reached).
    ///
    /// Calls of several steps begin each step themselves.
    #[inline]
    pub fn begin_step(&mut self) {
        self.core.devices.begin_step();
    }

    /// Returns the devices that the last step could change. If it panicked, they may be in any
    /// state.
    pub fn reached(&self) -> Vec<DeviceId> {
        self.core.devices.reached().map(DeviceId).collect()
    }

    /// Checks whether the other devices can go on after a call that panicked.
    ///
    /// The caller has [reset](Engine::reset_device) the devices that the call
    /// [reached](Engine::reached). What the other devices share is compared with their state, by
    /// way of a [record](Engine::save). That takes time and memory in proportion to their objects.
    ///
    /// # Errors
    /// What devices share was changed in part. The engine must not be used any more.
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

    /// Checks that each QP that is marked as waiting is in the list of its kind, and that the memory
    /// of packets ahead of gaps is accounted.
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
            && waiting(|qp| qp.timer != NEVER) == self.core.schedule.deadlines.len()
            && waiting(|qp| qp.timer_is_idle) == self.core.schedule.deadlines.num_idle();
        let holds_all = (0..self.core.devices.indices()).all(|index| {
            let buffers = self.core.devices.get(index).into_iter().flat_map(|device| {
                device.qps.iter().filter_map(|entry| entry.service.held_early().map(ReorderBuffer::held))
            });
            self.core.schedule.reorder.is_sum(index, buffers)
        });
        if are_all && holds_all { Ok(()) } else { Err(Violation::Lost) }
    }
}

/// Memory of the regions of an engine that is made only for its checks.
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
