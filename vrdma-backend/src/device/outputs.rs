//! Where completions and events go: the engine's sink.

mod telling;

use super::Device;
use super::clock::Clock;
use super::moderation::Timers;
use crate::cycles::{self, Stage};
use crate::panics::{self, Panicked};
use crate::queue::cq::Place;
use crate::ratelimit::RateLimit;
use crate::translate::cqe::CqeWords;
use crate::translate::event::AsyncEvent;
use vrdma_transport::{Completion, CqId, DeviceId, Event, Sink, WcStatus};

/// All devices of a worker, and what is to be told to them.
#[derive(Debug, Default)]
pub struct Outputs {
    /// What time it is.
    pub clock: Clock,
    devices: Vec<Option<Device>>,
    /// CQEs that are published together, the last one first. Consumers look at the first place that
    /// is free: it becomes theirs once, and the lines behind it stay with us while we write to
    /// them, where each would go back and forth if they were published one by one.
    gathered: Gathered,
    gathers: bool,
    /// Bytes of the requests that were carried out since completions were published.
    carried: u64,
    /// CQs with new CQEs whose arm words have not been looked at.
    dirty: Vec<(DeviceId, CqId)>,
    /// CQs with CQEs that raised no event because they were not armed.
    quiet: Vec<(DeviceId, CqId)>,
    /// CQs whose events wait for more completions.
    timers: Timers,
    /// Devices with events to flush.
    eventful: Vec<DeviceId>,
    /// CQs that failed and whose QPs do not know yet.
    pub failed: Vec<(DeviceId, CqId)>,
    /// Devices that are to end, and why.
    pub broken: Vec<(Broken, Vec<DeviceId>)>,
    overruns: RateLimit,
    /// Events wait for buffers; a worker that does not sleep tries them again every so many turns.
    waiting: bool,
    turns_waited: u32,
}

/// Why devices are to end.
#[derive(Debug)]
pub enum Broken {
    /// A step that had them at hand panicked.
    Panicked(Panicked),
    /// Another worker copies for too long from memory that they lent.
    Kept,
}

/// A CQE that has its place, and is to be published.
#[derive(Clone, Copy, Debug)]
struct NewCqe {
    device: DeviceId,
    cq: CqId,
    place: Place,
    words: CqeWords,
}

/// CQEs that are to be published, in the order in which they completed. An array, in which each is
/// made where it stays: one that is made elsewhere and copied costs a stall, as of [`CqeWords`].
#[derive(Debug)]
struct Gathered {
    all: [NewCqe; GATHERED],
    count: usize,
}

impl Default for Gathered {
    fn default() -> Gathered {
        let none =
            NewCqe { device: DeviceId(0), cq: CqId(0), place: Place::default(), words: CqeWords([0; 4]) };
        Gathered { all: [none; GATHERED], count: 0 }
    }
}

