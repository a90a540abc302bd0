//! Event virtqueues (see `vrdma_abi::event`).

use super::{Call, VirtqueueSetup};
use crate::memory::GuestMemory;
use std::collections::{HashSet, VecDeque};
use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};
use vrdma_abi::event::{Event, EventKind};
use vrdma_abi::zerocopy::IntoBytes;

/// A virtqueue for events to the driver, and the events that wait for a buffer.
#[derive(Debug, Default)]
pub struct EventQueue {
    attached: Option<Attached>,
    pending: VecDeque<(EventKind, u32)>,
    /// The contents of `pending`. A second event of the same kind and object would add nothing.
    queued: HashSet<(EventKind, u32)>,
}

#[derive(Debug)]
struct Attached {
    queue: Queue,
    call: Option<Arc<Call>>,
    memory: Arc<GuestMemory>,
    /// At the last delivery the driver wanted no interrupt.
    quiet: bool,
    /// The rings cannot be read or are invalid. The queue is not touched until it is started again.
    broken: bool,
}

impl EventQueue {
    /// Attaches the virtqueue that the front-end started. Returns false if its rings are not in
    /// guest memory.
    pub fn attach(&mut self, memory: &Arc<GuestMemory>, setup: &VirtqueueSetup, base: u16) -> bool {
        let queue = setup.queue(base, memory);
        self.attached = queue.map(|queue| Attached {
            queue,
            call: setup.call.clone(),
            memory: memory.clone(),
            quiet: false,
            broken: false,
        });
        self.attached.is_some()
    }

    /// Detaches the virtqueue that the front-end stopped. Returns the index at which it may
    /// continue, if it was running.
    pub fn detach(&mut self) -> Option<u16> {
        self.attached.take().map(|a| a.queue.next_avail())
    }

    /// Replaces the eventfd that interrupts the driver.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        if let Some(attached) = &mut self.attached {
            attached.call = call;
        }
    }

    /// Discards the queued events.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.queued.clear();
    }

    /// Discards the queued events of an object that is destroyed.
    pub fn forget(&mut self, object: u32, kinds: &[EventKind]) {
        let dead = |(kind, of): &(EventKind, u32)| *of == object && kinds.contains(kind);
        // `count` visits all kinds. `any` would stop at the first one found.
        let found = kinds.iter().filter(|&&kind| self.queued.remove(&(kind, object))).count();
        if found != 0 {
            self.pending.retain(|event| !dead(event));
        }
    }

    /// Switches to a new memory table.
    pub fn remap(&mut self, memory: &Arc<GuestMemory>) {
        if let Some(attached) = &mut self.attached {
            attached.memory = memory.clone();
        }
    }

    /// Queues an event.
    pub fn push(&mut self, kind: EventKind, object: u32) {
        if self.queued.insert((kind, object)) {
            self.pending.push_back((kind, object));
        }
    }

    /// Returns whether events wait that [`EventQueue::flush`] may deliver.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() && self.attached.as_ref().is_some_and(|attached| !attached.broken)
    }

    /// Returns whether events wait, even if the virtqueue is stopped or broken.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Delivers events as far as the driver has posted buffers. Interrupts the driver if it asks
    /// for that.
    pub fn flush(&mut self) {
        let Some(attached) = &mut self.attached else { return };
        let mut used = false;
        // At most one ring of buffers is examined in a round. This bounds the work if a driver
        // keeps returning useless buffers, and if many events wait.
        let mut buffers = attached.queue.size();
        while let Some(&(kind, object)) = self.pending.front() {
            if !attached.put(kind, object, &mut buffers) {
                break;
            }
            used = true;
            self.pending.pop_front();
            self.queued.remove(&(kind, object));
        }
        if !used {
            return;
        }
        attached.quiet = !attached.queue.needs_notification(attached.memory.mmap()).unwrap_or(true);
        if let Some(call) = attached.call.as_ref().filter(|_| !attached.quiet) {
            call.ring();
        }
    }

    /// Interrupts a driver that wanted no interrupt at the last delivery.
    ///
    /// Its request for one may not have been visible then.
    pub fn look_again(&mut self) {
        if let Some(attached) = &mut self.attached
            && std::mem::take(&mut attached.quiet)
            && let Some(call) = &attached.call
        {
            call.ring();
        }
    }
}

