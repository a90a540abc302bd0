//! The engine's sink: it writes completions and events to the guests.

mod notifications;

use super::Device;
use super::clock::Clock;
use super::moderation::Timers;
use crate::capture::{CapturedMessage, MessageEnd, Tap};
use crate::cycles::{self, Stage};
use crate::panics::{self, Panicked};
use crate::queue::cq::CqeSlot;
use crate::ratelimit::{RateLimit, limited};
use crate::translate::cqe::CqeWords;
use crate::translate::event::AsyncEvent;
use std::time::Duration;
use vrdma_transport::{
    Completion, CqId, DeviceId, Event, Mirror, MirrorEnds, PacketPayload, Sink, WatchedEnd, WcStatus,
};
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::Packet;

/// All devices of a worker, and the output for them.
#[derive(Debug, Default)]
pub struct Outputs {
    /// The clock.
    pub clock: Clock,
    devices: Vec<Option<Device>>,
    /// CQEs to publish together, the last one first.
    ///
    /// A consumer polls the first free slot. In this order its processor gets that cache line once,
    /// and the lines behind stay with this processor while it writes them. If CQEs were published
    /// one by one, each line would move back and forth.
    gathered: Gathered,
    gathers: bool,
    /// Bytes of the requests that were executed since completions were last published.
    carried: u64,
    /// CQs with new CQEs whose arm words have not been checked.
    dirty: Vec<(DeviceId, CqId)>,
    /// CQs with CQEs that raised no event because they were not armed.
    quiet: Vec<(DeviceId, CqId)>,
    /// Timers of CQs whose events wait for more completions.
    timers: Timers,
    /// Devices with events to flush.
    eventful: Vec<DeviceId>,
    /// CQs that failed and whose QPs have not been told.
    pub failed: Vec<(DeviceId, CqId)>,
    /// Devices that are to end, and the reason.
    pub broken: Vec<(Broken, Vec<DeviceId>)>,
    overruns: RateLimit,
    /// Captures of messages within the worker.
    pub tap: Tap,
    /// Whether events wait for buffers. A worker that does not sleep retries them every
    /// `RETRY_TURNS` rounds.
    waiting: bool,
    turns_waited: u32,
}

/// The reason why devices have to end.
#[derive(Debug)]
pub enum Broken {
    /// A step that worked on them panicked.
    Panicked(Panicked),
    /// Another worker copies too long from memory that they had pinned for it.
    Kept,
}

/// A CQE with a reserved slot, which is to be published.
#[derive(Clone, Copy, Debug)]
struct NewCqe {
    device: DeviceId,
    cq: CqId,
    place: CqeSlot,
    words: CqeWords,
}

/// CQEs to publish, in the order of completion.
///
/// It is an array so that each CQE is made in its final location. A copy would stall, as
/// [`CqeWords`] explains.
#[derive(Debug)]
struct Gathered {
    all: [NewCqe; GATHERED],
    count: usize,
}

impl Default for Gathered {
    fn default() -> Gathered {
        let none =
            NewCqe { device: DeviceId(0), cq: CqId(0), place: CqeSlot::default(), words: CqeWords([0; 4]) };
        Gathered { all: [none; GATHERED], count: 0 }
    }
}

/// Largest number of completions that are published together.
const GATHERED: usize = 32;
/// Bytes of messages after which waiting completions are published.
const GATHERED_BYTES: u64 = 8192;

impl Outputs {
    /// Adds a device under its number.
    pub fn add(&mut self, device: Device) {
        let index = device.id.0 as usize;
        if self.devices.len() <= index {
            self.devices.resize_with(index + 1, || None);
        }
        self.devices[index] = Some(device);
    }

    /// Removes a device that was detached. What waits for it is dropped.
    pub fn remove(&mut self, id: DeviceId) {
        self.publish();
        self.dirty.retain(|(device, _)| *device != id);
        self.quiet.retain(|(device, _)| *device != id);
        self.timers.forget(id);
        self.eventful.retain(|device| *device != id);
        self.failed.retain(|(device, _)| *device != id);
        for (_, devices) in &mut self.broken {
            devices.retain(|device| *device != id);
        }
        self.devices[id.0 as usize] = None;
    }

    /// Returns a device. Numbers come from this process.
    #[inline]
    pub fn device(&mut self, id: DeviceId) -> &mut Device {
        device(&mut self.devices, id)
    }

    /// Returns all devices.
    pub fn devices(&mut self) -> impl Iterator<Item = &mut Device> {
        self.devices.iter_mut().flatten()
    }

    /// Returns all devices, to look at them.
    pub fn all_devices(&self) -> impl Iterator<Item = &Device> + Clone {
        self.devices.iter().flatten()
    }