/// Completions that are published together at most.
const GATHERED: usize = 32;
/// Bytes of messages for which completions wait for each other at most.
const GATHERED_BYTES: u64 = 8192;

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
        device(&mut self.devices, id)
    }

    /// All devices.
    pub fn devices(&mut self) -> impl Iterator<Item = &mut Device> {
        self.devices.iter_mut().flatten()
    }

    /// Queues an async event.
    pub fn async_event(&mut self, id: DeviceId, event: AsyncEvent) {
        // What completed before it is seen before it.
        self.publish_gathered();
        let device = self.device(id);
        device.counters.events += 1;
        device.async_events.push(event.kind, event.object);
        self.has_events(id);
    }

    /// After a panic: what completed of others before is published.
    pub fn put_right(&mut self) {
        self.publish();
    }

    /// A device has something for [`Outputs::flush_events`]. Events of one device mostly come
    /// together.
    fn has_events(&mut self, id: DeviceId) {
        if self.eventful.last() != Some(&id) {
            self.eventful.push(id);
        }
    }

    /// Something of a device ends other than well: its guest may use all memory that is not of
    /// requests again. False if it may not, for somebody copies from it still: then the device is
    /// to end, and the guest is told nothing more, so that its driver leaves the memory as it is.
    #[cold]
    pub fn take_loans_back(&mut self, id: DeviceId) -> bool {
        let device = self.device(id);
        if device.loans.take_back() {
            return true;
        }
        // Once; and where no front-end is there is nobody to be told.
        if let Some(connection) = device.take_connection() {
            device.ended(connection);
            self.broken.push((Broken::Kept, vec![id]));
        }
        false
    }

    /// Whether a device is to end.
    pub fn is_ending(&self, id: DeviceId) -> bool {
        self.broken.iter().any(|(_, devices)| devices.contains(&id))
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

#[inline]
fn device(devices: &mut [Option<Device>], id: DeviceId) -> &mut Device {
    devices[id.0 as usize].as_mut().expect("ids of devices are given out with the device, and it stays")
}

impl Outputs {
    /// Completions are gathered from now on, until [`Outputs::publish`].
    #[inline]
    pub fn gather(&mut self) {
        self.gathers = true;
    }

    /// A request of so many bytes is about to be carried out. Completions do not wait for long
    /// messages behind them.
    #[inline]
    pub fn carries(&mut self, bytes: u64) {
        self.carried += bytes;
        if self.carried >= GATHERED_BYTES {
            self.publish_gathered();
        }
    }

    /// Publishes what was gathered, and gathers no more.
    #[inline]
    pub fn publish(&mut self) {
        self.gathers = false;
        self.publish_gathered();
    }

    #[inline]
    fn publish_gathered(&mut self) {
        self.carried = 0;
        if self.gathered.count != 0 {
            // They may be of several devices.
            panics::shared(|| self.publish_all());
        }
    }

    #[inline]
    fn publish_all(&mut self) {
        let Outputs { devices, clock, gathered, .. } = self;
        let count = std::mem::take(&mut gathered.count);
        let mut rest = &gathered.all[..count];
        while let Some(&NewCqe { device: id, cq, .. }) = rest.last() {
            // Those of one CQ mostly come together: it is looked up once for them.
            let is_other = |new: &NewCqe| new.device != id || new.cq != cq;
            let (others, run) = rest.split_at(rest.iter().rposition(is_other).map_or(0, |at| at + 1));
            // What destroys a CQ, or moves it, is no request: it finds nothing gathered.
            if let Some(cq) = device(devices, id).cqs.get_mut(cq.0) {
                run.iter().rev().for_each(|new| cq.ring.write(new.place, &new.words.0, || clock.stamp().0));
            }
            rest = others;
        }
    }

    /// Takes the place of a completion in its CQ, and whether it may be written later; `None` if
    /// the CQ is gone, or has no place.
    #[inline]
    fn reserve(&mut self, id: DeviceId, cq_id: CqId, is_urgent: bool) -> Option<(Place, bool)> {
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
    /// What most completions do not tell is seen to be nothing where they are made, so the words
    /// are made there.
    #[inline(always)]
    fn complete(&mut self, id: DeviceId, cq_id: CqId, completion: &Completion) {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.device(id).guest.name);
        if completion.status != WcStatus::Success && !self.take_loans_back(id) {
            return;
        }
        let CqeWords([first, second, third, last]) = CqeWords::new(completion);
        let is_urgent = completion.solicited || completion.status != WcStatus::Success;
        self.put(id, cq_id, is_urgent, first, second, third, last);
    }

    fn event(&mut self, id: DeviceId, event: Event) {
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&self.device(id).guest.name);
        if self.take_loans_back(id) {
            self.async_event(id, event.into());
        }
    }
}

impl Outputs {
    /// Puts a CQE, by its words, into its CQ, or among those that are gathered. An urgent one
    /// raises a solicited event. (Its words one by one: they come in registers.)
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