impl Attached {
    /// Writes an event to a buffer. Returns false if none of the next `buffers` buffers is
    /// suitable.
    ///
    /// A buffer that is too small or not writable is returned empty.
    fn put(&mut self, kind: EventKind, object: u32, buffers: &mut u16) -> bool {
        let event = Event { kind: kind.0.into(), object: object.into(), ..Event::default() };
        let memory = self.memory.mmap();
        while *buffers > 0 {
            *buffers -= 1;
            let available = self.queue.avail_idx(memory, Ordering::Acquire);
            let sane = |idx: Wrapping<u16>| idx.0.wrapping_sub(self.queue.next_avail()) <= self.queue.size();
            if self.broken || !available.is_ok_and(sane) {
                self.broken = true;
                return false;
            }
            let Some(mut chain) = self.queue.pop_descriptor_chain(memory) else { return false };
            let head = chain.head_index();
            let written = chain
                .next()
                .filter(|d| d.is_write_only() && d.len() as usize >= Event::SIZE)
                .is_some_and(|d| memory.write_slice(event.as_bytes(), GuestAddress(d.addr().0)).is_ok());
            let len = if written { Event::SIZE as u32 } else { 0 };
            if self.queue.add_used(memory, head, len).is_err() {
                self.broken = true;
                return false;
            }
            if written {
                return true;
            }
        }
        false
    }
}

impl VirtqueueSetup {
    /// Makes a queue of the crate `virtio-queue`. Returns `None` if a ring is outside guest memory
    /// or not aligned.
    pub fn queue(&self, base: u16, memory: &GuestMemory) -> Option<Queue> {
        // `virtio-queue` takes an available ring at address 0 for a missing one, at each access.
        if self.avail == 0 {
            return None;
        }
        let mut queue = Queue::new(self.size).ok()?;
        queue.try_set_size(self.size).ok()?;
        queue.try_set_desc_table_address(GuestAddress(self.desc)).ok()?;
        queue.try_set_avail_ring_address(GuestAddress(self.avail)).ok()?;
        queue.try_set_used_ring_address(GuestAddress(self.used)).ok()?;
        queue.set_event_idx(self.event_idx);
        queue.set_next_avail(base);
        let used = queue.used_idx(memory.mmap(), Ordering::Acquire).ok()?;
        queue.set_next_used(used.0);
        queue.set_ready(true);
        queue.is_valid(memory.mmap()).then_some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;
    use crate::memory::{Extent, Shared};

    #[test]
    fn all_kinds_of_events_of_a_destroyed_object_are_forgotten() {
        let kinds = [EventKind::QP_FATAL, EventKind::COMM_EST];
        let mut queue = EventQueue::default();
        for object in [5, 6] {
            kinds.iter().for_each(|&kind| queue.push(kind, object));
        }
        queue.forget(5, &kinds);
        assert_eq!(queue.pending, [(EventKind::QP_FATAL, 6), (EventKind::COMM_EST, 6)]);
        assert_eq!(queue.queued.len(), 2);
        // The next object with this number has its own events.
        kinds.iter().for_each(|&kind| queue.push(kind, 5));
        assert_eq!(queue.pending.len(), 4);
    }

    /// The test driver's used ring overlaps its available ring, so each returned buffer makes
    /// another one available.
    ///
    /// All buffers are useless until the last entry of the used ring is written. That entry repairs
    /// the only descriptor.
    #[test]
    fn of_useless_buffers_no_more_than_a_ring_full_is_looked_at_in_a_turn() {
        const SIZE: u16 = 8;
        let memory = memory(&[(0, 0x2000)]);
        let words = Shared::<16>::new(&memory, Extent { gpa: 0, len: 0x2000 }).unwrap();
        // The last entry of the used ring overlays the address in descriptor 0.
        let (rings, desc) = (0x1004, 0x1040);
        words.store64(desc, 1 << 40, Ordering::Relaxed);
        words.store32(desc + 8, Event::SIZE as u32, Ordering::Relaxed);
        words.store16(desc + 12, 2, Ordering::Relaxed);
        words.store16(rings + 2, SIZE, Ordering::Relaxed);
        let (desc, avail, used) = (desc as u64, rings as u64, rings as u64);
        let setup = VirtqueueSetup {
            index: 1,
            size: SIZE,
            desc,
            avail,
            used,
            event_idx: false,
            kick: None,
            call: None,
        };
        let mut queue = EventQueue::default();
        assert!(queue.attach(&memory, &setup, SIZE - 1));
        queue.push(EventKind::PORT_ACTIVE, 1);
        queue.flush();
        assert_eq!(words.load16(rings + 2, Ordering::Relaxed), 2 * SIZE, "one for each of a ring");
        assert!(queue.is_pending(), "the rest is for other turns");
        queue.flush();
        assert!(!queue.is_waiting(), "the buffer that came then is good");
        assert_eq!(words.load16(rings + 2, Ordering::Relaxed), 2 * SIZE + 1);
    }
}