    /// Queues an asynchronous event.
    pub fn async_event(&mut self, id: DeviceId, event: AsyncEvent) {
        // Earlier completions must be visible before the event.
        self.publish_gathered();
        let device = self.device(id);
        device.counters.events += 1;
        device.async_events.push(event.kind, event.object);
        self.has_events(id);
    }

    /// Publishes, after a panic, the completions of other devices from before it.
    pub fn put_right(&mut self) {
        self.publish();
    }

    /// Records that a device has events for [`Outputs::flush_events`].
    ///
    /// Only the last entry is compared, because events of one device mostly come together.
    fn has_events(&mut self, id: DeviceId) {
        if self.eventful.last() != Some(&id) {
            self.eventful.push(id);
        }
    }

    /// Revokes a device's pinned regions before a failure is reported. The guest may then reuse all
    /// memory that no request has.
    ///
    /// Returns false if a copy from its memory is still in progress. The device then has to end.
    /// The guest is told nothing more, so its driver leaves the memory as it is.
    #[cold]
    pub fn take_loans_back(&mut self, id: DeviceId) -> bool {
        let device = self.device(id);
        if device.pin_gate.revoke() {
            return true;
        }
        // The device ends once. Without a front-end there is nobody to tell.
        if let Some(connection) = device.take_connection() {
            device.ended(connection);
            self.broken.push((Broken::Kept, vec![id]));
        }
        false
    }

    /// Notes that a request failed, and takes loans back as [`Outputs::take_loans_back`] does.
    #[cold]
    fn request_failed(&mut self, id: DeviceId, qpn: Qpn, status: WcStatus) -> bool {
        let Outputs { devices, clock, .. } = self;
        device(devices, id).failures.completed(|| clock.now(), qpn, status);
        self.take_loans_back(id)
    }

    /// Returns whether a device has to end.
    pub fn is_ending(&self, id: DeviceId) -> bool {
        self.broken.iter().any(|(_, devices)| devices.contains(&id))
    }

    /// Marks a CQ as failed, once.
    pub fn fail_cq(&mut self, id: DeviceId, cq_id: CqId) {
        let device = self.device(id);
        let Some(cq) = device.cqs.get_mut(cq_id.0).filter(|cq| !cq.failed) else { return };
        cq.failed = true;
        device.counters.cq_overruns += 1;
        self.failed.push((id, cq_id));
        self.async_event(id, AsyncEvent::cq_error(cq_id));
        let guest = &self::device(&mut self.devices, id).guest;
        limited!(self.overruns, Warn, guest = guest.configured_name();
            "guest {}: CQ {} overran or lost its memory", guest.name, cq_id.0);
    }
}

#[inline]
fn device(devices: &mut [Option<Device>], id: DeviceId) -> &mut Device {
    devices[id.0 as usize].as_mut().expect("ids of devices are given out with the device, and it stays")
}

impl Outputs {
    /// Starts to gather completions, until [`Outputs::publish`].
    #[inline]
    pub fn gather(&mut self) {
        self.gathers = true;
    }

    /// Records that a request of `bytes` bytes is about to be executed.
    ///
    /// It publishes gathered completions if they would otherwise wait for long messages.
    #[inline]
    pub fn carries(&mut self, bytes: u64) {
        self.carried += bytes;
        if self.carried >= GATHERED_BYTES {
            self.publish_gathered();
        }
    }

    /// Publishes the gathered completions, and stops gathering.
    #[inline]
    pub fn publish(&mut self) {
        self.gathers = false;
        self.publish_gathered();
    }

    #[inline]
    fn publish_gathered(&mut self) {
        self.carried = 0;
        if self.gathered.count != 0 {
            // The completions may belong to several devices.
            panics::shared(|| self.publish_all());
        }
    }

    #[inline]
    fn publish_all(&mut self) {
        let Outputs { devices, clock, gathered, .. } = self;
        let count = std::mem::take(&mut gathered.count);
        let mut rest = &gathered.all[..count];
        while let Some(&NewCqe { device: id, cq, .. }) = rest.last() {
            // CQEs of one CQ mostly come together. The CQ is looked up once for each such run.
            let is_other = |new: &NewCqe| new.device != id || new.cq != cq;
            let (others, run) = rest.split_at(rest.iter().rposition(is_other).map_or(0, |at| at + 1));
            // Commands that destroy or resize a CQ run outside the gathering of requests, so
            // nothing is gathered then.
            if let Some(cq) = device(devices, id).cqs.get_mut(cq.0) {
                run.iter().rev().for_each(|new| cq.ring.write(new.place, &new.words.0, || clock.stamp().0));
            }
            rest = others;
        }
    }

