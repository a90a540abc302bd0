//! An engine as a record, and back.

use crate::device::Devices;
use crate::engine::Engine;
use crate::engine::port::Port;
use crate::engine::sweeps::Task;
use crate::fan_out::FanOuts;
use crate::id::DeviceId;
use crate::look::Looks;
use crate::memory::Region;
use crate::place::Place;
use crate::rng::Rng;
use crate::save::record::{self, Record, VERSION};
use crate::save::{RestoreError, Violation, same_names};
use crate::schedule::Schedule;
use crate::time::NEVER;

same_names!(Task { GoOn, StartOver, Sources });

impl<R: Region> Engine<R> {
    /// The record of everything that the engine knows, for [`Engine::restore`]. It can be taken between any two calls. The memory of regions is not in it.
    pub fn save(&self) -> Record {
        let Engine {
            devices,
            schedule,
            looks,
            port,
            sweeps,
            fan_outs,
            request_memory,
            rng,
            send_scratch: _,
            recv_scratch: _,
            place_scratch: _,
            fpdu: _,
            // Streams of a record are not joined.
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

    /// An engine that goes on where the one of the record was: the same calls give the same results. `region` gives the memory
    /// of each region anew, which has the length and the addresses that the record says; `None` refuses the record.
    ///
    /// Callers' clocks go on too: deadlines in the record are times of the same monotonic clock.
    ///
    /// # Errors
    ///
    /// A record that no engine can have written, or a newer one has, is refused, with what is wrong and where.
    pub fn restore(
        record: &Record,
        region: impl FnMut(DeviceId, u32, &record::MemoryRegion) -> Option<R>,
    ) -> Result<Engine<R>, RestoreError> {
        if !(1..=VERSION).contains(&record.version) {
            return Err(Violation::Version.into());
        }
        let port = Port::restore(&record.port)?;
        let mut devices = Devices::restore(&record.devices, region)?;
        let looks = Looks::restore(&record.questions, record.last_question, &mut devices)?;
        let fan_outs = FanOuts::restore(&record.fan_outs, record.fan_out_turn, &devices)?;
        let mut engine = Engine::new(0);
        engine.rng = Rng::new(record.rng);
        engine.request_memory = record.request_memory;
        (engine.devices, engine.looks, engine.port) = (devices, looks, port);
        engine.fan_outs = fan_outs;
        engine.schedule = Schedule::restore(&record.turns, &record.sweeps, &mut engine.devices)?;
        for sweep in &record.sweeps {
            let of_device = |violation| RestoreError::from(violation).of_device(sweep.device);
            engine.restore_sweep(sweep).map_err(of_device)?;
        }
        engine.restore_timers();
        engine.restore_flushes();
        Ok(engine)
    }

    fn restore_sweep(&mut self, sweep: &record::Sweep) -> Result<(), Violation> {
        let device = self.devices.get(sweep.device).ok_or(Violation::Sweep)?;
        let possible = match sweep.task.into() {
            Task::GoOn => !device.suspended,
            Task::StartOver => self.port.is_up(),
            // Restored QPs have the right ones.
            Task::Sources => true,
        };
        if !possible {
            return Err(Violation::Sweep);
        }
        self.sweeps.restore(sweep, device.limits.max_qp)
    }

    /// Arms the deadlines that QPs have.
    fn restore_timers(&mut self) {
        for index in 0..self.devices.indices() {
            let qps = self.devices.get(index).into_iter().flat_map(|device| device.qps.iter());
            for qp in qps.map(|entry| &entry.qp).filter(|qp| qp.timer != NEVER) {
                self.schedule.deadlines.arm(qp.timer, Place { device: index, qpn: qp.qpn });
            }
        }
    }

    /// Gives QPs their slices that have requests to flush.
    fn restore_flushes(&mut self) {
        for index in 0..self.devices.indices() {
            let Some(device) = self.devices.get(index) else { continue };
            for qp in device.qps.iter().map(|entry| &entry.qp).filter(|qp| qp.flush.is_some()) {
                self.schedule.flushes.push(Place { device: index, qpn: qp.qpn });
            }
        }
    }
}
