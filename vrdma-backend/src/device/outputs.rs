//! Where completions and events go: the engine's sink.

use super::Device;
use crate::queue::event::EventQueue;
use crate::ratelimit::RateLimit;
use crate::translate::cqe::cqe;
use crate::translate::event::{self, AsyncEvent};
use std::sync::atomic::{Ordering, fence};
use vrdma_transport::{Completion, CqId, DeviceId, Event, Sink, WcStatus};

/// All devices of a worker, and what is to be told to them.
#[derive(Debug, Default)]
pub struct Outputs {
    devices: Vec<Option<Device>>,
    /// CQs with new CQEs whose arm words have not been looked at.
    dirty: Vec<(DeviceId, CqId)>,
    /// CQs with CQEs that raised no event because they were not armed.
    quiet: Vec<(DeviceId, CqId)>,
    /// Devices with events to flush.
    eventful: Vec<DeviceId>,
    /// CQs that failed and whose QPs do not know yet.
    pub failed: Vec<(DeviceId, CqId)>,
    overruns: RateLimit,
    /// Events wait for buffers; a worker that does not sleep tries them again every so many turns.
    waiting: bool,
    turns_waited: u32,
}

/// Turns between two attempts to hand over events that found no buffer.
const RETRY_TURNS: u32 = 1024;

impl Outputs {
    /// Adds a device under its id.
    pub fn add(&mut self, device: Device) {
        let index = device.id.0 as usize;
        if self.devices.len() <= index {
            self.devices.resize_with(index + 1, || None);
        }
        self.devices[index] = Some(device);
    }

    /// A device. Ids come from this process.
    #[inline]
    pub fn device(&mut self, id: DeviceId) -> &mut Device {
        self.devices[id.0 as usize]
            .as_mut()
            .expect("ids of devices are given out with the device, and it stays")
    }

    /// All devices.
    pub fn devices(&mut self) -> impl Iterator<Item = &mut Device> {
        self.devices.iter_mut().flatten()
    }

    /// Queues an async event.
    pub fn async_event(&mut self, id: DeviceId, event: AsyncEvent) {
        let device = self.device(id);
        device.counters.events += 1;
        device.async_events.push(event.kind, event.object);
        self.has_events(id);
    }

    /// Tells the consumers of new CQEs, if they asked for it, and hands events over. Once a turn of the worker.
    #[inline]
    pub fn flush(&mut self) {
        if !self.dirty.is_empty() {
            self.check_arms();
        }
        if !self.eventful.is_empty() {
            self.flush_events();
        }
        if self.waiting {
            self.turns_waited += 1;
            if self.turns_waited >= RETRY_TURNS {
                self.retry_events();
            }
        }
    }

    fn check_arms(&mut self) {
        // The consumer arms, then looks for CQEs; we publish CQEs, then look whether it armed.
        fence(Ordering::SeqCst);
        let mut dirty = std::mem::take(&mut self.dirty);
        for (id, cq_id) in dirty.drain(..) {
            let device = self.device(id);
            let Some(cq) = device.cqs.get_mut(cq_id.0) else { continue };
            cq.dirty = false;
            let solicited = std::mem::take(&mut cq.solicited);
            if cq.ring.take_event(solicited) {
                cq.quiet_solicited = false;
                self.completion_event(id, cq_id);
            } else {
                cq.quiet_solicited |= solicited;
                if !std::mem::replace(&mut cq.quiet, true) {
                    self.quiet.push((id, cq_id));
                }
            }
        }
        self.dirty = dirty;
    }

    /// A CQ's consumer is told of new CQEs.
    fn completion_event(&mut self, id: DeviceId, cq_id: CqId) {
        let device = self.device(id);
        let Some(cq) = device.cqs.get_mut(cq_id.0) else { return };
        device.comp_events[usize::from(cq.vector)].push(event::COMPLETION, cq_id.0);
        device.counters.events += 1;
        self.has_events(id);
    }

    /// Looks once more at the arm words of CQs that were not armed, and rings drivers that wanted no interrupt: what they wrote may not
    /// have shown before.
    pub fn look_again(&mut self) {
        let mut quiet = std::mem::take(&mut self.quiet);
        for (id, cq_id) in quiet.drain(..) {
            let Some(cq) = self.device(id).cqs.get_mut(cq_id.0) else { continue };
            cq.quiet = false;
            if cq.ring.take_late_event(std::mem::take(&mut cq.quiet_solicited)) {
                self.completion_event(id, cq_id);
            }
        }
        self.quiet = quiet;
        for device in self.devices.iter_mut().flatten() {
            device.comp_events.iter_mut().chain([&mut device.async_events]).for_each(EventQueue::look_again);
        }
        self.flush_events();
    }

    /// A device has something for [`Outputs::flush_events`]. Events of one device mostly come together.
    fn has_events(&mut self, id: DeviceId) {
        if self.eventful.last() != Some(&id) {
            self.eventful.push(id);
        }
    }

    fn flush_events(&mut self) {
        let mut eventful = std::mem::take(&mut self.eventful);
        for id in eventful.drain(..) {
            let device = self.device(id);
            let mut waiting = false;
            for queue in device.comp_events.iter_mut().chain([&mut device.async_events]) {
                if queue.is_pending() {
                    queue.flush();
                }
                waiting |= queue.is_waiting();
            }
            self.waiting |= waiting;
        }
        self.eventful = eventful;
    }

    /// Tries again to hand over events that found no buffer. True if some are left.
    pub fn retry_events(&mut self) -> bool {
        let (mut left, mut waiting) = (false, false);
        for device in self.devices.iter_mut().flatten() {
            for queue in device.comp_events.iter_mut().chain([&mut device.async_events]) {
                if queue.is_pending() {
                    queue.flush();
                    left |= queue.is_pending();
                }
                waiting |= queue.is_waiting();
            }
        }
        (self.waiting, self.turns_waited) = (waiting, 0);
        left
    }

    /// Marks a CQ as failed, once.
    pub fn fail_cq(&mut self, id: DeviceId, cq_id: CqId) {
        let device = self.device(id);
        let Some(cq) = device.cqs.get_mut(cq_id.0).filter(|cq| !cq.failed) else { return };
        cq.failed = true;
        device.counters.cq_overruns += 1;
        let name = device.guest.name.clone();
        self.failed.push((id, cq_id));
        self.async_event(id, AsyncEvent::cq_error(cq_id));
        self.overruns.warn(|| format!("guest {name}: CQ {} overran or lost its memory", cq_id.0));
    }
}

impl Sink for Outputs {
    #[inline]
    fn complete(&mut self, id: DeviceId, cq_id: CqId, completion: &Completion) {
        let device = self.device(id);
        device.counters.completions += 1;
        let Some(cq) = device.cqs.get_mut(cq_id.0) else { return };
        cq.solicited |= completion.solicited || completion.status != WcStatus::Success;
        if cq.ring.push(&cqe(completion)).is_err() {
            return self.fail_cq(id, cq_id);
        }
        if !cq.dirty {
            cq.dirty = true;
            self.dirty.push((id, cq_id));
        }
    }

    fn event(&mut self, id: DeviceId, event: Event) {
        self.async_event(id, event.into());
    }
}
