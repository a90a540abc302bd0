//! Notifies consumers of completions and events, if they asked for it.

use super::{Broken, Outputs};
use crate::device::moderation::Fired;
use crate::memory::reap;
use crate::panics::{self, Panicked};
use crate::queue::event::EventQueue;
use crate::translate::event;
use std::sync::atomic::{Ordering, fence};
use vrdma_transport::{CqId, DeviceId, Instant};

/// Number of rounds between two attempts to deliver events that found no buffer.
const RETRY_TURNS: u32 = 1024;
/// Largest number of expired timers handled in one round.
const TIMERS: usize = 256;
/// Name of the step that notifies consumers of completions and events.
const EVENTS: &str = "its events";

impl Outputs {
    /// Notifies consumers of new CQEs if they asked for it, and delivers events. The worker calls
    /// it once a round.
    ///
    /// Returns true if there is more to do.
    #[inline]
    pub fn flush(&mut self, now: Instant) -> bool {
        self.clock.renew();
        if !self.dirty.is_empty() {
            self.check_arms(now);
        }
        let more = self.next_timer().is_some_and(|at| at <= now) && self.raise_due(now);
        if !self.eventful.is_empty() {
            self.flush_events();
        }
        if self.waiting {
            self.turns_waited += 1;
            if self.turns_waited >= RETRY_TURNS {
                self.retry_events();
            }
        }
        more
    }

    /// Returns when the next moderated event is due.
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Raises moderated events that are due. Returns true if there may be more.
    fn raise_due(&mut self, now: Instant) -> bool {
        for _ in 0..TIMERS {
            let Some((at, id, cq_id)) = self.timers.pop(now) else { return false };
            self.step(id, |outputs| outputs.raise(at, id, cq_id, now));
        }
        true
    }

    fn raise(&mut self, at: Instant, id: DeviceId, cq_id: CqId, now: Instant) {
        let Some(cq) = self.device(id).cqs.get_mut(cq_id.0) else { return };
        match cq.waiting.fire(at, now) {
            Fired::Later(at) => self.timers.set(at, id, cq_id),
            // Solicited completions are not moderated.
            Fired::Due if cq.ring.take_event(false) => self.completion_event(id, cq_id),
            Fired::Due | Fired::Nothing => {}
        }
    }

    fn check_arms(&mut self, now: Instant) {
        // The consumer arms, then polls for CQEs. This side publishes CQEs, then checks whether the
        // CQ is armed.
        fence(Ordering::SeqCst);
        let mut dirty = std::mem::take(&mut self.dirty);
        for (id, cq_id) in dirty.drain(..) {
            self.step(id, |outputs| outputs.check_arm(id, cq_id, now));
        }
        self.dirty = dirty;
    }

    #[inline]
    fn check_arm(&mut self, id: DeviceId, cq_id: CqId, now: Instant) {
        let device = self.device(id);
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&device.guest.name);
        let Some(cq) = device.cqs.get_mut(cq_id.0) else { return };
        cq.dirty = false;
        let (solicited, new) = (std::mem::take(&mut cq.solicited), std::mem::take(&mut cq.new));
        // A solicited or unsuccessful completion is not delayed.
        if let Some(moderation) = cq.moderation.filter(|_| !solicited && cq.ring.is_armed())
            && !cq.waiting.gather(moderation, new, now)
        {
            if let Some(at) = cq.waiting.take_timer() {
                self.timers.set(at, id, cq_id);
            }
            return;
        }
        if cq.ring.take_event(solicited) {
            cq.waiting.raised();
            cq.quiet_solicited = false;
            self.completion_event(id, cq_id);
        } else {
            cq.quiet_solicited |= solicited;
            if !std::mem::replace(&mut cq.quiet, true) {
                self.quiet.push((id, cq_id));
            }
        }
    }

    /// Executes a step about one device alone. If it panics, the device has to end.
    #[inline]
    fn step(&mut self, id: DeviceId, step: impl FnOnce(&mut Outputs)) {
        if let Err(panicked) = panics::contain_step(EVENTS, || step(self)) {
            self.device_broke(id, panicked);
        }
    }

    #[cold]
    fn device_broke(&mut self, id: DeviceId, panicked: Panicked) {
        reap(self.device(id).reset());
        self.broken.push((Broken::Panicked(panicked), vec![id]));
    }

    /// Queues a completion event for a CQ.
    fn completion_event(&mut self, id: DeviceId, cq_id: CqId) {
        let device = self.device(id);
        let Some(cq) = device.cqs.get_mut(cq_id.0) else { return };
        device.comp_events[usize::from(cq.vector)].push(event::COMPLETION, cq_id.0);
        device.counters.events += 1;
        self.has_events(id);
    }

    /// Checks again the arm words of CQs that were not armed, and interrupts drivers that wanted no
    /// interrupt.
    ///
    /// Their writes may not have been visible before.
    pub fn look_again(&mut self) {
        let mut quiet = std::mem::take(&mut self.quiet);
        for (id, cq_id) in quiet.drain(..) {
            self.step(id, |outputs| {
                let Some(cq) = outputs.device(id).cqs.get_mut(cq_id.0) else { return };
                cq.quiet = false;
                if cq.ring.take_late_event(std::mem::take(&mut cq.quiet_solicited)) {
                    outputs.completion_event(id, cq_id);
                }
            });
        }
        self.quiet = quiet;
        for index in 0..self.devices.len() {
            let Some(id) = self.devices[index].as_ref().map(|device| device.id) else { continue };
            self.step(id, |outputs| outputs.device(id).event_queues().for_each(EventQueue::look_again));
        }
        self.flush_events();
    }

    fn flush_events(&mut self) {
        let mut eventful = std::mem::take(&mut self.eventful);
        for id in eventful.drain(..) {
            self.step(id, |outputs| {
                let mut waiting = false;
                for queue in outputs.device(id).event_queues() {
                    if queue.is_pending() {
                        queue.flush();
                    }
                    waiting |= queue.is_waiting();
                }
                outputs.waiting |= waiting;
            });
        }
        self.eventful = eventful;
    }

    /// Retries events that found no buffer. Returns true if some are left.
    pub fn retry_events(&mut self) -> bool {
        let (mut left, mut waiting) = (false, false);
        for index in 0..self.devices.len() {
            let Some(id) = self.devices[index].as_ref().map(|device| device.id) else { continue };
            self.step(id, |outputs| {
                for queue in outputs.device(id).event_queues() {
                    if queue.is_pending() {
                        queue.flush();
                        left |= queue.is_pending();
                    }
                    waiting |= queue.is_waiting();
                }
            });
        }
        (self.waiting, self.turns_waited) = (waiting, 0);
        left
    }
}
