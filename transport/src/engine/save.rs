//! Saving of an engine as a record, and restoring.

use crate::agenda::drains::Drains;
use crate::agenda::fan_out::FanOuts;
use crate::agenda::schedule::Schedule;
use crate::agenda::sweeps::{Sweep, Task};
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::rng::Rng;
use crate::base::time::NEVER;
use crate::engine::Engine;
use crate::message::core::Core;
use crate::objects::device::Devices;
use crate::objects::port::Port;
use crate::objects::qp::entry::QpEntry;
use crate::objects::service::Service;
use crate::save::record::{self, Record, VERSION};
use crate::save::{RestoreError, Violation, same_names};

same_names!(Task { GoOn, StartOver, Sources });

impl<R: Region> Engine<R> {
    /// Returns the record of everything that the engine knows, for [`Engine::restore`].
    ///
    /// It can be taken between any two calls. The memory of regions is not in it.
    pub fn save(&self) -> Record {
        let Engine {
            core: Core { devices, schedule, looks, port, send_scratch: _, recv_scratch: _ },
            sweeps,
            fan_outs,
            request_memory,
            rng,
            place_scratch: _,
            fpdu: _,
            // A record has no loopback connections.
            joins: _,
        } = self;
        let (fan_outs, fan_out_turn) = fan_outs.save();
        Record {
            version: VERSION,
            rng: rng.state(),
            request_memory: *request_memory,
            port: port.save(),
            devices: devices.save(),
            turns: schedule.save(devices),
            sweeps: sweeps.save(),
            questions: looks.save(),
            last_question: looks.last(),
            fan_outs,
            fan_out_turn,
        }
    }

    /// Makes an engine that goes on where the engine of the record was.
    ///
    /// Equal calls give equal results. `region` returns the memory of each region again, with the
    /// length and the addresses that the record has. `None` refuses the record.
    ///
    /// The caller's clock goes on too. Deadlines in the record are times of the same monotonic
    /// clock.
    ///
    /// # Errors
    ///
    /// A record is refused if no engine, or only a newer one, can have written it. The error says
    /// what is wrong and where.
    pub fn restore(
        record: &Record,
        region: impl FnMut(DeviceId, u32, &record::MemoryRegion) -> Option<R>,
    ) -> Result<Engine<R>, RestoreError> {
        if !(1..=VERSION).contains(&record.version) {
            return Err(Violation::Version.into());
        }
        let port = Port::restore(&record.port)?;
        let mut devices = Devices::restore(&record.devices, region)?;
        let looks = Drains::restore(&record.questions, record.last_question, &mut devices)?;
        let fan_outs = FanOuts::restore(&record.fan_outs, record.fan_out_turn, &devices)?;
        let mut engine = Engine::new(0);
        engine.rng = Rng::new(record.rng);
        engine.request_memory = record.request_memory;
        (engine.core.devices, engine.core.looks, engine.core.port) = (devices, looks, port);
        engine.fan_outs = fan_outs;
        engine.core.schedule = Schedule::restore(&record.turns, &record.sweeps, &mut engine.core.devices)?;
        for sweep in &record.sweeps {
            let of_device = |violation| RestoreError::from(violation).of_device(sweep.device);
            engine.restore_sweep(sweep).map_err(of_device)?;
        }
        engine.restore_reorder()?;
        engine.restore_early();
        engine.restore_timers();
        engine.restore_flushes();
        Ok(engine)
    }

    fn restore_sweep(&mut self, sweep: &record::Sweep) -> Result<(), Violation> {
        let device = self.core.devices.get(sweep.device).ok_or(Violation::Sweep)?;
        let possible = match sweep.task.into() {
            Task::GoOn => !device.suspended,
            Task::StartOver => self.core.port.is_up(),
            // Restored QPs have the right addresses already.
            Task::Sources => true,
        };
        if !possible {
            return Err(Violation::Sweep);
        }
        self.sweeps.restore(sweep, device.limits.max_qp)
    }

    /// Accounts what QPs hold ahead of gaps.
    fn restore_reorder(&mut self) -> Result<(), RestoreError> {
        let Core { devices, schedule, .. } = &mut self.core;
        for index in 0..devices.indices() {
            let Some(device) = devices.get(index) else { continue };
            // It rests until it is told to go on, and until that has reached all its QPs.
            let goes_on = |it: &Sweep| it.device == index && it.task == Task::GoOn;
            let rests = device.suspended || self.sweeps.0.iter().any(goes_on);
            for QpEntry { qp, service } in device.qps.iter() {
                let Some(buffer) = service.held_early() else { continue };
                let place = QpRef { device: index, qpn: qp.qpn };
                let done = match !rests && buffer.is_forgotten(qp) {
                    true => Err(Violation::Lost),
                    false => schedule.reorder.restored(place, buffer.place, buffer.held()),
                };
                let of_qp = |it| RestoreError::from(it).of_qp(qp.qpn.number()).of_device(index);
                done.map_err(of_qp)?;
            }
        }
        Ok(())
    }

    /// Accounts what QPs hold ahead of missing responses.
    fn restore_early(&mut self) {
        let Core { devices, schedule, .. } = &mut self.core;
        for index in 0..devices.indices() {
            let Some(device) = devices.get_mut(index) else { continue };
            let all = 0..device.qps.indices();
            for (_, entry) in device.qps.range_mut(all) {
                if let Service::Rc(Some(roce)) = &mut entry.service
                    && let Some(early) = &mut roce.early
                {
                    early.move_to(schedule.early.share(index));
                }
            }
        }
    }

    /// Arms the deadlines of QPs.
    fn restore_timers(&mut self) {
        for index in 0..self.core.devices.indices() {
            let qps = self.core.devices.get(index).into_iter().flat_map(|device| device.qps.iter());
            for qp in qps.map(|entry| &entry.qp).filter(|qp| qp.timer != NEVER) {
                let deadlines = &mut self.core.schedule.deadlines;
                deadlines.arm(qp.timer, QpRef { device: index, qpn: qp.qpn });
                if qp.timer_is_idle {
                    deadlines.note_idle(index, true);
                }
            }
        }
    }

    /// Schedules QPs that have requests to flush.
    fn restore_flushes(&mut self) {
        for index in 0..self.core.devices.indices() {
            let Some(device) = self.core.devices.get(index) else { continue };
            for qp in device.qps.iter().map(|entry| &entry.qp).filter(|qp| qp.flush.is_some()) {
                self.core.schedule.flushes.push(QpRef { device: index, qpn: qp.qpn });
            }
        }
    }
}