    /// Reserves the slot of a completion in its CQ. Returns the slot, and whether it may be written
    /// later.
    ///
    /// `None` if the CQ is gone or full.
    #[inline]
    fn reserve(&mut self, id: DeviceId, cq_id: CqId, is_urgent: bool) -> Option<(CqeSlot, bool)> {
        let device = device(&mut self.devices, id);
        device.counters.completions += 1;
        let cq = device.cqs.get_mut(cq_id.0)?;
        cq.solicited |= is_urgent;
        let Ok(place) = cq.ring.reserve() else {
            self.fail_cq(id, cq_id);
            return None;
        };
        cq.new += 1;
        if !cq.dirty {
            cq.dirty = true;
            self.dirty.push((id, cq_id));
        }
        Some((place, cq.ring.may_wait()))
    }
}

impl Sink for Outputs {
    /// Reports a completion.
    ///
    /// It is inlined into the caller. The compiler then sees which parts of a completion are
    /// absent, and simplifies the CQE's words.
    #[inline(always)]
    fn complete(&mut self, id: DeviceId, cq_id: CqId, completion: &Completion) {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.device(id).guest.name);
        if completion.status != WcStatus::Success
            && !self.request_failed(id, completion.qpn, completion.status)
        {
            return;
        }
        let CqeWords([first, second, third, last]) = CqeWords::new(completion);
        let is_urgent = completion.solicited || completion.status != WcStatus::Success;
        self.put(id, cq_id, is_urgent, first, second, third, last);
    }

    fn event(&mut self, id: DeviceId, event: Event) {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.device(id).guest.name);
        let Outputs { devices, clock, .. } = self;
        device(devices, id).failures.happened(|| clock.now(), event);
        if self.take_loans_back(id) {
            self.tell_of_failure(id, event);
            self.async_event(id, event.into());
        }
    }

    #[cold]
    fn watched(&mut self, id: DeviceId, end: &WatchedEnd) {
        let took = Duration::from_nanos(self.clock.now().0.saturating_sub(end.since.0));
        self.device(id).latencies.add(end, took);
    }

    #[inline(always)]
    fn mirror(&mut self) -> Option<&mut dyn Mirror> {
        if self.tap.is_on() { Some(self) } else { None }
    }
}

impl Mirror for Outputs {
    fn wants(&mut self, ends: MirrorEnds) -> bool {
        self.tap.wants(self.captured(ends))
    }

    fn packet(&mut self, ends: MirrorEnds, packet: &Packet, payload: &dyn PacketPayload) {
        self.tap.message(self.captured(ends), packet, payload);
    }
}

impl Outputs {
    /// Returns a message between these queue pairs, as captures know it.
    fn captured(&self, ends: MirrorEnds) -> CapturedMessage<'_> {
        let end = |(id, qpn): (DeviceId, Qpn)| {
            let device = self.devices[id.0 as usize].as_ref().expect("it has just sent or received");
            MessageEnd { guest: device.guest.configured_name(), qpn }
        };
        CapturedMessage { from: end(ends.from), to: ends.to.map(end) }
    }

    /// Logs events that report a failure of a QP.
    #[cold]
    fn tell_of_failure(&mut self, id: DeviceId, event: Event) {
        let (qpn, what) = match event {
            Event::QpFatal(qpn) => (qpn, "has failed"),
            Event::QpRequestError(qpn) => (qpn, "got a request that is invalid"),
            Event::QpAccessError(qpn) => (qpn, "got a request that it does not allow"),
            _ => return,
        };
        let Device { guest, failure_messages, .. } = device(&mut self.devices, id);
        let (name, qpn) = (&guest.name, qpn.number());
        limited!(failure_messages, Info, guest = guest.configured_name(), qpn = qpn;
            "guest {name}: QP {qpn} {what}");
    }

    /// Writes a CQE to its CQ, or adds it to the gathered ones. An urgent one raises a solicited
    /// event.
    ///
    /// The words are separate arguments, so that they are passed in registers.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "see above")]
    fn put(
        &mut self,
        id: DeviceId,
        cq_id: CqId,
        is_urgent: bool,
        first: u64,
        second: u64,
        third: u64,
        last: u64,
    ) {
        let _mark = cycles::enter(Stage::Complete);
        let Some((place, may_wait)) = self.reserve(id, cq_id, is_urgent) else { return };
        let words = CqeWords([first, second, third, last]);
        if !self.gathers || !may_wait {
            let Outputs { devices, clock, .. } = self;
            if let Some(cq) = device(devices, id).cqs.get_mut(cq_id.0) {
                cq.ring.write(place, &words.0, || clock.stamp().0);
            }
            return;
        }
        let Gathered { all, count } = &mut self.gathered;
        all[*count] = NewCqe { device: id, cq: cq_id, place, words };
        *count += 1;
        if *count == GATHERED {
            self.publish_gathered();
        }
    }
}
