//! Events from the device.

use crate::front_end::Queue;
use crate::memory::Memory;
use crate::virtqueue::{Piece, Virtqueue};
use crate::wait;
use std::sync::Arc;
use std::time::Duration;
use vrdma_abi::event::{Event, EventKind};
use vrdma_abi::zerocopy::FromBytes;

/// An event, in the CPU's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub kind: EventKind,
    /// Number of the object that the event is about.
    pub object: u32,
}

/// An event queue whose buffers are all posted.
#[derive(Debug)]
pub struct EventReceiver {
    queue: Virtqueue,
    memory: Arc<Memory>,
    /// Guest-physical address of the buffer of each chain.
    buffers: Vec<u64>,
}

impl EventReceiver {
    /// Fills a clear queue with buffers.
    ///
    /// [`EventReceiver::kick`] reports the buffers to the device.
    pub fn new(queue: &Queue, memory: &Arc<Memory>, event_idx: bool) -> EventReceiver {
        let size = queue.ring.size;
        let at = memory.alloc(u64::from(size) * Event::SIZE as u64);
        let mut receiver = EventReceiver {
            queue: Virtqueue::new(queue.ring.clone(), queue.kick.clone(), queue.call.clone(), event_idx),
            memory: memory.clone(),
            buffers: vec![0; size.into()],
        };
        for i in 0..size {
            receiver.post(at + u64::from(i) * Event::SIZE as u64);
        }
        receiver
    }

    /// Returns the virtqueue, for callers that do not want its buffers posted again.
    pub fn queue(&mut self) -> &mut Virtqueue {
        &mut self.queue
    }

    /// Kicks, so that the device sees the buffers.
    pub fn kick(&self) {
        self.queue.kick();
    }

    fn post(&mut self, gpa: u64) {
        let head = self.queue.add(&[Piece { gpa, len: Event::SIZE as u32, writable: true }]);
        self.buffers[usize::from(head.expect("room for each buffer"))] = gpa;
    }

    /// Waits for the next event. It sleeps meanwhile: only an interrupt wakes it.
    pub fn recv(&mut self) -> Told {
        self.recv_within(wait::PATIENCE).expect("waited in vain: an event")
    }

    /// Waits for the next event, or returns `None` when `time` is over.
    pub fn recv_within(&mut self, time: Duration) -> Option<Told> {
        let (head, len) = self.queue.wait_used(time)?;
        assert_eq!(len as usize, Event::SIZE, "length of an event");
        let gpa = self.buffers[usize::from(head)];
        let bytes = self.memory.bytes(gpa, Event::SIZE as u64);
        let event = Event::read_from_bytes(&bytes).expect("the right length");
        self.post(gpa);
        Some(Told { kind: EventKind(event.kind.get()), object: event.object.get() })
    }
}
